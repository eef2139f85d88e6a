//! Every answer that the doors give, in one table: the statuses of webhooks and of the API, each with its code.
//!
//! The page of errors names every code there is; one that is neither in the table nor in the list of those
//! that other tests show makes this test fail.

use std::collections::BTreeSet;
use std::fs;

use ring::hmac;
use serde_json::Value;

use crate::client::{Answer, Connection};
use crate::identity::key_on_folder;
use crate::inside::break_the_store;
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Target, status};

const SECRET: &str = "It's a Secret to Everybody";

/// Codes that it takes dead letters, replays, breakers, receivers or a broken store to see, with the test that shows each.
#[rustfmt::skip]
const SHOWN_ELSEWHERE: [(&str, &str); 12] = [
    ("DEPENDENCY_NOT_FOUND", include_str!("breakers.rs")),
    ("NO_BREAKER",           include_str!("breakers.rs")),
    ("RECEIVER_NOT_FOUND",   include_str!("seeing.rs")),
    ("UNSUPPORTED_ENCODING", include_str!("hostile.rs")),
    ("AMBIGUOUS_ID",         include_str!("serve.rs")),
    ("REPLAY_CONFLICT",      include_str!("letters.rs")),
    ("REPLAY_STATE",         include_str!("replay/odd.rs")),
    ("ONLY_POISON",          include_str!("replay/odd.rs")),
    ("SERVICE_GONE",         include_str!("replay/odd.rs")),
    ("EVENT_NOT_WANTED",     include_str!("replay/odd.rs")),
    ("SERVICE_IN_BOOK",      include_str!("removed.rs")),
    ("OUTCOME_UNKNOWN",      include_str!("folder.rs")),
];

fn book(target: &Target) -> String {
    format!(
        r#"version: 1
secrets:
  shared: {{ file: secret }}
  brief: {{ command: [cat, brief], cached: 50ms, kept: 100ms }}
sources:
  github:
    webhook: {{ scheme: github, secret: shared, body_max: 64KiB }}
    type: "github.{{header.x-github-event}}"
  limited:
    webhook: {{ scheme: hmac, secret: shared, rate: 1/h }}
    type: limited.called
  brief:
    webhook: {{ scheme: hmac, secret: brief }}
    type: brief.called
services:
  bot:
    target: {{ http: "{url}" }}
    events: ["github.*", "limited.*", "brief.*", "orders.*"]
  full:
    target: {{ http: "{url}" }}
    waiting: {{ events: 1 }}
    events: ["full.*"]
"#,
        url = target.url()
    )
}

fn signature(body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = hmac::sign(&key, body.as_bytes());
    tag.as_ref().iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

/// The headers of a call by GitHub.
fn github(delivery: &str, body: &str) -> String {
    let signature = signature(body);
    format!(
        "x-github-event: push\r\nx-github-delivery: {delivery}\r\nx-hub-signature-256: sha256={signature}\r\n"
    )
}

/// The header of a call by anybody else who signs.
fn signed(body: &str) -> String {
    format!("x-signature: {}\r\n", signature(body))
}

fn bearer(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

/// A method and path, headers, and a body.
type Asked<'a> = (&'a str, &'a str, &'a str);

#[track_caller]
fn ask(server: &Server, (what, headers, body): Asked<'_>) -> Answer {
    let length = body.len();
    let head = format!(
        "{what} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    server.client.ask(&head, body)
}

/// What was answered so far.
#[derive(Default)]
struct Seen(BTreeSet<(u16, String)>);

impl Seen {
    /// Holds an answer against what it should be; a success has no code.
    #[track_caller]
    fn check(&mut self, name: &str, answer: &Answer, status: u16, code: &str) {
        let told = if answer.status < 400 { (answer.status, String::new()) } else { answer.error() };
        assert_eq!(told, (status, code.to_owned()), "{name}: {answer:?}");
        let asks_to_wait = matches!(status, 429 | 503);
        assert_eq!(answer.header("retry-after").is_some(), asks_to_wait, "{name}: {answer:?}");
        self.0.insert(told);
    }
}

/// What is asked, with its name, and what should come back.
type Case<'a> = (&'a str, Asked<'a>, u16, &'a str);

/// The headers of callers with different keys.
struct Callers {
    admin: String,
    viewer: String,
    /// May send events of one source.
    bound: String,
    /// May ask once an hour.
    limited: String,
}

impl Callers {
    fn new(folder: &Folder) -> Self {
        let key = |arguments: &[&str]| bearer(&key_on_folder(folder, arguments));
        Self {
            admin: key(&["root", "--role", "admin"]),
            viewer: key(&["look", "--role", "viewer"]),
            bound: key(&["shop", "--role", "ingest", "--source", "/shop"]),
            limited: key(&["slow", "--role", "viewer", "--rate", "1/h"]),
        }
    }
}

#[test]
fn every_answer_of_the_doors_has_its_status_and_its_code() {
    let target = Target::start(|call| status(if call.header("ce-type") == "full.x" { 503 } else { 200 }));
    let folder = Folder::with("redrive.yaml", &book(&target));
    folder.write("secret", SECRET);
    folder.write("brief", SECRET);
    let callers = Callers::new(&folder);
    let server = Server::start(&folder);
    let admin = &callers.admin;
    let mut seen = Seen::default();
    // It takes ten seconds until it is answered.
    let mut dawdler = begin_slowly(&server);
    call_webhooks(&server, &mut seen);
    ask_the_api(&server, &callers, &mut seen);
    let full = until("too much waits", || {
        let answer = ask(&server, ("POST /v1/events/full.x", admin, "{}"));
        (answer.status != 202).then_some(answer)
    });
    seen.check("a service that is full", &full, 503, "BACKLOG_FULL");
    seen.check("a secret that is gone", &secret_gone(&server, &folder, admin), 503, "SERVICE_UNAVAILABLE");
    seen.check("too slow", &dawdler.answer().expect("an answer"), 408, "REQUEST_TIMEOUT");
    break_the_store(&folder.path("data"));
    let fault = until("it is noticed", || {
        let answer = ask(&server, ("GET /v1/audit", admin, ""));
        (answer.status != 200).then_some(answer)
    });
    seen.check("a fault of ours", &fault, 500, "INTERNAL_SERVER_ERROR");
    assert_all_codes(&seen);
}

fn call_webhooks(server: &Server, seen: &mut Seen) {
    let (body, large) = ("{\"a\":1}", "x".repeat(64 * 1024 + 1));
    let (good, other) = (github("d-1", body), github("d-1", "{}"));
    #[rustfmt::skip]
    let cases: [Case<'_>; 12] = [
        ("an event",               ("POST /v1/hooks/github", &good, body),                           202, ""),
        ("the same again",         ("POST /v1/hooks/github", &good, body),                           200, ""),
        ("another of its id",      ("POST /v1/hooks/github", &other, "{}"),                          200, ""),
        ("no signature",           ("POST /v1/hooks/github", "", body),                              401, "UNAUTHORIZED"),
        ("a bad signature",        ("POST /v1/hooks/github", &good, "{}"),                           401, "UNAUTHORIZED"),
        ("another header missing", ("POST /v1/hooks/github", &good.replace("x-github-event", "x"), body), 400, "VALIDATION_ERROR"),
        ("a form",                 ("POST /v1/hooks/github", &format!("{good}content-type: application/x-www-form-urlencoded\r\n"), body), 400, "VALIDATION_ERROR"),
        ("too large",              ("POST /v1/hooks/github", "", &large),                            413, "PAYLOAD_TOO_LARGE"),
        ("no such source",         ("POST /v1/hooks/gitlab", &good, body),                           404, "SOURCE_NOT_FOUND"),
        ("no call",                ("GET /v1/hooks/github", "", ""),                                 405, "METHOD_NOT_ALLOWED"),
        ("the only one an hour",   ("POST /v1/hooks/limited", &signed("1"), "1"),                    202, ""),
        ("one too many",           ("POST /v1/hooks/limited", &signed("2"), "2"),                    429, "RATE_LIMIT_EXCEEDED"),
    ];
    for (name, asked, status, code) in cases {
        seen.check(name, &ask(server, asked), status, code);
    }
}

fn ask_the_api(server: &Server, callers: &Callers, seen: &mut Seen) {
    let Callers { admin, viewer, bound, limited } = callers;
    let (huge, path) = ("x".repeat(1024 * 1024 + 1), format!("GET /v1/events/{}", "x".repeat(9 * 1024)));
    let many = (0..200).fold(admin.clone(), |all, number| format!("{all}x-{number}: 1\r\n"));
    let same = format!("{admin}idempotency-key: same\r\n");
    #[rustfmt::skip]
    let cases: [Case<'_>; 29] = [
        // Who comes, and whether they may.
        ("no key",                 ("GET /v1/status", "", ""),                                       401, "UNAUTHORIZED"),
        ("a bad key",              ("GET /v1/status", "x-api-key: rk_1\r\n", ""),                    401, "UNAUTHORIZED"),
        ("two keys",               ("GET /v1/status", &format!("{admin}{viewer}"), ""),              401, "UNAUTHORIZED"),
        ("a good key",             ("GET /v1/status", viewer, ""),                                  200, ""),
        ("another role",           ("POST /v1/services/bot/pause", viewer, ""),                     403, "FORBIDDEN"),
        ("another source",         ("POST /v1/events/orders.placed", bound, "{}"),                  403, "FORBIDDEN"),
        ("a key's own rate",       ("GET /v1/status", limited, ""),                                 200, ""),
        ("which is used up",       ("GET /v1/status", limited, ""),                                 429, "RATE_LIMIT_EXCEEDED"),
        // What they send.
        ("an event by the API",    ("POST /v1/events/orders.placed", &same, "{}"),                   202, ""),
        ("once more",              ("POST /v1/events/orders.placed", &same, "{}"),                   200, ""),
        ("and another",            ("POST /v1/events/orders.placed", &same, "[]"),                   409, "CONFLICT"),
        ("no event",               ("POST /v1/events", admin, "{}"),                                400, "VALIDATION_ERROR"),
        ("too large an event",     ("POST /v1/events/orders.placed", admin, &huge),                 413, "PAYLOAD_TOO_LARGE"),
        ("a long path",            (&path, admin, ""),                                              414, "URI_TOO_LONG"),
        ("many headers",           ("GET /v1/status", &many, ""),                                    431, "HEADERS_TOO_LARGE"),
        ("no request",             ("GET /v1/status", "host: elsewhere\r\n", ""),                    400, "BAD_REQUEST"),
        ("an odd limit",           ("GET /v1/refused-hooks?limit=x", admin, ""),                    400, "VALIDATION_ERROR"),
        ("a key of nobody's role", ("POST /v1/keys", admin, "{\"name\":\"a\",\"role\":\"king\"}"),  400, "VALIDATION_ERROR"),
        ("a new key",              ("POST /v1/keys", admin, "{\"name\":\"a\",\"role\":\"viewer\"}"), 201, ""),
        // What is not there.
        ("no such path",           ("GET /v1/nothing", admin, ""),                                  404, "PATH_NOT_FOUND"),
        ("no such event",          ("GET /v1/events/none", admin, ""),                              404, "EVENT_NOT_FOUND"),
        ("no such delivery",       ("GET /v1/deliveries/00000000", admin, ""),                      404, "DELIVERY_NOT_FOUND"),
        ("no such service",        ("POST /v1/services/none/pause", admin, ""),                     404, "SERVICE_NOT_FOUND"),
        ("no such letter",         ("GET /v1/dead-letters/00000000", admin, ""),                    404, "DEAD_LETTER_NOT_FOUND"),
        ("no such replay",         ("GET /v1/replays/9", admin, ""),                                404, "REPLAY_NOT_FOUND"),
        ("no such key",            ("POST /v1/keys/rk_00000000/revoke", admin, "{}"),               404, "KEY_NOT_FOUND"),
        ("no such refused body",   ("GET /v1/refused-hooks/9", admin, ""),                          404, "REFUSED_BODY_NOT_FOUND"),
        // What everybody may have.
        ("how it is",              ("GET /healthz", "", ""),                                         200, ""),
        ("what there is",          ("GET /openapi.json", "", ""),                                    200, ""),
    ];
    for (name, asked, status, code) in cases {
        seen.check(name, &ask(server, asked), status, code);
    }
}

/// A call whose body does not come.
fn begin_slowly(server: &Server) -> Connection {
    let mut connection = server.client.connect().expect("it listens");
    let head = "POST /v1/hooks/github HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{";
    connection.send(head.as_bytes()).expect("it listens");
    connection
}

/// What a source answers whose secret was good, and cannot be had for longer than it is kept; it is an alert.
fn secret_gone(server: &Server, folder: &Folder, admin: &str) -> Answer {
    let mut listener = server.client.connect().expect("it listens");
    let listen = format!("GET /v1/activity HTTP/1.1\r\nhost: localhost\r\n{admin}\r\n");
    listener.send(listen.as_bytes()).expect("it listens");
    until("it is heard", || listener.line().ok().filter(String::is_empty));
    let taken = ask(server, ("POST /v1/hooks/brief", &signed("1"), "1"));
    assert_eq!(taken.status, 202, "{taken:?}");
    fs::remove_file(folder.path("brief")).expect("it is there");
    let mut number = 1;
    let answer = until("it is gone", || {
        number += 1;
        let body = number.to_string();
        let answer = ask(server, ("POST /v1/hooks/brief", &signed(&body), &body));
        (answer.status != 202).then_some(answer)
    });
    let told = until("an alert", || {
        let told: Value = serde_json::from_str(&listener.line().ok()?).ok()?;
        (told["what"] == "alert").then_some(told)
    });
    let message = told["message"].as_str().expect("words");
    assert!(message.starts_with("secret `brief` is unavailable"), "{message}");
    answer
}

/// Every code of the page of errors is one that was seen, or one that others show.
#[track_caller]
fn assert_all_codes(seen: &Seen) {
    let page = include_str!("../../../../docs/reference/errors.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let listed: BTreeSet<(u16, String)> = rows
        .filter_map(|row| {
            let mut cells = row.split(" | ");
            let status = cells.next()?.parse().ok()?;
            Some((status, cells.next()?.trim_matches('`').to_owned()))
        })
        .collect();
    assert!(listed.len() > 20, "{listed:?}");
    for (status, code) in &listed {
        let elsewhere = SHOWN_ELSEWHERE.iter().find(|(name, _)| name == code);
        match elsewhere {
            Some((name, test)) => assert!(test.contains(&format!("\"{name}\"")), "nobody shows {name}"),
            None => assert!(seen.0.contains(&(*status, code.clone())), "{status} {code} is in no row"),
        }
    }
    let strange: Vec<_> =
        seen.0.iter().filter(|(status, _)| *status >= 400).filter(|one| !listed.contains(*one)).collect();
    assert!(strange.is_empty(), "{strange:?}");
}
