//! `redrive rules`: what holds for whom, and where it came from.

use serde_json::{Value, json};

use crate::run::{Folder, Run, redrive};

const BOOK: &str = r#"version: 1
defaults:
  retry: standard
  timeout: 15s
retry_policies:
  overnight: { initial: 30s, max: 1h, retries: 10, window: 8h }
dependencies:
  mail: { kind: smtp, timeout: 20s, in_flight: 8, rate: 20/s, facts: { p99: 2s } }
services:
  billing:
    title: Billing
    target: { http: "http://127.0.0.1:9000/events" }
    consumer_group: billing.events
    criticality: high
    data_loss: not-acceptable
    on_failure: { 503: aggressive, fatal: pause }
    classify:
      - { status: 404, as: transient, because: "orders arrive late" }
      - { message: "(?i)quota|limit", as: rate-limited }
    dead_letter: { retention: 14d, alert: 10/m }
    idempotency: { store: redis, ttl: 24h }
    alerts: [{ when: "retry_rate > 20% over 5m", severity: warning }]
    events:
      - { type: orders.placed, retry: overnight }
      - { type: "orders.*", breaker: none }
    channels:
      email: { title: Email dispatch, target: { smtp: "smtp://mail.example.test", from: ops@example.test, to: ops@example.test, subject: s, body: b }, depends_on: mail, events: [orders.failed] }
  audit:
    target: { log: stdout }
    events: ["*"]
"#;

fn rules(arguments: &[&str]) -> Run {
    let folder = Folder::with("redrive.yaml", BOOK);
    folder.run(&[&["rules"], arguments].concat())
}

#[test]
fn all_rows_are_shown_under_their_services() {
    insta::assert_snapshot!(rules(&[]).printed(), @r#"
      EVENT                 RETRY      BREAKER          TIMEOUT  DEAD LETTERS

    billing  Billing
      orders.placed         overnight  webhook default  15s      _billing.deadletter
      orders.*              standard   none             15s      _billing.deadletter
      email: orders.failed  standard   smtp default     20s      _billing.deadletter.email

    audit
      *                     standard   none             15s      _audit.deadletter

    2 services, 4 rows, 1 channel
    "#);
}

#[test]
fn what_the_book_states_is_not_cut() {
    let book = BOOK.replace("fatal: pause }", "fatal: pause, unknown: overnight }");
    let run = Folder::with("redrive.yaml", &book).run(&["rules", "billing", "orders.placed"]);
    let line = |word: &str| {
        let found = run.stdout.lines().find(|line| line.trim_start().starts_with(word));
        found.unwrap_or_else(|| panic!("{word} in {}", run.stdout))
    };
    assert!(line("unknown").ends_with("jitter equal"), "{}", run.stdout);
    assert!(line("internal").ends_with("at most 3 attempts"), "{}", run.stdout);
}

#[test]
fn a_rule_is_shown_with_the_origin_of_each_value() {
    insta::assert_snapshot!(rules(&["billing", "orders.placed"]).printed(), @r"
    billing ← orders.placed  row on line 24

    Delivery
      target          http                    (the service, line 12)  http://127.0.0.1:9000/events
      dependency      billing                 (built in)              of kind webhook
      order           none                    (built in)
      consumer group  billing.events          (the service, line 13)
      keep delivered  7d                      (built in)
      criticality     high                    (the service, line 14)
      data loss       not-acceptable          (the service, line 15)

    On failure
      503             aggressive              (the service, line 16)  3 retries, 500ms doubling to 5s, within 15s, jitter equal
      transient       overnight               (this row, line 24)     10 retries, 30s doubling to 1h, within 8h, jitter equal
      rate-limited    upstream                (built in)              5 retries, 5s, 10s, 20s, 1m, jitter none
      permanent       dead-letter             (built in)              no retry
      invalid         dead-letter             (built in)              no retry
      fatal           pause                   (the service, line 16)  the service pauses until it is resumed
      unknown         overnight               (this row, line 24)     10 retries, 30s doubling to 1h, within 8h, jitter equal, at most 2 retries
      internal        overnight               (this row, line 24)     10 retries, 30s doubling to 1h, within 8h, jitter equal, at most 3 attempts

    Classification
      status 404                 transient     (the service, line 18)  orders arrive late
      message /(?i)quota|limit/  rate-limited  (the service, line 19)

    Breaker
      name            webhook default         (the kind)
      trip            5 consecutive failures  (the kind)
      open            1m                      (the kind)
      probes          2                       (the kind)
      close after     2                       (the kind)
      count           attempt                 (the kind)
      when open       hold                    (built in)
      hold max        1d                      (built in)

    Timeouts
      whole           15s                     (the defaults, line 4)
      connect         5s                      (built in)
      tls             5s                      (built in)
      headers         15s                     (the defaults, line 4)
      as              transient               (built in)

    Permits
      in flight       64                      (built in)
      ramp            10s                     (built in)              ramp-up to twice the usual rate after an outage
      rate growth     4%                      (built in)              per second, after throttling
      rate memory     10m                     (built in)              how long a throttling limit is remembered

    Waiting
      events          20000000                (built in)              maximum for the whole service
      size            64GiB                   (built in)
      per session     10000                   (built in)              behind a dead letter that blocks their session
      when full       refuse                  (built in)              dead-letter for webhook sources

    Idempotency
      by              event-id                (built in)
      store           redis                   (the service, line 21)  not available: write `embedded`
      key             source and id           (built in)
      ttl             1d                      (the service, line 21)

    Dead letters
      name            _billing.deadletter     (built in)
      form            envelope                (built in)
      retention       14d                     (the service, line 20)
      alert           10/m                    (the service, line 20)
      reprocess       manual                  (built in)
      reprocess max   3                       (built in)

    Alerts
      retry_rate > 20% over 5m  warning  (the service, line 22)
    ");
}

#[test]
fn a_rule_fills_the_template() {
    insta::assert_snapshot!(rules(&["billing", "orders.placed", "--format", "markdown"]).printed(), @r#"
    ## Resilience Rules: Billing consuming orders.placed

    **Consumer Group:** billing.events
    **Criticality:** High
    **Data Loss Tolerance:** Not Acceptable

    ### Error Classification Overrides
    | Error | Default Category | Override | Reason |
    |-------|-----------------|----------|--------|
    | status 404 | permanent | transient | orders arrive late |
    | message /(?i)quota\|limit/ | any | rate-limited | – |

    ### Retry Policy
    - **Named policy:** overnight
    - **Initial delay:** 30000ms
    - **Max delay:** 3600s
    - **Max retries:** 10
    - **Max window:** 8h
    - **On 503:** aggressive
    - **On fatal:** pause

    ### Dead-Letter Queue
    - **DLQ topic:** _billing.deadletter
    - **Retention:** 14 days
    - **Alert threshold:** 10 entries/minute
    - **Reprocessing strategy:** manual

    ### Idempotency
    - **Pattern:** Event ID dedup
    - **Dedup store:** Redis, not available
    - **Dedup TTL:** 1 day
    - **Dedup key:** source and id

    ### Circuit Breaker
    - **Named breaker:** webhook default
    - **Trip threshold:** 5 consecutive failures
    - **Open timeout:** 1m

    ### Timeouts
    - **Processing timeout:** 15s
    - **Dependency timeouts:** not declared

    ### Alerting
    | Metric | Threshold | Severity | Action |
    |--------|-----------|----------|--------|
    | Retry rate | > 20% over 5m | Warning | – |
    | DLQ inflow | > 10/min | Critical | – |
    | Consumer lag | not declared | – | – |
    | Circuit breaker open | not declared | – | – |
    "#);
}

#[test]
fn every_rule_of_a_service_has_its_page() {
    let pages = redrive(&[
        "rules",
        "notification-svc",
        "--rules",
        "crates/server/tests/books/todo.yaml",
        "--format",
        "markdown",
    ]);
    let pages = pages.printed();
    let headings: Vec<_> = pages.lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(headings.len(), 6, "{headings:?}");
    for heading in ["### Retry Policy", "### Dead-Letter Queue", "### Circuit Breaker", "### Alerting"] {
        assert_eq!(pages.matches(heading).count(), 6, "{heading}");
    }
}

#[test]
fn machines_get_each_value_with_its_place() {
    let printed = rules(&["billing/email", "orders.failed", "--format", "json"]).printed();
    let rule: Value = serde_json::from_str(&printed).expect("an object");
    let at = |level: &str, line: u32, column: u32, value: Value| json!({ "value": value, "origin": { "level": level, "line": line, "column": column } });
    let built_in = |level: &str, value: Value| json!({ "value": value, "origin": { "level": level, "line": null, "column": null } });
    #[rustfmt::skip]
    let cases = [
        ("the policy",           "/on_failure/transient",       at("defaults", 3, 10, json!("standard"))),
        ("what is built in",     "/on_failure/rate-limited",    built_in("built-in", json!("upstream"))),
        ("an act",               "/on_failure/fatal",           at("service", 16, 43, json!("pause"))),
        ("a status",             "/on_failure/503",             at("service", 16, 24, json!("aggressive"))),
        ("the kind's breaker",   "/breaker/name",               built_in("kind", json!("smtp default"))),
        ("the dependency",       "/delivery/dependency",        at("channel", 27, 164, json!("mail"))),
        ("its rate",             "/permits/rate_per_second",    at("dependency", 8, 57, json!(20.0))),
        ("its facts",            "/facts/p99_ms",               at("dependency", 8, 77, json!(2_000))),
        ("a duration",           "/dead_letter/retention_ms",   at("service", 20, 31, json!(14 * 86_400_000))),
    ];
    for (name, path, expected) in cases {
        assert_eq!(rule.pointer(path), Some(&expected), "{name}");
    }
    assert_eq!(rule["channel"], "email");
    assert_eq!(rule["classify"][0]["value"]["because"], "orders arrive late");
    let all: Vec<Value> = serde_json::from_str(&rules(&["--format", "json"]).printed()).expect("a list");
    assert_eq!(all.len(), 4);
}

#[test]
fn what_is_not_wanted_is_refused_with_a_hint() {
    #[rustfmt::skip]
    let cases = [
        ("no such service",    vec!["biling"],                          "there is no service `biling`: did you mean `billing`?"),
        ("no such channel",    vec!["billing/emial"],                   "there is no service `billing/emial`: did you mean `billing/email`?"),
        ("a channel's name",   vec!["email"],                           "there is no service `email`: did you mean `billing/email`?"),
        ("another wants it",   vec!["billing", "users.added"],          "billing does not subscribe to `users.added`; audit does\n  it subscribes to orders.placed, orders.*, orders.failed"),
        ("a slip of the pen",  vec!["billing/email", "orders.faild"],   "billing/email does not subscribe to `orders.faild`; billing, audit do\n  did you mean `orders.failed`?\n  it subscribes to orders.failed"),
    ];
    for (name, arguments, expected) in cases {
        assert_eq!(rules(&arguments).refused(), format!("error: {expected}\n"), "{name}");
    }
    let book = BOOK.replace("events: [orders.failed]", "events: [orders.failed, orders.placed]");
    let said = Folder::with("redrive.yaml", &book).run(&["rules", "billing", "users.added"]).refused();
    assert!(said.ends_with("it subscribes to orders.placed, orders.*, orders.failed\n"), "once each: {said}");
}

#[test]
fn a_pattern_claims_types_that_are_not_listed() {
    let printed = rules(&["billing", "orders.shipped.late"]).printed();
    assert!(printed.starts_with("billing ← orders.shipped.late  row `orders.*` on line 25\n"), "{printed}");
    let channels = rules(&["billing", "orders.failed"]).printed();
    assert!(channels.ends_with("\nIt also goes to billing/email.\n"), "{channels}");
}
