//! `redrive try`: the first minute of a new user.

use insta::assert_snapshot;

use crate::run::{Folder, redrive};

const BOOK: &str = "\
version: 1
dependencies:
  mail-api: { kind: webhook, facts: { p99: 200ms } }
services:
  notification-svc:
    target: { http: \"http://127.0.0.1:9000/events\" }
    depends_on: mail-api
    timeout: 10s
    on_failure: { transient: standard, 503: aggressive }
    classify: [{ status: 404, as: transient, because: \"the index follows later\" }]
    events: [todo.reminder.fired]
";

#[test]
fn the_story_of_a_429() {
    let folder = Folder::with("book.yaml", BOOK);
    let run = folder.run(&[
        "try",
        "todo.reminder.fired",
        "--rules",
        "book.yaml",
        "--answers",
        "503,429:60,timeout,200",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_snapshot!(run.stdout, @r"
    todo.reminder.fired → notification-svc  row `todo.reminder.fired`, book.yaml:11

    attempt 1  at 0s  503 Service Unavailable
      category  transient SERVICE_UNAVAILABLE  (default classification)
      rule      on 503: retry by aggressive  (book.yaml:9)
      breaker   closed, 1 of 5 in a row  (the webhook kind's)
      verdict   retry in 352ms, at 352ms  (retry 1 of 3; backoff 250ms to 500ms, jitter equal; window 352ms of 15s)

    attempt 2  at 352ms  429 Too Many Requests, Retry-After: 60
      category  rate-limited RATE_LIMITED  (default classification)
      rule      on rate-limited: retry by upstream  (built in)
      breaker   closed, 2 of 5 in a row  (the webhook kind's)
      verdict   retry in 1m, at 1m  (retry 1 of 5; backoff alone 5s)
                all deliveries to `mail-api` wait until 1m without using retries
                requested by the target, so it counts towards `hold_max` (1m of 1d), not the window

    attempt 3  at 1m  no answer in time
      took      10s, the whole timeout (book.yaml:8)
      category  transient NETWORK_TIMEOUT  (default classification)
      rule      on transient: retry by standard  (book.yaml:9)
      breaker   closed, 3 of 5 in a row  (the webhook kind's)
      verdict   retry in 729ms, at 71s  (retry 1 of 5; backoff 500ms to 1s, jitter equal; window 11.08s of 5m)

    attempt 4  at 71s  200 OK
      breaker   closed  (the webhook kind's)
      verdict   delivered

    ✓ delivered after 4 attempts and 71s
    ");
}

#[test]
fn the_story_of_an_outage() {
    let folder = Folder::with("book.yaml", BOOK);
    let run =
        folder.run(&["try", "todo.reminder.fired", "--rules", "book.yaml", "--answers", "404,refused*9"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_snapshot!(run.stdout, @r"
    todo.reminder.fired → notification-svc  row `todo.reminder.fired`, book.yaml:11

    attempt 1  at 0s  404 Not Found
      category  transient NOT_FOUND  (`classify`, book.yaml:10, because the index follows later)
      rule      on transient: retry by standard  (book.yaml:9)
      breaker   closed, 1 of 5 in a row  (the webhook kind's)
      verdict   retry in 705ms, at 705ms  (retry 1 of 5; backoff 500ms to 1s, jitter equal; window 705ms of 5m)

    attempt 2  at 705ms  connection refused
      category  transient CONNECTION_REFUSED  (default classification)
      rule      on transient: retry by standard  (book.yaml:9)
      breaker   closed, 2 of 5 in a row  (the webhook kind's)
      verdict   retry in 1.75s, at 2.45s  (retry 2 of 5; backoff 1s to 2s, jitter equal; window 2.45s of 5m)

    attempt 3  at 2.45s  connection refused
      category  transient CONNECTION_REFUSED  (default classification)
      rule      on transient: retry by standard  (book.yaml:9)
      breaker   closed, 3 of 5 in a row  (the webhook kind's)
      verdict   retry in 2.92s, at 5.37s  (retry 3 of 5; backoff 2s to 4s, jitter equal; window 5.37s of 5m)

    attempt 4  at 5.37s  connection refused
      category  transient CONNECTION_REFUSED  (default classification)
      rule      on transient: retry by standard  (book.yaml:9)
      breaker   closed, 4 of 5 in a row  (the webhook kind's)
      verdict   retry in 4.95s, at 10.32s  (retry 4 of 5; backoff 4s to 8s, jitter equal; window 10.32s of 5m)

    attempt 5  at 10.32s  connection refused
      category  transient CONNECTION_REFUSED  (default classification)
      rule      on transient: retry by standard  (book.yaml:9)
      breaker   open until 70s: no calls  ← opened on failure 5  (the webhook kind's)
      verdict   retry in 10.06s, at 20.38s  (retry 5 of 5; backoff 8s to 16s, jitter equal; window 20.38s of 5m)

    held  at 20.38s  no attempt is made
      because   circuit breaker open; waiting uses no retry
      held      49.94s of 1d of `hold_max`
      verdict   held until 70s

    attempt 6  at 70s  connection refused
      category  transient CONNECTION_REFUSED  (default classification)
      rule      on transient: retry by standard  (book.yaml:9)
      breaker   open until 2m10s: no calls  ← opened again by a failed probe  (the webhook kind's)
      verdict   dead letter: the 5 retries of the policy are used up MAX_RETRIES_EXCEEDED

    ✗ dead after 6 attempts and 70s, kept in _notification-svc.deadletter
    (4 answers left over)
    ");
}

const HANGS: &str = "\
version: 1
breakers: { touchy: { trip: { consecutive: 1 }, open: 60s } }
services:
  report-svc:
    target: { exec: [make-report], time_limit: 30s }
    timeout: { as: transient }
    retry: standard
    breaker: touchy
    hold_max: 90s
    events: [report.wanted]
";

#[test]
fn the_story_of_a_process_that_hangs() {
    let folder = Folder::with("book.yaml", HANGS);
    let run = folder.run(&["try", "report.wanted", "--rules", "book.yaml", "--answers", "timeout*3"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_snapshot!(run.stdout, @r"
    report.wanted → report-svc  row `report.wanted`, book.yaml:10

    attempt 1  at 0s  process exceeded its time limit
      took      30s, the whole timeout (book.yaml:5)
      category  transient TIME_LIMIT_EXCEEDED  (default classification)
      rule      on transient: retry by standard  (book.yaml:7)
      breaker   open until 90s: no calls  ← opened on failure 1  (`touchy`)
      verdict   retry in 705ms, at 30.71s  (retry 1 of 5; backoff 500ms to 1s, jitter equal; window 705ms of 5m)

    held  at 30.71s  no attempt is made
      because   circuit breaker open; waiting uses no retry
      held      59.29s of 90s of `hold_max`
      verdict   held until 90s

    attempt 2  at 90s  process exceeded its time limit
      took      30s, the whole timeout (book.yaml:5)
      category  transient TIME_LIMIT_EXCEEDED  (default classification)
      rule      on transient: retry by standard  (book.yaml:7)
      breaker   open until 3m: no calls  ← opened again by a failed probe  (`touchy`)
      verdict   retry in 1.75s, at 2m2s  (retry 2 of 5; backoff 1s to 2s, jitter equal; window 32.45s of 5m)

    held  at 2m2s  no attempt is made
      because   circuit breaker open; waiting uses no retry
      held      90s of 90s of `hold_max`
      verdict   held until 2m32s

    held  at 2m32s  no attempt is made
      because   circuit breaker open; waiting uses no retry
      held      90s of 90s of `hold_max`
      verdict   dead letter: the breaker is still open, and `hold_max` is used up CIRCUIT_BREAKER_OPEN

    ✗ dead after 2 attempts and 2m32s, kept in _report-svc.deadletter
    (1 answer left over)
    ");
}

#[test]
fn the_story_of_what_nobody_understands() {
    let folder = Folder::with("book.yaml", BOOK);
    let run = folder.run(&["try", "todo.reminder.fired", "--rules", "book.yaml", "--answers", "500*3"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_snapshot!(run.stdout, @r"
    todo.reminder.fired → notification-svc  row `todo.reminder.fired`, book.yaml:11

    attempt 1  at 0s  500 Internal Server Error
      category  unknown SERVER_ERROR  (default classification)
      rule      on unknown: retry by standard, a few times only  (book.yaml:9)
      breaker   closed, 1 of 5 in a row  (the webhook kind's)
      verdict   retry in 705ms, at 705ms  (retry 1 of 5; 1 of 2 for this category; backoff 500ms to 1s, jitter equal; window 705ms of 5m)

    attempt 2  at 705ms  500 Internal Server Error
      category  unknown SERVER_ERROR  (default classification)
      rule      on unknown: retry by standard, a few times only  (book.yaml:9)
      breaker   closed, 2 of 5 in a row  (the webhook kind's)
      verdict   retry in 1.75s, at 2.45s  (retry 2 of 5; 2 of 2 for this category; backoff 1s to 2s, jitter equal; window 2.45s of 5m)

    attempt 3  at 2.45s  500 Internal Server Error
      category  unknown SERVER_ERROR  (default classification)
      rule      on unknown: retry by standard, a few times only  (book.yaml:9)
      breaker   closed, 3 of 5 in a row  (the webhook kind's)
      verdict   dead letter: the 2 retries for this category are used up MAX_RETRIES_EXCEEDED

    ✗ dead after 3 attempts and 2.45s, kept in _notification-svc.deadletter
    ");
}

#[test]
fn an_answer_is_shown_as_it_was_named() {
    let folder = Folder::with("book.yaml", BOOK);
    #[rustfmt::skip]
    let cases = [
        ("a message of one's own", "500=quota,200",  "attempt 1  at 0s  500: quota\n"),
        ("a day is waited",        "429:86400,200",  "attempt 1  at 0s  429 Too Many Requests, Retry-After: 86400\n"),
        ("and no longer",          "429:86401,200",  "attempt 1  at 0s  429 Too Many Requests, Retry-After: 86401, cut to 1d\n"),
        ("all were needed",        "503,200",        "✓ delivered after 2 attempts"),
        ("one was not",            "200,503",        "\n(1 answer left over)\n"),
        ("two were not",           "200,503*2",      "\n(2 answers left over)\n"),
    ];
    for (name, answers, words) in cases {
        let run = folder.run(&["try", "todo.reminder.fired", "--rules", "book.yaml", "--answers", answers]);
        let told = run.printed();
        assert!(told.contains(words), "{name}: {told}");
        assert_eq!(told.contains("needed)"), words.contains("needed)"), "{name}: {told}");
    }
}

#[test]
fn what_cannot_be_tried_is_refused_with_advice() {
    let book = format!("{BOOK}    channels: {{ mail: {{ events: [todo.reminder.snoozed] }} }}\n");
    let folder = Folder::with("book.yaml", &book);
    #[rustfmt::skip]
    let cases: [(&str, &[&str], i32, &str); 10] = [
        ("nobody wants it",   &["try", "todo.reminder.fird", "--rules", "book.yaml"], 1, "did you mean `todo.reminder.fired`?"),
        ("no such service",   &["try", "todo.reminder.fired", "--rules", "book.yaml", "--service", "notification"], 1, "there is no service `notification`"),
        ("a channel's name",  &["try", "todo.reminder.fired", "--rules", "book.yaml", "--service", "mail"], 1, "did you mean `notification-svc/mail`?"),
        ("no such channel",   &["try", "todo.reminder.fired", "--rules", "book.yaml", "--service", "notification-svc/male"], 1, "did you mean `notification-svc/mail`?"),
        ("no such answer",    &["try", "todo.reminder.fired", "--rules", "book.yaml", "--answers", "soon"], 2, "`soon` is not an answer"),
        ("nearly an answer",  &["try", "todo.reminder.fired", "--rules", "book.yaml", "--answers", "TIMEOUT"], 2, "`TIMEOUT` is not an answer: did you mean `timeout`?"),
        ("no headers there",  &["try", "todo.reminder.fired", "--rules", "book.yaml", "--answers", "timeout:5"], 2, "only a status can, such as 429:60"),
        ("no answers",        &["try", "todo.reminder.fired", "--rules", "book.yaml", "--answers", ""], 2, "at least one answer"),
        ("too many answers",  &["try", "todo.reminder.fired", "--rules", "book.yaml", "--answers", "503*99999"], 2, "more than 10000 answers"),
        ("no such book",      &["try", "todo.reminder.fired", "--rules", "none.yaml"], 2, "could not read none.yaml"),
    ];
    for (name, args, code, words) in cases {
        let run = folder.run(args);
        assert_eq!(run.code, code, "{name}");
        assert!(run.stderr.contains(words), "{name}: {}", run.stderr);
    }
}

#[test]
fn a_count_that_falls_is_explained_and_a_range_reads_as_it_was_written() {
    let story = redrive(&[
        "try",
        "todo.reminder.fired",
        "--service",
        "notification-svc",
        "--rules",
        "crates/server/tests/books/todo.yaml",
        "--answers",
        "503,429:60,timeout,200",
    ])
    .printed();
    assert!(story.contains("the breaker forgot 2 failures: no failure for its `reset` of 1m"), "{story}");
    let folder = Folder::with("book.yaml", &BOOK.replace("503: aggressive", "500-599: none"));
    let story =
        folder.run(&["try", "todo.reminder.fired", "--rules", "book.yaml", "--answers", "503"]).printed();
    assert!(story.contains("on 500-599: retry by none"), "{story}");
}

#[test]
fn a_condition_and_a_schema_are_applied_to_the_event_that_is_given() {
    let book = "version: 1
event_types: { orders.placed: { schema: { type: object, properties: { total: { type: number } } } } }
services:
  large: { target: { log: stdout }, events: [{ type: orders.placed, where: \"data.total > 100\" }] }
";
    let folder = Folder::with("book.yaml", book);
    let shown = |more: &[&str]| {
        let run = folder.run(&[&["try", "orders.placed", "--rules", "book.yaml"], more].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout
    };
    #[rustfmt::skip]
    let cases: [(&[&str], &str, bool); 5] = [
        (&[],                                 "where `data.total > 100`: give --data to evaluate it",                                       true),
        (&["--data", "{\"total\": 101}"],     "where `data.total > 100`: met",                                                              true),
        (&["--data", "{\"total\": 99}"],      "where `data.total > 100`: not met, so no delivery is made",                                  false),
        (&["--data", "{}"],                   "where `data.total > 100`: not met, since `total` is missing, so no delivery is made",        false),
        (&["--data", "{\"total\": \"x\"}"],   "orders.placed is refused with 400: `data/total` violates the schema of its event type: the value is not of type \"number\"", false),
    ];
    for (more, expected, is_delivered) in cases {
        let text = shown(more);
        assert!(text.contains(expected), "{more:?}: {text}");
        assert_eq!(text.contains("attempt 1"), is_delivered, "{more:?}: {text}");
    }
}

#[test]
fn a_mail_and_a_notification_are_shown_as_their_templates_make_them() {
    let book = "version: 1
services:
  mail: { target: { smtp: \"smtp://127.0.0.1:2525\", from: shop@example.test, to: \"{{ data.email }}\", subject: \"Order {{ data.id }}\", body: \"Hello\" }, events: [orders.placed] }
  push: { target: { ntfy: \"http://127.0.0.1:9/topic\", title: \"Order {{ data.id }}\" }, events: [orders.placed] }
";
    let folder = Folder::with("book.yaml", book);
    let shown = |more: &[&str]| {
        let run = folder.run(&[&["try", "orders.placed", "--rules", "book.yaml"], more].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout
    };
    let text = shown(&["--data", r#"{"id": 7, "email": "ann@example.test"}"#]);
    for line in ["to: ann@example.test", "subject: Order 7", "body: Hello", "title: Order 7"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let text = shown(&[]);
    let needs = ["needs ", "data.email", "data.id", ": give --data"];
    assert!(needs.iter().all(|part| text.contains(part)), "{text}");
    let text = shown(&["--data", "{}"]);
    assert!(text.contains("no call is made: the event lacks data.id"), "{text}");
}
