//! What goes into the engine and what comes out of it: plain values, which a shell carries to and fro.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::book::RuleBook;
use crate::engine::story::Story;
use crate::engine::worker::Report;
use crate::event::Event;
use crate::ids::{Attempt, ChannelName, DeliveryId, DependencyName, Seq, ServiceName};
use crate::letters::envelope::Tier;
use crate::letters::fingerprint::Fingerprint;
use crate::letters::replay::{ReplayId, ReplayJob, ReplayState, Replaying, Stop, Wave};
use crate::policy::answer::Reply;
use crate::policy::breaker::{Record, Transition};
use crate::policy::category::{Category, Code};
use crate::policy::decide::{AlertKind, History};
use crate::policy::rule::Rule;
use crate::time::Timestamp;

/// Whose deliveries wait together: those of a service, or of one of its channels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName {
    /// The service.
    pub service: ServiceName,
    /// Its channel, if it is one's.
    pub channel: Option<ChannelName>,
}

/// `service` or `service/channel`.
impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.channel {
            Some(channel) => write!(f, "{}/{channel}", self.service),
            None => write!(f, "{}", self.service),
        }
    }
}

/// A delivery that waits at the head of its session, or has none: it may start whenever it is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Which.
    pub id: DeliveryId,
    /// Where it waits.
    pub queue: Arc<QueueName>,
    /// What it delivers.
    pub event: Arc<Event>,
    /// Its place in the order of its session, if it has one.
    pub sequence: Option<Seq>,
    /// It was dead, and a replay sends it again.
    pub replaying: Option<Replaying>,
    /// How many attempts have ended.
    pub attempts: u32,
    /// When it may start; none is at once.
    pub due_at: Option<Timestamp>,
    /// What it has been through.
    pub history: History,
    /// The hash of the book that its history counts by; none before the first attempt.
    pub book: Option<u64>,
    /// When the store last wrote it.
    pub written_at: Timestamp,
    /// An attempt was recorded to start, and nothing after that: Redrive went down with it.
    pub start_recorded: bool,
    /// Its event does not read as it was stored, and must not be delivered.
    pub damaged: bool,
}

impl Waiting {
    /// The memory that its payload takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.event.data.len()
    }

    /// The number of its next attempt.
    #[must_use]
    pub fn next_attempt(&self) -> Attempt {
        Attempt::new(self.attempts.saturating_add(1)).expect("more than 0")
    }

    /// Whether its next attempt is a retry: one that its rule allowed after a failure. What begins anew, such as
    /// a replay, is none.
    pub(super) const fn is_retry(&self) -> bool {
        self.history.retries_total() > 0
    }
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// Deliveries are durable now; only those at the head of their session, or with none.
    Accepted(Vec<Waiting>),
    /// What a [`Effect::Load`] found.
    Loaded(Page),
    /// A call is over.
    Ended {
        /// Which.
        call: CallId,
        /// How.
        ending: Ending,
    },
    /// A settlement is durable, or was too late to be.
    Settled {
        /// Of which delivery.
        delivery: DeliveryId,
        /// Whether it was written.
        fate: Fate,
        /// The next of its session, which waited behind it.
        promoted: Option<Box<Waiting>>,
    },
    /// A replay has begun, or an operator has halted it, let it go on or ended it; it is durable already.
    Replay(ReplayJob),
    /// What an [`Effect::Advance`] asked for is durable; the letters that it sent came as accepted before.
    Advanced {
        /// The replay as it is now.
        job: ReplayJob,
        /// How many letters were sent.
        sent: u32,
    },
    /// What a [`Effect::Release`] asked for is durable.
    Released(Arc<QueueName>),
    /// The store takes no writes for now.
    StoreFailing,
    /// It does again; what was accepted meanwhile is found by looking.
    StoreHealed,
    /// Time has passed.
    Tick,
    /// Somebody who may say so wants something; it is durable already.
    Operator(Command),
    /// A new rule book holds from now on.
    Book(Arc<RuleBook>),
    /// Redrive is shutting down: what runs may end, nothing starts.
    Stop,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// With one answer for all it carried.
    Reply(Reply),
    /// A batch was answered, and these of it failed for the reason given; the others are delivered.
    Partly {
        /// The answer.
        reply: Reply,
        /// The places in the batch of those that failed, in order.
        failed: Vec<usize>,
    },
    /// A worker's run is over.
    Ran {
        /// How.
        reply: Reply,
        /// What it left behind.
        report: Box<Report>,
    },
    /// Our own shutdown cut it short.
    Interrupted,
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is durable.
    Written,
    /// The delivery had been settled otherwise; nothing was changed.
    Stale,
}

/// What an operator may ask of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Nothing of the service starts until it is resumed.
    Pause(ServiceName),
    /// It goes on.
    Resume(ServiceName),
    /// The breaker opens.
    Trip(DependencyName),
    /// The breaker closes.
    Reset(DependencyName),
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Call the target.
    Start(Arc<Call>),
    /// Make it durable, then answer with [`Input::Settled`].
    Settle(Arc<Settlement>),
    /// Look for waiting deliveries, then answer with [`Input::Loaded`].
    Load(Load),
    /// Come back with [`Input::Tick`] by then; the last one asked for is the one that counts.
    WakeAt(Timestamp),
    /// Make the state of a breaker durable, when there is time.
    Keep(Box<Record>),
    /// Deliveries that wait until [`Timestamp::NEVER`] for a rule may have one now: make them ready,
    /// then answer with [`Input::Released`].
    Release(Arc<QueueName>),
    /// Bring a replay forward by a step, then answer with [`Input::Advanced`].
    Advance(Advance),
    /// A dependency is well again: begin a replay of the letters that the book brings back by itself.
    Reprocess(DependencyName),
    /// Tell whoever listens.
    Signal(Box<Signal>),
}

/// A step of a replay: letters are listed while they still are, else sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Which replay.
    pub replay: ReplayId,
    /// How many letters had been sent before; if the store says otherwise, this step was taken already.
    pub sent_before: u64,
    /// How many to send at most.
    pub letters_max: u32,
    /// The wave that they belong to. It must be the one that the replay has come to, or the next: an operator
    /// may have let it begin anew since this step was asked for. The replay has come to it when something of
    /// it was sent.
    pub wave: Wave,
}

/// One call among all that a run of the engine makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A call to be made.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which.
    pub id: CallId,
    /// Whose target.
    pub queue: Arc<QueueName>,
    /// What it carries: one, or as many as a batch takes.
    pub deliveries: Vec<Waiting>,
    /// The limits on its parts.
    pub rule: Arc<Rule>,
    /// The book that the rule is of; the target stands there too.
    pub book: Arc<RuleBook>,
    /// How long the whole call may take.
    pub limit: Duration,
    /// When it started.
    pub started_at: Timestamp,
}

impl Advance {
    /// Whether the store may send letters for it: it has not been taken already, and nobody has begun the
    /// canary anew since it was asked for.
    #[must_use]
    pub fn fits(&self, job: &ReplayJob) -> bool {
        self.sent_before == job.tally.sent && (self.wave == job.wave || self.wave == job.wave.next())
    }
}

/// What became of a delivery, to be written in one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    /// Which delivery.
    pub delivery: DeliveryId,
    /// How many of its attempts had ended before; if the store says otherwise, this one comes too late.
    pub attempts_before: u32,
    /// How many have ended now.
    pub attempts: u32,
    /// What it is now.
    pub next: Next,
    /// What it has been through, this included.
    pub history: History,
    /// The hash of the book that the history counts by.
    pub book: u64,
    /// What to tell of the attempt; none if none ended.
    pub story: Option<Box<Story>>,
    /// The service to pause, in the same transaction.
    pub pause: Option<ServiceName>,
    /// The replay that stops because of it, in the same transaction.
    pub stop: Option<Stop>,
    /// Events that tell of it, in the same transaction, as far as somebody wants them.
    pub emits: Vec<Arc<Event>>,
    /// When it was decided.
    pub at: Timestamp,
}

/// What a delivery is after a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Delivered, for good.
    Delivered,
    /// It waits in its place, and may start at once.
    Ready,
    /// It waits in its place for a time.
    Due {
        /// When it may start; [`Timestamp::NEVER`] waits for a rule.
        at: Timestamp,
    },
    /// Failed for good, and kept.
    Dead(Box<Death>),
    /// An attempt is about to start whose end may never be known: a worker that could outlive us, or one that
    /// Redrive may go down with.
    Starting,
}

/// Why a delivery failed for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// What kind of failure it was in the end.
    pub category: Category,
    /// Why it was given up, for machines.
    pub code: Code,
    /// The last failure's own code.
    pub failure_code: Code,
    /// Among which dead letters it is kept.
    pub tier: Tier,
    /// The last failure, in words.
    pub message: String,
    /// What failures of the same cause have in common.
    pub fingerprint: Fingerprint,
    /// The dead-letter queue that it belongs to, by the rule book's template.
    pub name: String,
    /// The consumer group, by default the service.
    pub consumer_group: String,
    /// What those behind it in its session do.
    pub followers: Followers,
}

/// What those behind a dead letter in its session do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followers {
    /// They go on.
    GoOn,
    /// They wait until it is replayed, skipped or purged.
    Wait,
}

/// What to look for in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Where.
    pub queue: Arc<QueueName>,
    /// What.
    pub wanted: Wanted,
    /// At most so many.
    pub rows_max: u32,
    /// At most so many bytes of payloads, but always one delivery.
    pub bytes_max: usize,
}

/// Which deliveries are wanted: only those at the head of their session, or with none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Those that may start at once, in the order of the store.
    Ready {
        /// Beyond this place.
        after: Seq,
    },
    /// Those that waited for their time, the earliest first.
    Due {
        /// Which has come by then.
        until: Timestamp,
    },
}

/// What was found.
#[derive(Debug)]
pub struct Page {
    /// Where.
    pub queue: Arc<QueueName>,
    /// What was wanted.
    pub wanted: Wanted,
    /// What was found, in order.
    pub rows: Vec<Waiting>,
    /// Whether there was more than the limits allowed.
    pub more: bool,
    /// When the first of those that are not due yet is; looked up with [`Wanted::Due`] only.
    pub next_due_at: Option<Timestamp>,
}

/// A fact for whoever listens: logs, alerts, the page, `redrive tail`.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "most are of the largest, and all are boxed")]
pub enum Signal {
    /// A settlement is durable.
    Settled {
        /// Of what.
        delivery: Waiting,
        /// What it says.
        settlement: Arc<Settlement>,
        /// The call that it is the end of, if one was made.
        made: Option<Made>,
    },
    /// A settlement came too late and changed nothing.
    Stale(DeliveryId),
    /// A breaker has changed.
    Breaker {
        /// Whose.
        dependency: DependencyName,
        /// How.
        transition: Transition,
        /// The delivery whose attempt did it, if one did.
        by: Option<DeliveryId>,
    },
    /// A replay has halted or ended itself.
    Replay {
        /// Which.
        replay: ReplayId,
        /// Where it stands now.
        state: ReplayState,
    },
    /// A dependency asked everybody to wait.
    DependencyHeld {
        /// Which.
        dependency: DependencyName,
        /// Until when.
        until: Timestamp,
    },
    /// A service was paused because its rule says so.
    Paused(ServiceName),
    /// Something that is alerted at once.
    Alert {
        /// What.
        kind: AlertKind,
        /// Where.
        queue: Arc<QueueName>,
        /// On account of which delivery.
        delivery: DeliveryId,
        /// The code of its failure.
        code: String,
    },
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Whom it called.
    pub dependency: DependencyName,
    /// How many calls the dependency had in flight when it began, itself included.
    pub beside: u32,
}

/// How the engine starts.
#[derive(Debug)]
pub struct Setup {
    /// What makes this store's jitter differ from another's.
    pub seed: crate::ids::Seed,
    /// The rule book.
    pub book: Arc<RuleBook>,
    /// Books that deliveries in the store may count by.
    pub older_books: Vec<Arc<RuleBook>>,
    /// Its bounds.
    pub bounds: Bounds,
    /// When it starts.
    pub now: Timestamp,
    /// Queues with something waiting.
    pub queues: Vec<QueueName>,
    /// Services that are paused, and since when.
    pub paused: BTreeMap<ServiceName, Timestamp>,
    /// When Redrive was away.
    pub absences: super::Absences,
    /// What breakers were last known to be.
    pub breakers: Vec<Record>,
    /// Replays that are open, or whose letters are on their way.
    pub replays: Vec<ReplayJob>,
    /// Redrive went down again and again: what was in the store by then is started alone.
    pub suspects_until: Option<Seq>,
}

/// The engine's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Deliveries of one queue in memory that may start, and as many that wait for their time.
    pub window: u32,
    /// Bytes of their payloads, for one queue.
    pub window_bytes: usize,
    /// Deliveries in flight, over all services.
    pub calls: u32,
}

impl Bounds {
    /// Those that a server gives its engine, and that a simulation gives it too.
    pub const OF_A_SERVER: Self = Self { window: 512, window_bytes: 4 * 1024 * 1024, calls: 1_024 };
}
