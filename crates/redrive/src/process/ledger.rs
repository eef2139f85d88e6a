//! Which runs are under way, on disk: so that whoever starts after a crash finds what outlived it.
//!
//! Each run has a small file, named by its mark: written before the start, so that no moment is missed, and
//! again with the id and the start of everybody who is known to belong to it. It goes when nobody of the run is
//! left. Nothing is forced to the disk: what a power cut would lose, it ends as well.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::family::{Family, Left, Mark, Process, marked};

/// How long survivors may take to die of a signal that nobody can ignore.
const DIE_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Records that are read; more than can be left by any crash.
const RECORDS_MAX: usize = 100_000;

/// The folder with a file for each run.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    folder: PathBuf,
}

impl Ledger {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Puts a run on record that is about to start.
    pub(super) fn begin(&self, mark: &Mark) -> io::Result<Record> {
        let record = Record { file: self.folder.join(mark.as_str()) };
        fs::write(&record.file, "")?;
        Ok(record)
    }

    /// Ends whoever is left of earlier runs, and says of how many runs there was anybody.
    pub(super) fn end_survivors(&self) -> io::Result<usize> {
        let mut families = Vec::new();
        for entry in fs::read_dir(&self.folder)?.take(RECORDS_MAX) {
            let entry = entry?;
            let Some(mark) = entry.file_name().to_str().and_then(Mark::read) else { continue };
            families.push((entry.path(), mark));
        }
        let marks: BTreeSet<Mark> = families.iter().map(|(_, mark)| mark.clone()).collect();
        let alive = if marks.is_empty() { BTreeSet::new() } else { marked(&marks) };
        let mut survived = 0;
        for (file, mark) in families {
            let known: Vec<Process> =
                recorded(&file).into_iter().filter(|process| is_there(*process)).collect();
            // Most runs of a crash have nobody left, and one look at all processes tells which have.
            if alive.contains(&mark) || !known.is_empty() {
                survived += 1;
                end_now(Family::left(mark, known), DIE_WITHIN)?;
            }
            remove(&file);
        }
        Ok(survived)
    }
}

fn is_there(process: Process) -> bool {
    Process::now(process.pid) == Some(process)
}

/// Those whom a record names.
fn recorded(file: &Path) -> Vec<Process> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let read = |line: &str| {
        let (pid, started) = line.split_once(' ')?;
        Some(Process { pid: pid.parse().ok()?, started: started.parse().ok()? })
    };
    text.lines().filter_map(read).collect()
}

/// Ends everybody of a run, and comes back when they are gone.
pub(super) fn end_now(mut family: Family, within: Duration) -> io::Result<()> {
    let begun = Instant::now();
    while family.signal(Signal::KILL) == Left::Some {
        if begun.elapsed() > within {
            return Err(io::Error::other("processes of an earlier run do not end"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// A run on record.
#[derive(Debug)]
pub(super) struct Record {
    file: PathBuf,
}

impl Record {
    /// Who is known to belong to it.
    pub(super) fn known(&self, processes: &BTreeSet<Process>) -> io::Result<()> {
        let lines = processes.iter().map(|process| format!("{} {}\n", process.pid, process.started));
        fs::write(&self.file, lines.collect::<String>())
    }

    /// Nobody of it is left.
    pub(super) fn over(self) {
        remove(&self.file);
    }
}

/// One that cannot be removed costs the next start a look.
fn remove(file: &Path) {
    if let Err(error) = fs::remove_file(file) {
        tracing::warn!(%error, file = %file.display(), "the record of a run could not be removed");
    }
}
