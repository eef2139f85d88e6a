//! The contract that every store keeps: one table of scenarios, run against each implementation.

mod access_store;
mod bench;
mod checks;
mod commands;
mod copies;
mod desk;
mod file;
mod intake;
mod letters;
mod model;
mod order;
mod paging;
mod recovery;
mod removed;
mod replay_steps;
mod replays;
mod retention;
mod strict;
mod twin;
mod wishes;

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::sqlite::{Options, Sqlite};
use super::{Store, StoreReader};
use bench::Bench;
use twin::Twin;

/// A scenario and what it shows.
type Scenario = (&'static str, fn(&mut Bench));

fn scenarios() -> impl Iterator<Item = Scenario> {
    let all: [&[Scenario]; 13] = [
        intake::SCENARIOS,
        copies::SCENARIOS,
        order::SCENARIOS,
        paging::SCENARIOS,
        recovery::SCENARIOS,
        removed::SCENARIOS,
        retention::SCENARIOS,
        letters::SCENARIOS,
        replays::SCENARIOS,
        replay_steps::SCENARIOS,
        strict::SCENARIOS,
        commands::SCENARIOS,
        access_store::SCENARIOS,
    ];
    all.into_iter().flatten().copied()
}

/// A bench with an empty twin.
fn twin() -> Bench {
    let disk = Twin::new(7);
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

/// A data folder of its own that tests open as often as they like, one after the other.
#[derive(Clone)]
pub(crate) struct DataFolder(Arc<TempDir>);

impl Default for DataFolder {
    fn default() -> Self {
        Self(Arc::new(folder()))
    }
}

impl DataFolder {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn open(&self) -> Sqlite {
        let options = Options { free_bytes_min: 0, seed: Some(7), ..Options::default() };
        Sqlite::open(self.path(), options).expect("it opens")
    }

    pub(crate) fn reader(&self) -> Box<dyn StoreReader> {
        Sqlite::open_reader(self.path()).expect("it opens")
    }
}

/// A folder of its own; in memory where the system has such, since tests write much and often.
fn folder() -> TempDir {
    let in_memory = Path::new("/dev/shm");
    let folder = if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() };
    folder.expect("a folder can be made")
}

/// Runs every scenario on a bench of its own; names all that fail, not only the first.
fn run_all<Kept>(bench: impl Fn() -> (Kept, Bench)) {
    run(scenarios(), bench);
}

fn run<Kept>(scenarios: impl Iterator<Item = Scenario>, bench: impl Fn() -> (Kept, Bench)) {
    let mut failed = Vec::new();
    for (name, scenario) in scenarios {
        // Shown only when the test fails.
        println!("{name}");
        let (_kept, mut bench) = bench();
        let run = || {
            scenario(&mut bench);
            bench.audit();
        };
        if panic::catch_unwind(AssertUnwindSafe(run)).is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{} scenarios fail: {failed:#?}", failed.len());
}

/// What these show of the size of steps, the twin does not do: it does all of it in one.
const ABOUT_STEPS: [&str; 9] = [
    "many letters are listed in several steps",
    "a text is looked for in a few megabytes at a time",
    "a gathering replay that is halted goes on gathering",
    "a long session that has failed is left alone in small steps",
    "a step hands over a few megabytes at most, and one letter at least",
    "all that hold a session one after the other are let go together",
    "a purge lets a few megabytes go on at a time",
    "a purge deletes what is meant, in small steps, and is on record once",
    "letters that a replay has claimed are not purged",
];

#[test]
fn the_twin_keeps_the_contract() {
    run(scenarios().filter(|(name, _)| !ABOUT_STEPS.contains(name)), || ((), twin()));
}

#[test]
fn a_store_in_a_file_keeps_the_contract() {
    run_all(|| file(Options::default().run_length));
}

#[test]
fn a_store_in_a_file_keeps_the_contract_while_hashes_are_sealed_all_the_time() {
    run_all(|| file(3));
}
