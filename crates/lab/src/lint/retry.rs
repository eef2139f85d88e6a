//! Lints about retry policies: how many retries, how far apart, how spread, and how they multiply.
//!
//! Policies of the catalog are not judged by their own numbers, only by the facts of the place that uses them.

use std::time::Duration;

use super::ExampleBook::{Policy, Service, With};
use super::sources::{BrokerFacts, broker_facts};
use super::worst_case::{chosen_policies, is_of_the_catalog, longest_delay, policies};
use super::{Findings, Lint, LintScope, OwnPolicy};
use redrive_core::book::model::{At, Sections};
use redrive_core::book::problem::ProblemSeverity;
use redrive_core::book::resolve::{Resolved, RuleLevel};
use redrive_core::ids::PolicyName;
use redrive_core::limits;
use redrive_core::policy::backoff::{Backoff, Jitter};
use redrive_core::text::{counted, show_duration};

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "unlimited-retries",
        severity: ProblemSeverity::Error,
        summary: "retries without a limit, a window or a deadline",
        explanation: "Nothing ends these retries. An event that can never be delivered is retried for ever and \
                      loads the target; in a session it blocks every event behind it. Add `retries` or a `window` \
                      to the policy, or a `deadline` to the rule: the delivery then becomes a dead letter, which \
                      can be replayed.",
        bad: With(
            &["retry_policies: { endless: { initial: 1s, max: 30s, retries: unlimited } }"],
            "retry: endless",
        ),
        fix: &[("retries: unlimited", "retries: unlimited, window: 8h")],
        scope: LintScope::Row(unlimited_retries),
    },
    Lint {
        code: "retry-amplification",
        severity: ProblemSeverity::Warning,
        summary: "more than 10 attempts for one event over all layers",
        explanation: "Attempts of nested layers multiply: 3 of a caller × 4 of a broker × 4 here are 48 calls for \
                      one event, when the target is weakest. Retry in one layer only, best in this one, which has \
                      a breaker. More than 10 attempts are a warning, more than 50 an error. Skipped without the \
                      facts `callers` and `broker_attempts`.",
        bad: Service("retry: standard, facts: { callers: 3, broker_attempts: 2 }"),
        fix: &[("callers: 3, broker_attempts: 2", "callers: 1, broker_attempts: 1")],
        scope: LintScope::Row(retry_amplification),
    },
    Lint {
        code: "no-jitter",
        severity: ProblemSeverity::Warning,
        summary: "a retry policy without jitter",
        explanation: "Deliveries that fail together retry together if their delays are equal. Each wave hits the \
                      target at once and can make it fail again while it recovers. Write `jitter: equal`, which \
                      keeps at least half of each delay, or omit `jitter`: that is the default. Policies of the \
                      catalog are not checked.",
        bad: Policy("initial: 1s, max: 30s, retries: 5, jitter: none"),
        fix: &[("jitter: none", "jitter: equal")],
        scope: LintScope::Policy(no_jitter),
    },
    Lint {
        code: "lockstep-instances",
        severity: ProblemSeverity::Warning,
        summary: "several processes retry by a catalog policy without jitter",
        explanation: "The catalog policy has no jitter, which is fine for one process. Several processes that call \
                      the same dependency fail together and retry together after every delay. Extend the policy \
                      with jitter, such as `{ from: upstream, jitter: equal }`. Skipped without the fact \
                      `instances`.",
        bad: Service("retry: upstream, facts: { instances: 12 }"),
        fix: &[
            ("services:", "retry_policies: { spread: { from: upstream, jitter: spread 25% } }\nservices:"),
            ("retry: upstream", "retry: spread"),
        ],
        scope: LintScope::Row(lockstep_instances),
    },
    Lint {
        code: "backoff-without-cap",
        severity: ProblemSeverity::Warning,
        summary: "growing delays without `max`",
        explanation: "Each delay is a multiple of the one before, without a cap: doubling from 1s, the 10th delay \
                      is 8 minutes and the 15th more than 4 hours, long after the target has recovered. A warning \
                      if a delay exceeds 1h, otherwise a note. Add `max`.",
        bad: Policy("initial: 1s, retries: 15"),
        fix: &[("initial: 1s", "initial: 1s, max: 5m")],
        scope: LintScope::Policy(backoff_without_cap),
    },
    Lint {
        code: "retries-at-once",
        severity: ProblemSeverity::Warning,
        summary: "retries without a delay",
        explanation: "All delays are 0s or below 50ms. A target that has just failed mostly fails again, and an \
                      overloaded one gets its whole load again at once. One immediate retry is fine as the first of \
                      a list of growing delays. Let the delays grow.",
        bad: Policy("delays: [0s], retries: 5"),
        fix: &[("[0s]", "[0s, 1s, 5s]")],
        scope: LintScope::Policy(retries_at_once),
    },
    Lint {
        code: "cap-at-once",
        severity: ProblemSeverity::Warning,
        summary: "a backoff whose first delay already equals `max`",
        explanation: "The policy has a factor, but its first delay is as long as `max`, so the delays never grow. \
                      Often `initial` and `max` are swapped, or a unit is wrong. Raise `max`, shorten `initial`, or \
                      write `factor: 1` for equal delays.",
        bad: Policy("initial: 30s, factor: 2, max: 30s, retries: 5"),
        fix: &[("initial: 30s", "initial: 1s")],
        scope: LintScope::Policy(cap_at_once),
    },
    Lint {
        code: "retries-cut-by-window",
        severity: ProblemSeverity::Warning,
        summary: "more retries than fit into the window",
        explanation: "Even with instant failures and the shortest delays that jitter allows, the window ends before \
                      the last retries. They are never made. Lengthen the window, shorten the delays, or state the \
                      number that fits; `retries: unlimited` lets the window alone decide.",
        bad: Policy("initial: 10s, max: 60s, retries: 10, window: 1m"),
        fix: &[("window: 1m", "window: 15m")],
        scope: LintScope::Policy(retries_cut_by_window),
    },
    Lint {
        code: "custom-policy",
        severity: ProblemSeverity::Info,
        summary: "a retry policy that does not extend one of the catalog",
        explanation: "The policy states all its numbers itself, which is allowed. Readers know the policies of the \
                      catalog by name, and a policy that extends one shows only the differences. Use a policy of \
                      the catalog, or extend one with `from`, such as `{ from: patient, retries: 10 }`.",
        bad: Policy("initial: 2s, max: 60s, retries: 10, window: 15m"),
        fix: &[("initial: 2s, max: 60s, retries: 10, window: 15m", "from: patient, retries: 10")],
        scope: LintScope::Policy(custom_policy),
    },
];

fn unlimited_retries(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    if rule.deadline.is_some() {
        return;
    }
    for used in policies(rule) {
        if used.backoff().is_unlimited() && used.backoff().window().is_none() {
            let message = format!("`{}` retries for ever", used.policy.name);
            let help = "add `retries` or a `window` to the policy, or a `deadline` to this rule";
            findings.report(rule.place(used.origin), message, help);
        }
    }
}

/// More attempts than this for one event are a warning.
const ATTEMPTS_MANY: u64 = 10;
/// More than this are an error.
const ATTEMPTS_TOO_MANY: u64 = 50;

fn retry_amplification(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(most) = chosen_policies(rule).max_by_key(|used| used.backoff().retries()) else { return };
    let feeds = broker_facts(rule, findings.book());
    let Some(worst) = feeds.clone().max_by_key(attempts_above) else { return };
    let above = attempts_above(&worst);
    let own = u64::from(most.backoff().retries()).saturating_add(1);
    let product = own.saturating_mul(above);
    // A single layer multiplies nothing, however often it retries.
    if above > 1 && product > ATTEMPTS_MANY {
        let place = most.origin.span.or(multipliers(&worst).into_iter().flatten().next().map(|at| at.span));
        let severity =
            if product > ATTEMPTS_TOO_MANY { ProblemSeverity::Error } else { ProblemSeverity::Warning };
        let name = &most.policy.name;
        let message = if most.backoff().is_unlimited() {
            format!("unlimited attempts by `{name}` × {above} by other layers")
        } else {
            format!("{own} attempts by `{name}` × {above} by other layers = {product} calls for one event")
        };
        let help = "retry in one layer only: reduce the retries here, or turn off those of the other layers";
        findings.report_as(severity, place.unwrap_or(rule.row.pattern.span), message, help);
        return;
    }
    for facts in feeds {
        for (fact, name) in multipliers(&facts).into_iter().zip(["facts.callers", "facts.broker_attempts"]) {
            if fact.is_none() {
                findings.skip(rule.service.span, name);
            }
        }
    }
}

fn attempts_above(facts: &BrokerFacts<'_>) -> u64 {
    multipliers(facts).into_iter().flatten().map(|at| at.value).fold(1, u64::saturating_mul)
}

fn multipliers<'r>(facts: &BrokerFacts<'r>) -> [Option<&'r At<u64>>; 2] {
    [facts.get(|facts| &facts.callers), facts.get(|facts| &facts.broker_attempts)]
}

fn no_jitter(policy: OwnPolicy<'_>, findings: &mut Findings<'_>) {
    if policy.backoff.jitter() == Jitter::None {
        let message =
            format!("`{}` has no jitter: deliveries that fail together retry together", policy.name);
        findings.report(policy.span, message, "write `jitter: equal`, or omit `jitter`");
    }
}

fn lockstep_instances(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    for used in chosen_policies(rule) {
        let is_named = used.origin.level != RuleLevel::BuiltIn;
        if !is_named || used.backoff().jitter() != Jitter::None || !is_of_the_catalog(&used) {
            continue;
        }
        match &rule.facts.instances {
            None => findings.skip(rule.service.span, "facts.instances"),
            Some(at) if at.value <= 1 => {}
            Some(at) => {
                let name = &used.policy.name;
                let message = format!("{} processes retry by `{name}`, which has no jitter", at.value);
                let help = format!("extend it: `{{ from: {name}, jitter: equal }}`");
                findings.report(rule.place(used.origin), message, help);
            }
        }
    }
}

const DELAY_LONG: Duration = Duration::from_hours(1);

fn should_grow(backoff: &Backoff) -> bool {
    backoff.factor().is_some_and(|factor| factor > 1.0) && backoff.retries() > 1
}

fn backoff_without_cap(OwnPolicy { name, backoff, span }: OwnPolicy<'_>, findings: &mut Findings<'_>) {
    if !should_grow(backoff) || backoff.max() < limits::DURATION_MAX {
        return;
    }
    // A retry beyond the window is not made, so no delay is longer than that.
    let longest = longest_delay(backoff).min(backoff.window().unwrap_or(Duration::MAX));
    let severity = if longest > DELAY_LONG { ProblemSeverity::Warning } else { ProblemSeverity::Info };
    let message = format!("the delays of `{name}` grow to {} without a cap", show_duration(longest));
    findings.report_as(severity, span, message, "add `max`");
}

/// A shorter delay gives a target no time to recover.
const AT_ONCE: Duration = Duration::from_millis(50);
/// So many retries without a pause are a burst.
const RETRIES_IN_A_ROW: u32 = 3;

fn retries_at_once(OwnPolicy { name, backoff, span }: OwnPolicy<'_>, findings: &mut Findings<'_>) {
    let longest = longest_delay(backoff);
    if backoff.listed().is_some_and(|delays| delays.iter().all(Duration::is_zero)) {
        let message = format!("the retries of `{name}` have no delay");
        findings.report(span, message, "let the delays grow, such as `delays: [0s, 1s, 5s]`");
    } else if backoff.retries() >= RETRIES_IN_A_ROW && longest < AT_ONCE {
        let message = format!("no delay of `{name}` is longer than {}", show_duration(longest));
        findings.report(span, message, "let the delays grow to seconds, such as `initial: 500ms, factor: 2`");
    }
}

fn cap_at_once(OwnPolicy { name, backoff, span }: OwnPolicy<'_>, findings: &mut Findings<'_>) {
    if should_grow(backoff) && backoff.initial() >= backoff.max() {
        let delay = show_duration(backoff.initial());
        let message = format!("the delays of `{name}` start at their `max` of {delay} and never grow");
        findings.report(span, message, "raise `max`, shorten `initial`, or write `factor: 1`");
    }
}

fn retries_cut_by_window(OwnPolicy { name, backoff, span }: OwnPolicy<'_>, findings: &mut Findings<'_>) {
    let Some(window) = backoff.window() else { return };
    if backoff.is_unlimited() || backoff.wait_min_total() <= window {
        return;
    }
    let mut waited = Duration::ZERO;
    let fitting = (0..backoff.retries()).take_while(|n| {
        waited = waited.saturating_add(backoff.range(*n).0);
        waited <= window
    });
    let fitting = fitting.count();
    let (retries, shown) = (counted(u64::from(backoff.retries()), "retry"), show_duration(window));
    let message = format!("at most {fitting} of {retries} of `{name}` fit into its window of {shown}");
    let help = format!("lengthen the window, or allow {}", counted(fitting as u64, "retry"));
    findings.report(span, message, help);
}

fn custom_policy(policy: OwnPolicy<'_>, findings: &mut Findings<'_>) {
    if !extends_the_catalog(findings.book(), policy.name) {
        let message = format!("`{}` extends no policy of the catalog", policy.name);
        findings.report(policy.span, message, "use a policy of the catalog, or extend one with `from`");
    }
}

fn extends_the_catalog(book: &Sections, name: &PolicyName) -> bool {
    let mut name = name;
    loop {
        match book.policies.get(name).and_then(|at| at.value.from.as_ref()) {
            None => return false,
            // Under its own name a policy can only extend the catalog's.
            Some(from) if from == name || !book.policies.contains_key(from) => return true,
            Some(from) => name = from,
        }
    }
}

#[cfg(test)]
mod tests;
