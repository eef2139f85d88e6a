//! Tokens of an issuer whom the book believes: who they speak of, and what that one may do.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};

use super::get;
use crate::run::Folder;
use crate::server::{Server, serve};

const SECRET: &str = "a secret that the issuer shares with us, and nobody else";
const BOOK: &str = "version: 1
secrets: { issuer: { env: ISSUER_SECRET } }
access:
  rate: 1000/s
  jwt: { secret: issuer, issuer: \"https://issuer.test\", audience: redrive, role_claim: role }
";

fn seconds_from_now(seconds: u64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
    (now + Duration::from_secs(seconds)).as_secs()
}

pub(crate) fn token(secret: &str, more: &Value) -> String {
    let mut claims = json!({
        "iss": "https://issuer.test", "aud": "redrive", "sub": "alice@example.test",
        "exp": seconds_from_now(600), "role": "operator",
    });
    claims.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({ "alg": "HS256", "typ": "JWT" })), part(&claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{signed}.{signature}")
}

#[test]
fn a_token_opens_what_its_role_may() {
    let folder = Folder::with("redrive.yaml", BOOK);
    let mut command = serve(&folder, &["--rules", "redrive.yaml"]);
    command.env("ISSUER_SECRET", SECRET);
    let server = Server::run(command);
    server.out.wait_for("authentication required");
    #[rustfmt::skip]
    let cases = [
        ("an operator looks",          SECRET,         json!({}),                                  "/v1/audit", 200),
        ("and is no admin",            SECRET,         json!({}),                                  "/v1/keys",  403),
        ("an admin is",                SECRET,         json!({ "role": ["viewer", "admin"] }),     "/v1/keys",  200),
        ("one who only sends",         SECRET,         json!({ "role": "ingest" }),                "/v1/audit", 403),
        ("a role that nobody knows",   SECRET,         json!({ "role": "root" }),                  "/v1/audit", 403),
        ("another secret",             "another one",  json!({}),                                  "/v1/audit", 401),
        ("another audience",           SECRET,         json!({ "aud": "another" }),                "/v1/audit", 401),
        ("another issuer",             SECRET,         json!({ "iss": "https://evil.test" }),      "/v1/audit", 401),
        ("one whose time is over",     SECRET,         json!({ "exp": 1_000 }),                    "/v1/audit", 401),
    ];
    for (name, secret, claims, path, expected) in cases {
        let answer = get(&server, path, &token(secret, &claims));
        assert_eq!(answer.status, expected, "{name}: {answer:?}");
        assert_eq!(answer.header("ratelimit").is_some(), expected != 401, "{name}: {answer:?}");
    }
    // Whoever shows it is not told why, and whoever serves is: of many in a second, of the first.
    let log = server.err.wait_for("authentication failed");
    assert!(log.contains("token signature does not match"), "{log}");
    server.stop().assert_calm();
}

#[test]
fn what_somebody_does_with_a_token_is_on_record_under_their_name() {
    let folder = Folder::with("redrive.yaml", BOOK);
    let mut command = serve(&folder, &["--rules", "redrive.yaml"]);
    command.env("ISSUER_SECRET", SECRET);
    let server = Server::run(command);
    folder.write("token", token(SECRET, &json!({ "role": "admin" })));
    let url = format!("http://{}", server.client.address);
    let run = |arguments: &[&str]| {
        folder.run(&[arguments, &["--server", &url, "--key-file", "token"]].concat()).printed()
    };
    run(&["keys", "create", "ci", "--role", "viewer", "--quiet"]);
    let audit = run(&["audit"]);
    assert!(audit.contains("token of alice@example.test"), "{audit}");
    server.stop().assert_calm();
}
