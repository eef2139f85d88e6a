//! Lints about how long a call may take.
//!
//! Two kinds of facts are held against it. Every call has a p99, so without one nobody can tell. A
//! caller who waits and a loop that polls are only there if the book says so, and without them there
//! is nothing to look for.

use super::Example::Service;
use super::sources::broker_facts;
use super::{Findings, Lint, Run};
use redrive_core::book::connectors::Speech;
use redrive_core::book::problem::Severity;
use redrive_core::book::resolve::{Level, Resolved, ResolvedTimeouts};
use redrive_core::ids::Attempt;
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "timeout-below-p99",
        severity: Severity::Warning,
        summary: "calls are given up that would have succeeded",
        explanation: "More than one call in a hundred takes longer than the timeout, without anything being \
                      wrong. Each of them is given up, counted against the dependency and made again while \
                      the first may still be at work: a slow day becomes twice the load, and duplicates. Set \
                      the timeout well above the slowest calls that still succeed. Without the fact `p99` \
                      nobody can tell.",
        bad: Service("timeout: 5s, facts: { p99: 8s }"),
        fix: &[("timeout: 5s", "timeout: 20s")],
        run: Run::Rule(timeout_below_p99),
    },
    Lint {
        code: "timeout-beyond-caller",
        severity: Severity::Warning,
        summary: "one attempt may take longer than the caller waits",
        explanation: "The caller has given up before this attempt has: the work goes on for nobody, holds a \
                      permit and a connection while it does, and is done a second time when the caller asks \
                      again. Make the timeout shorter than the time that the caller waits, so that there is \
                      always an answer for it.",
        bad: Service("timeout: 30s, retry: none, facts: { caller_timeout: 10s }"),
        fix: &[("timeout: 30s", "timeout: 5s")],
        run: Run::Rule(timeout_beyond_caller),
    },
    Lint {
        code: "poll-limit-exceeded",
        severity: Severity::Error,
        summary: "one attempt may take longer than a polling consumer may be away",
        explanation: "The consumer handles an event between two polls of its broker, and the broker takes it \
                      for dead if the next poll is late. An attempt that may last longer than that ends in a \
                      rebalance: the event goes to another consumer, which is taken for dead in its turn, and \
                      nothing gets done. Retries do not count here, since they are made from the store and \
                      not inside the loop. Make the timeout shorter than the poll limit.",
        bad: Service("timeout: 10m, facts: { poll_limit: 5m }"),
        fix: &[("timeout: 10m", "timeout: 1m")],
        run: Run::Rule(poll_limit_exceeded),
    },
    Lint {
        code: "implicit-timeout",
        severity: Severity::Info,
        summary: "no timeout is stated at any level",
        explanation: "Nothing in the book says how long these calls may take, so what is built in holds: ten \
                      seconds for a call, half an hour for a program. Every operation has its own sensible \
                      limit, and a limit that nobody chose is found out in an outage. State `timeout` for the \
                      row, the service, the dependency or in `defaults`, if need be with the same value.",
        bad: Service(""),
        fix: &[("services:", "defaults: { timeout: default }\nservices:")],
        run: Run::Rule(implicit_timeout),
    },
    Lint {
        code: "part-exceeds-whole",
        severity: Severity::Warning,
        summary: "a part of a call may take longer than the whole call",
        explanation: "The limit on connecting, on the TLS handshake or on the headers is longer than the limit \
                      on the whole call, so it never takes effect, and a target that does not even take the \
                      connection is waited for as long as one that works. Make the part shorter than the \
                      whole; a whole that is not stated is ten seconds.",
        bad: Service("timeout: { connect: 30s, whole: 10s }"),
        fix: &[("connect: 30s", "connect: 3s")],
        run: Run::Rule(part_exceeds_whole),
    },
];

fn timeout_below_p99(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(p99) = &rule.facts.p99 else {
        let retries = rule.retry_policy().is_some_and(|policy| policy.backoff.retries() > 0);
        if retries && rule.target.endpoint.connector.dependency.is_some() {
            findings.cannot_tell(rule.service.span, "facts.p99");
        }
        return;
    };
    let limit = rule.answer_limit(Attempt::FIRST);
    if limit < p99.value {
        let (limit, p99_shown) = (show_duration(limit), show_duration(p99.value));
        let message =
            format!("calls are given up after {limit}, and one in a hundred takes over {p99_shown}");
        let help = format!("state a `timeout` well above {p99_shown}");
        findings.report(rule.timeouts.whole.origin.span.unwrap_or(p99.span), message, help);
    }
}

fn timeout_beyond_caller(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let waits =
        broker_facts(rule, findings.book()).filter_map(|facts| facts.get(|facts| &facts.caller_timeout));
    let Some(caller) = waits.min_by_key(|at| at.value) else { return };
    let limit = rule.rule.timeouts.whole.first;
    if limit > caller.value {
        let (limit, waits) = (show_duration(limit), show_duration(caller.value));
        let line = caller.span.position.line;
        let message = format!("one attempt may take {limit}, and the caller waits {waits} (line {line})");
        let help = format!("state a `timeout` below {waits}");
        findings.report(rule.timeouts.whole.origin.span.unwrap_or(caller.span), message, help);
    }
}

fn poll_limit_exceeded(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let polls = broker_facts(rule, findings.book()).filter_map(|facts| facts.get(|facts| &facts.poll_limit));
    let Some(poll) = polls.min_by_key(|at| at.value) else { return };
    let limit = rule.rule.timeouts.whole.max;
    if limit > poll.value {
        let (limit, poll_shown) = (show_duration(limit), show_duration(poll.value));
        let line = poll.span.position.line;
        let message = format!(
            "one attempt may take {limit}, and the broker takes a consumer for dead after {poll_shown} (line {line})"
        );
        let help = format!("state a `timeout` below {poll_shown}");
        findings.report(rule.timeouts.whole.origin.span.unwrap_or(poll.span), message, help);
    }
}

/// Points at the service, so that a service with a thousand rows has one such finding.
fn implicit_timeout(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    // A run has a limit of its own, which is long enough to be no surprise.
    let connector = rule.target.endpoint.connector;
    let is_call = connector.dependency.is_some() && connector.speech != Speech::Process;
    if rule.timeouts.whole.origin.level == Level::BuiltIn && is_call {
        let limit = show_duration(rule.rule.timeouts.whole.first);
        let place = rule.channel.map_or(rule.service.span, |channel| channel.span);
        let message = format!("no timeout is stated, so the built-in {limit} hold");
        findings.report(place, message, "state `timeout` here, for the dependency or in `defaults`");
    }
}

fn part_exceeds_whole(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let ResolvedTimeouts { connect, tls, headers, whole, .. } = &rule.timeouts;
    for (name, part) in [("connect", connect), ("tls", tls), ("headers", headers)] {
        if part.origin.level != Level::BuiltIn && part.value > whole.value.max {
            let (shown, limit) = (show_duration(part.value), show_duration(whole.value.max));
            let message = format!("`{name}` may take {shown}, and the whole call only {limit}");
            findings.report(
                rule.place(part.origin),
                message,
                format!("make `{name}` shorter than the whole"),
            );
        }
    }
}
