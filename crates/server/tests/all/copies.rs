//! What the keys of `idempotency` do, with a running server and over its restart.

use serde_json::{Value, json};

use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Call, Say, Target, status};

/// A book whose services take `orders.*` at a path of their own, each with lines of its own.
fn book(target: &Target, defaults: &str, services: &[(&str, &str)]) -> String {
    let services = services.iter().fold(String::new(), |lines, (name, idempotency)| {
        lines
            + &format!(
                "  {name}:\n    target: {{ http: \"http://{}/{name}\" }}\n    retry: quick\n    idempotency: {{ {idempotency} }}\n    events: [\"orders.*\"]\n",
                target.address
            )
    });
    format!(
        "version: 1\ndefaults: {{ {defaults} }}\nretry_policies:\n  quick: {{ initial: 20ms, max: 20ms, retries: 3, jitter: none }}\nservices:\n{services}"
    )
}

/// The answer's status, and what it says of the event: how many deliveries, and whether it is a copy.
fn send(server: &Server, id: &str, order: u32) -> (u16, Value, Value) {
    let body = json!({ "order": order }).to_string();
    let answer = server.post("/v1/events/orders.placed", &format!("idempotency-key: {id}\r\n"), body);
    let said = answer.json();
    (answer.status, said["deliveries"].clone(), said["duplicate"].clone())
}

fn ids(calls: &[Call], service: &str) -> Vec<String> {
    let path = format!("/{service}");
    let ours = calls.iter().filter(|call| call.path == path);
    ours.map(|call| call.event_id().to_owned()).collect()
}

#[test]
fn each_row_has_its_own_way_with_copies_over_a_restart() {
    let target = Target::willing();
    let services = [("each", "by: none"), ("once", "by: event-id"), ("orders", "key: data.order")];
    let folder = Folder::with("redrive.yaml", &book(&target, "", &services));
    let server = Server::start(&folder);
    assert_eq!(send(&server, "1", 7), (202, json!(3), json!(false)));
    assert_eq!(send(&server, "1", 7), (202, json!(1), json!(false)), "for the row that asks for each");
    assert_eq!(send(&server, "2", 7), (202, json!(2), json!(false)), "the order was delivered before");
    assert_eq!(send(&server, "1", 8).0, 409, "two rows remember another event of that id");
    target.until(6);
    server.stop().assert_calm();

    let server = Server::start(&folder);
    assert_eq!(send(&server, "2", 7), (202, json!(1), json!(false)));
    assert_eq!(send(&server, "3", 7), (202, json!(2), json!(false)));
    assert_eq!(send(&server, "4", 8), (202, json!(3), json!(false)), "another order");
    let calls = target.until(12);
    let sorted = |service: &str| {
        let mut ids = ids(&calls, service);
        ids.sort();
        ids.join(" ")
    };
    assert_eq!(sorted("each"), "1 1 2 2 3 4");
    assert_eq!(sorted("once"), "1 2 3 4");
    assert_eq!(sorted("orders"), "1 4");
    server.stop().assert_calm();
}

#[test]
fn a_book_of_one_row_knows_a_key_for_the_first_event_that_had_it() {
    let target = Target::willing();
    let folder =
        Folder::with("redrive.yaml", &book(&target, "", &[("orders", "key: \"{type}/{data.order}\"")]));
    let server = Server::start(&folder);
    let first = server.post("/v1/events/orders.placed", "idempotency-key: 1\r\n", r#"{"order":7,"n":1}"#);
    let copy = server.post("/v1/events/orders.placed", "idempotency-key: 2\r\n", r#"{"order":7,"n":2}"#);
    assert_eq!((copy.status, &copy.json()["receipt"]), (200, &first.json()["receipt"]), "{copy:?}");
    assert_eq!(copy.json()["duplicate"], true);
    let other = server.post("/v1/events/orders.paid", "idempotency-key: 3\r\n", r#"{"order":7}"#);
    assert_eq!((other.status, &other.json()["duplicate"]), (202, &json!(false)), "{other:?}");
    let bare = server.post("/v1/events/orders.placed", "idempotency-key: 4\r\n", "{}");
    assert_eq!((bare.status, &bare.json()["duplicate"]), (202, &json!(false)), "it has no key");
    assert_eq!(target.until(3).len(), 3);
    assert_eq!(server.status()["unrouted"], 0, "a copy is not an event that nobody wants");
    server.stop().assert_calm();
}

#[test]
fn a_row_forgets_after_its_own_time() {
    let target = Target::willing();
    let services = [("short", "ttl: 1s"), ("long", "ttl: 1h"), ("orders", "key: data.order, ttl: 1s")];
    let folder = Folder::with("redrive.yaml", &book(&target, "keep_delivered: 1s", &services));
    let server = Server::start(&folder);
    assert_eq!(send(&server, "1", 7), (202, json!(3), json!(false)));
    target.until(3);
    // Known for as long as the event is kept, and for its own time.
    until("two rows have forgotten it", || (send(&server, "1", 7).1 == json!(2)).then_some(()));
    let calls = target.until(5);
    assert_eq!((ids(&calls, "short").len(), ids(&calls, "orders").len()), (2, 2));
    assert_eq!(ids(&calls, "long"), ["1"], "the third row has not");
    server.stop().assert_calm();
}

#[test]
fn a_target_that_told_a_notification_is_not_called_again() {
    // It notifies, says so, and fails all the same; only the body of `told` has the id.
    let target = Target::start(|call: &Call| match call.path.as_str() {
        "/header" | "/event-id" | "/dead" => Say::Status(503, "notification-id: n-1\r\n", String::new()),
        "/told" => Say::Status(503, "", r#"{"notification_id":"n-2"}"#.to_owned()),
        _ => status(503),
    });
    let services = [
        ("header", "by: notification-id"),
        ("told", "by: notification-id"),
        ("silent", "by: notification-id"),
        ("event-id", "by: event-id"),
    ];
    let mut text = book(&target, "breaker: none", &services);
    text.push_str(&format!(
        "  dead:\n    target: {{ http: \"http://{}/dead\" }}\n    retry: none\n    idempotency: {{ by: notification-id }}\n    events: [\"orders.*\"]\n",
        target.address
    ));
    let folder = Folder::with("redrive.yaml", &text);
    let server = Server::start(&folder);
    assert_eq!(send(&server, "1", 7).0, 202);
    let deliveries = || server.event("1")["deliveries"].as_array().expect("a list").clone();
    let state = |service: &str| {
        let all = deliveries();
        let one = all.iter().find(|one| one["service"] == service).expect("it is there");
        one["state"].as_str().expect("a word").to_owned()
    };
    let services = ["header", "told", "silent", "event-id", "dead"];
    until("all have ended", || {
        let states = services.map(state);
        states.iter().all(|state| ["delivered", "dead"].contains(&state.as_str())).then_some(())
    });
    assert_eq!(services.map(state), ["delivered", "delivered", "dead", "dead", "dead"]);
    let calls = |service: &str| ids(&target.calls(), service).len();
    assert_eq!(services.map(calls), [1, 1, 4, 4, 1]);
    let header = deliveries().into_iter().find(|one| one["service"] == "header").expect("it is there");
    let id = header["id"].as_str().expect("an id").to_owned();
    server.stop().assert_calm();

    // What it has notified is known after a restart, and to a replay.
    let server = Server::start(&folder);
    let address = format!("http://{}", server.client.address);
    let told = folder.run(&["why", &id, "--server", &address]).printed();
    assert!(told.contains("skipped") && told.contains("is not called again"), "{told}");
    let replayed = folder.run(&["dlq", "replay", "--service", "dead", "--server", &address]).printed();
    assert!(replayed.contains("1 delivered"), "{replayed}");
    assert_eq!(calls("dead"), 1);
    server.stop().assert_calm();
}

#[test]
fn a_store_that_there_is_not_is_refused_with_what_to_write_instead() {
    let target = Target::willing();
    for store in ["redis", "postgres", "memory"] {
        let folder =
            Folder::with("redrive.yaml", &book(&target, "", &[("orders", &format!("store: {store}"))]));
        for command in
            [&["check", "redrive.yaml"][..], &["serve", "--rules", "redrive.yaml", "--listen", "127.0.0.1:0"]]
        {
            let run = folder.run(command);
            let said = format!("{}{}", run.stdout, run.stderr);
            assert_ne!(run.code, 0, "{command:?}: {said}");
            for words in ["error[not-built-in]", &format!("`{store}`"), "write `store: embedded`"] {
                assert!(said.contains(words), "{command:?}: {words}: {said}");
            }
        }
    }
    let folder = Folder::with("redrive.yaml", &book(&target, "", &[("orders", "store: embedded")]));
    Server::start(&folder).stop().assert_calm();
}
