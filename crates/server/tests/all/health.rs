//! Liveness and readiness of a real server: what each means, and who hears names.

use serde_json::{Value, json};

use crate::identity::key_on_folder;
use crate::run::{Folder, redrive};
use crate::server::{Server, until};
use crate::target::{Target, book, status};

#[track_caller]
fn ready(server: &Server, headers: &str) -> (u16, Value) {
    let head = format!("GET /readyz HTTP/1.1\r\nhost: localhost\r\n{headers}connection: close\r\n\r\n");
    let answer = server.client.ask(&head, "");
    (answer.status, answer.json())
}

/// What is wrong, for machines.
fn whats(body: &Value) -> Vec<&str> {
    let degraded = body["degraded"].as_array().expect("a list");
    degraded.iter().map(|entry| entry["what"].as_str().expect("a word")).collect()
}

fn broken_book(target: &Target) -> String {
    book(target, &["depends_on: shop"])
        + "breakers: { touchy: { trip: { consecutive: 2 }, open: 1m } }\ndependencies: { shop: { kind: webhook, breaker: touchy } }\n"
}

#[test]
fn a_server_is_ready_while_it_takes_events_and_says_what_is_wrong_beside() {
    let target = Target::start(|_| status(503));
    let folder = Folder::with("redrive.yaml", &broken_book(&target));
    let server = Server::start(&folder);
    assert_eq!(ready(&server, ""), (200, json!({ "status": "ready", "degraded": [] })));
    server.accept("orders.placed", "o-1", "");
    until("the breaker is open", || (whats(&ready(&server, "").1) == ["breaker-open"]).then_some(()));
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    folder.write("redrive.yaml", "version: 1\nservices: 7\n");
    let body = until("three things are wrong", || {
        let (code, body) = ready(&server, "");
        assert_eq!(code, 200, "{body}");
        (whats(&body) == ["book-refused", "breaker-open", "service-paused"]).then_some(body)
    });
    assert_eq!(body["status"], "degraded");
    let whys: Vec<&str> = body["degraded"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|entry| entry["why"].as_str())
        .collect();
    assert_eq!(whys[1..], ["a breaker is open: shop", "a service is paused: orders"], "{body}");
    assert!(body["degraded"][2]["since"].is_string(), "{body}");
    assert_eq!(server.get("/healthz").json(), json!({ "status": "ok" }));

    folder.write("redrive.yaml", broken_book(&target));
    until("the book is read", || (!whats(&ready(&server, "").1).contains(&"book-refused")).then_some(()));
    server.stop().assert_calm();
}

#[test]
fn names_are_told_to_those_alone_who_may_read() {
    let target = Target::start(|_| status(503));
    let folder = Folder::with("redrive.yaml", &broken_book(&target));
    let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
    let viewer = key_on_folder(&folder, &["look", "--role", "viewer"]);
    let sender = key_on_folder(&folder, &["send", "--role", "ingest"]);
    let bound = key_on_folder(&folder, &["part", "--role", "viewer", "--service", "orders"]);
    let server = Server::start(&folder);
    let bearer = |key: &str| format!("authorization: Bearer {key}\r\n");
    let sent = server.post("/v1/events/orders.placed", &bearer(&sender), "{}");
    assert_eq!(sent.status, 202, "{sent:?}");
    until("a breaker is open", || (whats(&ready(&server, "").1) == ["breaker-open"]).then_some(()));
    #[rustfmt::skip]
    let cases = [
        ("nobody",   String::new(),   "a breaker is open"),
        ("a sender", bearer(&sender), "a breaker is open"),
        ("one who is bound", bearer(&bound), "a breaker is open"),
        ("a viewer", bearer(&viewer), "a breaker is open: shop"),
        ("an admin", bearer(&admin),  "a breaker is open: shop"),
    ];
    for (name, headers, why) in cases {
        let (code, body) = ready(&server, &headers);
        assert_eq!((code, &body["degraded"][0]["why"]), (200, &json!(why)), "{name}: {body}");
    }
    let (code, body) = ready(&server, &bearer("rk_0123abcd_nothing"));
    assert_eq!(code, 401, "a bad key is one here too: {body}");
    server.stop().assert_calm();
}

#[test]
fn a_command_tells_by_its_exit_code() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let url = format!("http://{}", server.client.address);
    assert_eq!(redrive(&["health", "--server", &url]).printed(), "the server is alive\n");
    assert_eq!(redrive(&["health", "--ready", "--server", &url]).printed(), "ready\n");
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    let paused = until("it is degraded", || {
        let printed = redrive(&["health", "--ready", "--server", &url]).printed();
        (printed != "ready\n").then_some(printed)
    });
    assert_eq!(paused, "degraded\n  service-paused: a service is paused: orders\n");
    server.stop().assert_calm();
    assert_eq!(redrive(&["health", "--server", &url]).code, 3, "nothing answers");
}
