//! The book's edges as they were written: targets, sources and secrets.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{At, Facts};
use crate::book::problem::Span;
use crate::ids::{BreakerName, DependencyName};
use crate::text::Rate;

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
    /// What its name may resolve to.
    pub network: Network,
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

/// What the name of a target may resolve to; an address that the book states is trusted as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Addresses of the public internet only.
    #[default]
    Public,
    /// Also those of this machine, of private networks and of their metadata services.
    Private,
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

    /// Whether an answer of such a target begins with headers.
    #[must_use]
    pub const fn speaks_http(&self) -> bool {
        match self {
            Self::Http(_) | Self::Ntfy(_) => true,
            Self::Smtp(_)
            | Self::Exec(_)
            | Self::Kafka(_)
            | Self::RedisStream(_)
            | Self::Sqs(_)
            | Self::ServiceBus(_)
            | Self::Log => false,
        }
    }
}

/// How a program is run.
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
    /// How long it has to end when it is asked to.
    pub grace: Option<Duration>,
    /// The memory that a run may have, in bytes.
    pub memory_bytes: Option<u64>,
    /// How much is kept of what it prints, in bytes.
    pub output_bytes_max: Option<u64>,
    /// The folder to run in.
    pub folder: Option<String>,
    /// Variables of its environment.
    pub env: BTreeMap<String, String>,
    /// Variables that it inherits.
    pub inherit: Vec<String>,
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
    /// A template for the event's id.
    pub id: Option<String>,
    /// The dependency behind it.
    pub depends_on: Option<At<DependencyName>>,
    /// What is known of it.
    pub facts: Facts,
}

/// The kinds of source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceKind {
    /// A signed webhook endpoint.
    Webhook(Webhook),
    /// A clock.
    Schedule(Schedule),
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
            Self::Webhook(_) => "webhook",
            Self::Schedule(_) => "schedule",
            Self::Kafka { .. } => "kafka",
            Self::RedisStream { .. } => "redis-stream",
            Self::Sqs { .. } => "sqs",
            Self::ServiceBus { .. } => "service-bus",
        }
    }
}

/// A signed webhook endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    /// How calls are signed.
    pub scheme: Scheme,
    /// The name of the secret.
    pub secret: String,
    /// The largest body.
    pub body_max: Option<u64>,
    /// How many calls are taken.
    pub rate: Option<Rate>,
    /// How far the time that is signed may be from ours.
    pub tolerance: Option<Duration>,
}

/// How the calls of a webhook are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `X-Hub-Signature-256` over the body.
    Github,
    /// `webhook-signature` over id, time and body.
    StandardWebhooks,
    /// `Stripe-Signature` over time and body.
    Stripe,
    /// `X-Slack-Signature` over version, time and body.
    Slack,
    /// A header of one's own over the body.
    Hmac(Hmac),
}

impl Scheme {
    /// Its name in the book.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::StandardWebhooks => "standard-webhooks",
            Self::Stripe => "stripe",
            Self::Slack => "slack",
            Self::Hmac(_) => "hmac",
        }
    }
}

/// A signature over the body in a header of one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hmac {
    /// The header, in lower case.
    pub header: String,
    /// The hash.
    pub algorithm: Algorithm,
    /// How it is written.
    pub encoding: Encoding,
    /// What stands before it.
    pub prefix: String,
}

/// The hash of a signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-256.
    #[default]
    Sha256,
    /// SHA-1, which some old senders know only.
    Sha1,
    /// SHA-512.
    Sha512,
}

/// How a signature is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Two digits a byte.
    #[default]
    Hex,
    /// Four characters for three bytes.
    Base64,
}

/// Emits an event at times.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// When.
    pub cron: String,
    /// Where.
    pub zone: Option<String>,
    /// What becomes of fires that were missed.
    pub missed: Missed,
    /// How long ago a missed fire may be.
    pub missed_within: Option<Duration>,
    /// The data of its events, as JSON.
    pub data: Option<String>,
}

/// What becomes of fires that were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// The latest is caught up.
    #[default]
    One,
    /// They are lost.
    None,
    /// All are caught up.
    All,
}

/// Who may do what, beside those who have a key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    /// How many requests one caller may make.
    pub rate: Option<Rate>,
    /// Whose bearer tokens are believed.
    pub jwt: Option<Jwt>,
    /// Where the book says so.
    pub jwt_at: Option<Span>,
}

/// Whose bearer tokens are believed.
#[derive(Clone, Debug, PartialEq)]
pub struct Jwt {
    /// What their signatures are checked with.
    pub keys: JwtKeys,
    /// Who must have issued them.
    pub issuer: String,
    /// Whom they must be meant for.
    pub audience: String,
    /// The claim that names the role.
    pub role_claim: String,
}

/// What the signatures of tokens are checked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwtKeys {
    /// Keys that the issuer publishes at an address.
    Jwks(String),
    /// A secret of the book.
    Secret(String),
}

/// Where raw payloads are kept for audit.
#[derive(Clone, Debug, PartialEq)]
pub struct Archive {
    /// The folder.
    pub folder: String,
    /// How long one write may take.
    pub timeout: Option<Duration>,
    /// When to stop trying for a while.
    pub breaker: Option<At<BreakerName>>,
    /// For how long days are kept.
    pub retention: Option<Duration>,
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

impl SecretFrom {
    /// The key of the kind.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Env(_) => "env",
            Self::File(_) => "file",
            Self::Command(_) => "command",
            Self::KeyVault(_) => "key-vault",
        }
    }
}
