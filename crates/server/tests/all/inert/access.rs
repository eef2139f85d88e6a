//! Pairs of servers whose books differ in one key that holds for the whole book.

use serde_json::{Value, json};

use super::{CONTROL, Group, Looked, start};
use crate::identity::{get, token};
use crate::server::{Server, until};

/// What is seen of a server.
type See = fn(&Server) -> String;

const ACCESS: &str = "access: { jwt: { secret: first, issuer: \"https://issuer.test\", audience: redrive } }";

#[rustfmt::skip]
const PAIRS: &[(&str, [&str; 2], See)] = &[
    (CONTROL,                      [ACCESS, ACCESS], opened),
    (CONTROL,                      ["", ""], kept),
    ("a rule book: access",        ["", ACCESS], opened),
    ("access: jwt",                ["access: { rate: 100/s }", ACCESS], opened),
    ("a token issuer: secret",     [ACCESS, "access: { jwt: { secret: second, issuer: \"https://issuer.test\", audience: redrive } }"], opened),
    ("a token issuer: issuer",     [ACCESS, "access: { jwt: { secret: first, issuer: \"https://another.test\", audience: redrive } }"], opened),
    ("a token issuer: audience",   [ACCESS, "access: { jwt: { secret: first, issuer: \"https://issuer.test\", audience: another } }"], opened),
    ("a token issuer: role_claim", [ACCESS, "access: { jwt: { secret: first, issuer: \"https://issuer.test\", audience: redrive, role_claim: own } }"], opened),
    ("defaults: waiting",          ["", "defaults: { waiting: { events: 1 } }"], piled),
    ("defaults: keep_delivered",   ["", "defaults: { keep_delivered: 1s }"], kept),
    ("a rule: alerts",             ["", "defaults: { alerts: [{ when: \"dead_letters > 0\", severity: high }] }"], alerted),
    ("a dead-letter rule: alert",  ["", "defaults: { dead_letter: { alert: 1/h } }"], alerted),
    ("a rule: idempotency",        ["defaults: { keep_delivered: 1s }", "defaults: { keep_delivered: 1s, idempotency: { ttl: 1s } }"], remembered),
    ("an idempotency rule: ttl",   ["defaults: { keep_delivered: 1s, idempotency: { ttl: 1d } }", "defaults: { keep_delivered: 1s, idempotency: { ttl: 1s } }"], remembered),
];

#[test]
fn keys_of_the_whole_book_change_what_happens() {
    let mut looked = Looked::at(Group::Access);
    for (key, values, see) in PAIRS {
        let servers = values.map(|line| {
            start(&format!(
                "version: 1
secrets: {{ first: {{ file: secret }}, second: {{ file: other }} }}
services:
  s: {{ target: {{ log: stdout }}, events: [a.b] }}
  bad: {{ target: {{ exec: [\"false\"] }}, on_failure: {{ unknown: dead-letter }}, events: [a.c] }}
{line}
"
            ))
        });
        looked.differ(key, || Some([see(&servers[0].1), see(&servers[1].1)]));
    }
    looked.end();
}

/// What callers with tokens, or without, may do.
fn opened(server: &Server) -> String {
    let cases = [token("first", &json!({})), token("first", &json!({ "own": "admin" }))];
    let statuses =
        cases.map(|token| (get(server, "/v1/audit", &token).status, get(server, "/v1/keys", &token).status));
    format!("{} {statuses:?}", server.get("/v1/audit").status)
}

fn post(server: &Server, path: &str, headers: &str) -> Value {
    let headers = format!("content-type: application/json\r\n{headers}");
    let answer = server.post(path, &headers, "{}");
    json!([answer.status, answer.json()["duplicate"]])
}

/// How events are answered that pile up.
fn piled(server: &Server) -> String {
    post(server, "/v1/services/s/pause", "");
    let answers = [(); 3].map(|()| post(server, "/v1/events/a.b", ""));
    post(server, "/v1/services/s/resume", "");
    format!("{answers:?}")
}

/// Whether an event is still known a while after it was delivered.
fn kept(server: &Server) -> String {
    post(server, "/v1/events/a.b", "idempotency-key: e-1\r\n");
    // One that is on its way is not compared with one that was deleted.
    until("it is delivered, or deleted", || {
        let event = server.event("e-1");
        let deliveries = event["deliveries"].as_array().cloned().unwrap_or_default();
        let is_over = deliveries.iter().all(|delivery| delivery["state"] == "delivered");
        is_over.then(|| deliveries.len().to_string())
    })
}

/// Whether an event that comes again is known.
fn remembered(server: &Server) -> String {
    post(server, "/v1/events/a.b", "idempotency-key: e-1\r\n").to_string()
}

/// Which alerts fire once there are dead letters.
fn alerted(server: &Server) -> String {
    post(server, "/v1/events/a.c", "");
    let alerts = server.get("/v1/alerts").json()["alerts"].as_array().cloned().unwrap_or_default();
    let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
    firing.map(|alert| alert["name"].to_string()).collect()
}
