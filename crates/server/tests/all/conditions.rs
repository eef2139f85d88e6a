//! What events must look like, and which of them a row wants: `where` and `event_types` in a running server.

use std::fs;

use ring::hmac;
use serde_json::{Value, json};

use crate::run::{Folder, redrive};
use crate::server::{Server, until};
use crate::target::{Target, status};

const SCHEMAS: &str = "event_types:
  orders.placed:
    schema:
      type: object
      required: [total]
      properties: { total: { type: number, minimum: 0 }, mail: { type: string, format: email } }
  orders.packed:
    schema: { type: object, required: [box] }
    on_violation: dead-letter
";

const JSON: &str = "content-type: application/json\r\n";

fn send(server: &Server, event_type: &str, id: &str, data: &Value) -> (u16, Value) {
    let headers = format!("{JSON}idempotency-key: {id}\r\n");
    let answer = server.post(&format!("/v1/events/{event_type}"), &headers, data.to_string());
    (answer.status, answer.json())
}

/// The services that get the event, sorted.
fn services(server: &Server, id: &str) -> Vec<String> {
    let event = server.event(id);
    let deliveries = event["deliveries"].as_array().expect("a list");
    let mut names: Vec<String> =
        deliveries.iter().map(|one| one["service"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_row_gets_the_events_that_meet_its_condition() {
    let target = Target::willing();
    let url = target.url();
    let book = |limit: u32| {
        format!(
            "version: 1
services:
  large: {{ target: {{ http: \"{url}\" }}, events: [{{ type: orders.placed, where: \"data.total > {limit}\" }}, \"orders.*\"] }}
  europe: {{ target: {{ http: \"{url}\" }}, events: [{{ type: \"orders.*\", where: \"subject == 'eu' && data.items.exists(i, i.sku == 'a')\" }}] }}
"
        )
    };
    let folder = Folder::with("redrive.yaml", &book(100));
    let server = Server::start(&folder);
    let items = json!([{ "sku": "b" }, { "sku": "a" }]);
    #[rustfmt::skip]
    let cases = [
        ("1", "orders.placed", json!({ "total": 101 }),            vec!["large"]),
        // The wider row of the service does not take it.
        ("2", "orders.placed", json!({ "total": 99.5 }),           vec![]),
        ("3", "orders.packed", json!({ "total": 1 }),              vec!["large"]),
        // What cannot be evaluated is not met.
        ("4", "orders.placed", json!({ "total": "many" }),         vec![]),
        ("5", "orders.placed", json!({}),                          vec![]),
    ];
    for (id, event_type, data, expected) in cases {
        assert_eq!(send(&server, event_type, id, &data).0, 202, "{id}");
        assert_eq!(services(&server, id), expected, "{id}");
    }
    let headers = format!("{JSON}idempotency-key: 6\r\nce-subject: eu\r\n");
    let answer =
        server.post("/v1/events/orders.placed", &headers, json!({ "total": 1, "items": items }).to_string());
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(services(&server, "6"), ["europe"]);
    assert_eq!(server.event("2")["unrouted"], true, "it is recorded as wanted by no service");

    folder.write("redrive.yaml", book(50));
    let mut number = 0;
    until("the new condition acts", || {
        number += 1;
        let id = format!("r{number}");
        let (status, answer) = send(&server, "orders.placed", &id, &json!({ "total": 99 }));
        assert_eq!(status, 202, "{answer}");
        (services(&server, &id) == ["large"]).then_some(())
    });
    server.stop();
}

#[test]
fn an_event_that_violates_its_schema_is_refused_with_the_path() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &(crate::target::book(&target, &[]) + SCHEMAS));
    let server = Server::start(&folder);
    assert_eq!(send(&server, "orders.placed", "good", &json!({ "total": 1.5 })).0, 202);
    assert_eq!(send(&server, "orders.other", "free", &json!([])).0, 202, "without a schema");
    #[rustfmt::skip]
    let cases = [
        (json!({ "total": "hunter2" }),              "data/total", "violates the schema of its event type: the value is not of type \"number\""),
        (json!({}),                                  "data",       "violates the schema of its event type: \"total\" is a required property"),
        (json!({ "total": 1, "mail": "hunter2" }),   "data/mail",  "violates the schema of its event type: the value is not a \"email\""),
    ];
    for (data, field, reason) in cases {
        let (status, answer) = send(&server, "orders.placed", "bad", &data);
        assert_eq!(status, 400, "{answer}");
        let error = &answer["error"];
        assert_eq!(error["code"], "VALIDATION_ERROR", "{answer}");
        assert_eq!(
            (&error["details"]["field"], &error["details"]["reason"]),
            (&json!(field), &json!(reason))
        );
        assert!(!answer.to_string().contains("hunter2"), "{answer}");
    }
    assert_eq!(server.get("/v1/events/bad").status, 404, "nothing was stored");

    let event = |id: &str, total: Value| json!({ "specversion": "1.0", "id": id, "source": "/s", "type": "orders.placed", "data": { "total": total } });
    let batch = json!([event("b1", json!(1)), event("b2", json!(-1))]);
    let answer =
        server.post("/v1/events", "content-type: application/cloudevents-batch+json\r\n", batch.to_string());
    assert_eq!((answer.status, &answer.json()["error"]["details"]["index"]), (400, &json!(1)), "{answer:?}");
    assert_eq!(server.get("/v1/events/b1").status, 404, "a batch is accepted whole or not at all");

    let binary = format!(
        "{}ce-specversion: 1.0\r\nce-id: bytes\r\nce-source: /s\r\nce-type: orders.placed\r\n",
        "content-type: text/plain\r\n"
    );
    let answer = server.post("/v1/events", &binary, "total");
    assert_eq!(
        (answer.status, &answer.json()["error"]["details"]["field"]),
        (400, &json!("data")),
        "{answer:?}"
    );
    server.stop();
}

#[test]
fn by_rule_an_event_that_violates_its_schema_is_a_poison_dead_letter() {
    let target = Target::start(|_| status(200));
    let folder = Folder::with("redrive.yaml", &(crate::target::book(&target, &[]) + SCHEMAS));
    let server = Server::start(&folder);
    assert_eq!(send(&server, "orders.packed", "bad", &json!({ "bocks": "hunter2" })).0, 202);
    let delivery = server.until("bad", "dead");
    assert_eq!(delivery["attempts"], 0, "{delivery}");
    let letters = server.get("/v1/dead-letters?tier=poison").json();
    let letter = &letters["dead_letters"][0];
    assert_eq!(
        (&letter["category"], &letter["code"]),
        (&json!("invalid"), &json!("SCHEMA_VIOLATION")),
        "{letters}"
    );
    let whole = letters.to_string();
    assert!(
        whole.contains("`data` violates the schema of its event type: \\\"box\\\" is a required property"),
        "{whole}"
    );
    assert_eq!(target.count(), 0);
    assert_eq!(send(&server, "orders.packed", "good", &json!({ "box": 1 })).0, 202);
    server.until("good", "delivered");
    server.stop();
}

#[test]
fn a_source_records_what_violates_a_schema_and_goes_on() {
    let target = Target::willing();
    let sources = "sources:\n  spool: { folder: spool, type: orders.placed }\n  hook: { webhook: { scheme: hmac, secret: s, header: x-signature }, type: orders.placed }\nsecrets: { s: { file: secret } }\n";
    let folder = Folder::with("redrive.yaml", &(crate::target::book(&target, &[]) + sources + SCHEMAS));
    folder.write("secret", "hunter2");
    fs::create_dir(folder.path("spool")).expect("made");
    let server = Server::start(&folder);
    for (name, data) in [("1", "{\"total\":\"x\"}"), ("2", "{\"total\":2}")] {
        folder.write("new", data);
        fs::rename(folder.path("new"), folder.path(&format!("spool/{name}.json"))).expect("moved");
    }
    until("the good one is delivered", || (target.count() == 1).then_some(()));
    until("the bad one is gone", || (!folder.path("spool/1.json").exists()).then_some(()));
    let body = "{\"total\":\"x\"}";
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"hunter2"), body.as_bytes());
    let digits = tag.as_ref().iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
    let answer = server.post("/v1/hooks/hook", &format!("{JSON}x-signature: {digits}\r\n"), body);
    assert_eq!(
        (answer.status, &answer.json()["error"]["details"]["field"]),
        (400, &json!("data/total")),
        "{answer:?}"
    );
    until("both are on record", || {
        let refused = server.get("/v1/refused-hooks").json().to_string();
        (refused.matches("`data/total` violates the schema").count() == 2).then_some(())
    });
    server.stop();
}

#[test]
fn a_wrong_condition_or_schema_is_refused_by_check_with_its_place() {
    #[rustfmt::skip]
    let cases = [
        ("events: [{ type: a, where: \"data.total >\" }]",       ":5:32", "bad-where",  "invalid condition at character 13"),
        ("events: [{ type: a, where: \"order.total > 1\" }]",    ":5:32", "bad-where",  "unknown value `order`"),
        ("events: [{ type: a, where: \"data.total\" }, { type: a.b, where: \"1 + 1\" }]", ":5:68", "bad-where", "this is not true or false, but a value"),
        ("events: [a]\nevent_types: { a: { schema: { type: numbr } } }", ":6:29", "bad-schema", "invalid JSON Schema at `schema/type`"),
        ("events: [a]\nevent_types: { a: { schema: { $ref: \"http://h.test/s\" } } }", ":6:29", "bad-schema", "a schema refers to parts of itself only"),
    ];
    for (line, place, code, message) in cases {
        let book = format!("version: 1\nservices:\n  s:\n    target: {{ log: stdout }}\n    {line}\n");
        let folder = Folder::with("redrive.yaml", &book);
        let checked =
            redrive(&["check", "--format", "json", folder.path("redrive.yaml").to_str().expect("a path")]);
        let rows: Value = serde_json::from_str(&checked.stdout).expect("JSON");
        let row = &rows[0];
        assert_eq!(row["code"], code, "{line}: {rows}");
        assert_eq!(format!(":{}:{}", row["line"], row["column"]), place, "{line}: {rows}");
        assert!(row["message"].as_str().is_some_and(|text| text.contains(message)), "{line}: {rows}");
    }
}
