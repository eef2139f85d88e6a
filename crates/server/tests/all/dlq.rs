//! The commands for dead letters, against a server that says what it is told to.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::cli::DELIVERY;
use crate::run::{Folder, Run, redrive};
use crate::scripted::{Reply, Scripted, nowhere};

/// Runs a command against the answers, and tells what was asked.
fn against(replies: impl IntoIterator<Item = Reply>, arguments: &[&str]) -> (Run, Vec<String>) {
    let server = Scripted::new(replies);
    let run = redrive(&[arguments, &["--server", server.url()]].concat());
    (run, server.requests())
}

fn first_line(request: &str) -> &str {
    request.lines().next().unwrap_or_default()
}

fn with(mut whole: Value, more: &Value) -> Value {
    whole.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    whole
}

fn letter(more: &Value) -> Value {
    let letter = json!({
        "id": DELIVERY, "service": "billing", "channel": "email", "subscription": "billing/orders.*",
        "name": "_billing.deadletter.email", "event_id": "order-42", "event_type": "orders.placed", "event_source": "/shop",
        "session": "customer-7", "category": "permanent", "failure_category": "permanent", "code": "UNPROCESSABLE",
        "failure_code": "UNPROCESSABLE", "message": "order 42 has no field `total`", "tier": "dead",
        "fingerprint": "00c0ffee00c0ffee", "attempts": 1, "replays": 0, "died_at": "2025-10-21T14:30:00Z",
        "accepted_at": "2025-10-21T14:29:59Z",
    });
    with(letter, more)
}

fn replay(more: &Value) -> Value {
    let replay = json!({
        "id": 3, "state": "running", "what": "service billing", "rate": 20.0, "concurrency": 1000, "canary": true,
        "wave": "second", "automatic": false, "total": 5000, "sent": 11, "delivered": 9, "failed": 0, "left": 0,
        "in_flight": 2, "waiting": 4989, "claimed_by_others": 0, "created_at": "2025-10-21T14:34:00Z",
        "changed_at": "2025-10-21T14:34:50Z",
    });
    with(replay, more)
}

fn refusal(code: &str, message: &str) -> Value {
    json!({ "error": { "code": code, "message": message, "details": {} } })
}

#[test]
fn without_a_server_they_say_so() {
    let nowhere = nowhere();
    let folder = Folder::with("letters.jsonl", r#"{"service":"a","type":"b.c"}"#);
    #[rustfmt::skip]
    let cases: [&[&str]; 11] = [
        &["dlq", "list"], &["dlq", "groups"], &["dlq", "show", "3c"], &["dlq", "replay", "3c"], &["dlq", "purge", "--all"],
        &["dlq", "edit", "3c", "--data", "{}"], &["dlq", "skip", "3c"], &["dlq", "import", "letters.jsonl"], &["dlq", "export"],
        &["replays"], &["audit"],
    ];
    let check = |arguments: &[&str]| {
        let run = folder.run(&[arguments, &["--server", &nowhere]].concat());
        assert_eq!((run.code, run.stdout.as_str()), (3, ""), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.starts_with("error: System unavailable, try again later\n"), "{}", run.stderr);
    };
    std::thread::scope(|scope| {
        for arguments in cases {
            scope.spawn(move || check(arguments));
        }
    });
}

#[test]
fn letters_are_listed_with_what_matters() {
    let found = json!({ "dead_letters": [
        letter(&json!({})),
        letter(&json!({ "tier": "poison", "channel": null, "claimed_by": 3, "holds": 1200, "message": "it\u{1b}[2J\nhurts" })),
    ], "next": "18708f" });
    let (run, requests) = against(
        [Reply::json(200, &found)],
        &["dlq", "list", "--service", "billing", "--from", "2h", "--limit", "2"],
    );
    assert_eq!(run.code, 0);
    assert_snapshot!(run.stdout, @"");
    assert_eq!(run.stderr, "there are more: --before 18708f\n");
    assert_eq!(first_line(&requests[0]), "GET /v1/dead-letters?service=billing&from=2h&limit=2 HTTP/1.1");
    let (run, _) = against([Reply::json(200, &json!({ "dead_letters": [] }))], &["dlq", "list"]);
    assert_snapshot!(run.printed(), @"");
    // A page may be short and still not be the last.
    let pages = [
        json!({ "dead_letters": [], "next": "b" }),
        json!({ "dead_letters": [letter(&json!({}))], "next": "a" }),
        json!({ "dead_letters": [letter(&json!({}))] }),
    ];
    let pages = pages.iter().map(|page| Reply::json(200, page));
    let (run, requests) = against(pages, &["dlq", "list", "--format", "json"]);
    let printed: Vec<Value> = serde_json::from_str(&run.printed()).expect("a list");
    assert_eq!(printed, [letter(&json!({})), letter(&json!({}))], "the objects of the API");
    assert_eq!(first_line(&requests[2]), "GET /v1/dead-letters?before=a&limit=49 HTTP/1.1");
}

#[test]
fn ten_thousand_letters_read_as_their_causes() {
    let mut trend = vec![0; 288];
    (trend[0], trend[100], trend[286], trend[287]) = (7, 1, 400, 900);
    let group = |more: &Value| {
        let group = json!({
            "fingerprint": "00c0ffee00c0ffee", "count": 9_998, "poison": 0, "first_seen": "2025-10-20T09:00:00Z",
            "last_seen": "2025-10-21T14:34:00Z", "category": "permanent", "code": "UNPROCESSABLE",
            "message": "order 42 has no field `total`", "sample": DELIVERY,
            "services": [{ "service": "billing", "channel": "email", "count": 9_990 }, { "service": "search", "count": 8 }],
            "event_types": [{ "type": "orders.placed", "count": 9_998 }], "trend": { "span_seconds": 300, "counts": trend },
        });
        with(group, more)
    };
    let few = json!({
        "fingerprint": "0000000000000bad", "count": 2, "poison": 1, "code": "NETWORK_TIMEOUT", "message": "no answer in time",
        "services": [{ "service": "search", "count": 2 }],
    });
    let found = json!({ "groups": [group(&json!({})), group(&few)] });
    let (run, requests) = against([Reply::json(200, &found)], &["dlq", "groups"]);
    assert_snapshot!(run.printed(), @"");
    assert_eq!(first_line(&requests[0]), "GET /v1/failure-groups? HTTP/1.1");
    let young = json!({ "groups": [group(&json!({ "first_seen": "2025-10-21T14:30:00Z" }))] });
    let (run, _) = against([Reply::json(200, &young)], &["dlq", "groups"]);
    assert_snapshot!(run.printed().lines().take(2).collect::<Vec<_>>().join("\n"), @"");
    let (run, _) = against([Reply::json(200, &found)], &["dlq", "groups", "--format", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&run.printed()).expect("a list"), found["groups"]);
}

fn envelope() -> Value {
    json!({
        "dlqId": DELIVERY, "originalTopic": "orders.placed", "originalEventId": "order-42",
        "originalTimestamp": "2025-10-21T14:29:58Z", "consumerService": "billing/email", "consumerGroup": "billing",
        "failureCategory": "permanent", "category": "permanent",
        "retryAttempts": [
            { "attempt": 1, "timestamp": "2025-10-21T14:29:59Z", "error": "no answer in time", "errorCode": "NETWORK_TIMEOUT", "httpStatus": null },
            { "attempt": 2, "timestamp": "2025-10-21T14:30:00Z", "error": "order 42 has no field `total`", "errorCode": "UNPROCESSABLE", "httpStatus": 422 },
        ],
        "totalRetries": 1, "firstFailureAt": "2025-10-21T14:29:59Z", "lastFailureAt": "2025-10-21T14:30:00Z",
        "routedToDlqAt": "2025-10-21T14:30:00Z", "correlationId": null, "sessionId": "customer-7",
        "subscriptionId": "billing/orders.*", "tier": "dead", "fingerprint": "00c0ffee00c0ffee", "replays": 0,
        "originalMessage": {
            "specversion": "1.0", "id": "order-42", "source": "/shop", "type": "orders.placed",
            "datacontenttype": "application/json", "data": { "order": 42 },
        },
    })
}

#[test]
fn a_letter_is_shown_with_its_attempts_and_its_data() {
    let (run, requests) = against([Reply::json(200, &envelope())], &["dlq", "show", "3c6e"]);
    assert_snapshot!(run.printed(), @"");
    assert_eq!(first_line(&requests[0]), "GET /v1/dead-letters/3c6e?form=envelope HTTP/1.1");
    let (run, _) = against([Reply::json(200, &envelope())], &["dlq", "show", "3c6e", "--format", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&run.printed()).expect("JSON"), envelope());
    let poison =
        with(envelope(), &json!({ "tier": "poison", "dlqId": "old 7", "replays": 1, "retryAttempts": [] }));
    let (run, _) = against([Reply::json(200, &poison)], &["dlq", "show", "old 7"]);
    assert_snapshot!(run.printed(), @"");
}

#[test]
fn what_a_replay_would_come_to_is_told_first() {
    let survey = json!({
        "letters": 5000, "sessions": 250, "estimated_seconds": 250.0, "poison_left": 3, "holding": 2,
        "by_cause": [
            { "fingerprint": "00c0ffee00c0ffee", "service": "billing", "channel": "email", "count": 4990, "message": "order 42 has no field `total`" },
            { "fingerprint": "0000000000000bad", "service": "billing", "count": 10 },
        ],
        "by_target": [{ "service": "billing", "channel": "email", "count": 4990 }, { "service": "billing", "count": 10 }],
        "claimed": [{ "replay": 2, "count": 7 }],
        "refused_because": "the rule book has no service `billing`",
    });
    let arguments = ["dlq", "replay", "--service", "billing", "--dry-run", "--rate", "20/s"];
    let (run, requests) = against([Reply::json(200, &survey)], &arguments);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""), "it could not begin");
    assert_snapshot!(run.stdout, @"");
    assert!(requests[0].ends_with(r#"{"service":"billing","dry_run":true,"rate":20.0}"#), "{requests:?}");
}

fn stream(states: &[Value]) -> Reply {
    let events: String = states.iter().map(|state| format!("data: {state}\n\n")).collect();
    Reply::new(200, format!(": nothing new\n\n{events}")).header("content-type: text/event-stream")
}

#[test]
fn a_replay_is_watched_until_it_is_over() {
    let done = json!({ "state": "done", "sent": 5000, "delivered": 5000, "in_flight": 0, "waiting": 0, "wave": "rest" });
    let partly = json!({ "state": "done", "sent": 4, "total": 10, "delivered": 3, "failed": 1, "left": 6, "in_flight": 0, "waiting": 0 });
    let stop = json!({ "fingerprint": "00c0ffee00c0ffee", "delivery": DELIVERY });
    let stopped = json!({ "state": "stopped", "sent": 1, "delivered": 0, "failed": 1, "in_flight": 0, "waiting": 4999, "stop": stop });
    let run = |last: &Value, code: i32| {
        let replies = [
            Reply::json(201, &replay(&json!({ "state": "gathering" }))),
            stream(&[replay(&json!({})), replay(last)]),
        ];
        let arguments = ["dlq", "replay", "--all", "--canary", "--concurrency", "5", "--note", "mended"];
        let (run, requests) = against(replies, &arguments);
        assert_eq!((run.code, run.stderr.as_str()), (code, ""), "{}", run.stdout);
        assert!(
            requests[0].ends_with(r#"{"all":true,"canary":true,"concurrency":5,"note":"mended"}"#),
            "{requests:?}"
        );
        assert_eq!(first_line(&requests[1]), "GET /v1/replays/3/progress?until=halt HTTP/1.1");
        run.stdout
    };
    assert_snapshot!(run(&done, 0), @"");
    assert_snapshot!(run(&partly, 1), @"");
    assert_snapshot!(run(&stopped, 1), @"");
    // A server that went away in between is found again.
    let replies =
        [Reply::json(201, &replay(&json!({}))), stream(&[replay(&json!({}))]), stream(&[replay(&done)])];
    let (run, _) = against(replies, &["dlq", "replay", "3c6e"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.stderr, "— the server has gone away; the replay goes on when it is back\n");
    let (run, requests) =
        against([Reply::json(201, &replay(&json!({})))], &["dlq", "replay", "3c6e", "--detach"]);
    assert_snapshot!(run.printed(), @"");
    assert!(requests[0].ends_with(r#"{"letters":["3c6e"]}"#), "{requests:?}");
    let taken =
        refusal("REPLAY_CONFLICT", "letter 3c6e belongs to replay 2: cancel that one first, or wait for it");
    let (run, _) = against([Reply::json(409, &taken)], &["dlq", "replay", "3c6e"]);
    assert!(run.refused().contains("belongs to replay 2"));
}

#[test]
fn replays_are_listed_and_told_what_to_do() {
    let stop = json!({ "fingerprint": "00c0ffee00c0ffee", "delivery": DELIVERY });
    let found = json!({ "replays": [
        replay(&json!({})),
        replay(&json!({ "id": 2, "state": "stopped", "failed": 1, "what": "letter 3c6ef372", "stop": stop })),
    ] });
    let (run, _) = against([Reply::json(200, &found)], &["replays"]);
    assert_snapshot!(run.printed(), @"");
    let (run, requests) = against(
        [Reply::json(200, &replay(&json!({ "state": "paused", "to": "mail" })))],
        &["replays", "3", "pause"],
    );
    assert_snapshot!(run.printed(), @"");
    assert_eq!(first_line(&requests[0]), "POST /v1/replays/3/pause HTTP/1.1");
    let gone = refusal("REPLAY_STATE", "replay 3 was cancelled and cannot go on; start a new one");
    let (run, _) = against([Reply::json(409, &gone)], &["replays", "3", "resume"]);
    assert_snapshot!(run.refused(), @"");
    let (run, _) =
        against([stream(&[replay(&json!({ "state": "cancelled" }))])], &["replays", "3", "--watch"]);
    assert_eq!(run.code, 1);
    assert_snapshot!(run.stdout, @"");
}

#[test]
fn nothing_is_deleted_before_somebody_says_so() {
    let dry = json!({ "deleted": 12, "claimed": 3, "dry_run": true, "holding": 1, "done": true });
    let (run, requests) = against([Reply::json(200, &dry)], &["dlq", "purge", "--older-than", "7d"]);
    assert_snapshot!(run.refused(), @"");
    assert!(requests[0].ends_with(r#"{"dry_run":true,"older_than":"7d"}"#), "{requests:?}");
    let (run, _) = against([Reply::json(200, &dry)], &["dlq", "purge", "--service", "billing", "--dry-run"]);
    assert_snapshot!(run.printed(), @"");
    let steps = "{\"deleted\":500,\"claimed\":0,\"dry_run\":false,\"done\":false}\n\
                 {\"deleted\":612,\"claimed\":3,\"dry_run\":false,\"done\":true}\n";
    let arguments = ["dlq", "purge", "--service", "billing", "--yes", "--note", "test data"];
    let (run, requests) = against([Reply::new(200, steps)], &arguments);
    assert_snapshot!(run.printed(), @"");
    assert!(requests[0].ends_with(r#"{"service":"billing","note":"test data"}"#), "{requests:?}");
    let (run, _) = against([Reply::new(200, &steps[..60])], &arguments);
    assert!(run.refused().contains("the purge may be incomplete"));
}

#[test]
fn a_letter_is_edited_skipped_and_never_sent_unchanged() {
    let edited = json!({
        "event_id": "order-42#edit-00000000000000ff", "receipt": "9e3779b97f4a7c15", "delivery": DELIVERY, "supersedes": DELIVERY,
    });
    let replies = || [Reply::json(200, &envelope()), Reply::json(200, &edited)];
    let arguments =
        ["dlq", "edit", "3c6e", "--data", r#"{"order": 42.0, "total": 1e400}"#, "--note", "a typo"];
    let (run, requests) = against(replies(), &arguments);
    assert_snapshot!(run.printed(), @"");
    assert_eq!(first_line(&requests[1]), "POST /v1/dead-letters/3c6e/edit HTTP/1.1");
    assert!(
        requests[1].ends_with(r#"{"note":"a typo","data":{"order": 42.0, "total": 1e400}}"#),
        "{requests:?}"
    );
    let (run, _) = against(replies(), &["dlq", "edit", "3c6e", "--data", "{"]);
    assert!(run.refused().contains("the new data are no JSON"));
    let skipped = json!({ "id": DELIVERY, "released": 2 });
    let (run, requests) =
        against([Reply::json(200, &skipped)], &["dlq", "skip", "3c6e", "--note", "too late"]);
    assert_snapshot!(run.printed(), @"");
    assert!(requests[0].ends_with(r#"{"note":"too late"}"#), "{requests:?}");
}

#[cfg(unix)]
#[test]
fn an_editor_opens_the_data() {
    let edited = json!({ "event_id": "order-42#edit-1", "receipt": "9e3779b97f4a7c15", "delivery": DELIVERY, "supersedes": DELIVERY });
    let edit = |editor: &str, replies: Vec<Reply>| {
        let server = Scripted::new(replies);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_redrive"));
        command
            .args(["dlq", "edit", "3c6e", "--server", server.url()])
            .env_remove("VISUAL")
            .env("EDITOR", editor);
        let output = command.output().expect("the binary was built for this test");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), server.requests())
    };
    let letter = || Reply::json(200, &envelope());
    let (code, stderr, requests) = edit("sed -i s/42/43/", vec![letter(), Reply::json(200, &edited)]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(requests[1].contains("\"order\": 43"), "{requests:?}");
    let (code, stderr, requests) = edit("true", vec![letter()]);
    assert_eq!((code, requests.len()), (Some(1), 1), "{stderr}");
    assert!(stderr.contains("nothing was changed"), "{stderr}");
    let (code, stderr, _) = edit("false", vec![letter()]);
    assert!(code == Some(1) && stderr.contains("the editor ended with"), "{stderr}");
    let (code, stderr, _) = edit(" ", vec![letter()]);
    assert!(code == Some(1) && stderr.contains("set $EDITOR"), "{stderr}");
}

#[test]
fn a_file_is_checked_before_anything_is_sent() {
    let bad = "{\"service\":\"a\",\"type\":\"b.c\"}\n\nnot JSON\n{\"service\":\"a b\",\"type\":\"c.d\"}\n";
    let folder = Folder::with("bad.jsonl", bad);
    assert_snapshot!(folder.run(&["dlq", "import", "bad.jsonl", "--server", &nowhere()]).refused(), @"");
    let lines: String =
        (0..1_500).map(|n| format!("{{\"service\":\"a\",\"type\":\"b.c\",\"data\":{n}}}\n")).collect();
    folder.write("good.jsonl", lines);
    let part = |imported: u32, known: u32| Reply::json(200, &json!({ "imported": imported, "known": known }));
    let server = Scripted::new([part(999, 1), part(400, 100)]);
    let run = folder.run(&["dlq", "import", "good.jsonl", "--server", server.url()]);
    assert_snapshot!(run.printed(), @"");
    let sent: Vec<usize> =
        server.requests().iter().map(|request| request.matches("\"service\"").count()).collect();
    assert_eq!(sent, [1_000, 500]);
    let run = folder.run(&["dlq", "import", "none.jsonl"]);
    assert!(run.code == 2 && run.stderr.contains("could not open none.jsonl"), "{run:?}");
}

#[test]
fn an_export_is_a_letter_a_line() {
    let lines = format!("{}\n{}\n", envelope(), envelope());
    let (run, requests) =
        against([Reply::new(200, lines.clone())], &["dlq", "export", "--form", "redis", "--type", "a.*"]);
    assert_eq!(run.printed(), lines);
    assert_eq!(first_line(&requests[0]), "GET /v1/dead-letters/export?type=a.*&form=redis HTTP/1.1");
}

#[test]
fn what_was_done_is_on_record() {
    let record = |number: u64, act: &str, note: Option<&str>| {
        let record = json!({ "number": number, "at": "2025-10-21T14:30:00Z", "act": act, "what": "service billing", "letters": 1200 });
        note.map_or(record.clone(), |note| with(record, &json!({ "note": note })))
    };
    let audit = json!({ "audit": [record(2, "purge", Some("test data")), record(1, "replay", None)] });
    let (run, _) = against([Reply::json(200, &audit)], &["audit"]);
    assert_snapshot!(run.printed(), @"");
    let (run, _) = against([Reply::json(200, &audit)], &["audit", "--format", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&run.printed()).expect("a list"), audit["audit"]);
}

#[test]
fn what_cannot_be_asked_is_wrong_use() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str], &str); 6] = [
        ("poison without a note", &["dlq", "replay", "--all", "--include-poison"], "--note"),
        ("letters and all",       &["dlq", "replay", "3c", "--all"],               "cannot be used with"),
        ("no rate",               &["dlq", "replay", "--all", "--rate", "fast"],   "--rate"),
        ("watch what",            &["replays", "--watch"],                         "<NUMBER>"),
        ("no act",                &["replays", "3", "stop"],                       "pause, resume, cancel"),
        ("data twice",            &["dlq", "edit", "3c", "--data", "1", "--file", "x"], "cannot be used with"),
    ];
    for (name, arguments, words) in cases {
        let run = redrive(arguments);
        assert_eq!(run.code, 2, "{name}: {}", run.stderr);
        assert!(run.stderr.contains(words), "{name}: {}", run.stderr);
    }
}
