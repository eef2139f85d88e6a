//! Finds settings that are valid and will still hurt in production.
//!
//! A lint is data: a code that never changes, a severity, its texts, the smallest book that shows the mistake, and
//! the fix. One test runs every lint over both books.
//!
//! Invariants: a lint that lacks a fact is skipped there and proves nothing; an `allow` needs a reason, and an
//! `allow` that silences nothing is itself a finding.

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
mod schemas;
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

use self::callers::{DependencyCallers, by_dependency};
use redrive_core::book::Connectors;
use redrive_core::book::model::{Alert, Allow, At, BreakerEntry, Layer, Sections, TargetEntry};
use redrive_core::book::problem::{BookSpan, Problem, ProblemSeverity, Problems, suggest};
use redrive_core::book::resolve::Resolved;
use redrive_core::book::{ParsedBook, RuleBook};
use redrive_core::ids::{BreakerName, PolicyName};
use redrive_core::policy::backoff::Backoff;

#[derive(Debug)]
pub struct Lint {
    pub code: &'static str,
    /// Unless a finding has a severity of its own.
    pub severity: ProblemSeverity,
    pub summary: &'static str,
    /// One paragraph: what happens, why it hurts, what to write instead.
    pub explanation: &'static str,
    bad: ExampleBook,
    /// Replacements that fix the bad book; each left side occurs there exactly once.
    fix: &'static [(&'static str, &'static str)],
    scope: LintScope,
}

impl Lint {
    #[must_use]
    pub fn bad_book(&self) -> String {
        self.bad.to_string()
    }

    #[must_use]
    pub fn fixed_book(&self) -> String {
        self.fix.iter().fold(self.bad_book(), |book, (part, better)| book.replacen(part, better, 1))
    }
}

#[derive(Clone, Copy, Debug)]
enum ExampleBook {
    /// More keys of a service with an HTTP target.
    Service(&'static str),
    /// Lines of the book, and such a service.
    With(&'static [&'static str], &'static str),
    /// A breaker, and such a service that names it.
    Breaker(&'static str, &'static str),
    /// A retry policy that the defaults name.
    Policy(&'static str),
    /// All lines of the book but its version.
    Book(&'static [&'static str]),
}

const ON_CALL: &str = r#"receivers: { on-call: { webhook: "https://pager.example.test/hook" } }"#;

impl fmt::Display for ExampleBook {
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

/// What a lint looks at: it is called once for each of these, under the `allow`s that apply there.
#[derive(Clone, Copy, Debug)]
enum LintScope {
    Book(for<'a> fn(&'a Sections, &mut Findings<'a>)),
    /// Defaults, dependency, service, channel or row.
    Level(for<'a> fn(&'a Layer, &mut Findings<'a>)),
    Policy(fn(OwnPolicy<'_>, &mut Findings<'_>)),
    Breaker(fn(&BreakerName, &At<BreakerEntry>, &mut Findings<'_>)),
    HttpTarget(for<'a> fn(&'a TargetEntry, &'a str, &mut Findings<'a>)),
    /// All alerts of one level: they cover the same rows.
    AlertList(for<'a> fn(&'a [Alert], &mut Findings<'a>)),
    Alert(for<'a> fn(&'a Alert, &[&Resolved<'a>], &mut Findings<'a>)),
    /// A dependency and the rows that call it. Findings belong to one of those ([`Findings::at_row`]).
    Dependency(for<'a> fn(&DependencyCallers<'_, 'a>, &mut Findings<'a>)),
    Rows(for<'a> fn(&[Resolved<'a>], &mut Findings<'a>)),
    Row(for<'a> fn(&Resolved<'a>, &mut Findings<'a>)),
}

#[derive(Clone, Copy)]
struct OwnPolicy<'a> {
    name: &'a PolicyName,
    backoff: &'a Backoff,
    span: BookSpan,
}

/// All lints, in the order of their families.
#[must_use]
pub fn all() -> Vec<&'static Lint> {
    const FAMILIES: &[&[Lint]] = &[
        retry::LINTS,
        schemas::LINTS,
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

#[must_use]
pub fn find(code: &str) -> Option<&'static Lint> {
    all().into_iter().find(|lint| lint.code == code)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SkippedLint {
    pub lint: &'static str,
    pub span: BookSpan,
    /// The missing fact, such as `facts.rate`.
    pub fact: &'static str,
}

#[derive(Debug)]
pub struct CheckReport {
    /// None if the book has an error of format.
    pub book: Option<RuleBook>,
    pub problems: Vec<Problem>,
    pub left_out: usize,
    pub skipped: Vec<SkippedLint>,
    pub silenced: usize,
}

/// Reads a book and runs every lint over it. Connectors that this build lacks are accepted.
#[must_use]
pub fn check(bytes: &[u8], connectors: &Connectors) -> CheckReport {
    check_with(bytes, connectors, |_| Vec::new())
}

/// The same, with an error for each connector that this build lacks.
#[must_use]
pub fn check_for(bytes: &[u8], connectors: &Connectors) -> CheckReport {
    check_with(bytes, connectors, RuleBook::missing)
}

fn check_with(
    bytes: &[u8],
    connectors: &Connectors,
    more: impl Fn(&RuleBook) -> Vec<Problem>,
) -> CheckReport {
    let ParsedBook { book, mut problems } = redrive_core::book::read_bytes(bytes, connectors);
    let (mut skipped, mut silenced) = (Vec::new(), 0);
    if let Some(book) = &book {
        let mut findings = Findings::new(book.sections(), &mut problems);
        findings.run_all();
        (skipped, silenced) = (findings.skipped.into_iter().collect(), findings.silenced.len());
        for problem in more(book) {
            problems.add(problem);
        }
    }
    let left_out = problems.left_out();
    CheckReport { book, problems: problems.into_sorted(), left_out, skipped, silenced }
}

pub struct Findings<'a> {
    book: &'a Sections,
    lint: &'static Lint,
    /// The `allow`s that apply where the lint is looking.
    allow: Vec<&'a Allow>,
    problems: &'a mut Problems,
    reported: BTreeSet<(&'static str, BookSpan)>,
    skipped: BTreeSet<SkippedLint>,
    used_allows: BTreeSet<BookSpan>,
    silenced: BTreeSet<(&'static str, BookSpan)>,
}

impl<'a> Findings<'a> {
    fn new(book: &'a Sections, problems: &'a mut Problems) -> Self {
        Self {
            book,
            lint: &hygiene::LINTS[0],
            allow: Vec::new(),
            problems,
            reported: BTreeSet::new(),
            skipped: BTreeSet::new(),
            used_allows: BTreeSet::new(),
            silenced: BTreeSet::new(),
        }
    }

    fn run_all(&mut self) {
        let rows: Vec<Resolved<'a>> = self.book.resolved().collect();
        let dependencies = by_dependency(self.book, &rows);
        let lints = all();
        for lint in &lints {
            self.lint = lint;
            self.allow = self.book.allow.iter().collect();
            self.run_over_book(lint.scope, &rows, &dependencies);
        }
        for row in &rows {
            for lint in &lints {
                if let LintScope::Row(check) = lint.scope {
                    self.lint = lint;
                    check(row, self.at_row(row));
                }
            }
        }
        self.check_allows();
    }

    fn run_over_book(
        &mut self,
        scope: LintScope,
        rows: &[Resolved<'a>],
        dependencies: &[DependencyCallers<'_, 'a>],
    ) {
        let book = self.book;
        match scope {
            LintScope::Book(check) => check(book, self),
            LintScope::Level(check) => self.each_level(check),
            LintScope::Policy(check) => {
                for (name, at) in book.policies.iter().filter(|(_, at)| at.value.backoff.retries() > 0) {
                    check(OwnPolicy { name, backoff: &at.value.backoff, span: at.span }, self);
                }
            }
            LintScope::Breaker(check) => book.breakers.iter().for_each(|(name, at)| check(name, at, self)),
            LintScope::HttpTarget(check) => self.each_http_target(check),
            LintScope::AlertList(check) => self.each_alert_list(check),
            LintScope::Alert(check) => self.each_alert_list(|alerts, findings| {
                for alert in alerts {
                    let is_of_the_book = book.alerts.iter().any(|own| own.span == alert.span);
                    let is_covered = |row: &&Resolved<'a>| {
                        is_of_the_book || row.alerts.iter().any(|(own, _)| own.span == alert.span)
                    };
                    check(alert, &rows.iter().filter(is_covered).collect::<Vec<_>>(), findings);
                }
            }),
            LintScope::Dependency(check) => dependencies.iter().for_each(|one| check(one, self)),
            LintScope::Rows(check) => check(rows, self),
            LintScope::Row(_) => {}
        }
    }

    fn each_alert_list(&mut self, check: impl Fn(&'a [Alert], &mut Self)) {
        check(&self.book.alerts, self);
        self.each_level(|layer, findings| check(&layer.alerts, findings));
    }

    fn each_level(&mut self, check: impl Fn(&'a Layer, &mut Self)) {
        self.book.each_level(|around, layer| {
            let all = around.iter().copied().chain([layer]);
            self.within(all, |findings| check(layer, findings));
        });
    }

    fn each_http_target(&mut self, check: impl Fn(&'a TargetEntry, &'a str, &mut Self)) {
        for service in &self.book.services {
            let own = std::iter::once((&service.layer, &service.target));
            let channels = service.channels.iter();
            let of_channels = channels.filter_map(|channel| Some((&channel.layer, channel.target.as_ref()?)));
            for (layer, target) in own.chain(of_channels) {
                if let Some(address) = target.endpoint.http_address() {
                    let around = [&self.book.defaults, &service.layer, layer];
                    self.within(around, |findings| check(target, address, findings));
                }
            }
        }
    }

    #[must_use]
    pub const fn book(&self) -> &'a Sections {
        self.book
    }

    /// Reports a finding, once for each place.
    pub fn report(&mut self, span: BookSpan, message: impl Into<String>, help: impl Into<String>) {
        self.report_as(self.lint.severity, span, message, help);
    }

    pub fn report_as(
        &mut self,
        severity: ProblemSeverity,
        span: BookSpan,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let code = self.lint.code;
        if self.is_silenced() {
            self.silenced.insert((code, span));
        } else if self.reported.insert((code, span)) {
            self.problems.add(Problem { severity, code, span, message: message.into(), help: help.into() });
        }
    }

    /// Records that the lint needs a fact here; an `allow` makes the fact unnecessary.
    pub fn skip(&mut self, span: BookSpan, fact: &'static str) {
        if !self.is_silenced() {
            self.skipped.insert(SkippedLint { lint: self.lint.code, span, fact });
        }
    }

    /// Whether an `allow` of the lint applies; it then counts as used.
    fn is_silenced(&mut self) -> bool {
        let allow = self.allow.iter().find(|allow| allow.lint.value == self.lint.code);
        self.used_allows.extend(allow.map(|allow| allow.lint.span));
        allow.is_some()
    }

    /// Applies the `allow`s of a row, until the lint is through or another row is chosen.
    fn at_row(&mut self, row: &Resolved<'a>) -> &mut Self {
        self.allow.clone_from(&row.allow);
        self
    }

    fn within(&mut self, levels: impl IntoIterator<Item = &'a Layer>, check: impl FnOnce(&mut Self)) {
        let before = self.allow.len();
        self.allow.extend(levels.into_iter().flat_map(|layer| &layer.allow));
        check(self);
        self.allow.truncate(before);
    }

    fn check_allows(&mut self) {
        let levels = self.book.layers();
        for allow in self.book.allow.iter().chain(levels.iter().flat_map(|layer| &layer.allow)) {
            let (code, span) = (allow.lint.value.as_str(), allow.lint.span);
            if find(code).is_none() && !RETIRED.contains(&code) {
                let help = suggest(code, all().iter().map(|lint| lint.code).collect::<Vec<_>>());
                self.problems.error("unknown-lint", span, format!("unknown lint `{code}`"), help);
            } else if !self.used_allows.contains(&span) {
                self.problems.add(Problem {
                    severity: ProblemSeverity::Warning,
                    code: "unused-allow",
                    span,
                    message: format!("`{code}` has no finding here"),
                    help: "remove this `allow`".to_owned(),
                });
            }
        }
    }
}

/// Lints of earlier releases: an `allow` for one of them is unused, not an error.
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

    pub(super) fn found(book: &str, family: &[Lint]) -> Vec<String> {
        let checked = check(book.as_bytes(), built_in());
        assert!(checked.book.is_some(), "no book: {:?}\n{book}", checked.problems);
        let of_family = |problem: &&Problem| family.iter().any(|lint| lint.code == problem.code);
        let shown = |problem: &Problem| format!("{} {}", problem.span.position, problem.code);
        checked.problems.iter().filter(of_family).map(shown).collect()
    }

    pub(super) fn skipped(book: &str, family: &[Lint]) -> Vec<String> {
        let skipped = check(book.as_bytes(), built_in()).skipped.into_iter();
        let of_family = |skipped: &SkippedLint| family.iter().any(|lint| lint.code == skipped.lint);
        let shown =
            |skipped: SkippedLint| format!("{} {} {}", skipped.span.position, skipped.lint, skipped.fact);
        skipped.filter(of_family).map(shown).collect()
    }

    #[test]
    fn every_lint_finds_its_bad_book_and_passes_its_fixed_twin() {
        for lint in all() {
            let (bad, found) = (lint.bad_book(), codes(&lint.bad_book()));
            assert!(found.contains(&lint.code), "{} does not find its bad book: {found:?}\n{bad}", lint.code);
            for (part, _) in lint.fix {
                assert_eq!(bad.matches(part).count(), 1, "{}: `{part}` stands once in\n{bad}", lint.code);
            }
            let fixed = check(lint.fixed_book().as_bytes(), built_in());
            assert!(fixed.book.is_some(), "{}: the fixed book is invalid: {:?}", lint.code, fixed.problems);
            let still: Vec<_> = fixed.problems.iter().filter(|p| p.code == lint.code).collect();
            assert!(still.is_empty(), "{} finds its fixed book: {still:?}", lint.code);
            let errors: Vec<_> =
                fixed.problems.iter().filter(|p| p.severity == ProblemSeverity::Error).collect();
            assert!(errors.is_empty(), "{}: the fixed book has errors: {errors:?}", lint.code);
            let skipped = fixed.skipped.iter().any(|skipped| skipped.lint == lint.code);
            assert!(!skipped, "{} is skipped on its fixed book: that proves nothing", lint.code);
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
