//! The contract that every store keeps: one table of scenarios, run against each implementation.

mod bench;
mod file;
mod intake;
mod model;
mod order;
mod paging;
mod recovery;
mod retention;

use std::path::Path;

use tempfile::TempDir;

use super::Store;
use super::memory::Memory;
use super::sqlite::{Options, Sqlite};
use bench::Bench;

/// A scenario and what it shows.
type Scenario = (&'static str, fn(&mut Bench));

fn scenarios() -> impl Iterator<Item = Scenario> {
    let all: [&[Scenario]; 5] =
        [intake::SCENARIOS, order::SCENARIOS, paging::SCENARIOS, recovery::SCENARIOS, retention::SCENARIOS];
    all.into_iter().flatten().copied()
}

/// A bench with an empty store in memory.
fn memory() -> Bench {
    let disk = Memory::new(7);
    Bench::new(Box::new(move || Box::new(disk.opened_again())))
}

/// A bench with an empty store in a folder, which seals so many hashes at a time.
fn file(run_length: usize) -> (TempDir, Bench) {
    let folder = folder();
    let path = folder.path().to_owned();
    let options = Options { run_length, seed: Some(7), ..Options::default() };
    let open = move || Box::new(Sqlite::open(&path, options).expect("it opens")) as Box<dyn Store>;
    (folder, Bench::new(Box::new(open)))
}

/// A folder of its own; in memory where the system has such, since tests write much and often.
fn folder() -> TempDir {
    let in_memory = Path::new("/dev/shm");
    let folder = if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() };
    folder.expect("a folder can be made")
}

#[test]
fn a_store_in_memory_keeps_the_contract() {
    for (name, scenario) in scenarios() {
        // Shown only when the scenario fails.
        println!("{name}");
        let mut bench = memory();
        scenario(&mut bench);
        bench.audit();
    }
}

#[test]
fn a_store_in_a_file_keeps_the_contract() {
    // As it is run, and with runs so short that hashes are sealed all the time.
    for run_length in [Options::default().run_length, 3] {
        for (name, scenario) in scenarios() {
            println!("{name}, {run_length} hashes in memory");
            let (_folder, mut bench) = file(run_length);
            scenario(&mut bench);
            bench.audit();
        }
    }
}

#[test]
fn a_clone_of_a_store_in_memory_is_a_snapshot() {
    let disk = Memory::new(7);
    let hand = disk.opened_again();
    let mut bench = Bench::new(Box::new(move || Box::new(hand.opened_again())));
    bench.take(&[bench::to("svc", bench::event("1"))]);
    let snapshot = disk.clone();
    bench.take(&[bench::to("svc", bench::event("2"))]);
    let events =
        |store: &Memory| store.reader().expect("memory has readers").counts().expect("and counts").events;
    assert_eq!((events(&disk), events(&snapshot)), (2, 1));
}
