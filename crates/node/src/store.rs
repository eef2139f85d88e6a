//! Where accepted events and all that became of them are kept: the one thing that outlives the process.
//!
//! A store has few verbs, each of them one transaction, and knows no policy. What it does know is order:
//! it decides, in the transaction that takes an event, whether a delivery is at the head of its session
//! or behind another, and in the transaction that settles a head who comes next. So a session's order is
//! durable, holds over any crash, and nothing about it has to fit into memory.
//!
//! Invariants, held by the contract suite against every implementation:
//! - all of a batch is durable when [`Store::write`] returns, or nothing of it is;
//! - at most one delivery of a session is at its head, and it is the oldest that has not ended;
//! - a settlement that does not fit the number of attempts on record, or whose delivery has ended or is
//!   not at the head of its session, changes nothing;
//! - a delivery's `written_at` moves only with its history, when it is settled: what it is excused for our
//!   absence is counted from then, and neither being promoted nor being released tells its history anew;
//! - a submission is taken whole or not at all; an event that came before is not taken twice, unless one who
//!   wants it asks for each copy or has forgotten it by now: then it is taken again for these alone;
//! - counts come from counters kept in the same transactions, and always equal what a scan would find.

mod admit;
mod derive;
pub mod access_store;
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

use redrive_core::book::model;
use redrive_core::engine::story::Story;
use redrive_core::engine::{Absences, Advance, Death, Load, Page, QueueName, Settlement, Waiting};
use redrive_core::event::Event;
use redrive_core::event::copies::Copies;
use redrive_core::ids::{DeliveryId, DependencyName, IdPrefix, Receipt, Seq, ServiceName};
use redrive_core::letters::replay::{ReplayId, ReplayJob};
use redrive_core::policy::breaker::Record;
use redrive_core::time::Timestamp;

use self::access_store::{AuditEntry, KeyRecord, RefusedBody};
pub use self::error::StoreError;
use self::letter::{
    AuditRecord, CommandRequest, GroupView, HeldCursor, HeldPage, HeldSession, KindView, LetterFilter,
    LetterKey, LetterNumber, LetterPage, LetterQuery, LetterView, ReplayView, Selection, SelectionSurvey,
};
pub use self::list::{DeliveryFilter, SCANNED_MAX, DeliveryPage};
pub use self::sqlite::{CompactionResult, LossPolicy, Options, WalBounds, compact, write_once};

/// The most rule books that a recovery brings back.
pub const BOOKS_RECOVERED_MAX: usize = 8;
/// The most crashes that are remembered.
pub const CRASHES_MAX: usize = 8;
/// Letters that are looked at in one step while a replay is listing those it will send.
const REPLAY_GATHER_MAX: usize = 2_000;
/// Letters of a replay that are looked at in one step that sends some of them.
const REPLAY_WALK_MAX: usize = 1_000;
/// Replays that are remembered.
pub(crate) const REPLAYS_KEPT_MAX: usize = 1_000;
/// Acts that stay on record.
const AUDIT_RECORDS_MAX: usize = 100_000;

/// Opens the store of a data folder, and makes both if they are not there.
pub fn open(data: &Path, options: Options) -> Result<Box<dyn Store>, StoreError> {
    Ok(Box::new(sqlite::Sqlite::open(data, options)?))
}

/// Opens the store of a data folder to look at it, beside the process that owns it.
pub fn open_reader(data: &Path) -> Result<Box<dyn StoreReader>, StoreError> {
    sqlite::Sqlite::open_reader(data)
}

/// Keeps events and deliveries. One thread owns it; everyone else asks that thread, or a [`StoreReader`].
pub trait Store: Send {
    /// What there is to go on with, and what is known of the time since. Begins a new run: the store
    /// remembers that one began, so that runs which end without [`Store::close`] can be counted.
    fn recover(&mut self, now: Timestamp) -> Result<RecoveredState, StoreError>;

    /// Makes a batch durable, in one transaction: settlements first, then submissions, then notes, then
    /// commands, then steps of replays.
    fn write(&mut self, batch: &WriteBatch, now: Timestamp) -> Result<BatchResult, StoreError>;

    /// Finds deliveries at the head of their session, or without one.
    fn load(&mut self, load: &Load) -> Result<Page, StoreError>;

    /// Does a small step of what must be done now and then; says whether there is more to do at once.
    fn housekeep(&mut self, keep: &RetentionRules, now: Timestamp) -> Result<HousekeepingStep, StoreError>;

    /// Copies everything to a folder in small steps, while others write.
    fn back_up(&mut self, step: &mut Backup) -> Result<BackupProgress, StoreError>;

    /// Another pair of eyes, for questions that may take a while.
    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError>;

    /// After an error that left it unknown what is durable: opens what is on disk anew.
    fn reopen(&mut self) -> Result<(), StoreError>;

    /// Whether there is room for new events, beside what settling and deleting need.
    fn has_room(&mut self) -> Result<DiskRoom, StoreError>;

    /// The run ends as it should.
    fn close(self: Box<Self>, now: Timestamp) -> Result<(), StoreError>;
}

/// Whether new events can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskRoom {
    /// They can.
    Enough,
    /// The disk is nearly full.
    Short {
        /// Bytes that are free.
        free_bytes: u64,
        /// Bytes that must be.
        needed_bytes: u64,
    },
}

/// What a store knows at the start of a run.
#[derive(Debug)]
pub struct RecoveredState {
    /// When the run begins: now, or the last time that the store remembers if the machine's clock was
    /// set back since.
    pub resumes_at: Timestamp,
    /// Made when the store was, so that its jitter and hashes are its own.
    pub seed: u64,
    /// Queues with something that has not ended.
    pub queues: Vec<QueueName>,
    /// Services that are paused, and since when.
    pub paused: BTreeMap<ServiceName, Timestamp>,
    /// When Redrive was away, until `now`.
    pub absences: Absences,
    /// What breakers were last known to be.
    pub breakers: Vec<Record>,
    /// Replays that are open, or whose letters are on their way.
    pub replays: Vec<ReplayJob>,
    /// Dependencies that are well again and whose letters nobody has begun to bring back.
    pub owed: BTreeSet<DependencyName>,
    /// The texts of the latest rule books, the newest last.
    pub books: Vec<String>,
    /// The last place given before each of the latest runs that ended without a word, with when it was
    /// noticed, the oldest first.
    pub crashes: Vec<(Timestamp, Seq)>,
}

/// What is to become durable together.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    /// What became of deliveries.
    pub settlements: Vec<Arc<Settlement>>,
    /// What came in.
    pub submissions: Vec<Submission>,
    /// What else is to be remembered.
    pub changes: Vec<StateChange>,
    /// What people want done with dead letters. Writing it answers them.
    pub commands: Vec<CommandRequest>,
    /// Steps of replays.
    pub advances: Vec<Advance>,
}

impl WriteBatch {
    /// Whether there is nothing to write.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.settlements.is_empty()
            && self.submissions.is_empty()
            && self.changes.is_empty()
            && self.commands.is_empty()
            && self.advances.is_empty()
    }
}

/// Events that are taken together or not at all.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The events, with who wants them.
    pub events: Vec<SubmittedEvent>,
}

/// An event and who wants it.
#[derive(Clone, Debug)]
pub struct SubmittedEvent {
    /// The event.
    pub event: Arc<Event>,
    /// Who wants it; nobody is fine, and recorded.
    pub routes: Vec<Addressee>,
}

/// One who wants an event.
#[derive(Clone, Debug)]
pub struct Addressee {
    /// Where the delivery waits.
    pub queue: Arc<QueueName>,
    /// The id of the claim.
    pub subscription: Arc<str>,
    /// Whether deliveries of one session keep their order, and whether a dead one holds the rest.
    pub order: model::Order,
    /// The dead-letter queue that its letters belong to.
    pub letter_name: Arc<str>,
    /// The consumer group that its letters name.
    pub consumer_group: Arc<str>,
    /// How much may wait for the whole service.
    pub bound: WaitingBound,
    /// How a second copy of an event is recognised.
    pub copies: Copies,
}

/// How much may wait for one service, over all its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingBound {
    /// Deliveries.
    pub deliveries_max: u64,
    /// Bytes of their payloads.
    pub bytes_max: u64,
    /// Deliveries behind a dead letter that holds their session; one more is a dead letter too.
    pub per_session_max: u64,
    /// What happens to one too many.
    pub when_full: OverflowPolicy,
}

/// What happens to an event when a service that wants it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowPolicy {
    /// It is refused, whole.
    Refuse,
    /// It is taken, and its delivery to that service is dead at once (`BACKLOG_FULL`).
    DeadLetter,
}

/// Something else to remember.
#[derive(Clone, Debug)]
pub enum StateChange {
    /// A service is paused.
    Pause(ServiceName),
    /// It is not any more.
    Resume(ServiceName),
    /// What a breaker is; taken if it [`Record::replaces`] what is known.
    Breaker(Box<Record>),
    /// Redrive could not write from then until now.
    Absence {
        /// From when.
        from: Timestamp,
    },
    /// Redrive is alive; written now and then, so that an absence can be measured.
    Alive,
    /// A rule book that holds from now on; kept by its hash for as long as stories name it.
    Book {
        /// Its hash.
        hash: u64,
        /// Its text.
        text: Arc<str>,
    },
    /// Deliveries of the queue that wait until [`Timestamp::NEVER`] may start at once.
    Release(Arc<QueueName>),
    /// A dependency is well again: letters are to be brought back, and nobody has begun to.
    AutoReplayDue(DependencyName),
    /// Somebody has, or there is nothing to bring back.
    AutoReplayDone(DependencyName),
    /// A key is made, changed or revoked: it replaces the one with its id. One more than
    /// [`access_store::KEYS_MAX`] changes nothing.
    Key(Box<KeyRecord>),
    /// A body was refused, and is kept for a while; the oldest go when there are too many.
    Refused(Box<RefusedBody>),
    /// Something that must be known after a restart, under a name of its own.
    Memo {
        /// Its name, such as `schedule:nightly`.
        name: String,
        /// What is to be known; none forgets it.
        value: Option<String>,
    },
    /// Something was done.
    Audit(Box<AuditEntry>),
    /// An unrouted event has found who wants it; a no-op if it is not unrouted any more, or if there is no
    /// room for it with one of them: it is safe where it is, and can be routed when there is.
    Route {
        /// Which event.
        event: Seq,
        /// Who wants it.
        routes: Vec<Addressee>,
    },
}

/// What a batch came to; each list in the order of the batch.
#[derive(Debug, Default)]
pub struct BatchResult {
    /// Of each settlement.
    pub settled: Vec<SettleResult>,
    /// Of each submission.
    pub submitted: Vec<Result<Vec<AcceptedEvent>, SubmissionRefusal>>,
    /// Of each step: the replay as it is now, and how many letters were sent; none if there is no such
    /// replay any more.
    pub advanced: Vec<Option<(ReplayJob, u32)>>,
    /// Deliveries that may start now, of submissions, [`StateChange::Route`], commands and steps: those at the head
    /// of their session, or without one, in the order of the store.
    pub waiting: Vec<Waiting>,
}

/// What a settlement came to.
#[derive(Debug)]
pub enum SettleResult {
    /// It is durable.
    Written {
        /// The next of the session, which is its head now.
        promoted: Option<Box<Waiting>>,
    },
    /// The delivery had been settled otherwise.
    Stale,
}

/// An event that is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedEvent {
    /// To find it again by; the first one's if it came before.
    pub receipt: Receipt,
    /// Whether it came before.
    pub seen: Occurrence,
    /// How many deliveries it has.
    pub deliveries: u32,
    /// When it was accepted; the first one, if it came before.
    pub accepted_at: Timestamp,
}

/// Whether an event came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// Never within the time that ids are remembered.
    First,
    /// It did, with the same content.
    Duplicate,
}

/// Why a submission was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionRefusal {
    /// An event with this id and source came before, and was another.
    #[error("another event with this source and id came before")]
    Conflict {
        /// Which of the submission, from 0.
        index: usize,
        /// The first one's receipt; none if it stands in the same submission, which is refused whole.
        first: Option<Receipt>,
    },
    /// A service that wants it has too much waiting.
    #[error("too much waits for the service {service}")]
    Full {
        /// Which of the submission, from 0.
        index: usize,
        /// The service.
        service: ServiceName,
    },
}

impl SubmissionRefusal {
    /// The first event of the submission that cannot be taken, from 0; those before it can.
    #[must_use]
    pub const fn index(&self) -> usize {
        match self {
            Self::Conflict { index, .. } | Self::Full { index, .. } => *index,
        }
    }
}

/// How long a dead letter of a queue and an event type is kept.
pub type Retention = dyn Fn(&QueueName, &str) -> Duration + Send + Sync;

/// How long things are kept.
#[derive(Clone)]
pub struct RetentionRules {
    /// Events all of whose deliveries are delivered, and unrouted ones.
    pub delivered: Duration,
    /// Ids of events; an event that is kept longer keeps its id.
    pub ids: Duration,
    /// Dead letters of a queue and an event type. One that holds its session, or that an open replay has
    /// claimed, is kept for longer.
    pub letters: Arc<Retention>,
}

/// What a step of housekeeping did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HousekeepingStep {
    /// Events that were deleted.
    pub events_deleted: u64,
    /// Dead letters that were deleted for their age.
    pub letters_deleted: u64,
    /// Whether there is more to do at once.
    pub more: bool,
}

/// A copy in the making, which is given up when this is dropped.
#[derive(Debug)]
pub struct Backup {
    /// The folder, which must not hold a store.
    pub folder: PathBuf,
    /// Pages to copy in one step.
    pub pages_per_step: u32,
    /// Shared with the store that makes it, once it has begun.
    begun: Option<Arc<()>>,
}

impl Backup {
    /// One that has not begun.
    #[must_use]
    pub const fn new(folder: PathBuf, pages_per_step: u32) -> Self {
        Self { folder, pages_per_step, begun: None }
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Pages in all.
    pub pages: u64,
    /// Pages to go; 0 is done and durable.
    pub remaining: u64,
}

/// Answers questions beside the thread that writes. Each answer is of one moment, and none takes long.
pub trait StoreReader: Send {
    /// Events by receipt, or by an id that several sources may have used.
    fn events(&self, key: &EventKey) -> Result<Vec<EventView>, StoreError>;
    /// A delivery with all its attempts, by the first digits of its id; the latest first, at most so many.
    fn deliveries(&self, prefix: &IdPrefix, rows_max: usize) -> Result<Vec<DeliveryView>, StoreError>;
    /// Deliveries, the latest first. At most [`SCANNED_MAX`] are looked at, however few of them fit.
    fn list(&self, filter: &DeliveryFilter) -> Result<DeliveryPage, StoreError>;
    /// The same with all their attempts; whoever wants many asks for them in parts.
    fn deliveries_with_attempts(&self, filter: &DeliveryFilter) -> Result<DeliveryPage, StoreError>;
    /// Events that nobody wanted, the oldest first, beyond that place; fewer than asked for if they are large.
    fn unrouted(&self, after: Seq, rows_max: usize) -> Result<Vec<EventView>, StoreError>;
    /// The text of a rule book.
    fn book(&self, hash: u64) -> Result<Option<String>, StoreError>;
    /// What there is, by queue and state.
    fn counts(&self) -> Result<StoreCounts, StoreError>;
    /// How much of a disk it takes.
    fn bytes(&self) -> Result<u64, StoreError>;
    /// Since when the oldest of each queue wait or are dead, for each queue that has either. The price is a few
    /// looks, however much there is.
    fn oldest(&self) -> Result<BTreeMap<QueueName, Oldest>, StoreError>;
    /// Dead letters, the latest first.
    fn letters(&self, query: &LetterQuery) -> Result<LetterPage, StoreError>;
    /// A dead letter with its event's data and all its attempts.
    fn letter(&self, key: &LetterKey) -> Result<Option<LetterView>, StoreError>;
    /// The dead letters that had that id elsewhere: one for each service at most.
    fn imported_letters(&self, key: &str) -> Result<Vec<LetterView>, StoreError>;
    /// Dead letters with their events' data and all attempts, the oldest first, beyond that one.
    fn export(
        &self,
        selection: &Selection,
        after: Option<LetterNumber>,
        rows_max: usize,
    ) -> Result<LetterPage, StoreError>;
    /// The kinds of letters that the filter may find, in no order; its parts that single letters differ in
    /// do not count.
    fn kinds(&self, filter: &LetterFilter) -> Result<Vec<KindView>, StoreError>;
    /// Letters by their cause, the most frequent first.
    fn groups(
        &self,
        filter: &LetterFilter,
        now: Timestamp,
        rows_max: usize,
    ) -> Result<Vec<GroupView>, StoreError>;
    /// What a selection comes to.
    fn survey(&self, selection: &Selection) -> Result<SelectionSurvey, StoreError>;
    /// A replay.
    fn replay(&self, id: ReplayId) -> Result<Option<ReplayView>, StoreError>;
    /// Replays, the latest first, before that one.
    fn replays(&self, before: Option<ReplayId>, rows_max: usize) -> Result<Vec<ReplayView>, StoreError>;
    /// Sessions that a dead letter holds, those held for longest first.
    fn held_sessions(&self, rows_max: usize) -> Result<Vec<HeldSession>, StoreError>;
    /// The same page by page, in the order of the store: all of them, however many there are.
    fn held_page(&self, after: Option<HeldCursor>, rows_max: usize) -> Result<HeldPage, StoreError>;
    /// Every key, revoked ones included, the oldest first.
    fn keys(&self) -> Result<Vec<KeyRecord>, StoreError>;
    /// Refused bodies without their bytes, the latest first, before that one.
    fn refused(&self, before: Option<u64>, rows_max: usize) -> Result<Vec<RefusedBody>, StoreError>;
    /// A refused body.
    fn refused_body(&self, number: u64) -> Result<Option<RefusedBody>, StoreError>;
    /// What a [`StateChange::Memo`] of that name said last.
    fn memo(&self, name: &str) -> Result<Option<String>, StoreError>;
    /// Made when the store was: what the jitter of its deliveries is drawn from.
    fn seed(&self) -> Result<u64, StoreError>;
    /// The last place that was given.
    fn last_place(&self) -> Result<Seq, StoreError>;
    /// Accepted events with their data and without their deliveries, in the order in which they were
    /// accepted, beyond that place; of those whose data are deleted, nothing.
    fn events_after(&self, after: Seq, rows_max: usize, bytes_max: usize) -> Result<Vec<EventView>, StoreError>;
    /// Acts on record, the latest first, before that one.
    fn audit(&self, before: Option<u64>, rows_max: usize) -> Result<Vec<AuditRecord>, StoreError>;
}

/// How an event is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKey {
    /// By its receipt.
    Receipt(Receipt),
    /// By its id.
    Id(String),
}

/// An event as it is shown.
#[derive(Clone, Debug)]
pub struct EventView {
    /// Its receipt.
    pub receipt: Receipt,
    /// The event; its data are empty once they have been deleted.
    pub event: Arc<Event>,
    /// When it was accepted.
    pub received_at: Timestamp,
    /// Whether nobody wanted it.
    pub unrouted: bool,
    /// Its deliveries, without their stories.
    pub deliveries: Vec<DeliveryView>,
}

/// A delivery as it is shown.
#[derive(Clone, Debug)]
pub struct DeliveryView {
    /// Its id.
    pub id: DeliveryId,
    /// Where it waits or waited.
    pub queue: QueueName,
    /// The claim that it stands for.
    pub subscription: String,
    /// The event's receipt.
    pub receipt: Receipt,
    /// The event's id.
    pub event_id: String,
    /// The event's source.
    pub event_source: String,
    /// The event's type.
    pub event_type: String,
    /// The event's session.
    pub session: Option<String>,
    /// The event's correlation id.
    pub correlation_id: Option<String>,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it was accepted or last settled.
    pub written_at: Timestamp,
    /// Attempts that have ended.
    pub attempts: u32,
    /// What it is.
    pub state: DeliveryState,
    /// The replay that sends it again.
    pub replaying: Option<ReplayId>,
    /// How often it has been replayed.
    pub replays: u32,
    /// The event whose dead letter this one took the place of.
    pub supersedes: Option<Receipt>,
    /// Its attempts, the first one first; empty where they were not asked for.
    pub stories: Vec<Story>,
}

/// What a delivery is, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// It may start.
    Ready,
    /// It waits for its time.
    Due {
        /// Which is then.
        at: Timestamp,
    },
    /// Another of its session comes first.
    Behind,
    /// Delivered.
    Delivered {
        /// When.
        at: Timestamp,
    },
    /// Failed for good.
    Dead {
        /// When.
        at: Timestamp,
        /// Why.
        death: Box<Death>,
    },
    /// A dead letter that was done with by hand.
    Closed {
        /// When.
        at: Timestamp,
        /// How.
        how: LetterClosure,
    },
}

/// How a dead letter was done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterClosure {
    /// Given up.
    Skipped,
    /// Deleted; only that it was is known.
    Purged,
    /// Sent again with other content.
    Superseded {
        /// The event that took its place.
        by: Receipt,
    },
}

impl DeliveryState {
    /// Which it is, without what belongs to it.
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

/// The states without what belongs to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeliveryStateName {
    /// It may start.
    #[serde(rename = "pending")]
    Ready,
    /// It waits for its time.
    #[serde(rename = "retrying")]
    Due,
    /// Another of its session comes first.
    Behind,
    /// Delivered.
    Delivered,
    /// Failed for good.
    Dead,
    /// Done with by hand.
    #[serde(skip)]
    Closed,
}

/// How much there is of what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// By queue.
    pub queues: BTreeMap<QueueName, QueueCounts>,
    /// Events that nobody wanted.
    pub unrouted: u64,
    /// Events in the store.
    pub events: u64,
}

/// How much a queue has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Deliveries that have not ended.
    pub waiting: u64,
    /// Bytes of their payloads.
    pub waiting_bytes: u64,
    /// Of these, the ones behind another of their session.
    pub behind: u64,
    /// Of these, the ones that no row of the rule book takes, and those behind them in their sessions.
    pub without_rule: u64,
    /// Delivered ones that are still kept.
    pub delivered: u64,
    /// Dead letters.
    pub dead: u64,
    /// Dead letters that were done with by hand and are still kept.
    pub closed: u64,
}

/// Since when the oldest of a queue are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oldest {
    /// When the event was accepted whose delivery has been there for longest of those that have not ended.
    /// One that is replayed has been there all the time.
    pub waiting_since: Option<Timestamp>,
    /// When the oldest dead letter died.
    pub dead_since: Option<Timestamp>,
}
