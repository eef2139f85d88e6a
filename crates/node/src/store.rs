//! The store contract: events, deliveries and dead letters, made durable. A store decides no policy, but it does
//! decide order: which delivery is at the head of its session, and which one follows when the head ends. Session
//! order therefore survives any crash and need not fit into memory.
//!
//! Invariants, checked by the contract suite against every implementation:
//! - all of a batch is durable when [`Store::write`] returns, or nothing of it is;
//! - at most one delivery of a session is at its head: the oldest that has not ended;
//! - a settlement changes nothing if its attempt count does not match, or if its delivery has ended or is not at
//!   the head of its session;
//! - `written_at` of a delivery changes only when it is settled, because excused downtime is counted from it;
//! - a submission is accepted whole or refused whole; a duplicate event is accepted again only for services that
//!   want copies or no longer remember the first;
//! - counts come from counters kept in the same transactions and always equal what a scan would find.

pub mod access_store;
mod admit;
mod derive;
mod error;
pub mod letter;
mod list;
pub mod sqlite;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::book::event_schema::SchemaViolation;
use redrive_core::book::model;
use redrive_core::engine::attempt_record::AttemptRecord;
use redrive_core::engine::{
    Absences, Advance, DeadLetterInfo, LoadRequest, LoadedPage, PendingDelivery, QueueName, Settlement,
};
use redrive_core::event::Event;
use redrive_core::event::copy_rule::CopyRule;
use redrive_core::ids::{DeliveryId, DependencyName, IdPrefix, Receipt, Seq, ServiceName};
use redrive_core::letters::replay::{ReplayId, ReplayJob};
use redrive_core::policy::breaker::BreakerRecord;
use redrive_core::time::Timestamp;

use self::access_store::{AuditEntry, KeyRecord, RefusedBody};
pub use self::error::StoreError;
use self::letter::{
    AuditRecord, CommandRequest, GroupView, HeldCursor, HeldPage, HeldSession, KindView, LetterFilter,
    LetterKey, LetterNumber, LetterPage, LetterQuery, LetterView, ReplayView, Selection, SelectionSurvey,
};
pub use self::list::{DeliveryFilter, DeliveryPage, SCANNED_MAX};
pub use self::sqlite::{CompactionResult, LossPolicy, Options, WalBounds, compact, write_once};

/// Rule books returned by [`Store::recover`], at most.
pub const BOOKS_RECOVERED_MAX: usize = 8;
pub const CRASHES_MAX: usize = 8;
/// Letters examined per step while a replay collects its letters.
const REPLAY_GATHER_MAX: usize = 2_000;
/// Letters examined per step that sends letters of a replay.
const REPLAY_WALK_MAX: usize = 1_000;
pub(crate) const REPLAYS_KEPT_MAX: usize = 1_000;
/// Audit records kept; the oldest go first.
const AUDIT_RECORDS_MAX: usize = 100_000;

/// Opens the store of a data folder; creates both if missing.
pub fn open(data: &Path, options: Options) -> Result<Box<dyn Store>, StoreError> {
    Ok(Box::new(sqlite::Sqlite::open(data, options)?))
}

/// Opens a read-only view of a data folder beside the process that owns it.
pub fn open_reader(data: &Path) -> Result<Box<dyn StoreReader>, StoreError> {
    sqlite::Sqlite::open_reader(data)
}

/// Stores events and deliveries. One thread owns it; others read through a [`StoreReader`].
pub trait Store: Send {
    /// Starts a run and returns what it resumes with. A run that ends without [`Store::close`] counts as a crash.
    fn recover(&mut self, now: Timestamp) -> Result<RecoveredState, StoreError>;

    /// Makes a batch durable in one transaction: settlements, submissions, state changes, commands, replay steps,
    /// in this order.
    fn write(&mut self, batch: &WriteBatch, now: Timestamp) -> Result<BatchResult, StoreError>;

    /// Loads a page of deliveries that are at the head of their session, or have none.
    fn load(&mut self, load: &LoadRequest) -> Result<LoadedPage, StoreError>;

    /// Does one small step of housekeeping.
    fn housekeep(&mut self, keep: &RetentionRules, now: Timestamp) -> Result<HousekeepingStep, StoreError>;

    /// Copies the store to a folder, one step per call, while writes continue.
    fn back_up(&mut self, step: &mut Backup) -> Result<BackupProgress, StoreError>;

    /// Opens a read-only connection for queries.
    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError>;

    /// Reopens the files after an error that left it unknown what is durable.
    fn reopen(&mut self) -> Result<(), StoreError>;

    /// Whether the disk has room for new events, beyond what settling and deleting need.
    fn has_room(&mut self) -> Result<DiskRoom, StoreError>;

    /// Ends the run cleanly.
    fn close(self: Box<Self>, now: Timestamp) -> Result<(), StoreError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskRoom {
    Enough,
    /// Less is free than new events may use.
    Short {
        free_bytes: u64,
        needed_bytes: u64,
    },
}

#[derive(Debug)]
pub struct RecoveredState {
    /// Now, or the last recorded time if the machine's clock was set back.
    pub resumes_at: Timestamp,
    /// Drawn when the store was created; jitter and hashes depend on it.
    pub seed: u64,
    pub queues: Vec<QueueName>,
    /// Paused services, with the start of the pause.
    pub paused: BTreeMap<ServiceName, Timestamp>,
    /// When Redrive was not running, until `now`.
    pub absences: Absences,
    pub breakers: Vec<BreakerRecord>,
    /// Replays that are open or still have letters in flight.
    pub replays: Vec<ReplayJob>,
    /// Dependencies that recovered and whose automatic replay has not begun.
    pub owed: BTreeSet<DependencyName>,
    /// Texts of the latest rule books, the newest last.
    pub books: Vec<String>,
    /// For each recent crash: when it was detected, and the last sequence number before it. Oldest first.
    pub crashes: Vec<(Timestamp, Seq)>,
}

/// What becomes durable together.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    pub settlements: Vec<Arc<Settlement>>,
    pub submissions: Vec<Submission>,
    /// Everything else to store.
    pub changes: Vec<StateChange>,
    /// Writing the batch fills their answers.
    pub commands: Vec<CommandRequest>,
    pub advances: Vec<Advance>,
}

impl WriteBatch {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.settlements.is_empty()
            && self.submissions.is_empty()
            && self.changes.is_empty()
            && self.commands.is_empty()
            && self.advances.is_empty()
    }
}

#[derive(Clone, Debug)]
pub struct Submission {
    /// Accepted together or not at all.
    pub events: Vec<SubmittedEvent>,
}

#[derive(Clone, Debug)]
pub struct SubmittedEvent {
    pub event: Arc<Event>,
    /// Empty for an unrouted event, which is stored too.
    pub routes: Vec<Addressee>,
}

/// A service that receives an event.
#[derive(Clone, Debug)]
pub struct Addressee {
    pub queue: Arc<QueueName>,
    /// Id of the subscription.
    pub subscription: Arc<str>,
    /// Whether a session keeps its order, and whether a dead letter holds it.
    pub order: model::DeliveryOrder,
    pub letter_name: Arc<str>,
    pub consumer_group: Arc<str>,
    pub bound: WaitingBound,
    /// How duplicates are recognised.
    pub copies: CopyRule,
    /// Why the event is a poison dead letter of this service at once.
    pub violation: Option<Arc<str>>,
}

/// Backlog limits of one service, over all its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingBound {
    pub deliveries_max: u64,
    /// Of payloads.
    pub bytes_max: u64,
    /// Deliveries behind a dead letter that holds their session; the next one is dead-lettered.
    pub per_session_max: u64,
    pub when_full: OverflowPolicy,
}

/// What happens to an event when a service's backlog is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowPolicy {
    Refuse,
    /// Accepted, and dead-lettered for that service (`BACKLOG_FULL`).
    DeadLetter,
}

/// State to store, besides settlements and submissions.
#[derive(Clone, Debug)]
pub enum StateChange {
    Pause(ServiceName),
    Resume(ServiceName),
    /// Stored only if it [`BreakerRecord::replaces`] the stored one.
    Breaker(Box<BreakerRecord>),
    /// Redrive could not write from then until now.
    Absence {
        from: Timestamp,
    },
    /// Heartbeat, so that downtime can be measured.
    Alive,
    /// A rule book now in force; kept while attempt records name its hash.
    Book {
        hash: u64,
        text: Arc<str>,
    },
    /// Deliveries of the queue that wait until [`Timestamp::NEVER`] may start now.
    Release(Arc<QueueName>),
    /// A dependency recovered; its dead letters are to be replayed.
    AutoReplayDue(DependencyName),
    /// That replay has begun, or there was nothing to replay.
    AutoReplayDone(DependencyName),
    /// Creates or replaces the key with this id. A new one beyond [`access_store::KEYS_MAX`] is ignored.
    Key(Box<KeyRecord>),
    /// Keeps a refused body; the oldest go when there are too many.
    Refused(Box<RefusedBody>),
    /// A named value that must survive a restart.
    Memo {
        /// Such as `schedule:nightly`.
        name: String,
        /// `None` deletes it.
        value: Option<String>,
    },
    Audit(Box<AuditEntry>),
    /// Routes an unrouted event. A no-op if it is routed by now, or if one of the services has no room: it stays
    /// unrouted and can be routed later.
    Route {
        event: Seq,
        routes: Vec<Addressee>,
    },
}

/// What a batch did; each list is in the order of the batch.
#[derive(Debug, Default)]
pub struct BatchResult {
    pub settled: Vec<SettleResult>,
    pub submitted: Vec<Result<Vec<AcceptedEvent>, SubmissionRefusal>>,
    /// Per replay step: the replay now and how many letters were sent; `None` if the replay no longer exists.
    pub advanced: Vec<Option<(ReplayJob, u32)>>,
    /// Deliveries that may start now because of submissions, [`StateChange::Route`], commands and replay steps, in
    /// store order.
    pub waiting: Vec<PendingDelivery>,
}

#[derive(Debug)]
pub enum SettleResult {
    Written {
        /// The next delivery of the session, now its head.
        promoted: Option<Box<PendingDelivery>>,
    },
    /// The delivery was settled otherwise before.
    Stale,
}

/// An event that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedEvent {
    /// Of the first one, if this is a duplicate.
    pub receipt: Receipt,
    pub seen: Occurrence,
    pub deliveries: u32,
    /// Of the first one, if this is a duplicate.
    pub accepted_at: Timestamp,
}

/// Whether an event was accepted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// Not seen while ids are remembered.
    First,
    /// Same source, id and content as an earlier event.
    Duplicate,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionRefusal {
    /// Same source and id as an earlier event, with other content.
    #[error("an event with this source and id and other content was accepted before")]
    Conflict {
        /// Within the submission, from 0.
        index: usize,
        /// Receipt of the earlier event; `None` if it is part of the same, refused submission.
        first: Option<Receipt>,
    },
    /// The backlog of a service is full.
    #[error("backlog of service {service} is full")]
    Full {
        /// Within the submission, from 0.
        index: usize,
        service: ServiceName,
    },
    #[error("{violation}")]
    Invalid {
        /// Within the submission, from 0.
        index: usize,
        violation: SchemaViolation,
    },
}

impl SubmissionRefusal {
    /// The first event of the submission that was refused, from 0.
    #[must_use]
    pub const fn index(&self) -> usize {
        match self {
            Self::Conflict { index, .. } | Self::Full { index, .. } | Self::Invalid { index, .. } => *index,
        }
    }
}

/// How long dead letters of a queue and event type are kept.
pub type Retention = dyn Fn(&QueueName, &str) -> Duration + Send + Sync;

#[derive(Clone)]
pub struct RetentionRules {
    /// Fully delivered and unrouted events.
    pub delivered: Duration,
    /// Event ids; an event that is kept longer keeps its id.
    pub ids: Duration,
    /// Dead letters. One that holds its session, or that an open replay has claimed, is kept longer.
    pub letters: Arc<Retention>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HousekeepingStep {
    pub events_deleted: u64,
    /// Dead letters past their retention.
    pub letters_deleted: u64,
    /// Whether to call again at once.
    pub more: bool,
}

/// A backup in progress; dropping it abandons the backup.
#[derive(Debug)]
pub struct Backup {
    /// Must be empty.
    pub folder: PathBuf,
    pub pages_per_step: u32,
    /// Shared with the store that makes the backup, once started.
    begun: Option<Arc<()>>,
}

impl Backup {
    #[must_use]
    pub const fn new(folder: PathBuf, pages_per_step: u32) -> Self {
        Self { folder, pages_per_step, begun: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    pub pages: u64,
    /// 0 when the backup is complete and durable.
    pub remaining: u64,
}

/// Read-only queries beside the writing thread. Each answer is one consistent snapshot and is bounded in time.
pub trait StoreReader: Send {
    /// Finds events by receipt, or by an id that several sources may share.
    fn events(&self, key: &EventKey) -> Result<Vec<EventView>, StoreError>;
    /// Deliveries with their attempts by id prefix, latest first.
    fn deliveries(&self, prefix: &IdPrefix, rows_max: usize) -> Result<Vec<DeliveryView>, StoreError>;
    /// Deliveries, latest first. Examines at most [`SCANNED_MAX`].
    fn list(&self, filter: &DeliveryFilter) -> Result<DeliveryPage, StoreError>;
    /// Like [`Self::list`], with all attempts of each delivery.
    fn deliveries_with_attempts(&self, filter: &DeliveryFilter) -> Result<DeliveryPage, StoreError>;
    /// Unrouted events, oldest first; fewer than `rows_max` if they are large.
    fn unrouted(&self, after: Seq, rows_max: usize) -> Result<Vec<EventView>, StoreError>;
    /// Text of the rule book with that hash.
    fn book(&self, hash: u64) -> Result<Option<String>, StoreError>;
    fn counts(&self) -> Result<StoreCounts, StoreError>;
    /// Size on disk.
    fn bytes(&self) -> Result<u64, StoreError>;
    /// When the oldest pending delivery and the oldest dead letter of each queue began. Costs a few index lookups.
    fn oldest(&self) -> Result<BTreeMap<QueueName, Oldest>, StoreError>;
    /// Latest first.
    fn letters(&self, query: &LetterQuery) -> Result<LetterPage, StoreError>;
    /// A dead letter with its event's data and all attempts.
    fn letter(&self, key: &LetterKey) -> Result<Option<LetterView>, StoreError>;
    /// Dead letters imported under that id, at most one per service.
    fn imported_letters(&self, key: &str) -> Result<Vec<LetterView>, StoreError>;
    /// Dead letters with data and all attempts, oldest first.
    fn export(
        &self,
        selection: &Selection,
        after: Option<LetterNumber>,
        rows_max: usize,
    ) -> Result<LetterPage, StoreError>;
    /// Kinds of letters that the filter may match, unordered; ignores the filter's per-letter conditions.
    fn kinds(&self, filter: &LetterFilter) -> Result<Vec<KindView>, StoreError>;
    /// Letters grouped by cause, most frequent first.
    fn groups(
        &self,
        filter: &LetterFilter,
        now: Timestamp,
        rows_max: usize,
    ) -> Result<Vec<GroupView>, StoreError>;
    /// Counts what a selection contains.
    fn survey(&self, selection: &Selection) -> Result<SelectionSurvey, StoreError>;
    fn replay(&self, id: ReplayId) -> Result<Option<ReplayView>, StoreError>;
    /// Latest first.
    fn replays(&self, before: Option<ReplayId>, rows_max: usize) -> Result<Vec<ReplayView>, StoreError>;
    /// Sessions held by a dead letter, longest first.
    fn held_sessions(&self, rows_max: usize) -> Result<Vec<HeldSession>, StoreError>;
    /// All held sessions, page by page in store order.
    fn held_page(&self, after: Option<HeldCursor>, rows_max: usize) -> Result<HeldPage, StoreError>;
    /// All keys, revoked ones included, oldest first.
    fn keys(&self) -> Result<Vec<KeyRecord>, StoreError>;
    /// Refused bodies without their bytes, latest first.
    fn refused(&self, before: Option<u64>, rows_max: usize) -> Result<Vec<RefusedBody>, StoreError>;
    fn refused_body(&self, number: u64) -> Result<Option<RefusedBody>, StoreError>;
    /// Value of the last [`StateChange::Memo`] of that name.
    fn memo(&self, name: &str) -> Result<Option<String>, StoreError>;
    fn seed(&self) -> Result<u64, StoreError>;
    /// Last sequence number assigned.
    fn last_place(&self) -> Result<Seq, StoreError>;
    /// Accepted events with their data, in order of acceptance; skips those whose data are deleted.
    fn events_after(
        &self,
        after: Seq,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<EventView>, StoreError>;
    /// Latest first.
    fn audit(&self, before: Option<u64>, rows_max: usize) -> Result<Vec<AuditRecord>, StoreError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKey {
    Receipt(Receipt),
    Id(String),
}

#[derive(Clone, Debug)]
pub struct EventView {
    pub receipt: Receipt,
    /// Data are empty once deleted.
    pub event: Arc<Event>,
    pub received_at: Timestamp,
    pub unrouted: bool,
    /// Without their attempts.
    pub deliveries: Vec<DeliveryView>,
}

#[derive(Clone, Debug)]
pub struct DeliveryView {
    pub id: DeliveryId,
    pub queue: QueueName,
    /// Id of the subscription.
    pub subscription: String,
    pub receipt: Receipt,
    pub event_id: String,
    pub event_source: String,
    pub event_type: String,
    pub session: Option<String>,
    pub correlation_id: Option<String>,
    pub accepted_at: Timestamp,
    /// When it was accepted or last settled.
    pub written_at: Timestamp,
    pub attempts: u32,
    pub state: DeliveryState,
    pub replaying: Option<ReplayId>,
    pub replays: u32,
    /// The event whose dead letter it replaces.
    pub supersedes: Option<Receipt>,
    /// First attempt first; empty where not requested.
    pub stories: Vec<AttemptRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    Ready,
    /// Waits for its next attempt.
    Due {
        at: Timestamp,
    },
    /// Waits for an earlier delivery of its session.
    Behind,
    Delivered {
        at: Timestamp,
    },
    Dead {
        at: Timestamp,
        death: Box<DeadLetterInfo>,
    },
    Closed {
        at: Timestamp,
        how: LetterClosure,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterClosure {
    Skipped,
    /// Deleted; only the fact is kept.
    Purged,
    /// Sent again with edited content.
    Superseded {
        by: Receipt,
    },
}

impl DeliveryState {
    #[must_use]
    pub const fn name(&self) -> DeliveryStateName {
        match self {
            Self::Ready => DeliveryStateName::Ready,
            Self::Due { .. } => DeliveryStateName::Due,
            Self::Behind => DeliveryStateName::Behind,
            Self::Delivered { .. } => DeliveryStateName::Delivered,
            Self::Dead { .. } => DeliveryStateName::Dead,
            Self::Closed { .. } => DeliveryStateName::Closed,
        }
    }
}

/// Name of a delivery state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeliveryStateName {
    /// May start now.
    #[serde(rename = "pending")]
    Ready,
    /// Waits for its next attempt.
    #[serde(rename = "retrying")]
    Due,
    /// Waits for an earlier delivery of its session.
    Behind,
    /// Delivered.
    Delivered,
    /// Dead letter.
    Dead,
    /// Skipped, purged or superseded.
    #[serde(skip)]
    Closed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    pub queues: BTreeMap<QueueName, QueueCounts>,
    pub unrouted: u64,
    pub events: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Deliveries that have not ended.
    pub waiting: u64,
    pub waiting_bytes: u64,
    /// Of `waiting`: behind another delivery of their session.
    pub behind: u64,
    /// Of `waiting`: taken by no row of the rule book, with those behind them.
    pub without_rule: u64,
    /// Delivered and still kept.
    pub delivered: u64,
    pub dead: u64,
    /// Skipped, purged or superseded letters still kept.
    pub closed: u64,
}

/// Age of the oldest items of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oldest {
    /// Acceptance time of the oldest delivery that has not ended; a replayed one counts from its first acceptance.
    pub waiting_since: Option<Timestamp>,
    pub dead_since: Option<Timestamp>,
}
