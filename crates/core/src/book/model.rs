//! The typed rule book before resolution; every value knows its position.

mod alerting;
mod edge;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::cel::CelExpression;
use super::event_schema::EventSchema;
use super::pattern::EventPattern;
use super::problem::BookSpan;
use crate::event::copy_rule::CopyKey;
use crate::ids::{BreakerName, ChannelName, DependencyName, PolicyName, ServiceName};
use crate::letters::name_template::NameTemplate;
use crate::policy::backoff::Backoff;
use crate::policy::breaker::BreakerSettings;
use crate::policy::budget::BudgetSettings;
use crate::policy::catalog::DependencyKind;
use crate::policy::category::Category;
use crate::policy::rule::{FailureMatch, GrowingTimeout, Override, WhenOpen};
use crate::schedule::Cron;
use crate::text::{Rate, Share};

pub use crate::event::copy_rule::IdempotencyBy;
pub use alerting::{Alert, AlertSeverity, AlertSwitch, Receiver};
pub use edge::{AccessEntry, ArchiveEntry, Jwt, JwtKeys, Network, SecretEntry, SourceEntry, TargetEntry};

#[derive(Clone, Debug, PartialEq)]
pub struct At<T> {
    pub value: T,
    pub span: BookSpan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub cores: NonZeroU32,
}

/// Four cores unless the machine is known.
impl Default for Machine {
    fn default() -> Self {
        Self { cores: NonZeroU32::new(4).expect("more than none") }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Sections {
    pub machine: Machine,
    pub defaults: Layer,
    /// For services without their own `waiting`.
    pub waiting: WaitingEntry,
    /// Also applies to unrouted events.
    pub keep_delivered: Option<At<Duration>>,
    /// For dependencies without their own budget.
    pub retry_budget: Option<At<BudgetSettings>>,
    pub policies: BTreeMap<PolicyName, At<PolicyEntry>>,
    pub breakers: BTreeMap<BreakerName, At<BreakerEntry>>,
    pub timeouts: BTreeMap<String, At<TimeoutParts>>,
    pub throttles: BTreeMap<String, At<Permits>>,
    pub dependencies: BTreeMap<DependencyName, DependencyEntry>,
    pub secrets: BTreeMap<String, At<SecretEntry>>,
    pub sources: BTreeMap<String, At<SourceEntry>>,
    pub access: AccessEntry,
    pub archive: Option<ArchiveEntry>,
    pub event_types: BTreeMap<String, EventTypeEntry>,
    pub services: Vec<ServiceEntry>,
    pub alerts: Vec<Alert>,
    pub receivers: BTreeMap<String, At<Receiver>>,
    pub dapr: DaprFile,
    pub allow: Vec<Allow>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PolicyEntry {
    pub backoff: Backoff,
    pub alert_when_exhausted: bool,
    pub from: Option<PolicyName>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BreakerEntry {
    pub settings: BreakerSettings,
    /// Failures that say nothing about the dependency's health.
    pub ignores: Vec<FailureMatch>,
    /// Failures that count although they usually do not.
    pub counts: Vec<FailureMatch>,
    pub from: Option<BreakerName>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeoutParts {
    pub name: Option<String>,
    pub connect: Option<Duration>,
    pub tls: Option<Duration>,
    pub headers: Option<Duration>,
    pub whole: Option<GrowingTimeout>,
    pub category: Option<Category>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Permits {
    pub in_flight: Option<At<u32>>,
    pub rate: Option<At<Rate>>,
    pub ramp: Option<At<Duration>>,
    /// Growth per second of a throttled rate.
    pub rate_growth: Option<At<Share>>,
    /// How long a throttling limit is remembered.
    pub rate_memory: Option<At<Duration>>,
}

/// The settings of one level: row, channel, service, dependency or defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// `retry` is stored as `transient`.
    pub reactions: Vec<(FailureMatch, At<ReactionName>)>,
    pub classify: Vec<At<Override>>,
    pub timeout: Option<At<TimeoutParts>>,
    /// `Some(None)` is `none`: no breaker.
    pub breaker: Option<At<Option<BreakerName>>>,
    pub when_open: Option<At<WhenOpen>>,
    pub hold_max: Option<At<Duration>>,
    pub deadline: Option<At<Duration>>,
    /// How long connections may fail before it counts as misconfiguration.
    pub fatal_after: Option<At<Duration>>,
    pub idempotency: Idempotency,
    pub dead_letter: DeadLetter,
    pub criticality: Option<At<Criticality>>,
    pub data_loss: Option<At<DataLoss>>,
    pub consumer_group: Option<At<String>>,
    pub alerts: Vec<Alert>,
    pub facts: DeclaredFacts,
    pub allow: Vec<Allow>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ReactionName {
    Policy(PolicyName),
    DeadLetter,
    Pause,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Idempotency {
    pub by: Option<At<IdempotencyBy>>,
    pub store: Option<At<String>>,
    pub key: Option<At<Arc<CopyKey>>>,
    pub ttl: Option<At<Duration>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeadLetter {
    pub name: Option<At<NameTemplate>>,
    pub queue: Option<At<String>>,
    pub stage: Option<At<String>>,
    /// The default format for showing and exporting dead letters.
    pub form: Option<At<LetterForm>>,
    pub retention: Option<At<Duration>>,
    /// The arrival rate that raises an alert.
    pub alert: Option<At<Rate>>,
    pub reprocess: Option<At<Reprocess>>,
    /// Categories replayed automatically.
    pub categories: Option<At<Vec<Category>>>,
    pub reprocess_max: Option<At<u32>>,
    /// Beside replays when a breaker closes.
    pub reprocess_cron: Option<At<Cron>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterForm {
    Envelope,
    Redis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reprocess {
    Manual,
    Automatic,
    Filtered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Criticality {
    Low,
    Medium,
    High,
    Critical,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLoss {
    Acceptable,
    NotAcceptable,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeclaredFacts {
    pub rate: Option<At<Rate>>,
    pub p99: Option<At<Duration>>,
    pub sla: Option<At<Duration>>,
    /// Visibility timeout or lock of the broker.
    pub lease: Option<At<Duration>>,
    pub heartbeat: Option<At<Duration>>,
    pub redelivery: Option<At<Duration>>,
    pub poll_limit: Option<At<Duration>>,
    /// Attempts by the layers above, multiplied.
    pub callers: Option<At<u64>>,
    pub caller_timeout: Option<At<Duration>>,
    pub instances: Option<At<u64>>,
    /// The period of the remote rate limit.
    pub rate_limit_window: Option<At<Duration>>,
    pub broker_attempts: Option<At<u64>>,
    pub uses: Vec<At<DependencyName>>,
    pub idempotent_by: Option<At<IdempotentBy>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct IdempotentBy {
    pub pattern: ConsumerPattern,
    pub store: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerPattern {
    EventId,
    /// Writes are keyed by the event's id.
    Upsert,
    /// Checks its state first.
    StateCheck,
    /// Writes the id in its own transaction.
    Outbox,
    Nothing,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Allow {
    pub lint: At<String>,
    pub because: String,
}

#[derive(Clone, Debug)]
pub struct DependencyEntry {
    pub name: DependencyName,
    pub span: BookSpan,
    pub kind: DependencyKind,
    pub throttle: Option<At<String>>,
    pub permits: Permits,
    pub retry_budget: Option<At<BudgetSettings>>,
    pub dapr: Option<At<DaprTarget>>,
    pub layer: Layer,
}

#[derive(Clone, Debug, PartialEq)]
pub enum DaprTarget {
    Component { name: String, direction: Direction },
    App(String),
    Actor(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// App to component.
    Outbound,
    /// Component to app.
    Inbound,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaprFile {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub scopes: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct ServiceEntry {
    pub name: ServiceName,
    pub span: BookSpan,
    pub title: Option<String>,
    pub target: TargetEntry,
    pub depends_on: Option<At<DependencyName>>,
    pub order: Option<At<DeliveryOrder>>,
    pub waiting: WaitingEntry,
    pub rows: Vec<Arc<EventRow>>,
    pub channels: Vec<ChannelEntry>,
    pub layer: Layer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOrder {
    None,
    Session,
    /// A dead letter blocks its session.
    SessionStrict,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaitingEntry {
    pub events: Option<At<u64>>,
    pub size_bytes: Option<At<u64>>,
    /// Deliveries behind a dead letter that blocks their session.
    pub per_session: Option<At<u64>>,
    pub when_full: Option<At<QueueFullAction>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFullAction {
    Refuse,
    /// The event is accepted; this delivery becomes a dead letter.
    DeadLetter,
}

#[derive(Clone, Debug, PartialEq)]
pub struct EventTypeEntry {
    pub span: BookSpan,
    pub schema: EventSchema,
    pub on_violation: ViolationAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationAction {
    /// The event is not accepted.
    Refuse,
    /// The event is accepted and becomes a poison dead letter of each of its services.
    DeadLetter,
}

#[derive(Clone, Debug)]
pub struct EventRow {
    pub span: BookSpan,
    pub pattern: At<EventPattern>,
    pub title: Option<String>,
    pub subscription: Option<String>,
    /// Events that do not meet it are not delivered by this row, nor by a wider one.
    pub condition: Option<At<CelExpression>>,
    pub depends_on: Option<At<DependencyName>>,
    pub layer: Layer,
}

impl EventRow {
    #[must_use]
    pub fn plain(span: BookSpan, pattern: At<EventPattern>) -> Self {
        let layer = Layer::default();
        Self { span, pattern, title: None, subscription: None, condition: None, depends_on: None, layer }
    }
}

#[derive(Clone, Debug)]
pub struct ChannelEntry {
    pub name: ChannelName,
    pub span: BookSpan,
    pub title: Option<String>,
    /// `None`: the service's target.
    pub target: Option<TargetEntry>,
    pub depends_on: Option<At<DependencyName>>,
    pub rows: Vec<Arc<EventRow>>,
    pub layer: Layer,
}

impl Sections {
    #[must_use]
    pub fn layers(&self) -> Vec<&Layer> {
        let mut layers = Vec::new();
        self.each_level(|_, layer| layers.push(layer));
        layers
    }

    /// Visits every level together with its enclosing levels, widest first.
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
