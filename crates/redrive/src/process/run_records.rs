//! Records of current runs on disk, so that the next start after a crash finds the processes that survived.
//!
//! Each run has a file named by its mark, written before the start and updated with the processes of the run.
//! It is deleted when none is left. Files are not synced: a power cut ends the processes too.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::family::{Family, Process, RunMark, Survivors, marked};

/// Time for survivors to die of KILL.
const DIE_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// More than any crash can leave.
const RECORDS_MAX: usize = 100_000;

#[derive(Clone, Debug)]
pub(super) struct RunRecords {
    folder: PathBuf,
}

impl RunRecords {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn begin(&self, mark: &RunMark) -> io::Result<RunRecord> {
        let record = RunRecord { file: self.folder.join(mark.as_str()) };
        fs::write(&record.file, "")?;
        Ok(record)
    }

    /// Ends processes of earlier runs and returns how many runs had any.
    pub(super) fn end_survivors(&self) -> io::Result<usize> {
        let mut families = Vec::new();
        for entry in fs::read_dir(&self.folder)?.take(RECORDS_MAX) {
            let entry = entry?;
            let Some(mark) = entry.file_name().to_str().and_then(RunMark::read) else { continue };
            families.push((entry.path(), mark));
        }
        let marks: BTreeSet<RunMark> = families.iter().map(|(_, mark)| mark.clone()).collect();
        let alive = if marks.is_empty() { BTreeSet::new() } else { marked(&marks) };
        let mut survived = 0;
        for (file, mark) in families {
            let known: Vec<Process> =
                recorded(&file).into_iter().filter(|process| is_there(*process)).collect();
            // Most runs have no survivors; one scan of all processes shows which do.
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

fn recorded(file: &Path) -> Vec<Process> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let read = |line: &str| {
        let (pid, started) = line.split_once(' ')?;
        Some(Process { pid: pid.parse().ok()?, started: started.parse().ok()? })
    };
    text.lines().filter_map(read).collect()
}

pub(super) fn end_now(mut family: Family, within: Duration) -> io::Result<()> {
    let begun = Instant::now();
    while family.signal(Signal::KILL) == Survivors::Some {
        if begun.elapsed() > within {
            return Err(io::Error::other("processes of an earlier run do not end"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

#[derive(Debug)]
pub(super) struct RunRecord {
    file: PathBuf,
}

impl RunRecord {
    pub(super) fn known(&self, processes: &BTreeSet<Process>) -> io::Result<()> {
        let lines = processes.iter().map(|process| format!("{} {}\n", process.pid, process.started));
        fs::write(&self.file, lines.collect::<String>())
    }

    pub(super) fn over(self) {
        remove(&self.file);
    }
}

/// A file that cannot be removed costs the next start one look.
fn remove(file: &Path) {
    if let Err(error) = fs::remove_file(file) {
        tracing::warn!(%error, file = %file.display(), "could not remove the record of a run");
    }
}
