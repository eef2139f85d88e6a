//! Runs programs with limits, and sees to it that nothing of them is left when a run is over.
//!
//! A [`Supervisor`] is of use to any program: it needs no node, no store and no rule book. A run gets its input
//! while its output is read, so that neither side waits for the other; it has a limit on its start, its time, its
//! memory and its output; and it ends in one of the ways of [`RunEnd`].
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use redrive::process::{Command, Limits, RunEnd, Supervisor};
//!
//! let supervisor = Supervisor::recording(std::path::Path::new("data/workers"))?.0;
//! let command = Command::new("./report").argument("--daily").input("{\"total\":12}");
//! let run = supervisor.run(command, Limits::default()).await;
//! match run.end {
//!     RunEnd::Exited(0) => println!("{}", run.stdout.text()),
//!     other => eprintln!("{other}: {}", run.stderr.text()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//! - when a run is over, so is everything that it started, as far as the system can tell who that is
//!   (`family.rs`); children that a program leaves behind when it ends are ended too;
//! - whoever drops the future of a run ends the run;
//! - a run dies with us, and what of it does not is ended by the next [`Supervisor::recording`] of the folder;
//! - a program inherits no file of ours, and of our environment only what is named here.
//!
//! On Linux all of this holds. On other systems the group is ended and nobody else is known, memory has no
//! limit, and a run outlives a program that is killed.

mod birth;
mod capture;
mod command;
mod family;
mod ledger;
mod spawner;
mod supervise;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::policy::answer::Exit;
use redrive_core::text::{show_duration, show_size};
use tokio::sync::watch;
use tokio::time::Instant;

pub use self::capture::Output;
pub use self::command::{Command, INHERITED};
pub use self::family::MARK_VARIABLE;
use self::ledger::Ledger;

/// Runs programs; clones are the same supervisor.
#[derive(Clone, Debug)]
pub struct Supervisor {
    ledger: Option<Ledger>,
    /// When everything must have stopped, once that is known.
    stop_by: Arc<watch::Sender<Option<Instant>>>,
}

/// What a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long the program may take to start.
    pub spawn: Duration,
    /// How long it may run.
    pub time: Duration,
    /// How long it has to end by itself when it is asked to, before it is killed.
    pub grace: Duration,
    /// The memory that all of its processes may have together, in bytes; none is no limit.
    pub memory_bytes: Option<u64>,
    /// What is kept of each of its two outputs.
    pub output_bytes: usize,
}

/// 60 seconds to start, 30 minutes to run, 10 seconds to end, 64 KiB of output, and any memory.
impl Default for Limits {
    fn default() -> Self {
        Self {
            spawn: Duration::from_secs(60),
            time: Duration::from_mins(30),
            grace: Duration::from_secs(10),
            memory_bytes: None,
            output_bytes: 64 * 1024,
        }
    }
}

/// A run that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// How it ended.
    pub end: RunEnd,
    /// What it printed.
    pub stdout: Output,
    /// What it complained of.
    pub stderr: Output,
    /// How long it took.
    pub took: Duration,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// By itself, with that status; 0 is a success.
    Exited(i32),
    /// By that signal, which was not ours.
    Signalled(i32),
    /// For the memory it took.
    OutOfMemory {
        /// What it had, in bytes, if that is known.
        used: Option<u64>,
    },
    /// It ran past its time limit.
    TimeLimit {
        /// The limit.
        limit: Duration,
    },
    /// It could not be started, or not within its limit.
    SpawnFailed {
        /// Why.
        reason: String,
    },
    /// We stopped it, to stop ourselves.
    Stopped,
}

/// In words, as they stand in stories.
impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(0) => f.write_str("the process did its work"),
            Self::Exited(code) => write!(f, "Process crashed: it ended with status {code}"),
            Self::Signalled(signal) => write!(f, "Process crashed: it was ended by signal {signal}"),
            Self::OutOfMemory { used: Some(used) } => {
                write!(f, "Process crashed: it took {} of memory, more than it may", show_size(*used))
            }
            Self::OutOfMemory { used: None } => f.write_str("Process crashed: the system ran out of memory"),
            Self::TimeLimit { limit } => {
                write!(f, "the process ran past its time limit of {}", show_duration(*limit))
            }
            Self::SpawnFailed { reason } => write!(f, "the process could not be started: {reason}"),
            Self::Stopped => f.write_str("the process was stopped, for Redrive stops"),
        }
    }
}

impl Run {
    /// The error that the program reported itself: the last line of what it printed, or all of it, is a JSON
    /// object with `"status": "error"`, and its `error` says what was wrong.
    #[must_use]
    pub fn reported_error(&self) -> Option<String> {
        let of = |text: &[u8]| {
            let report: serde_json::Value = serde_json::from_slice(text).ok()?;
            if report.get("status")?.as_str()? != "error" {
                return None;
            }
            match report.get("error") {
                Some(serde_json::Value::String(error)) if !error.trim().is_empty() => Some(error.clone()),
                Some(serde_json::Value::String(_) | serde_json::Value::Null) | None => {
                    Some("it does not say which".to_owned())
                }
                Some(other) => Some(other.to_string()),
            }
        };
        let last = self.stdout.last_line();
        last.and_then(|line| of(line.as_bytes())).or_else(|| of(self.stdout.whole()?))
    }

    /// What the rules of a book go by; none if we stopped it ourselves, which says nothing of the program.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        Some(match &self.end {
            RunEnd::Exited(_) if self.reported_error().is_some() => Exit::ReportedError,
            RunEnd::Exited(code) => Exit::Code(*code),
            RunEnd::Signalled(signal) => Exit::Signal(*signal),
            RunEnd::OutOfMemory { .. } => Exit::OutOfMemory,
            RunEnd::TimeLimit { .. } => Exit::TimeLimit,
            RunEnd::SpawnFailed { .. } => Exit::SpawnFailed,
            RunEnd::Stopped => return None,
        })
    }
}

impl Default for Supervisor {
    fn default() -> Self {
        Self::new()
    }
}

impl Supervisor {
    /// One that keeps no record: what a killed program leaves of its runs is not found again.
    #[must_use]
    pub fn new() -> Self {
        Self { ledger: None, stop_by: Arc::new(watch::Sender::new(None)) }
    }

    /// One that keeps a record of its runs in that folder, which nobody else uses at the same time. Whatever is
    /// left of earlier runs is ended first; says of how many there was something.
    pub fn recording(folder: &Path) -> io::Result<(Self, usize)> {
        let ledger = Ledger::open(folder)?;
        let survived = ledger.end_survivors()?;
        Ok((Self { ledger: Some(ledger), ..Self::new() }, survived))
    }

    /// Runs a program to its end.
    pub async fn run(&self, command: Command, limits: Limits) -> Run {
        supervise::run(self, command, limits).await
    }

    /// Ends all runs, now and from now on: they are asked to end, and killed when that time is nearly over.
    pub fn stop(&self, within: Duration) {
        self.stop_by.send_replace(Some(Instant::now() + within));
    }
}
