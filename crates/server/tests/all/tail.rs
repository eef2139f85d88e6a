//! `redrive tail`: what happens, as it happens, until somebody presses Ctrl-C.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::cli::DELIVERY;
use crate::scripted::{Reply, Scripted};

#[test]
fn happenings_line_up() {
    let server = Scripted::new([Reply::new(200, happenings())]);
    let (told, said) = tail(&["tail", "--server", server.url()], 1, 8);
    assert_snapshot!(told, @r"
    14:30:00.001  accepted                       orders.placed  order-42
    14:30:00.010  retrying         billing/email  orders.placed  3c6ef372, attempt 1, transient SERVICE_UNAVAILABLE, took 3.2ms, resumes in 352ms, 503 Service Unavailable
    14:30:00.012  delivered        ledger         orders.placed  3c6ef372, attempt 1, 200, took 1.23s
    14:30:01.000  held             a-service-with-a-long-name  orders.placed  3c6ef372, resumes in 1m
    14:30:02.000  dead             billing                     orders.placed  3c6ef372, attempt 4, permanent GONE, gone [2J
    14:30:03.000  breaker-opened                                              circuit breaker of mail-api, after 5 failures
    14:30:04.000  paused           billing                                    paused by its rule after this failure
    23:59:59.999  unrouted                                     todo.done      7
    ");
    assert!(said.starts_with("— following http://127.0.0.1:"), "{said}");
}

#[test]
fn a_server_that_went_away_is_waited_for() {
    let first = "{\"at\":\"2025-10-21T14:30:00Z\",\"what\":\"store-failing\"}\n";
    let second = "{\"at\":\"2025-10-21T14:30:01Z\",\"what\":\"a-thing-of-the-future\"}\n";
    let replies = [Reply::new(200, first), Reply::new(503, ""), Reply::new(200, second)];
    let server = Scripted::new(replies);
    let (told, said) = tail(&["tail", "--format", "json", "--server", server.url()], 2, 2);
    assert_eq!(told, format!("{first}{second}"), "programs get what we do not know");
    assert!(said.contains("— reconnected; activity in between is not shown\n"), "{said}");
}

#[test]
fn happenings_are_chosen_by_service_and_type() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str], usize); 6] = [
        ("all",                    &[],                                         8),
        ("a service and its channels", &["--service", "billing"],               3),
        ("one channel",            &["--service", "billing/email"],             1),
        ("a type",                 &["--type", "orders.placed"],                5),
        ("a pattern",              &["--type", "orders.*"],                     5),
        ("both",                   &["--type", "orders.*", "--service", "billing"], 2),
    ];
    for (name, more, lines) in cases {
        let server = Scripted::new([Reply::new(200, happenings())]);
        let mut arguments = vec!["tail", "--format", "json", "--server", server.url()];
        arguments.extend(more);
        let (told, _) = tail(&arguments, 1, lines);
        assert_eq!(told.lines().count(), lines, "{name}: {told}");
        for line in told.lines() {
            assert!(serde_json::from_str::<Value>(line).expect("JSON")["what"].is_string(), "{name}");
        }
    }
}

fn happenings() -> String {
    let of = |what: &str, at: &str, more: Value| {
        let mut happening = json!({ "at": at, "what": what });
        happening.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        format!("{happening}\n")
    };
    let event = |service: &str, more: Value| {
        let mut all = json!({ "service": service, "delivery": DELIVERY, "event_id": "order-42", "event_type": "orders.placed" });
        all.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        all
    };
    let failure = json!({
        "attempt": 1, "category": "transient", "code": "SERVICE_UNAVAILABLE", "status": 503, "took_ms": 3.21,
        "message": "503 Service Unavailable", "due_at": "2025-10-21T14:30:00.362Z",
    });
    [
        of(
            "accepted",
            "2025-10-21T14:30:00.001Z",
            json!({ "event_id": "order-42", "event_type": "orders.placed" }),
        ),
        "\n".to_owned(),
        of("retrying", "2025-10-21T14:30:00.01Z", event("billing/email", failure)),
        of(
            "delivered",
            "2025-10-21T14:30:00.012Z",
            event("ledger", json!({ "attempt": 1, "status": 200, "took_ms": 1234.5 })),
        ),
        of(
            "held",
            "2025-10-21T14:30:01Z",
            event("a-service-with-a-long-name", json!({ "attempt": 0, "due_at": "2025-10-21T14:31:01Z" })),
        ),
        of(
            "dead",
            "2025-10-21T14:30:02Z",
            event(
                "billing",
                json!({ "attempt": 4, "category": "permanent", "code": "GONE", "message": "gone\u{1b}[2J" }),
            ),
        ),
        of(
            "breaker-opened",
            "2025-10-21T14:30:03Z",
            json!({ "message": "circuit breaker of mail-api, after 5 failures" }),
        ),
        of(
            "paused",
            "2025-10-21T14:30:04Z",
            json!({ "service": "billing", "message": "paused by its rule after this failure" }),
        ),
        of("unrouted", "2025-10-21T23:59:59.999Z", json!({ "event_id": "7", "event_type": "todo.done" })),
    ]
    .concat()
}

/// Follows until so many lines were told and so many streams have ended, then presses Ctrl-C.
fn tail(arguments: &[&str], streams: usize, lines: usize) -> (String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_redrive"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut told = String::new();
    for _ in 0..lines {
        out.read_line(&mut told).expect("it prints text");
    }
    let mut err = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut said = String::new();
    // Each stream that ends is told, and after the last of them nothing more comes.
    while said.matches("; waiting for ").count() < streams {
        assert!(err.read_line(&mut said).expect("it prints text") > 0, "it goes on: {said}");
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.expect("there is a `kill`").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "Ctrl-C is how it ends");
    (told, said)
}
