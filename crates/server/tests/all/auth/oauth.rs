//! OAuth 2: tokens of a real issuer, and what an issuer is asked.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::{SECRET, basic};
use crate::run::Folder;
use crate::server::{Lines, Server};
use crate::target::{Call, Say, Target, status};

/// `oauth2-mock-server`, as long as the test runs.
struct Issuer {
    child: Child,
    port: u16,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Issuer {
    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders down");
        let installed = Command::new(root.join("scripts/test-node")).stderr(Stdio::inherit()).output();
        let installed = installed.expect("the script can be run");
        assert!(installed.status.success(), "no issuer for the test: run scripts/test-node");
        let programs = String::from_utf8(installed.stdout).expect("a path");
        let mut command = Command::new(Path::new(programs.trim()).join("oauth2-mock-server"));
        command.args(["-a", "127.0.0.1", "-p", "0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it was installed");
        let lines = Lines::of(child.stdout.take().expect("it is piped"));
        let line = lines.wait_for("server listening on http://127.0.0.1:");
        let port = line.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        Self { child, port }
    }
}

fn start(book: &str) -> (Folder, Server) {
    let folder =
        Folder::with("redrive.yaml", &format!("version: 1\nsecrets: {{ token: {{ file: token }} }}\n{book}"));
    folder.write("token", SECRET);
    let server = Server::start(&folder);
    (folder, server)
}

#[test]
fn calls_carry_the_token_of_a_real_issuer() {
    let (issuer, target) = (Issuer::start(), Target::willing());
    let (_folder, server) = start(&format!(
        "services:
  orders:
    target:
      http: \"{}\"
      network: private
      auth: {{ oauth2: {{ token_url: \"http://localhost:{}/token\", client_id: me, client_secret: token, scope: orders }} }}
    events: [\"orders.*\"]
",
        target.url(),
        issuer.port
    ));
    for number in 0..20 {
        server.accept("orders.placed", &format!("o-{number}"), "");
    }
    for number in 0..20 {
        server.until(&format!("o-{number}"), "delivered");
    }
    let mut tokens: Vec<String> =
        target.calls().iter().map(|call| call.header("authorization").to_owned()).collect();
    tokens.dedup();
    let [token] = tokens.as_slice() else { panic!("one token for all: {tokens:?}") };
    let claims =
        token.strip_prefix("Bearer ").and_then(|token| token.split('.').nth(1)).expect("a signed token");
    let claims: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).expect("base64")).expect("JSON");
    let issuer = format!("http://localhost:{}", issuer.port);
    assert_eq!(
        (claims["iss"].as_str(), claims["scope"].as_str()),
        (Some(&*issuer), Some("orders")),
        "{claims}"
    );
    server.stop().assert_calm();
}

/// Gives every client a token of its own.
fn issuing() -> Target {
    Target::start(|call: &Call| {
        let token = call.path.trim_start_matches('/');
        Say::Status(200, "", format!("{{\"access_token\":\"token-{token}\",\"expires_in\":600}}"))
    })
}

#[test]
fn a_client_asks_its_issuer_as_the_book_says() {
    let (issuer, target) = (issuing(), Target::start(|_| status(200)));
    let grant = "grant_type=client_credentials";
    let (me, you) = (basic("me", SECRET), basic("you", SECRET));
    #[rustfmt::skip]
    let cases = [
        ("plain",    "client_id: me, client_secret: token",                               &*me,  grant.to_owned()),
        ("other",    "client_id: you, client_secret: token",                              &*you, grant.to_owned()),
        ("scoped",   "client_id: me, client_secret: token, scope: \"a b\"",               &*me,  format!("{grant}&scope=a+b")),
        ("audience", "client_id: me, client_secret: token, audience: crm",                &*me,  format!("{grant}&audience=crm")),
        ("body",     "client_id: me, client_secret: token, client_auth: body",            "",    format!("{grant}&client_id=me&client_secret={SECRET}")),
    ];
    let mut book = "services:\n".to_owned();
    for (name, client, ..) in &cases {
        book += &format!(
            "  {name}: {{ target: {{ http: \"{}\", auth: {{ oauth2: {{ token_url: \"http://{}/{name}\", {client} }} }} }}, events: [orders.{name}] }}\n",
            target.url(),
            issuer.address
        );
    }
    let (_folder, server) = start(&book);
    for (name, ..) in &cases {
        server.accept(&format!("orders.{name}"), name, "");
        server.until(name, "delivered");
    }
    let asked: BTreeMap<String, Call> =
        issuer.calls().into_iter().map(|call| (call.path.trim_start_matches('/').to_owned(), call)).collect();
    for (name, _, authorization, body) in &cases {
        let call = &asked[*name];
        assert_eq!(call.headers.get("authorization").map_or("", String::as_str), *authorization, "{name}");
        assert_eq!(String::from_utf8_lossy(&call.body), *body, "{name}");
    }
    let mut carried: Vec<String> =
        target.calls().iter().map(|call| call.header("authorization").to_owned()).collect();
    carried.sort();
    let mut expected: Vec<String> = cases.iter().map(|(name, ..)| format!("Bearer token-{name}")).collect();
    expected.sort();
    assert_eq!(carried, expected, "each client has a token of its own");
    server.stop().assert_calm();
}

#[test]
fn an_issuer_that_is_down_delays_a_delivery_and_costs_no_attempt() {
    let target = Target::willing();
    let issuer = Target::start(|_| status(503));
    let (_folder, server) = start(&format!(
        "services:
  orders:
    target: {{ http: \"{}\", auth: {{ oauth2: {{ token_url: \"http://{}/\", client_id: me, client_secret: token }} }} }}
    retry: none
    events: [\"orders.*\"]
",
        target.url(),
        issuer.address
    ));
    for number in 0..20 {
        server.accept("orders.placed", &format!("o-{number}"), "");
    }
    let told = "gave no token to client `me`: 503";
    for number in 0..20 {
        crate::server::until(told, || {
            let delivery = server.delivery(&format!("o-{number}"));
            assert_ne!(delivery["state"], "dead", "{delivery}");
            delivery.to_string().contains(told).then_some(())
        });
    }
    assert_eq!(target.count(), 0);
    assert!(issuer.count() <= 5, "{} requests for 20 deliveries", issuer.count());
    server.stop().assert_calm();
}
