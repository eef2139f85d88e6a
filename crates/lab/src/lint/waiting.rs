//! Lints about waiting rooms: whether there is room for what comes while a dependency is down.

use super::Example::Service;
use super::{Findings, Lint, Run};
use redrive_core::book::problem::Severity;
use redrive_core::book::resolve::{Level, Resolved};
use redrive_core::text::{Rate, show_duration};

pub(super) const LINTS: &[Lint] = &[Lint {
    code: "full-before-probe",
    severity: Severity::Warning,
    summary: "a service is full before its breaker lets the first probe through",
    explanation: "While a breaker is open, deliveries wait. If more events come in that time than may wait for \
                  the service, the rest is refused or becomes dead letters, though the dependency may be well \
                  again by the time somebody asks it: every short outage is felt by the senders. The lint \
                  reckons with `facts.rate` and one time of being open; a real outage lasts longer. Let more \
                  events wait, or open the breaker for a shorter time.",
    bad: Service("waiting: { events: 1000 }, facts: { rate: 50/s }"),
    fix: &[("events: 1000", "events: 1000000")],
    run: Run::Rule(full_before_probe),
}];

fn full_before_probe(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Some(breaker) = &resolved.rule.breaker else { return };
    let events = &resolved.waiting.events;
    let place = resolved.place(events.origin);
    let Some(rate) = own_rate(resolved, findings) else {
        // Few book owners know their rates; whoever chose a bound had one in mind.
        if events.origin.level != Level::BuiltIn {
            findings.cannot_tell(place, "facts.rate");
        }
        return;
    };
    let open = breaker.settings.open();
    let come = rate.as_per_second() * open.as_secs_f64();
    if come > events.value as f64 {
        let message = format!(
            "{} events may wait, and {} come in the {} that the breaker is open",
            events.value,
            come.ceil(),
            show_duration(open)
        );
        let help = format!("let many times {} wait, as long as there is disk for them", come.ceil());
        findings.report(place, message, help);
    }
}

/// How many events come for the service at least. What is stated for a dependency is the rate of all
/// who call it, of which nobody knows the service's part.
fn own_rate(resolved: &Resolved<'_>, findings: &Findings<'_>) -> Option<Rate> {
    let levels = findings.book().levels_of(resolved.service, resolved.channel, resolved.row);
    let stated =
        levels.into_iter().find_map(|(level, layer)| Some((level, layer.facts.rate.as_ref()?.value)));
    match stated {
        Some((Level::Dependency, _)) | None => None,
        Some((_, rate)) => Some(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::LINTS;
    use crate::lint::tests::{found, untold};

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
            ("nobody chose a bound",         book("", "timeout: 5s"),                   vec![], vec![]),
        ];
        for (name, book, findings, unknown) in cases {
            assert_eq!(found(&book, LINTS), findings, "{name}");
            assert_eq!(untold(&book, LINTS), unknown, "{name}");
        }
    }
}
