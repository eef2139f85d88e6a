//! Calls of targets that authenticate: what they carry, what a refusal comes to, and that nothing tells the secret.

use serde_json::Value;

use crate::run::{Folder, redrive};
use crate::server::{Server, contents, until};
use crate::target::{Call, Say, Target, status};

const SECRET: &str = "hunter2-of-this-run";
/// `me:` and the secret, as basic authentication sends it.
const PAIR: &str = "bWU6aHVudGVyMi1vZi10aGlzLXJ1bg==";

/// Services by name, each with its target's `auth`, that take `orders.NAME`; the secret is in a file.
fn start(target: &Target, services: &[(&str, &str)]) -> (Folder, Server) {
    let mut book = "version: 1
secrets: { token: { file: token, cached: 0s, kept: 0s } }
retry_policies: { quick: { initial: 20ms, max: 20ms, retries: 3, jitter: none } }
alerts: [{ when: \"dead_letters > 0\", severity: high, to: [ops] }]
receivers: { ops: { slack: \"http://127.0.0.1:9/\" } }
services:
"
    .to_owned();
    for (name, auth) in services {
        book += &format!(
            "  {name}: {{ target: {{ http: \"{}\", auth: {auth} }}, retry: quick, events: [orders.{name}] }}\n",
            target.url()
        );
    }
    let folder = Folder::with("redrive.yaml", &book);
    folder.write("token", SECRET);
    let server = Server::start(&folder);
    (folder, server)
}

fn echo(call: &Call) -> Say {
    let sent = call.headers.iter().map(|(name, value)| format!("{name}: {value}; "));
    Say::Status(401, "", format!("you sent {}", sent.collect::<String>()))
}

#[test]
fn a_refused_credential_is_fatal_and_is_told_nowhere() {
    let target = Target::start(echo);
    let services = [
        ("bearer", "{ bearer: token }"),
        ("basic", "{ basic: { user: me, password: token } }"),
        ("key", "{ api_key: { header: x-api-key, secret: token } }"),
    ];
    let (folder, server) = start(&target, &services);
    for (name, _) in services {
        server.accept(&format!("orders.{name}"), name, "");
        let delivery = server.until(name, "dead");
        assert_eq!(delivery["attempts"], 1, "{delivery}");
        assert!(delivery.to_string().contains("fatal"), "{delivery}");
    }
    assert_eq!(target.count(), 3, "one call each");
    let sent: Vec<String> = target
        .calls()
        .iter()
        .map(|call| format!("{}{}", call.header("authorization"), call.header("x-api-key")))
        .collect();
    assert_eq!(sent, [format!("Bearer {SECRET}"), format!("Basic {PAIR}"), SECRET.to_owned()]);
    until("an alert", || {
        server.get("/v1/alerts").json()["alerts"].as_array().is_some_and(|all| !all.is_empty()).then_some(())
    });

    let document: Value = serde_json::from_str(&redrive(&["openapi"]).printed()).expect("it is JSON");
    let paths = document["paths"].as_object().expect("there are paths").iter();
    let mut paths: Vec<String> = paths
        .filter(|(path, item)| {
            item.get("get").is_some()
                && !path.contains('{')
                && !["/v1/live", "/v1/activity"].contains(&path.as_str())
        })
        .map(|(path, _)| path.clone())
        .collect();
    let ids: Vec<String> =
        services.map(|(name, _)| server.delivery(name)["id"].as_str().expect("an id").to_owned()).into();
    paths
        .extend(ids.iter().flat_map(|id| [format!("/v1/deliveries/{id}"), format!("/v1/dead-letters/{id}")]));
    let mut is_masked = false;
    for path in paths {
        let answer = server.get(&path);
        is_masked |= answer.body.contains("[secret]");
        assert_silent(&path, answer.body.as_bytes());
    }
    assert!(is_masked, "what the target said is kept");
    let ended = server.stop();
    assert_silent("the log", (ended.stdout.clone() + &ended.stderr).as_bytes());
    for (path, bytes) in contents(&folder.path("data")) {
        assert_silent(&path.display().to_string(), &bytes);
    }
}

#[track_caller]
fn assert_silent(place: &str, bytes: &[u8]) {
    for secret in [SECRET, PAIR] {
        let tells = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!tells, "{place} tells {secret}: {}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn the_next_call_carries_a_rotated_secret_and_none_is_made_without_one() {
    let target =
        Target::start(|call| status(if call.header("authorization") == "Bearer new" { 200 } else { 503 }));
    let (folder, server) = start(&target, &[("bearer", "{ bearer: token }")]);
    folder.write("token", "new");
    server.accept("orders.bearer", "1", "");
    server.until("1", "delivered");
    folder.write("token", "");
    let calls = target.count();
    server.accept("orders.bearer", "2", "");
    let told = "call not made: secret `token` is unavailable";
    until(told, || server.delivery("2").to_string().contains(told).then_some(()));
    assert_eq!(target.count(), calls);
    server.stop();
}
