//! Dead letters as the store shows them, and what people may do with them.
//!
//! A letter is a delivery that is dead. Letters are numbered in the order in which they died, and each is
//! of a *kind*: letters that agree in queue, subscription, event type, category, code, fingerprint, tier
//! and name. Kinds are few and counted, so that groups and lists need not look at every letter.

mod reassign;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::story::Story;
use redrive_core::engine::{Death, QueueName};
use redrive_core::event::Event;
use redrive_core::ids::{DeliveryId, Receipt};
pub use redrive_core::letters::LetterNumber;
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
pub use redrive_core::letters::replay::ReplayAct;
use redrive_core::letters::replay::{Origin, Pace, ReplayId, ReplayJob, ReplayState, Stop, Tally, Wave};
use redrive_core::policy::category::{Category, Code};
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};

pub(super) use self::reassign::ScanCoverage;
pub use self::reassign::{ReassignCommand, ReassignCursor, ReassignScope, ReassignStep, Reassignment};
use super::DeliveryView;
use super::access_store::AuditActor;

/// Which kind of letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KindId(pub u64);

/// Which letters; what is not stated does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterFilter {
    /// Of that service, with all its channels.
    pub service: Option<String>,
    /// Of that channel.
    pub channel: Option<String>,
    /// Of the dead-letter queue of that name.
    pub name: Option<String>,
    /// Of the claim with that id.
    pub subscription: Option<String>,
    /// That failed in that way.
    pub category: Option<Category>,
    /// Given up for that reason, or whose last failure had that code.
    pub code: Option<String>,
    /// Of that cause.
    pub fingerprint: Option<Fingerprint>,
    /// Of events that the pattern claims.
    pub event_type: Option<EventPattern>,
    /// Of that session.
    pub session: Option<String>,
    /// With that correlation id.
    pub correlation_id: Option<String>,
    /// Of that tier.
    pub tier: Option<Tier>,
    /// That died then or later.
    pub from: Option<Timestamp>,
    /// That died before.
    pub until: Option<Timestamp>,
    /// With that text in the message, the event's id, its subject or its data, whatever the case.
    pub text: Option<String>,
    /// Only of these kinds.
    pub kinds: Option<BTreeSet<KindId>>,
    /// Replayed less often than that.
    pub replays_below: Option<u32>,
}

/// One question for letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterQuery {
    /// Which.
    pub filter: LetterFilter,
    /// Only those that died before that one; none begins with the latest.
    pub before: Option<LetterNumber>,
    /// At most so many.
    pub rows_max: usize,
}

/// A part of a list of letters, the latest first.
#[derive(Clone, Debug, Default)]
pub struct LetterPage {
    /// The letters, without their stories.
    pub letters: Vec<LetterView>,
    /// To go on with; none at the end. A page may be short, even empty, and still not be the last.
    pub next: Option<LetterNumber>,
}

/// A dead letter as it is shown.
#[derive(Clone, Debug)]
pub struct LetterView {
    /// Its number.
    pub number: LetterNumber,
    /// The delivery, which is dead.
    pub delivery: DeliveryView,
    /// Why and since when it is dead.
    pub death: Death,
    /// When it died.
    pub died_at: Timestamp,
    /// How often it has been replayed.
    pub replays: u32,
    /// The open replay that has claimed it.
    pub claimed_by: Option<ReplayId>,
    /// How many wait behind it, if it holds its session.
    pub holds: Option<u64>,
    /// The id that it had elsewhere, if it was imported.
    pub imported_as: Option<String>,
    /// The event; its data are read only where one letter is asked for, or for an export.
    pub event: Arc<Event>,
}

/// How a letter is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterKey {
    /// By the delivery's id.
    Delivery(DeliveryId),
    /// By the id that it had elsewhere.
    Imported(String),
}

/// Letters that agree in all that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindView {
    /// Which.
    pub id: KindId,
    /// Whose letters.
    pub queue: QueueName,
    /// By which claim.
    pub subscription: String,
    /// Of which event type.
    pub event_type: String,
    /// What kind of failure.
    pub category: Category,
    /// Why they were given up.
    pub code: Code,
    /// The last failure's own code.
    pub failure_code: Code,
    /// Among which letters they are kept.
    pub tier: Tier,
    /// Their cause.
    pub fingerprint: Fingerprint,
    /// The dead-letter queue that they belong to.
    pub name: String,
    /// How many there are now.
    pub count: u64,
    /// When the first of them died.
    pub first_at: Timestamp,
    /// When the latest did.
    pub last_at: Timestamp,
}

/// Letters of one cause.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// Their cause.
    pub fingerprint: Fingerprint,
    /// How many there are now.
    pub count: u64,
    /// Those of them that are poison.
    pub poison: u64,
    /// When the first of them died.
    pub first_at: Timestamp,
    /// When the latest did.
    pub last_at: Timestamp,
    /// What kind of failure.
    pub category: Category,
    /// The failure's own code.
    pub code: Code,
    /// The latest letter.
    pub sample: LetterView,
    /// The services and channels, with how many letters each has.
    pub queues: BTreeMap<QueueName, u64>,
    /// The event types, with how many letters each has.
    pub event_types: BTreeMap<String, u64>,
    /// Deaths in spans of [`TREND_SPAN`], the oldest first, the last one still going on.
    pub trend: Vec<u64>,
}

/// The span of one point of a trend.
pub const TREND_SPAN: std::time::Duration = std::time::Duration::from_mins(5);
/// How many points a trend has: a day of them.
pub const TREND_POINTS: usize = 288;

/// Letters that are chosen at one moment, and never more than that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Which.
    pub filter: LetterFilter,
    /// Only these; none is all that the filter finds.
    pub letters: Option<Vec<DeliveryId>>,
    /// Whether poison is chosen with the rest.
    pub poison: Poison,
    /// Only those that died by then.
    pub died_until: Timestamp,
}

/// Whether letters of the tier `poison` are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Poison {
    /// They are left alone.
    Left,
    /// They are meant too.
    Included,
}

/// What a selection comes to, before anything is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectionSurvey {
    /// Letters in all.
    pub letters: u64,
    /// By cause and by whose they are.
    pub by_cause: BTreeMap<(Fingerprint, QueueName), u64>,
    /// By whose they are and which event type, so that a rule can be looked up for each.
    pub by_type: BTreeMap<(QueueName, String), u64>,
    /// Sessions that they are of; letters without one are not counted.
    pub sessions: u64,
    /// Letters that match and are claimed by an open replay already, by which.
    pub claimed: BTreeMap<ReplayId, u64>,
    /// Letters that match but for being poison.
    pub poison_left: u64,
    /// Sessions that one of them holds.
    pub holding: u64,
}

/// The most letters of a session that are let go by one command.
pub(super) const RELEASED_LETTERS_MAX: usize = 500;

/// A step that hands over, or looks through, so many bytes of events ends there.
pub(super) const STEP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A command and who gave it.
#[derive(Clone, Debug)]
pub struct CommandRequest {
    /// What is to be done.
    pub command: LetterCommand,
    /// By whom, for the record.
    pub by: AuditActor,
}

impl From<LetterCommand> for CommandRequest {
    /// A command of the rule book, or of a caller without a name.
    fn from(command: LetterCommand) -> Self {
        Self { command, by: AuditActor::unknown() }
    }
}

/// Where the store puts the result of one command. It holds only if the batch of the command was written.
#[derive(Debug)]
pub struct CommandAnswer<T>(Arc<Mutex<Option<Result<T, CommandRefusal>>>>);

impl<T> CommandAnswer<T> {
    pub(super) fn set(&self, result: Result<T, CommandRefusal>) {
        *self.lock() = Some(result);
    }

    /// The result of a command whose batch was written; it can be taken once.
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

/// What the store is asked to do with dead letters, each with a result of its own type; each is one transaction.
#[derive(Clone, Debug)]
pub enum LetterCommand {
    /// Send them again.
    Replay(Box<NewReplay>, CommandAnswer<ReplayView>),
    /// Halt a replay, let it go on, or end it.
    Change {
        /// Which.
        replay: ReplayId,
        /// How.
        act: ReplayAct,
        /// The replay as it is now.
        answer: CommandAnswer<ReplayView>,
    },
    /// Give up a letter: it is done with, and those behind it go on.
    Skip {
        /// Which.
        letter: DeliveryId,
        /// Why.
        note: Option<String>,
        /// How many deliveries go on; 0 if the next of the session holds it too.
        answer: CommandAnswer<u64>,
    },
    /// Let those behind a dead letter go on, since the rule book does not hold them any more; the letter stays,
    /// and so do those that would hold the session next, some hundreds at a time.
    ReleaseSession {
        /// The letter.
        letter: DeliveryId,
        /// How many deliveries go on; 0 if the next of the session holds it too.
        answer: CommandAnswer<u64>,
    },
    /// Delete letters, a few at a time.
    Purge(Box<PurgeCommand>, CommandAnswer<PurgeStep>),
    /// Send a letter again with other content, as an event of its own: the receipt and the delivery of that.
    Edit(Box<EditCommand>, CommandAnswer<(Receipt, DeliveryId)>),
    /// Take letters from elsewhere.
    Import(Vec<ImportedLetter>, CommandAnswer<ImportCounts>),
    /// Take what waits out of a queue that the rule book has no more, a few at a time.
    Reassign(Box<ReassignCommand>, CommandAnswer<ReassignStep>),
}

impl LetterCommand {
    /// Whether it writes events, which takes room.
    #[must_use]
    pub const fn adds_events(&self) -> bool {
        matches!(self, Self::Import(..) | Self::Edit(..))
    }

    /// Whether it is work enough for a transaction of its own.
    #[must_use]
    pub const fn is_large(&self) -> bool {
        !matches!(self, Self::Edit(..) | Self::Change { .. } | Self::Skip { .. })
    }

    /// The bytes of the payloads that it carries.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Import(letters, _) => letters.iter().map(|letter| letter.event.data.len()).sum(),
            Self::Edit(edit, _) => edit.event.data.len(),
            _ => 0,
        }
    }

    /// The replay that it has begun or changed.
    #[must_use]
    pub fn replay(&self) -> Option<ReplayJob> {
        let (Self::Replay(_, answer) | Self::Change { answer, .. }) = self else { return None };
        answer.lock().as_ref()?.as_ref().ok().map(ReplayView::job)
    }
}

/// A replay to begin.
#[derive(Clone, Debug)]
pub struct NewReplay {
    /// Which letters.
    pub selection: Selection,
    /// The filter in words, for lists and the audit.
    pub what: String,
    /// How fast.
    pub pace: Pace,
    /// Who begins it.
    pub origin: Origin,
    /// Where they go, if not where they came from.
    pub to: Option<Arc<Redirect>>,
    /// Why; kept, and needed where poison is meant.
    pub note: Option<String>,
}

/// Where letters go instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The service or channel.
    pub queue: Arc<QueueName>,
    /// Whether its deliveries of one session keep their order.
    pub order: redrive_core::book::model::Order,
}

/// Letters to delete.
#[derive(Clone, Debug)]
pub struct PurgeCommand {
    /// Which; those that an open replay has claimed stay.
    pub selection: Selection,
    /// The filter in words, for the audit.
    pub what: String,
    /// The most letters that are found in this step.
    pub rows_max: usize,
    /// Where the last step ended; none begins.
    pub after: Option<PurgeCursor>,
    /// Why.
    pub note: Option<String>,
}

/// Where a step of a purge ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeCursor {
    /// Letters up to there have been looked at.
    pub number: LetterNumber,
    /// The record that counts what was deleted.
    pub audit: u64,
}

/// A letter to be sent with other content.
#[derive(Clone, Debug)]
pub struct EditCommand {
    /// Which.
    pub letter: DeliveryId,
    /// The event that takes its place; its id is new.
    pub event: Arc<Event>,
    /// Why.
    pub note: Option<String>,
}

/// A dead letter from elsewhere.
#[derive(Clone, Debug)]
pub struct ImportedLetter {
    /// What it is known by: a second one with the same key is the same letter.
    pub key: String,
    /// Whose it is.
    pub queue: Arc<QueueName>,
    /// By which claim.
    pub subscription: Arc<str>,
    /// Whether its deliveries of one session keep their order, by the current book.
    pub order: redrive_core::book::model::Order,
    /// The event.
    pub event: Arc<Event>,
    /// Why it is dead.
    pub death: Death,
    /// When it died.
    pub died_at: Timestamp,
    /// How many attempts it had.
    pub attempts: u32,
    /// Those that are told of, the first one first.
    pub stories: Vec<Story>,
    /// How often it was replayed.
    pub replays: u32,
}

/// What a step of a purge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeStep {
    /// Letters deleted in this step.
    pub deleted: u64,
    /// Letters left alone since a replay has claimed them.
    pub claimed: u64,
    /// To go on with; none when all is done.
    pub next: Option<PurgeCursor>,
}

/// How many letters an import took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportCounts {
    /// New ones.
    pub new: u64,
    /// Those that were there already.
    pub known: u64,
}

/// Why a command was refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    /// No such letter.
    #[error("there is no dead letter {0}")]
    NoSuchLetter(DeliveryId),
    /// Another replay has it.
    #[error("letter {letter} belongs to replay {replay}")]
    Claimed {
        /// Which letter.
        letter: DeliveryId,
        /// Whose it is.
        replay: ReplayId,
    },
    /// Nothing to replay.
    #[error("no dead letter matches")]
    NothingMatches {
        /// Letters that match but belong to open replays, by which.
        claimed: BTreeMap<ReplayId, u64>,
        /// Letters that match but are poison.
        poison: u64,
    },
    /// No such replay.
    #[error("there is no replay {0}")]
    NoSuchReplay(ReplayId),
    /// It is over, or already as wanted.
    #[error("replay {replay} is {state}")]
    NotPossible {
        /// Which.
        replay: ReplayId,
        /// Where it stands.
        state: ReplayState,
    },
    /// The letter does not hold its session.
    #[error("letter {0} holds no session")]
    HoldsNothing(DeliveryId),
    /// An event with this id came before.
    #[error("an event with that id and source is there already")]
    EventExists(Receipt),
    /// Its event does not read as it was stored, so nothing may be made of it.
    #[error(
        "the stored event of letter {0} is damaged: restore a backup, or ask the sender to send it again"
    )]
    Damaged(DeliveryId),
}

/// A replay as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayView {
    /// Which.
    pub id: ReplayId,
    /// Where it stands.
    pub state: ReplayState,
    /// The filter in words.
    pub what: String,
    /// The one service whose letters it sends, if its filter names one.
    pub service: Option<String>,
    /// How fast it goes on.
    pub pace: Pace,
    /// Who began it.
    pub origin: Origin,
    /// Where its letters go, if not where they came from.
    pub to: Option<QueueName>,
    /// Why it was begun.
    pub note: Option<String>,
    /// How far its canary has come.
    pub wave: Wave,
    /// What became of its letters.
    pub tally: Tally,
    /// Letters that matched and belonged to other replays.
    pub claimed_by_others: u64,
    /// When it began.
    pub created_at: Timestamp,
    /// When something last became of it.
    pub changed_at: Timestamp,
    /// Why it has stopped by itself.
    pub stop: Option<Stop>,
}

impl ReplayView {
    /// As the engine knows it.
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

/// A session that a dead letter holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSession {
    /// Whose.
    pub queue: QueueName,
    /// The session's key.
    pub session: String,
    /// The letter that holds it, dead or being replayed.
    pub letter: DeliveryId,
    /// Of which event type.
    pub event_type: String,
    /// Since when it is held.
    pub since: Timestamp,
    /// How many wait behind it.
    pub behind: u64,
}

/// A page of held sessions, in the order of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldPage {
    /// The sessions.
    pub sessions: Vec<HeldSession>,
    /// To go on with; none at the end.
    pub next: Option<HeldCursor>,
}

/// Where a page of held sessions ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldCursor(pub(super) i64);

/// One act on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AuditRecord {
    /// Its number; later acts have larger ones.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// What was done, for machines: `purge`, `retention`, `skip`, `edit`, `replay`, `replay-pause` …
    pub act: String,
    /// On what, in words.
    pub what: String,
    /// How many letters it touched.
    pub letters: u64,
    /// Why, if somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// By whom; none if nobody is known by name, or if the rule book did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}
