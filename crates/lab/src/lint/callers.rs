//! Dependencies with the rows that call them, and how often.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::book::model::{At, DependencyEntry, Sections};
use redrive_core::book::problem::BookSpan;
use redrive_core::book::resolve::Resolved;
use redrive_core::text::Rate;

/// A dependency and the rows that call it: at least one, in the order of the book.
pub(super) struct DependencyCallers<'r, 'a> {
    pub(super) name: &'r str,
    pub(super) entry: Option<&'a DependencyEntry>,
    pub(super) rows: Vec<&'r Resolved<'a>>,
    pub(super) traffic: Traffic,
}

impl DependencyCallers<'_, '_> {
    /// Where to point for its breaker and limits: at its declaration, else at the service or channel that has it.
    pub(super) fn guard(&self) -> BookSpan {
        self.entry.map_or_else(|| owner(self.rows[0]), |entry| entry.span)
    }
}

pub(super) fn owner(row: &Resolved<'_>) -> BookSpan {
    let own_channel = row.channel.filter(|channel| channel.target.is_some());
    own_channel.map_or(row.service.span, |channel| channel.span)
}

/// Calls per second of a dependency, retries not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Traffic {
    /// What is certainly its own.
    pub(super) at_least: f64,
    /// With what it may share with others; none if the rate of a caller is unknown.
    pub(super) at_most: Option<f64>,
}

impl Traffic {
    pub(super) fn is_exact(self) -> bool {
        self.at_most.is_some_and(|at_most| at_most <= self.at_least)
    }
}

/// A stated rate, for a service: a rate of the defaults applies to each service by itself.
type RateKey<'a> = (BookSpan, &'a str);

fn rate_of<'a>(row: &Resolved<'a>) -> Option<(RateKey<'a>, Rate)> {
    let at = row.facts.rate.as_ref()?;
    Some(((at.span, row.service.name.as_str()), at.value))
}

pub(super) fn by_dependency<'r, 'a>(
    book: &'a Sections,
    rows: &'r [Resolved<'a>],
) -> Vec<DependencyCallers<'r, 'a>> {
    let mut callers: BTreeMap<_, Vec<&'r Resolved<'a>>> = BTreeMap::new();
    let mut first: BTreeMap<RateKey<'a>, &str> = BTreeMap::new();
    // Rates of rows that call several dependencies: the share of each is unknown.
    let mut shared: BTreeSet<RateKey<'a>> = BTreeSet::new();
    for row in rows {
        let name = &row.dependency.value;
        callers.entry(name).or_default().push(row);
        if let Some((key, _)) = rate_of(row)
            && *first.entry(key).or_insert(name.as_str()) != name.as_str()
        {
            shared.insert(key);
        }
    }
    let with_traffic = callers.into_iter().map(|(name, rows)| {
        let entry = book.dependencies.get(name);
        let traffic = traffic(entry, &rows, &shared);
        DependencyCallers { name: name.as_str(), entry, rows, traffic }
    });
    with_traffic.collect()
}

/// A rate that the dependency states is that of all its callers; a service's or a channel's is that of all its rows
/// together.
fn traffic(
    entry: Option<&DependencyEntry>,
    rows: &[&Resolved<'_>],
    shared: &BTreeSet<RateKey<'_>>,
) -> Traffic {
    if let Some(At { value, .. }) = entry.and_then(|entry| entry.layer.facts.rate.as_ref()) {
        let rate = value.as_per_second();
        return Traffic { at_least: rate, at_most: Some(rate) };
    }
    let mut traffic = Traffic { at_least: 0.0, at_most: Some(0.0) };
    let mut seen = BTreeSet::new();
    for row in rows {
        let Some((key, rate)) = rate_of(row) else {
            traffic.at_most = None;
            continue;
        };
        if seen.insert(key) {
            traffic.at_most = traffic.at_most.map(|sum| sum + rate.as_per_second());
            traffic.at_least += if shared.contains(&key) { 0.0 } else { rate.as_per_second() };
        }
    }
    traffic
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::book::connectors::built_in;
    use redrive_core::book::read_bytes;

    const BOOK: &str = r#"
version: 1
dependencies:
  mail: { kind: smtp }
  queue: { kind: sqs }
  b: { kind: relay }
services:
  a:
    target: { http: "http://127.0.0.1:9000" }
    depends_on: queue
    events: [x.y, { type: x.z, depends_on: mail }, { type: x.w, breaker: none }]
    channels:
      mail: { target: { smtp: "smtp://mail.example.test", from: a@b.test, to: a@b.test, subject: s, body: b }, events: [x.y] }
      same: { events: [x.y] }
      other: { target: { ntfy: "http://127.0.0.1/x" }, depends_on: mail, events: [x.y] }
  b: { target: { http: "http://127.0.0.1:9000" }, events: [x.y] }
  c: { target: { exec: ["./run"] }, events: [x.y] }
"#;

    #[test]
    fn every_row_is_a_caller_of_its_dependency() {
        let book = read_bytes(BOOK.as_bytes(), built_in()).book.expect("the book has no error");
        let rows: Vec<_> = book.sections().resolved().collect();
        let found = by_dependency(book.sections(), &rows);
        let counts: Vec<_> =
            found.iter().map(|one| (one.name, one.rows.len(), one.entry.is_some())).collect();
        assert_eq!(
            counts,
            [("a.mail", 1, false), ("b", 1, true), ("c", 1, false), ("mail", 2, true), ("queue", 3, true)]
        );
        for (name, row) in found.iter().flat_map(|one| one.rows.iter().map(|row| (one.name, row))) {
            assert_eq!(row.dependency.value.as_str(), name, "{}", row.row.pattern.span.position);
        }
    }

    #[test]
    fn a_rate_counts_once_and_for_certain_only_where_it_is_not_shared() {
        let book = |facts: &str, [a, b]: [&str; 2]| {
            let target = "target: { http: \"http://127.0.0.1:9000\" }, depends_on: d";
            format!(
                "version: 1\ndependencies:\n  d: {{ kind: webhook{facts} }}\n  e: {{ kind: webhook }}\n\
                 services:\n  a: {{ {target}, {a} }}\n  b: {{ {target}, {b} }}\n"
            )
        };
        let (two, plain) = ("events: [x.y, x.z], facts: { rate: 2/s }", "events: [x.y]");
        let split = "events: [x.y, { type: x.z, depends_on: e }], facts: { rate: 2/s }";
        let by_row = "events: [{ type: x.y, facts: { rate: 3/s } }], facts: { rate: 9/s }";
        #[rustfmt::skip]
        let cases = [
            ("a service's for all its rows",  book("", [two, two]),                        (4.0, Some(4.0))),
            ("a row's own",                   book("", [two, by_row]),                     (5.0, Some(5.0))),
            ("one is not known",              book("", [two, plain]),                      (2.0, None)),
            ("one goes elsewhere too",        book("", [two, split]),                      (2.0, Some(4.0))),
            ("the dependency's is the whole", book(", facts: { rate: 7/s }", [two, plain]), (7.0, Some(7.0))),
            ("the defaults' is each one's",   book("", [plain, plain]) + "defaults: { facts: { rate: 3/s } }\n", (6.0, Some(6.0))),
        ];
        for (name, book, (at_least, at_most)) in cases {
            let reading = read_bytes(book.as_bytes(), built_in());
            let book = reading.book.expect("the book has no error");
            let rows: Vec<_> = book.sections().resolved().collect();
            let found = by_dependency(book.sections(), &rows);
            let called = found.iter().find(|one| one.name == "d").expect("it is called");
            assert_eq!(called.traffic, Traffic { at_least, at_most }, "{name}");
        }
    }
}
