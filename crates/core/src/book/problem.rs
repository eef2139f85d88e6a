//! Problems of a rule book: where they are and how to fix them.
//!
//! Invariant: reading continues after a problem where possible; the list is bounded, and problems beyond the
//! bound are counted.

use std::fmt;

use serde::Serialize;

use crate::limits;

/// A line and column, both counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    pub line: u32,
    /// In characters.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A range of the book's text in bytes, with a position for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BookSpan {
    pub start: u32,
    /// Exclusive.
    pub end: u32,
    pub position: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProblemSeverity {
    Error,
    Warning,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub severity: ProblemSeverity,
    pub code: &'static str,
    pub span: BookSpan,
    pub message: String,
    /// How to fix it; may be empty.
    pub help: String,
}

#[derive(Clone, Debug, Default)]
pub struct Problems {
    found: Vec<Problem>,
    by_severity: [usize; 3],
    left_out: usize,
}

impl Problems {
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

    /// Beyond the bound of its severity a problem is only counted.
    pub fn add(&mut self, problem: Problem) {
        let alike = &mut self.by_severity[problem.severity as usize];
        if *alike < limits::PROBLEMS_MAX {
            *alike += 1;
            self.found.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    /// Whether one more error would be listed; if not, its help need not be computed.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.by_severity[ProblemSeverity::Error as usize] < limits::PROBLEMS_MAX
    }

    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.by_severity[ProblemSeverity::Error as usize] > 0
    }

    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// In book order.
    #[must_use]
    pub fn into_sorted(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|problem| (problem.span.position, problem.severity));
        self.found.dedup();
        self.found
    }
}

/// The known word nearest to a mistyped one, if it is close enough.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A longer word is no typo, and comparing it would be slow.
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

/// "did you mean `standard`?", or else the list of known words.
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
