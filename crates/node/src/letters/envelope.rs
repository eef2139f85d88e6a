//! The envelope of a dead letter, for export.

use std::time::Duration;

use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord};
use redrive_core::letters::envelope::{Envelope, EnvelopeAttempt, LetterId};

use crate::store::letter::LetterView;

/// The event's data and the attempts must have been read. An imported letter keeps its original id.
#[must_use]
pub fn envelope(view: &LetterView) -> Envelope {
    let LetterView { delivery, death, event, .. } = view;
    let attempts: Vec<EnvelopeAttempt> = delivery.stories.iter().filter_map(record).collect();
    Envelope {
        dlq_id: match &view.imported_as {
            Some(id) => LetterId::reported(id),
            None => delivery.id.into(),
        },
        original_topic: Some(event.event_type.to_string()),
        original_event_id: Some(event.id.to_string()),
        original_timestamp: event.time,
        consumer_service: delivery.queue.to_string(),
        consumer_group: Some(death.consumer_group.clone()).filter(|group| !group.is_empty()),
        category: death.category,
        total_retries: delivery.attempts.saturating_sub(1),
        first_failure_at: attempts.first().map(|attempt| attempt.timestamp),
        last_failure_at: attempts.last().map(|attempt| attempt.timestamp),
        retry_attempts: attempts,
        routed_to_dlq_at: view.died_at,
        correlation_id: event.correlation_id.as_ref().map(ToString::to_string),
        session_id: event.session.as_ref().map(ToString::to_string),
        subscription_id: Some(delivery.subscription.clone()).filter(|id| !id.is_empty()),
        tier: death.tier,
        fingerprint: Some(death.fingerprint),
        replays: view.replays,
        original_message: event.to_json(),
    }
}

/// None for time on hold.
fn record(story: &AttemptRecord) -> Option<EnvelopeAttempt> {
    let (error, error_code, http_status) = match &story.end {
        AttemptEnd::Held { .. } => return None,
        AttemptEnd::Delivered { status, .. } => (None, None, *status),
        AttemptEnd::Failed { code, status, message, .. } => {
            (Some(message.clone()), Some(code.clone()), *status)
        }
    };
    let timestamp = story.started_at + Duration::from_nanos(story.took_nanos);
    Some(EnvelopeAttempt { attempt: story.attempt, timestamp, error, error_code, http_status })
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use redrive_core::engine::attempt_record::{HoldReason, RecordedVerdict};
    use redrive_core::engine::{DeadLetterInfo, QueueName, SessionFollowers};
    use redrive_core::event::{Incoming, parse};
    use redrive_core::ids::{Attempt, ChannelName, DeliveryId, Receipt, Seq, ServiceName};
    use redrive_core::letters::envelope::{RedisLetter, Tier};
    use redrive_core::letters::fingerprint::Fingerprint;
    use redrive_core::policy::category::{Category, FailureCode};
    use redrive_core::time::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::store::letter::LetterNumber;
    use crate::store::{DeliveryState, DeliveryView};

    fn story(attempt: u32, at: &str, end: AttemptEnd) -> AttemptRecord {
        AttemptRecord {
            attempt: Attempt::new(attempt).expect("not 0"),
            started_at: at.parse().expect("a time"),
            took_nanos: 500_000_000,
            end,
            book: 1,
            verdict: RecordedVerdict::Paused,
            classified_at: None,
            reaction_at: None,
            retry: None,
            held_nanos: 0,
        }
    }

    fn failed(code: &'static str, status: Option<u16>, message: &str) -> AttemptEnd {
        let (code, message) = (FailureCode::of(code), message.to_owned());
        AttemptEnd::Failed { category: Category::Transient, code, status, message, response: String::new() }
    }

    /// A letter of a channel with two attempts and a wait in between.
    pub(in super::super) fn letter() -> LetterView {
        let body = json!({
            "specversion": "1.0", "id": "order-42", "source": "/shop", "type": "orders.placed", "time": "2026-01-31T12:00:00Z",
            "partitionkey": "customer-7", "correlationid": "c-1", "datacontenttype": "application/json", "data": { "total": 12 },
        });
        let headers = vec![("content-type".to_owned(), "application/cloudevents+json".to_owned())];
        let body = body.to_string().into_bytes().into();
        let event =
            parse(Incoming { headers: &headers, body: &body }).expect("an event").into_events().remove(0);
        let died_at: Timestamp = "2026-01-31T12:00:12.5Z".parse().expect("a time");
        let death = DeadLetterInfo {
            category: Category::Fatal,
            code: FailureCode::of("MAX_RETRIES_EXCEEDED"),
            failure_code: FailureCode::of("UNAUTHORIZED"),
            tier: Tier::Dead,
            message: "401 Unauthorized".to_owned(),
            fingerprint: Fingerprint(0xf00d),
            name: "_billing.deadletter.email".to_owned(),
            consumer_group: "billing-workers".to_owned(),
            followers: SessionFollowers::Continue,
        };
        LetterView {
            number: LetterNumber(died_at.as_nanos()),
            delivery: DeliveryView {
                id: DeliveryId(0xabc),
                queue: QueueName {
                    service: ServiceName::new("billing").expect("a name"),
                    channel: Some(ChannelName::new("email").expect("a name")),
                },
                subscription: "billing/orders.*".to_owned(),
                receipt: Receipt::of(Seq::new(1)),
                event_id: event.id.to_string(),
                event_source: event.source.to_string(),
                event_type: event.event_type.to_string(),
                session: Some("customer-7".to_owned()),
                correlation_id: Some("c-1".to_owned()),
                accepted_at: died_at,
                written_at: died_at,
                attempts: 2,
                state: DeliveryState::Dead { at: died_at, death: Box::new(death.clone()) },
                replaying: None,
                replays: 0,
                supersedes: None,
                stories: vec![
                    story(1, "2026-01-31T12:00:10Z", failed("NETWORK_TIMEOUT", None, "no answer in time")),
                    story(2, "2026-01-31T12:00:11Z", AttemptEnd::Held { by: HoldReason::Breaker }),
                    story(2, "2026-01-31T12:00:12Z", failed("UNAUTHORIZED", Some(401), "401 Unauthorized")),
                ],
            },
            death,
            died_at,
            replays: 1,
            claimed_by: None,
            holds: None,
            imported_as: None,
            event: Arc::new(event),
        }
    }

    #[test]
    fn the_envelope_tells_the_whole_story() {
        let expected = json!({
            "dlqId": "00000000000000000000000000000abc", "originalTopic": "orders.placed", "originalEventId": "order-42",
            "originalTimestamp": "2026-01-31T12:00:00Z", "consumerService": "billing/email", "consumerGroup": "billing-workers",
            "failureCategory": "permanent", "category": "fatal",
            "retryAttempts": [
                { "attempt": 1, "timestamp": "2026-01-31T12:00:10.5Z", "error": "no answer in time", "errorCode": "NETWORK_TIMEOUT", "httpStatus": null },
                { "attempt": 2, "timestamp": "2026-01-31T12:00:12.5Z", "error": "401 Unauthorized", "errorCode": "UNAUTHORIZED", "httpStatus": 401 },
            ],
            "totalRetries": 1, "firstFailureAt": "2026-01-31T12:00:10.5Z", "lastFailureAt": "2026-01-31T12:00:12.5Z",
            "routedToDlqAt": "2026-01-31T12:00:12.5Z", "correlationId": "c-1", "sessionId": "customer-7",
            "subscriptionId": "billing/orders.*", "tier": "dead", "fingerprint": "000000000000f00d", "replays": 1,
            "originalMessage": {
                "specversion": "1.0", "id": "order-42", "source": "/shop", "type": "orders.placed", "partitionkey": "customer-7",
                "correlationid": "c-1", "time": "2026-01-31T12:00:00Z", "datacontenttype": "application/json", "data": { "total": 12 },
            },
        });
        let seen = serde_json::to_value(envelope(&letter())).expect("JSON");
        assert_eq!(serde_json::to_string_pretty(&seen).ok(), serde_json::to_string_pretty(&expected).ok());
        let short = serde_json::to_value(RedisLetter::from(&envelope(&letter()))).expect("JSON");
        let context = json!({ "error": "401 Unauthorized", "timestamp": "2026-01-31T12:00:12.5Z", "service": "billing/email", "attempts": 2 });
        assert_eq!(short["error_context"], context);
    }

    #[test]
    fn what_is_not_known_is_null() {
        type Change = fn(&mut LetterView);
        #[rustfmt::skip]
        let cases: [(&str, Change, &str, Value); 5] = [
            ("nothing was tried: no first failure", |letter| letter.delivery.stories.clear(),              "firstFailureAt",  Value::Null),
            ("nothing was tried: no attempts",      |letter| letter.delivery.stories.clear(),              "retryAttempts",   json!([])),
            ("no attempt, no retry",                |letter| letter.delivery.attempts = 0,                 "totalRetries",    json!(0)),
            ("no claim",                            |letter| letter.delivery.subscription.clear(),         "subscriptionId",  Value::Null),
            ("from elsewhere",                      |letter| letter.imported_as = Some("x-1".to_owned()),  "dlqId",           json!("x-1")),
        ];
        for (name, change, field, expected) in cases {
            let mut letter = letter();
            change(&mut letter);
            let seen = serde_json::to_value(envelope(&letter)).expect("JSON");
            assert_eq!(seen[field], expected, "{name}");
        }
    }
}
