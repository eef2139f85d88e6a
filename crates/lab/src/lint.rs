//! Looks for what a book may say and what will hurt all the same.
//!
//! A lint is data: a code that never changes, a severity, a paragraph for people, the smallest book
//! that shows the mistake and what mends it. One test runs every lint over both books.
//!
//! Invariants: a lint that lacks a fact says "cannot tell" and proves nothing; a finding that the book
//! silences must carry a reason there, and a silencer that silences nothing is itself a finding.

mod addresses;
mod alerts;
mod breaker;
mod callers;
mod classification;
mod criticality;
mod deadline;
mod hygiene;
mod idempotency;
mod letters;
mod patterns;
mod retry;
mod sharing;
mod sources;
mod spacing;
mod thresholds;
mod throttle;
mod timeout;
mod waiting;
mod workers;
mod worst_case;

use std::collections::BTreeSet;
use std::fmt;

use redrive_core::book::Connectors;
use redrive_core::book::model::{Allow, Layer, Sections};
use redrive_core::book::problem::{Problem, Problems, Severity, Span, suggest};
use redrive_core::book::resolve::Resolved;
use redrive_core::book::{Reading, RuleBook};

/// Something to look for.
#[derive(Debug)]
pub struct Lint {
    /// Its name, for silencing and for searching.
    pub code: &'static str,
    /// How bad it is, unless a finding says otherwise.
    pub severity: Severity,
    /// What it finds, in half a line.
    pub summary: &'static str,
    /// Why that hurts and what to do, in a paragraph.
    pub explanation: &'static str,
    /// The smallest book that it finds something in.
    bad: Example,
    /// What mends that book: parts of its text, each of which stands there once, and what takes their place.
    fix: &'static [(&'static str, &'static str)],
    /// How it looks.
    pub run: Run,
}

impl Lint {
    /// The smallest book that it finds something in.
    #[must_use]
    pub fn bad(&self) -> String {
        self.bad.to_string()
    }

    /// The same book, mended.
    #[must_use]
    pub fn mended(&self) -> String {
        self.fix.iter().fold(self.bad(), |book, (part, better)| book.replacen(part, better, 1))
    }
}

/// A small book, of which only what matters is written down.
#[derive(Clone, Copy, Debug)]
enum Example {
    /// A service with an HTTP target that says this beside it.
    Service(&'static str),
    /// Lines of the book before such a service.
    With(&'static [&'static str], &'static str),
    /// A breaker, and such a service behind it.
    Breaker(&'static str, &'static str),
    /// A retry policy that the defaults name.
    Policy(&'static str),
    /// All lines of the book but its version.
    Book(&'static [&'static str]),
}

/// The receiver of examples about alerts.
const ON_CALL: &str = r#"receivers: { on-call: { webhook: "https://pager.example.test/hook" } }"#;

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("version: 1\n")?;
        let (lines, service) = match *self {
            Self::Breaker(parts, service) => {
                writeln!(f, "breakers:\n  mine: {{ {parts} }}")?;
                return write_service(f, &format!("breaker: mine{}{service}", comma(service)));
            }
            Self::Policy(parts) => {
                return writeln!(f, "defaults: {{ retry: mine }}\nretry_policies:\n  mine: {{ {parts} }}");
            }
            Self::Service(parts) => (&[][..], Some(parts)),
            Self::With(lines, parts) => (lines, Some(parts)),
            Self::Book(lines) => (lines, None),
        };
        lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        service.map_or(Ok(()), |parts| write_service(f, parts))
    }
}

fn write_service(f: &mut fmt::Formatter<'_>, parts: &str) -> fmt::Result {
    let usual = r#"target: { http: "http://127.0.0.1:9000" }, events: [a.b]"#;
    writeln!(f, "services:\n  mail: {{ {usual}{}{parts} }}", comma(parts))
}

const fn comma(parts: &str) -> &'static str {
    if parts.is_empty() { "" } else { ", " }
}

/// What a lint looks at.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// The book as a whole.
    Book(for<'a> fn(&'a Sections, &mut Findings<'a>)),
    /// What holds for each row.
    Rule(for<'a> fn(&Resolved<'a>, &mut Findings<'a>)),
}

/// All lints, in the order of their families.
#[must_use]
pub fn all() -> Vec<&'static Lint> {
    const FAMILIES: &[&[Lint]] = &[
        retry::LINTS,
        spacing::LINTS,
        deadline::LINTS,
        timeout::LINTS,
        classification::LINTS,
        criticality::LINTS,
        breaker::LINTS,
        sharing::LINTS,
        throttle::LINTS,
        waiting::LINTS,
        idempotency::LINTS,
        letters::LINTS,
        alerts::LINTS,
        thresholds::LINTS,
        patterns::LINTS,
        addresses::LINTS,
        hygiene::LINTS,
        workers::LINTS,
    ];
    FAMILIES.iter().copied().flatten().collect()
}

/// The lint of that code.
#[must_use]
pub fn find(code: &str) -> Option<&'static Lint> {
    all().into_iter().find(|lint| lint.code == code)
}

/// A lint that could not look, for want of a fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Untold {
    /// The lint.
    pub lint: &'static str,
    /// Where the fact would matter.
    pub span: Span,
    /// The fact that is missing, such as `facts.rate`.
    pub fact: &'static str,
}

/// What came of checking a book.
#[derive(Debug)]
pub struct Checked {
    /// The book, if there was no error in reading it.
    pub book: Option<RuleBook>,
    /// What is wrong, in the order of the book.
    pub problems: Vec<Problem>,
    /// How many more there were than are listed.
    pub left_out: usize,
    /// What could not be told, in the order of the book.
    pub untold: Vec<Untold>,
    /// How many findings the book silences.
    pub silenced: usize,
}

/// Reads a book and looks for everything that is wrong with it, wherever it is served.
#[must_use]
pub fn check(bytes: &[u8], connectors: &Connectors) -> Checked {
    check_with(bytes, connectors, |_| Vec::new())
}

/// The same, with an error for each connector that this build does not have.
#[must_use]
pub fn check_for(bytes: &[u8], connectors: &Connectors) -> Checked {
    check_with(bytes, connectors, RuleBook::missing)
}

fn check_with(bytes: &[u8], connectors: &Connectors, more: impl Fn(&RuleBook) -> Vec<Problem>) -> Checked {
    let Reading { book, mut problems } = redrive_core::book::read_bytes(bytes, connectors);
    let Some(book) = book else {
        let left_out = problems.left_out();
        return Checked { book, problems: problems.into_sorted(), left_out, untold: Vec::new(), silenced: 0 };
    };
    let mut findings = Findings::new(book.sections(), &mut problems);
    findings.look();
    let (untold, silenced) = (findings.untold.into_iter().collect(), findings.silenced.len());
    for problem in more(&book) {
        problems.add(problem);
    }
    let left_out = problems.left_out();
    Checked { book: Some(book), problems: problems.into_sorted(), left_out, untold, silenced }
}

/// Where lints put what they find.
pub struct Findings<'a> {
    book: &'a Sections,
    lint: &'static Lint,
    /// The silencers that hold where the lint is looking.
    allow: Vec<&'a Allow>,
    problems: &'a mut Problems,
    seen: BTreeSet<(&'static str, Span)>,
    untold: BTreeSet<Untold>,
    used: BTreeSet<Span>,
    silenced: BTreeSet<(&'static str, Span)>,
}

impl<'a> Findings<'a> {
    fn new(book: &'a Sections, problems: &'a mut Problems) -> Self {
        Self {
            book,
            lint: &hygiene::LINTS[0],
            allow: Vec::new(),
            problems,
            seen: BTreeSet::new(),
            untold: BTreeSet::new(),
            used: BTreeSet::new(),
            silenced: BTreeSet::new(),
        }
    }

    fn look(&mut self) {
        let sections = self.book;
        let lints = all();
        self.allow = sections.allow.iter().collect();
        for lint in &lints {
            if let Run::Book(run) = lint.run {
                self.lint = lint;
                run(sections, self);
            }
        }
        for (service, channel, row) in sections.rows() {
            let resolved = sections.resolve(service, channel, row);
            self.allow.clone_from(&resolved.allow);
            for lint in &lints {
                if let Run::Rule(run) = lint.run {
                    self.lint = lint;
                    run(&resolved, self);
                }
            }
        }
        self.check_silencers(sections);
    }

    /// The book that is looked at, for what a row alone does not show.
    #[must_use]
    pub const fn book(&self) -> &'a Sections {
        self.book
    }

    /// Reports a finding, once for each place.
    pub fn report(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.report_as(self.lint.severity, span, message, help);
    }

    /// The same with a severity of its own.
    pub fn report_as(
        &mut self,
        severity: Severity,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let code = self.lint.code;
        if self.is_silenced() {
            self.silenced.insert((code, span));
        } else if self.seen.insert((code, span)) {
            self.problems.add(Problem { severity, code, span, message: message.into(), help: help.into() });
        }
    }

    /// Says that the lint cannot tell without a fact, unless the book silences it there: whoever says
    /// why it does not apply has answered the question.
    pub fn cannot_tell(&mut self, span: Span, fact: &'static str) {
        if !self.is_silenced() {
            self.untold.insert(Untold { lint: self.lint.code, span, fact });
        }
    }

    /// Whether a silencer of the lint holds where it is looking, which then is of use.
    fn is_silenced(&mut self) -> bool {
        let silencer = self.allow.iter().find(|allow| allow.lint.value == self.lint.code);
        self.used.extend(silencer.map(|allow| allow.lint.span));
        silencer.is_some()
    }

    /// Adds the silencers of a level that a lint over the whole book looks at, while `look` runs.
    pub fn within(&mut self, layer: &'a Layer, look: impl FnOnce(&mut Self)) {
        self.within_all([layer], look);
    }

    /// The same for several levels.
    pub fn within_all(&mut self, layers: impl IntoIterator<Item = &'a Layer>, look: impl FnOnce(&mut Self)) {
        let before = self.allow.len();
        self.allow.extend(layers.into_iter().flat_map(|layer| &layer.allow));
        look(self);
        self.allow.truncate(before);
    }

    /// Looks at every level of the book, with the silencers of all that lie around it.
    pub fn each_layer(&mut self, book: &'a Sections, mut look: impl FnMut(&'a Layer, &mut Self)) {
        book.each_level(|around, layer| {
            let all = around.iter().copied().chain([layer]);
            self.within_all(all, |findings| look(layer, findings));
        });
    }

    /// Reports silencers that name no lint, and those that silence nothing.
    fn check_silencers(&mut self, sections: &Sections) {
        let layers = sections.layers();
        for allow in sections.allow.iter().chain(layers.iter().flat_map(|layer| &layer.allow)) {
            let (code, span) = (allow.lint.value.as_str(), allow.lint.span);
            if find(code).is_none() && !RETIRED.contains(&code) {
                let message = format!("there is no lint `{code}`");
                self.problems.error(
                    "unknown-lint",
                    span,
                    message,
                    suggest(code, all().iter().map(|l| l.code).collect::<Vec<_>>()),
                );
            } else if !self.used.contains(&span) {
                self.problems.add(Problem {
                    severity: Severity::Warning,
                    code: "unused-allow",
                    span,
                    message: format!("`{code}` finds nothing here that would need silencing"),
                    help: "leave this `allow` out".to_owned(),
                });
            }
        }
    }
}

/// Lints of earlier releases: an `allow` for one of them silences nothing, and is no mistake.
const RETIRED: [&str; 2] = ["dedup-in-memory", "secret-gone-before-probe"];

#[cfg(test)]
mod books_test;
#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::book::connectors::built_in;

    fn codes(book: &str) -> Vec<&'static str> {
        check(book.as_bytes(), built_in()).problems.into_iter().map(|problem| problem.code).collect()
    }

    /// What the lints of a family find: `line:column code`.
    pub(super) fn found(book: &str, family: &[Lint]) -> Vec<String> {
        let checked = check(book.as_bytes(), built_in());
        assert!(checked.book.is_some(), "no book: {:?}\n{book}", checked.problems);
        let of_family = |problem: &&Problem| family.iter().any(|lint| lint.code == problem.code);
        let shown = |problem: &Problem| format!("{} {}", problem.span.position, problem.code);
        checked.problems.iter().filter(of_family).map(shown).collect()
    }

    /// What the lints of a family cannot tell: `line:column code fact`.
    pub(super) fn untold(book: &str, family: &[Lint]) -> Vec<String> {
        let untold = check(book.as_bytes(), built_in()).untold.into_iter();
        let of_family = |untold: &Untold| family.iter().any(|lint| lint.code == untold.lint);
        let shown = |untold: Untold| format!("{} {} {}", untold.span.position, untold.lint, untold.fact);
        untold.filter(of_family).map(shown).collect()
    }

    #[test]
    fn every_lint_finds_its_bad_book_and_passes_its_mended_twin() {
        for lint in all() {
            let (bad, found) = (lint.bad(), codes(&lint.bad()));
            assert!(found.contains(&lint.code), "{} does not find its bad book: {found:?}\n{bad}", lint.code);
            for (part, _) in lint.fix {
                assert_eq!(bad.matches(part).count(), 1, "{}: `{part}` stands once in\n{bad}", lint.code);
            }
            let mended = check(lint.mended().as_bytes(), built_in());
            assert!(
                mended.book.is_some(),
                "{}: the mended book is no book: {:?}",
                lint.code,
                mended.problems
            );
            let still: Vec<_> = mended.problems.iter().filter(|p| p.code == lint.code).collect();
            assert!(still.is_empty(), "{} finds its mended book: {still:?}", lint.code);
            let errors: Vec<_> = mended.problems.iter().filter(|p| p.severity == Severity::Error).collect();
            assert!(errors.is_empty(), "{}: the mended book has errors: {errors:?}", lint.code);
            let untold = mended.untold.iter().any(|untold| untold.lint == lint.code);
            assert!(!untold, "{} cannot tell on its mended book: that proves nothing", lint.code);
        }
    }

    #[test]
    fn codes_are_kebab_words_and_stand_once() {
        let mut seen = BTreeSet::new();
        for lint in all() {
            assert!(seen.insert(lint.code), "{} stands twice", lint.code);
            assert!(
                lint.code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-' || b.is_ascii_digit()),
                "{}",
                lint.code
            );
            assert!(lint.explanation.len() > 120, "{}: one paragraph, please", lint.code);
        }
    }

    #[test]
    fn a_silenced_lint_needs_a_reason_and_a_finding() {
        let book = |allow: &str| {
            format!("version: 1\nretry_policies:\n  mine: {{ from: standard }}\nallow: [{allow}]\n")
        };
        assert_eq!(codes(&book("")), ["unused-definition"]);
        assert_eq!(codes(&book("{ lint: unused-definition, because: soon }")), [""; 0]);
        assert_eq!(codes(&book("{ lint: unused-definition }")), ["missing-key"]);
        assert_eq!(
            codes(&book("{ lint: unusd-definition, because: soon }")),
            ["unused-definition", "unknown-lint"]
        );
        let idle = "version: 1\nallow: [{ lint: unused-definition, because: soon }]\n";
        assert_eq!(codes(idle), ["unused-allow"]);
    }

    #[test]
    fn a_row_silences_what_it_shares_with_others_for_itself_alone() {
        let allow = "allow: [{ lint: retention-too-short, because: a copy is kept elsewhere }]";
        let book = |rows: &str| {
            let letters = "dead_letter: { retention: 2d }";
            format!(
                "version: 1\nservices:\n  s: {{ target: {{ log: stdout }}, {letters}, events: [{rows}] }}\n"
            )
        };
        let both = ["dead-letters-unwatched", "retention-too-short"];
        assert_eq!(codes(&book("a, b")), both);
        assert_eq!(codes(&book(&format!("{{ type: a, {allow} }}, b"))), both);
        assert_eq!(codes(&book(&format!("a, {{ type: b, {allow} }}"))), both);
        assert_eq!(codes(&book(&format!("{{ type: a, {allow} }}"))), both[..1]);
    }
}
