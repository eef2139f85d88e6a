//! One run, from its start until no process of it is left.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::capture::Capture;
use super::family::{Family, FamilyReach, Process, RunMark, Survivors, kill_group, kills_for_memory};
use super::run_records::{RunRecord, end_now};
use super::{CapturedOutput, ProgramCommand, ProgramRun, RunEnd, RunLimits, Supervisor, spawner};

/// How often members and memory are checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often it is checked whether they have ended.
const ENDED_EVERY: Duration = Duration::from_millis(20);
/// Time for processes left behind by a program to end.
const LEFT_BEHIND_GRACE: Duration = Duration::from_secs(1);
/// Time to die of KILL.
const DIE_WITHIN: Duration = Duration::from_secs(10);
/// How long to read on when no member is left; only an unknown process could hold the pipe open.
const READ_ON: Duration = Duration::from_secs(1);
/// The share of the stop time that is kept for killing.
const KILL_PART: u32 = 4;
const KILL_TIME_MAX: Duration = Duration::from_secs(1);

pub(super) async fn run(supervisor: &Supervisor, command: ProgramCommand, limits: RunLimits) -> ProgramRun {
    let begun = Instant::now();
    let stop_by = supervisor.stop_by.subscribe();
    let (end, stdout, stderr) = if stop_by.borrow().is_some() {
        (RunEnd::Stopped, CapturedOutput::default(), CapturedOutput::default())
    } else {
        match start(supervisor, command, &limits).await {
            Ok(newborn) => ActiveRun::new(newborn, stop_by, &limits).run_out(&limits, begun).await,
            Err(reason) => {
                (RunEnd::SpawnFailed { reason }, CapturedOutput::default(), CapturedOutput::default())
            }
        }
    };
    ProgramRun { end, stdout, stderr, took: begun.elapsed() }
}

async fn start(
    supervisor: &Supervisor,
    command: ProgramCommand,
    limits: &RunLimits,
) -> Result<NewProcess, String> {
    let mark = RunMark::new();
    let (program, folder, reach) = (command.name(), command.stated_folder(), command.reach());
    let record = supervisor.run_records.as_ref().map(|run_records| run_records.begin(&mark)).transpose();
    let record = record.map_err(|error| format!("its start could not be put on record: {error}"))?;
    let kills_before = kills_for_memory();
    let (mut prepared, input) = command.prepare(&mark, limits.memory_bytes);
    let runtime = tokio::runtime::Handle::current();
    let mut guard = RunGuard { leader: None, family: None, record };
    let start = Box::new(move || {
        let _inside = runtime.enter();
        let child = prepared.spawn().map_err(|error| why_not(error, folder.as_deref()))?;
        guard.watch_over(&child, mark, reach);
        Ok(NewProcess { guard, child, input, kills_before })
    });
    spawner::spawn(start, limits.spawn).await.map_err(|error| format!("{program}: {error}"))
}

/// The system reports a missing folder like a missing program.
fn why_not(error: io::Error, folder: Option<&Path>) -> io::Error {
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => io::Error::other(format!("there is no folder {} to run it in", folder.display())),
        None => error,
    }
}

/// A run that has just started; it ends if its caller went away.
#[derive(Debug)]
pub(super) struct NewProcess {
    // Dropped before the child: the group is killed while its number is its own.
    guard: RunGuard,
    child: Child,
    input: Vec<u8>,
    kills_before: Option<u64>,
}

struct ActiveRun {
    // Dropped before the child: the group is killed while its number is its own.
    guard: RunGuard,
    child: Child,
    family: Family,
    streams: JoinSet<()>,
    stdout: Capture,
    stderr: Capture,
    kills_before: Option<u64>,
    stop_by: watch::Receiver<Option<Instant>>,
}

/// Ends a run whose caller went away.
#[derive(Debug)]
struct RunGuard {
    // `None` before the start and after the end.
    /// `None` once its exit was collected: its number may then belong to another process.
    leader: Option<i32>,
    family: Option<Family>,
    record: Option<RunRecord>,
}

enum FirstEnd {
    Exited(io::Result<ExitStatus>),
    TimeLimit,
    Memory(u64),
    Stop(Instant),
}

impl ActiveRun {
    fn new(newborn: NewProcess, stop_by: watch::Receiver<Option<Instant>>, limits: &RunLimits) -> Self {
        let NewProcess { guard, mut child, input, kills_before } = newborn;
        let family = guard.family.clone().expect("a started run has a family");
        let (stdout, stderr) = (Capture::new(limits.output_bytes), Capture::new(limits.output_bytes));
        let mut streams = JoinSet::new();
        if let Some(stdin) = child.stdin.take() {
            streams.spawn(feed(stdin, input));
        }
        // A broken stream leaves what it brought.
        if let Some(stream) = child.stdout.take() {
            let capture = stdout.clone();
            streams.spawn(async move { drop(capture.read(stream).await) });
        }
        if let Some(stream) = child.stderr.take() {
            let capture = stderr.clone();
            streams.spawn(async move { drop(capture.read(stream).await) });
        }
        let under_way = Self { guard, child, family, streams, stdout, stderr, kills_before, stop_by };
        under_way.put_on_record();
        under_way
    }

    fn put_on_record(&self) {
        if let Some(record) = &self.guard.record
            && let Err(error) = record.known(self.family.known())
        {
            tracing::warn!(%error, "could not record the processes of a run");
        }
    }

    async fn run_out(
        mut self,
        limits: &RunLimits,
        begun: Instant,
    ) -> (RunEnd, CapturedOutput, CapturedOutput) {
        let first = self.first_of(limits, begun).await;
        let end = match first {
            FirstEnd::Exited(Ok(status)) => {
                self.guard.leader = None;
                let end = self.how_it_ended(status);
                self.end_all(LEFT_BEHIND_GRACE).await;
                end
            }
            FirstEnd::Exited(Err(error)) => {
                self.end_all(Duration::ZERO).await;
                RunEnd::SpawnFailed { reason: format!("how it ended is not known: {error}") }
            }
            FirstEnd::TimeLimit => {
                self.end_all(limits.grace).await;
                RunEnd::TimeLimit { limit: limits.time }
            }
            FirstEnd::Memory(used) => {
                self.end_all(Duration::ZERO).await;
                RunEnd::OutOfMemory { used: Some(used) }
            }
            FirstEnd::Stop(by) => {
                self.end_all(grace_until(by)).await;
                RunEnd::Stopped
            }
        };
        // All writers are gone, so this ends when everything is read.
        let read = async { while self.streams.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(READ_ON, read).await;
        (end, self.stdout.output(), self.stderr.output())
    }

    async fn first_of(&mut self, limits: &RunLimits, begun: Instant) -> FirstEnd {
        let time_limit = tokio::time::sleep_until(begun + limits.time);
        tokio::pin!(time_limit);
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                biased;
                status = self.child.wait() => return FirstEnd::Exited(status),
                by = told_to_stop(&mut self.stop_by) => return FirstEnd::Stop(by),
                () = &mut time_limit => return FirstEnd::TimeLimit,
                _ = look.tick() => {
                    if let Some(used) = self.look(limits.memory_bytes).await {
                        return FirstEnd::Memory(used);
                    }
                }
            }
        }
    }

    /// Finds members and returns their memory if it exceeds the limit.
    async fn look(&mut self, memory_bytes: Option<u64>) -> Option<u64> {
        let before = self.family.known().clone();
        let used = self.ask(move |family| {
            family.watch();
            memory_bytes.map(|limit| family.memory(limit))
        });
        let used = used.await;
        if *self.family.known() != before {
            self.guard.family = Some(self.family.clone());
            self.put_on_record();
        }
        used.filter(|used| memory_bytes.is_some_and(|limit| *used > limit))
    }

    /// Runs on a blocking thread.
    async fn ask<T: Send + 'static>(&mut self, look: impl FnOnce(&mut Family) -> T + Send + 'static) -> T {
        let mut family = self.family.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let answer = look(&mut family);
            (family, answer)
        });
        let (family, answer) =
            asked.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        self.family = family;
        answer
    }

    fn how_it_ended(&self, status: ExitStatus) -> RunEnd {
        match (status.code(), status.signal()) {
            (Some(code), _) => RunEnd::Exited(code),
            (None, Some(signal)) => {
                let is_kill = signal == Signal::KILL.as_raw();
                let has_killed = kills_for_memory() > self.kills_before;
                if is_kill && has_killed {
                    RunEnd::OutOfMemory { used: None }
                } else {
                    RunEnd::Signalled(signal)
                }
            }
            (None, None) => RunEnd::Signalled(0),
        }
    }

    /// Sends TERM, then KILL after `grace`, and waits until all are gone.
    async fn end_all(&mut self, grace: Duration) {
        let mut signal = if grace.is_zero() { Signal::KILL } else { Signal::TERM };
        let mut kill_at = Instant::now() + grace;
        let mut is_asked = false;
        // A run that is already being ended must also be gone when the supervisor stops.
        let mut is_told = false;
        loop {
            let now = Instant::now();
            let stop_by = self.stop_by.borrow().filter(|_| !is_told);
            if let Some(by) = stop_by {
                is_told = true;
                kill_at = kill_at.min(now + grace_until(by));
            }
            if signal == Signal::TERM && now >= kill_at {
                signal = Signal::KILL;
                is_asked = false;
            }
            // KILL is repeated, because a process may just have forked; TERM is sent once.
            let left = if is_asked && signal == Signal::TERM {
                self.ask(
                    |family| if family.members().is_empty() { Survivors::Nobody } else { Survivors::Some },
                )
                .await
            } else {
                self.ask(move |family| family.signal(signal)).await
            };
            is_asked = true;
            // Collects the exit status, or the leader would stay as a zombie.
            if !matches!(self.child.try_wait(), Ok(None)) {
                self.guard.leader = None;
            }
            if left == Survivors::Nobody && signal == Signal::KILL {
                break;
            }
            if left == Survivors::Nobody {
                // Processes that keep forking may not have been seen: the group is killed before it counts as
                // empty.
                (signal, kill_at, is_asked) = (Signal::KILL, now, false);
                continue;
            }
            if now > kill_at + DIE_WITHIN {
                tracing::error!("processes survived KILL");
                return;
            }
            tokio::time::sleep(ENDED_EVERY).await;
        }
        let _ = tokio::time::timeout(DIE_WITHIN, self.child.wait()).await;
        self.guard.is_over();
    }
}

impl RunGuard {
    fn watch_over(&mut self, child: &Child, mark: RunMark, reach: FamilyReach) {
        self.leader = child.id().and_then(|id| i32::try_from(id).ok());
        self.family = Some(Family::new(mark, self.leader.and_then(Process::now), reach));
    }

    fn is_over(&mut self) {
        self.leader = None;
        self.family = None;
        self.record.take().into_iter().for_each(RunRecord::over);
    }
}

/// The caller went away: ends the run, and the members outside its group.
impl Drop for RunGuard {
    fn drop(&mut self) {
        let Some(family) = self.family.take() else {
            return self.record.take().into_iter().for_each(RunRecord::over);
        };
        if let Some(leader) = self.leader {
            kill_group(leader);
        }
        let record = self.record.take();
        let sweep = move || match end_now(family, DIE_WITHIN) {
            Ok(()) => record.into_iter().for_each(RunRecord::over),
            Err(error) => tracing::error!(%error, "abandoned run left processes behind"),
        };
        // Without a thread the record stays, and the next start ends what is left.
        let _ = std::thread::Builder::new().name("redrive-sweep".to_owned()).spawn(sweep);
    }
}

pub(super) fn grace_until(by: Instant) -> Duration {
    let left = by.saturating_duration_since(Instant::now());
    left.saturating_sub(KILL_TIME_MAX.min(left / KILL_PART))
}

pub(super) async fn told_to_stop(stop_by: &mut watch::Receiver<Option<Instant>>) -> Instant {
    let told = stop_by.wait_for(Option::is_some).await.ok().and_then(|by| *by);
    match told {
        Some(by) => by,
        // The supervisor outlives its runs.
        None => std::future::pending().await,
    }
}

/// Writes all input and closes the pipe. A program need not read it.
async fn feed(mut stdin: ChildStdin, input: Vec<u8>) {
    let _ = stdin.write_all(&input).await;
    let _ = stdin.shutdown().await;
}
