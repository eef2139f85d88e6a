//! Templates that make an event's type, subject or session out of what came in, such as
//! `github.{header.x-github-event}.{data.action}`.
//!
//! A placeholder names a header (`{header.x-name}`) or a field of the JSON data (`{data.a.b}`), or
//! several with `|` between them, of which the first that has a value counts.
//!
//! A value is a text, a number as it is written, `true` or `false`; an empty text, `null`, an object and a
//! list are as good as nothing. What follows on a placeholder without a value depends on what is made:
//!
//! - of a **type** the segment that it stands in drops, with its dot. Each character that no type has becomes
//!   `_`, since an event is worth more than the letters of its type, and its sender may not send it again.
//!   Dots of a value part segments where nothing follows on it, as in `stripe.{data.type}`. Anywhere else they
//!   become `_` too: whoever may name a repository must not move what comes after it to another place, and so
//!   choose who gets the event;
//! - of an **id, a subject or a session** nothing remains: half of a key would tie together what has nothing
//!   to do with each other.
//!
//! Invariant: filling in never fails. Whether what it made is short enough, the attribute's own type says.

mod selection;

use std::fmt;

pub use self::selection::{SelectedFields, FieldSelection};
use super::pattern;
use crate::limits;

/// A template, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTemplate {
    pieces: Vec<TemplatePiece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    /// The first of these that has a value.
    FirstOf(Vec<TemplateField>),
}

/// Where a placeholder's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplateField {
    Header(String),
    Data(Vec<String>),
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSourceTemplate {
    /// Nothing there.
    #[error("a template cannot be empty")]
    Empty,
    /// A brace without its partner.
    #[error("unmatched `{{` or `}}` in `{text}`")]
    Unpaired {
        /// The template.
        text: String,
    },
    /// A placeholder that leads nowhere.
    #[error(
        "unknown placeholder `{{{placeholder}}}`: write {{header.x-name}} or {{data.field}}, or alternatives separated by |"
    )]
    Unknown {
        /// What stands between the braces.
        placeholder: String,
    },
    /// A path that leads too deep.
    #[error("`{{{placeholder}}}` is nested more than {} fields deep", limits::DATA_PATH_WORDS_MAX)]
    TooDeep {
        /// What stands between the braces.
        placeholder: String,
    },
}

/// What came in: where placeholders find their values.
pub trait TemplateInput {
    /// The header of that name, which is in lower case.
    fn header(&self, name: &str) -> Option<&str>;
    /// The field of the JSON data at the end of that path.
    fn data(&self, path: &[String]) -> Option<&str>;
}

impl SourceTemplate {
    /// Reads a template.
    pub fn parse(text: &str) -> Result<Self, InvalidSourceTemplate> {
        if text.is_empty() {
            return Err(InvalidSourceTemplate::Empty);
        }
        let unpaired = || InvalidSourceTemplate::Unpaired { text: text.to_owned() };
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(brace) = rest.find(['{', '}']) {
            let (before, after) = rest.split_at(brace);
            if !before.is_empty() {
                pieces.push(TemplatePiece::Text(before.to_owned()));
            }
            let after = after.strip_prefix('{').ok_or_else(unpaired)?;
            let (inside, tail) = after.split_once('}').ok_or_else(unpaired)?;
            let unknown = || InvalidSourceTemplate::Unknown { placeholder: inside.to_owned() };
            let froms = inside.split('|').map(|from| TemplateField::parse(from.trim())).collect::<Option<Vec<_>>>();
            let froms = froms.ok_or_else(unknown)?;
            if froms.iter().any(TemplateField::is_too_deep) {
                return Err(InvalidSourceTemplate::TooDeep { placeholder: inside.to_owned() });
            }
            pieces.push(TemplatePiece::FirstOf(froms));
            rest = tail;
        }
        if !rest.is_empty() {
            pieces.push(TemplatePiece::Text(rest.to_owned()));
        }
        Ok(Self { pieces })
    }

    /// The texts between the placeholders.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Text(text) => Some(text.as_str()),
            TemplatePiece::FirstOf(_) => None,
        })
    }

    /// The text, if there is nothing to fill in.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [TemplatePiece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The paths of all fields of the data that it looks at.
    pub fn data_paths(&self) -> impl Iterator<Item = &[String]> {
        let froms = self.pieces.iter().flat_map(|piece| match piece {
            TemplatePiece::Text(_) => [].iter(),
            TemplatePiece::FirstOf(froms) => froms.iter(),
        });
        froms.filter_map(|from| match from {
            TemplateField::Header(_) => None,
            TemplateField::Data(path) => Some(path.as_slice()),
        })
    }

    /// The text with everything filled in; none if a placeholder has no value.
    #[must_use]
    pub fn fill(&self, material: &dyn TemplateInput) -> Option<String> {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => filled.push_str(text),
                TemplatePiece::FirstOf(froms) => filled.push_str(value_of(froms, material)?),
            }
        }
        Some(filled)
    }

    /// The event type that it makes, without the segments that have a placeholder without a value; none if
    /// nothing remains.
    #[must_use]
    pub fn fill_type(&self, material: &dyn TemplateInput) -> Option<String> {
        let mut made = Segments::default();
        let mut pieces = self.pieces.iter().peekable();
        while let Some(piece) = pieces.next() {
            let is_last = pieces.peek().is_none();
            match piece {
                TemplatePiece::Text(text) => made.add(text),
                TemplatePiece::FirstOf(froms) => {
                    let fit = if is_last { as_segments } else { as_part_of_one };
                    match value_of(froms, material).map(fit) {
                        Some(value) if !value.is_empty() => made.add(&value),
                        Some(_) | None => made.lacks_a_value(),
                    }
                }
            }
        }
        made.finish()
    }
}

/// The value of the first that has one.
fn value_of<'a>(froms: &[TemplateField], material: &'a dyn TemplateInput) -> Option<&'a str> {
    let values = froms.iter().map(|from| match from {
        TemplateField::Header(name) => material.header(name),
        TemplateField::Data(path) => material.data(path),
    });
    values.flatten().find(|value| !value.is_empty())
}

/// A value in the characters that a segment of a type has; nothing if it has none of its own.
fn as_part_of_one(value: &str) -> String {
    as_segments(value).replace('.', "_")
}

/// A value in the characters that types have, without segments that are empty.
fn as_segments(value: &str) -> String {
    let words = value.split('.').filter(|word| !word.is_empty());
    let fitting = words.map(|word| word.replace(|c: char| !pattern::is_of_a_word(c), "_"));
    fitting.collect::<Vec<_>>().join(".")
}

/// A type in the making, segment by segment.
#[derive(Default)]
struct Segments {
    whole: String,
    /// What comes after the last dot of the template's own.
    last: String,
    last_lacks_a_value: bool,
}

impl Segments {
    fn add(&mut self, text: &str) {
        let mut words = text.split('.');
        self.last.push_str(words.next().unwrap_or_default());
        for word in words {
            self.end_segment();
            self.last.push_str(word);
        }
    }

    fn lacks_a_value(&mut self) {
        self.last_lacks_a_value = true;
    }

    fn end_segment(&mut self) {
        let lacks_a_value = std::mem::take(&mut self.last_lacks_a_value);
        let last = std::mem::take(&mut self.last);
        if lacks_a_value || last.is_empty() {
            return;
        }
        if !self.whole.is_empty() {
            self.whole.push('.');
        }
        self.whole.push_str(&last);
    }

    fn finish(mut self) -> Option<String> {
        self.end_segment();
        (!self.whole.is_empty()).then_some(self.whole)
    }
}

impl TemplateField {
    fn parse(text: &str) -> Option<Self> {
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
        };
        if let Some(name) = text.strip_prefix("header.") {
            return is_word(name).then(|| Self::Header(name.to_ascii_lowercase()));
        }
        let path: Vec<String> = text.strip_prefix("data.")?.split('.').map(str::to_owned).collect();
        path.iter().all(|word| is_word(word)).then_some(Self::Data(path))
    }

    fn is_too_deep(&self) -> bool {
        match self {
            Self::Header(_) => false,
            Self::Data(path) => path.len() > limits::DATA_PATH_WORDS_MAX,
        }
    }
}

impl fmt::Display for SourceTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => f.write_str(text)?,
                TemplatePiece::FirstOf(froms) => {
                    let shown = froms.iter().map(|from| match from {
                        TemplateField::Header(name) => format!("header.{name}"),
                        TemplateField::Data(path) => format!("data.{}", path.join(".")),
                    });
                    write!(f, "{{{}}}", shown.collect::<Vec<_>>().join("|"))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_read_and_shown() {
        for text in [
            "report.daily",
            "github.{header.x-github-event}.{data.action}",
            "{data.repository.full_name}#{data.pull_request.number|data.issue.number}",
        ] {
            assert_eq!(SourceTemplate::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(SourceTemplate::parse("report.daily").unwrap().literal(), Some("report.daily"));
        assert_eq!(SourceTemplate::parse("a.{data.b}").unwrap().literal(), None);
    }

    #[test]
    fn what_leads_nowhere_is_refused() {
        for text in [
            "github.{",
            "github.}",
            "{}",
            "{event}",
            "{foo.bar}",
            "{data.}",
            "{data.a..b}",
            "{header.}",
            "{data.a|}",
            "{{data.a}}",
        ] {
            assert!(SourceTemplate::parse(text).is_err(), "{text}");
        }
        let path = |words: usize| format!("{{data{}}}", ".a".repeat(words));
        assert!(SourceTemplate::parse(&path(limits::DATA_PATH_WORDS_MAX)).is_ok());
        assert!(SourceTemplate::parse(&path(limits::DATA_PATH_WORDS_MAX + 1)).is_err());
    }

    /// A call with a few headers and its JSON.
    struct Call<'a> {
        headers: &'a [(&'a str, &'a str)],
        data: SelectedFields<'a>,
    }

    impl TemplateInput for Call<'_> {
        fn header(&self, name: &str) -> Option<&str> {
            self.headers.iter().find(|(one, _)| *one == name).map(|(_, value)| *value)
        }

        fn data(&self, path: &[String]) -> Option<&str> {
            self.data.get(path)
        }
    }

    fn call<'a>(template: &SourceTemplate, headers: &'a [(&'a str, &'a str)], body: &'a str) -> Call<'a> {
        let mut wanted = FieldSelection::default();
        template.data_paths().for_each(|path| wanted.add(path));
        Call { headers, data: wanted.pick(body.as_bytes()).expect("the body is JSON") }
    }

    #[test]
    fn types_are_made_of_the_segments_that_have_a_value() {
        let github = "github.{header.x-github-event}.{data.action}";
        #[rustfmt::skip]
        let cases = [
            ("all there",                      github,                       r#"{"action":"opened"}"#,         Some("github.push.opened")),
            ("no action",                      github,                       "{}",                             Some("github.push")),
            ("an empty action",                github,                       r#"{"action":""}"#,               Some("github.push")),
            ("null",                           github,                       r#"{"action":null}"#,             Some("github.push")),
            ("a list",                         github,                       r#"{"action":["a"]}"#,            Some("github.push")),
            ("an object",                      github,                       r#"{"action":{"a":1}}"#,          Some("github.push")),
            ("a number",                       github,                       r#"{"action":7}"#,                Some("github.push.7")),
            ("a truth",                        github,                       r#"{"action":true}"#,             Some("github.push.true")),
            ("a missing one in the middle",    "a.{data.b}.c",               "{}",                             Some("a.c")),
            ("a missing one to begin with",    "{data.b}.c",                 "{}",                             Some("c")),
            ("a segment that lacks a part",    "a.b-{data.b}-c.d",           "{}",                             Some("a.d")),
            ("a part of a segment",            "a.b-{data.b}-c.d",           r#"{"b":"x"}"#,                   Some("a.b-x-c.d")),
            ("dots of a value",                "stripe.{data.type}",         r#"{"type":"charge.failed"}"#,    Some("stripe.charge.failed")),
            ("too many of them",               "stripe.{data.type}",         r#"{"type":"..a...b."}"#,         Some("stripe.a.b")),
            ("nothing but dots",               "stripe.{data.type}",         r#"{"type":"..."}"#,              Some("stripe")),
            ("dots before something",          "a.{data.b}.c",               r#"{"b":"x.y..z."}"#,             Some("a.x_y_z.c")),
            ("dots within a segment",          "a.{data.b}-c",               r#"{"b":"x.y"}"#,                 Some("a.x_y-c")),
            ("dots before what is missing",    "a.{data.b}.{data.c}",        r#"{"b":"x.y"}"#,                 Some("a.x_y")),
            ("nothing but dots before one",    "a.{data.b}.c",               r#"{"b":"..."}"#,                 Some("a.c")),
            ("characters that types lack",     "a.{data.b}",                 r#"{"b":"x y*\u0000é{"}"#,       Some("a.x_y__é_")),
            ("numbers as they are written",    "a.{data.b}",                 r#"{"b":1.50e2}"#,                Some("a.1.50e2")),
            ("the first that has a value",     "a.{data.b|data.c|header.x-github-event}", r#"{"c":"x"}"#,      Some("a.x")),
            ("and a header at last",           "a.{data.b|data.c|header.x-github-event}", "{}",                Some("a.push")),
            ("nothing at all",                 "{data.b}.{data.c}",          "{}",                             None),
        ];
        for (name, template, body, expected) in cases {
            let template = SourceTemplate::parse(template).expect(name);
            let made = template.fill_type(&call(&template, &[("x-github-event", "push")], body));
            assert_eq!(made.as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn keys_are_whole_or_not_there() {
        let pull = "{data.repository.full_name}#{data.pull_request.number|data.issue.number}";
        #[rustfmt::skip]
        let cases = [
            ("the first",          pull, r#"{"repository":{"full_name":"a/b"},"pull_request":{"number":1},"issue":{"number":2}}"#, Some("a/b#1")),
            ("the second",         pull, r#"{"repository":{"full_name":"a/b"},"issue":{"number":2}}"#,                             Some("a/b#2")),
            ("half of it",         pull, r#"{"repository":{"full_name":"a/b"}}"#,                                                  None),
            ("a large number",     "{data.n}", r#"{"n":12345678901234567890123}"#,                                                 Some("12345678901234567890123")),
            ("no path through it", "{data.a.b}", r#"{"a":[{"b":1}]}"#,                                                             None),
            ("any characters",     "{data.a}", r#"{"a":"x y*"}"#,                                                                  Some("x y*")),
            ("nothing to fill in", "fixed", "[]",                                                                                  Some("fixed")),
        ];
        for (name, template, body, expected) in cases {
            let template = SourceTemplate::parse(template).expect(name);
            assert_eq!(template.fill(&call(&template, &[], body)).as_deref(), expected, "{name}");
        }
    }
}
