//! The commands for dead letters, against a server that says what it is told to.

mod carry;

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
        "wave": "second", "origin": "operator", "total": 5000, "sent": 11, "delivered": 9, "failed": 0, "left": 0,
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
        assert!(run.stderr.starts_with(&format!("error: cannot connect to {nowhere} (")), "{}", run.stderr);
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
    assert_snapshot!(run.stdout, @r"
    LETTER    DIED    SERVICE        TYPE           CODE           ATTEMPTS  MESSAGE
    3c6ef372  5m ago  billing/email  orders.placed  UNPROCESSABLE         1  order 42 has no field `total`
    3c6ef372  5m ago  billing        orders.placed  UNPROCESSABLE         1  [poison, replay 3, holds 1,200] it [2J hurts

    Next:
      redrive dlq show 3c6ef372
          shows a letter with its attempts and data
      redrive dlq groups
          shows causes of dead letters
    ");
    assert_eq!(run.stderr, "more: --before 18708f\n");
    assert_eq!(first_line(&requests[0]), "GET /v1/dead-letters?service=billing&from=2h&limit=2 HTTP/1.1");
    let (run, _) = against([Reply::json(200, &json!({ "dead_letters": [] }))], &["dlq", "list"]);
    assert_snapshot!(run.printed(), @"✓ no matching dead letters");
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
    let free = Reply::json(200, &json!({ "dead_letters": [letter(&json!({}))] }));
    let (run, requests) = against([Reply::json(200, &found), free.clone()], &["dlq", "groups"]);
    assert_snapshot!(run.printed(), @r"
    FAILURE GROUP     COUNT  LAST SEEN  SERVICE           CODE             LAST 24 HOURS             MESSAGE
    00c0ffee00c0ffee  9,998  1m ago     billing/email +1  UNPROCESSABLE    ▁·······▁··············█  order 42 has no field `total`
    0000000000000bad      2  1m ago     search            NETWORK_TIMEOUT  ▁·······▁··············█  [1 poison] no answer in time

    10,000 dead letters of 2 causes

    Next:
      redrive dlq show 3c6ef372
          shows a letter of the first group
      redrive dlq replay --fingerprint 00c0ffee00c0ffee --canary
          replays the first group: one, then ten, then the rest
    ");
    assert_eq!(first_line(&requests[0]), "GET /v1/failure-groups? HTTP/1.1");
    let young = json!({ "groups": [group(&json!({ "first_seen": "2025-10-21T14:30:00Z" }))] });
    assert_eq!(
        first_line(&requests[1]),
        "GET /v1/dead-letters?fingerprint=00c0ffee00c0ffee&limit=1 HTTP/1.1"
    );
    let (run, _) = against([Reply::json(200, &young), free.clone()], &["dlq", "groups"]);
    assert_snapshot!(run.printed().lines().take(2).collect::<Vec<_>>().join("\n"), @r"
    FAILURE GROUP     COUNT  LAST SEEN  SERVICE           CODE           LAST HOUR     MESSAGE
    00c0ffee00c0ffee  9,998  1m ago     billing/email +1  UNPROCESSABLE  ··········▄█  order 42 has no field `total`
    ");
    let (run, _) = against([Reply::json(200, &found)], &["dlq", "groups", "--format", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&run.printed()).expect("a list"), found["groups"]);
    // What cannot be sent again so is not proposed.
    let claimed = Reply::json(200, &json!({ "dead_letters": [letter(&json!({ "claimed_by": 3 }))] }));
    let poison = json!({ "groups": [group(&json!({ "poison": 9_998 }))] });
    let poison_step = "redrive dlq replay --fingerprint 00c0ffee00c0ffee --canary --include-poison --note 'the cause is fixed'";
    #[rustfmt::skip]
    let cases = [
        ("a replay has them", &found,  claimed, "redrive replays 3"),
        ("all are poison",    &poison, free,    poison_step),
    ];
    for (name, found, letters, expected) in cases {
        let (run, _) = against([Reply::json(200, found), letters], &["dlq", "groups"]);
        let printed = run.printed();
        let steps: Vec<&str> =
            printed.lines().filter(|line| line.starts_with("  redrive")).map(str::trim).collect();
        assert_eq!(steps, ["redrive dlq show 3c6ef372", expected], "{name}");
    }
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
    assert_snapshot!(run.printed(), @r#"
    orders.placed → billing/email  letter 3c6ef372fe94f82b0123456789abcdef
      tier            dead
      died            2025-10-21T14:30:00Z  5m ago
      category        permanent
      failure group   00c0ffee00c0ffee
      event           order-42
      session         customer-7
      row             billing/orders.*
      consumer group  billing

    attempts
      NO  FAILED AT             STATUS  CODE             MESSAGE
       1  2025-10-21T14:29:59Z          NETWORK_TIMEOUT  no answer in time
       2  2025-10-21T14:30:00Z  422     UNPROCESSABLE    order 42 has no field `total`

    data
      {
        "order": 42
      }

    Next:
      redrive dlq replay 3c6ef372
          replays it, once the cause is fixed
      redrive dlq edit 3c6ef372
          resends it with new data
      redrive why 3c6ef372
          shows its history with the rule lines
    "#);
    assert_eq!(first_line(&requests[0]), "GET /v1/dead-letters/3c6e?form=envelope HTTP/1.1");
    let (run, _) = against([Reply::json(200, &envelope())], &["dlq", "show", "3c6e", "--format", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&run.printed()).expect("JSON"), envelope());
    let poison =
        with(envelope(), &json!({ "tier": "poison", "dlqId": "old 7", "replays": 1, "retryAttempts": [] }));
    let (run, _) = against([Reply::json(200, &poison)], &["dlq", "show", "old 7"]);
    assert_snapshot!(run.printed(), @r#"
    orders.placed → billing/email  letter old 7
      tier            poison
      died            2025-10-21T14:30:00Z  5m ago
      category        permanent
      failure group   00c0ffee00c0ffee
      event           order-42
      session         customer-7
      row             billing/orders.*
      consumer group  billing
      replayed        1 time

    data
      {
        "order": 42
      }

    Next:
      redrive dlq replay 'old 7' --include-poison --note 'the cause is fixed'
          replays it, once the cause is fixed
      redrive dlq edit 'old 7'
          resends it with new data
    "#);
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
    assert_snapshot!(run.stdout, @r"
    5,000 dead letters to replay, of 250 sessions
      FAILURE GROUP     COUNT  SERVICE        MESSAGE
      00c0ffee00c0ffee  4,990  billing/email  order 42 has no field `total`
      0000000000000bad     10  billing
      to billing/email (4,990), billing (10)
      takes about 4m10s at that rate
      ! 7 more belong to replay 2
      3 more are poison and skipped: --include-poison includes them
      they block 2 sessions
    ✗ cannot start: the rule book has no service `billing`
    ");
    assert!(requests[0].ends_with(r#"{"service":"billing","dry_run":true,"rate":20.0}"#), "{requests:?}");
    let survey = |letters: u64, count: u64| {
        json!({
            "letters": letters, "sessions": letters, "estimated_seconds": null, "poison_left": count, "holding": letters,
            "by_cause": [], "by_target": [], "claimed": [{ "replay": 2, "count": count }],
        })
    };
    #[rustfmt::skip]
    let cases = [
        ("one",       1, 1, "1 dead letter to replay, of 1 session\n  ! 1 more belongs to replay 2\n  1 more is poison and skipped: --include-poison includes it\n  it blocks 1 session\n"),
        ("none",      0, 2, "no dead letters to replay\n  ! 2 belong to replay 2\n  2 are poison and skipped: --include-poison includes them\n"),
    ];
    for (name, letters, count, expected) in cases {
        let (run, _) = against([Reply::json(200, &survey(letters, count))], &arguments);
        assert_eq!(run.printed(), expected, "{name}");
    }
}

#[test]
fn poison_that_a_replay_leaves_alone_is_told() {
    let done =
        json!({ "state": "done", "sent": 1, "total": 1, "delivered": 1, "in_flight": 0, "waiting": 0 });
    #[rustfmt::skip]
    let cases = [
        ("none", 0, "✓ replay 3 is done: 1 delivered\n"),
        ("one",  1, "✓ replay 3 is done: 1 delivered\n! 1 poison letter matches too and is skipped: --include-poison --note TEXT includes it\n"),
        ("two",  2, "✓ replay 3 is done: 1 delivered\n! 2 poison letters match too and are skipped: --include-poison --note TEXT includes them\n"),
    ];
    for (name, count, expected) in cases {
        let begun = Reply::json(201, &replay(&json!({ "state": "gathering", "poison_left": count })));
        let (run, _) = against([begun, stream(&[replay(&done)])], &["dlq", "replay", "--all"]);
        assert_eq!(run.printed(), expected, "{name}");
    }
}

fn stream(states: &[Value]) -> Reply {
    let events = states.iter().fold(String::new(), |text, state| text + &format!("data: {state}\n\n"));
    Reply::new(200, format!(": keep-alive\n\n{events}")).header("content-type: text/event-stream")
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
    assert_snapshot!(run(&done, 0), @"✓ replay 3 is done: 5,000 delivered");
    assert_snapshot!(run(&partly, 1), @r"
    ! replay 3 is done: 3 delivered, 1 failed again, 6 skipped

    Next:
      redrive dlq list --tier poison
          shows the letters that failed again
    ");
    assert_snapshot!(run(&stopped, 1), @r"
    ✗ replay 3 stopped: a letter failed again (failure group 00c0ffee00c0ffee)
      0 delivered, 1 failed again, 4,999 to go

    Next:
      redrive why 3c6ef372
          shows why the letter failed again
      redrive replays 3 resume
          resumes it, once the cause is fixed
      redrive replays 3 cancel
          cancels it; unsent letters stay dead
    ");
    // A server that went away in between is found again.
    let replies =
        [Reply::json(201, &replay(&json!({}))), stream(&[replay(&json!({}))]), stream(&[replay(&done)])];
    let (run, _) = against(replies, &["dlq", "replay", "3c6e"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.stderr, "— connection to the server lost; the replay resumes when the server is back\n");
    let (run, requests) =
        against([Reply::json(201, &replay(&json!({})))], &["dlq", "replay", "3c6e", "--detach"]);
    assert_snapshot!(run.printed(), @r"
    replay 3  service billing
      state         running                                                     10s ago
      started       2025-10-21T14:34:00Z                                        1m ago
      pace          at most 20/s, 1,000 in flight at most, canary: ten letters
      letters       5,000
      delivered     9
      failed again  0
      skipped       0
      in flight     2
      to be sent    4,989

    Next:
      redrive replays 3 --watch
          shows its progress
      redrive replays 3 pause
          pauses it
    ");
    assert!(requests[0].ends_with(r#"{"letters":["3c6e"]}"#), "{requests:?}");
    let taken = refusal("REPLAY_CONFLICT", "letter 3c6e belongs to replay 2");
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
    assert_snapshot!(run.printed(), @r"
    NO  STATE    LETTERS  DELIVERED  FAILED  SKIPPED  STARTED  SELECTION
     3  running    5,000          9       0        0  1m ago   service billing
     2  stopped    5,000          9       1        0  1m ago   letter 3c6ef372
    ");
    let (run, requests) = against(
        [Reply::json(200, &replay(&json!({ "state": "paused", "to": "mail" })))],
        &["replays", "3", "pause"],
    );
    assert_snapshot!(run.printed(), @r"
    replay 3  service billing
      state         paused                                                      10s ago
      started       2025-10-21T14:34:00Z                                        1m ago
      pace          at most 20/s, 1,000 in flight at most, canary: ten letters
      target        mail                                                        instead of the original service
      letters       5,000
      delivered     9
      failed again  0
      skipped       0
      in flight     2
      to be sent    4,989

    Next:
      redrive replays 3 resume
          resumes it
      redrive replays 3 cancel
          cancels it; unsent letters stay dead
    ");
    assert_eq!(first_line(&requests[0]), "POST /v1/replays/3/pause HTTP/1.1");
    let gone = refusal("REPLAY_STATE", "replay 3 was cancelled and cannot resume; start a new one");
    let (run, _) = against([Reply::json(409, &gone)], &["replays", "3", "resume"]);
    assert_snapshot!(run.refused(), @"error: replay 3 was cancelled and cannot resume; start a new one  (REPLAY_STATE, 409)");
    let (run, _) =
        against([stream(&[replay(&json!({ "state": "cancelled" }))])], &["replays", "3", "--watch"]);
    assert_eq!(run.code, 1);
    assert_snapshot!(run.stdout, @"! replay 3 was cancelled: 9 delivered, 4,989 not sent, 2 in flight");
    let stop = json!({ "fingerprint": "00c0ffee00c0ffee", "delivery": DELIVERY });
    #[rustfmt::skip]
    let cases = [
        ("why it stopped",   json!({ "state": "stopped", "stop": stop }),  "  because       a letter failed again (failure group 00c0ffee00c0ffee)\n"),
        ("what stays dead",  json!({ "state": "cancelled" }),              "  not sent      4,989\n"),
    ];
    for (name, more, expected) in cases {
        let (run, _) = against([Reply::json(200, &replay(&more))], &["replays", "3"]);
        let page = run.printed();
        assert!(page.contains(expected), "{name}: {page}");
    }
}

#[test]
fn nothing_is_deleted_before_somebody_says_so() {
    let dry = json!({ "deleted": 12, "claimed": 3, "dry_run": true, "holding": 1, "done": true });
    let (run, requests) = against([Reply::json(200, &dry)], &["dlq", "purge", "--older-than", "7d"]);
    assert_snapshot!(run.refused(), @"error: nothing deleted: 12 dead letters would be deleted, but there is no terminal to confirm; add --yes");
    assert!(requests[0].ends_with(r#"{"dry_run":true,"older_than":"7d"}"#), "{requests:?}");
    let (run, _) = against([Reply::json(200, &dry)], &["dlq", "purge", "--service", "billing", "--dry-run"]);
    assert_snapshot!(run.printed(), @r"
    12 dead letters would be deleted
      1 session would resume
      3 letters of open replays would be kept
    ");
    let steps = "{\"deleted\":500,\"claimed\":0,\"dry_run\":false,\"done\":false}\n\
                 {\"deleted\":612,\"claimed\":3,\"dry_run\":false,\"done\":true}\n";
    let arguments = ["dlq", "purge", "--service", "billing", "--yes", "--note", "test data"];
    let (run, requests) = against([Reply::new(200, steps)], &arguments);
    assert_snapshot!(run.printed(), @r"
    ✓ 612 dead letters deleted
      3 letters of open replays are kept: cancel the replay first
    ");
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
    assert_snapshot!(run.printed(), @r"
    ✓ replaced letter 3c6ef372 by event order-42#edit-00000000000000ff

    Next:
      redrive show 9e3779b97f4a7c15
          shows its deliveries
    ");
    assert_eq!(first_line(&requests[1]), "POST /v1/dead-letters/3c6e/edit HTTP/1.1");
    assert!(
        requests[1].ends_with(r#"{"note":"a typo","data":{"order": 42.0, "total": 1e400}}"#),
        "{requests:?}"
    );
    // A letter from elsewhere is edited by the id under which a repetition is known.
    let own = format!("content-location: /v1/dead-letters/{DELIVERY}");
    let replies_of_own = [Reply::json(200, &envelope()).header(&own), Reply::json(200, &edited)];
    let (_, requests) = against(replies_of_own, &["dlq", "edit", "legacy-2", "--data", "{}"]);
    assert_eq!(first_line(&requests[0]), "GET /v1/dead-letters/legacy-2?form=envelope HTTP/1.1");
    assert_eq!(first_line(&requests[1]), format!("POST /v1/dead-letters/{DELIVERY}/edit HTTP/1.1"));
    let (run, _) = against(replies(), &["dlq", "edit", "3c6e", "--data", "{"]);
    assert!(run.refused().contains("new data is not valid JSON"));
    let skipped = json!({ "id": DELIVERY, "released": 2 });
    let (run, requests) =
        against([Reply::json(200, &skipped)], &["dlq", "skip", "3c6e", "--note", "too late"]);
    assert_snapshot!(run.printed(), @"✓ skipped letter 3c6ef372: 2 deliveries behind it resume");
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
    assert!(stderr.contains("no change: the letter stays"), "{stderr}");
    let (code, stderr, _) = edit("false", vec![letter()]);
    assert!(code == Some(1) && stderr.contains("the editor exited with"), "{stderr}");
    let (code, stderr, _) = edit(" ", vec![letter()]);
    assert!(code == Some(1) && stderr.contains("set $EDITOR"), "{stderr}");
}
