//! The costs of deciding: `cargo bench -p redrive-core`.
//!
//! Every figure stands beside a bare one of the same run (a clock read, a hash, an empty call), since
//! machines differ and are noisy. Budgets are in `docs/performance.md`.

mod large_book;

use divan::{Bencher, black_box};
use redrive_core::book::{self, RuleBook, lint};
use redrive_core::ids::{Attempt, DeliveryId, Seed};

fn main() {
    divan::main();
}

fn book() -> RuleBook {
    book::read(&large_book::large_book(1_000, 50)).book.expect("the generated book is a book")
}

#[divan::bench]
fn bare_clock_read() -> std::time::Instant {
    std::time::Instant::now()
}

#[divan::bench]
fn next_jitter_draw() -> u64 {
    Seed(black_box(7)).draw(DeliveryId(black_box(42)), Attempt::FIRST)
}

#[divan::bench(sample_count = 100, sample_size = 2_000)]
fn resolve_exact(bencher: Bencher<'_, '_>) {
    let book = book();
    let services: Vec<(String, String)> =
        (0..1_000).map(|i| (format!("service-{i}"), format!("shop.area-{}.event-{i}", i % 50))).collect();
    let mut next = (0..1_000).cycle();
    bencher.bench_local(|| {
        let (service, event) = &services[next.next().expect("endless") * 7 % 1_000];
        black_box(book.rule(service, None, event).expect("every service has its row"));
    });
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn check_1000_services_of_50_events(bencher: Bencher<'_, '_>) {
    let text = large_book::large_book(1_000, 50);
    bencher.bench_local(|| black_box(lint::check(text.as_bytes())));
}
