//! The correlation id goes from whoever asks to every answer, and with an event to every attempt; so does the
//! trace.

use std::collections::BTreeSet;

use serde_json::json;

use crate::client::Answer;
use crate::run::Folder;
use crate::server::{Server, serve};
use crate::target::{Target, book, status};

const OWN: &str = "x-correlation-id: c-7\r\n";

fn id_of(answer: &Answer) -> &str {
    answer.header("x-correlation-id").unwrap_or_else(|| panic!("{answer:?}"))
}

#[test]
fn every_answer_has_the_id_of_its_request_or_a_new_one() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &["--body-max", "1KiB"]));
    let long = "p".repeat(9_000);
    let too_much = format!("\"{}\"", "x".repeat(2_000));
    #[rustfmt::skip]
    let cases = [
        ("a success",      "GET /healthz",        OWN,                                   "",               200),
        ("an event",       "POST /v1/events/a.b", OWN,                                   "{}",             202),
        ("no event",       "POST /v1/events/a.b", OWN,                                   "{",              400),
        ("a page",         "GET /healthz",        "x-correlation-id: c-7\r\norigin: https://evil.test\r\n", "", 403),
        ("nowhere",        "GET /nowhere",        OWN,                                   "",               404),
        ("a wrong method", "PUT /v1/events",      OWN,                                   "",               405),
        ("too large",      "POST /v1/events/a.b", OWN,                                   too_much.as_str(), 413),
        ("a stream",       "GET /v1/dead-letters/export", OWN,                           "",               200),
    ];
    for (name, line, headers, body, expected) in cases {
        let length = body.len();
        let ask = |headers: &str| {
            let head = format!(
                "{line} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
            );
            server.client.ask(&head, body)
        };
        let answer = ask(headers);
        assert_eq!((answer.status, id_of(&answer)), (expected, "c-7"), "{name}");
        let [one, other] = [ask(""), ask("x-correlation-id: two words\r\n")];
        assert_ne!(id_of(&one), id_of(&other), "{name}");
    }
    let long = server.get(&format!("/{long}"));
    assert_eq!(long.error(), (414, "URI_TOO_LONG".to_owned()));
    server.stop().assert_calm();
}

#[test]
fn an_event_that_is_tied_to_none_is_tied_to_its_request_up_to_every_attempt() {
    let target = Target::start(|call| match (call.event_id(), call.nth) {
        ("o-easy", 1) => status(503),
        _ => status(200),
    });
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let event = |id: &str, more: &str| {
        format!(r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"orders.placed"{more}}}"#)
    };
    let structured = format!("content-type: application/cloudevents+json\r\n{OWN}");
    let batch = format!("content-type: application/cloudevents-batch+json\r\n{OWN}");
    let own = event("o-own", r#","correlationid":"mine""#);
    let path = "/v1/events";
    let made = server.post("/v1/events/orders.placed", "idempotency-key: o-made\r\n", "{}");
    let made = id_of(&made).to_owned();
    #[rustfmt::skip]
    let sent = [
        server.post("/v1/events/orders.placed", &format!("idempotency-key: o-easy\r\n{OWN}"), "{}"),
        server.post(path, &structured, event("o-one", "")),
        server.post(path, &structured, &own),
        server.post(path, &batch, format!("[{},{}]", event("o-b1", ""), event("o-b2", ""))),
    ];
    assert!(sent.iter().all(|answer| answer.status == 202), "{sent:?}");
    let expected = [
        ("o-made", made.as_str()),
        ("o-easy", "c-7"),
        ("o-one", "c-7"),
        ("o-own", "mine"),
        ("o-b1", "c-7"),
        ("o-b2", "c-7"),
    ];
    for (id, correlation) in expected {
        let delivery = server.until(id, "delivered");
        assert_eq!(delivery["correlation_id"], json!(correlation), "{id}");
        let calls: Vec<_> = target.calls().into_iter().filter(|call| call.event_id() == id).collect();
        assert_eq!(calls.len(), if id == "o-easy" { 2 } else { 1 }, "{id}");
        assert!(calls.iter().all(|call| call.headers["x-correlation-id"] == correlation), "{id}");
    }
    // Whoever sends it again does so in another request.
    let again = server.post(path, &structured.replace("c-7", "c-8"), event("o-one", ""));
    assert_eq!((again.status, again.json()["duplicate"].as_bool()), (200, Some(true)));
    server.stop().assert_calm();
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

#[test]
fn the_trace_of_a_request_is_that_of_its_events_and_each_attempt_has_its_own_place_in_it() {
    let target = Target::start(|call| match (call.event_id(), call.nth) {
        ("t-easy", 1 | 2) => status(503),
        _ => status(200),
    });
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let header = format!("traceparent: 00-{TRACE}-{SPAN}-01\r\ntracestate: a=1\r\n");
    let event = |id: &str, more: &str| {
        format!(r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"orders.placed"{more}}}"#)
    };
    let structured = format!("content-type: application/cloudevents+json\r\n{header}");
    let batch = format!("content-type: application/cloudevents-batch+json\r\n{header}");
    let binary = format!(
        "ce-specversion: 1.0\r\nce-id: t-binary\r\nce-source: /s\r\nce-type: orders.placed\r\n{header}"
    );
    let own = format!(r#","traceparent":"00-{}-{SPAN}-00""#, TRACE.replace("0af", "fff"));
    let (path, easy) = ("/v1/events", "/v1/events/orders.placed");
    let bad = "idempotency-key: t-bad\r\ntraceparent: 00-0-0-01\r\n";
    #[rustfmt::skip]
    let sent = [
        server.post(easy, &format!("idempotency-key: t-easy\r\n{header}"), "{}"),
        server.post(path, &structured, event("t-one", "")),
        server.post(path, &structured, event("t-own", &own)),
        server.post(path, &batch, format!("[{}]", event("t-list", ""))),
        server.post(path, &binary, "{}"),
        server.post(easy, bad, "{}"),
        server.post(easy, "idempotency-key: t-none\r\n", "{}"),
    ];
    assert!(sent.iter().all(|answer| answer.status == 202), "{sent:?}");
    let other = TRACE.replace("0af", "fff");
    #[rustfmt::skip]
    let expected = [
        ("t-easy",   Some((TRACE, "01")),          3),
        ("t-one",    Some((TRACE, "01")),          1),
        ("t-own",    Some((other.as_str(), "00")), 1),
        ("t-list",   Some((TRACE, "01")),          1),
        ("t-binary", Some((TRACE, "01")),          1),
        ("t-bad",    None,                         1),
        ("t-none",   None,                         1),
    ];
    let mut spans = BTreeSet::new();
    for (id, trace, attempts) in expected {
        server.until(id, "delivered");
        let calls: Vec<_> = target.calls().into_iter().filter(|call| call.event_id() == id).collect();
        assert_eq!(calls.len(), attempts, "{id}");
        for call in calls {
            let Some((trace, flags)) = trace else {
                assert!(!call.headers.contains_key("traceparent"), "{id} begins no trace: {call:?}");
                continue;
            };
            let parts: Vec<&str> = call.header("traceparent").split('-').collect();
            assert_eq!([parts[0], parts[1], parts[3]], ["00", trace, flags], "{id}");
            assert_ne!(parts[2], SPAN, "{id} is another span than the sender's");
            assert!(spans.insert(parts[2].to_owned()), "{id}: every attempt is a span of its own");
            let state = if id == "t-own" { "" } else { "a=1" };
            assert_eq!(call.header("tracestate"), state, "{id}");
        }
    }
    // Whoever sends it again does so in another trace.
    let later = structured.replace(SPAN, "00f067aa0ba902b7").replace("a=1", "a=2");
    let again = server.post(path, &later, event("t-one", ""));
    assert_eq!((again.status, again.json()["duplicate"].as_bool()), (200, Some(true)));
    server.stop().assert_calm();
}
