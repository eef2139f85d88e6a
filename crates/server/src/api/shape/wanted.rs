//! What requests may say where a handler takes it key by key, so that the API's description can tell.
//!
//! Nothing is ever made of these types: `letters::fields` reads what they describe, and a test holds the two
//! against each other.
#![expect(dead_code, reason = "they describe what is read key by key")]

use redrive_core::letters::envelope::{Envelope, RedisLetter, Tier};
use redrive_core::policy::category::Category;
use serde::Serialize;
use utoipa::ToSchema;

/// A CloudEvent 1.0 as JSON. Further attributes are taken as they are, if their names are lower-case letters
/// and digits and their values texts, whole numbers or truths.
#[derive(Serialize, ToSchema)]
pub(crate) struct CloudEvent {
    #[schema(pattern = "^1\\.0$")]
    specversion: String,
    /// No other event of its source has it: one that comes again is known by it.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    id: String,
    /// Where it happened.
    #[schema(min_length = 1, max_length = 2048, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    source: String,
    /// What kind of event it is: what the rule book goes by.
    #[serde(rename = "type")]
    #[schema(max_length = 256, pattern = "^[A-Za-z0-9_:/-]+(\\.[A-Za-z0-9_:/-]+){0,31}$")]
    event_type: String,
    /// What it is about.
    #[schema(min_length = 1, max_length = 2048, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    subject: Option<String>,
    /// When it happened, from 1970 to 2554.
    #[schema(min_length = 20, max_length = 64, format = DateTime)]
    time: Option<String>,
    /// What the data are.
    #[schema(min_length = 1, max_length = 256, pattern = "^[ -~]+$")]
    datacontenttype: Option<String>,
    /// The session: deliveries of one keep their order.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    partitionkey: Option<String>,
    /// What ties it to other events; the request's `X-Correlation-Id` unless it is said.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    correlationid: Option<String>,
    /// The trace that it belongs to, as W3C writes it.
    #[schema(min_length = 1, max_length = 256, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    traceparent: Option<String>,
    /// Any JSON.
    data: Option<serde_json::Value>,
    /// Bytes, where the data are no JSON; one of the two.
    #[schema(pattern = "^([A-Za-z0-9+/]{4})*$")]
    data_base64: Option<String>,
}

/// Events that are taken whole or not at all.
#[derive(Serialize, ToSchema)]
#[schema(min_items = 1, max_items = 1000)]
pub(crate) struct CloudEvents(Vec<CloudEvent>);

/// What was taken: one event, or those of a batch.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Taken {
    One(super::Accepted),
    Batch(super::AcceptedBatch),
}

/// Which dead letters are meant: those that fit all that is said.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterKeys {
    /// The service, or `service/channel`.
    #[schema(min_length = 1)]
    service: Option<String>,
    #[schema(min_length = 1)]
    channel: Option<String>,
    /// The dead-letter queue, by the name that `dead_letter.name` gives it.
    #[schema(min_length = 1)]
    name: Option<String>,
    /// The subscription that wanted the event.
    #[schema(min_length = 1)]
    subscription: Option<String>,
    #[schema(inline)]
    category: Option<Category>,
    /// Why it was given up.
    #[schema(min_length = 1)]
    code: Option<String>,
    /// A failure group.
    #[schema(pattern = "^[0-9a-f]{16}$")]
    fingerprint: Option<String>,
    /// The event's type, or a pattern such as `orders.*`.
    #[serde(rename = "type")]
    #[schema(max_length = 256, pattern = "^[A-Za-z0-9_:/-]+(\\.[A-Za-z0-9_:/-]+){0,30}(\\.\\*)?$")]
    event_type: Option<String>,
    #[schema(min_length = 1)]
    session: Option<String>,
    #[schema(min_length = 1)]
    correlation_id: Option<String>,
    #[schema(inline)]
    tier: Option<Tier>,
    /// Died since then: a time of RFC 3339, or how long ago, such as `2h`.
    #[schema(min_length = 1)]
    from: Option<String>,
    /// Died before then, said alike.
    #[schema(min_length = 1)]
    until: Option<String>,
    /// A part of the message; only together with `fingerprint`, `from` or `until`.
    #[schema(min_length = 1)]
    text: Option<String>,
}

/// Which deliveries are meant.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeliveryKeys {
    /// The service with its channels, or `service/channel`.
    #[schema(min_length = 1)]
    service: Option<String>,
    #[schema(inline)]
    state: Option<DeliveryState>,
    /// The event's type, or a pattern such as `orders.*`.
    #[serde(rename = "type")]
    #[schema(max_length = 256, pattern = "^[A-Za-z0-9_:/-]+(\\.[A-Za-z0-9_:/-]+){0,30}(\\.\\*)?$")]
    event_type: Option<String>,
    #[schema(min_length = 1)]
    session: Option<String>,
    /// The correlation id.
    #[schema(min_length = 1)]
    correlation: Option<String>,
    /// The `next` of an earlier answer.
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    before: Option<String>,
}

/// How far back, and of what.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrendKeys {
    /// `15m`, `3h` or `24h`; the first unless said.
    #[schema(pattern = "^(15m|3h|24h)$")]
    span: Option<String>,
    /// Of this service with its channels, or of `service/channel`.
    #[schema(min_length = 1)]
    service: Option<String>,
    /// Of this dependency.
    #[schema(min_length = 1)]
    dependency: Option<String>,
}

/// Which rule is meant; `service` and `type` must be said.
#[derive(Serialize, ToSchema)]
pub(crate) struct RuleKeys {
    #[schema(min_length = 1)]
    service: String,
    #[schema(min_length = 1)]
    channel: Option<String>,
    /// The event's type.
    #[serde(rename = "type")]
    #[schema(min_length = 1)]
    event_type: String,
}

/// Whom the doctor looks at.
#[derive(Serialize, ToSchema)]
pub(crate) struct DoctorKeys {
    /// Only this service and its channels.
    #[schema(min_length = 1)]
    service: Option<String>,
}

/// The states that deliveries are looked for by.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeliveryState {
    Pending,
    Retrying,
    /// Another of its session comes first.
    Behind,
    Delivered,
    Dead,
}

/// A part of a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct PageKeys {
    /// How many at most: 50 unless said, and never more than 500.
    limit: Option<u64>,
}

/// A part of a list whose entries are numbered.
#[derive(Serialize, ToSchema)]
pub(crate) struct NumberedPageKeys {
    /// The `next` of an earlier answer.
    before: Option<u64>,
    /// How many at most: 50 unless said, and never more than 500.
    limit: Option<u64>,
}

/// Until when a replay is watched.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WatchUntil {
    /// It is done or cancelled.
    End,
    /// Also until it is stopped or paused.
    Halt,
}

/// Why something is done.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteWanted {
    /// For the audit.
    #[schema(min_length = 1, max_length = 1000)]
    note: Option<String>,
}

/// What waits for a removed service becomes dead letters.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLetterRemovedWanted {
    /// The channel of the service, if it is one's.
    #[schema(min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+$")]
    channel: Option<String>,
    /// So many at most; 5,000 in one request.
    limit: Option<u64>,
    /// For the audit.
    #[schema(min_length = 1, max_length = 1000)]
    note: Option<String>,
}

/// What waits for a removed service goes to another.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveRemovedWanted {
    /// The other service, or `service/channel`.
    #[schema(min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+(/[A-Za-z0-9_.:-]+)?$")]
    to: String,
    /// The channel of the removed service, if it is one's.
    #[schema(min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+$")]
    channel: Option<String>,
    /// So many at most; 5,000 in one request.
    limit: Option<u64>,
    /// For the audit.
    #[schema(min_length = 1, max_length = 1000)]
    note: Option<String>,
}

/// A key to make.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeyWanted {
    /// Whose it is.
    #[schema(min_length = 1)]
    name: String,
    /// `viewer`, `operator`, `admin` or `ingest`; the first key must be `admin`.
    #[schema(pattern = "^(viewer|operator|admin|ingest)$")]
    role: String,
    /// Only events of these sources.
    sources: Option<Vec<String>>,
    /// Only these services.
    services: Option<Vec<String>>,
    /// How many requests it may make, such as `100/s`.
    #[schema(pattern = "^[1-9][0-9]{0,3}/(s|m|h)$")]
    rate: Option<String>,
    /// After how long it ends, such as `90d`.
    #[schema(pattern = "^[1-9][0-9]{0,3}(ms|s|m|h|d)$")]
    expires: Option<String>,
}

/// Which letters are deleted. One that names nothing must say `all`.
#[derive(Serialize, ToSchema)]
pub(crate) struct PurgeWanted {
    #[serde(flatten)]
    filter: FilterKeys,
    /// Letters one by one: by their ids, the first digits of them, or the ids that they had elsewhere.
    #[schema(min_items = 1, max_items = 1000)]
    letters: Option<Vec<String>>,
    /// Only letters that are at least so old, such as `30d`.
    #[schema(pattern = "^[1-9][0-9]{0,3}(ms|s|m|h|d)$")]
    older_than: Option<String>,
    /// The moment that a dry run looked at: what died since stays.
    #[schema(min_length = 20, format = DateTime)]
    died_until: Option<String>,
    /// Only tells what would be deleted.
    dry_run: Option<bool>,
    /// That all letters are meant.
    all: Option<bool>,
    /// For the audit.
    #[schema(min_length = 1, max_length = 1000)]
    note: Option<String>,
}

/// Which letters are sent again, and how. One that names nothing must say `all`.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReplayWanted {
    #[serde(flatten)]
    filter: FilterKeys,
    /// Letters one by one: by their ids, the first digits of them, or the ids that they had elsewhere.
    #[schema(min_items = 1, max_items = 1000)]
    letters: Option<Vec<String>>,
    /// That all letters are meant.
    all: Option<bool>,
    /// Poison goes too; it needs a `note`.
    include_poison: Option<bool>,
    /// Letters a second, as a number or as a text such as `20/s`.
    rate: Option<RateWanted>,
    /// Letters that may be on their way at once.
    #[schema(minimum = 1, maximum = 100_000)]
    concurrency: Option<u32>,
    /// First one, then ten, then the rest; it stops when letters fail again.
    canary: Option<bool>,
    /// Another service, or `service/channel`, to send them to.
    #[schema(min_length = 1)]
    to: Option<String>,
    /// Why; for the audit.
    #[schema(min_length = 1, max_length = 1000)]
    note: Option<String>,
    /// Only tells what it would come to.
    dry_run: Option<bool>,
}

/// Letters a second.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum RateWanted {
    Number(f64),
    Text(String),
}

/// A dead letter in one of its forms.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum LetterWritten {
    Envelope(Box<Envelope>),
    Redis(RedisLetter),
}

/// Nothing more to say.
#[derive(Serialize, ToSchema)]
pub(crate) struct Nothing {}

/// That it works.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    #[schema(pattern = "^ok$")]
    status: String,
}
