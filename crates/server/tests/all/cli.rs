//! The commands that talk to a server, against one that says what it is told to.

mod waiting;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::run::{Folder, Run, redrive};
use crate::scripted::{Reply, Scripted, nowhere};

/// The id of the only delivery there is.
pub(crate) const DELIVERY: &str = "3c6ef372fe94f82b0123456789abcdef";

/// Runs a command against the answers, and tells what was asked.
fn against(replies: impl IntoIterator<Item = Reply>, arguments: &[&str]) -> (Run, Vec<String>) {
    let server = Scripted::new(replies);
    let mut all = arguments.to_vec();
    all.extend(["--server", server.url()]);
    let run = redrive(&all);
    (run, server.requests())
}

fn accepted(deliveries: u32) -> Value {
    json!({ "id": "order-42", "receipt": "9e3779b97f4a7c15", "duplicate": false, "deliveries": deliveries })
}

fn error(code: &str, message: &str, details: &Value) -> Value {
    json!({ "error": { "code": code, "message": message, "details": details } })
}

fn failed(attempt: u32, started_at: &str, more: &Value) -> Value {
    let mut story = json!({
        "attempt": attempt, "started_at": started_at, "took_nanos": 12_345_678, "end": "failed",
        "category": "transient", "code": "SERVICE_UNAVAILABLE", "status": 503, "message": "503 Service Unavailable",
        "book": 255,
    });
    let whole = story.as_object_mut().expect("an object");
    whole.extend(more.as_object().expect("an object").clone());
    story
}

/// A delivery in all its states: `more` says which.
fn delivery(more: &Value) -> Value {
    let mut delivery = json!({
        "id": DELIVERY, "webhook_id": format!("msg_{DELIVERY}"), "service": "billing", "channel": "email",
        "subscription": "billing/orders.*", "state": "pending", "event_id": "order-42", "event_source": "/shop",
        "event_type": "orders.placed", "receipt": "9e3779b97f4a7c15", "session": "customer-7",
        "accepted_at": "2025-10-21T14:30:00Z", "attempts": 0,
    });
    let whole = delivery.as_object_mut().expect("an object");
    whole.extend(more.as_object().expect("an object").clone());
    delivery
}

fn dead() -> Value {
    let reaction = "    on_failure: { transient: standard, 503: aggressive }";
    let weighed = json!({
        "policy": "aggressive", "by_policy": [1, 3], "in_total": [1, 5], "backoff_nanos": 352_000_000,
        "window": { "used_nanos": 364_345_678, "limit_nanos": 15_000_000_000_u64 },
        "held": { "used_nanos": 0, "limit_nanos": 86_400_000_000_000_u64 },
        "deadline": { "used_nanos": 364_345_678, "limit_nanos": 3_600_000_000_000_u64 },
    });
    let mut asked = weighed.clone();
    asked["policy"] = json!("upstream");
    asked["backoff_nanos"] = json!(5_000_000_000_u64);
    asked["retry_after_nanos"] = json!(60_000_000_000_u64);
    asked["held"]["used_nanos"] = json!(60_000_000_000_u64);
    let mut spent = weighed.clone();
    spent["by_policy"] = json!([4, 3]);
    delivery(&json!({
        "state": "dead", "attempts": 4, "ended_at": "2025-10-21T14:31:33.5Z",
        "death": {
            "category": "transient", "code": "MAX_RETRIES_EXCEEDED", "failure_code": "NETWORK_TIMEOUT",
            "tier": "dead", "message": "no answer in time", "fingerprint": "00c0ffee",
        },
        "stories": [
            failed(1, "2025-10-21T14:30:00Z", &json!({
                "verdict": { "is": "retry", "due_at": "2025-10-21T14:30:00.364Z" }, "retry": weighed,
                "reaction_at": { "line": 9, "column": 5 }, "reaction_line": reaction,
                "response": "<html>\u{1b}[2J\nwe are sorry</html>",
            })),
            failed(2, "2025-10-21T14:30:00.364Z", &json!({
                "category": "rate-limited", "code": "RATE_LIMITED", "status": 429, "message": "quota",
                "verdict": { "is": "retry", "due_at": "2025-10-21T14:31:00.377Z" }, "retry": asked,
            })),
            json!({
                "attempt": 3, "started_at": "2025-10-21T14:31:00.377Z", "took_nanos": 0, "end": "held", "by": "breaker",
                "book": 255, "verdict": { "is": "hold", "until": "2025-10-21T14:31:30Z" }, "held_nanos": 60_013_000_000_u64,
            }),
            failed(3, "2025-10-21T14:31:30Z", &json!({
                "status": 404, "code": "NOT_FOUND", "message": "no such index",
                "verdict": { "is": "retry", "due_at": "2025-10-21T14:31:31Z" }, "book": 256,
                "classified_at": { "line": 10, "column": 17 },
                "classified_line": "    classify: [{ status: 404, as: transient, because: \"the index follows later\" }]",
                "reaction_at": { "line": 9, "column": 5 },
            })),
            failed(4, "2025-10-21T14:31:31Z", &json!({
                "status": null, "code": "NETWORK_TIMEOUT", "message": "no answer in time", "took_nanos": 2_500_000_000_u64,
                "verdict": { "is": "dead", "code": "MAX_RETRIES_EXCEEDED", "tier": "dead" }, "retry": spent,
                "reaction_at": { "line": 9, "column": 5 }, "reaction_line": reaction, "book": 256,
            })),
        ],
    }))
}

#[test]
fn a_server_that_is_not_there_is_tried_again_and_then_told() {
    let nowhere = nowhere();
    #[rustfmt::skip]
    let cases: [&[&str]; 8] = [
        &["status"], &["send", "orders.placed"], &["show", "order-42"], &["why", "--last"],
        &["pause", "billing"], &["resume", "billing"], &["route", "--unrouted"], &["tail"],
    ];
    let check = |arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.extend(["--server", &nowhere]);
        let run = redrive(&all);
        assert_eq!((run.code, run.stdout.as_str()), (3, ""), "{arguments:?}: {}", run.stderr);
        let first = format!("error: cannot connect to {nowhere} (");
        assert!(run.stderr.starts_with(&first), "{arguments:?}: {}", run.stderr);
        let last = "). Start it with `redrive serve`, or pass --server URL\n";
        assert!(run.stderr.ends_with(last), "{arguments:?}: {}", run.stderr);
    };
    // Each waits for more than a second, so they wait together.
    std::thread::scope(|scope| {
        for arguments in cases {
            scope.spawn(move || check(arguments));
        }
    });
    let folder = Folder::new();
    let run = folder.run(&["backup", "copy", "--server", &nowhere]);
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(
        run.stderr.contains("no server, and no store in redrive-data: cannot connect to"),
        "{}",
        run.stderr
    );
    assert!(!folder.path("redrive-data").exists(), "looking for a store makes none");
    let refused = folder.run(&["compact"]).refused();
    assert!(refused.contains("could not open redrive-data"), "{refused}");
}

#[test]
fn a_server_that_comes_back_in_time_is_enough() {
    #[rustfmt::skip]
    let cases = [
        ("at once",       vec![],              0, 1),
        ("after a 503",   vec![503],           0, 2),
        ("after three",   vec![502, 503, 504], 0, 4),
        ("after four",    vec![503; 4],        1, 4),
        ("not after 500", vec![500],           1, 1),
        ("not after 429", vec![429],           1, 1),
    ];
    for (name, before, code, asked) in cases {
        let before = before.into_iter().map(|status| Reply::new(status, ""));
        let (run, requests) =
            against(before.chain([Reply::json(202, &accepted(1))]), &["send", "orders.placed"]);
        assert_eq!((run.code, requests.len()), (code, asked), "{name}: {}", run.stderr);
        let id = |request: &String| {
            request.lines().find(|line| line.starts_with("ce-id: ")).map(ToOwned::to_owned)
        };
        assert!(id(&requests[0]).is_some(), "{name}: an event has its id before it is sent");
        assert!(requests.iter().all(|request| id(request) == id(&requests[0])), "{name}: and keeps it");
    }
}

#[test]
fn what_the_server_refuses_is_told_with_all_it_says() {
    let refusal = error(
        "VALIDATION_ERROR",
        "`type` cannot be routed",
        &json!({ "field": "type", "reason": "cannot be routed: it is empty" }),
    );
    let refusal = Reply::json(400, &refusal).header("x-correlation-id: c-1");
    let (run, _) = against([refusal], &["send", "orders.placed"]);
    assert_snapshot!(run.refused(), @r"
    error: `type` cannot be routed  (VALIDATION_ERROR, 400)
      reason          cannot be routed: it is empty
      correlation id  c-1
    ");
    let said = json!({ "field": "id", "reason": "is missing" });
    let said = Reply::json(400, &error("VALIDATION_ERROR", "`id` is missing", &said));
    let (run, _) = against([said], &["send", "orders.placed"]);
    assert_eq!(run.refused(), "error: `id` is missing  (VALIDATION_ERROR, 400)\n", "nothing is said twice");
    let several = json!({ "candidates": [DELIVERY, "3c6ef37200000000000000000000000a"] });
    let several = Reply::json(409, &error("AMBIGUOUS_ID", "several deliveries begin so", &several));
    let (run, _) = against([several], &["why", "3c"]);
    assert_snapshot!(run.refused(), @r"
    error: several deliveries begin so  (AMBIGUOUS_ID, 409)
      candidates      3c6ef372fe94f82b0123456789abcdef, 3c6ef37200000000000000000000000a
    ");
    let missing = Reply::json(404, &error("SERVICE_NOT_FOUND", "there is no service `biling`", &json!({})));
    let (run, requests) = against([missing], &["pause", "biling"]);
    assert_snapshot!(run.refused(), @"error: there is no service `biling`  (SERVICE_NOT_FOUND, 404)");
    assert!(requests[0].starts_with("POST /v1/services/biling/pause HTTP/1.1\n"), "{requests:?}");
    let away = error("SERVICE_UNAVAILABLE", "the disk is full\u{1b}[2J", &json!({ "free_bytes": 0 }));
    let (run, _) = against(vec![Reply::json(503, &away); 4], &["send", "orders.placed"]);
    assert_snapshot!(run.refused(), @r"
    error: server unavailable, try again later: the disk is full [2J  (SERVICE_UNAVAILABLE, 503)
      free_bytes      0
    ");
    let (run, _) = against([Reply::new(200, "<html>")], &["status"]);
    let refused = run.refused();
    assert!(refused.contains(" is not from Redrive, or from another version: expected value"), "{refused}");
    let (run, _) = against([Reply::new(200, "")], &["status"]);
    let refused = run.refused();
    assert!(
        refused.contains(" is not from Redrive, or from another version: the response is empty"),
        "{refused}"
    );
    let (run, _) = against([Reply::new(404, "<html>")], &["status"]);
    assert!(run.refused().contains("without details: is it a Redrive server?"));
    // What is quoted of an answer does nothing to the terminal.
    let odd = json!({ "replays": [{ "state": "\u{1b}]0;owned\u{7}\u{202e}" }] });
    let (run, _) = against([Reply::json(200, &odd)], &["replays"]);
    let refused = run.refused();
    assert!(refused.contains("owned") && !refused.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{refused:?}");
}

#[test]
fn what_cannot_be_asked_is_wrong_use() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str], &str); 10] = [
        ("no address",       &["status", "--server", "localhost:7373"],           "expected http://HOST:PORT"),
        ("another scheme",   &["status", "--server", "ftp://localhost"],          "only http:// and https:// are supported"),
        ("no such authority", &["status", "--server", "https://localhost", "--ca", "none.pem"], "could not read none.pem"),
        ("no JSON",          &["send", "note.taken", "buy milk"],                 "redrive send note.taken 'buy milk' --content-type text/plain"),
        ("data twice",       &["send", "a.b", "{}", "--file", "x.json"],          "cannot be used with"),
        ("no such file",     &["send", "a.b", "--file", "none.json"],             "could not open none.json"),
        ("none",             &["send", "a.b", "--count", "0"],                    "0 is not in 1..=1000000"),
        ("no delivery",      &["why"],                                            "<DELIVERY>"),
        ("two headers",      &["send", "a.b", "x", "--content-type", "text/plain\r\nx: y"], "invalid request: "),
        ("route what",       &["route"],                                          "--unrouted"),
    ];
    for (name, arguments, words) in cases {
        let run = redrive(arguments);
        assert_eq!(run.code, 2, "{name}: {}", run.stderr);
        assert!(run.stderr.contains(words), "{name}: {}", run.stderr);
    }
}

#[test]
fn an_event_is_sent_as_it_was_typed() {
    let reply = || [Reply::json(202, &accepted(2))];
    let (run, requests) = against(reply(), &["send", "orders.placed", r#"{"n": 1.0}"#]);
    assert_snapshot!(run.printed(), @r"
    ✓ accepted orders.placed (on disk)
      id        order-42
      receipt   9e3779b97f4a7c15
      routed to 2 services

    Next:
      redrive show 9e3779b97f4a7c15
          shows its deliveries
    ");
    assert!(requests[0].starts_with("POST /v1/events/orders.placed HTTP/1.1\n"), "{requests:?}");
    assert!(requests[0].ends_with("\n\n{\"n\": 1.0}"), "{requests:?}");
    let folder = Folder::with("note.txt", "buy milk");
    let server = Scripted::new(reply());
    #[rustfmt::skip]
    let arguments = [
        "send", "note.taken", "--file", "note.txt", "--content-type", "text/plain", "--id", "é", "--session", "a b",
        "--source", "/me", "--subject", "milk", "--correlation-id", "c-1", "--format", "json", "--server", server.url(),
    ];
    let printed = folder.run(&arguments).printed();
    assert_eq!(serde_json::from_str::<Value>(&printed).expect("a line of JSON"), accepted(2));
    let request = server.requests().remove(0);
    #[rustfmt::skip]
    let expected = [
        "POST /v1/events HTTP/1.1\n", "\ncontent-type: text/plain\n", "\nce-specversion: 1.0\n", "\nce-type: note.taken\n",
        "\nce-id: %C3%A9\n", "\nce-partitionkey: a%20b\n", "\nce-source: /me\n", "\nce-subject: milk\n",
        "\nce-correlationid: c-1\n", "\n\nbuy milk",
    ];
    for line in expected {
        assert!(request.contains(line), "{line}: {request}");
    }
}

#[test]
fn several_events_go_over_one_connection_and_each_has_an_id() {
    let reply = Reply::json(202, &accepted(0));
    let (run, requests) =
        against(vec![reply; 3], &["send", "orders.placed", "--count", "3", "--format", "json"]);
    assert_eq!(run.printed().lines().count(), 3);
    let mut ids: Vec<&str> = requests
        .iter()
        .filter_map(|request| request.lines().find(|line| line.starts_with("ce-id")))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3, "{requests:?}");
}

#[test]
fn what_nobody_wants_and_what_came_before_is_said() {
    let (run, _) = against([Reply::json(202, &accepted(0))], &["send", "orders.placed"]);
    assert_snapshot!(run.printed(), @r"
    ✓ accepted orders.placed (on disk)
      id        order-42
      receipt   9e3779b97f4a7c15
      routed to none: no rule matches, stored as unrouted

    Next:
      redrive show 9e3779b97f4a7c15
          shows its deliveries
    ");
    let mut again = accepted(1);
    again["duplicate"] = json!(true);
    let (run, _) = against([Reply::json(200, &again)], &["send", "orders.placed", "--id", "order-42"]);
    assert_snapshot!(run.printed(), @r"
    ! orders.placed is a duplicate: not delivered again
      id        order-42
      receipt   9e3779b97f4a7c15
      routed to 1 service

    Next:
      redrive show 9e3779b97f4a7c15
          shows its deliveries
    ");
}

#[test]
fn an_event_is_shown_with_its_deliveries() {
    let event = json!({
        "specversion": "1.0", "id": "order-42", "source": "/shop", "type": "orders.placed", "subject": "42",
        "datacontenttype": "application/json", "partitionkey": "customer-7", "priority": 3,
        "data": { "order": 42, "lines": ["a book"] },
    });
    let found = json!({ "events": [{
        "receipt": "9e3779b97f4a7c15", "received_at": "2025-10-21T14:30:00Z", "unrouted": false, "event": event,
        "deliveries": [
            delivery(&json!({ "state": "delivered", "attempts": 1, "ended_at": "2025-10-21T14:30:00.012Z", "channel": null })),
            delivery(&json!({ "state": "retrying", "attempts": 2, "due_at": "2025-10-21T14:35:12Z", "waits": { "on": "retry", "because": "waiting for the next attempt", "until": "2025-10-21T14:35:12Z" } })),
            delivery(&json!({ "state": "held", "waits": { "on": "breaker", "because": "the circuit breaker of mail-api is open", "dependency": "mail-api" }, "service": "mail" })),
            delivery(&json!({ "state": "pending", "behind": true, "service": "search", "waits": { "on": "session", "because": "another event of session `customer-7` comes first" } })),
            delivery(&json!({ "state": "dead", "attempts": 4, "death": dead()["death"], "service": "audit" })),
        ],
    }] });
    let (run, requests) = against([Reply::json(200, &found)], &["show", "order 42"]);
    assert_snapshot!(run.printed(), @r#"
    orders.placed  order-42  received 5m ago
      receipt       9e3779b97f4a7c15
      received      2025-10-21T14:30:00Z
      source        /shop
      subject       42
      content type  application/json
      session       customer-7
      priority      3

    data
      {
        "order": 42,
        "lines": [
          "a book"
        ]
      }

    5 deliveries
      DELIVERY  SERVICE        STATE      ATTEMPTS
      3c6ef372  billing        delivered         1  after 12ms
      3c6ef372  billing/email  retrying          2  waiting for the next attempt until 2025-10-21T14:35:12Z (in 12s)
      3c6ef372  mail/email     held              0  the circuit breaker of mail-api is open
      3c6ef372  search/email   pending           0  another event of session `customer-7` comes first
      3c6ef372  audit/email    dead              4  MAX_RETRIES_EXCEEDED: no answer in time

    Next:
      redrive why 3c6ef372
          shows its history
    "#);
    assert!(requests[0].starts_with("GET /v1/events/order%2042 HTTP/1.1\n"), "{requests:?}");
}

#[test]
fn an_event_that_nobody_wants_is_shown_as_such() {
    let event = json!({ "specversion": "1.0", "id": "1", "source": "/a", "type": "a.b", "datacontenttype": "text/plain", "data": "two\nlines\u{1b}[2J" });
    let found = json!({ "events": [
        { "receipt": "9e3779b97f4a7c15", "received_at": "2025-10-21T14:30:00Z", "unrouted": true, "event": event, "deliveries": [] },
    ] });
    let (run, _) = against([Reply::json(200, &found)], &["show", "1"]);
    assert_snapshot!(run.printed(), @r"
    a.b  1  received 5m ago
      receipt       9e3779b97f4a7c15
      received      2025-10-21T14:30:00Z
      source        /a
      content type  text/plain

    data
      two
      lines [2J

    ! unrouted

    Next:
      redrive try a.b
          shows which rules nearly match
      redrive route --unrouted
          delivers it, once a rule matches
    ");
}

#[test]
fn long_data_are_cut_and_binary_data_are_named() {
    let long = (1..=50).map(|line| line.to_string()).collect::<Vec<_>>().join("\n");
    #[rustfmt::skip]
    let cases = [
        ("many lines",  json!({ "data": long }),              "\n  40\n  … 10 more lines; --format json shows all\n"),
        ("a long line", json!({ "data": "x".repeat(1_000) }), &*format!("\n  {}…\n", "x".repeat(159))),
        ("bytes",       json!({ "data_base64": "AAEC" }),     "\ndata\n  (binary, as base64:)\n  AAEC\n"),
        ("none",        json!({}),                            "\nno data\n"),
    ];
    for (name, event, words) in cases {
        let found = json!({ "events": [
            { "receipt": "0", "received_at": "2025-10-21T14:30:00Z", "unrouted": true, "event": event, "deliveries": [] },
        ] });
        let (run, _) = against([Reply::json(200, &found)], &["show", "1"]);
        let told = run.printed();
        assert!(told.contains(words), "{name}: {told}");
    }
}

#[test]
fn a_delivery_is_shown_where_no_event_goes_by_that_name() {
    let missing = || Reply::json(404, &error("EVENT_NOT_FOUND", "no such event", &json!({})));
    let (run, requests) = against([missing(), Reply::json(200, &dead())], &["show", "3c6e"]);
    assert_snapshot!(run.printed(), @r"
    orders.placed → billing/email  delivery 3c6ef372fe94f82b0123456789abcdef
      state       dead                                  MAX_RETRIES_EXCEEDED: no answer in time
      event       order-42                              of /shop
      receipt     9e3779b97f4a7c15
      accepted    2025-10-21T14:30:00Z                  5m ago
      ended       2025-10-21T14:31:33.5Z                3m27s ago
      row         billing/orders.*
      webhook-id  msg_3c6ef372fe94f82b0123456789abcdef
      session     customer-7

    attempts
      NO  AT                         TOOK  RESULT                             NEXT
       1  2025-10-21T14:30:00Z       12ms  503 transient SERVICE_UNAVAILABLE  retry at 2025-10-21T14:30:00.364Z
       2  2025-10-21T14:30:00.364Z   12ms  429 rate-limited RATE_LIMITED      retry at 2025-10-21T14:31:00.377Z
          2025-10-21T14:31:00.377Z         held                               held until 2025-10-21T14:31:30Z
       3  2025-10-21T14:31:30Z       12ms  404 transient NOT_FOUND            retry at 2025-10-21T14:31:31Z
       4  2025-10-21T14:31:31Z      2.50s  transient NETWORK_TIMEOUT          dead letter MAX_RETRIES_EXCEEDED

    Next:
      redrive why 3c6ef372
          shows its history
      redrive show 9e3779b97f4a7c15
          shows the event and its other deliveries
    ");
    assert!(requests[1].starts_with("GET /v1/deliveries/3c6e HTTP/1.1\n"), "{requests:?}");
    let (run, _) = against([Reply::json(200, &json!({ "events": [] })), missing()], &["show", "3c6e"]);
    assert_snapshot!(run.refused(), @r"
    error: nothing found for `3c6e`: not an event id or receipt, and not a delivery id or id prefix
      completed deliveries are kept for a limited time only
    ");
}

#[test]
fn a_dead_letter_tells_its_whole_story() {
    let (run, _) = against([Reply::json(200, &dead())], &["why", "3c6ef372"]);
    assert_snapshot!(run.printed(), @r#"
    orders.placed → billing/email  delivery 3c6ef372fe94f82b0123456789abcdef, row `billing/orders.*`
    event order-42, accepted at 2025-10-21T14:30:00Z

    attempt 1  at 0s  503 Service Unavailable
      when      2025-10-21T14:30:00Z, took 12ms
      answer    <html> [2J we are sorry</html>
      category  transient SERVICE_UNAVAILABLE  (default classification)
      rule      on_failure: { transient: standard, 503: aggressive }  (line 9)
      verdict   retry in 351ms, at 2025-10-21T14:30:00.364Z
                retry 1 of 3 by aggressive; 1 of 5 in total; backoff 352ms with
                jitter; window 364ms of 15s; deadline 364ms of 1h

    attempt 2  at 364ms  429 Too Many Requests: quota
      when      2025-10-21T14:30:00.364Z, took 12ms
      category  rate-limited RATE_LIMITED  (default classification)
      rule      default rule  (not in the rule book)
      verdict   retry in 1m, at 2025-10-21T14:31:00.377Z
                retry 1 of 3 by upstream; 1 of 5 in total; backoff 5s; Retry-After
                1m; window 364ms of 15s; deadline 364ms of 1h
                requested by the target, so it counts towards `hold_max` (1m of 1d),
                not the window

    held  at 1m  no attempt
      when      2025-10-21T14:31:00.377Z
      because   circuit breaker open; waiting uses no retry
      held      1m in total before this
      verdict   held until 2025-10-21T14:31:30Z

    attempt 3  at 90s  404 Not Found: no such index
      when      2025-10-21T14:31:30Z, took 12ms
      category  transient NOT_FOUND  (`classify`, line 10)
                classify: [{ status: 404, as: transient, because: "the index follows
                later" }]
      rule      line 9 of the rule book at that time
      verdict   retry in 987ms, at 2025-10-21T14:31:31Z
                under a different rule book: 0000000000000100

    attempt 4  at 91s  no answer in time
      when      2025-10-21T14:31:31Z, took 2.50s
      category  transient NETWORK_TIMEOUT  (default classification)
      rule      on_failure: { transient: standard, 503: aggressive }  (line 9)
      verdict   dead letter: the 3 retries of the policy are used up MAX_RETRIES_EXCEEDED

    ✗ dead after 4 attempts and 94s, kept in the dead letters of billing/email
      transient MAX_RETRIES_EXCEEDED, last failure NETWORK_TIMEOUT: no answer in time  (failure group 00c0ffee)

    Next:
      redrive dlq replay 3c6ef372
          replays it, once the cause is fixed
      redrive show 9e3779b97f4a7c15
          shows the event and its other deliveries
      redrive rules billing/email orders.placed
          shows the current rules
      redrive try orders.placed --service billing/email --answers 503,429:60,404,timeout
          applies the same failures to the current rule book
    "#);
}

#[test]
fn the_last_failure_is_found_in_the_list() {
    let row = |id: &str, state: &str, attempts: u32, written_at: &str| {
        delivery(&json!({ "id": id, "state": state, "attempts": attempts, "written_at": written_at }))
    };
    let (early, late) = ("2025-10-21T14:30:01Z", "2025-10-21T14:30:02Z");
    #[rustfmt::skip]
    let cases = [
        ("the one written last", vec![row("a0", "retrying", 1, early), row("b0", "dead", 4, late)],       Some("b0")),
        ("a success after one",  vec![row("a0", "delivered", 1, late), row("b0", "delivered", 2, early)], Some("b0")),
        ("of equals the first",  vec![row("a0", "dead", 1, late), row("b0", "dead", 1, late)],            Some("a0")),
        ("else the latest",      vec![row("a0", "delivered", 1, early), row("b0", "pending", 0, late)],   Some("a0")),
        ("there are none",       vec![],                                                                  None),
    ];
    for (name, deliveries, expected) in cases {
        let list = Reply::json(200, &json!({ "deliveries": deliveries }));
        let (run, requests) =
            against([list, Reply::json(200, &dead())], &["why", "--last", "--format", "json"]);
        assert!(requests[0].starts_with("GET /v1/deliveries?limit=100 HTTP/1.1\n"), "{name}: {requests:?}");
        match expected {
            Some(id) => {
                assert!(
                    requests[1].starts_with(&format!("GET /v1/deliveries/{id} ")),
                    "{name}: {requests:?}"
                );
                let told: Value = serde_json::from_str(&run.printed()).expect("JSON");
                assert_eq!(told["id"], DELIVERY, "{name}");
            }
            None => assert!(run.refused().contains("redrive send TYPE"), "{name}"),
        }
    }
}

#[test]
fn the_state_of_a_server_fits_on_a_page() {
    let status = json!({
        "version": "0.1.0", "started_at": "2025-10-21T11:20:00Z", "book": "00000000000000ff", "calls_in_flight": 3,
        "events": 1_234_567, "unrouted": 2, "stranded": 0,
        "services": [
            { "service": "billing", "waiting": 12_000, "delivered": 1_200_000, "dead": 3, "paused_since": "2025-10-21T14:30:00Z", "health": "paused", "why": "paused", "why_since": "2025-10-21T14:30:00Z" },
            { "service": "billing", "channel": "email", "waiting": 0, "delivered": 7, "dead": 0, "health": "held", "why": "the circuit breaker of mail-api is open", "why_until": "2025-10-21T14:35:42Z" },
            { "service": "old-svc", "waiting": 1, "delivered": 0, "dead": 0, "removed": true, "health": "removed", "why": "no longer in the rule book, 1 delivery waits" },
        ],
        "dependencies": [
            { "name": "ledger", "breaker": "closed", "in_flight": 2 },
            { "name": "mail-api", "breaker": "open", "open_until": "2025-10-21T14:35:42Z", "in_flight": 0, "held_until": "2025-10-21T14:36:00Z" },
            { "name": "sms", "breaker": "half-open", "in_flight": 1 },
        ],
    });
    let server = Scripted::new([Reply::json(200, &status)]);
    let printed = redrive(&["status", "--server", server.url()]).printed();
    assert_snapshot!(printed.replace(server.url(), "http://127.0.0.1:7373"), @r"
    ✗ redrive 0.1.0 at http://127.0.0.1:7373  up 3h15m, rule book 00000000000000ff
    1,234,567 events, 3 calls in flight, 2 unrouted

    SERVICE        WAITING  DELIVERED  DEAD
    billing         12,000  1,200,000     3  paused for 5m
    billing/email        0          7     0  held: the circuit breaker of mail-api is open until 2025-10-21T14:35:42Z (in 42s)
    old-svc              1          0     0  removed: no longer in the rule book, 1 delivery waits

    DEPENDENCY  BREAKER    IN FLIGHT
    ledger      closed             2
    mail-api    open               0  probes start in 42s; asked callers to wait; resumes in 1m
    sms         half-open          1

    Next:
      redrive resume billing
          resumes it
      redrive removed
          lists waiting deliveries of removed services, to move or dead-letter
      redrive route --unrouted
          routes events that a rule matches now
      redrive dlq groups
          shows the causes of the dead letters
      redrive why --last
          shows the history of the latest failure
    ");
}

#[test]
fn operators_are_told_what_they_did() {
    let done = || [Reply::new(200, "{}")];
    let rerouted = |seen: u64, routed: u64| [Reply::json(200, &json!({ "seen": seen, "routed": routed }))];
    #[rustfmt::skip]
    let cases: [([Reply; 1], &[&str], &str); 7] = [
        (done(),         &["pause", "billing"],     "✓ billing paused; deliveries wait until `redrive resume billing`\n"),
        (done(),         &["resume", "billing"],    "✓ billing resumed\n"),
        (rerouted(0, 0), &["route", "--unrouted"],  "✓ no unrouted events\n"),
        (rerouted(7, 0), &["route", "--unrouted"],  "! 7 unrouted events, still no matching rule; `redrive try TYPE` shows which rules nearly match\n"),
        (rerouted(1, 1), &["route", "--unrouted"],  "✓ routed the unrouted event\n"),
        (rerouted(7, 7), &["route", "--unrouted"],  "✓ routed all 7 unrouted events\n"),
        (rerouted(7, 5), &["route", "--unrouted"],  "✓ routed 5 of 7 unrouted events, 2 remain\n"),
    ];
    for (reply, arguments, expected) in cases {
        let (run, _) = against(reply, arguments);
        assert_eq!(run.printed(), expected, "{arguments:?}");
    }
}

#[test]
fn a_copy_is_complete_or_refused() {
    let folder = Folder::new();
    #[rustfmt::skip]
    let cases = [
        ("complete",   "{\"pages\":200,\"remaining\":100}\n\n{\"pages\":200,\"remaining\":0}\n", 0, "✓ copied 200 pages to "),
        ("broken off", "{\"pages\":200,\"remaining\":100}\n",                                  1, "the copy is incomplete, do not use it"),
        ("failed",     "{\"pages\":200,\"remaining\":100,\"error\":\"the disk is full\"}\n",   1, "the copy failed: the disk is full"),
        ("nothing",    "",                                                                     1, "the copy is incomplete, do not use it"),
    ];
    for (name, body, code, words) in cases {
        let server = Scripted::new([Reply::new(200, body)]);
        let run = folder.run(&["backup", "copy", "--server", server.url()]);
        assert_eq!(run.code, code, "{name}: {}", run.stderr);
        assert!((run.stdout + &run.stderr).contains(words), "{name}");
        let request = server.requests().remove(0);
        assert!(
            request.contains("{\"folder\":\"/"),
            "{name}: a server has another folder to start from: {request}"
        );
    }
}
