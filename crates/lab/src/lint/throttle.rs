//! Lints about throttles that are too low for the declared traffic.

use super::ExampleBook::With;
use super::callers::DependencyCallers;
use super::{Findings, Lint, LintScope};
use redrive_core::book::problem::ProblemSeverity;
use redrive_core::limits;
use redrive_core::text::Rate;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "in-flight-too-low",
        severity: ProblemSeverity::Warning,
        summary: "fewer calls in flight than the traffic needs",
        explanation: "By Little's law, rate × duration calls are in flight at once. If fewer are allowed, deliveries wait \
                      for a permit although the dependency is healthy, and the queue grows whenever calls are slow. \
                      Allow about twice `facts.rate` × `facts.p99`. Skipped without these facts.",
        bad: With(
            &["dependencies: { crm: { kind: webhook, in_flight: 4, facts: { rate: 50/s, p99: 400ms } } }"],
            "depends_on: crm",
        ),
        fix: &[("in_flight: 4", "in_flight: 40")],
        scope: LintScope::Dependency(in_flight_too_low),
    },
    Lint {
        code: "rate-below-traffic",
        severity: ProblemSeverity::Error,
        summary: "a rate limit below the incoming rate",
        explanation: "More deliveries arrive than may start, so the backlog grows until deliveries are refused or become \
                      dead letters. Raise the limit, send fewer events, or correct `facts.rate`, which is the sustained \
                      rate, not the peak. The rate of a service that calls several dependencies counts for none of \
                      them: state it at the dependency.",
        bad: With(
            &["dependencies: { crm: { kind: webhook, rate: 20/s, facts: { rate: 50/s } } }"],
            "depends_on: crm",
        ),
        fix: &[("rate: 20/s", "rate: 100/s")],
        scope: LintScope::Dependency(rate_below_traffic),
    },
];

fn in_flight_too_low<'a>(of: &DependencyCallers<'_, 'a>, findings: &mut Findings<'a>) {
    let first = of.rows[0];
    let findings = findings.at_row(first);
    let stated = first.in_flight.origin.span;
    let place = stated.unwrap_or_else(|| of.guard());
    // The default of a program depends on the machine.
    let in_flight =
        f64::from(if stated.is_some() { first.in_flight.value } else { limits::IN_FLIGHT_DEFAULT });
    // The shortest of all callers, so that a finding holds for each of them.
    let p99 = of.rows.iter().map(|row| Some(row.facts.p99.as_ref()?.value.as_secs_f64()));
    let Some(p99) = p99.reduce(|one, other| Some(one?.min(other?))).flatten() else {
        return findings.skip(place, "facts.p99");
    };
    let needed = of.traffic.at_least * p99;
    if needed > in_flight {
        let (name, shown) = (of.name, needed.ceil());
        let message = format!("`{name}` needs about {shown} calls in flight, and {in_flight} are allowed");
        findings.report(place, message, format!("allow about {} in flight", (needed * 2.0).ceil()));
    } else if of.traffic.at_most.is_none_or(|rate| rate * p99 > in_flight) {
        findings.skip(place, "facts.rate");
    }
}

fn rate_below_traffic<'a>(of: &DependencyCallers<'_, 'a>, findings: &mut Findings<'a>) {
    let Some(limit) = &of.rows[0].rate else { return };
    let Some(place) = limit.origin.span else { return };
    let (findings, most) = (findings.at_row(of.rows[0]), limit.value.as_per_second());
    let traffic = Rate::per_second(of.traffic.at_least);
    if let Some(rate) = traffic.filter(|rate| rate.as_per_second() > most) {
        let (name, limit) = (of.name, limit.value);
        let message =
            format!("{rate} deliveries arrive for `{name}`, and {limit} may start: the backlog grows");
        findings.report(place, message, format!("allow more than {rate}, or send fewer events"));
    } else if of.traffic.at_most.is_none_or(|rate| rate > most) {
        findings.skip(place, "facts.rate");
    }
}

#[cfg(test)]
mod tests {
    use crate::lint::check;
    use redrive_core::book::connectors::built_in;

    #[test]
    fn limits_are_held_against_the_traffic_that_is_certainly_theirs() {
        let book = |dependency: &str, a: &str, b: &str| {
            let target = "target: { http: \"http://127.0.0.1:9000\" }";
            format!(
                "version: 1\nthrottles:\n  t: {{ rate: 10/s, in_flight: 2 }}\n\
                 dependencies:\n  d: {{ kind: webhook{dependency} }}\n\
                 services:\n  a: {{ {target}, depends_on: d, {a} }}\n  b: {{ {target}, {b} }}\n"
            )
        };
        let elsewhere = "events: [x.y], facts: { rate: 1/s, p99: 1s }";
        let twice = "depends_on: d, events: [x.y], facts: { rate: 6/s, p99: 100ms }";
        let half = "events: [x.y], facts: { rate: 6/s, p99: 100ms }";
        let split = "events: [x.y, { type: x.z, depends_on: other }], facts: { rate: 50/s, p99: 1s }";
        #[rustfmt::skip]
        let cases = [
            ("below its limit",                book(", rate: 10/s", half, elsewhere), vec![]),
            ("two callers add up",             book(", rate: 10/s", half, twice), vec!["error rate-below-traffic 5:29"]),
            ("the throttle's limits",          book(", throttle: t", "events: [x.y], facts: { rate: 50/s, p99: 1s }", elsewhere),
                vec!["error rate-below-traffic 3:14", "warning in-flight-too-low 3:31"]),
            ("the shares are unknown",         book(", rate: 10/s, in_flight: 8", split, elsewhere).replace("services:", "  other: { kind: webhook, in_flight: 100 }\nservices:"),
                vec!["skipped rate-below-traffic facts.rate 5:29", "skipped in-flight-too-low facts.rate 5:46"]),
            ("no limit, and 64 in flight",     book("", "events: [x.y], facts: { rate: 100/s, p99: 1s }", elsewhere), vec!["warning in-flight-too-low 5:3"]),
            ("how long do calls take?",        book(", in_flight: 8, facts: { rate: 1/s }", "events: [x.y]", elsewhere), vec!["skipped in-flight-too-low facts.p99 5:34"]),
        ];
        for (name, book, expected) in cases {
            let ours = |code: &str| super::LINTS.iter().any(|lint| lint.code == code);
            let checked = check(book.as_bytes(), built_in());
            assert!(checked.book.is_some(), "{name}: {:?}", checked.problems);
            let problems = checked.problems.iter().filter(|problem| ours(problem.code));
            let problems = problems.map(|p| format!("{} {} {}", p.severity, p.code, p.span.position));
            let skipped = checked.skipped.iter().filter(|skipped| ours(skipped.lint));
            let skipped = skipped.map(|u| format!("skipped {} {} {}", u.lint, u.fact, u.span.position));
            let mut found: Vec<_> = problems.chain(skipped).collect();
            found.sort_unstable();
            let mut expected = expected;
            expected.sort_unstable();
            assert_eq!(found, expected, "{name}");
        }
    }
}
