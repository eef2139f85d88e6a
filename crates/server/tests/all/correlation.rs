//! The correlation id goes from whoever asks to every answer, and with an event to every attempt.

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
