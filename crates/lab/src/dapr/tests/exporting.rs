//! What exporting makes of books, and what it says is lost.

use super::{book, exported, joined};
use crate::dapr::{Matching, export};

/// The policies and targets of the failure and retry strategy, as a book.
const BOOK: &str = "\
version: 1
dapr: { name: todo-resiliency, namespace: todo }
breakers:
  kafkaBreaker: { from: kafkaBreaker, reset: 60s }
  stateBreaker: { from: stateBreaker, reset: 30s }
  externalBreaker: { from: externalBreaker, reset: 120s }
  sidecarBreaker: { from: sidecarBreaker, reset: 15s }
dependencies:
  kafka: { kind: kafka, dapr: { component: pubsub-kafka }, retry: standard, timeout: default, breaker: kafkaBreaker }
  kafka-in: { kind: kafka, dapr: { component: pubsub-kafka, direction: inbound }, retry: standard, timeout: slow, breaker: none }
  redis: { kind: redis, dapr: { component: statestore-redis }, retry: aggressive, timeout: fast, breaker: stateBreaker }
";

#[test]
fn a_file_says_what_the_book_meant() {
    let expected = "\
apiVersion: dapr.io/v1alpha1
kind: Resiliency
metadata:
  name: todo-resiliency
  namespace: todo
spec:
  policies:
    retries:
      aggressive:
        policy: exponential
        maxInterval: 5s
        maxRetries: 3
      standard:
        policy: exponential
        maxInterval: 30s
        maxRetries: 5
    timeouts:
      fast: 5s
      default: 15s
      slow: 30s
    circuitBreakers:
      kafkaBreaker:
        maxRequests: 1
        interval: 60s
        timeout: 60s
        trip: consecutiveFailures >= 5
      stateBreaker:
        maxRequests: 1
        interval: 30s
        timeout: 30s
        trip: consecutiveFailures >= 3
      externalBreaker:
        maxRequests: 2
        interval: 120s
        timeout: 120s
        trip: consecutiveFailures >= 5
      sidecarBreaker:
        maxRequests: 1
        interval: 15s
        timeout: 15s
        trip: consecutiveFailures >= 3
  targets:
    components:
      pubsub-kafka:
        outbound:
          retry: standard
          timeout: default
          circuitBreaker: kafkaBreaker
        inbound:
          retry: standard
          timeout: slow
      statestore-redis:
        outbound:
          retry: aggressive
          timeout: fast
          circuitBreaker: stateBreaker
";
    assert_eq!(exported(BOOK).yaml, expected);
    assert_eq!(exported(BOOK), exported(BOOK), "the same book gives the same text");
}

#[test]
fn what_is_resolved_is_exported() {
    let text = "\
version: 1
defaults: { timeout: 7s }
timeouts: { unlimited: 24h }
retry_policies:
  even: { delays: [3s], jitter: none, retries: 4 }
  flat: { initial: 2s, factor: 1, max: 2s, jitter: none, retries: unlimited }
  once: { initial: 2s, jitter: none, retries: 1 }
dependencies:
  bus: { kind: service-bus, dapr: { component: bus } }
  mail: { kind: smtp, dapr: { app: 'true' }, retry: none, breaker: none, timeout: unlimited }
  box: { kind: process, dapr: { actor: Box }, retry: even, breaker: stateBreaker }
";
    let expected = "\
apiVersion: dapr.io/v1alpha1
kind: Resiliency
metadata:
  name: redrive-resiliency
spec:
  policies:
    retries:
      standard:
        policy: exponential
        maxInterval: 30s
        maxRetries: 5
      even:
        policy: constant
        duration: 3s
        maxRetries: 4
      flat:
        policy: constant
        duration: 2s
        maxRetries: -1
      once:
        policy: constant
        duration: 2s
        maxRetries: 1
    timeouts:
      t-7s: 7s
    circuitBreakers:
      stateBreaker:
        maxRequests: 1
        timeout: 30s
        trip: consecutiveFailures >= 3
      serviceBusDefault:
        maxRequests: 3
        interval: 300s
        timeout: 30s
        trip: consecutiveFailures >= 5
  targets:
    components:
      bus:
        outbound:
          retry: standard
          timeout: t-7s
          circuitBreaker: serviceBusDefault
    apps:
      \"true\": {}
    actors:
      Box:
        retry: even
        timeout: t-7s
        circuitBreaker: stateBreaker
        circuitBreakerScope: type
";
    assert_eq!(exported(text).yaml, expected);
    let empty = exported("version: 1\n").yaml;
    assert!(empty.ends_with("spec:\n  policies: {}\n  targets: {}\n"), "{empty}");
}

#[test]
fn statuses_become_a_list_where_asked_for() {
    let both = "\
version: 1
dependencies:
  a: { kind: invoke, dapr: { app: a } }
  b: { kind: invoke, dapr: { app: b }, on_failure: { 404: standard, 503: dead-letter } }
";
    let stated = exported(both).yaml;
    assert!(stated.contains("      standard:\n        policy: exponential\n        maxInterval: 30s\n        maxRetries: 5\n      standard-2:"), "{stated}");
    assert!(stated.contains("httpStatusCodes: \"404,408,425,429,500,502,504-599\""), "{stated}");
    assert!(stated.contains("      b:\n        retry: standard-2\n"), "{stated}");

    let one = "version: 1\ndependencies: { a: { kind: invoke, dapr: { app: a } } }\n";
    let always = export(&book(one), Matching::Always);
    assert!(always.yaml.contains("httpStatusCodes: \"408,425,429,500,502-599\""), "{}", always.yaml);
    assert!(!joined(&always.losses).contains("--with-matching"));
    let plain = exported(one);
    assert!(!plain.yaml.contains("matching"), "{}", plain.yaml);
    assert!(joined(&plain.losses).contains("httpStatusCodes: \"408,425,429,500,502-599\""));
}

#[test]
fn only_the_timeout_that_importing_writes_stands_for_none() {
    #[rustfmt::skip]
    let cases = [
        ("as importing writes it",  "unlimited: 24h",                    "",          "unlimited",              None),
        ("from the defaults",       "unlimited: 24h",                    "unlimited", "{ connect: 1s }",        None),
        ("another name",            "day: 24h",                          "",          "day",                    Some("day: 24h")),
        ("no name",                 "",                                  "",          "24h",                    Some("t-24h: 24h")),
        ("overruled by no name",    "unlimited: 24h",                    "unlimited", "24h",                    Some("t-24h: 24h")),
        ("another length",          "unlimited: 12h",                    "",          "unlimited",              Some("unlimited: 12h")),
        ("one that grows",          "unlimited: { first: 1h, max: 24h }", "",         "unlimited",              Some("unlimited: 24h")),
    ];
    for (name, timeouts, of_defaults, of_target, expected) in cases {
        let defaults = if of_defaults.is_empty() { String::new() } else { format!("timeout: {of_defaults}") };
        let yaml = exported(&format!(
            "version: 1\ntimeouts: {{ {timeouts} }}\ndefaults: {{ {defaults} }}\ndependencies: {{ d: {{ kind: invoke, dapr: {{ app: d }}, timeout: {of_target}, breaker: none }} }}\n"
        ))
        .yaml;
        match expected {
            Some(limit) => {
                let (used, _) = limit.split_once(':').expect("a name and a limit");
                assert!(yaml.contains(&format!("    timeouts:\n      {limit}\n")), "{name}\n{yaml}");
                assert!(yaml.contains(&format!("        timeout: {used}\n")), "{name}\n{yaml}");
            }
            None => assert!(!yaml.contains("timeout"), "{name}\n{yaml}"),
        }
    }
}

#[test]
fn every_loss_is_named() {
    let with = |sections: &str| format!("version: 1\n{sections}\n");
    let dependency =
        |keys: &str| with(&format!("dependencies: {{ d: {{ kind: invoke, dapr: {{ app: d }}, {keys} }} }}"));
    let policy = |keys: &str| with(&format!("retry_policies: {{ p: {{ {keys} }} }}"));
    let breaker = |keys: &str| with(&format!("breakers: {{ b: {{ open: 30s, {keys} }} }}"));
    #[rustfmt::skip]
    let cases = [
        ("initial",            policy("initial: 1s, factor: 1.5, max: 9s, retries: 3"),   "p: `initial`: Dapr's exponential"),
        ("factor",             policy("initial: 500ms, factor: 2, max: 9s, retries: 3"),  "p: `factor`: Dapr's exponential"),
        ("jitter",             policy("initial: 1s, max: 9s, retries: 3, jitter: full"),  "p: `jitter`: Dapr's exponential jitter"),
        ("jitter of constant", policy("delays: [1s], retries: 3, jitter: full"),          "p: `jitter`: Dapr's constant"),
        ("window",             policy("initial: 1s, max: 9s, retries: 3, window: 1m"),    "p: `window`: Dapr has no window"),
        ("window of constant", policy("delays: [1s], retries: 3, window: 1m"),            "p: `window`: Dapr ends constant"),
        ("a list",             policy("delays: [1s, 5s], retries: 3, jitter: none"),      "p: `delays`: Dapr has no list"),
        ("fifteen minutes",    policy("initial: 1s, max: 9s, retries: unlimited"),        "p: `retries beyond 15 minutes`"),
        ("an alert",           policy("from: none, alert_when_exhausted: true, retries: 2, delays: [1s]"), "p: `alert_when_exhausted`"),
        ("a reserved name",    with("retry_policies: { DefaultRetryPolicy: { from: standard } }"), "applies the policy to targets without one"),
        ("probes",             breaker("trip: { consecutive: 3 }, probes: 1, close_after: 3"), "b: `probes`"),
        ("reset",              breaker("trip: { consecutive: 3 }, reset: 1m"),            "b: `reset`: Dapr resets"),
        ("sliding",            breaker("trip: { failures: 3, within: 1m }"),              "b: `within`: Dapr's `interval`"),
        ("both times",         breaker("trip: { failures: 3, within: 1m }, reset: 1m"),   "b: `reset`: `interval` already holds"),
        ("whole calls",        breaker("trip: { consecutive: 3 }, count: call"),          "b: `count: call`"),
        ("ignores",            breaker("trip: { consecutive: 3 }, ignores: [503]"),       "b: `ignores and counts`"),
        ("a growing timeout",  dependency("timeout: { first: 1s, max: 9s }"),             "timeout of d: Dapr's timeouts do not grow"),
        ("parts of a timeout", dependency("timeout: { whole: 9s, connect: 1s }"),         "timeout of d: Dapr only limits a call as a whole"),
        ("a timeout for good", dependency("timeout: { whole: 9s, as: permanent }"),       "timeout of d: Dapr retries after every timeout"),
        ("a named timeout",    with("timeouts: { t: { whole: 9s, tls: 1s } }"),           "timeout t: Dapr only limits a call as a whole"),
        ("no limit",           with("timeouts: { unlimited: 24h }\ndependencies: { d: { kind: invoke, dapr: { app: d }, timeout: unlimited } }"), "the timeout `unlimited`: it means no limit"),
        ("a deadline",         dependency("deadline: 1m"),                                "dependency d: `deadline`"),
        ("fatal_after",        dependency("fatal_after: 1m"),                             "dependency d: `fatal_after`"),
        ("hold_max",           dependency("hold_max: 1m"),                                "dependency d: `when_open` and `hold_max`"),
        ("idempotency",        dependency("idempotency: { ttl: 1d }"),                    "dependency d: `idempotency`"),
        ("a dead letter",      dependency("dead_letter: { retention: 1d }"),              "dependency d: `dead_letter`"),
        ("classify",           dependency("classify: [{ status: 404, as: transient }]"),  "dependency d: `classify`"),
        ("on_failure",         dependency("on_failure: { rate-limited: patient }"),       "dependency d: `on_failure`"),
        ("a pause",            dependency("on_failure: { fatal: pause }"),                "dependency d: `on_failure`"),
        ("a waiting room",     with("defaults: { waiting: { events: 5 } }"),              "defaults: `waiting`: Dapr stores no waiting events"),
        ("a service's room",   with("services: { s: { target: { log: stdout }, waiting: { size: 1GiB }, events: [a] } }"), "service s: `waiting`: Dapr stores no waiting events"),
        ("keep_delivered",     with("defaults: { keep_delivered: 1d }"),                  "defaults: `keep_delivered`: Dapr stores no events"),
        ("a throttle",         dependency("in_flight: 5"),                                "dependency d: Dapr has no throttle"),
        ("Retry-After",        dependency("retry: standard"),                             "Retry-After: Dapr ignores it"),
        ("unknown failures",   dependency("retry: standard"),                             "such as 500: Redrive stops after 2"),
        ("every failure",      dependency("retry: standard"),                             "export with --with-matching"),
        ("holding",            dependency("breaker: stateBreaker"),                       "holding while a breaker is open"),
        ("shared breakers",    dependency("breaker: stateBreaker"),                       "breakers shared by all callers"),
        ("no target",          with("dependencies: { d: { kind: invoke } }"),             "dependency d: without `dapr:`"),
        ("no targets at all",  with(""),                                                  "targets: no dependency has `dapr:`"),
        ("the same target",    with("dependencies: { d: { kind: invoke, dapr: { app: d } }, e: { kind: invoke, dapr: { app: d } } }"), "dependency e: another dependency is the same"),
        ("directions",         with("dependencies: { d: { kind: kafka, dapr: { component: k } }, e: { kind: redis, dapr: { component: k, direction: inbound } } }"), "component k: the directions have different breakers"),
        ("rows",               with("services: { s: { target: { http: 'https://example.com' }, events: [a.b, a.c] } }"), "2 rows of services: Dapr has no event types"),
        ("dead letters",       with("services: { s: { target: { http: 'https://example.com' }, events: [a.b] } }"), "dead letters: Dapr has no dead letters here"),
    ];
    for (name, text, loss) in cases {
        let losses = joined(&exported(&text).losses);
        assert!(losses.contains(loss), "{name}: {loss}\nin\n{losses}");
    }
    for stated in ["unknown: standard", "500: standard"] {
        let text = dependency(&format!("on_failure: {{ transient: standard, {stated} }}"));
        let losses = joined(&exported(&text).losses);
        assert!(!losses.contains("such as 500: Redrive stops"), "{stated}\nin\n{losses}");
    }
}

#[test]
fn a_loss_is_named_once() {
    const EXAMPLE: &str = include_str!("../../../../server/tests/books/todo.yaml");
    const ROWS: &str =
        "version: 1\nservices: { s: { target: { http: 'https://example.com' }, events: [a.b] } }\n";
    #[rustfmt::skip]
    let cases = [
        ("idempotency, stated",   EXAMPLE, "does not deduplicate deliveries", "`idempotency`: Dapr"),
        ("dead letters, stated",  EXAMPLE, "a permanent failure is an error",        "defaults: `dead_letter`: Dapr"),
        ("idempotency, built in", ROWS,    "does not deduplicate deliveries", "idempotency: Dapr"),
        ("dead letters, built in", ROWS,   "a permanent failure is an error",        "dead letters: Dapr"),
    ];
    for (name, text, reason, loss) in cases {
        let losses = joined(&exported(text).losses);
        assert_eq!(losses.matches(reason).count(), 1, "{name}\nin\n{losses}");
        assert!(losses.contains(loss), "{name}: {loss}\nin\n{losses}");
    }
}
