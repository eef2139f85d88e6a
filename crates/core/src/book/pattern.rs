//! Event types and patterns over them.
//!
//! `*` matches exactly one segment, as the last segment one or more, alone everything. Invariant: of two
//! patterns that match the same type, one is more specific or the book is refused.

use std::fmt;

use crate::limits;

const SEGMENTS_MAX: usize = 32;

/// A pattern over event types, such as `todo.task.*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPattern {
    text: Box<str>,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Segment {
    Word(Box<str>),
    One,
    Rest,
}

/// How the sets of types of two patterns relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Same types.
    Same,
    /// The first is a subset.
    Narrower,
    /// The second is a subset.
    Wider,
    /// They overlap, and neither is more specific.
    Ambiguous,
    Apart,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    #[error("`{text}` has an empty segment")]
    EmptySegment { text: String },
    #[error(
        "`{text}` contains {character:?}; a segment is letters, digits, `-`, `_`, `:` and `/`, or a single `*`"
    )]
    Character { text: String, character: char },
    #[error("event type is {length} bytes long, the maximum is {}", limits::EVENT_TYPE_BYTES_MAX)]
    TooManyBytes { length: usize },
    #[error("event type has {count} segments, the maximum is {SEGMENTS_MAX}")]
    TooLong { count: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidType {
    #[error("it has an empty segment")]
    EmptySegment,
    #[error("it contains {character:?}; only letters, digits, `-`, `_`, `:`, `/` and dots are allowed")]
    Character { character: char },
    #[error("it is {length} bytes long, the maximum is {}", limits::EVENT_TYPE_BYTES_MAX)]
    TooManyBytes { length: usize },
    #[error("it has {count} segments, the maximum is {SEGMENTS_MAX}")]
    TooLong { count: usize },
}

/// An event type is a pattern without `*`.
pub fn check_type(text: &str) -> Result<(), InvalidType> {
    if text.len() > limits::EVENT_TYPE_BYTES_MAX {
        return Err(InvalidType::TooManyBytes { length: text.len() });
    }
    let mut count = 0;
    for word in text.split('.') {
        count += 1;
        if word.is_empty() {
            return Err(InvalidType::EmptySegment);
        }
        if let Some(character) = unfit(word) {
            return Err(InvalidType::Character { character });
        }
    }
    if count > SEGMENTS_MAX { Err(InvalidType::TooLong { count }) } else { Ok(()) }
}

fn unfit(word: &str) -> Option<char> {
    word.chars().find(|&c| !is_of_a_word(c))
}

/// Whether a segment may contain this character.
pub(super) fn is_of_a_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '-' | '_' | ':' | '/')
}

impl EventPattern {
    pub fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let count = text.split('.').count();
        if text.len() > limits::EVENT_TYPE_BYTES_MAX {
            return Err(InvalidPattern::TooManyBytes { length: text.len() });
        }
        if count > SEGMENTS_MAX {
            return Err(InvalidPattern::TooLong { count });
        }
        let mut segments = Vec::with_capacity(count);
        for (index, word) in text.split('.').enumerate() {
            if word.is_empty() {
                return Err(InvalidPattern::EmptySegment { text: text.to_owned() });
            }
            if word == "*" {
                segments.push(if index + 1 == count { Segment::Rest } else { Segment::One });
                continue;
            }
            if let Some(character) = unfit(word) {
                return Err(InvalidPattern::Character { text: text.to_owned(), character });
            }
            segments.push(Segment::Word(word.into()));
        }
        Ok(Self { text: text.into(), segments })
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it has no wildcard.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.segments.iter().all(|segment| matches!(segment, Segment::Word(_)))
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Words, then segments: of two patterns that match the same type, the narrower has more.
    #[must_use]
    pub fn specificity(&self) -> (usize, usize) {
        let words = self.segments.iter().filter(|segment| matches!(segment, Segment::Word(_))).count();
        (words, self.segments.len())
    }

    #[must_use]
    pub fn matches(&self, event_type: &str) -> bool {
        let mut words = event_type.split('.');
        for segment in &self.segments {
            let Some(word) = words.next() else { return false };
            match segment {
                Segment::Word(wanted) if **wanted != *word => return false,
                Segment::Word(_) | Segment::One => {}
                Segment::Rest => return !word.is_empty(),
            }
        }
        words.next().is_none()
    }

    /// How this pattern relates to another.
    #[must_use]
    pub fn relation(&self, other: &Self) -> Relation {
        let (mut narrower, mut wider) = (true, true);
        let mut pairs = self.segments.iter().zip(&other.segments);
        for (mine, theirs) in &mut pairs {
            match (mine, theirs) {
                (Segment::Word(a), Segment::Word(b)) if a != b => return Relation::Apart,
                (Segment::Word(_), Segment::Word(_)) | (Segment::One, Segment::One) => {}
                // Whatever follows, one or more segments are all it needs.
                (Segment::Rest, Segment::Rest) => break,
                (Segment::Word(_), Segment::One) => wider = false,
                (Segment::One, Segment::Word(_)) => narrower = false,
                (Segment::Word(_) | Segment::One, Segment::Rest) => {
                    wider = false;
                    return relation((narrower, wider));
                }
                (Segment::Rest, Segment::Word(_) | Segment::One) => {
                    narrower = false;
                    return relation((narrower, wider));
                }
            }
        }
        if self.segments.len() != other.segments.len() {
            return Relation::Apart;
        }
        relation((narrower, wider))
    }
}

/// Combines whether the first may match less, and whether it may match more.
const fn relation(narrower_and_wider: (bool, bool)) -> Relation {
    match narrower_and_wider {
        (true, true) => Relation::Same,
        (true, false) => Relation::Narrower,
        (false, true) => Relation::Wider,
        (false, false) => Relation::Ambiguous,
    }
}

impl fmt::Display for EventPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_claim_types() {
        #[rustfmt::skip]
        let cases = [
            ("the name itself",             "todo.task.created",  "todo.task.created",         true),
            ("another name",                "todo.task.created",  "todo.task.deleted",         false),
            ("a longer name",               "todo.task",          "todo.task.created",         false),
            ("a star at the end",           "todo.task.*",        "todo.task.created",         true),
            ("a star at the end takes all", "github.*",           "github.pull_request.opened", true),
            ("but not nothing",             "todo.task.*",        "todo.task",                 false),
            ("a star in the middle",        "todo.*.created",     "todo.task.created",         true),
            ("takes one segment",           "todo.*.created",     "todo.a.b.created",          false),
            ("a star alone",                "*",                  "a.b.c",                     true),
        ];
        for (name, pattern, event_type, expected) in cases {
            assert_eq!(EventPattern::parse(pattern).unwrap().matches(event_type), expected, "{name}");
        }
    }

    #[test]
    fn patterns_relate() {
        #[rustfmt::skip]
        let cases = [
            ("a name and its pattern",    "a.b",     "a.*",     Relation::Narrower),
            ("the other way round",       "a.*",     "a.b",     Relation::Wider),
            ("the same",                  "a.*.c",   "a.*.c",   Relation::Same),
            ("two names",                 "a.b",     "a.c",     Relation::Apart),
            ("different lengths",         "a.*.c",   "a.b",     Relation::Apart),
            ("neither is narrower",       "a.*.c",   "a.b.*",   Relation::Ambiguous),
            ("within everything",         "a.*",     "*",       Relation::Narrower),
            ("crossing stars",            "*.b",     "a.*",     Relation::Ambiguous),
            ("a tail within a tail",      "a.b.*",   "a.*",     Relation::Narrower),
        ];
        for (name, one, other, expected) in cases {
            let parse = |text| EventPattern::parse(text).unwrap();
            assert_eq!(parse(one).relation(&parse(other)), expected, "{name}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", ".", "a..b", "a.", "a b", "a*", "a.**", "{type}"] {
            assert!(EventPattern::parse(text).is_err(), "{text:?}");
        }
        assert!(EventPattern::parse(&vec!["a"; 33].join(".")).is_err());
    }

    proptest! {
        #[test]
        fn a_type_is_what_an_exact_pattern_is(text in "[a-zé/:_ .*-]{0,8}|(a\\.){0,40}a|a{250,260}") {
            let exact = EventPattern::parse(&text).is_ok_and(|pattern| pattern.is_exact());
            prop_assert_eq!(check_type(&text).is_ok(), exact);
        }

        #[test]
        fn the_relation_agrees_with_what_is_claimed(one in "([ab*]\\.){0,3}[ab*]", other in "([ab*]\\.){0,3}[ab*]", event in "([ab]\\.){0,4}[ab]") {
            let one = EventPattern::parse(&one).unwrap();
            let other = EventPattern::parse(&other).unwrap();
            let both = (one.matches(&event), other.matches(&event));
            match one.relation(&other) {
                Relation::Same => prop_assert_eq!(both.0, both.1),
                Relation::Narrower => {
                    prop_assert!(!both.0 || both.1);
                    prop_assert!(one.specificity() > other.specificity());
                }
                Relation::Wider => prop_assert!(both.0 || !both.1),
                Relation::Apart => prop_assert!(!(both.0 && both.1)),
                Relation::Ambiguous => {}
            }
        }
    }
}
