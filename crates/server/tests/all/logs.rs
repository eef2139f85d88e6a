//! The log of a real server: what is in each line, and what is in none of them.

use serde_json::{Value, json};

use crate::run::Folder;
use crate::server::{Server, serve, until};
use crate::target::{Say, Target, book, status};

/// What the target says about a call, and nobody should read in a log.
const TOLD: [&str; 9] = [
    "jane.doe@example.com",
    "tok-4f9a",
    "hunter2",
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.",
    "open sesame now",
    "Max Mustermann",
    "1980-01-02",
    "Musterstr. 5",
    "0170 1234567",
];
const SESSION: &str = "john.smith@example.org";

/// A target that refuses and tells all it knows, our own secret included.
fn talkative() -> Target {
    let [mail, token, password, jwt, secret, name, birthday, street, number] = TOLD;
    Target::start(move |call| {
        let signature = call.header("webhook-signature");
        let said = format!(
            "no user {mail}: token={token} password: \"{password}\", got Bearer {jwt}, signed with {secret} as {signature}; that is {name}, born {birthday}, {street}, tel {number}"
        );
        Say::Status(400, "content-type: text/plain\r\n", said)
    })
}

fn folder(target: &Target) -> Folder {
    let rules = book(target, &["order: session"]).replace(" }\n    retry", ", secret: key }\n    retry");
    let folder = Folder::with("redrive.yaml", &format!("{rules}secrets: {{ key: {{ file: key.txt }} }}\n"));
    folder.write("key.txt", format!("{}\n", TOLD[4]));
    folder
}

#[test]
fn no_secret_and_nobody_is_in_the_log_in_either_format() {
    for format in ["human", "json"] {
        let target = talkative();
        let folder = folder(&target);
        let options = ["--rules", "redrive.yaml", "--log-format", format, "--log-level", "debug"];
        let server = Server::run(serve(&folder, &options));
        let session = SESSION.replace('@', "%40");
        server.accept("orders.placed", "o-1", &session);
        let dead = server.until("o-1", "dead");
        assert!(dead.to_string().contains(TOLD[0]), "whoever asks why hears all of it: {dead}");
        let signature = target.calls()[0].header("webhook-signature").to_owned();
        let ended = server.stop();
        ended.assert_calm();
        for line in ["accepted", "dead"] {
            assert!(ended.stderr.contains(line), "{format}: {}", ended.stderr);
        }
        for hidden in TOLD.into_iter().chain([SESSION, "john.smith", signature.trim_start_matches("v1,")]) {
            assert!(!ended.stderr.contains(hidden), "{format}: {hidden} is in {}", ended.stderr);
            assert!(!ended.stdout.contains(hidden), "{format}: {hidden} is in {}", ended.stdout);
        }
        assert!(ended.stderr.contains("400 Bad Request"), "{}", ended.stderr);
    }
}

#[test]
fn with_json_every_line_is_an_object_and_every_transition_has_one() {
    let target = Target::saying(&[503, 200]);
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let options = ["--rules", "redrive.yaml", "--log-format", "json", "--log-level", "debug"];
    let server = Server::run(serve(&folder, &options));
    let correlation = "x-correlation-id: c-9\r\nidempotency-key: o-1\r\n";
    assert_eq!(server.post("/v1/events/orders.placed", correlation, "{}").status, 202);
    let delivery = server.until("o-1", "delivered");
    assert_eq!(server.post("/v1/events/nobody.wants", "idempotency-key: o-2\r\n", "{}").status, 202);
    for act in ["pause", "resume"] {
        assert_eq!(server.post(&format!("/v1/services/orders/{act}"), "", "").status, 200);
    }
    folder.write("redrive.yaml", "version: 1\nservices: 7\n");
    server.err.wait_for("rule book rejected");
    folder.write("redrive.yaml", book(&target, &["order: session"]));
    server.err.wait_for("rule book loaded");
    let ended = server.stop();
    ended.assert_calm();

    let lines: Vec<Value> = ended
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let of = |message: &str| lines.iter().filter(move |line| line["message"] == message).collect::<Vec<_>>();
    let once = [
        "event accepted",
        "attempt failed, will retry",
        "event delivered",
        "event accepted, no service subscribes",
        "service paused",
        "service resumed",
        "the rule book has a problem",
        "rule book rejected, keeping the old one",
        "rule book loaded",
        "shutting down: no new events, finishing calls",
    ];
    for message in once {
        assert_eq!(of(message).len(), 1, "{message}: {}", ended.stderr);
    }
    assert!(lines.iter().all(|line| line["time"].is_string() && line["level"].is_string()), "{lines:?}");

    let mut retry = of("attempt failed, will retry")[0].clone();
    let fields = retry.as_object_mut().expect("an object");
    for measured in ["time", "took_ms", "due_at", "trace_id", "span_id"] {
        assert!(fields.remove(measured).is_some_and(|value| !value.is_null()), "{measured}: {fields:?}");
    }
    let expected = json!({
        "level": "info", "message": "attempt failed, will retry", "service": "orders",
        "delivery_id": delivery["id"], "event_id": "o-1", "event_type": "orders.placed",
        "correlation_id": "c-9", "attempt": 1, "retry_count": 0, "category": "transient",
        "code": "SERVICE_UNAVAILABLE", "status": 503, "error": fields["error"],
    });
    assert_eq!(retry, expected);
    let delivered = of("event delivered")[0];
    assert_eq!((&delivered["attempt"], &delivered["retry_count"]), (&json!(2), &json!(1)));
}

#[test]
fn a_breaker_that_opens_is_logged_with_its_numbers_as_fields() {
    let target = Target::start(|_| status(503));
    let rules = book(&target, &["depends_on: shop"])
        + "breakers: { touchy: { trip: { consecutive: 2 }, open: 1m } }\ndependencies: { shop: { kind: webhook, breaker: touchy } }\n";
    let folder = Folder::with("redrive.yaml", &rules);
    let server = Server::run(serve(&folder, &["--rules", "redrive.yaml", "--log-format", "json"]));
    server.accept("orders.placed", "o-1", "");
    let line = until("the breaker opens", || {
        server.err.so_far().lines().find(|line| line.contains("circuit breaker opened")).map(str::to_owned)
    });
    let line: Value = serde_json::from_str(&line).expect("an object");
    assert_eq!((&line["dependency"], &line["failures"]), (&json!("shop"), &json!(2)), "{line}");
    server.stop().assert_calm();
}

#[test]
fn how_much_is_logged_is_chosen_by_flag_or_by_environment() {
    type Case = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)], bool);
    #[rustfmt::skip]
    let cases: [Case; 4] = [
        ("by default",             &[],                      &[],                                                false),
        ("by flag",                &["--log-level", "debug"], &[],                                               true),
        ("by environment",         &[],                      &[("REDRIVE_LOG", "DEBUG")],                        true),
        ("the flag goes first",    &["--log-level", "warn"], &[("REDRIVE_LOG", "debug"), ("REDRIVE_LOG_FORMAT", "json")], false),
    ];
    for (name, options, environment, is_told) in cases {
        let target = Target::willing();
        let folder = Folder::with("redrive.yaml", &book(&target, &[]));
        let mut command = serve(&folder, &[&["--rules", "redrive.yaml"], options].concat());
        command.envs(environment.iter().copied());
        let server = Server::run(command);
        server.accept("orders.placed", "o-1", "");
        server.until("o-1", "delivered");
        let ended = server.stop();
        assert_eq!(ended.stderr.contains("delivered"), is_told, "{name}: {}", ended.stderr);
    }
}
