//! Pairs of sources that differ in one key: both get the same signed call, and what is made of it must differ.

use ring::hmac;
use serde_json::Value;

use super::{CONTROL, Group, Looked, start};
use crate::server::Server;

/// Two sources; `%` stands for the source's name. One that has no lines is not in the book.
#[rustfmt::skip]
const PAIRS: &[(&str, [&str; 2])] = &[
    (CONTROL,                      ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: first }, type: h.one"]),
    (CONTROL,                      ["schedule: { cron: \"0 9 * * *\" }, type: h.one", "schedule: { cron: \"0 9 * * *\" }, type: h.one"]),
    ("a rule book: sources",       ["", "webhook: { scheme: hmac, secret: first }, type: h.one"]),
    ("a source: webhook",          ["schedule: { cron: \"0 9 * * *\" }, type: h.one", "webhook: { scheme: hmac, secret: first }, type: h.one"]),
    ("a source: schedule",         ["webhook: { scheme: hmac, secret: first }, type: h.one", "schedule: { cron: \"0 9 * * *\" }, type: h.one"]),
    ("a source: type",             ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: first }, type: \"h.{data.x}\""]),
    ("a source: subject",          ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: first }, type: h.one, subject: \"{data.x}\""]),
    ("a source: id",               ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: first }, type: h.one, id: \"{data.x}\""]),
    ("a source: session",          ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: first }, type: h.one, session: \"{data.x}\""]),
    ("a webhook source: scheme",   ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: github, secret: first }, type: h.one"]),
    ("a webhook source: secret",   ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: second }, type: h.one"]),
    ("a webhook source: body_max", ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: first, body_max: 4B }, type: h.one"]),
    ("a webhook source: rate",     ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: first, rate: 1/h }, type: h.one"]),
    ("a webhook source: header",   ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: first, header: x-sum }, type: h.one"]),
    ("a webhook source: algorithm", ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: first, algorithm: sha512 }, type: h.one"]),
    ("a webhook source: encoding", ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: first, encoding: base64 }, type: h.one"]),
    ("a webhook source: prefix",   ["webhook: { scheme: hmac, secret: first }, type: h.one", "webhook: { scheme: hmac, secret: first, prefix: \"sum=\" }, type: h.one"]),
    ("a schedule: cron",           ["schedule: { cron: \"0 9 * * *\" }, type: h.one", "schedule: { cron: \"30 9 * * *\" }, type: h.one"]),
    ("a schedule: zone",           ["schedule: { cron: \"0 9 * * *\" }, type: h.one", "schedule: { cron: \"0 9 * * *\", zone: Asia/Tokyo }, type: h.one"]),
];

#[test]
fn keys_of_sources_change_what_happens() {
    let lines =
        PAIRS.iter().enumerate().flat_map(|(number, (_, values))| names(number).into_iter().zip(*values));
    let lines = lines.filter(|(_, line)| !line.is_empty());
    let sources = lines.fold(String::new(), |text, (name, line)| text + &format!("  {name}: {{ {line} }}\n"));
    let (_folder, server) = start(&format!(
        "version: 1
secrets: {{ first: {{ file: secret }}, second: {{ file: other }} }}
sources:
{sources}"
    ));
    let mut looked = Looked::at(Group::Hooks);
    for (number, (key, _)) in PAIRS.iter().enumerate() {
        let answers = names(number).map(|source| called(&server, &source));
        looked.differ(key, || {
            let status = server.status();
            let [first, second] = names(number).map(|source| fires(&status, &source));
            let [one, other] = &answers;
            Some([first? + one, second? + other])
        });
    }
    looked.end();
    server.stop().assert_calm();
}

/// The two sources of a pair.
fn names(number: usize) -> [String; 2] {
    [format!("h{number}-a"), format!("h{number}-b")]
}

/// Calls a source twice; says how that was answered, and what the event looks like.
fn called(server: &Server, source: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"first");
    let call = |number: u32| {
        let body = format!("{{\"x\":\"own{number}\"}}");
        let signature = hmac::sign(&key, body.as_bytes());
        let digits = signature.as_ref().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let headers = format!("content-type: application/json\r\nx-signature: {digits}\r\n");
        server.post(&format!("/v1/hooks/{source}"), &headers, body)
    };
    let (first, second) = (call(1), call(2));
    let receipt = first.json()["receipt"].as_str().map(ToOwned::to_owned);
    let event = receipt.map(|receipt| server.event(&receipt)["event"].clone()).unwrap_or_default();
    let shown = ["id", "type", "subject", "partitionkey"].map(|name| event[name].to_string());
    format!("{} {} {shown:?}", first.status, second.status)
}

/// When a schedule of that name fires; none while nobody knows.
fn fires(status: &Value, source: &str) -> Option<String> {
    let schedules = status["schedules"].as_array().cloned().unwrap_or_default();
    match schedules.iter().find(|schedule| schedule["name"] == source) {
        Some(schedule) => Some(schedule["next_fire"].as_str()?.to_owned()),
        None => Some(String::new()),
    }
}
