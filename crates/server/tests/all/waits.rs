//! Why deliveries wait and how services are, as a real server tells it: one answer in every view.

use serde_json::{Value, json};

use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Target, book, gated};

/// The service of that name in an answer with `services`.
fn service(answer: &Value, name: &str) -> Value {
    let services = answer["services"].as_array().expect("a list");
    services.iter().find(|one| one["service"] == name).cloned().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn only_the_row_whose_breaker_is_open_is_held_in_every_view() {
    let (target, gate) = gated();
    let rules = format!(
        "version: 1
dependencies:
  down: {{ kind: webhook }}
  up: {{ kind: webhook, in_flight: 1 }}
services:
  orders:
    target: {{ http: \"{}\" }}
    retry: standard
    events: [{{ type: orders.a, depends_on: down }}, {{ type: orders.b, depends_on: up }}]
",
        target.url()
    );
    let folder = Folder::with("redrive.yaml", &rules);
    let server = Server::start(&folder);
    assert_eq!(server.post("/v1/dependencies/down/trip", "", "").status, 200);
    for (event_type, id) in [("orders.a", "a-1"), ("orders.b", "b-1"), ("orders.b", "b-2")] {
        server.accept(event_type, id, "");
    }
    until("the first of the free row is called", || (target.count() == 1).then_some(()));

    let waits = |id: &str| server.event(id)["deliveries"][0].clone();
    let expected = [
        ("a-1", "held", "breaker", json!("down"), "the circuit breaker of down is open"),
        ("b-1", "pending", "running", json!(null), "an attempt is running"),
        ("b-2", "pending", "in-flight", json!("up"), "up has 1 of 1 calls in flight"),
    ];
    let url = format!("http://{}", server.client.address);
    let listed = server.get("/v1/deliveries").json();
    for (id, state, on, dependency, because) in expected {
        let list = listed["deliveries"].as_array().expect("a list");
        let in_list = list.iter().find(|delivery| delivery["event_id"] == id).expect("it is listed");
        for (view, told) in [("list", in_list), ("event", &waits(id)), ("detail", &server.delivery(id))] {
            let waits = &told["waits"];
            assert_eq!((&told["state"], &waits["on"]), (&json!(state), &json!(on)), "{id} in the {view}");
            assert_eq!(
                (&waits["dependency"], &waits["because"]),
                (&dependency, &json!(because)),
                "{id} in the {view}"
            );
            assert_eq!(waits["until"].is_string(), on == "breaker", "{id} in the {view}: {waits}");
        }
        let delivery = in_list["id"].as_str().expect("an id");
        for arguments in [["why", delivery], ["show", id]] {
            let printed = folder.run(&[&arguments[..], &["--server", &url]].concat()).printed();
            assert!(printed.contains(because), "{arguments:?}: {printed}");
        }
    }

    let orders = service(&server.get("/v1/services").json(), "orders");
    assert_eq!(orders["rows"][0]["waits"]["because"], "the circuit breaker of down is open", "{orders}");
    assert_eq!(orders["rows"][1]["waits"], json!(null), "{orders}");
    let why = "events of type orders.a wait: the circuit breaker of down is open";
    assert_eq!((&orders["health"], &orders["why"]), (&json!("degraded"), &json!(why)));
    let in_status = service(&server.status(), "orders");
    assert_eq!((&in_status["health"], &in_status["why"]), (&json!("degraded"), &json!(why)));
    assert!(in_status["why_until"].is_string(), "{in_status}");
    let printed = folder.run(&["status", "--server", &url]).printed();
    assert!(printed.contains(&format!("degraded: {why} until 2")), "{printed}");

    gate.open();
    for id in ["b-1", "b-2"] {
        assert_eq!(server.until(id, "delivered")["waits"], json!(null));
    }
    assert_eq!(waits("a-1")["state"], "held", "the other row goes on without it");
    server.stop().assert_calm();
}

#[test]
fn a_service_with_failures_only_or_dead_letters_is_not_healthy() {
    let target = Target::saying(&[400]);
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let url = format!("http://{}", server.client.address);
    let health = || {
        let orders = service(&server.get("/v1/services").json(), "orders");
        let in_status = service(&server.status(), "orders");
        assert_eq!((&in_status["health"], &in_status["why"]), (&orders["health"], &orders["why"]));
        let (word, why) =
            (orders["health"].as_str().expect("a word"), orders["why"].as_str().expect("words"));
        let printed = folder.run(&["status", "--server", &url]).printed();
        assert!(printed.contains(&format!("{word}: {why}")), "{printed}");
        format!("{word}: {why}")
    };
    assert_eq!(health(), "idle: no attempts in the last minute and none since the server started");
    for id in ["1", "2", "3"] {
        server.accept("orders.placed", id, "");
        server.until(id, "dead");
    }
    assert_eq!(health(), "failing: all 3 attempts in the last minute failed");
    // After a restart no attempt is known, and the letters are still there.
    server.stop().assert_calm();
    let server = Server::start(&folder);
    let orders = service(&server.get("/v1/services").json(), "orders");
    assert_eq!((&orders["health"], &orders["why"]), (&json!("degraded"), &json!("3 dead letters are open")));
    server.stop().assert_calm();
}
