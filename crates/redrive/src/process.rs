//! Runs programs with limits and leaves no process behind.
//!
//! A [`Supervisor`] needs no node, store or rule book. Input is written while output is read, so neither side blocks; a
//! run has limits on start, time, memory and output; and it ends in one of the ways of [`RunEnd`].
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use redrive::process::{ProgramCommand, RunLimits, RunEnd, Supervisor};
//!
//! let supervisor = Supervisor::recording(std::path::Path::new("data/workers"))?.0;
//! let command = ProgramCommand::new("./report").argument("--daily").input("{\"total\":12}");
//! let run = supervisor.run(command, RunLimits::default()).await;
//! match run.end {
//!     RunEnd::Exited(0) => println!("{}", run.stdout.text()),
//!     other => eprintln!("{other}: {}", run.stderr.text()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//! - when a run is over, all of its processes have ended, as far as the system can identify them (`family.rs`);
//! - dropping the future of a run ends the run;
//! - a run dies with its supervisor; survivors are ended by the next [`Supervisor::recording`] of the folder;
//! - a program inherits no open file, and only the named environment variables.
//!
//! All of this holds on Linux. Other systems end the process group only, have no memory limit, and a run survives a
//! killed supervisor.

mod birth;
mod capture;
mod command;
mod container;
mod family;
mod run_records;
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

pub use self::capture::CapturedOutput;
pub use self::command::{INHERITED, ProgramCommand};
use self::container::Leftovers;
pub use self::container::{CLIENT_VARIABLES, ContainerCommand};
pub use self::family::MARK_VARIABLE;
use self::run_records::RunRecords;

/// Runs programs; clones are the same supervisor.
#[derive(Clone, Debug)]
pub struct Supervisor {
    run_records: Option<RunRecords>,
    /// Containers that could not be removed.
    leftovers: Leftovers,
    /// Deadline for all runs, once the supervisor stops.
    stop_by: Arc<watch::Sender<Option<Instant>>>,
}

/// Limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimits {
    /// Time to start.
    pub spawn: Duration,
    /// Time to run.
    pub time: Duration,
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// Memory of all its processes together, in bytes; `None` is unlimited.
    pub memory_bytes: Option<u64>,
    /// Bytes kept of each output.
    pub output_bytes: usize,
}

/// 60 seconds to start, 30 minutes to run, 10 seconds to end, 64 KiB of output, unlimited memory.
impl Default for RunLimits {
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

/// A finished run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRun {
    /// How it ended.
    pub end: RunEnd,
    /// Its standard output.
    pub stdout: CapturedOutput,
    /// Its standard error.
    pub stderr: CapturedOutput,
    /// Its duration.
    pub took: Duration,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It exited with this status; 0 is success.
    Exited(i32),
    /// A signal ended it that we did not send.
    Signalled(i32),
    /// It exceeded its memory limit.
    OutOfMemory {
        /// What it used, in bytes, if known.
        used: Option<u64>,
    },
    /// It exceeded its time limit.
    TimeLimit {
        /// The limit.
        limit: Duration,
    },
    /// It did not start, or not in time.
    SpawnFailed {
        /// The cause.
        reason: String,
    },
    /// The runtime that starts containers does not answer; the container, if any, was or will be ended.
    RuntimeUnavailable {
        /// The cause.
        reason: String,
    },
    /// The supervisor stopped it.
    Stopped,
}

/// As shown in histories.
impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(0) => f.write_str("process exited with status 0"),
            Self::Exited(code) => write!(f, "Process crashed: exit status {code}"),
            Self::Signalled(signal) => write!(f, "Process crashed: signal {signal}"),
            Self::OutOfMemory { used: Some(used) } => {
                write!(f, "Process crashed: memory limit exceeded with {}", show_size(*used))
            }
            Self::OutOfMemory { used: None } => f.write_str("Process crashed: the system ran out of memory"),
            Self::TimeLimit { limit } => {
                write!(f, "process exceeded its time limit of {}", show_duration(*limit))
            }
            Self::SpawnFailed { reason } => write!(f, "process could not be started: {reason}"),
            Self::RuntimeUnavailable { reason } => write!(f, "container runtime unavailable: {reason}"),
            Self::Stopped => f.write_str("process stopped because Redrive is stopping"),
        }
    }
}

impl ProgramRun {
    /// The error that the program reported: its output, or the last line of it, is a JSON object with
    /// `"status": "error"` and an `error`.
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

    /// What rules look at; `None` if the supervisor stopped it.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        Some(match &self.end {
            RunEnd::Exited(_) if self.reported_error().is_some() => Exit::ReportedError,
            RunEnd::Exited(code) => Exit::Code(*code),
            RunEnd::Signalled(signal) => Exit::Signal(*signal),
            RunEnd::OutOfMemory { .. } => Exit::OutOfMemory,
            RunEnd::TimeLimit { .. } => Exit::TimeLimit,
            RunEnd::SpawnFailed { .. } => Exit::SpawnFailed,
            RunEnd::RuntimeUnavailable { .. } => Exit::RuntimeUnavailable,
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
    /// Without a record: processes left by a crash are not found again.
    #[must_use]
    pub fn new() -> Self {
        Self {
            run_records: None,
            leftovers: Leftovers::default(),
            stop_by: Arc::new(watch::Sender::new(None)),
        }
    }

    /// With a record of runs in `folder`, which must have one user at a time. Ends processes and containers left
    /// by earlier runs and returns how many runs had any. A container whose runtime does not answer now is ended
    /// before a container with the same key starts.
    pub fn recording(folder: &Path) -> io::Result<(Self, usize)> {
        let run_records = RunRecords::open(folder)?;
        let (leftovers, containers) = Leftovers::of(&run_records)?;
        let survived = run_records.end_survivors()? + containers;
        Ok((Self { run_records: Some(run_records), leftovers, ..Self::new() }, survived))
    }

    /// Runs a program to its end.
    pub async fn run(&self, command: ProgramCommand, limits: RunLimits) -> ProgramRun {
        supervise::run(self, command, limits).await
    }

    /// Runs a container to its end, and removes it. Its memory is limited by the runtime.
    pub async fn run_container(&self, command: ContainerCommand, limits: RunLimits) -> ProgramRun {
        container::run(self, command, limits).await
    }

    /// Ends all current and future runs: TERM first, KILL shortly before `within` is over.
    pub fn stop(&self, within: Duration) {
        self.stop_by.send_replace(Some(Instant::now() + within));
    }
}
