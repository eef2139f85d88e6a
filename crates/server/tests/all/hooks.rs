//! Webhooks against the real binary: every answer that the door gives, and what is left of each call.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use ring::hmac;
use serde_json::{Value, json};

use crate::client::Answer;
use crate::run::Folder;
use crate::server::{Server, serve, until};
use crate::target::{Target, status};

pub(crate) const SECRET: &str = "It's a Secret to Everybody";

/// A book with a source of each scheme, all signed with the secret in the file `secret`, whose events go
/// there.
fn book(target: &Target) -> String {
    format!(
        r#"version: 1
secrets:
  shared: {{ file: secret }}
  away: {{ command: ["false"] }}
sources:
  github:
    webhook: {{ scheme: github, secret: shared, body_max: 64KiB }}
    type: "github.{{header.x-github-event}}.{{data.action}}"
    session: "{{data.repository.full_name}}#{{data.pull_request.number|data.issue.number}}"
  own:
    webhook: {{ scheme: hmac, secret: shared, header: X-Sum, prefix: "sum=" }}
    type: own.called
  slack:
    webhook: {{ scheme: slack, secret: shared }}
    type: "slack.{{data.event.type}}"
  standard:
    webhook: {{ scheme: standard-webhooks, secret: shared }}
    type: "standard.{{data.type}}"
  refused:
    webhook: {{ scheme: hmac, secret: shared }}
    type: odd.name
  lost:
    webhook: {{ scheme: github, secret: away }}
    type: lost
services:
  bot:
    target: {{ http: "{}" }}
    events: ["*"]
"#,
        target.url()
    )
}

fn folder(target: &Target) -> Folder {
    let folder = Folder::with("redrive.yaml", &book(target));
    folder.write("secret", format!("{SECRET}\n"));
    folder
}

fn hex(head: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = hmac::sign(&key, &[head.as_bytes(), body].concat());
    signature.as_ref().iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

/// The headers of a call by GitHub.
pub(crate) fn github(event: &str, delivery: &str, body: &[u8]) -> String {
    format!(
        "content-type: application/json\r\nx-github-event: {event}\r\nx-github-delivery: {delivery}\r\nx-hub-signature-256: sha256={}\r\n",
        hex("", body)
    )
}

pub(crate) fn issue(number: u32) -> Vec<u8> {
    let issue = json!({ "action": "opened", "repository": { "full_name": "octo/hello" }, "issue": { "number": number } });
    issue.to_string().into_bytes()
}

#[track_caller]
fn source(server: &Server, name: &str) -> Value {
    let status = server.status();
    let sources = status["sources"].as_array().expect("a list");
    sources.iter().find(|source| source["name"] == name).cloned().unwrap_or_else(|| panic!("{status}"))
}

/// The counts of a source that are not nought.
#[track_caller]
fn counts(server: &Server, name: &str) -> Value {
    let mut source = source(server, name);
    let counts = source.as_object_mut().expect("an object");
    counts.retain(|key, value| key != "name" && key != "kind" && *value != json!(0));
    source
}

#[test]
fn a_call_by_github_is_an_event_in_its_session_once() {
    let target = Target::willing();
    let folder = folder(&target);
    let server = Server::start(&folder);
    let body = issue(7);
    let started = Instant::now();
    let first = server.post(
        "/v1/hooks/github",
        &(github("issues", "d-1", &body) + "x-correlation-id: c-1\r\n"),
        &body,
    );
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(first.header("x-correlation-id"), Some("c-1"));
    let taken = first.json();
    assert_eq!(
        (&taken["id"], &taken["duplicate"], &taken["deliveries"]),
        (&json!("d-1"), &json!(false), &json!(1))
    );

    let again = server.post("/v1/hooks/github", &github("issues", "d-1", &body), &body);
    assert_eq!((again.status, &again.json()["receipt"]), (200, &taken["receipt"]), "{again:?}");
    assert_eq!(again.json()["duplicate"], true);
    let other = issue(8);
    let conflict = server.post("/v1/hooks/github", &github("issues", "d-1", &other), &other);
    assert_eq!((conflict.status, &conflict.json()["conflict"]), (200, &json!(true)), "{conflict:?}");
    assert_eq!(conflict.json()["receipt"], taken["receipt"]);

    let call = &target.until(1)[0];
    assert_eq!(
        (call.header("ce-type"), call.header("ce-source")),
        ("github.issues.opened", "/v1/hooks/github")
    );
    assert_eq!((call.header("ce-partitionkey"), call.header("ce-correlationid")), ("octo/hello#7", "c-1"));
    assert_eq!(call.body, body, "byte for byte");
    let ping = server.post("/v1/hooks/github", &github("ping", "d-2", b"{\"zen\":1}"), "{\"zen\":1}");
    assert_eq!(ping.status, 202, "{ping:?}");
    assert_eq!(target.until(2)[1].header("ce-type"), "github.ping");
    assert_eq!(
        counts(&server, "github"),
        json!({ "accepted": 2, "duplicates": 1, "conflicts": 1, "no_session": 1 })
    );
    assert_eq!(target.count(), 2);

    let page = folder.run(&["status", "--server", &format!("http://{}", server.client.address)]).printed();
    assert!(page.contains("github    webhook         2      1             0          0  1 conflict with a used id, 1 without a session"), "{page}");
    server.stop().assert_calm();
}

/// What is called how, where, with which headers and which body, and what comes back.
type Case<'a> = (&'a str, &'a str, &'a str, &'a [u8], u16, &'a str);

#[test]
fn every_other_answer_of_the_door() {
    let target = Target::willing();
    let folder = folder(&target);
    let server = Server::start(&folder);
    let body = issue(7);
    let good = github("issues", "d-1", &body);
    let without =
        |name: &str| good.split_inclusive("\r\n").filter(|line| !line.starts_with(name)).collect::<String>();
    let form = github("push", "d-2", b"payload=%7B%7D")
        .replace("application/json", "application/x-www-form-urlencoded");
    let large = vec![b' '; 64 * 1024 + 1];
    let bad = good.replace("sha256=", "sha256=00");
    let twice = format!("{good}{}", without("content-type").split_inclusive("\r\n").last().expect("a line"));
    #[rustfmt::skip]
    let cases: [Case<'_>; 14] = [
        ("no such source",       "/v1/hooks/gitlab",  &good,                           &body,             404, "SOURCE_NOT_FOUND"),
        ("no source at all",     "/v1/hooks/",        &good,                           &body,             404, "PATH_NOT_FOUND"),
        ("no signature",         "/v1/hooks/github",  &without("x-hub"),               &body,             401, "UNAUTHORIZED"),
        ("a bad signature",      "/v1/hooks/github",  &bad,                            &body,             401, "UNAUTHORIZED"),
        ("two signatures",       "/v1/hooks/github",  &twice,                          &body,             401, "UNAUTHORIZED"),
        ("another body",         "/v1/hooks/github",  &good,                           b"{}",             401, "UNAUTHORIZED"),
        ("no event",             "/v1/hooks/github",  &without("x-github-event"),      &body,             400, "VALIDATION_ERROR"),
        ("no delivery",          "/v1/hooks/github",  &without("x-github-delivery"),   &body,             400, "VALIDATION_ERROR"),
        ("no JSON",              "/v1/hooks/github",  &github("push", "d-2", b"{"),    b"{",              400, "VALIDATION_ERROR"),
        ("nothing",              "/v1/hooks/github",  &github("push", "d-2", b""),     b"",               400, "VALIDATION_ERROR"),
        ("a form",               "/v1/hooks/github",  &form,                           b"payload=%7B%7D", 400, "VALIDATION_ERROR"),
        ("too large",            "/v1/hooks/github",  "x-github-hook-installation-target-type: repository\r\nx-github-hook-installation-target-id: 79929171\r\n", &large, 413, "PAYLOAD_TOO_LARGE"),
        ("too large, unnamed",   "/v1/hooks/github",  "x-github-hook-installation-target-type: ../../x\r\n", &large, 413, "PAYLOAD_TOO_LARGE"),
        ("a secret that is away", "/v1/hooks/lost",   &good,                           &body,             503, "SERVICE_UNAVAILABLE"),
    ];
    for (name, path, headers, body, status, code) in cases {
        let answer = server.post(path, headers, body);
        assert_eq!(answer.error(), (status, code.to_owned()), "{name}: {answer:?}");
        assert_eq!(answer.header("retry-after").is_some(), status == 503, "{name}: {answer:?}");
        assert!(!answer.body.contains("sha256="), "{name}: {answer:?}");
    }
    let wrong = server.get("/v1/hooks/github");
    assert_eq!(wrong.error(), (405, "METHOD_NOT_ALLOWED".to_owned()), "{wrong:?}");
    let told = server.post("/v1/hooks/github", &bad, &body).json();
    assert_eq!(told["error"]["message"], "the signature is missing or invalid");
    assert_eq!(
        counts(&server, "github"),
        json!({ "unauthorized": 5, "malformed": 5, "too_large": 2, "too_large_by": { "repository 79929171": 1 } })
    );
    assert_eq!(counts(&server, "lost"), json!({ "unavailable": 1 }));
    assert_eq!(target.count(), 0);
    server.stop().assert_calm();
}

/// Anybody can send calls that are signed badly. They must not use up what is for those who sign well.
#[test]
fn a_call_may_come_through_a_tunnel_and_nothing_else_may() {
    let target = Target::willing();
    let folder = folder(&target);
    let server = Server::start(&folder);
    let body = issue(7);
    let page = format!("{}origin: https://evil.test\r\n", github("issues", "d-2", &body));
    #[rustfmt::skip]
    let cases = [
        ("a hook that is signed",     "POST /v1/hooks/github",     github("issues", "d-1", &body), 202),
        ("one that is not",           "POST /v1/hooks/github",     String::new(),                  401),
        ("one that a page sends",     "POST /v1/hooks/github",     page,                           403),
        ("an event",                  "POST /v1/events/a.b",       String::new(),                  403),
        ("a question",                "GET /v1/status",            String::new(),                  403),
        ("a question for hooks",      "GET /v1/hooks/github",      String::new(),                  403),
        ("what looks like a hook",    "POST /v1/hooks",            String::new(),                  403),
    ];
    for (name, line, headers, expected) in cases {
        let head = format!(
            "{line} HTTP/1.1\r\nhost: abc.tunnel.test\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        let answer = server.client.ask(&head, &body);
        assert_eq!(answer.status, expected, "{name}: {answer:?}");
    }
    server.stop().assert_calm();
}

#[test]
fn the_start_tells_where_hooks_go_and_what_is_to_be_looked_at() {
    let target = Target::willing();
    let folder = folder(&target);
    let named = book(&target).replace("127.0.0.1", "localhost");
    folder.write("redrive.yaml", named);
    let server = Server::start(&folder);
    server.out.wait_for("Try: ");
    let said = server.out.so_far();
    assert!(
        said.contains(&format!("  hooks   POST http://{}/v1/hooks/github\n", server.client.address)),
        "{said}"
    );
    assert_eq!(said.matches("/v1/hooks/").count(), 5, "{said}");
    assert!(said.contains("and 1 more"), "{said}");
    assert!(said.contains(": run redrive check redrive.yaml"), "{said}");
    server.stop().assert_calm();
}

#[test]
fn whoever_cannot_sign_keeps_nobody_out() {
    let target = Target::willing();
    let limited = book(&target).replace("prefix: \"sum=\"", "prefix: \"sum=\", rate: 2/h");
    let folder = Folder::with("redrive.yaml", &limited);
    folder.write("secret", SECRET);
    let server = Server::start(&folder);
    let call = |signature: &str, body: &str| {
        server.post("/v1/hooks/own", &format!("X-Sum: sum={signature}\r\n"), body).status
    };
    let answers: Vec<u16> = (0..40).map(|_| call(&hex("", b"another"), "one")).collect();
    assert_eq!(answers[..20], [401; 20], "as any key that is bad");
    assert_eq!(answers.last(), Some(&429), "and slowed down after a while: {answers:?}");
    for body in ["one", "two"] {
        assert_eq!(call(&hex("", body.as_bytes()), body), 202, "{body}, from the same address");
    }
    assert_eq!(counts(&server, "own"), json!({ "accepted": 2, "unauthorized": 40 }));
    server.stop().assert_calm();
}

#[test]
fn a_source_takes_as_many_calls_as_its_rate_allows() {
    let target = Target::willing();
    let limited = book(&target).replace("prefix: \"sum=\"", "prefix: \"sum=\", rate: 2/h");
    let folder = Folder::with("redrive.yaml", &limited);
    folder.write("secret", SECRET);
    let server = Server::start(&folder);
    let call = |body: &str| {
        server.post("/v1/hooks/own", &format!("X-Sum: sum={}\r\n", hex("", body.as_bytes())), body)
    };
    let left = |answer: &Answer| {
        answer.header("ratelimit").map(|value| value.split(";t=").next().map(str::to_owned))
    };
    for (body, remaining) in [("one", "\"default\";r=1"), ("two", "\"default\";r=0")] {
        let answer = call(body);
        assert_eq!((answer.status, left(&answer)), (202, Some(Some(remaining.to_owned()))), "{answer:?}");
    }
    let third = call("three");
    assert_eq!(third.error(), (429, "RATE_LIMIT_EXCEEDED".to_owned()), "{third:?}");
    assert!(third.header("retry-after").is_some_and(|seconds| seconds != "0"), "{third:?}");
    assert_eq!(third.header("ratelimit-policy"), Some("\"default\";q=2;w=3600"), "{third:?}");
    let unlimited = server.post("/v1/hooks/github", &github("ping", "d-1", b"{}"), "{}");
    assert_eq!((unlimited.status, unlimited.header("ratelimit")), (202, None), "others have their own");
    assert_eq!(counts(&server, "own"), json!({ "accepted": 2, "rate_limited": 1 }));
    server.stop().assert_calm();
}

#[test]
fn where_keys_are_asked_for_a_webhook_needs_none_and_the_rest_does() {
    let target = Target::willing();
    let folder = folder(&target);
    folder.run(&["keys", "create", "ops", "--role", "admin", "--data", "data"]).printed();
    let server = Server::start(&folder);
    let taken = server.post("/v1/hooks/github", &github("ping", "d-1", b"{}"), "{}");
    assert_eq!(taken.status, 202, "{taken:?}");
    assert_eq!(server.post("/v1/hooks/github", "", "{}").error().0, 401);
    assert_eq!(server.get("/v1/refused-hooks").error().0, 401);
    assert_eq!(server.get("/v1/refused-hooks/1").error().0, 401);
    server.stop().assert_calm();
}

#[test]
fn a_body_that_does_not_come_is_answered_in_time() {
    let target = Target::willing();
    let folder = folder(&target);
    let server = Server::start(&folder);
    let mut slow = server.client.connect().expect("it listens");
    let head = "POST /v1/hooks/github HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{";
    slow.send(head.as_bytes()).expect("it listens");
    let answer: Answer = slow.answer().expect("an answer");
    assert_eq!(answer.error(), (408, "REQUEST_TIMEOUT".to_owned()));
    assert_eq!(counts(&server, "github"), json!({ "too_slow": 1 }));
    server.stop().assert_calm();
}

#[test]
fn other_schemes_come_by_the_same_door() {
    let target = Target::willing();
    let folder = folder(&target);
    let server = Server::start(&folder);
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let slack = |seconds: u64, body: &str| {
        let signature = hex(&format!("v0:{seconds}:"), body.as_bytes());
        let headers =
            format!("x-slack-request-timestamp: {seconds}\r\nx-slack-signature: v0={signature}\r\n");
        server.post("/v1/hooks/slack", &headers, body)
    };
    let challenge = r#"{"type":"url_verification","challenge":"3eZbrw1a","token":"t"}"#;
    let answer = slack(seconds, challenge);
    assert_eq!((answer.status, answer.body.as_str()), (200, "3eZbrw1a"), "{answer:?}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
    let unsigned = server.post("/v1/hooks/slack", "", challenge);
    assert_eq!(unsigned.error().0, 401, "nobody else learns that it is ours: {unsigned:?}");
    let event = r#"{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}"#;
    assert_eq!(slack(seconds, event).status, 202);
    let too_old = slack(seconds - 310, event);
    assert_eq!(too_old.error().0, 401, "too long ago");
    let message = "the signed time differs by more than 5m from the server's clock";
    assert_eq!(too_old.json()["error"]["message"], message, "who holds the secret may know");
    assert_eq!(slack(seconds + 310, event).error().0, 401, "not yet");

    let sum = |body: &[u8]| format!("X-Sum: sum={}\r\n", hex("", body));
    assert_eq!(server.post("/v1/hooks/own", &sum(b"any bytes"), "any bytes").status, 202);
    assert_eq!(server.post("/v1/hooks/own", &sum(b"any bytes"), "any bytes").status, 200, "known by its sum");
    let odd = format!("x-signature: {}\r\n", hex("", b"{}"));
    assert_eq!(server.post("/v1/hooks/refused", &odd, "{}").status, 202, "a source may have any name");
    let calls = target.until(3);
    let mut types: Vec<&str> = calls.iter().map(|call| call.header("ce-type")).collect();
    types.sort_unstable();
    assert_eq!(types, ["odd.name", "own.called", "slack.message"]);
    assert_eq!(counts(&server, "slack"), json!({ "accepted": 1, "challenges": 1, "unauthorized": 3 }));
    server.stop().assert_calm();
}

#[test]
fn a_new_secret_and_a_new_book_hold_at_once() {
    let target = Target::willing();
    let folder = folder(&target);
    let server = Server::start(&folder);
    let call = |path: &str, delivery: &str| {
        let body = issue(7);
        server.post(path, &github("issues", delivery, &body), &body).status
    };
    assert_eq!(call("/v1/hooks/github", "d-1"), 202);
    folder.write("secret", "another\n");
    until("the old secret is forgotten", || (call("/v1/hooks/github", "d-2") == 401).then_some(()));
    folder.write("secret", format!("another\n{SECRET}\n"));
    until("either of two is good", || (call("/v1/hooks/github", "d-3") != 401).then_some(()));
    assert_eq!(call("/v1/hooks/more", "d-4"), 404);
    folder.write("redrive.yaml", book(&target).replace("  github:\n    webhook", "  more:\n    webhook"));
    server.signal("HUP");
    until("the new source is there", || (call("/v1/hooks/more", "d-5") == 202).then_some(()));
    assert_eq!(call("/v1/hooks/github", "d-6"), 404);
    server.stop().assert_calm();
}

#[test]
fn bad_signatures_are_told_and_leave_no_trace_of_themselves() {
    let target = Target::willing();
    let folder = folder(&target);
    let server = Server::start(&folder);
    let mut listener = server.client.connect().expect("it listens");
    listener.send(b"GET /v1/activity HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it listens");
    until("it is heard", || listener.line().ok().filter(String::is_empty));
    let headers = github("issues", "d-1", b"{}") + "x-correlation-id: c-77\r\n";
    for _ in 0..50 {
        let status = server.post("/v1/hooks/github", &headers, "{ }").status;
        assert!(matches!(status, 401 | 429), "{status}");
    }
    let told = until("a word on security", || {
        let line = listener.line().ok()?;
        // The length of a chunk is a number, and a line of its own.
        // A secret of another source that cannot be had is told of too, whenever that is found out.
        serde_json::from_str::<Value>(&line).ok().filter(|told| told["what"] == "security")
    });
    assert_eq!(
        (&told["what"], &told["message"]),
        (&json!("security"), &json!("webhook source github: signature does not match"))
    );
    let logged = server.err.wait_for("webhook signature invalid");
    assert!(logged.contains("source=\"github\"") && logged.contains("c-77"), "{logged}");
    let ended = server.stop();
    ended.assert_calm();
    let lines = ended.stderr.matches("without a good signature").count();
    assert!(lines < 25, "a flood is told in a few lines: {lines}");
    for hidden in [SECRET, &hex("", b"{}")] {
        assert!(!ended.stderr.contains(hidden) && !ended.stdout.contains(hidden), "{}", ended.stderr);
    }
}

#[test]
fn what_was_signed_and_is_no_event_can_be_looked_at() {
    let target = Target::willing();
    let folder = folder(&target);
    let server = Server::start(&folder);
    let url = format!("http://{}", server.client.address);
    let hooks = |arguments: &[&str]| folder.run(&[&["hooks"], arguments, &["--server", &url]].concat());
    assert!(hooks(&["refused"]).printed().contains("no refused webhook calls"));
    let headers =
        github("push", "d-1", b"{\"a\":") + "authorization: Bearer hunter2\r\ncookie: c=hunter2\r\n";
    assert_eq!(server.post("/v1/hooks/github", &headers, "{\"a\":").status, 400);
    assert_eq!(server.post("/v1/hooks/github", "x-hub-signature-256: sha256=00\r\n", "{\"b\":").status, 401);
    until("it is kept", || {
        let found = server.get("/v1/refused-hooks").json();
        (found["refused"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    let listed = hooks(&["refused"]).printed();
    assert!(
        listed.contains("`body` is not valid JSON") && listed.contains("redrive hooks show 1"),
        "{listed}"
    );
    let shown = hooks(&["show", "1"]).printed();
    assert!(shown.contains("x-github-delivery: d-1") && shown.contains("{\"a\":"), "{shown}");
    let told = server.get("/v1/refused-hooks/1");
    for hidden in ["hunter2", "sha256="] {
        assert!(!told.body.contains(hidden) && !shown.contains(hidden), "{told:?}");
    }
    assert_eq!(told.json()["body_base64"], "eyJhIjo=");
    assert_eq!(hooks(&["show", "1", "--raw"]).printed(), "{\"a\":");
    assert_eq!(server.get("/v1/refused-hooks/9").error(), (404, "REFUSED_BODY_NOT_FOUND".to_owned()));
    assert_eq!(server.get("/v1/refused-hooks/x").error(), (400, "VALIDATION_ERROR".to_owned()));
    assert!(hooks(&["show", "9"]).refused().contains("no refused call 9"));
    server.stop().assert_calm();
}

#[test]
fn a_full_service_gets_a_dead_letter_and_the_sender_its_answer() {
    let target = Target::start(|_| status(503));
    let folder = Folder::with(
        "redrive.yaml",
        &book(&target).replace("    events: [\"*\"]", "    waiting: { events: 1 }\n    events: [\"*\"]"),
    );
    folder.write("secret", SECRET);
    let server = Server::start(&folder);
    for number in 1..=3 {
        let body = issue(number);
        let answer = server.post("/v1/hooks/github", &github("issues", &format!("d-{number}"), &body), &body);
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    let dead = server.until("d-3", "dead");
    assert_eq!(dead["death"]["code"], "BACKLOG_FULL", "{dead}");
    let refused = server.post("/v1/events/github.x", "", "{}");
    assert_eq!(refused.error(), (503, "BACKLOG_FULL".to_owned()), "others can send again: {refused:?}");
    server.stop().assert_calm();
}

#[test]
fn a_newcomer_can_call_a_source_with_what_is_printed() {
    let target = Target::willing();
    let folder = folder(&target);
    let server = Server::run(serve(&folder, &["--rules", "redrive.yaml"]));
    let url = format!("http://{}", server.client.address);
    folder.write("issue body.json", issue(3));
    for (source, event_type) in
        [("github", "github.issues.opened"), ("own", "own.called"), ("standard", "standard")]
    {
        let arguments =
            ["hooks", "sign", source, "--event", "issues", "--body", "issue body.json", "--server", &url];
        let command = folder.run(&arguments).printed();
        assert!(command.starts_with("curl ") && !command.contains(SECRET), "{command}");
        let answer = call_by_hand(&server, &command, &issue(3));
        assert_eq!(answer.status, 202, "{command}\n{answer:?}");
        let before = target.calls();
        let types = || target.calls().iter().any(|call| call.header("ce-type") == event_type);
        until(&format!("{event_type} after {}", before.len()), || types().then_some(()));
    }
    let none = folder.run(&["hooks", "sign", "gitlab"]).refused();
    assert!(
        none.contains("redrive.yaml has no webhook source `gitlab`: its webhook sources: github, lost, own"),
        "{none}"
    );
    let away = folder.run(&["hooks", "sign", "lost"]).refused();
    assert!(away.contains("the secret `away`: "), "{away}");
    server.stop().assert_calm();
}

/// Does what the printed command says, by a shell that has another `curl`: one that only tells its words.
fn call_by_hand(server: &Server, command: &str, body: &[u8]) -> Answer {
    let script = format!("curl() {{ printf '%s\\n' \"$@\"; }}\n{command}");
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
    let words = String::from_utf8(output.stdout).expect("text");
    let words: Vec<&str> = words.lines().collect();
    let headers = words.windows(2).filter(|pair| pair[0] == "-H");
    let headers = headers.fold(String::new(), |all, pair| all + pair[1] + "\r\n");
    assert!(words.contains(&"@issue body.json"), "{words:?}");
    let url = words.last().expect("an address");
    let path = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a path").1;
    let mut connection = server.client.connect().expect("it listens");
    connection.post(&format!("/{path}"), &headers, body).expect("an answer")
}

#[test]
fn bodies_larger_than_any_event_are_taken_from_github() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target).replace(", body_max: 64KiB", ""));
    folder.write("secret", SECRET);
    let server = Server::start(&folder);
    let mut body = br#"{"action":"opened","text":""#.to_vec();
    body.resize(2 * 1024 * 1024, b'x');
    body.write_all(b"\"}").expect("a vector takes all");
    let answer = server.post("/v1/hooks/github", &github("push", "d-1", &body), &body);
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(target.until(1)[0].body.len(), body.len());
    server.stop().assert_calm();
}

#[test]
fn a_flood_of_large_bodies_keeps_no_small_call_out_and_takes_bounded_memory() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target).replace(", body_max: 64KiB", ""));
    folder.write("secret", SECRET);
    let server = Server::start(&folder);
    let part = vec![b'x'; 20 * 1024 * 1024];
    let head = format!(
        "POST /v1/hooks/github HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        part.len() + 1
    );
    let mut turned_away = 0;
    let mut open = Vec::new();
    for _ in 0..10 {
        let mut connection = server.client.connect().expect("it listens");
        // One that is turned away may find the door closed before it has sent everything.
        let sent = connection.send(head.as_bytes()).and_then(|()| connection.send(&part));
        turned_away += usize::from(sent.is_err());
        open.push(connection);
    }
    let small = issue(1);
    let answer = server.post("/v1/hooks/github", &github("issues", "d-1", &small), &small);
    assert_eq!(answer.status, 202, "{answer:?}");
    let unavailable = || counts(&server, "github")["unavailable"].as_u64();
    until("some are turned away", || unavailable().filter(|count| *count >= 2));
    let peak = server.memory_peak_kb();
    assert!(peak < 300_000, "it had {peak} kB, and {turned_away} could not send all");
    drop(open);
    server.stop().assert_calm();
}
