//! Lints about how long a call may take.
//!
//! Every call has a p99, so a check against it is skipped without that fact. A caller that waits and a loop that polls
//! exist only if the book says so.

use std::time::Duration;

use super::ExampleBook::Service;
use super::sources::broker_fact;
use super::{Findings, Lint, LintScope};
use redrive_core::book::connectors::CallProtocol;
use redrive_core::book::model::At;
use redrive_core::book::problem::ProblemSeverity;
use redrive_core::book::resolve::{Resolved, ResolvedTimeouts, RuleLevel};
use redrive_core::ids::Attempt;
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "timeout-below-p99",
        severity: ProblemSeverity::Warning,
        summary: "a timeout below the declared p99",
        explanation: "More than one call in a hundred takes longer than the timeout although nothing is wrong. Each is \
                      cut off, counted against the dependency and repeated while the first may still be running: more \
                      load, and duplicates. Set the timeout well above the slowest calls that succeed. Skipped \
                      without the fact `p99`.",
        bad: Service("timeout: 5s, facts: { p99: 8s }"),
        fix: &[("timeout: 5s", "timeout: 20s")],
        scope: LintScope::Row(timeout_below_p99),
    },
    Lint {
        code: "timeout-beyond-caller",
        severity: ProblemSeverity::Warning,
        summary: "a timeout longer than the caller waits",
        explanation: "The caller gives up before this attempt does. The work continues unused, holds a permit and a \
                      connection, and is done again when the caller asks again. Make the timeout shorter than \
                      `caller_timeout`, so that the caller always gets an answer.",
        bad: Service("timeout: 30s, retry: none, facts: { caller_timeout: 10s }"),
        fix: &[("timeout: 30s", "timeout: 5s")],
        scope: LintScope::Row(timeout_beyond_caller),
    },
    Lint {
        code: "poll-limit-exceeded",
        severity: ProblemSeverity::Error,
        summary: "a timeout longer than the poll limit of the broker",
        explanation: "The consumer handles an event between two polls, and the broker declares it dead if the next poll \
                      is late. A longer attempt ends in a rebalance: the event goes to another consumer, which is \
                      declared dead in turn. Retries do not count here: they run from the store. Make the timeout \
                      shorter than `poll_limit`.",
        bad: Service("timeout: 10m, facts: { poll_limit: 5m }"),
        fix: &[("timeout: 10m", "timeout: 1m")],
        scope: LintScope::Row(poll_limit_exceeded),
    },
    Lint {
        code: "implicit-timeout",
        severity: ProblemSeverity::Info,
        summary: "no timeout stated at any level",
        explanation: "The built-in timeout applies: 10s for a call, 30m for a program. Each operation has its own \
                      sensible limit, and a default that was never chosen shows in an outage. State `timeout` for the \
                      row, the service, the dependency or in `defaults`, even with the same value.",
        bad: Service(""),
        fix: &[("services:", "defaults: { timeout: default }\nservices:")],
        scope: LintScope::Row(implicit_timeout),
    },
    Lint {
        code: "part-exceeds-whole",
        severity: ProblemSeverity::Warning,
        summary: "a limit for part of a call that exceeds the limit for the whole call",
        explanation: "The limit for connecting, the TLS handshake or the headers is longer than that for the whole call, \
                      so it never applies, and an unreachable target takes as long as a slow one. Make the part \
                      shorter than the whole; the default for the whole is 10s.",
        bad: Service("timeout: { connect: 30s, whole: 10s }"),
        fix: &[("connect: 30s", "connect: 3s")],
        scope: LintScope::Row(part_exceeds_whole),
    },
];

fn timeout_below_p99(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(p99) = &rule.facts.p99 else {
        let retries = rule.retry_policy().is_some_and(|policy| policy.backoff.retries() > 0);
        if retries && rule.target.endpoint.connector.dependency.is_some() {
            findings.skip(rule.service.span, "facts.p99");
        }
        return;
    };
    let limit = rule.answer_limit(Attempt::FIRST);
    if limit < p99.value {
        let [limit, shown] = [limit, p99.value].map(show_duration);
        let message = format!("calls time out after {limit}, and one in a hundred takes longer than {shown}");
        let help = format!("state a `timeout` well above {shown}");
        findings.report(rule.timeouts.whole.origin.span.unwrap_or(p99.span), message, help);
    }
}

fn timeout_beyond_caller(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let stated = broker_fact(rule, findings.book(), |facts| &facts.caller_timeout).min_by_key(|at| at.value);
    exceeds(rule, rule.rule.timeouts.whole.first, stated, "the caller waits", findings);
}

fn poll_limit_exceeded(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let stated = broker_fact(rule, findings.book(), |facts| &facts.poll_limit).min_by_key(|at| at.value);
    exceeds(rule, rule.rule.timeouts.whole.max, stated, "the poll limit is", findings);
}

fn exceeds(
    rule: &Resolved<'_>,
    timeout: Duration,
    limit: Option<&At<Duration>>,
    name: &str,
    findings: &mut Findings<'_>,
) {
    let Some(limit) = limit.filter(|limit| timeout > limit.value) else { return };
    let [timeout, shown] = [timeout, limit.value].map(show_duration);
    let line = limit.span.position.line;
    let message = format!("one attempt may take {timeout}, and {name} {shown} (line {line})");
    let help = format!("state a `timeout` below {shown}");
    findings.report(rule.timeouts.whole.origin.span.unwrap_or(limit.span), message, help);
}

/// Points at the service, so that a service with a thousand rows has one finding.
fn implicit_timeout(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    // The time limit of a program is long enough.
    let connector = rule.target.endpoint.connector;
    let is_call = connector.dependency.is_some() && connector.speech != CallProtocol::Process;
    if rule.timeouts.whole.origin.level == RuleLevel::BuiltIn && is_call {
        let limit = show_duration(rule.rule.timeouts.whole.first);
        let place = rule.channel.map_or(rule.service.span, |channel| channel.span);
        let message = format!("no timeout is stated: the built-in {limit} applies");
        findings.report(place, message, "state `timeout` here, for the dependency or in `defaults`");
    }
}

fn part_exceeds_whole(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let ResolvedTimeouts { connect, tls, headers, whole, .. } = &rule.timeouts;
    for (name, part) in [("connect", connect), ("tls", tls), ("headers", headers)] {
        if part.origin.level != RuleLevel::BuiltIn && part.value > whole.value.max {
            let [shown, limit] = [part.value, whole.value.max].map(show_duration);
            let message = format!("`{name}` may take {shown}, but the whole call only {limit}");
            let help = format!("make `{name}` shorter than the whole");
            findings.report(rule.place(part.origin), message, help);
        }
    }
}
