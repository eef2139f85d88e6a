//! Lints about retry policies themselves: how many, how far apart, how spread, and how they multiply.
//!
//! The catalog's policies are what the documents say and are never blamed for themselves; only the
//! book's own are, and what the book makes of the others.

use std::time::Duration;

use super::Example::{Policy, Service, With};
use super::sources::{BrokerFacts, broker_facts};
use super::worst_case::{chosen_policies, is_of_the_catalog, longest_delay, policies};
use super::{Findings, Lint, Run};
use redrive_core::book::model::{At, Sections};
use redrive_core::book::problem::{Severity, Span};
use redrive_core::book::resolve::{Level, Resolved};
use redrive_core::ids::PolicyName;
use redrive_core::limits;
use redrive_core::policy::backoff::{Backoff, Jitter};
use redrive_core::text::{counted, show_duration};

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "unlimited-retries",
        severity: Severity::Error,
        summary: "retries without a limit, a window or a deadline",
        explanation: "Nothing ever ends these retries: no number, no window, no deadline. One event that can \
                      never be delivered is then tried for ever, and with it every other like it, until the \
                      target does little else but refuse them; in a session, all that stands behind it waits \
                      for ever too. Give the policy `retries` or a `window`, or the rule a `deadline`: what \
                      is given up is kept as a dead letter and can be replayed.",
        bad: With(
            &["retry_policies: { endless: { initial: 1s, max: 30s, retries: unlimited } }"],
            "retry: endless",
        ),
        fix: &[("retries: unlimited", "retries: unlimited, window: 8h")],
        run: Run::Rule(unlimited_retries),
    },
    Lint {
        code: "retry-amplification",
        severity: Severity::Warning,
        summary: "the attempts of all layers, multiplied, are more than 10 for one event",
        explanation: "Every layer that retries multiplies the attempts of the layers below it: three attempts \
                      of a caller times four of a broker times four here are forty-eight calls for one event, \
                      and they all come when the target is weakest. Retry in one layer only, best in this \
                      one, which sees the breaker, and let the others pass failures on. More than 10 attempts \
                      are a warning, more than 50 an error. Without the facts `callers` and `broker_attempts` \
                      nobody can tell.",
        bad: Service("retry: standard, facts: { callers: 3, broker_attempts: 2 }"),
        fix: &[("callers: 3, broker_attempts: 2", "callers: 1, broker_attempts: 1")],
        run: Run::Rule(retry_amplification),
    },
    Lint {
        code: "no-jitter",
        severity: Severity::Warning,
        summary: "a retry policy of the book whose delays are not spread",
        explanation: "Deliveries that fail together, as they do when their target goes down, also come back \
                      together if their delays are all the same. Each wave hits the target at once and makes \
                      it fail again just when it could recover; spread evenly, the same retries are through \
                      many times sooner. Write `jitter: equal`, which keeps at least half of each delay, or \
                      leave `jitter` out: that is its default. Policies of the catalog are not looked at here.",
        bad: Policy("initial: 1s, max: 30s, retries: 5, jitter: none"),
        fix: &[("jitter: none", "jitter: equal")],
        run: Run::Book(no_jitter),
    },
    Lint {
        code: "lockstep-instances",
        severity: Severity::Warning,
        summary: "several processes retry by a policy of the catalog that has no jitter",
        explanation: "The policy comes from the catalog and has no jitter, which is well for one process that \
                      waits its turn. Here several call the same dependency: what fails for all of them at \
                      once is retried by all of them at once, after every delay again. Extend the policy and \
                      add jitter, such as `{ from: upstream, jitter: equal }`. Without the fact `instances` \
                      nobody can tell.",
        bad: Service("retry: upstream, facts: { instances: 12 }"),
        fix: &[
            ("services:", "retry_policies: { spread: { from: upstream, jitter: spread 25% } }\nservices:"),
            ("retry: upstream", "retry: spread"),
        ],
        run: Run::Rule(lockstep_instances),
    },
    Lint {
        code: "backoff-without-cap",
        severity: Severity::Warning,
        summary: "delays that grow without a `max`",
        explanation: "Each delay is a multiple of the one before, and nothing caps them: the tenth of a policy \
                      that starts at a second and doubles waits for eight minutes, the fifteenth for more \
                      than four hours, long after the target is well again. It is a warning where a delay \
                      grows beyond an hour and worth knowing before that, since one more retry is quickly \
                      added. State `max`.",
        bad: Policy("initial: 1s, retries: 15"),
        fix: &[("initial: 1s", "initial: 1s, max: 5m")],
        run: Run::Book(backoff_without_cap),
    },
    Lint {
        code: "retries-at-once",
        severity: Severity::Warning,
        summary: "retries that follow each other without any delay",
        explanation: "The delays of the policy are 0s or below 50ms, so its retries follow each other at once. A \
                      target that failed a moment ago mostly fails again, and one that is overloaded gets all its \
                      load again in an instant, from everybody. One retry at once can be right, as the first of a \
                      list of growing delays. Let the delays grow.",
        bad: Policy("delays: [0s], retries: 5"),
        fix: &[("[0s]", "[0s, 1s, 5s]")],
        run: Run::Book(retries_at_once),
    },
    Lint {
        code: "cap-at-once",
        severity: Severity::Warning,
        summary: "delays that are meant to grow and reach their `max` with the first",
        explanation: "The policy has a factor, and its first delay is already as long as any may be, so the \
                      delays never grow and the target never gets the longer rest that the factor promises. \
                      Often `initial` and `max` were confused, or a unit was. Raise `max`, shorten `initial`, \
                      or say `factor: 1` if the same delay each time is meant.",
        bad: Policy("initial: 30s, factor: 2, max: 30s, retries: 5"),
        fix: &[("initial: 30s", "initial: 1s")],
        run: Run::Book(cap_at_once),
    },
    Lint {
        code: "retries-cut-by-window",
        severity: Severity::Warning,
        summary: "more retries than the window has room for, however short the delays turn out",
        explanation: "Even if every attempt failed at once and jitter made every delay as short as it can, the \
                      window would end before the last retries. They are never made, and who reads the number \
                      believes in more patience than there is. Lengthen the window, shorten the delays, or \
                      state the number of retries that fit; `retries: unlimited` says that the window alone \
                      decides.",
        bad: Policy("initial: 10s, max: 60s, retries: 10, window: 1m"),
        fix: &[("window: 1m", "window: 15m")],
        run: Run::Book(retries_cut_by_window),
    },
    Lint {
        code: "custom-policy",
        severity: Severity::Info,
        summary: "a retry policy made from scratch instead of from the catalog",
        explanation: "The policy states all its numbers itself. That is allowed, and sometimes right; but the \
                      policies of the catalog are known by name to everybody who reads rule books, and one \
                      that extends them shows at a glance in what it differs. Name one of the catalog, or \
                      extend one with `from`, such as `{ from: patient, retries: 10 }`.",
        bad: Policy("initial: 2s, max: 60s, retries: 10, window: 15m"),
        fix: &[("initial: 2s, max: 60s, retries: 10, window: 15m", "from: patient, retries: 10")],
        run: Run::Book(custom_policy),
    },
];

fn unlimited_retries(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    if rule.deadline.is_some() {
        return;
    }
    for used in policies(rule) {
        if used.backoff().is_unlimited() && used.backoff().window().is_none() {
            let message = format!("`{}` retries without a limit, and nothing else ends it", used.policy.name);
            let help = "give the policy `retries` or a `window`, or this rule a `deadline`";
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
    // A single layer multiplies nothing, however patient it is.
    if above > 1 && product > ATTEMPTS_MANY {
        let place = most.origin.span.or(multipliers(&worst).into_iter().flatten().next().map(|at| at.span));
        let severity = if product > ATTEMPTS_TOO_MANY { Severity::Error } else { Severity::Warning };
        let attempts = if most.backoff().is_unlimited() {
            format!("attempts without a limit by `{}`, times {above} of other layers", most.policy.name)
        } else {
            let name = &most.policy.name;
            format!(
                "{own} attempts by `{name}` times {above} of other layers are {product} calls for one event"
            )
        };
        let help = "retry in one layer only: retry less here, or have the others pass failures on";
        findings.report_as(severity, place.unwrap_or(rule.row.pattern.span), attempts, help);
        return;
    }
    for facts in feeds {
        for (fact, name) in multipliers(&facts).into_iter().zip(["facts.callers", "facts.broker_attempts"]) {
            if fact.is_none() {
                findings.cannot_tell(rule.service.span, name);
            }
        }
    }
}

/// How often the layers above deliver one event here.
fn attempts_above(facts: &BrokerFacts<'_>) -> u64 {
    multipliers(facts).into_iter().flatten().map(|at| at.value).fold(1, u64::saturating_mul)
}

fn multipliers<'r>(facts: &BrokerFacts<'r>) -> [Option<&'r At<u64>>; 2] {
    [facts.get(|facts| &facts.callers), facts.get(|facts| &facts.broker_attempts)]
}

/// The book's own policies that retry, with their names and where those stand.
fn own_policies(book: &Sections) -> impl Iterator<Item = (&PolicyName, &Backoff, Span)> {
    let own = book.policies.iter().map(|(name, at)| (name, &at.value.backoff, at.span));
    own.filter(|(_, backoff, _)| backoff.retries() > 0)
}

fn no_jitter<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    for (name, backoff, span) in own_policies(book) {
        if backoff.jitter() == Jitter::None {
            let message =
                format!("the delays of `{name}` are not spread: what fails together returns together");
            findings.report(span, message, "write `jitter: equal`, or leave `jitter` out");
        }
    }
}

fn lockstep_instances(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    for used in chosen_policies(rule) {
        let is_named = used.origin.level != Level::BuiltIn;
        if !is_named || used.backoff().jitter() != Jitter::None || !is_of_the_catalog(&used) {
            continue;
        }
        match &rule.facts.instances {
            None => findings.cannot_tell(rule.service.span, "facts.instances"),
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

/// From here on a delay that nothing caps is a warning.
const DELAY_LONG: Duration = Duration::from_hours(1);

fn backoff_without_cap<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    for (name, backoff, span) in own_policies(book) {
        let grows = backoff.factor().is_some_and(|factor| factor > 1.0) && backoff.retries() > 1;
        if !grows || backoff.max() < limits::DURATION_MAX {
            continue;
        }
        // A retry beyond the window is not made, so no delay is longer than that.
        let longest = longest_delay(backoff).min(backoff.window().unwrap_or(Duration::MAX));
        let severity = if longest > DELAY_LONG { Severity::Warning } else { Severity::Info };
        let message = format!("the delays of `{name}` grow to {} without a cap", show_duration(longest));
        findings.report_as(severity, span, message, "state `max`");
    }
}

/// A shorter delay gives a target no time to recover.
const AT_ONCE: Duration = Duration::from_millis(50);
/// So many retries without a pause are a burst.
const RETRIES_IN_A_ROW: u32 = 3;

fn retries_at_once<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    for (name, backoff, span) in own_policies(book) {
        let without_delay = backoff.listed().is_some_and(|delays| delays.iter().all(Duration::is_zero));
        let hardly_any = backoff.retries() >= RETRIES_IN_A_ROW && longest_delay(backoff) < AT_ONCE;
        if without_delay {
            let message = format!("the retries of `{name}` follow each other at once");
            findings.report(span, message, "let the delays grow, such as `delays: [0s, 1s, 5s]`");
        } else if hardly_any {
            let delay = show_duration(longest_delay(backoff));
            let message = format!("the retries of `{name}` follow each other within {delay}");
            findings.report(
                span,
                message,
                "let the delays grow to seconds, such as `initial: 500ms, factor: 2`",
            );
        }
    }
}

fn cap_at_once<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    for (name, backoff, span) in own_policies(book) {
        let should_grow = backoff.factor().is_some_and(|factor| factor > 1.0) && backoff.retries() > 1;
        if should_grow && backoff.initial() >= backoff.max() {
            let delay = show_duration(backoff.initial());
            let message = format!("the delays of `{name}` start at their `max` of {delay} and never grow");
            findings.report(
                span,
                message,
                "raise `max`, shorten `initial`, or say `factor: 1` if that is meant",
            );
        }
    }
}

fn retries_cut_by_window<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    for (name, backoff, span) in own_policies(book) {
        let Some(window) = backoff.window() else { continue };
        if backoff.is_unlimited() || backoff.wait_min_total() <= window {
            continue;
        }
        let mut waited = Duration::ZERO;
        let fitting = (0..backoff.retries()).take_while(|n| {
            waited = waited.saturating_add(backoff.range(*n).0);
            waited <= window
        });
        let (fitting, retries) = (fitting.count(), backoff.retries());
        let shown = show_duration(window);
        let message = format!(
            "at most {fitting} of {} of `{name}` fit into its window of {shown}",
            counted(u64::from(retries), "retry")
        );
        let help = format!("lengthen the window, or allow {}", counted(fitting as u64, "retry"));
        findings.report(span, message, help);
    }
}

fn custom_policy<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    for (name, _, span) in own_policies(book) {
        if !extends_the_catalog(book, name) {
            let message = format!("`{name}` neither is a policy of the catalog nor extends one");
            findings.report(span, message, "name one of the catalog, or extend one with `from`");
        }
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
