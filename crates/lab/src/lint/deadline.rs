//! Lints that hold retries and timeouts against a deadline or against what was promised to others.
//!
//! Invariant: without a declared deadline, SLA or caller's timeout there is nothing to hold them
//! against, so nothing here is an error or a warning then.

use std::time::Duration;

use super::Example::Service;
use super::sources::broker_facts;
use super::worst_case::{chosen_policies, earliest_last_start, latest_start, worst_case};
use super::{Findings, Lint, Run};
use redrive_core::book::model::{At, DataLoss};
use redrive_core::book::problem::{Severity, Span};
use redrive_core::book::resolve::Resolved;
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "retry-outlives-deadline",
        severity: Severity::Error,
        summary: "the retries take longer than the deadline or the SLA leaves them",
        explanation: "Counted together, the delays and the attempts of this policy go on beyond the deadline \
                      of the rule or beyond the SLA that was declared for it. What lies behind a deadline is \
                      never tried, though the policy reads as if it were; what lies behind an SLA is tried \
                      when nobody counts on it any more. It is an error where the last retries can never be \
                      made or the SLA can be missed, and a warning where only slow failures lose them, or \
                      where data loss is not acceptable and a late delivery is better than none. Allow fewer \
                      retries, shorten the delays or the timeout, or move the deadline.",
        bad: Service("retry: patient, deadline: 30s, timeout: 5s"),
        fix: &[("retry: patient", "retry: aggressive")],
        run: Run::Rule(retry_outlives_deadline),
    },
    Lint {
        code: "attempt-timeout-exceeds-deadline",
        severity: Severity::Error,
        summary: "one attempt may take as long as the deadline or the SLA leaves for all of them",
        explanation: "The timeout of a single attempt is as long as the whole deadline, or as the SLA. A target \
                      that hangs then uses up all the time there is with its first attempt, and no retry ever \
                      follows: timeouts are the one failure that this rule does not retry. Make the timeout a \
                      small part of the deadline, so that several attempts fit in.",
        bad: Service("retry: aggressive, timeout: 30s, deadline: 30s"),
        fix: &[("timeout: 30s", "timeout: 5s")],
        run: Run::Rule(attempt_timeout_exceeds_deadline),
    },
    Lint {
        code: "timeout-grows-past-deadline",
        severity: Severity::Warning,
        summary: "a timeout that grows with the attempts ends up longer than the deadline or the SLA",
        explanation: "The timeout grows from attempt to attempt, and its longest is no shorter than the whole \
                      deadline or the SLA. The late attempts, which it was meant to help, then either never \
                      start or end long after anybody waits. Set its `max` to what is left of the deadline \
                      when the last attempt starts.",
        bad: Service("retry: aggressive, timeout: { first: 2s, factor: 3, max: 60s }, deadline: 45s"),
        fix: &[("factor: 3, max: 60s", "factor: 2, max: 8s")],
        run: Run::Rule(timeout_grows_past_deadline),
    },
    Lint {
        code: "no-deadline",
        severity: Severity::Warning,
        summary: "an SLA or a caller's timeout is declared, and no deadline ends the retries in time",
        explanation: "Somebody counts on this delivery within a time, and nothing ends it then: retries go on, \
                      and while a breaker is open or the other side asks for patience a delivery is held, by \
                      default for up to a day, only to be made when its result is no longer wanted. State a \
                      `deadline`, so that what is late becomes a dead letter that people can see. Where data \
                      loss is not acceptable a late delivery is better than none, and this lint is silent.",
        bad: Service("retry: standard, timeout: 5s, facts: { sla: 10m }"),
        fix: &[("timeout: 5s", "timeout: 5s, deadline: 9m")],
        run: Run::Rule(no_deadline),
    },
];

fn is_late_better_than_never(rule: &Resolved<'_>) -> bool {
    rule.data_loss.as_ref().is_some_and(|known| known.value == DataLoss::NotAcceptable)
}

fn retry_outlives_deadline(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let timeout = &rule.rule.timeouts.whole;
    for used in chosen_policies(rule) {
        let backoff = used.backoff();
        if rule.deadline.is_none() && rule.facts.sla.is_none() {
            findings.cannot_tell(rule.service.span, "facts.sla");
            return;
        }
        if let Some(deadline) = &rule.deadline {
            let limit = deadline.value;
            let (best, worst) = (earliest_last_start(backoff), latest_start(backoff, timeout));
            // Retrying without a limit means: until the deadline. A long first timeout has its own lint.
            if !backoff.is_unlimited() && timeout.first < limit && worst > limit {
                let severity = if best > limit { Severity::Error } else { Severity::Warning };
                let (when, start) = match severity {
                    Severity::Error => ("even if every attempt fails at once", best),
                    Severity::Warning | Severity::Info => ("if every attempt times out", worst),
                };
                let message = format!(
                    "{when}, the last retry by `{}` would start after {}, and the deadline is {}",
                    used.policy.name,
                    show_duration(start),
                    show_duration(limit)
                );
                let help = "allow fewer retries, shorten the delays or the timeout, or move the deadline";
                findings.report_as(
                    severity,
                    used.origin.span.unwrap_or(rule.place(deadline.origin)),
                    message,
                    help,
                );
            }
        }
        if let Some(sla) = &rule.facts.sla {
            let worst = worst_case(backoff, timeout);
            // No attempt starts after the deadline.
            let ends = rule
                .deadline
                .as_ref()
                .map_or(worst, |deadline| worst.min(deadline.value.saturating_add(timeout.max)));
            let is_endless = backoff.is_unlimited() && backoff.window().is_none() && rule.deadline.is_none();
            if !is_endless && timeout.first < sla.value && ends > sla.value {
                report_missed_sla(rule, used.origin.span.unwrap_or(sla.span), sla, ends, findings);
            }
        }
    }
}

fn report_missed_sla(
    rule: &Resolved<'_>,
    place: Span,
    sla: &At<Duration>,
    ends: Duration,
    findings: &mut Findings<'_>,
) {
    let (ends, sla) = (show_duration(ends), show_duration(sla.value));
    let message = format!("a delivery may take {ends} with all its retries, and the SLA is {sla}");
    let help = "allow fewer retries, shorten the delays or the timeout, or state a shorter `deadline`";
    let severity = if is_late_better_than_never(rule) { Severity::Warning } else { Severity::Error };
    findings.report_as(severity, place, message, help);
}

/// The deadline or the SLA, whichever is shorter, with its name and where it stands.
fn limit_of_all_attempts(rule: &Resolved<'_>) -> Option<(&'static str, Duration, Span)> {
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
        findings.cannot_tell(rule.service.span, "facts.sla");
        return;
    };
    let timeout = rule.rule.timeouts.whole.first;
    if timeout >= limit {
        let message = format!(
            "one attempt may take {}, and {name} is {}: what times out is never retried",
            show_duration(timeout),
            show_duration(limit)
        );
        let help = "shorten the timeout, so that several attempts fit in";
        findings.report(rule.timeouts.whole.origin.span.unwrap_or(place), message, help);
    }
}

fn timeout_grows_past_deadline(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let timeout = &rule.rule.timeouts.whole;
    if timeout.max <= timeout.first {
        return;
    }
    let Some((name, limit, place)) = limit_of_all_attempts(rule) else { return };
    if timeout.first < limit && timeout.max >= limit {
        let message = format!(
            "the timeout grows to {}, and {name} is {}",
            show_duration(timeout.max),
            show_duration(limit)
        );
        let help = "set its `max` to what is left when the last attempt starts";
        findings.report(rule.timeouts.whole.origin.span.unwrap_or(place), message, help);
    }
}

fn no_deadline(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    if rule.deadline.is_some() || is_late_better_than_never(rule) {
        return;
    }
    let sla = rule.facts.sla.as_ref().map(|at| ("the SLA is", at));
    let callers =
        broker_facts(rule, findings.book()).filter_map(|facts| facts.get(|facts| &facts.caller_timeout));
    let caller = callers.min_by_key(|at| at.value).map(|at| ("the caller waits", at));
    let Some((promise, at)) = sla.into_iter().chain(caller).min_by_key(|(_, at)| at.value) else { return };
    let timeout = &rule.rule.timeouts.whole;
    let Some(retrying) = chosen_policies(rule).map(|used| worst_case(used.backoff(), timeout)).max() else {
        return;
    };
    let held = rule.hold_max.value;
    if retrying.saturating_add(held) > at.value {
        let promised = show_duration(at.value);
        let message = format!(
            "{promise} {promised}, and no deadline ends a delivery then: it may be held for {} alone",
            show_duration(held)
        );
        findings.report(at.span, message, format!("state a `deadline` below {promised}"));
    }
}
