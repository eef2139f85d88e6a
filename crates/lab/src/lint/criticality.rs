//! Lints that compare retry policies with the declared criticality and tolerance for data loss.

use super::ExampleBook::Book;
use super::classification::{first_status, usual_category};
use super::worst_case::chosen_policies;
use super::{Findings, Lint, LintScope};
use redrive_core::book::keywords::Keyword;
use redrive_core::book::model::{Criticality, DataLoss, ReactionName};
use redrive_core::book::problem::{BookSpan, ProblemSeverity};
use redrive_core::book::resolve::{Resolved, RuleLevel, ValueOrigin};
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::FailureMatch;
use redrive_core::text::{counted, show_duration};
use std::time::Duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "one-policy-for-all",
        severity: ProblemSeverity::Warning,
        summary: "one retry policy for events of high and low criticality",
        explanation: "The service declares different criticalities and retries all events alike. Important events are \
                      given up too soon, or unimportant ones load a struggling target for too long. Choose a policy \
                      for each: `critical` or `patient` for high, `aggressive` or `none` for low criticality.",
        bad: Book(&[
            "services:",
            "  mail:",
            r#"    target: { http: "http://127.0.0.1:9000" }"#,
            "    events: [{ type: order.paid, criticality: critical }, { type: page.seen, criticality: low }]",
        ]),
        fix: &[("criticality: critical", "criticality: critical, retry: critical")],
        scope: LintScope::Rows(one_policy_for_all),
    },
    Lint {
        code: "critical-under-retried",
        severity: ProblemSeverity::Warning,
        summary: "a critical delivery with fewer than 3 retries",
        explanation: "The row is critical or must not lose events, but a short disturbance of the target makes dead \
                      letters of them, which need a person. Use a policy that outlasts a restart or a failover, such \
                      as `critical`, or let the service pause on failures.",
        bad: Book(&[
            r#"services: { mail: { target: { http: "http://127.0.0.1:9/" }, events: [{ type: order.paid, criticality: critical, retry: none }] } }"#,
        ]),
        fix: &[("retry: none", "retry: critical")],
        scope: LintScope::Row(critical_under_retried),
    },
    Lint {
        code: "low-over-retried",
        severity: ProblemSeverity::Info,
        summary: "a delivery of low criticality with more than 10 retries or a window over 30 minutes",
        explanation: "In an outage such deliveries fill the backlog and use permits that others need, and they arrive \
                      too late to be of use. A shorter policy, such as `standard` or `aggressive`, is enough for \
                      events of low criticality.",
        bad: Book(&[
            r#"services: { mail: { target: { http: "http://127.0.0.1:9/" }, events: [{ type: page.seen, criticality: low, retry: critical }] } }"#,
        ]),
        fix: &[("retry: critical", "retry: standard")],
        scope: LintScope::Row(low_over_retried),
    },
];

/// A critical delivery needs at least so many retries.
const RETRIES_FEW: u32 = 3;
/// One of low criticality needs at most so many.
const RETRIES_MANY: u32 = 10;
const WINDOW_LONG: Duration = Duration::from_mins(30);

fn one_policy_for_all<'a>(rows: &[Resolved<'a>], findings: &mut Findings<'a>) {
    for rows in rows.chunk_by(|one, other| one.service.span == other.service.span) {
        // A stated `standard` is a choice, the built-in one is not.
        let retry = |row: &Resolved<'_>| {
            let known = row.reaction_to(Category::Transient);
            (known.value.clone(), known.origin.span.is_some())
        };
        let stated = rows.iter().filter_map(|row| Some(row.criticality.as_ref()?.value));
        let (Some(lowest), Some(highest)) = (stated.clone().min(), stated.max()) else { continue };
        let differ = rows.iter().any(|row| retry(row) != retry(&rows[0]));
        if differ || lowest >= Criticality::High || highest < Criticality::High {
            continue;
        }
        let policy = match &rows[0].reaction_to(Category::Transient).value {
            ReactionName::Policy(name) => name.as_str(),
            ReactionName::Pause => continue,
            ReactionName::DeadLetter => "dead-letter",
        };
        let (lowest, highest) = (lowest.as_word(), highest.as_word());
        let message = format!("events of {lowest} and {highest} criticality are all retried by `{policy}`");
        let service = rows[0].service;
        findings.within([&findings.book().defaults, &service.layer], |findings| {
            findings.report(
                service.span,
                message,
                "state `retry` for the rows that are more or less critical",
            );
        });
    }
}

fn critical_under_retried(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let matters = rule.criticality.as_ref().filter(|known| known.value >= Criticality::High);
    let lossless = rule.data_loss.as_ref().filter(|known| known.value == DataLoss::NotAcceptable);
    let (reason, stated) = match (lossless, matters) {
        (Some(known), _) => ("data loss is not acceptable".to_owned(), known.origin),
        (None, Some(known)) => (format!("criticality is {}", known.value.as_word()), known.origin),
        (None, None) => return,
    };
    for (n, (kind, reaction)) in rule.reactions.iter().enumerate() {
        let is_transient = |status| usual_category(status) == Some(Category::Transient);
        let what = match kind {
            FailureMatch::Category(Category::Transient) => "a transient failure".to_owned(),
            FailureMatch::Category(_) => continue,
            FailureMatch::Status(range) => match first_status(&rule.reactions[..n], *range, is_transient) {
                Some(status) => format!("the transient status {status}"),
                None => continue,
            },
        };
        let (retries, policy) = match &reaction.value {
            ReactionName::Pause => continue,
            ReactionName::DeadLetter => (0, "dead-letter"),
            ReactionName::Policy(name) => {
                let policy = rule.rule.reactions.policy(name);
                (policy.map_or(0, |policy| policy.backoff.retries()), name.as_str())
            }
        };
        if retries < RETRIES_FEW {
            let count = counted(u64::from(retries), "retry");
            let message = format!("{reason}, and `{policy}` gives {what} {count}");
            let place = more_specific(rule, reaction.origin, stated);
            findings.report(place, message, "use a policy with more retries, such as `critical`");
        }
    }
}

fn low_over_retried(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(low) = rule.criticality.as_ref().filter(|known| known.value == Criticality::Low) else { return };
    for used in chosen_policies(rule) {
        let (retries, window) = (used.backoff().retries(), used.backoff().window());
        if retries > RETRIES_MANY || window.is_some_and(|window| window > WINDOW_LONG) {
            let extent = match window {
                Some(window) => format!("for up to {}", show_duration(window)),
                None if used.backoff().is_unlimited() => "without a limit".to_owned(),
                None => format!("{retries} times"),
            };
            let message = format!("criticality is low, and `{}` retries {extent}", used.policy.name);
            let place = more_specific(rule, used.origin, low.origin);
            findings.report(place, message, "use a shorter policy, such as `standard`");
        }
    }
}

/// The place of the value that is stated nearer to the row: the other one applies to more rows.
fn more_specific(rule: &Resolved<'_>, policy: ValueOrigin, stated: ValueOrigin) -> BookSpan {
    let is_policy = policy.level <= stated.level && policy.level != RuleLevel::BuiltIn;
    rule.place(if is_policy { policy } else { stated })
}
