//! Lints about the limits of waiting deliveries.

use super::ExampleBook::Service;
use super::{Findings, Lint, LintScope};
use redrive_core::book::problem::ProblemSeverity;
use redrive_core::book::resolve::{Resolved, RuleLevel};
use redrive_core::text::{Rate, show_duration};

pub(super) const LINTS: &[Lint] = &[Lint {
    code: "full-before-probe",
    severity: ProblemSeverity::Warning,
    summary: "`waiting.events` is reached before the open breaker sends its first probe",
    explanation: "While a breaker is open, deliveries wait. If more arrive in that time than may wait, the rest is refused \
                  or becomes dead letters: senders notice every short outage. The check uses `facts.rate` and one open \
                  period; a real outage lasts longer. Let more events wait, or shorten the open time.",
    bad: Service("waiting: { events: 1000 }, facts: { rate: 50/s }"),
    fix: &[("events: 1000", "events: 1000000")],
    scope: LintScope::Row(full_before_probe),
}];

fn full_before_probe(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    let events = &resolved.waiting.events;
    let place = resolved.place(events.origin);
    let Some(rate) = own_rate(resolved, findings) else {
        // Few authors know their rates; the built-in bound alone is no reason to ask for one.
        if events.origin.level != RuleLevel::BuiltIn {
            findings.skip(place, "facts.rate");
        }
        return;
    };
    let open = breaker.settings.open();
    let arriving = (rate.as_per_second() * open.as_secs_f64()).ceil();
    if arriving > events.value as f64 {
        let (most, open) = (events.value, show_duration(open));
        let message =
            format!("{most} events may wait, and {arriving} arrive in the {open} that the breaker is open");
        findings.report(place, message, format!("allow many times {arriving}, as far as the disk permits"));
    }
}

/// The events per second of the service. A rate of the dependency is that of all its callers: the share of this
/// service is unknown.
fn own_rate(resolved: &Resolved<'_>, findings: &Findings<'_>) -> Option<Rate> {
    let levels = findings.book().levels_of(resolved.service, resolved.channel, resolved.row);
    let stated =
        levels.into_iter().find_map(|(level, layer)| Some((level, layer.facts.rate.as_ref()?.value)));
    stated.filter(|(level, _)| *level != RuleLevel::Dependency).map(|(_, rate)| rate)
}

#[cfg(test)]
mod tests {
    use super::LINTS;
    use crate::lint::tests::{found, skipped};

    #[test]
    fn what_comes_while_a_breaker_is_open_must_find_room() {
        let book = |defaults: &str, service: &str| {
            format!(
                "version: 1\ndefaults: {{ {defaults} }}\ndependencies:\n  d: {{ kind: webhook, facts: {{ rate: 900/s }} }}\n\
                 services:\n  s: {{ target: {{ http: \"http://127.0.0.1:9000\" }}, events: [a, b], {service} }}\n"
            )
        };
        let rate = "facts: { rate: 50/s }";
        #[rustfmt::skip]
        let cases = [
            ("a minute's worth of events",   book("", &format!("waiting: {{ events: 3000 }}, {rate}")), vec![], vec![]),
            ("one less",                     book("", &format!("waiting: {{ events: 2999 }}, {rate}")), vec!["6:86 full-before-probe"], vec![]),
            ("the defaults' room",           book("waiting: { events: 2999 }", rate),   vec!["2:32 full-before-probe"], vec![]),
            ("what is built in",             book("", "facts: { rate: 400000/s }"),     vec!["6:60 full-before-probe", "6:63 full-before-probe"], vec![]),
            ("a breaker that opens briefly", book("", &format!("waiting: {{ events: 2999 }}, breaker: sidecarBreaker, {rate}")), vec![], vec![]),
            ("no breaker",                   book("", &format!("waiting: {{ events: 1 }}, breaker: none, {rate}")), vec![], vec![]),
            ("how many come?",               book("", "waiting: { events: 10 }"),       vec![], vec!["6:86 full-before-probe facts.rate"]),
            ("how many of all of them?",     book("", "waiting: { events: 10 }, depends_on: d"), vec![], vec!["6:86 full-before-probe facts.rate"]),
            ("the built-in bound",           book("", "timeout: 5s"),                   vec![], vec![]),
        ];
        for (name, book, findings, unknown) in cases {
            assert_eq!(found(&book, LINTS), findings, "{name}");
            assert_eq!(skipped(&book, LINTS), unknown, "{name}");
        }
    }
}
