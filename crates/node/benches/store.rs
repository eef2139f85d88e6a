//! The costs of keeping events: `cargo bench -p redrive-node --bench store`.
//!
//! Events of 1 KiB, on the disk of the system's folder for temporary files; the time of a batch is told for
//! all its events. A bare log, which writes the same bytes and waits for the disk as often, shows what the
//! machine itself allows.

mod stage;

use std::cell::RefCell;
use std::fs::File;
use std::io::Write;

use divan::Bencher;
use divan::counter::ItemsCount;

use self::stage::{EVENT_BYTES, Kind, Stage};

const BATCHES: [usize; 3] = [1, 64, 512];

fn main() {
    divan::main();
}

/// What waits for the disk once a batch and does nothing else.
#[divan::bench(args = BATCHES, sample_count = 200, sample_size = 1)]
fn bare_log(bencher: Bencher<'_, '_>, events: usize) {
    let mut file = tempfile::tempfile().expect("a file");
    let bytes = vec![7; events * EVENT_BYTES];
    bencher.counter(ItemsCount::new(events)).bench_local(|| append(&mut file, &bytes));
}

fn append(file: &mut File, bytes: &[u8]) {
    file.write_all(bytes).expect("it is written");
    file.sync_data().expect("it is durable");
}

/// Each batch brings new events and says that those of the batch before were delivered.
#[divan::bench(args = BATCHES, sample_count = 200, sample_size = 1)]
fn accept_and_deliver(bencher: Bencher<'_, '_>, events: usize) {
    run(bencher, events, Kind::Unordered);
}

/// The same within 1,000 sessions that keep their order.
#[divan::bench(args = BATCHES, sample_count = 200, sample_size = 1)]
fn accept_and_deliver_in_sessions(bencher: Bencher<'_, '_>, events: usize) {
    run(bencher, events, Kind::InSessions);
}

/// Nothing is delivered.
#[divan::bench(args = BATCHES, sample_count = 200, sample_size = 1)]
fn accept_only(bencher: Bencher<'_, '_>, events: usize) {
    run(bencher, events, Kind::Held);
}

/// Every event came before.
#[divan::bench(args = BATCHES, sample_count = 200, sample_size = 1)]
fn known_again(bencher: Bencher<'_, '_>, events: usize) {
    run(bencher, events, Kind::Repeated);
}

fn run(bencher: Bencher<'_, '_>, events: usize, kind: Kind) {
    let stage = RefCell::new(Stage::new(kind));
    bencher
        .counter(ItemsCount::new(events))
        .with_inputs(|| stage.borrow_mut().batch(events))
        .bench_local_refs(|batch| stage.borrow_mut().write(batch));
}
