//! Lints about what is told of worker processes: results that nobody hears, and workers that keep each other busy
//! for ever.

use std::collections::BTreeSet;

use super::Example::Book;
use super::{Findings, Lint, Run};
use redrive_core::book::model::{Sections, ServiceEntry, Target};
use redrive_core::book::problem::{Severity, nearest};
use redrive_core::engine::worker::LIFECYCLE;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "output-unheard",
        severity: Severity::Warning,
        summary: "an `output` whose events no service takes",
        explanation: "The results of a worker are events of the type that its `output` names, and no row of any \
                      service claims that type. Results that nobody wants are not kept, so each of them would be \
                      lost. Mostly it is a slip of the pen at one end. Claim the type in a service, or leave the \
                      `output` out.",
        bad: Book(&[
            "services:",
            "  builder: { target: { exec: [./build], output: build.result }, events: [build.wanted] }",
            "  board: { target: { log: stdout }, events: [builds.result] }",
        ]),
        fix: &[("builds.result", "build.result")],
        run: Run::Book(output_unheard),
    },
    Lint {
        code: "workers-feed-each-other",
        severity: Severity::Warning,
        summary: "workers whose results or lives start each other again and again",
        explanation: "What is told of a worker starts another one, and what is told of that starts the first one \
                      again: once an event has come, the two keep each other busy for ever. A worker that takes \
                      what is told of itself tells nothing of those runs, so that it does not feed itself; of a \
                      longer circle nobody can say where it should end. Take one of the claims out, or narrow the \
                      types that it takes.",
        bad: Book(&[
            "services:",
            "  builder: { target: { exec: [./build], output: build.result }, events: [build.wanted, check.result] }",
            "  checker: { target: { exec: [./check], output: check.result }, events: [build.result] }",
        ]),
        fix: &[
            ("build.wanted, check.result", "build.wanted"),
            ("services:", "services:\n  board: { target: { log: stdout }, events: [check.result] }"),
        ],
        run: Run::Book(workers_feed_each_other),
    },
];

/// The targets of a service that run something: its own and those of its channels.
fn programs(service: &ServiceEntry) -> impl Iterator<Item = &Target> {
    let channels = service.channels.iter().filter_map(|channel| channel.target.as_ref());
    std::iter::once(&service.target).chain(channels).filter(|target| target.endpoint.profile.run.is_some())
}

/// The event type of its results.
fn output_of(target: &Target) -> Option<&str> {
    target.endpoint.profile.run.as_ref()?.output.as_deref()
}

fn takes(service: &ServiceEntry, event_type: &str) -> bool {
    let channels = service.channels.iter().flat_map(|channel| &channel.rows);
    service.rows.iter().chain(channels).any(|row| row.pattern.value.matches(event_type))
}

fn output_unheard(book: &Sections, findings: &mut Findings<'_>) {
    for target in book.services.iter().flat_map(programs) {
        let Some(output) = output_of(target) else { continue };
        if book.services.iter().any(|service| takes(service, output)) {
            continue;
        }
        let types: Vec<&str> = book.rows().map(|(_, _, row)| row.pattern.value.as_str()).collect();
        let help = nearest(output, types).map_or_else(
            || "add it to the `events` of a service".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        findings.report(target.span, format!("no service takes `{output}`, the type of these results"), help);
    }
}

fn workers_feed_each_other(book: &Sections, findings: &mut Findings<'_>) {
    let workers: Vec<&ServiceEntry> =
        book.services.iter().filter(|service| programs(service).next().is_some()).collect();
    for (place, worker) in workers.iter().enumerate() {
        let comes_back = |event_type: &&str| leads_back(&workers, Told { of: place, event_type });
        if let Some(event_type) = outputs(worker).chain([LIFECYCLE]).find(comes_back) {
            let name = &worker.name;
            let message = format!("what follows from `{event_type}` of `{name}` starts `{name}` again");
            findings.report(worker.target.span, message, "let one of those on the way take fewer types");
        }
    }
}

/// An event that tells of a worker, by its place among all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Told<'a> {
    of: usize,
    event_type: &'a str,
}

fn outputs(worker: &ServiceEntry) -> impl Iterator<Item = &str> {
    programs(worker).filter_map(output_of)
}

/// What is told of the runs that such an event starts. Of a worker that it tells of itself nothing is, and nothing
/// of the life of a run that a life has started.
fn next<'a>(workers: &[&'a ServiceEntry], told: Told<'a>) -> Vec<Told<'a>> {
    let started = workers.iter().enumerate().filter(|(place, _)| *place != told.of);
    let started = started.filter(|(_, worker)| takes(worker, told.event_type));
    let lives = (told.event_type != LIFECYCLE).then_some(LIFECYCLE);
    let emitted = started
        .flat_map(|(of, worker)| outputs(worker).chain(lives).map(move |event_type| Told { of, event_type }));
    emitted.collect()
}

fn leads_back<'a>(workers: &[&'a ServiceEntry], from: Told<'a>) -> bool {
    let (mut seen, mut to_ask) = (BTreeSet::new(), vec![from]);
    while let Some(told) = to_ask.pop() {
        for next in next(workers, told) {
            if next == from {
                return true;
            }
            if seen.insert(next) {
                to_ask.push(next);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::lint::check;
    use redrive_core::book::connectors::built_in;

    #[test]
    fn a_circle_is_found_and_nothing_else() {
        let worker = |name: &str, output: &str, events: &str| {
            format!("  {name}: {{ target: {{ exec: [x], output: {output} }}, events: [{events}] }}\n")
        };
        #[rustfmt::skip]
        let cases = [
            ("a chain",                  vec![("a", "r.a", "t.x"), ("b", "r.b", "r.a")],                            0),
            ("one that takes its own",   vec![("a", "r.a", "t.x, r.a")],                                            0),
            ("two",                      vec![("a", "r.a", "t.x, r.b"), ("b", "r.b", "r.a")],                       2),
            ("three",                    vec![("a", "r.a", "r.c"), ("b", "r.b", "r.a"), ("c", "r.c", "r.b")],       3),
            ("lives of lives",           vec![("a", "r.a", "t.x, worker.lifecycle"), ("b", "r.b", "worker.lifecycle")], 0),
            ("over a life",              vec![("a", "r.a", "worker.lifecycle"), ("b", "r.b", "r.a")],               2),
            ("one that takes all",       vec![("a", "r.a", "t.x"), ("b", "r.b", "\"*\"")],                              0),
            ("two that take all",        vec![("a", "r.a", "\"*\""), ("b", "r.b", "\"*\"")],                                2),
        ];
        for (name, workers, count) in cases {
            let services: String =
                workers.iter().map(|(name, output, events)| worker(name, output, events)).collect();
            let text = format!("version: 1\nservices:\n{services}");
            let problems = check(text.as_bytes(), built_in()).problems;
            let found = problems.iter().filter(|problem| problem.code == "workers-feed-each-other").count();
            assert_eq!(found, count, "{name}: {problems:?}");
        }
    }
}
