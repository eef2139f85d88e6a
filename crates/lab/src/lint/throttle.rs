//! Lints about throttles: limits that the declared traffic cannot live with.

use super::Example::With;
use super::callers::{Caller, Dependencies};
use super::{Findings, Lint, Run};
use redrive_core::book::model::Sections;
use redrive_core::book::problem::Severity;
use redrive_core::limits;
use redrive_core::text::Rate;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "in-flight-too-low",
        severity: Severity::Warning,
        summary: "fewer calls in flight than the traffic needs",
        explanation: "At a rate of calls that each take a time, rate times time are under way at once (Little's \
                      law). If fewer may be in flight, deliveries wait for a permit though the dependency is \
                      well, and the queue grows whenever calls are slow. The lint reckons with `facts.rate` and \
                      `facts.p99`, so that slow moments are covered. Allow more in flight, about twice what comes \
                      out, or make the calls quicker.",
        bad: With(
            &["dependencies: { crm: { kind: webhook, in_flight: 4, facts: { rate: 50/s, p99: 400ms } } }"],
            "depends_on: crm",
        ),
        fix: &[("in_flight: 4", "in_flight: 40")],
        run: Run::Book(in_flight_too_low),
    },
    Lint {
        code: "rate-below-traffic",
        severity: Severity::Error,
        summary: "a rate limit below the rate at which deliveries come",
        explanation: "If more deliveries come than may start, the rest waits, and tomorrow there are more of them: \
                      the backlog grows for ever, until it is refused or dead-lettered. No setting but these two \
                      can mend that. Raise the limit, if the dependency allows it, send it fewer events, or \
                      correct `facts.rate`, which means the lasting rate and not the peak. Traffic that a service \
                      shares out among several dependencies counts for none of them: state it at the dependency.",
        bad: With(
            &["dependencies: { crm: { kind: webhook, rate: 20/s, facts: { rate: 50/s } } }"],
            "depends_on: crm",
        ),
        fix: &[("rate: 20/s", "rate: 100/s")],
        run: Run::Book(rate_below_traffic),
    },
];

fn in_flight_too_low<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    let dependencies = Dependencies::of(book);
    for (name, callers) in dependencies.iter() {
        let Some(caller) = callers.first() else { continue };
        let in_flight = caller.permits().in_flight;
        let place = in_flight.as_ref().map_or_else(|| caller.guard(), |at| at.span);
        let in_flight = f64::from(in_flight.map_or(limits::IN_FLIGHT_DEFAULT, |at| at.value));
        // The quickest of the callers, so that what is found is found whoever calls.
        let p99 = callers.iter().map(p99_seconds).try_fold(f64::INFINITY, |least, p99| Some(least.min(p99?)));
        let traffic = dependencies.traffic(callers);
        let Some(p99) = p99 else {
            caller.within(findings, |findings| findings.cannot_tell(place, "facts.p99"));
            continue;
        };
        let needed = traffic.at_least * p99;
        if needed > in_flight {
            let message = format!(
                "`{name}` has about {} calls under way at its rate and p99, and {in_flight} may be",
                needed.ceil()
            );
            let help = format!("allow about {} in flight", (needed * 2.0).ceil());
            caller.within(findings, |findings| findings.report(place, message, help));
        } else if traffic.at_most.is_none_or(|rate| rate * p99 > in_flight) {
            caller.within(findings, |findings| findings.cannot_tell(place, "facts.rate"));
        }
    }
}

fn p99_seconds(caller: &Caller<'_>) -> Option<f64> {
    caller.find(|layer| layer.facts.p99.as_ref()).map(|at| at.value.as_secs_f64())
}

fn rate_below_traffic<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    let dependencies = Dependencies::of(book);
    for (name, callers) in dependencies.iter() {
        let Some(caller) = callers.first() else { continue };
        let Some(limit) = caller.permits().rate else { continue };
        let most = limit.value.as_per_second();
        let traffic = dependencies.traffic(callers);
        if let Some(rate) = Rate::per_second(traffic.at_least).filter(|rate| rate.as_per_second() > most) {
            let message = format!(
                "{rate} deliveries come for `{name}` and {} may start: the backlog grows for ever",
                limit.value
            );
            let help = format!("allow more than {rate}, or send it less");
            caller.within(findings, |findings| findings.report(limit.span, message, help));
        } else if traffic.at_most.is_none_or(|rate| rate > most) {
            caller.within(findings, |findings| findings.cannot_tell(limit.span, "facts.rate"));
        }
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
            ("nobody knows how it is shared",  book(", rate: 10/s, in_flight: 8", split, elsewhere).replace("services:", "  other: { kind: webhook, in_flight: 100 }\nservices:"),
                vec!["untold rate-below-traffic facts.rate 5:29", "untold in-flight-too-low facts.rate 5:46"]),
            ("no limit, and 64 in flight",     book("", "events: [x.y], facts: { rate: 100/s, p99: 1s }", elsewhere), vec!["warning in-flight-too-low 5:3"]),
            ("how long do calls take?",        book(", in_flight: 8, facts: { rate: 1/s }", "events: [x.y]", elsewhere), vec!["untold in-flight-too-low facts.p99 5:34"]),
        ];
        for (name, book, expected) in cases {
            let ours = |code: &str| super::LINTS.iter().any(|lint| lint.code == code);
            let checked = check(book.as_bytes(), built_in());
            assert!(checked.book.is_some(), "{name}: {:?}", checked.problems);
            let problems = checked.problems.iter().filter(|problem| ours(problem.code));
            let problems = problems.map(|p| format!("{} {} {}", p.severity, p.code, p.span.position));
            let untold = checked.untold.iter().filter(|untold| ours(untold.lint));
            let untold = untold.map(|u| format!("untold {} {} {}", u.lint, u.fact, u.span.position));
            let mut found: Vec<_> = problems.chain(untold).collect();
            found.sort_unstable();
            let mut expected = expected;
            expected.sort_unstable();
            assert_eq!(found, expected, "{name}");
        }
    }
}
