//! What is wrong with a rule book, where, and how to mend it.
//!
//! Invariant: reading a book never stops at the first problem it can get past; the list is
//! bounded, and what goes over the bound is counted.

use std::fmt;

use serde::Serialize;

use crate::limits;
use crate::position::Position;

/// A stretch of the book's text: bytes for cutting it out, a position for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BookSpan {
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
    /// Where it starts, for people.
    pub position: Position,
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProblemSeverity {
    /// The book is refused.
    Error,
    /// It will probably hurt.
    Warning,
    /// Worth knowing.
    Info,
}

impl fmt::Display for ProblemSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        })
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: ProblemSeverity,
    /// Its stable name.
    pub code: &'static str,
    /// Where it is.
    pub span: BookSpan,
    /// What is wrong.
    pub message: String,
    /// How to mend it; may be empty.
    pub help: String,
}

/// The problems found so far.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    found: Vec<Problem>,
    by_severity: [usize; 3],
    left_out: usize,
}

impl Problems {
    /// Adds an error.
    pub fn error(
        &mut self,
        code: &'static str,
        span: BookSpan,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Problem {
            severity: ProblemSeverity::Error,
            code,
            span,
            message: message.into(),
            help: help.into(),
        });
    }

    /// Adds a problem, or counts it when there are too many of its severity.
    pub fn add(&mut self, problem: Problem) {
        let alike = &mut self.by_severity[problem.severity as usize];
        if *alike < limits::PROBLEMS_MAX {
            *alike += 1;
            self.found.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    /// Whether one more error would be listed, so that its help is worth the work.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.by_severity[ProblemSeverity::Error as usize] < limits::PROBLEMS_MAX
    }

    /// Whether one of them is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.by_severity[ProblemSeverity::Error as usize] > 0
    }

    /// How many were found beyond the bound.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// The problems in the order of the book.
    #[must_use]
    pub fn into_sorted(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|problem| (problem.span.position, problem.severity));
        self.found.dedup();
        self.found
    }
}

/// The known word nearest to a mistyped one, if one is near enough to be meant.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A word of a thousand letters is no slip of the pen, and comparing it would take long.
    const WORD_BYTES_MAX: usize = 64;
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    known
        .into_iter()
        .filter(|candidate| candidate.len() <= WORD_BYTES_MAX)
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min()
        .map(|(_, candidate)| candidate)
}

/// "did you mean `standard`?" where something near is known, else the list of what is.
#[must_use]
pub fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(near) = nearest(word, known.clone()) {
        return format!("did you mean `{near}`?");
    }
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    known.dedup();
    let shown = known.iter().take(16).map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    match known.len() {
        0 => "none are defined".to_owned(),
        1..=16 => format!("expected one of {shown}"),
        more => format!("expected one of {shown} and {} more", more - 16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_recognised() {
        #[rustfmt::skip]
        let cases = [
            ("a letter too few",   "standrd",   "did you mean `standard`?"),
            ("two letters swapped", "patinet",  "did you mean `patient`?"),
            ("upper case",         "Standard",  "did you mean `standard`?"),
            ("nothing like it",    "zebra",     "expected one of `patient`, `standard`"),
        ];
        for (name, word, expected) in cases {
            assert_eq!(suggest(word, ["standard", "patient"]), expected, "{name}");
        }
    }

    #[test]
    fn the_list_is_bounded_and_counts_the_rest() {
        let mut problems = Problems::default();
        for _ in 0..limits::PROBLEMS_MAX + 5 {
            problems.error("x", BookSpan::default(), "m", "");
        }
        assert_eq!(problems.left_out(), 5);
        assert!(problems.has_errors());
    }
}
