//! Calls of targets that authenticate: what they carry, what a refusal comes to, and that nothing tells the secret.

mod mutual;
mod oauth;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::run::{Folder, redrive};
use crate::server::{Server, contents, until};
use crate::target::{Call, Say, Target, status};
use crate::tls::{Authority, target_for};

const SECRET: &str = "hunter2-of-this-run";
/// `me:` and the secret, as basic authentication sends it.
const PAIR: &str = "bWU6aHVudGVyMi1vZi10aGlzLXJ1bg==";

/// The token of a client whose issuer gives one.
const TOKEN: &str = "granted-in-this-run";

/// The header of basic authentication.
fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// Services by name, each with its target, that take `orders.NAME`; the secrets are in files.
fn start(folder: Folder, services: &[(&str, String)]) -> (Folder, Server) {
    let mut book = "version: 1
secrets: { token: { file: token, cached: 0s, kept: 0s }, cert: { file: cert.pem }, key: { file: key.pem }, ca: { file: ca.pem } }
retry_policies: { quick: { initial: 20ms, max: 20ms, retries: 3, jitter: none } }
alerts: [{ use: credentials-refused, to: [ops] }]
receivers: { ops: { slack: \"http://127.0.0.1:9/\" } }
services:
"
    .to_owned();
    for (name, target) in services {
        book += &format!("  {name}: {{ target: {{ {target} }}, retry: quick, events: [orders.{name}] }}\n");
    }
    folder.write("redrive.yaml", book);
    folder.write("token", SECRET);
    let server = Server::start(&folder);
    (folder, server)
}

fn echo(call: &Call) -> Say {
    let sent = call.headers.iter().map(|(name, value)| format!("{name}: {value}; "));
    Say::Status(401, "", format!("you sent {}", sent.collect::<String>()))
}

/// Services whose credentials are refused, by the target, the issuer or in the handshake.
fn refused(target: &str, issuer: &str, locked: &str) -> [(&'static str, String); 7] {
    let with = |auth: &str| format!("http: \"{target}\", auth: {auth}");
    let client = |path: &str, more: &str| {
        with(&format!(
            "{{ oauth2: {{ token_url: \"http://{issuer}{path}\", client_id: me, client_secret: token{more} }} }}"
        ))
    };
    [
        ("bearer", with("{ bearer: token }")),
        ("basic", with("{ basic: { user: me, password: token } }")),
        ("key", with("{ api_key: { header: x-api-key, secret: token } }")),
        ("token", client("/gives", "")),
        ("client", client("/refuses", "")),
        ("form", client("/refuses", ", client_auth: body")),
        ("identity", format!("http: \"{locked}\", tls: {{ certificate: cert, key: key, ca: ca }}")),
    ]
}

/// Every path of the API that can be read, and those of the deliveries.
fn readable(deliveries: &[String]) -> Vec<String> {
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
    paths.extend(
        deliveries.iter().flat_map(|id| [format!("/v1/deliveries/{id}"), format!("/v1/dead-letters/{id}")]),
    );
    paths
}

#[test]
fn a_refused_credential_is_fatal_and_is_told_nowhere() {
    let target = Target::start(echo);
    let issuer = Target::start(|call| {
        if call.path == "/gives" {
            let body = format!("{{\"access_token\":\"{TOKEN}\",\"expires_in\":600}}");
            return Say::Status(200, "", body);
        }
        let said = format!("{} {}", call.header("authorization"), String::from_utf8_lossy(&call.body));
        let body = serde_json::json!({ "error": "invalid_client", "error_description": said });
        Say::Status(400, "", body.to_string())
    });
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let locked = target_for(&ours.pair("127.0.0.1"), mutual::known_to(&ours));
    let (folder, identity) = (Folder::with("ca.pem", &ours.pem()), theirs.pair("client"));
    identity.write(&folder);
    let services = refused(&target.url(), &issuer.address.to_string(), &locked);
    let (folder, server) = start(folder, &services);
    for (name, _) in &services {
        server.accept(&format!("orders.{name}"), name, "");
        let delivery = server.until(name, "dead");
        assert_eq!(delivery["attempts"], 1, "{delivery}");
        assert!(delivery.to_string().contains("fatal"), "{delivery}");
    }
    assert_eq!(target.count(), 4, "one call each");
    assert_eq!(issuer.count(), 3, "one request for each client");
    let sent: Vec<String> = target
        .calls()
        .iter()
        .map(|call| format!("{}{}", call.header("authorization"), call.header("x-api-key")))
        .collect();
    assert_eq!(
        sent,
        [format!("Bearer {SECRET}"), format!("Basic {PAIR}"), SECRET.to_owned(), format!("Bearer {TOKEN}")]
    );
    until("an alert that names them all", || {
        let alerts = server.get("/v1/alerts").json()["alerts"].to_string();
        services.iter().all(|(name, _)| alerts.contains(&format!("\"service={name}\""))).then_some(())
    });

    let ids =
        services.iter().map(|(name, _)| server.delivery(name)["id"].as_str().expect("an id").to_owned());
    let paths = readable(&ids.collect::<Vec<_>>());
    let pem = identity.key_pem();
    let key = pem.lines().nth(1).expect("a key has a line").to_owned();
    let assert_silent = |place: &str, bytes: &[u8]| {
        for secret in [SECRET, PAIR, TOKEN, &key] {
            let is_told = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_told, "{place} shows {secret}: {}", String::from_utf8_lossy(bytes));
        }
    };
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

#[test]
fn the_next_call_carries_a_rotated_secret_and_none_is_made_without_one() {
    let target =
        Target::start(|call| status(if call.header("authorization") == "Bearer new" { 200 } else { 503 }));
    let service = ("bearer", format!("http: \"{}\", auth: {{ bearer: token }}", target.url()));
    let folder = Folder::new();
    for file in ["cert.pem", "key.pem", "ca.pem"] {
        folder.write(file, "unused");
    }
    let (folder, server) = start(folder, &[service]);
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
