//! The book's edges as they were written: targets, sources, secrets, alerts and receivers.

use std::time::Duration;

use super::{At, Facts};
use crate::book::expression::{Condition, Hours};
use crate::book::problem::Span;
use crate::ids::DependencyName;

/// Where a service is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Where it stands.
    pub span: Span,
    /// Its kind and address.
    pub kind: TargetKind,
    /// The form of HTTP calls.
    pub format: Option<String>,
    /// With the form `batch`: the most deliveries in one call.
    pub batch_max: Option<At<u32>>,
    /// The secret that HTTP calls are signed with.
    pub secret: Option<String>,
    /// Limits of a program.
    pub process: ProcessLimits,
}

impl Target {
    /// Whether one call may carry several deliveries.
    #[must_use]
    pub fn takes_batches(&self) -> bool {
        self.format.as_deref() == Some("batch")
    }
}

/// The kinds of target and what each needs to be reached.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetKind {
    /// An address that events are posted to.
    Http(String),
    /// An ntfy topic.
    Ntfy(String),
    /// A mail address.
    Smtp(String),
    /// A program and its arguments.
    Exec(Vec<String>),
    /// A Kafka topic.
    Kafka(String),
    /// A Redis stream.
    RedisStream(String),
    /// An SQS queue.
    Sqs(String),
    /// A Service Bus queue or topic.
    ServiceBus(String),
    /// Standard output.
    Log,
}

impl TargetKind {
    /// The key of the kind.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Ntfy(_) => "ntfy",
            Self::Smtp(_) => "smtp",
            Self::Exec(_) => "exec",
            Self::Kafka(_) => "kafka",
            Self::RedisStream(_) => "redis-stream",
            Self::Sqs(_) => "sqs",
            Self::ServiceBus(_) => "service-bus",
            Self::Log => "log",
        }
    }
}

/// Limits of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessLimits {
    /// How long a run may take.
    pub time_limit: Option<At<Duration>>,
    /// How long starting may take.
    pub spawn_limit: Option<At<Duration>>,
    /// What cancels it elsewhere.
    pub on_timeout: Vec<String>,
    /// The event type of results.
    pub output: Option<String>,
}

/// Where events come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Its kind.
    pub kind: SourceKind,
    /// The event type, or a template for it.
    pub event_type: Option<String>,
    /// A template for the subject.
    pub subject: Option<String>,
    /// A template for the session.
    pub session: Option<String>,
    /// The dependency behind it.
    pub depends_on: Option<At<DependencyName>>,
    /// What is known of it.
    pub facts: Facts,
}

/// The kinds of source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceKind {
    /// A signed webhook endpoint.
    Webhook {
        /// How calls are signed.
        scheme: String,
        /// The secret.
        secret: String,
        /// The largest body.
        body_max: Option<u64>,
    },
    /// A clock.
    Schedule {
        /// When.
        cron: String,
        /// Where.
        zone: Option<String>,
    },
    /// Kafka topics.
    Kafka {
        /// Addresses.
        brokers: Vec<String>,
        /// Topics.
        topics: Vec<String>,
        /// The consumer group.
        group: Option<String>,
    },
    /// A Redis stream.
    RedisStream {
        /// The server.
        url: String,
        /// The stream.
        stream: String,
        /// The consumer group.
        group: Option<String>,
    },
    /// An SQS queue.
    Sqs {
        /// Its address.
        queue: String,
    },
    /// A Service Bus queue.
    ServiceBus {
        /// Its namespace.
        namespace: String,
        /// Its name.
        queue: String,
    },
}

impl SourceKind {
    /// The key of the kind.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
            Self::Schedule { .. } => "schedule",
            Self::Kafka { .. } => "kafka",
            Self::RedisStream { .. } => "redis-stream",
            Self::Sqs { .. } => "sqs",
            Self::ServiceBus { .. } => "service-bus",
        }
    }
}

/// Where a secret comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Secret {
    /// From where.
    pub from: SecretFrom,
    /// How long it is fresh.
    pub cached: Option<At<Duration>>,
    /// How long it serves when the provider is away.
    pub kept: Option<At<Duration>>,
}

/// From where a secret comes.
#[derive(Clone, Debug, PartialEq)]
pub enum SecretFrom {
    /// The environment.
    Env(String),
    /// A file.
    File(String),
    /// A command.
    Command(Vec<String>),
    /// A vault.
    KeyVault(String),
}

/// What people are told, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Where it stands.
    pub span: Span,
    /// When.
    pub when: Condition,
    /// What it is called.
    pub name: Option<String>,
    /// How urgent it is.
    pub severity: AlertSeverity,
    /// Who is told.
    pub to: Vec<String>,
    /// What they should do.
    pub action: Option<String>,
}

/// How urgent an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertSeverity {
    /// In business hours.
    Warning,
    /// Within four hours.
    Medium,
    /// Within an hour.
    High,
    /// Within fifteen minutes.
    Critical,
}

/// Who is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// How.
    pub kind: ReceiverKind,
    /// When only.
    pub hours: Option<Hours>,
}

/// How somebody is told.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceiverKind {
    /// An ntfy topic.
    Ntfy(String),
    /// An address that alerts are posted to.
    Webhook(String),
    /// A mail address.
    Email(String),
    /// A Slack-compatible webhook.
    Slack(String),
    /// An Alertmanager.
    Alertmanager(String),
}
