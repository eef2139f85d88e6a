//! Calls over real sockets, to servers that behave in every way there is.

mod behaviour;
mod connections;
mod forms;
mod secure;
mod server;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redrive_core::answer::{Reply, Seen};
use redrive_core::book::{self, RuleBook};
use redrive_core::engine::{Call, CallId, Ending, QueueName, Waiting};
use redrive_core::event::{self, Event, Incoming};
use redrive_core::idempotency::delivery_id;
use redrive_core::ids::{Attempt, Seq, ServiceName};
use redrive_core::text::show_duration;
use redrive_core::time::Timestamp;

use super::{Form, HttpOptions, HttpTarget, Pool, Roots};
use crate::target::Target;

/// Long enough for any machine; nothing here waits for it.
const PATIENT: &str = "{ connect: 30s, tls: 30s, headers: 30s, whole: 60s }";

/// A call with those limits on its parts.
fn call(timeout: &str, deliveries: Vec<Waiting>) -> Arc<Call> {
    let book = format!(
        "version: 1\nservices:\n  shop:\n    target: {{ http: \"http://127.0.0.1:1/\" }}\n    timeout: {timeout}\n    events: [orders.placed]\n"
    );
    let book = Arc::new(book_of(&book));
    let rule = Arc::clone(book.rule("shop", None, "orders.placed").expect("the book has it"));
    Arc::new(Call {
        id: CallId(1),
        queue: Arc::new(queue()),
        deliveries,
        limit: rule.timeouts.whole.limit(Attempt::FIRST),
        rule,
        book,
        started_at: Timestamp::from_millis(1_761_057_000_250),
    })
}

fn book_of(text: &str) -> RuleBook {
    let reading = book::read(text);
    reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems))
}

fn queue() -> QueueName {
    QueueName { service: ServiceName::new("shop").expect("a name"), channel: None }
}

/// The delivery at that place of an event with those headers and that body.
fn delivery(seq: u64, headers: &[(&str, &str)], body: &str) -> Waiting {
    let headers: Vec<(String, String)> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let body = Bytes::copy_from_slice(body.as_bytes());
    let parsed = event::parse(Incoming { headers: &headers, body: &body }).expect("an event");
    let event: Event = parsed.into_events().remove(0);
    let queue = queue();
    Waiting {
        id: delivery_id(Seq::new(seq), event.dedup_key(), &queue.service, None),
        queue: Arc::new(queue),
        in_session: event.session.is_some(),
        event: Arc::new(event),
        attempts: 0,
        due_at: None,
        history: serde_json::from_str("{}").expect("nothing yet"),
        book: None,
        written_at: Timestamp::EPOCH,
        start_recorded: false,
    }
}

/// A small event with that id.
fn order(seq: u64, id: &str) -> Waiting {
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", id),
        ("ce-source", "web"),
        ("ce-type", "orders.placed"),
        ("content-type", "application/json"),
    ];
    delivery(seq, &headers, r#"{"total":12}"#)
}

fn target(address: &str, form: Form) -> HttpTarget {
    target_of(address, form, &Arc::new(Pool::new(Roots::Only(Vec::new()))))
}

fn target_of(address: &str, form: Form, pool: &Arc<Pool>) -> HttpTarget {
    let options = HttpOptions { form, secrets: Vec::new(), permits: 64 };
    HttpTarget::new(address, options, Arc::clone(pool)).expect("an address")
}

/// Posts one small event, with limits that nothing here reaches.
async fn post(target: &HttpTarget) -> Ending {
    target.call(call(PATIENT, vec![order(7, "e-1")])).await
}

/// An ending in one line, with `PORT` for the port of the server.
fn told(ending: &Ending, port: u16) -> String {
    let text = match ending {
        Ending::Reply(reply) => reply_told(reply),
        Ending::Partly { reply, failed } => format!("{failed:?} {}", reply_told(reply)),
        Ending::Interrupted => "interrupted".to_owned(),
    };
    text.replace(&format!(":{port}"), ":PORT")
}

fn reply_told(reply: &Reply) -> String {
    let seen = match &reply.seen {
        Seen::Http { status, body, .. } if body.len() > 100 => format!("{status} with {} bytes", body.len()),
        Seen::Http { status, body, .. } => format!("{status} {body:?}"),
        other => format!("{other:?}"),
    };
    let message: String = reply.message.chars().take(200).collect();
    match reply.retry_after {
        Some(wait) => format!("{seen}, {message}, wait {}", show_duration(wait)),
        None => format!("{seen}, {message}"),
    }
}

/// Waits for what must come about by itself, and for no longer than a test may take.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what} did not come about");
}
