//! The dead-letter envelope: a delivery that failed for good, with its attempts.
//!
//! The names of its JSON fields are a promise to readers in other systems. Invariants: unknown values are
//! `null`, never absent; `failureCategory` follows from `category` and cannot contradict it; what is written
//! reads back unchanged. Unknown fields are skipped on reading.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{Attempt, DeliveryId};
use crate::letters::fingerprint::Fingerprint;
use crate::policy::category::{Category, FailureCode};
use crate::time::Timestamp;

/// Ours are delivery ids, those of other systems any text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LetterId(String);

impl LetterId {
    #[must_use]
    pub fn reported(text: &str) -> Self {
        Self(text.to_owned())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<DeliveryId> for LetterId {
    fn from(delivery: DeliveryId) -> Self {
        Self(delivery.to_string())
    }
}

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Whether a dead letter may be replayed with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// It may be replayed with the rest.
    #[default]
    Dead,
    /// It does not parse, or failed its replay: bulk replays skip it unless it is included by name.
    Poison,
}

impl Tier {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Poison => "poison",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The letter's id, by which it is replayed.
    pub dlq_id: LetterId,
    /// The topic, queue or stream it came from, else the event's type.
    #[cfg_attr(feature = "schema", schema(required))]
    pub original_topic: Option<String>,
    /// The event's id.
    #[cfg_attr(feature = "schema", schema(required))]
    pub original_event_id: Option<String>,
    /// The event's time.
    #[cfg_attr(feature = "schema", schema(required))]
    pub original_timestamp: Option<Timestamp>,
    /// The service that could not process it.
    pub consumer_service: String,
    /// The group from the rule, by default the service.
    #[cfg_attr(feature = "schema", schema(required))]
    pub consumer_group: Option<String>,
    /// The category of the last failure, written as `failureCategory` and `category`.
    #[serde(flatten, with = "category_words")]
    #[cfg_attr(feature = "schema", schema(value_type = category_words::CategoryFields))]
    pub category: Category,
    /// Every attempt, first to last.
    pub retry_attempts: Vec<EnvelopeAttempt>,
    /// The attempts after the first.
    pub total_retries: u32,
    /// When it first failed.
    #[cfg_attr(feature = "schema", schema(required))]
    pub first_failure_at: Option<Timestamp>,
    /// When it last failed.
    #[cfg_attr(feature = "schema", schema(required))]
    pub last_failure_at: Option<Timestamp>,
    /// When it became a dead letter.
    pub routed_to_dlq_at: Timestamp,
    /// The event's correlation id.
    #[cfg_attr(feature = "schema", schema(required))]
    pub correlation_id: Option<String>,
    /// The session key within which deliveries keep their order.
    #[cfg_attr(feature = "schema", schema(required))]
    pub session_id: Option<String>,
    /// The subscription that matched the event.
    #[cfg_attr(feature = "schema", schema(required))]
    pub subscription_id: Option<String>,
    /// Whether it may be replayed with others.
    #[serde(default)]
    pub tier: Tier,
    /// Shared by letters of the same cause; absent in letters of other systems.
    #[cfg_attr(feature = "schema", schema(required))]
    pub fingerprint: Option<Fingerprint>,
    /// How often it has been replayed.
    #[serde(default)]
    pub replays: u32,
    /// The CloudEvent as JSON, with `data` or `data_base64`.
    pub original_message: Value,
}

/// One attempt in an envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeAttempt {
    /// Its number, from 1.
    pub attempt: Attempt,
    /// When it failed.
    pub timestamp: Timestamp,
    /// The failure's message.
    #[cfg_attr(feature = "schema", schema(required))]
    pub error: Option<String>,
    /// The failure's code.
    #[cfg_attr(feature = "schema", schema(required))]
    pub error_code: Option<FailureCode>,
    /// The HTTP status, if there was an answer.
    #[cfg_attr(feature = "schema", schema(required))]
    pub http_status: Option<u16>,
}

/// The two category fields: one of four words for readers that know only those, and ours.
mod category_words {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::policy::category::Category;

    #[derive(Serialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
    #[cfg_attr(feature = "schema", schema(as = CategoryWords))]
    #[serde(rename_all = "camelCase")]
    pub(super) struct CategoryFields {
        /// One of four words for readers that know only those.
        #[cfg_attr(feature = "schema", schema(pattern = "^(transient|rate-limited|permanent|unknown)$"))]
        failure_category: &'static str,
        category: Category,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CategoryInput {
        failure_category: Option<String>,
        category: Option<Category>,
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    pub(super) fn serialize<S: Serializer>(category: &Category, serializer: S) -> Result<S::Ok, S::Error> {
        CategoryFields { failure_category: category.envelope_word(), category: *category }
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Category, D::Error> {
        let CategoryInput { failure_category, category } = CategoryInput::deserialize(deserializer)?;
        // An unknown word of another system must not make its letter unreadable.
        let derived =
            || failure_category.as_deref().and_then(Category::from_word).unwrap_or(Category::Unknown);
        Ok(category.unwrap_or_else(derived))
    }
}

/// The short form of a dead letter in Redis streams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RedisLetter {
    /// The CloudEvent as JSON.
    pub original_message: Value,
    /// What went wrong.
    pub error_context: ErrorContext,
}

/// What went wrong, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorContext {
    /// The message of the last failure.
    #[cfg_attr(feature = "schema", schema(required))]
    pub error: Option<String>,
    /// When it last failed.
    pub timestamp: Timestamp,
    /// The service that could not process it.
    pub service: String,
    /// The number of attempts.
    pub attempts: u32,
}

impl From<&Envelope> for RedisLetter {
    fn from(envelope: &Envelope) -> Self {
        let last = envelope.retry_attempts.last();
        Self {
            original_message: envelope.original_message.clone(),
            error_context: ErrorContext {
                error: last.and_then(|last| last.error.clone()),
                timestamp: envelope.last_failure_at.unwrap_or(envelope.routed_to_dlq_at),
                service: envelope.consumer_service.clone(),
                attempts: last.map_or(0, |last| last.attempt.get()),
            },
        }
    }
}

impl RedisLetter {
    /// The envelope as far as the short form knows it. An error without an attempt becomes the first
    /// attempt's.
    #[must_use]
    pub fn into_envelope(self, dlq_id: LetterId) -> Envelope {
        let Self { original_message, error_context: ErrorContext { error, timestamp, service, attempts } } =
            self;
        let attribute = |name: &str| original_message.get(name).and_then(Value::as_str).map(str::to_owned);
        let last = Attempt::new(attempts).or_else(|| error.is_some().then_some(Attempt::FIRST));
        let record =
            |attempt| EnvelopeAttempt { attempt, timestamp, error, error_code: None, http_status: None };
        Envelope {
            dlq_id,
            original_topic: attribute("type"),
            original_event_id: attribute("id"),
            original_timestamp: attribute("time").and_then(|time| time.parse().ok()),
            consumer_service: service,
            consumer_group: None,
            category: Category::Unknown,
            retry_attempts: last.map(record).into_iter().collect(),
            total_retries: attempts.saturating_sub(1),
            first_failure_at: (attempts <= 1).then_some(timestamp),
            last_failure_at: Some(timestamp),
            routed_to_dlq_at: timestamp,
            correlation_id: attribute("correlationid"),
            session_id: None,
            subscription_id: None,
            tier: Tier::Dead,
            fingerprint: None,
            replays: 0,
            original_message,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn example() -> Envelope {
        let at = |text: &str| -> Timestamp { text.parse().expect("a time") };
        let attempt = |number| Attempt::new(number).expect("not 0");
        Envelope {
            dlq_id: DeliveryId(0xabc).into(),
            original_topic: Some("todo.task.created".to_owned()),
            original_event_id: Some("e-1".to_owned()),
            original_timestamp: Some(at("2026-01-31T12:00:00Z")),
            consumer_service: "notification-svc".to_owned(),
            consumer_group: Some("notification-svc.task-alerts".to_owned()),
            category: Category::Fatal,
            retry_attempts: vec![
                EnvelopeAttempt {
                    attempt: attempt(1),
                    timestamp: at("2026-01-31T12:00:10Z"),
                    error: Some("Connection timeout after 10s".to_owned()),
                    error_code: Some(FailureCode::of("ETIMEDOUT")),
                    http_status: None,
                },
                EnvelopeAttempt {
                    attempt: attempt(2),
                    timestamp: at("2026-01-31T12:00:12Z"),
                    error: Some("401 Unauthorized".to_owned()),
                    error_code: None,
                    http_status: Some(401),
                },
            ],
            total_retries: 1,
            first_failure_at: Some(at("2026-01-31T12:00:10Z")),
            last_failure_at: Some(at("2026-01-31T12:00:12Z")),
            routed_to_dlq_at: at("2026-01-31T12:00:12.5Z"),
            correlation_id: None,
            session_id: None,
            subscription_id: Some("notification-svc/todo.*".to_owned()),
            tier: Tier::Dead,
            fingerprint: Some(Fingerprint(0xf00d)),
            replays: 0,
            original_message: json!({"specversion": "1.0", "id": "e-1", "type": "todo.task.created", "data": {"a": 1}}),
        }
    }

    #[test]
    fn the_fields_are_those_that_were_promised() {
        let expected = json!({
            "dlqId": "00000000000000000000000000000abc",
            "originalTopic": "todo.task.created",
            "originalEventId": "e-1",
            "originalTimestamp": "2026-01-31T12:00:00Z",
            "consumerService": "notification-svc",
            "consumerGroup": "notification-svc.task-alerts",
            "failureCategory": "permanent",
            "category": "fatal",
            "retryAttempts": [
                {
                    "attempt": 1, "timestamp": "2026-01-31T12:00:10Z", "error": "Connection timeout after 10s",
                    "errorCode": "ETIMEDOUT", "httpStatus": null,
                },
                {
                    "attempt": 2, "timestamp": "2026-01-31T12:00:12Z", "error": "401 Unauthorized",
                    "errorCode": null, "httpStatus": 401,
                },
            ],
            "totalRetries": 1,
            "firstFailureAt": "2026-01-31T12:00:10Z",
            "lastFailureAt": "2026-01-31T12:00:12Z",
            "routedToDlqAt": "2026-01-31T12:00:12.5Z",
            "correlationId": null,
            "sessionId": null,
            "subscriptionId": "notification-svc/todo.*",
            "tier": "dead",
            "fingerprint": "000000000000f00d",
            "replays": 0,
            "originalMessage": {"specversion": "1.0", "id": "e-1", "type": "todo.task.created", "data": {"a": 1}},
        });
        let written = serde_json::to_string_pretty(&example()).expect("JSON");
        assert_eq!(written, serde_json::to_string_pretty(&expected).expect("JSON"));
    }

    #[test]
    fn the_category_is_never_contradictory() {
        #[rustfmt::skip]
        let cases = [
            ("both agree",                 json!("permanent"),    json!("fatal"),        Category::Fatal),
            ("ours wins",                  json!("transient"),    json!("invalid"),      Category::Invalid),
            ("theirs alone",               json!("rate-limited"), Value::Null,           Category::RateLimited),
            ("theirs, permanent",          json!("permanent"),    Value::Null,           Category::Permanent),
            ("a word that nobody knows",   json!("cosmic-rays"),  Value::Null,           Category::Unknown),
            ("neither",                    Value::Null,           Value::Null,           Category::Unknown),
        ];
        for (name, theirs, ours, expected) in cases {
            let mut json = serde_json::to_value(example()).expect("JSON");
            json["failureCategory"] = theirs;
            json["category"] = ours;
            let read: Envelope = serde_json::from_value(json).expect(name);
            assert_eq!(read.category, expected, "{name}");
            let again = serde_json::to_value(&read).expect("JSON");
            assert_eq!(again["failureCategory"], expected.envelope_word(), "{name}");
            assert_eq!(again["category"], expected.as_str(), "{name}");
        }
        let mut wrong = serde_json::to_value(example()).expect("JSON");
        wrong["category"] = json!("fine");
        assert!(serde_json::from_value::<Envelope>(wrong).is_err(), "a category of ours is one of seven");
    }

    #[test]
    fn an_envelope_from_elsewhere_is_read() {
        let theirs = json!({
            "dlqId": "3d6f0a52-6c0c-4a57-9d3e-0d6a5c1f7b11",
            "originalTopic": "todo.task.created",
            "originalEventId": "e-1",
            "originalTimestamp": "2026-01-31T13:00:00+01:00",
            "consumerService": "notification-svc",
            "consumerGroup": "notification-svc.task-alerts",
            "failureCategory": "transient",
            "retryAttempts": [],
            "totalRetries": 5,
            "firstFailureAt": "2026-01-31T12:00:10Z",
            "routedToDlqAt": "2026-01-31T12:00:12Z",
            "correlationId": "c-1",
            "originalMessage": {},
            "region": "a field that only they have",
        });
        let read: Envelope = serde_json::from_value(theirs).expect("an envelope");
        assert_eq!(read.category, Category::Transient);
        assert_eq!(read.original_timestamp, "2026-01-31T12:00:00Z".parse().ok());
        assert_eq!((read.tier, read.fingerprint, read.replays), (Tier::Dead, None, 0));
        assert_eq!(read.last_failure_at, None);
    }

    #[test]
    fn redis_gets_the_short_form() {
        let short = RedisLetter::from(&example());
        let expected = json!({
            "original_message": {"specversion": "1.0", "id": "e-1", "type": "todo.task.created", "data": {"a": 1}},
            "error_context": {
                "error": "401 Unauthorized",
                "timestamp": "2026-01-31T12:00:12Z",
                "service": "notification-svc",
                "attempts": 2,
            },
        });
        assert_eq!(serde_json::to_value(&short).expect("JSON"), expected);

        let known = short.into_envelope(LetterId::reported("1700000000000-0"));
        assert_eq!(known.dlq_id.as_str(), "1700000000000-0");
        assert_eq!(known.original_topic.as_deref(), Some("todo.task.created"));
        assert_eq!(known.original_event_id.as_deref(), Some("e-1"));
        assert_eq!((known.total_retries, known.first_failure_at), (1, None));
    }

    #[test]
    fn a_message_that_never_got_an_attempt_has_no_error_to_tell() {
        let envelope = Envelope { retry_attempts: vec![], last_failure_at: None, ..example() };
        let ErrorContext { error, timestamp, attempts, .. } = RedisLetter::from(&envelope).error_context;
        assert_eq!((error, timestamp, attempts), (None, envelope.routed_to_dlq_at, 0));
    }

    fn time() -> impl Strategy<Value = Timestamp> {
        any::<u64>().prop_map(Timestamp::from_nanos)
    }

    fn text() -> impl Strategy<Value = Option<String>> {
        prop::option::of(any::<String>())
    }

    fn message() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn record() -> impl Strategy<Value = EnvelopeAttempt> {
        (1..=u32::MAX, time(), text(), text(), prop::option::of(any::<u16>())).prop_map(
            |(attempt, timestamp, error, error_code, http_status)| EnvelopeAttempt {
                attempt: Attempt::new(attempt).expect("from 1"),
                timestamp,
                error,
                error_code: error_code.map(|code| FailureCode::reported(&code)),
                http_status,
            },
        )
    }

    fn envelope() -> impl Strategy<Value = Envelope> {
        let texts = (any::<String>(), any::<String>(), prop::array::uniform6(text()));
        let times = (time(), prop::array::uniform3(prop::option::of(time())));
        let tier = prop_oneof![Just(Tier::Dead), Just(Tier::Poison)];
        let numbers = (any::<u32>(), any::<u32>(), prop::option::of(any::<u64>()), tier);
        let category = prop::sample::select(Category::ALL.to_vec());
        let attempts = prop::collection::vec(record(), 0..4);
        (texts, times, numbers, category, attempts, message()).prop_map(
            |(texts, times, numbers, category, retry_attempts, original_message)| {
                let (id, consumer_service, [topic, event, group, correlation, session, subscription]) = texts;
                let (routed_to_dlq_at, [original_timestamp, first_failure_at, last_failure_at]) = times;
                let (total_retries, replays, fingerprint, tier) = numbers;
                Envelope {
                    dlq_id: LetterId::reported(&id),
                    original_topic: topic,
                    original_event_id: event,
                    original_timestamp,
                    consumer_service,
                    consumer_group: group,
                    category,
                    retry_attempts,
                    total_retries,
                    first_failure_at,
                    last_failure_at,
                    routed_to_dlq_at,
                    correlation_id: correlation,
                    session_id: session,
                    subscription_id: subscription,
                    tier,
                    fingerprint: fingerprint.map(Fingerprint),
                    replays,
                    original_message,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(envelope in envelope()) {
            let json = serde_json::to_string(&envelope).expect("JSON");
            prop_assert_eq!(&serde_json::from_str::<Envelope>(&json).expect("an envelope"), &envelope);

            let short = RedisLetter::from(&envelope);
            let json = serde_json::to_string(&short).expect("JSON");
            let read: RedisLetter = serde_json::from_str(&json).expect("a letter");
            prop_assert_eq!(&read, &short);
            prop_assert_eq!(RedisLetter::from(&read.into_envelope(envelope.dlq_id)), short);
        }
    }
}
