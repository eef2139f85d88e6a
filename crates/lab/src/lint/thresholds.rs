//! Lints about the limits of alerts: whether they can be reached, can be left again, and fire in time.
//!
//! A limit is compared with what the rules allow: no attempt outlives its timeout, no delivery its deadline, and none is
//! held for longer than `hold_max`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ExampleBook::{Book, With};
use super::{Findings, Lint, LintScope, ON_CALL};
use redrive_core::alerts::value::bound;
use redrive_core::book::expression::{AlertMetric, Condition, Grouping, Quantity, Threshold, ThresholdOp};
use redrive_core::book::model::{Alert, Sections};
use redrive_core::book::problem::ProblemSeverity;
use redrive_core::book::resolve::Resolved;
use redrive_core::ids::DependencyName;
use redrive_core::policy::catalog::DependencyKind;
use redrive_core::policy::rule::WhenOpen;
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "alert-never-fires",
        severity: ProblemSeverity::Error,
        summary: "an alert that can never fire",
        explanation: "No share is above 100 %, no count below 0, no attempt longer than its timeout, no wait longer than the \
                      deadline, no backlog above `waiting.events`, and no breaker opens where there is none. The alert seems \
                      to guard something and never fires. Choose a limit that can be reached, or remove the alert.",
        bad: Book(&["alerts: [{ when: error_rate > 100% over 5m, severity: high, to: [on-call] }]", ON_CALL]),
        fix: &[("error_rate > 100%", "error_rate > 10%")],
        scope: LintScope::Alert(alert_never_fires),
    },
    Lint {
        code: "alert-always-fires",
        severity: ProblemSeverity::Warning,
        summary: "an alert that fires while everything is healthy",
        explanation: "Every metric of an alert is 0 while everything is healthy. A condition that holds at 0, such as \
                      `dead_letters >= 0` or `error_rate < 5%`, fires from the start and never resolves, so people ignore \
                      it. Reverse the comparison, or raise the limit above 0.",
        bad: Book(&["alerts: [{ when: error_rate < 5% over 5m, severity: high, to: [on-call] }]", ON_CALL]),
        fix: &[("error_rate <", "error_rate >")],
        scope: LintScope::Alert(alert_always_fires),
    },
    Lint {
        code: "alert-after-hold",
        severity: ProblemSeverity::Warning,
        summary: "an outage alert that fires after `hold_max`",
        explanation: "While a breaker is open, deliveries are held for at most `hold_max` and then become dead letters. This \
                      alert fires later than that for every service it covers: too late to save them. Alert well before \
                      `hold_max`, or hold deliveries longer.",
        bad: With(
            &["alerts: [{ when: breaker_open for 24h, severity: high, to: [on-call] }]", ON_CALL],
            "hold_max: 1h",
        ),
        fix: &[("breaker_open for 24h", "breaker_open for 10m")],
        scope: LintScope::Alert(alert_after_hold),
    },
];

fn alert_never_fires<'a>(alert: &'a Alert, rows: &[&Resolved<'a>], findings: &mut Findings<'a>) {
    let needs_breaker = matches!(alert.when.metric, AlertMetric::BreakerOpen | AlertMetric::BreakerOpened);
    if needs_breaker && has_no_breaker(findings.book(), rows) {
        let message = format!("`{}` never fires: it covers no breaker", alert.when);
        findings.report(alert.span, message, "give a service a breaker, or remove the alert");
    }
    let Some(limit) = alert.when.limit else { return };
    if let Some(reason) = out_of_reach(&alert.when, limit, rows) {
        let message = format!("`{}` never fires: {reason}", alert.when);
        findings.report(alert.span, message, "choose a limit that can be reached");
    }
}

/// Whether no row has a breaker. A dependency that no row uses may be called by a program, and have one.
fn has_no_breaker(book: &Sections, rows: &[&Resolved<'_>]) -> bool {
    let is_used = |name: &DependencyName| rows.iter().any(|row| row.dependency.value == *name);
    !rows.is_empty()
        && rows.iter().all(|row| row.rule.breaker.is_none())
        && book.dependencies.keys().all(is_used)
}

fn out_of_reach(when: &Condition, limit: Threshold, rows: &[&Resolved<'_>]) -> Option<String> {
    if limit.op == ThresholdOp::Below && is_zero(limit.value) {
        return Some("no value is below 0".to_owned());
    }
    let bound = match (limit.op, limit.value) {
        (ThresholdOp::Above, Quantity::Share(share)) if share.get() >= 1.0 => {
            return Some("no share is above 100%".to_owned());
        }
        // The backlog of a source is outside Redrive and has no bound.
        (ThresholdOp::Above | ThresholdOp::AtLeast, Quantity::Count(_))
            if when.by == Some(Grouping::Source) =>
        {
            return None;
        }
        (ThresholdOp::Above | ThresholdOp::AtLeast, Quantity::Count(bound))
            if when.metric == AlertMetric::ConsumerLag =>
        {
            let most = most_waiting(when, rows)?;
            let is_met = bound < most || (bound == most && limit.op == ThresholdOp::AtLeast);
            return (!is_met).then(|| format!("`waiting.events` allows at most {most}"));
        }
        (ThresholdOp::Above | ThresholdOp::AtLeast, Quantity::Duration(bound)) => bound,
        (
            ThresholdOp::Above | ThresholdOp::AtLeast,
            Quantity::Share(_) | Quantity::Count(_) | Quantity::Rate(_),
        )
        | (ThresholdOp::Below | ThresholdOp::AtMost, _) => return None,
    };
    let (longest, what) = match when.metric {
        AlertMetric::LatencyP99 => (longest_attempt(rows)?, "no attempt takes longer than its timeout of"),
        AlertMetric::OldestWaiting => {
            (longest_deadline(rows)?, "no delivery waits longer than its deadline of")
        }
        AlertMetric::ErrorRate
        | AlertMetric::TransientRate
        | AlertMetric::UnavailableRate
        | AlertMetric::RetryRate
        | AlertMetric::ExhaustedRate
        | AlertMetric::DeadLetters
        | AlertMetric::DeadLetterInflow
        | AlertMetric::DeadLetterAge
        | AlertMetric::BreakerOpen
        | AlertMetric::BreakerOpened
        | AlertMetric::AuthFailures
        | AlertMetric::ConfigFailures
        | AlertMetric::ConsumerLag
        | AlertMetric::Incident(_) => return None,
    };
    (bound > longest).then(|| format!("{what} {}", show_duration(longest)))
}

/// How many deliveries may wait for the services that the alert covers; none where it covers no service.
fn most_waiting(when: &Condition, rows: &[&Resolved<'_>]) -> Option<u64> {
    let services: BTreeMap<_, _> =
        rows.iter().map(|row| (row.service.name.as_str(), row.waiting.events.value)).collect();
    let limits = services.into_values();
    if when.by.is_some() { limits.max() } else { limits.reduce(u64::saturating_add) }
}

/// How long an attempt may take; none where a program runs, which has its own limits.
fn longest_attempt(rows: &[&Resolved<'_>]) -> Option<Duration> {
    if rows.iter().any(|row| matches!(row.kind, DependencyKind::Process)) {
        return None;
    }
    rows.iter().map(|row| row.rule.timeouts.whole.max).max()
}

/// How long a delivery may wait; none where one has no deadline.
fn longest_deadline(rows: &[&Resolved<'_>]) -> Option<Duration> {
    let deadlines: Option<Vec<_>> = rows.iter().map(|row| Some(row.deadline.as_ref()?.value)).collect();
    deadlines?.into_iter().max()
}

fn is_zero(value: Quantity) -> bool {
    bound(value) <= 0.0
}

fn alert_always_fires<'a>(alert: &'a Alert, _: &[&Resolved<'a>], findings: &mut Findings<'a>) {
    let Some(limit) = alert.when.limit else { return };
    let holds_at_zero = match limit.op {
        ThresholdOp::Above => false,
        ThresholdOp::AtLeast => is_zero(limit.value),
        ThresholdOp::Below => !is_zero(limit.value),
        ThresholdOp::AtMost => true,
    };
    if holds_at_zero {
        let message = format!("`{}` fires while everything is healthy, at 0", alert.when);
        findings.report(alert.span, message, "compare with `>` and a limit above 0");
    }
}

fn alert_after_hold<'a>(alert: &'a Alert, rows: &[&Resolved<'a>], findings: &mut Findings<'a>) {
    let Some(fires_after) = outage_before(&alert.when) else { return };
    let held = rows.iter().filter(|row| row.rule.breaker.is_some() && row.when_open.value == WhenOpen::Hold);
    let Some(hold_max) = held.map(|row| row.hold_max.value).max() else { return };
    if fires_after > hold_max {
        let [fires_after, hold_max] = [fires_after, hold_max].map(show_duration);
        let message = format!(
            "this fires after {fires_after}, and held deliveries become dead letters after {hold_max}"
        );
        findings.report(alert.span, message, format!("alert before {hold_max}, or raise `hold_max`"));
    }
}

fn outage_before(when: &Condition) -> Option<Duration> {
    let lasting = when.lasting.unwrap_or_default();
    match (when.metric, when.limit) {
        (AlertMetric::BreakerOpen, _) => Some(lasting),
        (
            AlertMetric::OldestWaiting,
            Some(Threshold { op: ThresholdOp::Above | ThresholdOp::AtLeast, value: Quantity::Duration(age) }),
        ) => Some(age.saturating_add(lasting)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;

    #[test]
    fn limits_are_judged_against_what_the_rules_allow() {
        let book = |when: &str, keys: &str| {
            format!(
                "version: 1\nalerts:\n  - {{ when: \"{when}\", severity: high, to: [pager] }}\n\
                 receivers: {{ pager: {{ webhook: \"http://e.test/\" }} }}\n\
                 services:\n  a: {{ target: {{ http: \"http://127.0.0.1:9/\" }}, events: [x], {keys} }}\n  \
                 b: {{ target: {{ http: \"http://127.0.0.1:9/\" }}, events: [y], timeout: 5s, hold_max: 2h, deadline: 4h }}\n"
            )
        };
        let (never, always, late) =
            (vec!["3:5 alert-never-fires"], vec!["3:5 alert-always-fires"], vec!["3:5 alert-after-hold"]);
        #[rustfmt::skip]
        let cases = [
            ("more than all",                  "error_rate > 100% over 5m",   "timeout: 2s", never.clone()),
            ("all of it is possible",          "error_rate >= 100% over 5m",  "timeout: 2s", vec![]),
            ("less than none",                 "dead_letters < 0",            "timeout: 2s", never.clone()),
            ("beyond every timeout",           "latency_p99 > 6s over 1m",    "timeout: 2s", never.clone()),
            ("within one timeout",             "latency_p99 > 4s over 1m",    "timeout: 2s", vec![]),
            ("beyond every deadline",          "oldest_waiting > 5h",         "deadline: 1h, hold_max: 8h", never.clone()),
            ("more than may wait for one",     "consumer_lag > 20000000 by service", "waiting: { events: 100 }", never.clone()),
            ("as many as may wait for one",    "consumer_lag >= 20000000 by service", "waiting: { events: 100 }", vec![]),
            ("more than may wait for all",     "consumer_lag > 20000100",     "waiting: { events: 100 }", never),
            ("as many as may wait for all",    "consumer_lag > 20000099",     "waiting: { events: 100 }", vec![]),
            ("a row without a deadline",       "oldest_waiting > 5h",         "hold_max: 8h", vec![]),
            ("at least nothing",               "dead_letters >= 0",           "timeout: 2s", always.clone()),
            ("few failures",                   "error_rate < 5% over 5m",     "timeout: 2s", always.clone()),
            ("no dead letter",                 "dead_letters <= 0",           "timeout: 2s", always),
            ("after all are dead",             "breaker_open for 3h",         "hold_max: 1h", late.clone()),
            ("before those of one are dead",   "breaker_open for 90m",        "hold_max: 1h", vec![]),
            ("nothing waits for so long",      "oldest_waiting > 3h",         "hold_max: 1h", late),
            ("a breaker of another service",   "breaker_open for 1m",         "breaker: none", vec![]),
            ("dead letters at once",           "breaker_open for 1h",         "when_open: dead-letter", vec![]),
        ];
        for (name, when, keys, expected) in cases {
            assert_eq!(found(&book(when, keys), super::LINTS), expected, "{name}");
        }
    }

    #[test]
    fn an_alert_of_a_service_is_judged_by_that_service() {
        let book = "version: 1\nservices:\n  \
             a: { target: { http: \"http://127.0.0.1:9/\" }, events: [x], hold_max: 1h, alerts: [{ when: breaker_open for 2h, severity: high }] }\n  \
             b: { target: { http: \"http://127.0.0.1:9/\" }, events: [y], hold_max: 4h, alerts: [{ when: breaker_open for 2h, severity: high }] }\n";
        assert_eq!(found(book, super::LINTS), ["3:85 alert-after-hold"]);
    }

    #[test]
    fn an_alert_on_a_breaker_needs_a_breaker() {
        let book = |when: &str, dependency: &str| {
            format!(
                "version: 1\ndependencies: {{ {dependency} }}\nservices:\n  \
                 a: {{ target: {{ http: \"http://127.0.0.1:9/\" }}, breaker: none, events: [x], alerts: [{{ when: {when}, severity: high }}] }}\n  \
                 b: {{ target: {{ http: \"http://127.0.0.1:9/\" }}, events: [y] }}\n"
            )
        };
        #[rustfmt::skip]
        let cases = [
            ("an open one",                 "breaker_open for 1m", "", vec!["4:86 alert-never-fires"]),
            ("one that opened",             "breaker_opened",      "", vec!["4:86 alert-never-fires"]),
            ("of what a program may call",  "breaker_open for 1m", "bank: { kind: invoke }", vec![]),
        ];
        for (name, when, dependency, expected) in cases {
            assert_eq!(found(&book(when, dependency), super::LINTS), expected, "{name}");
        }
    }
}
