//! `redrive serve` as people meet it: first steps, every way in, and every question it answers.

mod failures;
mod lifecycle;
mod refusals;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Answer;
use crate::run::Folder;
use crate::server::{Server, serve};
use crate::target::{Target, book};

#[test]
fn the_first_event_needs_no_rule_book() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    assert_eq!(server.get("/healthz").json(), json!({ "status": "ok" }));

    // What `curl -d` says of anything.
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let answer = server.post("/v1/events/greeting.sent", form, r#"{"hello":"world"}"#);
    assert_eq!(answer.status, 202, "{answer:?}");
    assert!(answer.header("x-correlation-id").is_some_and(|id| id.len() == 36), "{answer:?}");
    let accepted = answer.json();
    let (id, receipt) = (text(&accepted["id"]), text(&accepted["receipt"]));
    assert_eq!(accepted, json!({ "id": id, "receipt": receipt, "duplicate": false, "deliveries": 1 }));
    let parts: Vec<&str> = id.split('-').collect();
    assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{id}");
    assert!(parts[2].starts_with('7'), "a UUID of version 7: {id}");

    server.out.wait_for(&format!(r#" greeting.sent {id} {{"hello":"world"}}"#));
    server.until(&id, "delivered");
    server.stop().assert_calm();
}

#[test]
fn every_form_of_an_event_reaches_the_target_as_it_came() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let binary = "ce-specversion: 1.0\r\nce-id: b-1\r\nce-source: /shop\r\nce-type: orders.placed\r\nce-subject: 7\r\ncontent-type: text/plain\r\n";
    let structured =
        r#"{"specversion":"1.0","id":"s-1","source":"/shop","type":"orders.placed","data":{"n":1}}"#;
    let batch = r#"[{"specversion":"1.0","id":"a-1","source":"/shop","type":"orders.placed","data_base64":"AP8="},
        {"specversion":"1.0","id":"a-2","source":"/shop","type":"orders.paid"}]"#;
    let easy = "idempotency-key: e-1\r\nce-source: /till\r\nx-correlation-id: c-1\r\n";

    let taken = |answer: &Answer| {
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()
    };
    assert_eq!(taken(&server.post("/v1/events", binary, b"\xff not UTF-8"))["id"], "b-1");
    let of = |kind: &str| format!("content-type: application/cloudevents{kind}+json\r\n");
    assert_eq!(taken(&server.post("/v1/events", &of(""), structured))["id"], "s-1");
    let listed = taken(&server.post("/v1/events", &of("-batch"), batch));
    assert_eq!((&listed["events"][0]["id"], &listed["events"][1]["id"]), (&json!("a-1"), &json!("a-2")));
    let answer = server.post("/v1/events/orders.placed?partitionkey=customer%207", easy, "{}");
    assert_eq!(taken(&answer)["id"], "e-1");
    assert_eq!(answer.header("x-correlation-id"), Some("c-1"), "a client's own id is taken over");

    target.until(5);
    for id in ["b-1", "s-1", "a-1", "a-2", "e-1"] {
        server.until(id, "delivered");
    }
    let calls = target.calls();
    let call = |id: &str| calls.iter().find(|call| call.event_id() == id).expect("it came");
    assert_eq!(call("b-1").body, b"\xff not UTF-8");
    assert_eq!(call("b-1").header("content-type"), "text/plain");
    assert_eq!(call("b-1").header("ce-subject"), "7");
    assert_eq!(call("s-1").json(), json!({ "n": 1 }));
    assert_eq!(call("a-1").body, [0, 255]);
    assert_eq!(call("a-2").header("ce-type"), "orders.paid");
    assert_eq!(call("e-1").header("ce-source"), "/till");
    assert_eq!(call("e-1").header("ce-partitionkey"), "customer%207");
    assert!(calls.iter().all(|call| call.webhook_id().starts_with("msg_") && call.attempt() == 1));
    assert_eq!(server.event("e-1")["deliveries"][0]["session"], "customer 7");
    server.stop().assert_calm();
}

#[test]
fn what_came_before_is_not_taken_twice() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let post = |key: &str, body: &str| {
        server.post("/v1/events/orders.placed", &format!("idempotency-key: {key}\r\n"), body)
    };
    let first = post("k-1", "{}");
    assert_eq!(first.status, 202);
    let again = post("k-1", "{}");
    assert_eq!(again.status, 200);
    assert_eq!(again.json()["duplicate"], true);
    assert_eq!(again.json()["receipt"], first.json()["receipt"], "the first receipt");
    let other = post("k-1", "{\"other\":1}");
    assert_eq!(other.error(), (409, "CONFLICT".to_owned()));
    assert_eq!(other.json()["error"]["details"]["first_receipt"], first.json()["receipt"]);

    // A batch says for each event whether it is new, and one that contradicts what came before is no batch.
    let event = |id: &str, n: u32| json!({ "specversion": "1.0", "id": id, "source": "/v1/events", "type": "orders.placed", "data": n });
    let batch = |events: &[Value]| {
        let kind = "content-type: application/cloudevents-batch+json\r\n";
        server.post("/v1/events", kind, serde_json::to_vec(events).expect("JSON"))
    };
    let mixed = batch(&[event("k-2", 1), event("k-2", 1), event("k-3", 1)]);
    assert_eq!(mixed.status, 202, "{mixed:?}");
    let duplicates: Vec<Value> =
        (0..3).map(|place| mixed.json()["events"][place]["duplicate"].clone()).collect();
    assert_eq!(duplicates, [false, true, false]);
    assert_eq!(batch(&[event("k-2", 1), event("k-3", 1)]).status, 200);
    let at_odds = batch(&[event("k-5", 1), event("k-5", 2)]);
    assert_eq!(at_odds.error(), (409, "CONFLICT".to_owned()));
    assert_eq!(at_odds.json()["error"]["details"], json!({ "index": 1 }), "nothing of it has a receipt");
    let refused = batch(&[event("k-4", 1), event("k-3", 2)]);
    assert_eq!(refused.error(), (409, "CONFLICT".to_owned()));
    assert_eq!(refused.json()["error"]["details"]["index"], 1);
    assert_eq!(server.get("/v1/events/k-4").error(), (404, "EVENT_NOT_FOUND".to_owned()));

    for id in ["k-1", "k-2", "k-3"] {
        server.until(id, "delivered");
    }
    assert_eq!(target.count(), 3);
    server.stop().assert_calm();
}

#[test]
fn an_event_that_nobody_wants_is_kept_until_somebody_does() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let answer = server.post("/v1/events/parcels.sent", "idempotency-key: p-1\r\n", "{}");
    assert_eq!((answer.status, &answer.json()["deliveries"]), (202, &json!(0)), "{answer:?}");
    let event = server.event("p-1");
    assert_eq!((&event["unrouted"], &event["deliveries"]), (&json!(true), &json!([])), "{event}");
    assert_eq!(server.status()["unrouted"], 1);
    let route = || server.post("/v1/unrouted/route", "", "").json();
    assert_eq!(route(), json!({ "seen": 1, "routed": 0 }));

    folder
        .write("redrive.yaml", book(&target, &[]).replace("[\"orders.*\"]", "[\"orders.*\", \"parcels.*\"]"));
    server.signal("HUP");
    server.err.wait_for("rule book reloaded");
    assert_eq!(route(), json!({ "seen": 1, "routed": 1 }));
    server.until("p-1", "delivered");
    assert_eq!(target.calls()[0].event_id(), "p-1");
    assert_eq!(server.event("p-1")["unrouted"], false);
    assert_eq!(server.status()["unrouted"], 0);
    assert_eq!(route(), json!({ "seen": 0, "routed": 0 }));
    server.stop().assert_calm();
}

#[test]
fn a_delivery_tells_its_story_with_the_line_as_it_read_then() {
    let target = Target::saying(&[418, 404, 200]);
    let rules = book(&target, &["classify: [{ status: 418, as: transient }]", "on_failure: { 404: quick }"]);
    let folder = Folder::with("redrive.yaml", &rules.replace("20ms", "400ms"));
    let server = Server::start(&folder);
    let receipt = server.accept("orders.placed", "o-1", "");
    target.until(1);
    // The book changes between the attempts: the first was judged by the old one.
    let changed =
        rules.replace("20ms", "400ms").replace("    on_failure", "    # a line more\n    on_failure");
    folder.write("redrive.yaml", changed);
    server.signal("HUP");
    server.err.wait_for("rule book reloaded");
    let delivery = server.until("o-1", "delivered");

    let stories = delivery["stories"].as_array().expect("attempts");
    let seen: Vec<(&Value, &Value, &Value)> =
        stories.iter().map(|story| (&story["attempt"], &story["end"], &story["status"])).collect();
    let (failed, delivered) = (json!("failed"), json!("delivered"));
    let numbers: Vec<Value> = [1, 2, 3, 418, 404, 200].iter().map(|number| json!(number)).collect();
    assert_eq!(
        seen,
        [
            (&numbers[0], &failed, &numbers[3]),
            (&numbers[1], &failed, &numbers[4]),
            (&numbers[2], &delivered, &numbers[5])
        ]
    );
    assert_eq!(stories[0]["classified_line"], "classify: [{ status: 418, as: transient }]");
    assert_eq!(stories[0]["reaction_line"], "retry: quick");
    assert_eq!(stories[1]["reaction_line"], "on_failure: { 404: quick }");
    assert_ne!(stories[0]["book"], stories[1]["book"]);
    assert_eq!(stories[1]["reaction_at"]["line"], 10, "{}", stories[1]);

    assert_eq!(server.event(&receipt)["event"]["id"], "o-1", "found by its receipt too");
    let webhook_id = text(&delivery["webhook_id"]);
    assert_eq!(target.calls()[0].webhook_id(), webhook_id);
    assert_eq!(server.get(&format!("/v1/deliveries/{webhook_id}")).json()["id"], delivery["id"]);
    server.stop().assert_calm();
}

#[test]
fn the_first_digits_of_an_id_will_do_if_they_are_its_own() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    for number in 0..20 {
        server.accept("orders.placed", &format!("o-{number}"), "");
    }
    let listed = server.get("/v1/deliveries?limit=500").json();
    let ids: Vec<String> =
        listed["deliveries"].as_array().expect("a list").iter().map(|one| text(&one["id"])).collect();
    assert_eq!(ids.len(), 20);
    // There are 16 digits, so two of 20 ids begin with the same one.
    let alike = |length: usize| {
        ids.iter().find(|id| ids.iter().filter(|one| one[..length] == id[..length]).count() > 1)
    };
    let length = (1..32).rev().find(|length| alike(*length).is_some()).expect("20 are more than 16");
    let own = alike(length).expect("it was found");
    let ambiguous = server.get(&format!("/v1/deliveries/{}", &own[..length]));
    assert_eq!(ambiguous.error(), (409, "AMBIGUOUS_ID".to_owned()));
    let candidates = &ambiguous.json()["error"]["details"]["candidates"];
    assert!(candidates.as_array().is_some_and(|list| list.contains(&json!(own))), "{candidates}");
    let found = server.get(&format!("/v1/deliveries/{}", &own[..=length]));
    assert_eq!(found.json()["id"], own.as_str(), "{found:?}");
    assert_eq!(server.get("/v1/deliveries/ffffffffffff").error(), (404, "DELIVERY_NOT_FOUND".to_owned()));
    assert_eq!(server.get("/v1/deliveries/none").error(), (400, "VALIDATION_ERROR".to_owned()));

    // Lists go on where they ended.
    let first = server.get("/v1/deliveries?limit=12&service=orders").json();
    let next = text(&first["next"]);
    let second = server.get(&format!("/v1/deliveries?limit=12&before={next}")).json();
    let page = |page: &Value| page["deliveries"].as_array().expect("a list").len();
    assert_eq!((page(&first), page(&second)), (12, 8));
    assert_eq!(server.get("/v1/deliveries?colour=red").error(), (400, "VALIDATION_ERROR".to_owned()));
    server.stop().assert_calm();
}

#[test]
fn a_paused_service_waits_and_then_goes_on() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    assert_eq!(server.post("/v1/services/none/pause", "", "").error(), (404, "SERVICE_NOT_FOUND".to_owned()));
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    server.accept("orders.placed", "o-1", "");
    let held = server.until("o-1", "held");
    assert_eq!(
        (&held["waits"]["on"], &held["waits"]["because"]),
        (&json!("pause"), &json!("the service is paused"))
    );
    assert!(held["waits"]["since"].is_string(), "{held}");
    assert!(server.status()["services"][0]["paused_since"].is_string());
    assert_eq!(target.count(), 0);
    assert_eq!(server.post("/v1/services/orders/resume", "", "").status, 200);
    server.until("o-1", "delivered");
    server.stop().assert_calm();
}

#[test]
fn happenings_are_told_as_they_happen() {
    let target = Target::saying(&[503, 200]);
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let mut watch = server.client.connect().expect("it listens");
    watch.send(b"GET /v1/activity HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it reads");
    while !watch.line().expect("a head").is_empty() {}
    server.accept("orders.placed", "o-1", "");
    let mut told = Vec::new();
    while told.last().is_none_or(|what| what != "delivered") {
        let line = watch.line().expect("a line");
        if line.starts_with('{') {
            let happening: Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!(happening["event_id"], "o-1", "{line}");
            told.push(text(&happening["what"]));
        }
    }
    assert_eq!(told, ["accepted", "retrying", "delivered"]);
    // One who watches does not hold up the end.
    let asked = Instant::now();
    server.stop().assert_calm();
    assert!(asked.elapsed() < Duration::from_secs(4), "it took {:?}", asked.elapsed());
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text: {value}")).to_owned()
}
