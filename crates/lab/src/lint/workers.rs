//! Lints about the events of worker processes: outputs that no service receives, and workers that start each other
//! endlessly.

use std::collections::BTreeSet;

use super::ExampleBook::Book;
use super::hygiene::suggest_row;
use super::{Findings, Lint, LintScope};
use redrive_core::book::model::{Sections, ServiceEntry, TargetEntry};
use redrive_core::book::problem::ProblemSeverity;
use redrive_core::engine::worker::LIFECYCLE;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "output-unheard",
        severity: ProblemSeverity::Warning,
        summary: "an `output` type that no service receives",
        explanation: "The results of a worker are events of the type in `output`, and it matches no row of a service. Unrouted \
                      results are not stored, so they are lost. Usually one side has a typo. Add the type to the `events` of \
                      a service, or remove `output`.",
        bad: Book(&[
            "services:",
            "  builder: { target: { exec: [./build], output: build.result }, events: [build.wanted] }",
            "  board: { target: { log: stdout }, events: [builds.result] }",
        ]),
        fix: &[("builds.result", "build.result")],
        scope: LintScope::Book(output_unheard),
    },
    Lint {
        code: "workers-feed-each-other",
        severity: ProblemSeverity::Warning,
        summary: "workers that start each other endlessly",
        explanation: "The result or lifecycle event of one worker starts another, whose event starts the first again: one event \
                      keeps both busy for ever. A worker that receives its own events does not loop, since those runs \
                      create none; a longer cycle has no such end. Remove one of the types, or narrow it.",
        bad: Book(&[
            "services:",
            "  builder: { target: { exec: [./build], output: build.result }, events: [build.wanted, check.result] }",
            "  checker: { target: { exec: [./check], output: check.result }, events: [build.result] }",
        ]),
        fix: &[
            ("build.wanted, check.result", "build.wanted"),
            ("services:", "services:\n  board: { target: { log: stdout }, events: [check.result] }"),
        ],
        scope: LintScope::Book(workers_feed_each_other),
    },
];

/// The targets of a service that run a program: its own and those of its channels.
fn programs(service: &ServiceEntry) -> impl Iterator<Item = &TargetEntry> {
    let channels = service.channels.iter().filter_map(|channel| channel.target.as_ref());
    std::iter::once(&service.target).chain(channels).filter(|target| target.endpoint.profile.run.is_some())
}

fn output_of(target: &TargetEntry) -> Option<&str> {
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
        let message = format!("no service receives the output `{output}`");
        findings.report(target.span, message, suggest_row(book, output));
    }
}

fn workers_feed_each_other(book: &Sections, findings: &mut Findings<'_>) {
    let workers: Vec<&ServiceEntry> =
        book.services.iter().filter(|service| programs(service).next().is_some()).collect();
    for (place, worker) in workers.iter().enumerate() {
        let comes_back = |event_type: &&str| leads_back(&workers, WorkerEvent { of: place, event_type });
        if let Some(event_type) = outputs(worker).chain([LIFECYCLE]).find(comes_back) {
            let name = &worker.name;
            let message = format!("`{event_type}` of `{name}` leads to a new start of `{name}`");
            findings.report(worker.target.span, message, "remove a type from one of the workers in between");
        }
    }
}

/// An event of a worker, given by its index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WorkerEvent<'a> {
    of: usize,
    event_type: &'a str,
}

fn outputs(worker: &ServiceEntry) -> impl Iterator<Item = &str> {
    programs(worker).filter_map(output_of)
}

/// The events of the runs that an event starts. A worker that receives its own events creates none, nor does a
/// lifecycle event cause lifecycle events.
fn next<'a>(workers: &[&'a ServiceEntry], event: WorkerEvent<'a>) -> Vec<WorkerEvent<'a>> {
    let started = workers.iter().enumerate().filter(|(place, _)| *place != event.of);
    let started = started.filter(|(_, worker)| takes(worker, event.event_type));
    let lifecycle = (event.event_type != LIFECYCLE).then_some(LIFECYCLE);
    let emitted = started.flat_map(|(of, worker)| {
        outputs(worker).chain(lifecycle).map(move |event_type| WorkerEvent { of, event_type })
    });
    emitted.collect()
}

fn leads_back<'a>(workers: &[&'a ServiceEntry], from: WorkerEvent<'a>) -> bool {
    let (mut seen, mut to_follow) = (BTreeSet::new(), vec![from]);
    while let Some(event) = to_follow.pop() {
        for next in next(workers, event) {
            if next == from {
                return true;
            }
            if seen.insert(next) {
                to_follow.push(next);
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
