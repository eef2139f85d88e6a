//! Lints that hold retry policies against how much depends on a delivery and whether it may be lost.

use super::Example::Book;
use super::classification::usual_category;
use super::worst_case::chosen_policies;
use super::{Findings, Lint, Run};
use redrive_core::book::model::{Criticality, DataLoss, Layer, ReactionName, Sections};
use redrive_core::book::problem::{Severity, Span};
use redrive_core::book::resolve::{Known, Level, Origin, Resolved};
use redrive_core::book::words::Word;
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::{FailureMatch, StatusRange};
use redrive_core::text::show_duration;
use std::time::Duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "one-policy-for-all",
        severity: Severity::Warning,
        summary: "events of high and of low criticality are retried by the same policy",
        explanation: "The service says of some events that much depends on them and of others that little \
                      does, and then treats them all alike. The important ones are given up too soon, or the \
                      others keep a struggling target busy for longer than they are worth. Choose a policy \
                      for each criticality: `critical` or `patient` for what matters, `aggressive` or `none` \
                      for what does not.",
        bad: Book(&[
            "services:",
            "  mail:",
            r#"    target: { http: "http://127.0.0.1:9000" }"#,
            "    events: [{ type: order.paid, criticality: critical }, { type: page.seen, criticality: low }]",
        ]),
        fix: &[("criticality: critical", "criticality: critical, retry: critical")],
        run: Run::Book(one_policy_for_all),
    },
    Lint {
        code: "critical-under-retried",
        severity: Severity::Warning,
        summary: "a delivery that matters is given up after fewer than 3 retries",
        explanation: "The row says that much depends on these events or that none may be lost, and yet a short \
                      disturbance of the target is enough to make dead letters of them, which wait for a \
                      person. Let them be retried by a policy that outlasts a restart or a failover, such as \
                      `critical`, or let the service pause on failures.",
        bad: Book(&[
            r#"services: { mail: { target: { http: "http://127.0.0.1:9/" }, events: [{ type: order.paid, criticality: critical, retry: none }] } }"#,
        ]),
        fix: &[("retry: none", "retry: critical")],
        run: Run::Rule(critical_under_retried),
    },
    Lint {
        code: "low-over-retried",
        severity: Severity::Info,
        summary: "a delivery of low criticality is retried more than 10 times or for over 30 minutes",
        explanation: "Little depends on these events, and still they are retried as if much did. In an outage \
                      they fill the backlog and use the permits that others need, and when they are \
                      delivered at last they are of little use. A shorter policy, such as `standard` or \
                      `aggressive`, serves them and everybody else better.",
        bad: Book(&[
            r#"services: { mail: { target: { http: "http://127.0.0.1:9/" }, events: [{ type: page.seen, criticality: low, retry: critical }] } }"#,
        ]),
        fix: &[("retry: critical", "retry: standard")],
        run: Run::Rule(low_over_retried),
    },
];

/// A delivery that matters gets at least so many retries.
const RETRIES_FEW: u32 = 3;
/// One that does not gets at most so many.
const RETRIES_MANY: u32 = 10;
/// Or for so long.
const WINDOW_LONG: Duration = Duration::from_mins(30);

fn one_policy_for_all<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    for service in &book.services {
        let own = service.rows.iter().map(|row| (None, &**row));
        let channels = service.channels.iter();
        let of_channels =
            channels.flat_map(|channel| channel.rows.iter().map(move |row| (Some(channel), &**row)));
        let mut same: Option<Option<&ReactionName>> = None;
        let (mut lowest, mut highest) = (None, None);
        let mut differ = false;
        for (channel, row) in own.chain(of_channels) {
            let levels = book.levels_of(service, channel, row);
            let levels = || levels.iter().map(|(_, layer)| *layer);
            let retry = levels().find_map(transient_reaction);
            differ |= *same.get_or_insert(retry) != retry;
            if let Some(criticality) = levels().find_map(|layer| layer.criticality.as_ref()) {
                let criticality = criticality.value;
                lowest = Some(lowest.map_or(criticality, |lowest: Criticality| lowest.min(criticality)));
                highest = highest.max(Some(criticality));
            }
        }
        let (Some(lowest), Some(highest)) = (lowest, highest) else { continue };
        if differ || lowest >= Criticality::High || highest < Criticality::High {
            continue;
        }
        let policy = match same.flatten() {
            Some(ReactionName::Policy(name)) => name.as_str(),
            Some(ReactionName::Pause) => continue,
            Some(ReactionName::DeadLetter) => "dead-letter",
            None => "standard",
        };
        let (lowest, highest) = (lowest.as_word(), highest.as_word());
        let message = format!("events of {lowest} and of {highest} criticality all follow `{policy}`");
        let help = "state `retry` for the rows that matter more, or for those that matter less";
        let around = [&book.defaults, &service.layer];
        findings.within_all(around, |findings| findings.report(service.span, message, help));
    }
}

fn transient_reaction(layer: &Layer) -> Option<&ReactionName> {
    let transient = FailureMatch::Category(Category::Transient);
    layer.reactions.iter().find(|(kind, _)| *kind == transient).map(|(_, at)| &at.value)
}

fn critical_under_retried(rule: &Resolved<'_>, findings: &mut Findings<'_>) {
    let matters = rule.criticality.as_ref().filter(|known| known.value >= Criticality::High);
    let lossless = rule.data_loss.as_ref().filter(|known| known.value == DataLoss::NotAcceptable);
    let (why, said) = match (lossless, matters) {
        (Some(known), _) => ("data loss is not acceptable", known.origin),
        (None, Some(known)) if known.value == Criticality::Critical => {
            ("criticality is critical", known.origin)
        }
        (None, Some(known)) => ("criticality is high", known.origin),
        (None, None) => return,
    };
    for (n, (kind, reaction)) in rule.reactions.iter().enumerate() {
        let what = match kind {
            FailureMatch::Category(Category::Transient) => "a transient failure".to_owned(),
            FailureMatch::Category(_) => continue,
            FailureMatch::Status(range) => match first_transient(&rule.reactions[..n], *range) {
                Some(status) => format!("status {status}, which is transient,"),
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
            let count = match retries {
                0 => "no retry".to_owned(),
                1 => "1 retry".to_owned(),
                more => format!("{more} retries"),
            };
            let message = format!("{why} here, and `{policy}` gives {what} {count}");
            let place = more_specific(rule, reaction.origin, said);
            findings.report(place, message, "choose a policy with more patience, such as `critical`");
        }
    }
}

/// The first status of a range that is usually transient and that no reaction before it takes away.
fn first_transient(before: &[(FailureMatch, Known<ReactionName>)], range: StatusRange) -> Option<u16> {
    let is_taken = |status: u16| {
        before.iter().any(|(kind, _)| matches!(kind, FailureMatch::Status(range) if range.contains(status)))
    };
    (range.first..=range.last)
        .find(|status| usual_category(*status) == Some(Category::Transient) && !is_taken(*status))
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
            let message = format!("criticality is low here, and `{}` retries {extent}", used.policy.name);
            let place = more_specific(rule, used.origin, low.origin);
            findings.report(place, message, "choose a shorter policy, such as `standard`");
        }
    }
}

/// The place of the value that is said nearer to the row: what disagrees with it holds for others too.
fn more_specific(rule: &Resolved<'_>, policy: Origin, said: Origin) -> Span {
    let nearer = if policy.level <= said.level && policy.level != Level::BuiltIn { policy } else { said };
    rule.place(nearer)
}
