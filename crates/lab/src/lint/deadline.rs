//! Lints that compare retries and timeouts with a deadline, an SLA or the caller's timeout.

use std::time::Duration;

use super::ExampleBook::Service;
use super::sources::broker_fact;
use super::worst_case::{chosen_policies, earliest_last_start, latest_start, worst_case};
use super::{Findings, Lint, LintScope};
use redrive_core::book::model::DataLoss;
use redrive_core::book::problem::{BookSpan, ProblemSeverity};
use redrive_core::book::resolve::Resolved;
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "retry-outlives-deadline",
        severity: ProblemSeverity::Error,
        summary: "retries that take longer than the deadline or the SLA allows",
        explanation: "Delays and attempts together last longer than the deadline or the declared SLA: retries after the \
                      deadline are never made, those after the SLA come too late. An error if the last retries can \
                      never be made or the SLA can be missed; a warning if only slow failures lose them, or if data \
                      loss is not acceptable and late is better than never. Allow fewer retries, shorten the delays \
                      or the timeout, or move the deadline.",
        bad: Service("retry: patient, deadline: 30s, timeout: 5s"),
        fix: &[("retry: patient", "retry: aggressive")],
        scope: LintScope::Row(retry_outlives_deadline),
    },
    Lint {
        code: "attempt-timeout-exceeds-deadline",
        severity: ProblemSeverity::Error,
        summary: "a timeout as long as the whole deadline or SLA",
        explanation: "One attempt may take as long as the deadline or the SLA allows for all of them. A target that \
                      hangs uses up the whole time with the first attempt, and no retry follows. Make the timeout a \
                      small part of the deadline, so that several attempts fit.",
        bad: Service("retry: aggressive, timeout: 30s, deadline: 30s"),
        fix: &[("timeout: 30s", "timeout: 5s")],
        scope: LintScope::Row(attempt_timeout_exceeds_deadline),
    },
    Lint {
        code: "timeout-grows-past-deadline",
        severity: ProblemSeverity::Warning,
        summary: "a growing timeout that reaches the deadline or the SLA",
        explanation: "The timeout grows with the attempts, and its longest value is no shorter than the deadline or the \
                      SLA. Late attempts, which it should help, never start or end too late. Set its `max` to the \
                      time that is left when the last attempt starts.",
        bad: Service("retry: aggressive, timeout: { first: 2s, factor: 3, max: 60s }, deadline: 45s"),
        fix: &[("factor: 3, max: 60s", "factor: 2, max: 8s")],
        scope: LintScope::Row(timeout_grows_past_deadline),
    },
    Lint {
        code: "no-deadline",
        severity: ProblemSeverity::Warning,
        summary: "an SLA or a caller's timeout without a deadline",
        explanation: "A result is needed within a stated time, but nothing ends the delivery then: it is retried and, \
                      while a breaker is open, held for up to a day. State a `deadline`, so that a late delivery \
                      becomes a visible dead letter. Not reported where data loss is not acceptable: late is better \
                      than never.",
        bad: Service("retry: standard, timeout: 5s, facts: { sla: 10m }"),
        fix: &[("timeout: 5s", "timeout: 5s, deadline: 9m")],
        scope: LintScope::Row(no_deadline),
    },
];

fn is_late_better_than_never(rule: &Resolved<'_>) -> bool {
    rule.data_loss.as_ref().is_some_and(|known| known.value == DataLoss::NotAcceptable)
}

fn retry_outlives_deadline(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let timeout = &rule.rule.timeouts.whole;
    let help = "allow fewer retries, shorten the delays or the timeout, or change the `deadline`";
    for used in chosen_policies(rule) {
        let backoff = used.backoff();
        if rule.deadline.is_none() && rule.facts.sla.is_none() {
            return findings.skip(rule.service.span, "facts.sla");
        }
        if let Some(deadline) = &rule.deadline {
            let (best, worst) = (earliest_last_start(backoff), latest_start(backoff, timeout));
            // Unlimited retries mean: until the deadline. A long first timeout has its own lint.
            if !backoff.is_unlimited() && timeout.first < deadline.value && worst > deadline.value {
                let (severity, when, start) = if best > deadline.value {
                    (ProblemSeverity::Error, "even if every attempt fails at once", best)
                } else {
                    (ProblemSeverity::Warning, "if every attempt times out", worst)
                };
                let [start, limit] = [start, deadline.value].map(show_duration);
                let message = format!(
                    "{when}, the last retry by `{}` starts after {start}; the deadline is {limit}",
                    used.policy.name
                );
                let place = used.origin.span.unwrap_or(rule.place(deadline.origin));
                findings.report_as(severity, place, message, help);
            }
        }
        if let Some(sla) = &rule.facts.sla {
            let worst = worst_case(backoff, timeout);
            // No attempt starts after the deadline.
            let last_start = rule.deadline.as_ref().map_or(Duration::MAX, |deadline| deadline.value);
            let ends = worst.min(last_start.saturating_add(timeout.max));
            let is_endless = backoff.is_unlimited() && backoff.window().is_none() && rule.deadline.is_none();
            if !is_endless && timeout.first < sla.value && ends > sla.value {
                let [ends, limit] = [ends, sla.value].map(show_duration);
                let message = format!("a delivery may take {ends} with all retries; the SLA is {limit}");
                let severity = if is_late_better_than_never(rule) {
                    ProblemSeverity::Warning
                } else {
                    ProblemSeverity::Error
                };
                findings.report_as(severity, used.origin.span.unwrap_or(sla.span), message, help);
            }
        }
    }
}

/// The deadline or the SLA, whichever is shorter, with its name and place.
fn limit_of_all_attempts(rule: &Resolved<'_>) -> Option<(&'static str, Duration, BookSpan)> {
    let deadline =
        rule.deadline.as_ref().map(|known| ("the deadline", known.value, rule.place(known.origin)));
    let sla = rule.facts.sla.as_ref().map(|at| ("the SLA", at.value, at.span));
    deadline.into_iter().chain(sla).min_by_key(|(_, limit, _)| *limit)
}

fn attempt_timeout_exceeds_deadline(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    if chosen_policies(rule).next().is_none() {
        return;
    }
    let Some((name, limit, place)) = limit_of_all_attempts(rule) else {
        return findings.skip(rule.service.span, "facts.sla");
    };
    let timeout = rule.rule.timeouts.whole.first;
    if timeout >= limit {
        let [timeout, limit] = [timeout, limit].map(show_duration);
        let message = format!("one attempt may take {timeout} and {name} is {limit}: no timeout is retried");
        let help = "shorten the timeout, so that several attempts fit";
        findings.report(rule.timeouts.whole.origin.span.unwrap_or(place), message, help);
    }
}

fn timeout_grows_past_deadline(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let timeout = &rule.rule.timeouts.whole;
    let Some((name, limit, place)) = limit_of_all_attempts(rule) else { return };
    if timeout.max > timeout.first && timeout.first < limit && timeout.max >= limit {
        let [longest, limit] = [timeout.max, limit].map(show_duration);
        let message = format!("the timeout grows to {longest}, and {name} is {limit}");
        let help = "set its `max` to the time that is left when the last attempt starts";
        findings.report(rule.timeouts.whole.origin.span.unwrap_or(place), message, help);
    }
}

fn no_deadline(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    if rule.deadline.is_some() || is_late_better_than_never(rule) {
        return;
    }
    let sla = rule.facts.sla.as_ref().map(|at| ("the SLA is", at));
    let callers = broker_fact(rule, findings.book(), |facts| &facts.caller_timeout);
    let caller = callers.min_by_key(|at| at.value).map(|at| ("the caller waits", at));
    let Some((promise, at)) = sla.into_iter().chain(caller).min_by_key(|(_, at)| at.value) else { return };
    let timeout = &rule.rule.timeouts.whole;
    let Some(retrying) = chosen_policies(rule).map(|used| worst_case(used.backoff(), timeout)).max() else {
        return;
    };
    if retrying.saturating_add(rule.hold_max.value) > at.value {
        let [promised, held] = [at.value, rule.hold_max.value].map(show_duration);
        let message =
            format!("{promise} {promised}, but without a deadline a delivery may be held for {held}");
        findings.report(at.span, message, format!("state a `deadline` below {promised}"));
    }
}
