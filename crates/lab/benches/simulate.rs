//! The costs of checking and simulating a rule book: `cargo bench -p redrive-lab`. Budgets are in `docs/performance.md`.

#[path = "../../core/benches/core/large_book.rs"]
mod large_book;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use divan::{AllocProfiler, Bencher, black_box};
use redrive_core::book::connectors::built_in;
use redrive_core::book::{self, RuleBook};
use redrive_lab::lint;
use redrive_lab::scenario::{self, Scenario};
use redrive_lab::simulate::{self, Go, SimulationPlan};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn check_1000_services_of_50_events(bencher: Bencher<'_, '_>) {
    let text = large_book::large_book(1_000, 50);
    bencher.bench_local(|| black_box(lint::check(text.as_bytes(), built_in())));
}

/// A million deliveries of one service, a tenth of which meet an outage, in virtual time.
#[divan::bench(sample_count = 2, sample_size = 1)]
fn simulate_a_million_deliveries(bencher: Bencher<'_, '_>) {
    let (scenario, book) = (million(), Arc::new(shop()));
    bencher.bench_local(|| {
        let plan = SimulationPlan { scenario: &scenario, book: Arc::clone(&book), seed: 1 };
        let report = simulate::run(&plan, &mut |_| Go::On).expect("no run is stopped");
        assert_eq!(report.deliveries, 1_000_000);
        report
    });
}

/// The bare limit beside it: a list in the order of time that three million happenings pass through, with ten
/// thousand on it. A delivery has about three: it arrives, its call ends, and somebody wakes for it.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn bare_list_of_three_million_happenings(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| {
        let mut list = BinaryHeap::new();
        let mut sum = 0_u64;
        for number in 0_u64..3_000_000 {
            // As long as a happening of the simulation.
            let what = [number; 8];
            list.push(Reverse((
                number * 1_000 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 10_000_000,
                what,
            )));
            if list.len() > 10_000
                && let Some(Reverse((at, _))) = list.pop()
            {
                sum = sum.wrapping_add(at);
            }
        }
        sum
    });
}

fn million() -> Scenario {
    let text = "version: 1\nduration: 1000s\narrivals: [{ type: orders.placed, rate: 1000/s, spacing: even, sessions: 10000 }]\n\
                dependencies: { api: { latency: { p50: 20ms, p99: 100ms }, phases: [{ at: 300s, for: 100s, is: down }] } }\n";
    scenario::read(text).scenario.expect("a sound scenario")
}

fn shop() -> RuleBook {
    let text = "version: 1\ndependencies: { api: { kind: webhook, in_flight: 500 } }\nservices:\n  shop:\n    \
                target: { http: \"http://127.0.0.1/\" }\n    depends_on: api\n    order: session\n    events: [\"orders.*\"]\n";
    book::read(text, built_in()).book.expect("a sound book")
}
