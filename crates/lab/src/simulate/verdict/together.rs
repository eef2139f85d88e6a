//! Merges findings that would repeat for many dependencies into one: all names, and the worst value.

use std::collections::BTreeSet;

use super::candidates::{Candidate, merged};
use super::{SimulationFinding, Weight, finding};
use crate::simulate::report::DependencyReport;
use redrive_core::text::show_count;

pub(super) struct DependencyFinding<'a> {
    pub(super) code: &'static str,
    pub(super) weight: Weight,
    pub(super) of: &'a DependencyReport,
    pub(super) text: String,
    /// For comparison with others of the same code.
    pub(super) size: f64,
}

/// One finding per code and weight, in order of appearance. Candidates are computed only for what is reported.
pub(super) fn together<'a>(
    said: impl Iterator<Item = DependencyFinding<'a>>,
    against: impl Fn(&DependencyFinding<'a>) -> Vec<Candidate>,
) -> Vec<SimulationFinding> {
    let mut groups: Vec<FindingGroup<'a>> = Vec::new();
    for one in said {
        let is_like = |group: &&mut FindingGroup<'a>| {
            let first = &group.worst_of_each[0];
            (first.code, first.weight) == (one.code, one.weight)
        };
        match groups.iter_mut().find(is_like) {
            Some(group) => group.add(one),
            None => groups.push(FindingGroup { worst_of_each: vec![one], at_worst: "" }),
        }
    }
    groups.into_iter().map(|group| group.joined(&against)).collect()
}

struct FindingGroup<'a> {
    worst_of_each: Vec<DependencyFinding<'a>>,
    at_worst: &'static str,
}

impl<'a> FindingGroup<'a> {
    fn add(&mut self, one: DependencyFinding<'a>) {
        self.at_worst = "at worst ";
        match self.worst_of_each.last_mut() {
            // Findings of one dependency are adjacent.
            Some(last) if last.of.name == one.of.name => {
                if one.size > last.size {
                    *last = one;
                }
            }
            Some(_) | None => self.worst_of_each.push(one),
        }
    }

    fn joined(self, against: &impl Fn(&DependencyFinding<'a>) -> Vec<Candidate>) -> SimulationFinding {
        let Self { mut worst_of_each, at_worst } = self;
        worst_of_each.sort_by(|one, other| other.size.total_cmp(&one.size));
        let worst = &worst_of_each[0];
        let names = names(worst_of_each.iter().map(|said| said.of.name.as_str()));
        let text = format!("{names}: {at_worst}{}", worst.text);
        finding(worst.code, worst.weight, text, merged(worst_of_each.iter().flat_map(against)))
    }
}

const NAMED_MAX: usize = 3;

pub(super) fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let known: Vec<&str> = all.filter(|name| seen.insert(name)).collect();
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match known.as_slice() {
        [first @ .., last] if (1..NAMED_MAX).contains(&first.len()) => {
            format!("{} and `{last}`", quoted(first))
        }
        many if many.len() > NAMED_MAX => {
            let others = show_count((many.len() + 1 - NAMED_MAX) as u64);
            format!("{} and {others} others", quoted(&many[..NAMED_MAX - 1]))
        }
        few => quoted(few),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::scenario;
    use crate::simulate::{Go, SimulationPlan, run};
    use redrive_core::book;
    use redrive_core::book::connectors::built_in;

    #[test]
    fn names_are_listed_as_a_person_would() {
        #[rustfmt::skip]
        let cases: [(&[&str], &str); 6] = [
            (&[],                         ""),
            (&["a"],                      "`a`"),
            (&["a", "a", "b"],            "`a` and `b`"),
            (&["a", "b", "c"],            "`a`, `b` and `c`"),
            (&["a", "b", "c", "d"],       "`a`, `b` and 2 others"),
            (&["a", "b", "c", "d", "e"],  "`a`, `b` and 3 others"),
        ];
        for (all, expected) in cases {
            assert_eq!(names(all.iter().copied()), expected);
        }
    }

    #[test]
    fn what_repeats_is_told_once_with_the_worst() {
        let scenario = "version: 1\nduration: 1s\ndependencies: { a: { calls: { b: {}, c: {} } } }\n";
        let book = "version: 1\nservices: { a: { target: { http: \"http://127.0.0.1:9/\" }, events: [a.b], facts: { rate: 1/s } } }\n";
        let scenario = scenario::read(scenario).scenario.expect("a scenario");
        let book = Arc::new(book::read(book, built_in()).book.expect("a book"));
        let report = run(&SimulationPlan { scenario: &scenario, book, seed: 1 }, &mut |_| Go::On)
            .expect("no run is stopped");
        let [a, b, c] = report.dependencies.as_slice() else { panic!("{:?}", report.dependencies) };
        let told = |all: &[(&DependencyReport, f64, Weight)]| {
            let said = all.iter().map(|(of, size, weight)| DependencyFinding {
                code: "amplified",
                weight: *weight,
                of,
                text: format!("{size} attempts"),
                size: *size,
            });
            let told = together(said, |_| Vec::new()).into_iter().map(|finding| finding.text);
            told.collect::<Vec<_>>()
        };
        let each = [(a, 2.0, Weight::Fair), (b, 4.0, Weight::Bad), (c, 3.0, Weight::Fair)];
        assert_eq!(told(&each), ["`c` and `a`: at worst 3 attempts", "`b`: 4 attempts"]);
        let often = [(a, 2.0, Weight::Fair), (a, 5.0, Weight::Fair), (a, 1.0, Weight::Fair)];
        assert_eq!(told(&often), ["`a`: at worst 5 attempts"], "one has been so three times");
    }
}
