//! Dead letters, and the commands on them.
//!
//! A letter is a delivery that is dead. Letters are numbered in the order of their deaths. Letters that agree in
//! queue, subscription, event type, category, code, fingerprint, tier and name are of one *kind*; kinds are few
//! and counted, so that groups and lists need not read every letter.

mod reassign;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::attempt_record::AttemptRecord;
use redrive_core::engine::{DeadLetterInfo, QueueName};
use redrive_core::event::Event;
use redrive_core::ids::{DeliveryId, Receipt};
pub use redrive_core::letters::LetterNumber;
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
pub use redrive_core::letters::replay::ReplayAct;
use redrive_core::letters::replay::{
    ReplayId, ReplayJob, ReplayOrigin, ReplayPace, ReplayState, ReplayStop, ReplayTally, ReplayWave,
};
use redrive_core::policy::category::{Category, FailureCode};
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};

pub(super) use self::reassign::ScanCoverage;
pub use self::reassign::{ReassignCommand, ReassignCursor, ReassignScope, ReassignStep, Reassignment};
use super::DeliveryView;
use super::access_store::AuditActor;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KindId(pub u64);

/// Conditions on letters; `None` matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterFilter {
    pub service: Option<String>,
    pub channel: Option<String>,
    pub name: Option<String>,
    pub subscription: Option<String>,
    pub category: Option<Category>,
    /// Reason of the dead letter, or code of the last failure.
    pub code: Option<String>,
    pub fingerprint: Option<Fingerprint>,
    pub event_type: Option<EventPattern>,
    pub session: Option<String>,
    pub correlation_id: Option<String>,
    pub tier: Option<Tier>,
    /// Died then or later.
    pub from: Option<Timestamp>,
    /// Died before.
    pub until: Option<Timestamp>,
    /// In the message, event id, subject or data; ignores case.
    pub text: Option<String>,
    pub kinds: Option<BTreeSet<KindId>>,
    /// Replayed fewer times.
    pub replays_below: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterQuery {
    pub filter: LetterFilter,
    /// `None` starts with the latest.
    pub before: Option<LetterNumber>,
    pub rows_max: usize,
}

/// Part of a list of letters.
#[derive(Clone, Debug, Default)]
pub struct LetterPage {
    /// Without their attempts.
    pub letters: Vec<LetterView>,
    /// `None` at the end. A page may be short, even empty, and not be the last.
    pub next: Option<LetterNumber>,
}

#[derive(Clone, Debug)]
pub struct LetterView {
    pub number: LetterNumber,
    pub delivery: DeliveryView,
    pub death: DeadLetterInfo,
    pub died_at: Timestamp,
    pub replays: u32,
    pub claimed_by: Option<ReplayId>,
    /// Deliveries waiting behind it, if it holds its session.
    pub holds: Option<u64>,
    /// Its id before the import.
    pub imported_as: Option<String>,
    /// Its data are read only for a single letter or an export.
    pub event: Arc<Event>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterKey {
    Delivery(DeliveryId),
    /// By its id before the import.
    Imported(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindView {
    pub id: KindId,
    pub queue: QueueName,
    pub subscription: String,
    pub event_type: String,
    pub category: Category,
    pub code: FailureCode,
    pub failure_code: FailureCode,
    pub tier: Tier,
    pub fingerprint: Fingerprint,
    pub name: String,
    pub count: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}

#[derive(Clone, Debug)]
pub struct GroupView {
    pub fingerprint: Fingerprint,
    pub count: u64,
    pub poison: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    pub category: Category,
    pub code: FailureCode,
    pub sample: LetterView,
    /// Letters per service and channel.
    pub queues: BTreeMap<QueueName, u64>,
    /// Letters per event type.
    pub event_types: BTreeMap<String, u64>,
    /// New letters per [`TREND_SPAN`], oldest first; the last span is incomplete.
    pub trend: Vec<u64>,
}

pub const TREND_SPAN: std::time::Duration = std::time::Duration::from_mins(5);
/// One day.
pub const TREND_POINTS: usize = 288;

/// Letters chosen at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub filter: LetterFilter,
    /// `None` selects all that the filter matches.
    pub letters: Option<Vec<DeliveryId>>,
    pub poison: Poison,
    /// Only letters that died by then.
    pub died_until: Timestamp,
}

/// Whether letters of the tier `poison` are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Poison {
    Left,
    Included,
}

/// Contents of a selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectionSurvey {
    pub letters: u64,
    /// By cause and queue.
    pub by_cause: BTreeMap<(Fingerprint, QueueName), u64>,
    /// By queue and event type, to look up the rule of each.
    pub by_type: BTreeMap<(QueueName, String), u64>,
    /// Letters without a session are not counted.
    pub sessions: u64,
    /// Matching letters claimed by open replays.
    pub claimed: BTreeMap<ReplayId, u64>,
    /// Matching letters left out as poison.
    pub poison_left: u64,
    /// Sessions held by one of the letters.
    pub holding: u64,
}

/// Letters of a session released by one command, at most.
pub(super) const RELEASED_LETTERS_MAX: usize = 500;

/// Event bytes read or sent per step, at most.
pub(super) const STEP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A command with its actor.
#[derive(Clone, Debug)]
pub struct CommandRequest {
    pub command: LetterCommand,
    pub by: AuditActor,
}

impl From<LetterCommand> for CommandRequest {
    /// From the rule book, or from an unnamed caller.
    fn from(command: LetterCommand) -> Self {
        Self { command, by: AuditActor::unknown() }
    }
}

/// Result of one command. Valid only if the command's batch was written.
#[derive(Debug)]
pub struct CommandAnswer<T>(Arc<Mutex<Option<Result<T, CommandRefusal>>>>);

impl<T> CommandAnswer<T> {
    pub(super) fn set(&self, result: Result<T, CommandRefusal>) {
        *self.lock() = Some(result);
    }

    /// Can be taken once, after the batch was written.
    pub fn take(&self) -> Result<T, CommandRefusal> {
        self.lock().take().expect("a store answers every command of a batch that it has written")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<T, CommandRefusal>>> {
        self.0.lock().expect("no panic while an answer is moved")
    }
}

impl<T> Default for CommandAnswer<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for CommandAnswer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A command on dead letters: one transaction, with a result of its own type.
#[derive(Clone, Debug)]
pub enum LetterCommand {
    Replay(Box<NewReplay>, CommandAnswer<ReplayView>),
    /// Pauses, resumes or cancels a replay.
    Change {
        replay: ReplayId,
        act: ReplayAct,
        answer: CommandAnswer<ReplayView>,
    },
    /// Gives up a letter; those behind it continue.
    Skip {
        letter: DeliveryId,
        note: Option<String>,
        /// Deliveries released; 0 if the next of the session holds it too.
        answer: CommandAnswer<u64>,
    },
    /// Releases a session that the rule book no longer holds. The letter stays, and so do up to
    /// `RELEASED_LETTERS_MAX` that would hold the session next.
    ReleaseSession {
        letter: DeliveryId,
        /// Deliveries released; 0 if the next of the session holds it too.
        answer: CommandAnswer<u64>,
    },
    /// Deletes letters, some per step.
    Purge(Box<PurgeCommand>, CommandAnswer<PurgeStep>),
    /// Sends a letter again as a new event with other content.
    Edit(Box<EditCommand>, CommandAnswer<(Receipt, DeliveryId)>),
    Import(Vec<ImportedLetter>, CommandAnswer<ImportCounts>),
    /// Empties a queue that the rule book no longer has, some deliveries per step.
    Reassign(Box<ReassignCommand>, CommandAnswer<ReassignStep>),
}

impl LetterCommand {
    /// Whether it needs disk space for events.
    #[must_use]
    pub const fn adds_events(&self) -> bool {
        matches!(self, Self::Import(..) | Self::Edit(..))
    }

    /// Whether it deserves a transaction of its own.
    #[must_use]
    pub const fn is_large(&self) -> bool {
        !matches!(self, Self::Edit(..) | Self::Change { .. } | Self::Skip { .. })
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Import(letters, _) => letters.iter().map(|letter| letter.event.data.len()).sum(),
            Self::Edit(edit, _) => edit.event.data.len(),
            _ => 0,
        }
    }

    #[must_use]
    pub fn replay(&self) -> Option<ReplayJob> {
        let (Self::Replay(_, answer) | Self::Change { answer, .. }) = self else { return None };
        answer.lock().as_ref()?.as_ref().ok().map(ReplayView::job)
    }
}

#[derive(Clone, Debug)]
pub struct NewReplay {
    pub selection: Selection,
    /// The filter in words, for lists and the audit log.
    pub what: String,
    pub pace: ReplayPace,
    pub origin: ReplayOrigin,
    /// `None` sends them to their own queue.
    pub to: Option<Arc<Redirect>>,
    /// Required for poison.
    pub note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    pub queue: Arc<QueueName>,
    pub order: redrive_core::book::model::DeliveryOrder,
}

#[derive(Clone, Debug)]
pub struct PurgeCommand {
    /// Letters claimed by open replays stay.
    pub selection: Selection,
    /// The filter in words, for the audit log.
    pub what: String,
    pub rows_max: usize,
    /// `None` for the first step.
    pub after: Option<PurgeCursor>,
    pub note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeCursor {
    /// Last letter examined.
    pub number: LetterNumber,
    /// Audit record that counts the deleted letters.
    pub audit: u64,
}

#[derive(Clone, Debug)]
pub struct EditCommand {
    pub letter: DeliveryId,
    /// Has a new id.
    pub event: Arc<Event>,
    pub note: Option<String>,
}

#[derive(Clone, Debug)]
pub struct ImportedLetter {
    /// Letters with the same key are the same letter.
    pub key: String,
    pub queue: Arc<QueueName>,
    pub subscription: Arc<str>,
    /// By the current rule book.
    pub order: redrive_core::book::model::DeliveryOrder,
    pub event: Arc<Event>,
    pub death: DeadLetterInfo,
    pub died_at: Timestamp,
    pub attempts: u32,
    /// Known attempts, first one first.
    pub stories: Vec<AttemptRecord>,
    pub replays: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeStep {
    pub deleted: u64,
    /// Skipped, because a replay has claimed them.
    pub claimed: u64,
    /// `None` when done.
    pub next: Option<PurgeCursor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportCounts {
    pub new: u64,
    /// Already in the store.
    pub known: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    #[error("there is no dead letter {0}")]
    NoSuchLetter(DeliveryId),
    #[error("dead letter {letter} belongs to replay {replay}")]
    Claimed { letter: DeliveryId, replay: ReplayId },
    #[error("no dead letter matches")]
    NothingMatches {
        /// Matching letters of open replays.
        claimed: BTreeMap<ReplayId, u64>,
        poison: u64,
    },
    #[error("there is no replay {0}")]
    NoSuchReplay(ReplayId),
    /// The replay is over or already in that state.
    #[error("replay {replay} is {state}")]
    NotPossible { replay: ReplayId, state: ReplayState },
    #[error("dead letter {0} holds no session")]
    HoldsNothing(DeliveryId),
    #[error("an event with this source and id already exists")]
    EventExists(Receipt),
    /// The event differs from what was stored, so it must not be sent.
    #[error(
        "stored event of dead letter {0} is damaged; restore a backup, or ask the sender to send it again"
    )]
    Damaged(DeliveryId),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ReplayView {
    pub id: ReplayId,
    pub state: ReplayState,
    pub what: String,
    /// If its filter names one.
    pub service: Option<String>,
    pub pace: ReplayPace,
    pub origin: ReplayOrigin,
    /// `None` sends them to their own queue.
    pub to: Option<QueueName>,
    pub note: Option<String>,
    pub wave: ReplayWave,
    pub tally: ReplayTally,
    /// Matching letters of other replays.
    pub claimed_by_others: u64,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    /// Why it stopped by itself.
    pub stop: Option<ReplayStop>,
}

impl ReplayView {
    #[must_use]
    pub fn job(&self) -> ReplayJob {
        ReplayJob {
            id: self.id,
            state: self.state,
            pace: self.pace,
            origin: self.origin,
            wave: self.wave,
            tally: self.tally,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSession {
    pub queue: QueueName,
    pub session: String,
    /// Dead, or being replayed.
    pub letter: DeliveryId,
    pub event_type: String,
    pub since: Timestamp,
    pub behind: u64,
}

/// In store order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldPage {
    pub sessions: Vec<HeldSession>,
    pub next: Option<HeldCursor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldCursor(pub(super) i64);

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AuditRecord {
    /// Number of the record, ascending.
    pub number: u64,
    /// When it was done.
    pub at: Timestamp,
    /// What was done, such as `purge`, `retention`, `skip`, `edit`, `replay`, `replay-pause`.
    pub act: String,
    /// What it was done to.
    pub what: String,
    /// Number of dead letters affected.
    pub letters: u64,
    /// The reason, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Name of the actor; absent if unknown, or if the rule book acted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}
