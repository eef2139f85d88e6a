//! What is told of runs, as a table: who was started by what, how it ended, and what others hear of it.

use super::*;
use crate::book;
use crate::book::connectors::built_in;
use crate::engine::{DeadLetterInfo, QueueName, SessionFollowers};
use crate::event::idempotency::delivery_id;
use crate::event::{Incoming, parse};
use crate::ids::{Seq, ServiceName};
use crate::letters::envelope::Tier;
use crate::letters::fingerprint::Fingerprint;
use crate::policy::category::{Category, FailureCode};
use crate::policy::classify::{ConnectionStatus, Failure};
use crate::policy::decide::History;

fn delivery(source: &str, event_type: &str) -> PendingDelivery {
    let headers: Vec<(String, String)> = [
        ("ce-specversion", "1.0"),
        ("ce-id", "t-1"),
        ("ce-source", source),
        ("ce-type", event_type),
        ("ce-partitionkey", "project 7"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let parsed = parse(Incoming { headers: &headers, body: &Bytes::new() }).expect("an event");
    let event = parsed.into_events().remove(0);
    let service = ServiceName::new("builder").expect("a name");
    PendingDelivery {
        id: delivery_id(Seq::new(7), event.dedup_key(), &service, None),
        queue: Arc::new(QueueName { service, channel: None }),
        event: Arc::new(event),
        sequence: None,
        replaying: None,
        attempts: 0,
        due_at: None,
        history: serde_json::from_str::<History>("{}").expect("nothing yet"),
        book: None,
        written_at: Timestamp::from_millis(1_000),
        start_recorded: false,
        damaged: false,
    }
}

fn settlement(delivery: &PendingDelivery, next: NextState) -> Settlement {
    Settlement {
        delivery: delivery.id,
        attempts_before: 0,
        attempts: 1,
        next,
        history: delivery.history.clone(),
        book: 0,
        record: None,
        pause: None,
        stop: None,
        emits: Vec::new(),
        at: Timestamp::from_millis(2_000),
    }
}

fn dead() -> NextState {
    let service = ServiceName::new("builder").expect("a name");
    let code = FailureCode::of("HOLD_EXPIRED");
    NextState::Dead(Box::new(DeadLetterInfo {
        category: Category::Transient,
        fingerprint: Fingerprint::of(&service, Category::Transient, &code, "held too long"),
        failure_code: code.clone(),
        code,
        tier: Tier::Dead,
        message: "held too long".to_owned(),
        name: String::new(),
        consumer_group: String::new(),
        followers: SessionFollowers::Continue,
    }))
}

fn failed() -> Outcome {
    Outcome::Failed(Failure {
        category: Category::Unknown,
        code: FailureCode::of("PROCESS_CRASHED"),
        status: None,
        message: String::new(),
        retry_after: None,
        matched: None,
        default_category: None,
        connection: ConnectionStatus::Made,
    })
}

fn worker() -> Worker {
    let text =
        "version: 1\nservices: { builder: { target: { exec: [x], output: build.result }, events: [a] } }\n";
    let reading = book::read(text, built_in());
    let book = reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems));
    book.worker("builder", None).expect("it runs a program").clone()
}

/// `type status[ final]` of each.
fn told(events: &[Arc<Event>]) -> Vec<String> {
    let one = |event: &Arc<Event>| {
        let data: Value = serde_json::from_slice(&event.data).expect("JSON");
        let status = data["status"].as_str().expect("a word");
        let last = if data["final"] == true { ", the last" } else { "" };
        format!("{} {status}{last}", event.event_type)
    };
    events.iter().map(one).collect()
}

#[test]
fn each_end_is_told_to_those_who_wait_for_results_and_for_lives() {
    let delivered = Outcome::Delivered { matched: None };
    let again = || NextState::Due { at: Timestamp::from_millis(9_000) };
    #[rustfmt::skip]
    let cases = [
        ("well",            &delivered, Exit::Code(0),       NextState::Delivered, vec!["build.result completed, the last", "worker.lifecycle succeeded, the last"]),
        ("a crash",         &failed(),  Exit::Code(3),       again(),         vec!["build.result failed", "worker.lifecycle failed"]),
        ("the last crash",  &failed(),  Exit::Signal(9),     dead(),          vec!["build.result failed, the last", "worker.lifecycle failed, the last"]),
        ("its own word",    &failed(),  Exit::ReportedError, again(),         vec!["build.result error", "worker.lifecycle failed"]),
        ("too long",        &failed(),  Exit::TimeLimit,     dead(),          vec!["build.result failed, the last", "worker.lifecycle timed out, the last"]),
    ];
    for (name, outcome, exit, next, expected) in cases {
        let delivery = delivery("web", "build.wanted");
        let reply = TargetReply {
            seen: ReplyKind::Process(exit),
            message: "so it was".to_owned(),
            retry_after: None,
        };
        let end = WorkerEnd::Run { outcome, reply: &reply, report: None };
        assert_eq!(told(&worker().ended(&delivery, end, &settlement(&delivery, next))), expected, "{name}");
    }
    let delivery = delivery("web", "build.wanted");
    let given_up = worker().ended(&delivery, WorkerEnd::GivenUp, &settlement(&delivery, dead()));
    assert_eq!(told(&given_up), ["build.result failed, the last"], "nothing lived that could end");
    assert!(worker().ended(&delivery, WorkerEnd::GivenUp, &settlement(&delivery, again())).is_empty());
    assert_eq!(told(&worker().started(&delivery, Timestamp::EPOCH)), ["worker.lifecycle started"]);
}

#[test]
fn nobody_is_started_for_ever() {
    let outcome = Outcome::Delivered { matched: None };
    let reply =
        TargetReply { seen: ReplyKind::Process(Exit::Code(0)), message: String::new(), retry_after: None };
    #[rustfmt::skip]
    let cases = [
        ("a task",                 "web",               "build.wanted",     3),
        ("another's result",       "/workers/checker",  "check.result",     3),
        ("another's life",         "/workers/checker",  "worker.lifecycle", 1),
        ("its own result",         "/workers/builder",  "build.result",     0),
        ("its own life",           "/workers/builder",  "worker.lifecycle", 0),
        ("a name that begins so",  "/workers/builder2", "build.result",     3),
    ];
    for (name, source, event_type, count) in cases {
        let delivery = delivery(source, event_type);
        let end = WorkerEnd::Run { outcome: &outcome, reply: &reply, report: None };
        let started = worker().started(&delivery, Timestamp::from_millis(1_000));
        let ended = worker().ended(&delivery, end, &settlement(&delivery, NextState::Delivered));
        assert_eq!(started.len() + ended.len(), count, "{name}");
    }
}

#[test]
fn the_same_settlement_tells_the_same_and_another_run_something_else() {
    let outcome = Outcome::Delivered { matched: None };
    let reply =
        TargetReply { seen: ReplyKind::Process(Exit::Code(0)), message: String::new(), retry_after: None };
    #[rustfmt::skip]
    let cases = [
        ("JSON",            r#" {"sum":42} "#, 0, json!({"sum": 42}), json!(null)),
        ("text",            "two\nlines\n",    0, json!("two\nlines"), json!(null)),
        ("JSON that is cut", "{\n[3 bytes left out]\n}", 3, json!("{\n[3 bytes left out]\n}"), json!(3)),
        ("nothing",         " \n",             0, json!(null), json!(null)),
    ];
    for (name, output, left_out, expected, cut) in cases {
        let delivery = delivery("web", "build.wanted");
        let report = RunReport { output: output.to_owned(), left_out, complaint: String::new() };
        let end = WorkerEnd::Run { outcome: &outcome, reply: &reply, report: Some(&report) };
        let settlement = settlement(&delivery, NextState::Delivered);
        let events = worker().ended(&delivery, end, &settlement);
        assert_eq!(events, worker().ended(&delivery, end, &settlement), "{name}");
        let data: Value = serde_json::from_slice(&events[0].data).expect("JSON");
        assert_eq!((&data["output"], &data["output_bytes_left_out"]), (&expected, &cut), "{name}");
        let later = PendingDelivery { written_at: Timestamp::from_millis(1_001), ..delivery };
        let others = worker().ended(&later, end, &settlement);
        let ids: std::collections::BTreeSet<_> =
            events.iter().chain(&others).map(|event| event.id.clone()).collect();
        assert_eq!(ids.len(), 4, "{name}");
        assert_eq!(events[0].session, later.event.session, "results keep the order of their session");
    }
}
