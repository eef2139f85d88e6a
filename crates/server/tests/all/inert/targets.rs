//! Pairs of services that differ in one key: both get the same events, and what becomes of them must differ.

use std::fs;
use std::net::TcpListener;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{CONTROL, Group, Looked, start};
use crate::run::Folder;
use crate::server::Server;
use crate::target::{Call, Target};

/// Two services. In their lines `%` stands for the service's name, `@` for a target that takes everything, `#` for
/// its port and `~` for an address that never answers.
struct Pair {
    key: &'static str,
    values: [&'static str; 2],
    /// How the events come.
    come: Come,
    /// When the two can be compared.
    once: Once,
}

#[derive(Clone, Copy)]
enum Come {
    One,
    /// Three while the service is paused.
    Piled,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Once {
    Settled,
    /// Each has a result of its worker.
    Result,
}

const fn pair(key: &'static str, values: [&'static str; 2]) -> Pair {
    Pair { key, values, come: Come::One, once: Once::Settled }
}

const fn piled(key: &'static str, values: [&'static str; 2]) -> Pair {
    Pair { key, values, come: Come::Piled, once: Once::Settled }
}

const LONG: &str = r"head -c 5000 /dev/zero | tr '\\0' x";

#[rustfmt::skip]
const PAIRS: &[Pair] = &[
    pair(CONTROL, [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%" }"#]),
    pair(CONTROL, [r#"target: { exec: ["false"] }"#, r#"target: { exec: ["false"] }"#]),
    piled(CONTROL, ["target: { log: stdout }, waiting: { events: 1 }", "target: { log: stdout }, waiting: { events: 1 }"]),
    pair("a service: target", [r#"target: { http: "http://@/%" }"#, r#"target: { exec: ["false"] }"#]),
    pair("a channel: target", [r#"target: { log: stdout }, channels: { c: { events: ["k.%"] } }"#, r#"target: { log: stdout }, channels: { c: { target: { http: "http://@/%" }, events: ["k.%"] } }"#]),
    pair("an event row: subscription", [r#"target: { exec: ["false"] }"#, r#"target: { exec: ["false"] }, events: [{ type: "k.%", subscription: own }]"#]),
    pair("a target: http", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%/else" }"#]),
    pair("a target: format", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%", format: structured }"#]),
    pair("a target: secret", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%", secret: first }"#]),
    pair("a target: method", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%", method: PUT }"#]),
    pair("a target: path", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%", path: "/{{ type }}" }"#]),
    pair("a target: secret_path", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%", secret_path: path }"#]),
    pair("a target: query", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%", query: { a: b } }"#]),
    pair("a target: body", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%", body: "{{ id }}" }"#]),
    pair("a target: form", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%", form: { a: "{{ id }}" } }"#]),
    pair("a target: expect", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%", expect: "body == 'ok'" }"#]),
    pair("a target: headers", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%", headers: { x-tenant: acme } }"#]),
    pair("a target: auth", [r#"target: { http: "http://@/%" }"#, r#"target: { http: "http://@/%", auth: { bearer: first } }"#]),
    pair("an authentication: bearer", [r#"target: { http: "http://@/%", auth: { bearer: first } }"#, r#"target: { http: "http://@/%", auth: { bearer: second } }"#]),
    pair("an authentication: basic", [r#"target: { http: "http://@/%", auth: { bearer: first } }"#, r#"target: { http: "http://@/%", auth: { basic: { user: me, password: first } } }"#]),
    pair("an authentication: api_key", [r#"target: { http: "http://@/%", auth: { bearer: first } }"#, r#"target: { http: "http://@/%", auth: { api_key: { header: x-api-key, secret: first } } }"#]),
    pair("a basic authentication: user", [r#"target: { http: "http://@/%", auth: { basic: { user: me, password: first } } }"#, r#"target: { http: "http://@/%", auth: { basic: { user: you, password: first } } }"#]),
    pair("a basic authentication: password", [r#"target: { http: "http://@/%", auth: { basic: { user: me, password: first } } }"#, r#"target: { http: "http://@/%", auth: { basic: { user: me, password: second } } }"#]),
    pair("an API key: header", [r#"target: { http: "http://@/%", auth: { api_key: { header: x-api-key, secret: first } } }"#, r#"target: { http: "http://@/%", auth: { api_key: { header: x-key, secret: first } } }"#]),
    pair("an API key: secret", [r#"target: { http: "http://@/%", auth: { api_key: { header: x-api-key, secret: first } } }"#, r#"target: { http: "http://@/%", auth: { api_key: { header: x-api-key, secret: second } } }"#]),
    pair("a target: network", [r#"target: { http: "http://localhost:#/%" }"#, r#"target: { http: "http://localhost:#/%", network: private }"#]),
    pair("a target: ntfy", [r#"target: { ntfy: "http://@/%" }"#, r#"target: { ntfy: "http://@/%/else" }"#]),
    pair("a target: title", [r#"target: { ntfy: "http://@/%" }"#, r#"target: { ntfy: "http://@/%", title: "{{ type }}" }"#]),
    pair("a target: message", [r#"target: { ntfy: "http://@/%" }"#, r#"target: { ntfy: "http://@/%", message: "{{ type }}" }"#]),
    pair("a target: priority", [r#"target: { ntfy: "http://@/%" }"#, r#"target: { ntfy: "http://@/%", priority: high }"#]),
    pair("a target: tags", [r#"target: { ntfy: "http://@/%" }"#, r#"target: { ntfy: "http://@/%", tags: "{{ source }}" }"#]),
    pair("a target: click", [r#"target: { ntfy: "http://@/%" }"#, r#"target: { ntfy: "http://@/%", click: "https://a.test/{{ source }}" }"#]),
    pair("a target: once", [r#"target: { ntfy: "http://@/%" }"#, r#"target: { ntfy: "http://@/%", once: false }"#]),
    pair("a target: log", [r#"target: { http: "http://@/%" }"#, "target: { log: stdout }"]),
    piled("a target: batch_max", [r#"target: { http: "http://@/%", format: batch }"#, r#"target: { http: "http://@/%", format: batch, batch_max: 1 }"#]),
    pair("a timeout: tls", [r#"target: { http: "https://~/" }, timeout: { whole: 1s }"#, r#"target: { http: "https://~/" }, timeout: { whole: 1s, tls: 100ms }"#]),
    pair("a timeout: headers", [r#"target: { http: "http://~/" }, timeout: { whole: 1s }"#, r#"target: { http: "http://~/" }, timeout: { whole: 1s, headers: 100ms }"#]),
    pair("a target: exec", [r#"target: { exec: ["true"] }"#, r#"target: { exec: ["false"] }"#]),
    pair("a target: time_limit", ["target: { exec: [sleep, \"1\"], grace: 100ms }", "target: { exec: [sleep, \"1\"], grace: 100ms, time_limit: 200ms }"]),
    pair("a target: spawn_limit", [r#"target: { exec: ["true"] }"#, r#"target: { exec: ["true"], spawn_limit: 0ms }"#]),
    pair("a target: output", [r#"target: { exec: ["true"] }"#, r#"target: { exec: ["true"], output: "r.%" }"#]),
    pair("a target: grace", ["target: { exec: [sh, -c, \"trap 'sleep 1; echo yes > %.txt' TERM; sleep 3 & wait; wait\"], time_limit: 300ms }", "target: { exec: [sh, -c, \"trap 'sleep 1; echo yes > %.txt' TERM; sleep 3 & wait; wait\"], time_limit: 300ms, grace: 100ms }"]),
    pair("a target: memory", ["target: { exec: [sh, -c, \"x=$(head -c 60000000 /dev/zero | tr '\\\\0' x); sleep 1\"] }", "target: { exec: [sh, -c, \"x=$(head -c 60000000 /dev/zero | tr '\\\\0' x); sleep 1\"], memory: 8MiB }"]),
    pair("a target: folder", ["target: { exec: [sh, -c, \"echo yes > %.txt\"] }", "target: { exec: [sh, -c, \"echo yes > %.txt\"], folder: sub }"]),
    pair("a target: env", ["target: { exec: [sh, -c, \"test \\\"$OWN\\\" = 1\"] }", "target: { exec: [sh, -c, \"test \\\"$OWN\\\" = 1\"], env: { OWN: \"1\" } }"]),
    pair("a target: inherit", ["target: { exec: [sh, -c, \"test \\\"$REDRIVE_TEST_OWN\\\" = 1\"] }", "target: { exec: [sh, -c, \"test \\\"$REDRIVE_TEST_OWN\\\" = 1\"], inherit: [REDRIVE_TEST_OWN] }"]),
    Pair { key: "a target: output_max", values: ["target: { exec: [sh, -c, \"LONG\"], output: \"r.%\" }", "target: { exec: [sh, -c, \"LONG\"], output: \"r.%\", output_max: 1KiB }"], come: Come::One, once: Once::Result },
    pair("a rule: consumer_group", [r#"target: { exec: ["false"] }"#, r#"target: { exec: ["false"] }, consumer_group: own"#]),
    pair("a rule: dead_letter", [r#"target: { exec: ["false"] }"#, r#"target: { exec: ["false"] }, dead_letter: { form: redis }"#]),
    pair("a dead-letter rule: name", [r#"target: { exec: ["false"] }"#, r#"target: { exec: ["false"] }, dead_letter: { name: "_{service}.own" }"#]),
    pair("a dead-letter rule: queue", [r#"target: { exec: ["false"] }, dead_letter: { name: "{queue}:dlq", queue: one }"#, r#"target: { exec: ["false"] }, dead_letter: { name: "{queue}:dlq", queue: two }"#]),
    pair("a dead-letter rule: stage", [r#"target: { exec: ["false"] }, dead_letter: { name: "{queue}-dlq-{stage}", queue: q, stage: one }"#, r#"target: { exec: ["false"] }, dead_letter: { name: "{queue}-dlq-{stage}", queue: q, stage: two }"#]),
    pair("a dead-letter rule: form", [r#"target: { exec: ["false"] }, dead_letter: { form: envelope }"#, r#"target: { exec: ["false"] }, dead_letter: { form: redis }"#]),
    pair("a dead-letter rule: retention", [r#"target: { exec: ["false"] }"#, r#"target: { exec: ["false"] }, dead_letter: { retention: 1s }"#]),
    piled("a service: waiting", ["target: { log: stdout }", "target: { log: stdout }, waiting: { events: 1 }"]),
    piled("a backlog limit: events", ["target: { log: stdout }, waiting: { events: 2 }", "target: { log: stdout }, waiting: { events: 1 }"]),
    piled("a backlog limit: size", ["target: { log: stdout }, waiting: { size: 1MiB }", "target: { log: stdout }, waiting: { size: 1KiB }"]),
    piled("a backlog limit: when_full", ["target: { log: stdout }, waiting: { events: 1 }", "target: { log: stdout }, waiting: { events: 1, when_full: dead-letter }"]),
];

#[test]
fn keys_of_services_and_targets_change_what_happens() {
    let (target, silent) = (Target::willing(), TcpListener::bind("127.0.0.1:0").expect("a port is free"));
    let silent_at = silent.local_addr().expect("it is bound").to_string();
    let filled = |line: &str, service: &str| {
        let line = line.replace("LONG", LONG).replace('%', service).replace('~', &silent_at);
        line.replace('@', &target.address.to_string()).replace('#', &target.address.port().to_string())
    };
    let mut services =
        format!("  results: {{ target: {{ http: \"{}\" }}, events: [\"r.*\"] }}\n", target.url());
    for (number, pair) in PAIRS.iter().enumerate() {
        for (service, line) in names(number).iter().zip(pair.values) {
            let events = if line.contains(" events: [{") {
                String::new()
            } else {
                format!(", events: [\"k.{service}\"]")
            };
            services += &format!("  {service}: {{ {}{events} }}\n", filled(line, service));
        }
    }
    let (folder, server) = start(&format!(
        "version: 1
secrets: {{ first: {{ file: secret }}, second: {{ file: other }}, path: {{ file: path }} }}
defaults: {{ retry: none, breaker: none, on_failure: {{ unknown: dead-letter }} }}
services:
{services}"
    ));
    let answers: Vec<[String; 2]> = PAIRS
        .iter()
        .enumerate()
        .map(|(number, pair)| names(number).map(|service| send(&server, &service, pair.come)))
        .collect();
    let stage = Stage { folder: &folder, server: &server, target: &target };
    let mut looked = Looked::at(Group::Targets);
    for (number, pair) in PAIRS.iter().enumerate() {
        looked.differ(pair.key, || {
            let [first, second] = names(number).map(|service| stage.seen(&service, pair.once));
            let [one, other] = &answers[number];
            Some([first? + one, second? + other])
        });
    }
    looked.end();
    server.stop().assert_calm();
    drop(silent);
}

/// The two services of a pair.
fn names(number: usize) -> [String; 2] {
    [format!("s{number}-a"), format!("s{number}-b")]
}

/// Sends what is to come, and says how it was answered.
fn send(server: &Server, service: &str, come: Come) -> String {
    let data = format!("{{\"filling\":\"{}\"}}", "x".repeat(600));
    let json = "content-type: application/json\r\n";
    let post = || server.post(&format!("/v1/events/k.{service}"), json, &data).status;
    let order = |act: &str| {
        let answer = server.post(&format!("/v1/services/{service}/{act}"), json, "{}");
        assert_eq!(answer.status, 200, "{service}: {answer:?}");
    };
    match come {
        Come::One => format!("{:?}", [post()]),
        Come::Piled => {
            order("pause");
            let answers = [post(), post(), post()];
            order("resume");
            format!("{answers:?}")
        }
    }
}

struct Stage<'a> {
    folder: &'a Folder,
    server: &'a Server,
    target: &'a Target,
}

impl Stage<'_> {
    /// All that is seen of a service, without its name; none while something is under way.
    fn seen(&self, service: &str, once: Once) -> Option<String> {
        static LINE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"line \d+").expect("a pattern"));
        let list = |path: &str, key: &str| -> Vec<Value> {
            let answer = self.server.get(&format!("{path}?service={service}")).json();
            answer[key].as_array().cloned().unwrap_or_default()
        };
        let deliveries = list("/v1/deliveries", "deliveries");
        let is_over = |delivery: &Value| {
            ["delivered", "dead", "purged"].contains(&delivery["state"].as_str().unwrap_or_default())
        };
        if !deliveries.iter().all(is_over) {
            return None;
        }
        let results: Vec<usize> =
            self.calls(|call| call.header("ce-type") == format!("r.{service}"), |call| call.body.len());
        if once == Once::Result && results.is_empty() {
            return None;
        }
        let ends = deliveries.iter().map(|delivery| {
            let death = &delivery["death"];
            [&delivery["state"], &delivery["channel"], &death["code"], &death["message"]]
                .map(Value::to_string)
        });
        let ends: Vec<_> = ends.collect();
        let path = format!("/{service}");
        let mut calls = self.calls(
            |call| {
                let called = call.path.split('?').next().unwrap_or_default();
                called == path || called.starts_with(&format!("{path}/"))
            },
            |call| {
                let events = serde_json::from_slice::<Vec<Value>>(&call.body).map_or(0, |list| list.len());
                let is_signed = call.headers.contains_key("webhook-signature");
                let own = [
                    "content-type",
                    "authorization",
                    "x-api-key",
                    "x-key",
                    "x-tenant",
                    "title",
                    "priority",
                    "click",
                ];
                let own = own.map(|name| call.headers.get(name));
                let is_text = call.header("content-type").starts_with("text/plain");
                let text = String::from_utf8_lossy(if is_text { &call.body } else { &[] }).into_owned();
                // The delivery's own tag differs in any case.
                let tags = call.header("tags").split(',');
                let tags: Vec<_> = tags.map(|tag| if tag.starts_with("msg_") { "id" } else { tag }).collect();
                format!("{} {} {own:?} {tags:?} {text} {events} {is_signed}", call.method, call.path)
            },
        );
        calls.sort();
        let letters = list("/v1/dead-letters", "dead_letters").into_iter().map(|letter| {
            let id = letter["id"].as_str().unwrap_or_default();
            let written = self.server.get(&format!("/v1/dead-letters/{id}")).json();
            let keys: Vec<String> =
                written.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
            format!("{} {} {} {keys:?}", letter["name"], letter["subscription"], written["consumerGroup"])
        });
        let letters: Vec<_> = letters.collect();
        let file = fs::read_to_string(self.folder.path(&format!("{service}.txt"))).ok();
        let whole = format!("{ends:?} {calls:?} {results:?} {letters:?} {file:?}").replace(service, "%");
        Some(LINE.replace_all(&whole, "line").into_owned())
    }

    fn calls<T>(&self, is_meant: impl Fn(&Call) -> bool, show: impl Fn(&Call) -> T) -> Vec<T> {
        self.target.calls().iter().filter(|call| is_meant(call)).map(show).collect()
    }
}
