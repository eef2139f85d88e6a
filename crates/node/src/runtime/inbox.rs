//! The writer's queue: all components add to it, the writer takes everything at once.
//!
//! Settlements, loads and notes are bounded by what the engine has in flight. Submissions have a bound of
//! their own, beyond which they are refused at once.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::engine::{Advance, Input, LoadRequest, Settlement};
use tokio::sync::oneshot;

use super::{AnswerSender, BackupJob, CompletionSender, SubmitError};
use crate::store::access_store::RefusedBody;
use crate::store::letter::CommandRequest;
use crate::store::{StateChange, Submission};

const SUBMISSIONS_MAX: usize = 4_096;

const SUBMISSION_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Queued commands and their payload bytes.
const COMMANDS_MAX: usize = 256;
const COMMAND_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Queued refused bodies; each is truncated.
const REFUSED_WAITING_MAX: usize = 16;

const BATCH_EVENTS_MAX: usize = 1_024;
/// Payload bytes per transaction; one submission is always taken.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Default)]
pub(super) struct WriterWork {
    pub settlements: Vec<Arc<Settlement>>,
    pub loads: Vec<LoadRequest>,
    pub notes: Vec<NoteJob>,
    pub commands: Vec<CommandJob>,
    pub advances: Vec<Advance>,
    pub submissions: Vec<SubmitJob>,
    /// Events derived from the settlements, written in the same transaction.
    pub emissions: Vec<Submission>,
    pub backups: Vec<BackupJob>,
    pub stop: Option<oneshot::Sender<()>>,
}

impl WriterWork {
    pub(super) fn append(&mut self, other: &mut Self) {
        self.settlements.append(&mut other.settlements);
        self.loads.append(&mut other.loads);
        self.notes.append(&mut other.notes);
        self.commands.append(&mut other.commands);
        self.advances.append(&mut other.advances);
        self.submissions.append(&mut other.submissions);
        self.emissions.append(&mut other.emissions);
        self.backups.append(&mut other.backups);
        self.stop = self.stop.take().or(other.stop.take());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.settlements.is_empty()
            && self.loads.is_empty()
            && self.notes.is_empty()
            && self.commands.is_empty()
            && self.advances.is_empty()
            && self.submissions.is_empty()
            && self.emissions.is_empty()
            && self.backups.is_empty()
            && self.stop.is_none()
    }
}

/// A change to store, the engine's input once it is durable, and the waiting caller.
pub(super) struct NoteJob {
    pub note: StateChange,
    pub then: Option<Input>,
    pub reply: Option<CompletionSender>,
}

impl NoteJob {
    pub(super) fn awaited(
        note: StateChange,
        then: Option<Input>,
    ) -> (Self, oneshot::Receiver<Result<(), SubmitError>>) {
        let (reply, done) = oneshot::channel();
        (Self { note, then, reply: Some(reply) }, done)
    }

    /// Refused bodies may be dropped: senders choose how many there are.
    pub(super) const fn is_refused_body(&self) -> bool {
        matches!(self.note, StateChange::Refused(_))
    }
}

pub(super) struct CommandJob {
    pub given: CommandRequest,
    pub reply: CompletionSender,
}

impl CommandJob {
    fn bytes(&self) -> usize {
        self.given.command.bytes()
    }
}

pub(super) struct SubmitJob {
    pub submission: Submission,
    pub reply: AnswerSender,
}

impl SubmitJob {
    fn bytes(&self) -> usize {
        self.submission.events.iter().map(|submitted| submitted.event.data.len()).sum()
    }
}

#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<InboxState>,
    filled: Condvar,
}

#[derive(Default)]
struct InboxState {
    work: WriterWork,
    closed: bool,
    /// The writer has ended.
    ended: bool,
    submission_bytes: usize,
    /// Avoids a system call when the writer is awake.
    writer_sleeps: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().expect("lock is not poisoned")
    }

    pub(super) fn add(&self, add: impl FnOnce(&mut WriterWork)) {
        let mut state = self.lock();
        if state.ended {
            // Dropping the work tells its callers that the writer has ended.
            return add(&mut WriterWork::default());
        }
        add(&mut state.work);
        self.wake_writer(state);
    }

    /// Stores a rule book, so that its decisions can be explained later.
    pub(super) fn record_book(&self, book: &RuleBook, text: &Arc<str>) {
        let note = StateChange::Book { hash: book.hash(), text: Arc::clone(text) };
        self.add(|work| work.notes.push(NoteJob { note, then: None, reply: None }));
    }

    fn wake_writer(&self, mut state: MutexGuard<'_, InboxState>) {
        let sleeps = std::mem::take(&mut state.writer_sleeps);
        drop(state);
        if sleeps {
            self.filled.notify_one();
        }
    }

    /// Adds events, if there is room and the node is not stopping.
    pub(super) fn submit(&self, job: SubmitJob) -> Result<(), SubmitError> {
        let mut state = self.lock();
        if state.closed {
            return Err(SubmitError::Stopping);
        }
        let bytes = state.submission_bytes + job.bytes();
        if state.work.submissions.len() >= SUBMISSIONS_MAX || bytes > SUBMISSION_BYTES_MAX {
            return Err(SubmitError::Busy);
        }
        state.submission_bytes = bytes;
        state.work.submissions.push(job);
        self.wake_writer(state);
        Ok(())
    }

    pub(super) fn command(&self, job: CommandJob) -> Result<(), SubmitError> {
        let mut state = self.lock();
        if state.ended {
            return Err(SubmitError::Stopping);
        }
        let waiting: usize = state.work.commands.iter().map(CommandJob::bytes).sum();
        let is_full = state.work.commands.len() >= COMMANDS_MAX
            || waiting > 0 && waiting + job.bytes() > COMMAND_BYTES_MAX;
        if is_full {
            return Err(SubmitError::Busy);
        }
        state.work.commands.push(job);
        self.wake_writer(state);
        Ok(())
    }

    pub(super) fn refuse_body(&self, refused: RefusedBody) -> bool {
        let mut state = self.lock();
        let waiting = state.work.notes.iter().filter(|job| job.is_refused_body()).count();
        if state.closed || waiting >= REFUSED_WAITING_MAX {
            return false;
        }
        let note = StateChange::Refused(Box::new(refused));
        state.work.notes.push(NoteJob { note, then: None, reply: None });
        self.wake_writer(state);
        true
    }

    /// The writer has ended: dropping the queue tells the callers.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.ended = true;
        let left = std::mem::take(&mut state.work);
        drop(state);
        drop(left);
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().work.is_empty()
    }

    /// Everything queued, as soon as there is something or the time has passed; of submissions and commands
    /// only as many as fit one transaction.
    pub(super) fn take(&self, patience: Duration) -> WriterWork {
        let mut state = self.lock();
        if state.work.is_empty() {
            state.writer_sleeps = true;
            let waited = self.filled.wait_timeout_while(state, patience, |state| state.work.is_empty());
            state = waited.expect("lock is not poisoned").0;
            state.writer_sleeps = false;
        }
        let mut work = std::mem::take(&mut state.work);
        let (mut events, mut bytes) = (0, 0);
        let beyond = work.submissions.iter().position(|job| {
            events += job.submission.events.len();
            bytes += job.bytes();
            events > BATCH_EVENTS_MAX || bytes > BATCH_BYTES_MAX
        });
        // A single submission is taken whatever its size.
        if let Some(beyond) = beyond {
            state.work.submissions = work.submissions.split_off(beyond.max(1));
        }
        // One large command at a time, since writes wait for it.
        let mut large = work.commands.iter().enumerate().filter(|(_, job)| job.given.command.is_large());
        if let Some((second, _)) = large.nth(1) {
            state.work.commands = work.commands.split_off(second);
        }
        state.submission_bytes = state.work.submissions.iter().map(SubmitJob::bytes).sum();
        work
    }
}
