//! Calls for the tests of targets.

use std::sync::Arc;

use bytes::Bytes;
use redrive_core::book::connectors::built_in;
use redrive_core::book::{self, RuleBook};
use redrive_core::engine::{CallId, PendingDelivery, QueueName, TargetCall};
use redrive_core::event::idempotency::delivery_id;
use redrive_core::event::{self, Event, Incoming};
use redrive_core::ids::{Attempt, Seq, ServiceName};
use redrive_core::time::Timestamp;

/// A call with those limits on its parts.
pub(crate) fn call(timeout: &str, deliveries: Vec<PendingDelivery>) -> Arc<TargetCall> {
    call_retried("standard", timeout, deliveries)
}

/// The same by another policy for retries.
pub(crate) fn call_retried(retry: &str, timeout: &str, deliveries: Vec<PendingDelivery>) -> Arc<TargetCall> {
    let book = format!(
        "version: 1\nservices:\n  shop:\n    target: {{ http: \"http://127.0.0.1:1/\" }}\n    timeout: {timeout}\n    retry: {retry}\n    events: [orders.placed]\n"
    );
    let book = Arc::new(book_of(&book));
    let rule = Arc::clone(book.rule("shop", None, "orders.placed").expect("the book has it"));
    Arc::new(TargetCall {
        id: CallId(1),
        queue: Arc::new(queue()),
        deliveries,
        limit: rule.timeouts.whole.limit(Attempt::FIRST),
        rule,
        book,
        started_at: Timestamp::from_millis(1_761_057_000_250),
    })
}

pub(crate) fn book_of(text: &str) -> RuleBook {
    let reading = book::read(text, built_in());
    reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems))
}

pub(crate) fn queue() -> QueueName {
    QueueName { service: ServiceName::new("shop").expect("a name"), channel: None }
}

/// The delivery at that place of an event with those headers and that body.
pub(crate) fn delivery(seq: u64, headers: &[(&str, &str)], body: &str) -> PendingDelivery {
    let headers: Vec<(String, String)> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let body = Bytes::copy_from_slice(body.as_bytes());
    let parsed = event::parse(Incoming { headers: &headers, body: &body }).expect("an event");
    let event: Event = parsed.into_events().remove(0);
    let queue = queue();
    PendingDelivery {
        id: delivery_id(Seq::new(seq), event.dedup_key(), &queue.service, None),
        queue: Arc::new(queue),
        sequence: event.session.as_ref().map(|_| Seq::new(seq)),
        replaying: None,
        event: Arc::new(event),
        attempts: 0,
        due_at: None,
        history: serde_json::from_str("{}").expect("nothing yet"),
        book: None,
        written_at: Timestamp::EPOCH,
        start_recorded: false,
        damaged: false,
    }
}

/// A small event with that id.
pub(crate) fn order(seq: u64, id: &str) -> PendingDelivery {
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", id),
        ("ce-source", "web"),
        ("ce-type", "orders.placed"),
        ("content-type", "application/json"),
    ];
    delivery(seq, &headers, r#"{"total":12}"#)
}
