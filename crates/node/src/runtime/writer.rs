//! The writer thread: collects queued work, commits it in one transaction, then informs the engine and the
//! callers.
//!
//! Loads are served here too, in order with the writes: a page is consistent with a known point among the
//! settlements, so the engine never takes a delivery for new that it has just released.
//!
//! Invariants:
//!
//! - nothing is reported before it is durable;
//! - a settlement that could not be written is kept, and written first when the store recovers;
//! - housekeeping runs last, in small steps, and only when nothing waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive_core::engine::{Input, Settlement, SettlementResult};
use redrive_core::time::Timestamp;
use tokio::sync::mpsc;

use super::active_book::ActiveBooks;
use super::health::HealthRecord;
use super::inbox::{CommandJob, Inbox, NoteJob, SubmitJob, WriterWork};
use super::{AnswerSender, BackupJob, CompletionSender, EngineMessage, SubmitAnswer, SubmitError};
use crate::activity::{Activity, ActivityFeed};
use crate::store::access_store::AuditEntry;
use crate::store::letter::CommandRequest;
use crate::store::{
    AcceptedEvent, BatchResult, DiskRoom, Occurrence, REPLAYS_KEPT_MAX, SettleResult, StateChange, Store,
    StoreError, Submission, WriteBatch,
};
use redrive::clock::MonotonicClock;

const PATIENCE: Duration = Duration::from_millis(500);
const ROOM_EVERY: Duration = Duration::from_secs(1);
/// How often an idle store records that the server is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
const HEAL_EVERY: Duration = Duration::from_millis(200);
const HOUSEKEEP_EVERY: Duration = Duration::from_secs(1);
/// Under load, housekeeping gets one small step this often.
const HOUSEKEEP_AT_LEAST: Duration = Duration::from_millis(50);

struct WriterResult {
    /// One per submission.
    answers: Vec<SubmitAnswer>,
    inputs: Vec<Input>,
    done: Vec<CompletionSender>,
}

/// Refuses notes that a caller waits for and keeps the others, except refused bodies, which may be dropped.
fn refuse_asked(notes: Vec<NoteJob>, why: &SubmitError) -> Vec<NoteJob> {
    let mut kept = Vec::new();
    for NoteJob { note, then, reply } in notes.into_iter().filter(|job| !job.is_refused_body()) {
        match reply {
            Some(reply) => {
                let _ = reply.send(Err(why.clone()));
            }
            None => kept.push(NoteJob { note, then, reply: None }),
        }
    }
    kept
}

fn refuse_commands(doers: Vec<CompletionSender>, why: &SubmitError) {
    for doer in doers {
        let _ = doer.send(Err(why.clone()));
    }
}

fn not_written(error: &StoreError) -> SubmitError {
    let reason = error.to_string();
    if error.leaves_unknown() { SubmitError::Unknown { reason } } else { SubmitError::Failing { reason } }
}

fn still_failing() -> SubmitError {
    SubmitError::Failing { reason: "store writes are failing".to_owned() }
}

pub(super) struct StoreWriter {
    pub store: Box<dyn Store>,
    pub inbox: Arc<Inbox>,
    pub engine: mpsc::Sender<EngineMessage>,
    pub clock: MonotonicClock,
    pub feed: ActivityFeed,
    pub chart: HealthRecord,
    pub books: ActiveBooks,
    pub state: WriterState,
}

pub(super) struct WriterState {
    room: DiskRoom,
    room_at: Instant,
    written_at: Instant,
    housekept_at: Instant,
    more_to_keep: bool,
    failing: Option<StoreOutage>,
    backups: Vec<BackupJob>,
}

/// Must be written as soon as the store recovers.
#[derive(Default)]
struct UnwrittenWork {
    settlements: Vec<Arc<Settlement>>,
    emissions: Vec<Submission>,
}

struct StoreOutage {
    since: Timestamp,
    /// Whether the store must be reopened first, to see what is durable or to free memory.
    reopen: bool,
    /// Last logged.
    reason: String,
    settlements: Vec<Arc<Settlement>>,
    emissions: Vec<Submission>,
    notes: Vec<NoteJob>,
}

impl WriterState {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            room: DiskRoom::Enough,
            room_at: now,
            written_at: now,
            housekept_at: now,
            more_to_keep: true,
            failing: None,
            backups: Vec::new(),
        }
    }
}

impl StoreWriter {
    pub(super) fn run(mut self) {
        loop {
            let work = self.inbox.take(self.patience());
            self.look_at_room();
            let stop = if self.state.failing.is_some() { self.retry_failing(work) } else { self.work(work) };
            if let Some(stop) = stop {
                self.inbox.end();
                self.finish();
                let _ = stop.send(());
                return;
            }
            self.keep_house();
        }
    }

    fn patience(&self) -> Duration {
        if self.state.failing.is_some() {
            HEAL_EVERY
        } else if self.state.more_to_keep || !self.state.backups.is_empty() {
            Duration::ZERO
        } else {
            PATIENCE
        }
    }

    fn finish(self) {
        if let Err(error) = self.store.close(self.clock.now()) {
            tracing::error!(%error, "store not closed");
        }
    }

    /// Refuses events while the disk is nearly full or its free space is unknown.
    fn look_at_room(&mut self) {
        if self.state.room_at.elapsed() < ROOM_EVERY {
            return;
        }
        self.state.room_at = Instant::now();
        match self.store.has_room() {
            Ok(room) => self.found_room(room),
            // It is checked when the store recovers.
            Err(error) if self.state.failing.is_some() => tracing::debug!(%error, "store still failing"),
            Err(error) => self.fail(&error, UnwrittenWork::default(), Vec::new(), self.clock.now()),
        }
    }

    pub(super) fn found_room(&mut self, room: DiskRoom) {
        self.state.room_at = Instant::now();
        if let (DiskRoom::Enough, DiskRoom::Short { free_bytes, needed_bytes }) = (self.state.room, room) {
            tracing::error!(free_bytes, needed_bytes, "disk nearly full, refusing events");
        }
        self.state.room = room;
        self.chart.has_room(self.clock.now(), room);
    }

    /// Does all work; returns the stop request, if any.
    fn work(&mut self, mut work: WriterWork) -> Option<tokio::sync::oneshot::Sender<()>> {
        if let DiskRoom::Short { free_bytes, needed_bytes } = self.state.room {
            for job in work.submissions.drain(..) {
                self.feed.refused();
                let _ = job.reply.send(Err(SubmitError::NoRoom { free_bytes, needed_bytes }));
            }
            let (adding, others): (Vec<_>, Vec<_>) =
                work.commands.into_iter().partition(|job| job.given.command.adds_events());
            work.commands = others;
            work.notes.retain(|job| !job.is_refused_body());
            let no_room = SubmitError::NoRoom { free_bytes, needed_bytes };
            refuse_commands(adding.into_iter().map(|job| job.reply).collect(), &no_room);
        }
        let (mut submissions, mut waiters): (Vec<Submission>, Vec<_>) =
            work.submissions.into_iter().map(|SubmitJob { submission, reply }| (submission, reply)).unzip();
        // These have no caller, but are counted like all others.
        waiters.extend(work.emissions.iter().map(|_| tokio::sync::oneshot::channel().0));
        submissions.extend(work.emissions.iter().cloned());
        if self.state.written_at.elapsed() > ALIVE_EVERY {
            work.notes.push(NoteJob { note: StateChange::Alive, then: None, reply: None });
        }
        let notes: Vec<StateChange> = work.notes.iter().map(|job| job.note.clone()).collect();
        let (commands, doers): (Vec<CommandRequest>, Vec<CompletionSender>) =
            work.commands.into_iter().map(|CommandJob { given, reply }| (given, reply)).unzip();
        let batch = WriteBatch {
            settlements: work.settlements,
            submissions,
            changes: notes,
            commands,
            advances: work.advances,
        };
        self.state.backups.append(&mut work.backups);
        if batch.is_empty() {
            let mut inputs = Vec::new();
            self.load(&work.loads, &mut inputs);
            self.send_to_engine(inputs);
            return work.stop;
        }
        let now = self.clock.now();
        let began = Instant::now();
        match self.store.write(&batch, now) {
            Ok(written) => {
                self.state.written_at = Instant::now();
                self.chart.wrote(now, began.elapsed());
                let mut digest = self.digest(&batch, written, work.notes, doers, now);
                self.load(&work.loads, &mut digest.inputs);
                // Waking each caller from here would cost more than the write.
                self.send_result(waiters, digest);
            }
            Err(error) => {
                let why = not_written(&error);
                for reply in waiters {
                    self.feed.refused();
                    let _ = reply.send(Err(why.clone()));
                }
                refuse_commands(doers, &why);
                self.fail(
                    &error,
                    UnwrittenWork { settlements: batch.settlements, emissions: work.emissions },
                    work.notes,
                    now,
                );
            }
        }
        work.stop
    }

    /// Turns the result of a batch into inputs for the engine and answers for callers.
    fn digest(
        &self,
        batch: &WriteBatch,
        written: BatchResult,
        notes: Vec<NoteJob>,
        mut done: Vec<CompletionSender>,
        now: Timestamp,
    ) -> WriterResult {
        let mut inputs = Vec::new();
        for (settlement, settled) in batch.settlements.iter().zip(written.settled) {
            let (fate, promoted) = match settled {
                SettleResult::Written { promoted } => (SettlementResult::Written, promoted),
                SettleResult::Stale => (SettlementResult::Stale, None),
            };
            inputs.push(Input::Settled { delivery: settlement.delivery, fate, promoted });
        }
        if !written.waiting.is_empty() {
            inputs.push(Input::Accepted(written.waiting));
        }
        for job in notes {
            inputs.extend(job.then);
            done.extend(job.reply);
        }
        inputs.extend(batch.commands.iter().filter_map(|given| given.command.replay()).map(Input::Replay));
        inputs
            .extend(written.advanced.into_iter().flatten().map(|(job, sent)| Input::Advanced { job, sent }));
        for (submission, answer) in batch.submissions.iter().zip(&written.submitted) {
            self.publish_accepted(submission, answer.as_deref().unwrap_or_default(), now);
        }
        let answers =
            written.submitted.into_iter().map(|answer| answer.map_err(SubmitError::Refused)).collect();
        WriterResult { answers, inputs, done }
    }

    fn publish_accepted(&self, submission: &Submission, taken: &[AcceptedEvent], now: Timestamp) {
        for (submitted, taken) in submission.events.iter().zip(taken) {
            if taken.seen == Occurrence::First {
                self.feed.publish_accepted(&submitted.event, taken.deliveries, now);
            }
        }
    }

    fn load(&mut self, loads: &[redrive_core::engine::LoadRequest], inputs: &mut Vec<Input>) {
        for load in loads {
            match self.store.load(load) {
                Ok(page) => inputs.push(Input::Loaded(page)),
                Err(error) => {
                    return self.fail(&error, UnwrittenWork::default(), Vec::new(), self.clock.now());
                }
            }
        }
    }

    fn send_to_engine(&self, inputs: Vec<Input>) {
        let inputs_only = WriterResult { answers: Vec::new(), inputs, done: Vec::new() };
        self.send_result(Vec::new(), inputs_only);
    }

    fn send_result(&self, waiters: Vec<AnswerSender>, WriterResult { answers, inputs, done }: WriterResult) {
        if answers.is_empty() && inputs.is_empty() && done.is_empty() {
            return;
        }
        let answers = waiters.into_iter().zip(answers).collect();
        let sent = self.engine.blocking_send(EngineMessage::Batch { answers, inputs, done });
        // The engine has stopped but the store has not: callers are answered from here.
        if let Err(mpsc::error::SendError(EngineMessage::Batch { answers, done, .. })) = sent {
            for (waiter, answer) in answers {
                let _ = waiter.send(answer);
            }
            for doer in done {
                let _ = doer.send(Ok(()));
            }
        }
    }

    fn fail(
        &mut self,
        error: &StoreError,
        UnwrittenWork { settlements, emissions }: UnwrittenWork,
        notes: Vec<NoteJob>,
        now: Timestamp,
    ) {
        self.chart.store_fails(now, error.to_string());
        self.feed.publish(now, Activity::StoreFailing(error.to_string().into()));
        let reopen = error.wants_reopening();
        let notes = refuse_asked(notes, &not_written(error));
        let reason = error.to_string();
        self.state.failing = Some(StoreOutage { since: now, reopen, reason, settlements, emissions, notes });
        self.send_to_engine(vec![Input::StoreFailing]);
    }

    /// While the store fails: refuses requests, keeps settlements, and retries.
    fn retry_failing(&mut self, mut work: WriterWork) -> Option<tokio::sync::oneshot::Sender<()>> {
        for job in work.submissions.drain(..) {
            self.feed.refused();
            let _ = job.reply.send(Err(still_failing()));
        }
        let doers = work.commands.drain(..).map(|job| job.reply).collect();
        refuse_commands(doers, &still_failing());
        self.state.backups.append(&mut work.backups);
        let mut failing = self.state.failing.take().expect("it is called while the store fails");
        failing.settlements.append(&mut work.settlements);
        failing.emissions.append(&mut work.emissions);
        failing.notes.append(&mut refuse_asked(work.notes, &still_failing()));
        // The engine asks for its pages again after recovery.
        if let Err(error) = self.heal(&mut failing) {
            let reason = error.to_string();
            if failing.reason != reason {
                tracing::error!(%error, "store writes still failing");
                failing.reason = reason;
            }
            // Recovery itself may fail with an unknown result.
            failing.reopen |= error.wants_reopening();
            self.state.failing = Some(failing);
        }
        work.stop
    }

    fn heal(&mut self, failing: &mut StoreOutage) -> Result<(), StoreError> {
        if failing.reopen {
            self.store.reopen()?;
        }
        let room = self.store.has_room()?;
        self.found_room(room);
        let now = self.clock.now();
        let mut notes: Vec<StateChange> = failing.notes.iter().map(|job| job.note.clone()).collect();
        notes.push(StateChange::Absence { from: failing.since });
        let (settlements, submissions) = (failing.settlements.clone(), failing.emissions.clone());
        let batch = WriteBatch { settlements, submissions, changes: notes, ..WriteBatch::default() };
        // A replay may have begun in a batch whose result was lost.
        let replays = self.store.reader()?.replays(None, REPLAYS_KEPT_MAX)?;
        let written = self.store.write(&batch, now)?;
        self.state.written_at = Instant::now();
        self.chart.store_heals();
        self.feed.publish(now, Activity::StoreHealed);
        let mut digest = self.digest(&batch, written, std::mem::take(&mut failing.notes), Vec::new(), now);
        let alive = replays.iter().filter(|view| view.state.is_open() || view.tally.in_flight() > 0);
        digest.inputs.extend(alive.map(|view| Input::Replay(view.job())));
        digest.inputs.push(Input::StoreHealed);
        self.send_result(Vec::new(), digest);
        Ok(())
    }

    fn keep_house(&mut self) {
        if self.state.failing.is_some() {
            return;
        }
        self.back_up();
        let since = self.state.housekept_at.elapsed();
        let pause = if self.state.more_to_keep { HOUSEKEEP_AT_LEAST } else { HOUSEKEEP_EVERY };
        if since < pause && !(self.state.more_to_keep && self.inbox.is_empty()) {
            return;
        }
        self.state.housekept_at = Instant::now();
        let keep = self.books.borrow().keep.clone();
        match self.store.housekeep(&keep, self.clock.now()) {
            Ok(chores) => self.state.more_to_keep = chores.more,
            Err(error) => {
                self.state.more_to_keep = false;
                let now = self.clock.now();
                self.fail(&error, UnwrittenWork::default(), Vec::new(), now);
            }
        }
    }

    fn back_up(&mut self) {
        let Some(job) = self.state.backups.first_mut() else { return };
        let mut deed = None;
        let is_over = match job.progress.try_reserve() {
            Ok(place) => {
                let outcome = self.store.back_up(&mut job.backup);
                let is_over = !matches!(&outcome, Ok(progress) if progress.remaining > 0);
                if is_over && outcome.is_ok() {
                    let what = job.backup.folder.display().to_string();
                    deed = Some(AuditEntry { act: "backup", what, by: job.by.clone(), note: None });
                }
                place.send(outcome.map_err(|error| error.to_string()));
                is_over
            }
            // The backup waits for a slow observer.
            Err(mpsc::error::TrySendError::Full(())) => false,
            // The observer is gone: the backup is cancelled.
            Err(mpsc::error::TrySendError::Closed(())) => true,
        };
        if is_over {
            self.state.backups.remove(0);
        }
        if let Some(deed) = deed {
            let note = StateChange::Audit(Box::new(deed));
            self.inbox.add(|work| work.notes.push(NoteJob { note, then: None, reply: None }));
        }
    }
}
