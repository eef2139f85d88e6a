//! Where the findings about retries, deadlines, timeouts, criticality and classification stand, how bad
//! they are, when there are none, and what is said where a fact is missing.

use super::super::{classification, criticality, deadline, timeout};
use super::LINTS;
use crate::lint::{CheckReport, Lint, check};
use redrive_core::book::connectors::built_in;
use redrive_core::book::problem::ProblemSeverity;
use redrive_core::policy::catalog;

fn families() -> impl Iterator<Item = &'static Lint> {
    [LINTS, deadline::LINTS, timeout::LINTS, criticality::LINTS, classification::LINTS].into_iter().flatten()
}

fn read(book: &str) -> CheckReport {
    let checked = check(book.as_bytes(), built_in());
    assert!(checked.book.is_some(), "no book: {:?}\n{book}", checked.problems);
    checked
}

/// A book of one service with one row; the keys stand on line 3 from column 11 on. They may name the
/// policy `forever`.
fn service(keys: &str) -> String {
    let rest = "target: { http: \"http://127.0.0.1:9/\" }, events: [a.b]";
    let policies = "retry_policies:\n  forever: { from: worker, retries: unlimited }\n";
    format!("version: 1\nservices:\n  mail: {{ {keys}, {rest} }}\n{policies}")
}

/// What that lint finds in a service with these keys, as `line:column severity`.
fn found(keys: &str, code: &str) -> String {
    let checked = read(&service(keys));
    let of_lint = checked.problems.iter().filter(|problem| problem.code == code);
    let shown = of_lint.map(|problem| {
        let at = problem.span.position;
        format!("{}:{} {}", at.line, at.column, problem.severity)
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Holds the findings of a lint against a table: `^` stands where the finding should.
fn expect(cases: &[(&str, &str, &str)], code: &str) {
    for (name, keys, severity) in cases {
        let expected = match keys.find('^') {
            Some(offset) => format!("3:{} {severity}", 11 + offset),
            None => (*severity).to_owned(),
        };
        assert_eq!(found(&keys.replace('^', ""), code), expected, "{code}: {name}");
    }
}

#[test]
#[rustfmt::skip]
fn deadlines() {
    expect(&[
        ("the last retry is never made",    "retry: ^patient, deadline: 1m, timeout: 5s", "error"),
        ("only slow failures lose it",      "retry: ^standard, deadline: 1m, timeout: 15s", "warning"),
        ("one policy, one finding",         "on_failure: { transient: ^patient, rate-limited: patient }, deadline: 1m, timeout: 5s", "error"),
        ("all of them fit",                 "retry: standard, deadline: 2m, timeout: 15s", ""),
        ("the built-in policy",             "timeout: 5s, deadline: ^10s", "error"),
        ("until the deadline is meant",     "retry: forever, deadline: 10m", ""),
        ("the SLA may be missed",           "retry: ^standard, timeout: 5s, facts: { sla: 50s }", "error"),
        ("late is better than never",       "retry: ^standard, timeout: 5s, facts: { sla: 50s }, data_loss: not-acceptable", "warning"),
        ("the deadline keeps the SLA",      "retry: aggressive, timeout: 5s, facts: { sla: 25s }, deadline: 19s", ""),
        ("the window keeps the SLA",        "retry: aggressive, timeout: 10s, facts: { sla: 35s }", ""),
    ], "retry-outlives-deadline");
    expect(&[
        ("the SLA is used up at once",      "timeout: ^30s, facts: { sla: 20s }", "error"),
        ("the built-in timeout",            "deadline: ^10s", "error"),
        ("a little is left",                "timeout: 19s, deadline: 20s", ""),
    ], "attempt-timeout-exceeds-deadline");
    expect(&[
        ("the caller is gone",              "facts: { caller_timeout: ^30s, sla: 1h }", "warning"),
        ("no promise",                       "retry: critical", ""),
        ("a promise of days",               "facts: { sla: 2d }", ""),
        ("late is better than never",       "facts: { sla: 1h }, data_loss: not-acceptable", ""),
    ], "no-deadline");
}

#[test]
#[rustfmt::skip]
fn retries() {
    expect(&[
        ("for ever",                        "on_failure: { 503: ^forever }", "error"),
        ("until the deadline",              "on_failure: { 503: forever }, deadline: 10m", ""),
        ("for unknown failures",             "on_failure: { unknown: ^forever }", "error"),
    ], "unlimited-retries");
    expect(&[
        ("two layers",                      "retry: ^worker, facts: { callers: 3 }", "warning"),
        ("three layers",                    "retry: ^critical, facts: { callers: 2, broker_attempts: 2 }", "error"),
        ("one layer, however patient",      "retry: critical, facts: { callers: 1, broker_attempts: 1 }", ""),
    ], "retry-amplification");
    expect(&[
        ("they come back together",         "retry: ^upstream, facts: { instances: 2 }", "warning"),
        ("one process",                     "retry: upstream, facts: { instances: 1 }", ""),
        ("spread",                          "retry: standard, facts: { instances: 9 }", ""),
    ], "lockstep-instances");
}

#[test]
#[rustfmt::skip]
fn timeouts() {
    expect(&[
        ("too short",                       "timeout: ^1s, facts: { p99: 2s }", "warning"),
        ("the limit on headers is one too", "facts: { p99: ^7s }", "warning"),
        ("just enough",                     "timeout: 7s, facts: { p99: 7s }", ""),
    ], "timeout-below-p99");
    expect(&[
        ("it grows past the limit",         "timeout: ^{ first: 1m, max: 10m }, facts: { poll_limit: 5m }", "error"),
        ("retries are not in the loop",     "retry: critical, timeout: 1m, facts: { poll_limit: 5m }", ""),
    ], "poll-limit-exceeded");
    expect(&[
        ("longer than the built-in whole",  "timeout: ^{ tls: 11s }", "warning"),
        ("the whole grows beyond it",       "timeout: { headers: 9s, first: 5s, max: 10s }", ""),
        ("parts that are not stated",       "timeout: verification", ""),
    ], "part-exceeds-whole");
}

#[test]
#[rustfmt::skip]
fn criticalities() {
    expect(&[
        ("given up at once",                "retry: ^none, criticality: high", "warning"),
        ("a dead letter at once",           "on_failure: { transient: ^dead-letter }, data_loss: not-acceptable", "warning"),
        ("a pause loses nothing",           "on_failure: { transient: pause }, data_loss: not-acceptable", ""),
        ("three retries",                   "retry: worker, data_loss: not-acceptable", ""),
        ("a status that heals",             "on_failure: { 503: ^none }, criticality: critical", "warning"),
        ("a range with such a status",      "on_failure: { 500-502: ^dead-letter }, criticality: critical", "warning"),
        ("statuses that do not heal",       "on_failure: { 400-404: none, 501: dead-letter }, criticality: critical", ""),
        ("a narrower one speaks first",     "on_failure: { 500-503: none, 502: worker, 503: pause }, criticality: critical", ""),
        ("said by the service for a row",   "on_failure: { 503: none, 502: dead-letter }, channels: { c: { events: [{ type: a.c, criticality: ^critical }] } }", "warning"),
        ("medium may be given up",          "retry: none, criticality: medium", ""),
    ], "critical-under-retried");
    expect(&[
        ("as if much depended on it",       "retry: ^critical, criticality: low", "info"),
        ("patience is no fault",            "retry: patient, criticality: low", ""),
    ], "low-over-retried");
}

#[test]
fn a_part_is_held_against_the_whole_that_holds() {
    #[rustfmt::skip]
    let cases = [
        ("a long whole above it",  "timeout: 60s", "{ type: a, timeout: { headers: 20s } }", 0),
        ("a short whole above it", "timeout: 3s",  "{ type: a, timeout: { headers: 8s } }",  1),
    ];
    for (name, service, row, count) in cases {
        let book = format!(
            "version: 1\nservices: {{ s: {{ target: {{ http: \"http://127.0.0.1:9/\" }}, {service}, events: [{row}] }} }}\n"
        );
        let found =
            read(&book).problems.into_iter().filter(|problem| problem.code == "part-exceeds-whole").count();
        assert_eq!(found, count, "{name}");
    }
}

#[test]
#[rustfmt::skip]
fn classifications() {
    expect(&[
        ("a bad message",                   "on_failure: { invalid: ^worker }", "warning"),
        ("all of 4xx",                      "on_failure: { 400-499: ^worker }", "warning"),
        ("what may heal",                   "on_failure: { 404: worker, 409: worker, 500-599: worker }", ""),
        ("no retry",                        "on_failure: { permanent: none, 400: dead-letter }", ""),
        ("without a reason",                "classify: [^{ status: 422, as: transient }]", "warning"),
        ("with a reason",                   "classify: [{ status: 422, as: transient, because: it lags }]", ""),
        ("a whole range, whatever is said", "classify: [^{ status: 400-499, as: transient, because: it lags }]", "warning"),
        ("with a narrower look",            "classify: [{ status: 422, message: deadlock, as: transient }]", ""),
    ], "retry-of-permanent");
    expect(&[
        ("by status",                       "on_failure: { 401: ^worker }", "warning"),
        ("by another name",                 "classify: [^{ status: [401, 403], as: unknown }]", "warning"),
        ("a dead letter",                   "on_failure: { fatal: dead-letter }", ""),
    ], "fatal-retried");
    expect(&[
        ("the range takes 429 along",       "on_failure: { 400-499: ^dead-letter }", "warning"),
        ("a narrower one speaks first",     "on_failure: { 400-499: dead-letter, 429: upstream }", ""),
        ("no retry is no patience",         "on_failure: { rate-limited: ^none }", "warning"),
        ("429 by another name",             "classify: [^{ status: 429, as: transient }]", "warning"),
        ("seconds are patience",            "on_failure: { rate-limited: worker }", ""),
    ], "rate-limit-ignored");
    expect(&[
        ("the deadline is too short",       "deadline: ^10m, facts: { rate_limit_window: 1h }", "warning"),
        ("the built-in day is enough",      "facts: { rate_limit_window: 1h }", ""),
    ], "hold-shorter-than-rate-limit");
    expect(&[
        ("any text",                        "classify: [^{ message: ok, as: delivered }]", "warning"),
        ("server errors, whatever is said", "classify: [^{ status: 500, as: delivered, because: it lies }]", "warning"),
        ("a list of single statuses",       "classify: [{ status: [409, 410], as: delivered }]", ""),
    ], "swallows-failures");
}

#[test]
#[rustfmt::skip]
fn rows_that_come_too_late() {
    expect(&[
        ("the same again",                  "classify: [{ status: 404, as: fatal }, ^{ status: 404, as: transient }]", "warning"),
        ("a header with its value",         "classify: [{ header: x-why, as: fatal }, ^{ header: \"X-Why: limit\", as: transient }]", "warning"),
        ("a status under a text",           "classify: [{ message: full, as: fatal }, ^{ status: 500, message: full, as: unknown }]", "warning"),
        ("a text without its status",       "classify: [{ status: 500, message: full, as: fatal }, { message: full, as: unknown }]", ""),
        ("another text",                    "classify: [{ message: full, as: fatal }, { message: empty, as: unknown }]", ""),
        ("half of a range",                 "classify: [{ status: 500-503, as: fatal }, { status: 503-504, as: unknown }]", ""),
        ("a success needs its status",      "classify: [{ message: full, as: fatal }, { status: 200, message: full, as: unknown }]", ""),
    ], "classify-unreachable");
}

#[test]
fn a_lint_without_its_fact_is_skipped() {
    #[rustfmt::skip]
    let cases = [
        ("an SLA",                 "retry: standard",                                "retry-outlives-deadline",          "facts.sla"),
        ("an SLA",                 "retry: standard",                                "attempt-timeout-exceeds-deadline", "facts.sla"),
        ("callers",                "retry: standard",                                "retry-amplification",              "facts.callers"),
        ("a broker's attempts",    "retry: standard, facts: { callers: 1 }",         "retry-amplification",              "facts.broker_attempts"),
        ("instances",              "retry: upstream",                                "lockstep-instances",               "facts.instances"),
        ("a p99",                  "retry: standard",                                "timeout-below-p99",                "facts.p99"),
        ("a rate limit",           "hold_max: 10m",                                  "hold-shorter-than-rate-limit",     "facts.rate_limit_window"),
    ];
    for (name, keys, lint, fact) in cases {
        let checked = read(&service(keys));
        let skipped = checked.skipped.iter().find(|skipped| skipped.lint == lint && skipped.fact == fact);
        let skipped =
            skipped.unwrap_or_else(|| panic!("{lint} passes without {name}: {:?}", checked.skipped));
        assert_eq!(skipped.span.position.to_string(), "3:3", "{lint}: at the service");
        assert_eq!(found(keys, lint), "", "{lint}");
    }
}

#[test]
fn the_catalog_used_plainly_is_no_mistake() {
    for policy in catalog::policies() {
        let checked = read(&service(&format!("retry: {}, timeout: default", policy.name)));
        let blamed = |problem: &&redrive_core::book::problem::Problem| {
            problem.severity < ProblemSeverity::Info && families().any(|lint| lint.code == problem.code)
        };
        let blamed: Vec<_> = checked.problems.iter().filter(blamed).collect();
        assert!(blamed.is_empty(), "{}: {blamed:?}", policy.name);
    }
}

#[test]
fn a_service_silences_what_stands_in_its_rows_and_channels() {
    let book = |keys: &str, allow: &str| {
        let target = "target: { http: \"http://127.0.0.1:9/\" }";
        let row = format!("events: [{{ type: a.b, {keys} }}]");
        format!("version: 1\nservices:\n  s: {{ {target}, {row}{allow}, channels: {{ c: {{ {row} }} }} }}\n")
    };
    #[rustfmt::skip]
    let cases = [
        ("retry-of-permanent",       "on_failure: { permanent: standard }"),
        ("fatal-retried",            "on_failure: { fatal: standard }"),
        ("rate-limit-ignored",       "on_failure: { rate-limited: none }"),
        ("classify-unreachable",     "classify: [{ status: 404, as: fatal }, { status: 404, as: fatal }]"),
        ("classify-without-because", "classify: [{ status: 404, as: fatal }]"),
        ("swallows-failures",        "classify: [{ status: 500, as: delivered }]"),
        ("part-exceeds-whole",       "timeout: { tls: 11s }"),
    ];
    for (code, keys) in cases {
        let codes = |book: &str| {
            let problems = read(book).problems.into_iter().map(|problem| problem.code);
            problems.filter(|found| [code, "unused-allow"].contains(found)).collect::<Vec<_>>()
        };
        assert_eq!(codes(&book(keys, "")), [code; 2], "each of the two rows");
        let allow = format!(", allow: [{{ lint: {code}, because: it is meant }}]");
        assert_eq!(codes(&book(keys, &allow)), [""; 0], "{code}");
        let by_defaults = book(keys, "") + "defaults: { " + &allow[2..] + " }\n";
        assert_eq!(codes(&by_defaults), [""; 0], "{code}");
    }
}

#[test]
fn many_rows_of_a_service_are_one_finding() {
    let rows = (0..50).map(|n| format!("a.b{n}")).collect::<Vec<_>>().join(", ");
    let book = service("facts: { sla: 1h }").replace("a.b", &rows);
    let checked = read(&book);
    for lint in families() {
        let found = checked.problems.iter().filter(|problem| problem.code == lint.code).count();
        let skipped = checked.skipped.iter().filter(|skipped| skipped.lint == lint.code).count();
        assert!(found <= 1 && skipped <= 2, "{}: {found} findings, {skipped} skipped", lint.code);
    }
}
