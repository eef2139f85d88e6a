//! The JSON of what the core and the library tell, whose own types know nothing of the API's description.
//!
//! Nothing is ever made of these types: they say again what the originals are written as, and a test holds
//! every answer of a server against them.
#![expect(dead_code, reason = "they describe what others write")]

use serde::Serialize;
use utoipa::ToSchema;

/// What kind of failure it is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Category {
    Transient,
    RateLimited,
    Permanent,
    Invalid,
    Fatal,
    Unknown,
    Internal,
}

/// How much hope there is for a dead letter.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tier {
    /// It may be replayed with the rest.
    Dead,
    /// It does not parse, or failed its replay.
    Poison,
}

/// One attempt, or one that could not start.
#[derive(Serialize, ToSchema)]
pub(crate) struct Story {
    /// Its number, from 1.
    #[schema(minimum = 1)]
    attempt: u32,
    #[schema(format = DateTime)]
    started_at: String,
    took_nanos: u64,
    #[serde(flatten)]
    end: End,
    /// The hash of the rule book that it was judged by.
    #[schema(pattern = "^[0-9a-f]{16}$")]
    book: String,
    verdict: Verdict,
    /// The row of `classify` that said what the failure is, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    classified_at: Option<Place>,
    /// The line that said what follows, if the book states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reaction_at: Option<Place>,
    /// The retry that was weighed.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<Weighed>,
    /// How long it was held before the attempt.
    #[serde(default)]
    held_nanos: u64,
}

/// How an attempt ended.
#[derive(Serialize, ToSchema)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub(crate) enum End {
    /// The target has the event.
    Delivered {
        /// The status it answered with, if it speaks HTTP.
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
    },
    /// It failed.
    Failed {
        category: Category,
        /// Its name for machines.
        code: String,
        /// The HTTP status, if there was one.
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// What happened, in words.
        message: String,
        /// The beginning of what the target answered.
        #[serde(default)]
        response: String,
    },
    /// It could not start.
    Held { by: HeldBy },
}

/// What kept an attempt from starting.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HeldBy {
    Breaker,
    RetryAfter,
    RuleRemoved,
    Deadline,
    Notified,
    Damage,
}

/// What followed.
#[derive(Serialize, ToSchema)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Delivered,
    /// It is tried again.
    Retry {
        #[schema(format = DateTime)]
        due_at: String,
    },
    /// It waits without burning a retry.
    Hold {
        #[schema(format = DateTime)]
        until: String,
    },
    /// It has failed for good.
    Dead {
        /// Why, for machines.
        code: String,
        tier: Tier,
    },
    /// Its service was paused.
    Paused,
}

/// A line and a column of the book, both from 1.
#[derive(Serialize, ToSchema)]
pub(crate) struct Place {
    line: u32,
    column: u32,
}

/// All that decided on a retry.
#[derive(Serialize, ToSchema)]
pub(crate) struct Weighed {
    policy: String,
    /// Which retry by this policy, and how many there may be.
    by_policy: [u32; 2],
    /// Which retry in all, and how many there may be.
    in_total: [u32; 2],
    /// Which retry of this category, and how many there may be, where the book states no policy for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_category: Option<[u32; 2]>,
    /// The policy's delay with its jitter.
    backoff_nanos: u64,
    /// How long the other side asked us to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_nanos: Option<u64>,
    /// Of the window, when the retry would start.
    window: Used,
    /// Of `hold_max`, by then.
    held: Used,
    /// Of the deadline, by then.
    deadline: Used,
}

/// A time, and how long it may be.
#[derive(Serialize, ToSchema)]
pub(crate) struct Used {
    used_nanos: u64,
    /// How much there is; none is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_nanos: Option<u64>,
}

/// One thing that happened.
#[derive(Serialize, ToSchema)]
pub(crate) struct Happening {
    #[schema(format = DateTime)]
    at: String,
    /// What, for machines: `accepted`, `delivered`, `retrying`, `held`, `dead`, `breaker-opened` …
    what: String,
    /// The service, with its channel if it is one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    /// The trace that the event belongs to, as 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    /// The attempt's span in it, as 16 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// The HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// When it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    due_at: Option<String>,
    /// How long the attempt took.
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<f64>,
    /// The dependency whose breaker it is, or that asked everybody to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    dependency: Option<String>,
    /// The failures that a breaker has counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<u32>,
    /// The number of a replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<u64>,
}

/// Where a replay stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReplayState {
    /// Its letters are still being listed.
    Gathering,
    Running,
    /// A person has halted it.
    Paused,
    /// It has halted itself: letters failed again.
    Stopped,
    /// A person has ended it.
    Cancelled,
    /// Every letter is answered for.
    Done,
}

/// How far a canary has come.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wave {
    None,
    First,
    Second,
    Rest,
}

/// One act on record.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuditRecord {
    /// Later acts have larger ones.
    number: u64,
    #[schema(format = DateTime)]
    at: String,
    /// What was done, for machines: `purge`, `retention`, `skip`, `edit`, `replay`, `replay-pause` …
    act: String,
    /// On what, in words.
    what: String,
    /// How many letters it touched.
    letters: u64,
    /// Why, if somebody said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// By whom; none if nobody is known by name, or if the rule book did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

/// A dead letter with the whole story of why; what is unknown is null.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Envelope {
    /// By which it is replayed.
    dlq_id: String,
    /// The topic, queue or stream it came from, else the event's type.
    #[schema(required)]
    original_topic: Option<String>,
    #[schema(required)]
    original_event_id: Option<String>,
    #[schema(required, format = DateTime)]
    original_timestamp: Option<String>,
    consumer_service: String,
    #[schema(required)]
    consumer_group: Option<String>,
    /// One of four words for readers that know only those.
    failure_category: FailureCategory,
    category: Category,
    /// The first one first.
    retry_attempts: Vec<AttemptRecord>,
    /// The attempts after the first.
    total_retries: u32,
    #[schema(required, format = DateTime)]
    first_failure_at: Option<String>,
    #[schema(required, format = DateTime)]
    last_failure_at: Option<String>,
    #[schema(format = DateTime)]
    routed_to_dlq_at: String,
    #[schema(required)]
    correlation_id: Option<String>,
    #[schema(required)]
    session_id: Option<String>,
    #[schema(required)]
    subscription_id: Option<String>,
    tier: Tier,
    /// What it has in common with letters of the same cause.
    #[schema(required, pattern = "^[0-9a-f]{16}$")]
    fingerprint: Option<String>,
    replays: u32,
    /// The CloudEvent as JSON, with `data` or `data_base64`.
    original_message: serde_json::Value,
}

/// One of the four words of envelopes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FailureCategory {
    Transient,
    RateLimited,
    Permanent,
    Unknown,
}

/// One attempt as the envelope tells it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttemptRecord {
    #[schema(minimum = 1)]
    attempt: u32,
    #[schema(format = DateTime)]
    timestamp: String,
    #[schema(required)]
    error: Option<String>,
    #[schema(required)]
    error_code: Option<String>,
    #[schema(required)]
    http_status: Option<u16>,
}

/// A dead letter as Redis streams carry it.
#[derive(Serialize, ToSchema)]
pub(crate) struct RedisLetter {
    /// The CloudEvent as JSON.
    original_message: serde_json::Value,
    error_context: ErrorContext,
}

/// What went wrong, in short.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorContext {
    #[schema(required)]
    error: Option<String>,
    #[schema(format = DateTime)]
    timestamp: String,
    service: String,
    attempts: u32,
}
