//! A rule book as it was written, with types: nothing is resolved yet, and every value knows where it stands.

mod alerting;
mod edge;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::pattern::EventPattern;
use super::problem::BookSpan;
use crate::event::copy_rule::CopyKey;
use crate::ids::{BreakerName, ChannelName, DependencyName, PolicyName, ServiceName};
use crate::letters::name_template::NameTemplate;
use crate::policy::backoff::Backoff;
use crate::policy::breaker::BreakerSettings;
use crate::policy::budget::BudgetSettings;
use crate::policy::catalog::Kind;
use crate::policy::category::Category;
use crate::policy::rule::{FailureMatch, GrowingTimeout, Override, WhenOpen};
use crate::schedule::Cron;
use crate::text::{Rate, Share};

pub use crate::event::copy_rule::IdempotencyBy;
pub use alerting::{Alert, AlertSeverity, Receiver, AlertSwitch};
pub use edge::{AccessEntry, ArchiveEntry, Jwt, JwtKeys, Network, SecretEntry, SourceEntry, TargetEntry};

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: BookSpan,
}

/// What a book may ask of the machine that it is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Programs that can run at once.
    pub cores: NonZeroU32,
}

/// Four cores, where nobody has looked.
impl Default for Machine {
    fn default() -> Self {
        Self { cores: NonZeroU32::new(4).expect("more than none") }
    }
}

/// A whole book.
#[derive(Clone, Debug, Default)]
pub struct Sections {
    /// The machine that it is read for.
    pub machine: Machine,
    /// Defaults for everything below.
    pub defaults: Layer,
    /// How much may wait for a service that does not say so itself.
    pub waiting: WaitingEntry,
    /// How long delivered and unrouted events are kept.
    pub keep_delivered: Option<At<Duration>>,
    /// How many of the calls to a dependency may be retries, where that does not say so itself.
    pub retry_budget: Option<At<BudgetSettings>>,
    /// The book's own retry policies.
    pub policies: BTreeMap<PolicyName, At<PolicyEntry>>,
    /// The book's own breakers.
    pub breakers: BTreeMap<BreakerName, At<BreakerEntry>>,
    /// The book's own timeouts.
    pub timeouts: BTreeMap<String, At<TimeoutParts>>,
    /// Throttles.
    pub throttles: BTreeMap<String, At<Permits>>,
    /// The systems that targets call.
    pub dependencies: BTreeMap<DependencyName, DependencyEntry>,
    /// Where secrets come from.
    pub secrets: BTreeMap<String, At<SecretEntry>>,
    /// Where events come from.
    pub sources: BTreeMap<String, At<SourceEntry>>,
    /// Who may use the API.
    pub access: AccessEntry,
    /// Where raw payloads are kept for audit.
    pub archive: Option<ArchiveEntry>,
    /// Who gets which events, in the order of the book.
    pub services: Vec<ServiceEntry>,
    /// What people are told.
    pub alerts: Vec<Alert>,
    /// The receivers to notify.
    pub receivers: BTreeMap<String, At<Receiver>>,
    /// Names for an exported Dapr file.
    pub dapr: DaprFile,
    /// Lints that are silenced everywhere.
    pub allow: Vec<Allow>,
}

/// A retry policy of the book.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyEntry {
    /// What it does.
    pub backoff: Backoff,
    /// Whether running out of retries is alerted at once.
    pub alert_when_exhausted: bool,
    /// The policy that it extends.
    pub from: Option<PolicyName>,
}

/// A breaker of the book.
#[derive(Clone, Debug, PartialEq)]
pub struct BreakerEntry {
    /// When it opens and closes.
    pub settings: BreakerSettings,
    /// What says nothing about the dependency's health.
    pub ignores: Vec<FailureMatch>,
    /// What counts as a failure though it usually does not.
    pub counts: Vec<FailureMatch>,
    /// The breaker that it extends.
    pub from: Option<BreakerName>,
}

/// The parts of a timeout that were stated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeoutParts {
    /// The name by which it was chosen.
    pub name: Option<String>,
    /// Making the connection.
    pub connect: Option<Duration>,
    /// The TLS handshake.
    pub tls: Option<Duration>,
    /// Until the headers are there.
    pub headers: Option<Duration>,
    /// The whole call.
    pub whole: Option<GrowingTimeout>,
    /// What a timeout is.
    pub category: Option<Category>,
}

/// How many calls may be under way, and how fast they may start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Permits {
    /// At once.
    pub in_flight: Option<At<u32>>,
    /// In a time.
    pub rate: Option<At<Rate>>,
    /// How long after an outage twice as many may start as usual.
    pub ramp: Option<At<Duration>>,
    /// By how much a rate that was cut grows in a second.
    pub rate_growth: Option<At<Share>>,
    /// For how long a limit that was met is remembered.
    pub rate_memory: Option<At<Duration>>,
}

/// What one level says: a row, a channel, a service, a dependency or the defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// What follows on which failure; `retry` stands here as `transient`.
    pub reactions: Vec<(FailureMatch, At<ReactionName>)>,
    /// Overrides of the classification.
    pub classify: Vec<At<Override>>,
    /// The timeout.
    pub timeout: Option<At<TimeoutParts>>,
    /// The breaker; `none` is none.
    pub breaker: Option<At<Option<BreakerName>>>,
    /// What an open breaker does.
    pub when_open: Option<At<WhenOpen>>,
    /// How long a delivery may be held.
    pub hold_max: Option<At<Duration>>,
    /// No attempt starts later.
    pub deadline: Option<At<Duration>>,
    /// When a failing connection is a matter of configuration.
    pub fatal_after: Option<At<Duration>>,
    /// How second copies are recognised.
    pub idempotency: Idempotency,
    /// What happens to deliveries that failed permanently.
    pub dead_letter: DeadLetter,
    /// How much depends on it.
    pub criticality: Option<At<Criticality>>,
    /// Whether an event may be lost.
    pub data_loss: Option<At<DataLoss>>,
    /// The consumer group.
    pub consumer_group: Option<At<String>>,
    /// Alerts for this level.
    pub alerts: Vec<Alert>,
    /// What is known of the world.
    pub facts: DeclaredFacts,
    /// Lints that are silenced here.
    pub allow: Vec<Allow>,
}

/// A policy by name, or an act.
#[derive(Clone, Debug, PartialEq)]
pub enum ReactionName {
    /// Try again by that policy.
    Policy(PolicyName),
    /// A dead letter at once.
    DeadLetter,
    /// The service pauses.
    Pause,
}

/// How second copies are recognised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Idempotency {
    /// What is remembered.
    pub by: Option<At<IdempotencyBy>>,
    /// Where.
    pub store: Option<At<String>>,
    /// What else a copy is known by.
    pub key: Option<At<Arc<CopyKey>>>,
    /// For how long.
    pub ttl: Option<At<Duration>>,
}

/// What happens to deliveries that failed permanently.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeadLetter {
    /// The queue's name.
    pub name: Option<At<NameTemplate>>,
    /// What stands for `{queue}`.
    pub queue: Option<At<String>>,
    /// What stands for `{stage}`.
    pub stage: Option<At<String>>,
    /// The form of a letter in a broker.
    pub form: Option<At<LetterForm>>,
    /// For how long it is kept.
    pub retention: Option<At<Duration>>,
    /// How many a time are too many.
    pub alert: Option<At<Rate>>,
    /// Who brings them back.
    pub reprocess: Option<At<Reprocess>>,
    /// Which are brought back by themselves.
    pub categories: Option<At<Vec<Category>>>,
    /// How often.
    pub reprocess_max: Option<At<u32>>,
    /// When, beside whenever a dependency is well again.
    pub reprocess_cron: Option<At<Cron>>,
}

/// The form of a letter that is written to a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterForm {
    /// The envelope.
    Envelope,
    /// The form of Redis streams.
    Redis,
}

/// Who brings dead letters back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reprocess {
    /// People.
    Manual,
    /// Redrive, when the dependency is well again.
    Automatic,
    /// Redrive, for the named categories.
    Filtered,
}

/// How much depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Criticality {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// Everything.
    Critical,
}

/// Whether an event may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLoss {
    /// It may.
    Acceptable,
    /// It may not.
    NotAcceptable,
}

/// What is known of the world outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeclaredFacts {
    /// Events or calls in a time.
    pub rate: Option<At<Rate>>,
    /// How long calls take.
    pub p99: Option<At<Duration>>,
    /// The deadline for a delivery.
    pub sla: Option<At<Duration>>,
    /// How long the broker hides a message.
    pub lease: Option<At<Duration>>,
    /// How often the lease is renewed.
    pub heartbeat: Option<At<Duration>>,
    /// How long redelivery may take.
    pub redelivery: Option<At<Duration>>,
    /// How long a consumer may take.
    pub poll_limit: Option<At<Duration>>,
    /// Attempts of the layers above.
    pub callers: Option<At<u64>>,
    /// How long the caller waits.
    pub caller_timeout: Option<At<Duration>>,
    /// Processes that call.
    pub instances: Option<At<u64>>,
    /// The time over which a rate limit is counted.
    pub rate_limit_window: Option<At<Duration>>,
    /// Deliveries by the broker itself.
    pub broker_attempts: Option<At<u64>>,
    /// Further dependencies of the consumer.
    pub uses: Vec<At<DependencyName>>,
    /// How the consumer handles duplicates.
    pub idempotent_by: Option<At<IdempotentBy>>,
}

/// How the consumer handles duplicates.
#[derive(Clone, Debug, PartialEq)]
pub struct IdempotentBy {
    /// The pattern.
    pub pattern: ConsumerPattern,
    /// Where it keeps what it needs.
    pub store: Option<String>,
}

/// A consumer's pattern of idempotency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerPattern {
    /// It remembers ids.
    EventId,
    /// It writes under the event's id.
    Upsert,
    /// It looks at the state first.
    StateCheck,
    /// It writes the id in its own transaction.
    Outbox,
    /// It does nothing about it.
    Nothing,
}

/// A lint that is silenced, with the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Allow {
    /// The lint's code.
    pub lint: At<String>,
    /// Why.
    pub because: String,
}

/// A dependency of the book.
#[derive(Clone, Debug)]
pub struct DependencyEntry {
    /// Its name.
    pub name: DependencyName,
    /// Where its name stands.
    pub span: BookSpan,
    /// What kind of thing it is.
    pub kind: Kind,
    /// Its throttle by name.
    pub throttle: Option<At<String>>,
    /// Its own permits.
    pub permits: Permits,
    /// How many of the calls may be retries.
    pub retry_budget: Option<At<BudgetSettings>>,
    /// What it is in an exported Dapr file.
    pub dapr: Option<At<DaprTarget>>,
    /// What it says of failures.
    pub layer: Layer,
}

/// What a dependency is in a Dapr file.
#[derive(Clone, Debug, PartialEq)]
pub enum DaprTarget {
    /// A component, called or calling.
    Component {
        /// Its name.
        name: String,
        /// Outbound or inbound.
        direction: Direction,
    },
    /// An app.
    App(String),
    /// An actor type.
    Actor(String),
}

/// A Dapr component's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// The app calls the component.
    Outbound,
    /// The component calls the app.
    Inbound,
}

/// Names for an exported Dapr file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaprFile {
    /// The resource's name.
    pub name: Option<String>,
    /// The resource's namespace.
    pub namespace: Option<String>,
    /// The apps it applies to.
    pub scopes: Vec<String>,
}

/// A service of the book.
#[derive(Clone, Debug)]
pub struct ServiceEntry {
    /// Its name.
    pub name: ServiceName,
    /// Where its name stands.
    pub span: BookSpan,
    /// What it is called in tables.
    pub title: Option<String>,
    /// Where events go.
    pub target: TargetEntry,
    /// The dependency behind it.
    pub depends_on: Option<At<DependencyName>>,
    /// Whether order is kept.
    pub order: Option<At<DeliveryOrder>>,
    /// How much may wait for it.
    pub waiting: WaitingEntry,
    /// The events it takes.
    pub rows: Vec<Arc<EventRow>>,
    /// Its channels, in the order of the book.
    pub channels: Vec<ChannelEntry>,
    /// What it says of failures.
    pub layer: Layer,
}

/// Whether deliveries of one session keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOrder {
    /// They do not.
    None,
    /// They do.
    Session,
    /// They do, and a dead one holds those behind it.
    SessionStrict,
}

/// How much may wait for a service, over all its channels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaitingEntry {
    /// Deliveries.
    pub events: Option<At<u64>>,
    /// Bytes of their payloads.
    pub size_bytes: Option<At<u64>>,
    /// Deliveries behind a dead letter that holds their session.
    pub per_session: Option<At<u64>>,
    /// What happens to one too many.
    pub when_full: Option<At<QueueFullAction>>,
}

/// What happens to an event when a service that wants it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFullAction {
    /// It is refused, whole.
    Refuse,
    /// It is taken, and its delivery to that service is a dead letter at once.
    DeadLetter,
}

/// One row of events.
#[derive(Clone, Debug)]
pub struct EventRow {
    /// Where the row stands.
    pub span: BookSpan,
    /// Which events.
    pub pattern: At<EventPattern>,
    /// What it is called in tables.
    pub title: Option<String>,
    /// The id of the claim.
    pub subscription: Option<String>,
    /// The dependency of these events.
    pub depends_on: Option<At<DependencyName>>,
    /// What it says of failures.
    pub layer: Layer,
}

impl EventRow {
    /// A row that says nothing but which events.
    #[must_use]
    pub fn plain(span: BookSpan, pattern: At<EventPattern>) -> Self {
        let layer = Layer::default();
        Self { span, pattern, title: None, subscription: None, depends_on: None, layer }
    }
}

/// A channel of a service.
#[derive(Clone, Debug)]
pub struct ChannelEntry {
    /// Its name.
    pub name: ChannelName,
    /// Where its name stands.
    pub span: BookSpan,
    /// What it is called in tables.
    pub title: Option<String>,
    /// Where it is reached, if not where the service is.
    pub target: Option<TargetEntry>,
    /// The dependency behind it.
    pub depends_on: Option<At<DependencyName>>,
    /// The events it takes.
    pub rows: Vec<Arc<EventRow>>,
    /// What it says of failures.
    pub layer: Layer,
}

impl Sections {
    /// Every level that says something.
    #[must_use]
    pub fn layers(&self) -> Vec<&Layer> {
        let mut layers = Vec::new();
        self.each_level(|_, layer| layers.push(layer));
        layers
    }

    /// Walks over every level that says something, with the levels that lie around it, the widest first.
    pub fn each_level<'a>(&'a self, mut look: impl FnMut(&[&'a Layer], &'a Layer)) {
        let defaults = &self.defaults;
        look(&[], defaults);
        for dependency in self.dependencies.values() {
            look(&[defaults], &dependency.layer);
        }
        for service in &self.services {
            look(&[defaults], &service.layer);
            let around = [defaults, &service.layer];
            service.rows.iter().for_each(|row| look(&around, &row.layer));
            for channel in &service.channels {
                look(&around, &channel.layer);
                let around = [defaults, &service.layer, &channel.layer];
                channel.rows.iter().for_each(|row| look(&around, &row.layer));
            }
        }
    }
}
