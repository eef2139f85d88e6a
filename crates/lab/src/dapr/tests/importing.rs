//! What importing makes of files, says about them, and refuses.

use super::{ALL_DEFAULTS, TEMPLATE, joined};
use crate::dapr::import;
use redrive_core::book;
use redrive_core::book::connectors::built_in;

fn notes(file: &str) -> String {
    joined(&import(file.as_bytes()).unwrap_or_else(|problems| panic!("{problems:#?}")).notes)
}

/// A file with one of everything.
const FILE: &str = "\
apiVersion: dapr.io/v1alpha1
kind: Resiliency
metadata: {name: orders, namespace: shop}
scopes: [orders-api]
spec:
  policies:
    timeouts: {fast: 5s}
    retries:
      grow: {policy: exponential, maxInterval: 30s, maxRetries: 5}
      same: {policy: constant, duration: 2s, maxRetries: -1, matching: {httpStatusCodes: '429,500-599'}}
    circuitBreakers:
      kafka: {maxRequests: 1, interval: 60s, timeout: 60s, trip: consecutiveFailures > 5}
      share: {maxRequests: 2, interval: 1m, timeout: 15s, trip: requests >= 20 && totalFailures * 2 >= requests}
  targets:
    components:
      pubsub-kafka:
        outbound: {retry: grow, timeout: fast, circuitBreaker: kafka}
        inbound: {retry: same, timeout: fast}
    apps:
      billing: {circuitBreaker: share}
";

/// The book that it becomes.
const BOOK: &str = "# Imported from a Dapr resiliency file; Dapr's implicit defaults are explicit here.
version: 1

dapr:
  name: orders
  namespace: shop
  scopes: [orders-api]

retry_policies:
  grow:
    initial: 500ms
    factor: 1.5
    max: 30s
    jitter: spread 50%
    retries: 5
    window: 15m
  same:
    delays: [2s]
    jitter: none
    retries: unlimited

breakers:
  kafka:
    trip: { consecutive: 6 }
    open: 60s
    probes: 1
    reset: 60s
  share:
    trip: { failure_rate: 50%, of_at_least: 20, within: 60s }
    open: 15s
    probes: 2

timeouts:
  fast: 5s
  # Dapr sets no limit where the timeout is missing or 0. Set a real one for these calls.
  unlimited: 24h

dependencies:
  pubsub-kafka:
    kind: kafka
    dapr: { component: pubsub-kafka }
    retry: grow
    on_failure:
      rate-limited: grow
      unknown: grow
    timeout: fast
    breaker: kafka
  pubsub-kafka-inbound:
    kind: kafka
    dapr: { component: pubsub-kafka, direction: inbound }
    retry: same
    on_failure:
      rate-limited: same
      unknown: same
      429: same
      500-599: same
      400-428: dead-letter
      430-499: dead-letter
    timeout: fast
    breaker: none
  billing:
    kind: invoke
    dapr: { app: billing }
    retry: none
    on_failure:
      rate-limited: none
      unknown: none
    timeout: unlimited
    breaker: share
";

#[test]
fn a_book_says_what_the_file_meant() {
    let imported = import(FILE.as_bytes()).expect("a file");
    assert_eq!(imported.book, BOOK);
    assert!(book::read(&imported.book, built_in()).book.is_some());
}

#[test]
fn every_silent_default_is_named() {
    let notes = notes(ALL_DEFAULTS);
    #[rustfmt::skip]
    let expected = [
        ("policy",                   "retries.plain, retries.never, retries.some: no `policy`: Dapr assumes `constant`"),
        ("duration",                 "no `duration`: Dapr waits 5s each time"),
        ("constant's maxInterval",   "retries.constant.maxInterval: it belongs to `exponential`"),
        ("exponential's duration",   "retries.growing.duration: it belongs to `constant`"),
        ("maxInterval",              "retries.growing: no `maxInterval`: Dapr assumes 60s"),
        ("maxRetries",               "retries.plain, retries.growing: no `maxRetries`: Dapr assumes -1"),
        ("no end",                   "is retried forever"),
        ("the exponential is fixed", "from 500ms, times 1.5, with 50 % jitter"),
        ("fifteen minutes",          "after 15 minutes"),
        ("gRPC codes",               "retries.some.matching.gRPCStatusCodes: a book has no gRPC"),
        ("maxRequests",              "no `maxRequests` above 0: Dapr assumes 1"),
        ("timeout of a breaker",     "no `timeout` above 0: Dapr keeps the breaker open for 60s"),
        ("interval",                 "circuitBreakers.plain: no `interval`: Dapr resets failures only"),
        ("no interval in all",       "circuitBreakers.endless: no `interval`: Dapr never resets"),
        ("tumbling",                 "circuitBreakers.counted, circuitBreakers.shared: Dapr restarts at 0 in every `interval`"),
        ("trip",                     "circuitBreakers.plain: no `trip`: Dapr assumes `consecutiveFailures > 5`"),
        ("no unit",                  "timeouts.bare: no unit, so Dapr assumes milliseconds: 250ms"),
        ("no limit",                 "timeouts.none-at-all: Dapr treats 0 as no limit; the book has `unlimited` instead"),
        ("no timeout",               "no timeout: Dapr sets no limit on a call"),
        ("undefined",                "components.typo.outbound.retry: undefined policy"),
        ("ignored under component",  "components.ignored.retry: Dapr ignores it directly under a component"),
        ("cache size",               "apps.checkout.circuitBreakerCacheSize"),
        ("what the kind is",         "components.statestore.outbound"),
        ("what is retried",          "the book retries timeouts, failed connections, 408, 425, 429 and 5xx except 501, as often as the policy says; 501 and other 4xx become dead letters"),
    ];
    for (name, note) in expected {
        assert!(notes.contains(note), "{name}: {note}\nin\n{notes}");
    }
    let of_template = joined(&import(TEMPLATE.as_bytes()).expect("a file").notes);
    assert!(of_template.contains("`> 5` opens on failure number 6"), "{of_template}");
}

#[test]
fn odd_files_are_imported_with_a_word() {
    let file = |policies: &str, targets: &str| {
        format!(
            "apiVersion: dapr.io/v1alpha1\nkind: Resiliency\nspec: {{policies: {policies}, targets: {targets}}}\n"
        )
    };
    #[rustfmt::skip]
    let cases = [
        ("an unknown key",        file("{retries: {a: {maxRetires: 3}}}", "{}"),                            "retries.a.maxRetires: unknown key, ignored by Dapr; did you mean `maxRetries`?"),
        ("an unknown key on top", format!("scope: [a]\n{}", file("{}", "{}")),                              "scope: unknown key, ignored by Dapr; did you mean `scopes`?"),
        ("a default policy",      file("{retries: {DefaultRetryPolicy: {maxRetries: 3}}}", "{}"),           "retries.DefaultRetryPolicy: Dapr applies it to targets without an entry"),
        ("a built-in policy",     file("{retries: {DaprBuiltInServiceRetries: {maxRetries: 1}}}", "{}"),    "DaprBuiltInServiceRetries.maxRetries: Dapr raises fewer than 3"),
        ("a protected policy",    file("{retries: {DaprBuiltInActorNotFoundRetries: {}}}", "{}"),           "Dapr protects this built-in policy"),
        ("a name that is none",   file("{retries: {'a b': {maxRetries: 1}}}", "{}"),                        "retries.a b: the name is not valid in a book; it became `a-b`"),
        ("a breaker named none",  file("{circuitBreakers: {none: {}}}", "{apps: {a: {circuitBreaker: none}}}"), "it became `dapr-none`"),
        ("a scope",               file("{circuitBreakers: {b: {}}}", "{actors: {A: {circuitBreaker: b, circuitBreakerScope: both}}}"), "actors.A.circuitBreakerScope: Dapr has a breaker per actor"),
        ("directions differ",     file("{circuitBreakers: {b: {}, c: {}}}", "{components: {k: {inbound: {circuitBreaker: b}, outbound: {circuitBreaker: c}}}}"), "components.k: Dapr has one breaker for both directions with the settings used first"),
        ("a share is exceeded",   file("{circuitBreakers: {b: {trip: totalFailures * 2 > requests}}}", "{}"), "opens when the share is reached"),
        ("a condition left out",  file("{circuitBreakers: {b: {trip: consecutiveFailures >= 5 && consecutiveSuccesses < 1}}}", "{}"), "circuitBreakers.b.trip: `consecutiveSuccesses` is always 0 when Dapr evaluates"),
        ("more than a book has",  file("{retries: {a: {maxRetries: 2000000}}}", "{}"),                      "the maximum in a book is 100000 retries"),
        ("no targets",            "apiVersion: dapr.io/v1alpha1\nkind: Resiliency\nspec: {policies: {}}\n".to_owned(), "spec.targets: missing"),
        ("a timeout of 0",        file("{timeouts: {t: 0s}}", "{}"),                                        "timeouts.t: Dapr treats 0 as no limit"),
        ("a negative timeout",    file("{timeouts: {t: -1s}}", "{}"),                                       "timeouts.t: Dapr treats a negative timeout as none"),
        ("unused matching",       file("{retries: {a: {matching: {httpStatusCodes: '500'}}}}", "{}"),       "retries.a.matching: no target uses the policy"),
    ];
    for (name, file, note) in cases {
        let notes = notes(&file);
        assert!(notes.contains(note), "{name}: {note}\nin\n{notes}");
    }
}

#[test]
fn what_dapr_refuses_is_refused() {
    let file = |spec: &str| format!("apiVersion: dapr.io/v1alpha1\nkind: Resiliency\nspec: {spec}\n");
    let policies = |policies: &str| file(&format!("{{policies: {policies}, targets: {{}}}}"));
    #[rustfmt::skip]
    let cases = [
        ("a rule book",           "version: 1\n".to_owned(),                                             vec!["not-dapr"]),
        ("nothing",               String::new(),                                                         vec!["empty-file"]),
        ("no spec",               "apiVersion: dapr.io/v1alpha1\nkind: Resiliency\n".to_owned(),         vec!["missing-key"]),
        ("an empty spec",         file(""),                                                              vec!["missing-key"]),
        ("spec mistyped",         file("{}").replace("spec", "sepc"),                                    vec!["missing-key"]),
        ("spec in capitals",      file("{}").replace("spec", "Spec"),                                    vec!["unknown-key"]),
        ("spec is a list",        file("[]"),                                                            vec!["wrong-type"]),
        ("no YAML",               "a: [".to_owned(),                                                     vec!["yaml-syntax"]),
        ("two documents",         format!("{}---\n{}", policies("{}"), policies("{}")),                  vec!["second-document"]),
        ("an anchor",             policies("{timeouts: {a: &x 5s, b: *x}}"),                             vec!["yaml-anchor", "yaml-alias"]),
        ("another policy",        policies("{retries: {a: {policy: linear}}}"),                          vec!["unknown-word"]),
        ("a duration in days",    policies("{timeouts: {a: 1d}}"),                                       vec!["bad-duration"]),
        ("a number in quotes",    policies("{retries: {a: {maxRetries: '3'}}}"),                         vec!["wrong-type"]),
        ("half a number",         policies("{retries: {a: {maxRetries: 1.5}}}"),                         vec!["wrong-type"]),
        ("a space in codes",      policies("{retries: {a: {matching: {httpStatusCodes: '500, 503'}}}}"), vec!["bad-codes"]),
        ("a gRPC code in HTTP",   policies("{retries: {a: {matching: {httpStatusCodes: '14'}}}}"),       vec!["bad-codes"]),
        ("another case",          policies("{retries: {a: {maxretries: 3}}}"),                           vec!["unknown-key"]),
        ("a typo in a trip",      policies("{circuitBreakers: {a: {trip: consecutiveFailure > 5}}}"),    vec!["bad-trip"]),
        ("a list for a map",      policies("{retries: [a]}"),                                            vec!["wrong-type"]),
        ("a scalar for a map",    policies("{retries: {a: 3}}"),                                         vec!["wrong-type"]),
        ("a negative count",      policies("{circuitBreakers: {a: {maxRequests: -1}}}"),                 vec!["out-of-range"]),
        ("an actor's scope",      file("{policies: {circuitBreakers: {b: {}}}, targets: {actors: {A: {circuitBreaker: b}}}}"), vec!["missing-key"]),
        ("another scope",         file("{policies: {}, targets: {actors: {A: {circuitBreakerScope: all}}}}"), vec!["unknown-word"]),
        ("all at once",           policies("{timeouts: {a: x}, retries: {b: {policy: x}}}"),             vec!["bad-duration", "unknown-word"]),
    ];
    for (name, file, expected) in cases {
        let problems = import(file.as_bytes()).expect_err(name);
        let codes: Vec<&str> = problems.iter().map(|problem| problem.code).collect();
        assert_eq!(codes, expected, "{name}: {problems:#?}");
    }
    let mistyped = import(file("{}").replace("spec", "sepc").as_bytes()).expect_err("no spec");
    assert_eq!(mistyped[0].help, "write `spec` for `sepc`");
    assert_eq!(import(b"\xff").expect_err("no text")[0].code, "not-utf-8");
}
