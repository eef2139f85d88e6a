//! The messages of the engine: inputs, effects and the values they carry. A shell transports them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::book::RuleBook;
use crate::engine::attempt_record::AttemptRecord;
use crate::engine::worker::RunReport;
use crate::event::Event;
use crate::ids::{Attempt, ChannelName, DeliveryId, DependencyName, Seq, ServiceName};
use crate::letters::envelope::Tier;
use crate::letters::fingerprint::Fingerprint;
use crate::letters::replay::{ReplayId, ReplayJob, ReplayState, ReplayStop, ReplayWave, Replaying};
use crate::policy::answer::TargetReply;
use crate::policy::breaker::{BreakerRecord, Transition};
use crate::policy::category::{Category, FailureCode};
use crate::policy::decide::{AlertKind, History};
use crate::policy::rule::Rule;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName {
    pub service: ServiceName,
    pub channel: Option<ChannelName>,
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.channel {
            Some(channel) => write!(f, "{}/{channel}", self.service),
            None => write!(f, "{}", self.service),
        }
    }
}

/// A delivery that the engine may start: at the head of its session, or without one.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingDelivery {
    pub id: DeliveryId,
    pub queue: Arc<QueueName>,
    pub event: Arc<Event>,
    /// Its place in the order of its session.
    pub sequence: Option<Seq>,
    /// Set if a replay sends it again.
    pub replaying: Option<Replaying>,
    pub attempts: u32,
    /// `None` is at once.
    pub due_at: Option<Timestamp>,
    pub history: History,
    /// Hash of the rule book that its history counts by; `None` before the first attempt.
    pub book: Option<u64>,
    pub written_at: Timestamp,
    /// A start was recorded and nothing after that: Redrive crashed during the attempt.
    pub start_recorded: bool,
    /// The stored event fails its checksum and must not be delivered.
    pub damaged: bool,
}

impl PendingDelivery {
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.event.data.len()
    }

    #[must_use]
    pub fn next_attempt(&self) -> Attempt {
        Attempt::new(self.attempts.saturating_add(1)).expect("more than 0")
    }

    /// Whether its rule allowed this attempt as a retry. A new beginning, such as a replay, is no retry.
    pub(super) const fn is_retry(&self) -> bool {
        self.history.retries_total() > 0
    }
}

#[derive(Debug)]
pub enum Input {
    /// Durable now; only those at the head of their session, or without one.
    Accepted(Vec<PendingDelivery>),
    Loaded(LoadedPage),
    Ended {
        call: CallId,
        ending: Ending,
    },
    /// Durable, or too late.
    Settled {
        delivery: DeliveryId,
        fate: SettlementResult,
        promoted: Option<Box<PendingDelivery>>,
    },
    /// Begun, or changed by an operator; already durable.
    Replay(ReplayJob),
    /// The answer to [`Effect::Advance`]; the letters it sent arrived as `Accepted` before.
    Advanced {
        job: ReplayJob,
        sent: u32,
    },
    /// The answer to [`Effect::Release`]: durable.
    Released(Arc<QueueName>),
    StoreFailing,
    /// What was accepted meanwhile is found by loading.
    StoreHealed,
    Tick,
    /// Already durable.
    Operator(OperatorCommand),
    Book(Arc<RuleBook>),
    /// Shutdown: running calls may end, nothing starts.
    Stop,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    Reply(TargetReply),
    /// A batch of which these failed for the reason given.
    Partly {
        reply: TargetReply,
        /// Indices in the batch, ascending.
        failed: Vec<usize>,
    },
    Ran {
        reply: TargetReply,
        report: Box<RunReport>,
    },
    Interrupted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettlementResult {
    Written,
    /// The delivery had been settled otherwise.
    Stale,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorCommand {
    Pause(ServiceName),
    Resume(ServiceName),
    Trip(DependencyName),
    Reset(DependencyName),
}

#[derive(Clone, Debug)]
pub enum Effect {
    Start(Arc<TargetCall>),
    /// Answered by [`Input::Settled`].
    Settle(Arc<Settlement>),
    /// Answered by [`Input::Loaded`].
    Load(LoadRequest),
    /// The latest request replaces earlier ones.
    WakeAt(Timestamp),
    /// Not urgent.
    Keep(Box<BreakerRecord>),
    /// Deliveries parked until [`Timestamp::NEVER`] may have a rule now. Answered by [`Input::Released`].
    Release(Arc<QueueName>),
    /// Answered by [`Input::Advanced`].
    Advance(Advance),
    /// A dependency has recovered: replay the letters that the book reprocesses automatically.
    Reprocess(DependencyName),
    Activity(Box<EngineActivity>),
}

/// Lists letters while listing is not complete, else sends some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    pub replay: ReplayId,
    /// If the store has another number, this step was taken already.
    pub sent_before: u64,
    pub letters_max: u32,
    /// The replay's current wave or the next: an operator may have restarted the canary since. The replay
    /// enters it when something of it was sent.
    pub wave: ReplayWave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

#[derive(Clone, Debug)]
pub struct TargetCall {
    pub id: CallId,
    pub queue: Arc<QueueName>,
    pub deliveries: Vec<PendingDelivery>,
    pub rule: Arc<Rule>,
    /// Of the rule; it defines the target too.
    pub book: Arc<RuleBook>,
    pub limit: Duration,
    pub started_at: Timestamp,
}

impl Advance {
    #[must_use]
    pub fn fits(&self, job: &ReplayJob) -> bool {
        self.sent_before == job.tally.sent && (self.wave == job.wave || self.wave == job.wave.next())
    }
}

/// The result for one delivery, to be written in one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    pub delivery: DeliveryId,
    /// If the store has another number, this settlement is stale.
    pub attempts_before: u32,
    pub attempts: u32,
    pub next: NextState,
    pub history: History,
    /// The book that the history counts by.
    pub book: u64,
    /// `None` if no attempt ended.
    pub record: Option<Box<AttemptRecord>>,
    pub pause: Option<ServiceName>,
    /// In the same transaction, like `pause` and `emits`.
    pub stop: Option<ReplayStop>,
    pub emits: Vec<Arc<Event>>,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextState {
    Delivered,
    Ready,
    Due {
        /// [`Timestamp::NEVER`] waits for a rule.
        at: Timestamp,
    },
    Dead(Box<DeadLetterInfo>),
    /// An attempt is about to start whose end may never be known: a worker that could outlive us, or one that
    /// Redrive may crash with.
    Starting,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterInfo {
    pub category: Category,
    /// Why it was given up; `failure_code` is the last failure's own.
    pub code: FailureCode,
    pub failure_code: FailureCode,
    pub tier: Tier,
    pub message: String,
    pub fingerprint: Fingerprint,
    /// By the rule book's template.
    pub name: String,
    /// By default the service.
    pub consumer_group: String,
    pub followers: SessionFollowers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionFollowers {
    Continue,
    /// Until it is replayed, skipped or purged.
    Wait,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadRequest {
    pub queue: Arc<QueueName>,
    pub wanted: LoadScope,
    pub rows_max: u32,
    /// Payload bytes; one delivery is always allowed.
    pub bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadScope {
    /// Those that may start at once, in the order of the store.
    Ready { after: Seq },
    /// Those with a due time, earliest first.
    Due { until: Timestamp },
}

#[derive(Debug)]
pub struct LoadedPage {
    pub queue: Arc<QueueName>,
    pub wanted: LoadScope,
    pub rows: Vec<PendingDelivery>,
    /// Whether the limits cut it off.
    pub more: bool,
    /// When the first that is not due yet will be; only for [`LoadScope::Due`].
    pub next_due_at: Option<Timestamp>,
}

/// What happened in the engine: for logs, metrics, alerts, the page and `redrive tail`.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "most are of the largest, and all are boxed")]
pub enum EngineActivity {
    Settled { delivery: PendingDelivery, settlement: Arc<Settlement>, made: Option<CompletedCall> },
    Stale(DeliveryId),
    Breaker { dependency: DependencyName, transition: Transition, by: Option<DeliveryId> },
    Replay { replay: ReplayId, state: ReplayState },
    DependencyHeld { dependency: DependencyName, until: Timestamp },
    Paused(ServiceName),
    Alert { kind: AlertKind, queue: Arc<QueueName>, delivery: DeliveryId, code: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedCall {
    pub dependency: DependencyName,
    /// Calls of the dependency in flight when it began, itself included.
    pub beside: u32,
}

#[derive(Debug)]
pub struct Setup {
    /// Makes this store's jitter differ from another's.
    pub seed: crate::ids::Seed,
    pub book: Arc<RuleBook>,
    /// Those that stored deliveries may count by.
    pub older_books: Vec<Arc<RuleBook>>,
    pub bounds: EngineBounds,
    pub now: Timestamp,
    pub queues: Vec<QueueName>,
    pub paused: BTreeMap<ServiceName, Timestamp>,
    pub absences: super::Absences,
    pub breakers: Vec<BreakerRecord>,
    pub replays: Vec<ReplayJob>,
    /// Set after repeated crashes: deliveries up to this one are started alone.
    pub suspects_until: Option<Seq>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineBounds {
    /// Deliveries of one queue in memory that are ready, and as many that wait for their due time.
    pub window: u32,
    pub window_bytes: usize,
    /// Deliveries in flight, over all services.
    pub calls: u32,
}

impl EngineBounds {
    pub const SERVER: Self = Self { window: 512, window_bytes: 4 * 1024 * 1024, calls: 1_024 };
}
