//! Templates that make an event's type, subject or session from a message, such as
//! `github.{header.x-github-event}.{data.action}`.
//!
//! A placeholder names a header (`{header.x-name}`) or a field of the JSON data (`{data.a.b}`), or alternatives
//! separated by `|`, of which the first with a value counts. A value is a text, a number as written, `true` or
//! `false`; an empty text, `null`, an object and a list count as absent. Without a value:
//!
//! - a **type** loses the segment with its dot. Characters that types do not allow become `_`, since the sender
//!   may not send again. Dots of a value separate segments only at the end, as in `stripe.{data.type}`; elsewhere
//!   they become `_`, so that a sender who can name a repository cannot move later segments and choose who gets
//!   the event;
//! - an **id, subject or session** is left out: half a key would tie unrelated events together.
//!
//! Invariant: filling in never fails. The attribute's own type checks the length of the result.

mod selection;

use std::fmt;

pub(crate) use self::selection::JsonKey;
pub use self::selection::{FieldSelection, SelectedFields};
use super::pattern;
use crate::limits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTemplate {
    pieces: Vec<TemplatePiece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    FirstOf(Vec<TemplateField>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplateField {
    Header(String),
    Data(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSourceTemplate {
    #[error("a template cannot be empty")]
    Empty,
    #[error("unmatched `{{` or `}}` in `{text}`")]
    Unpaired { text: String },
    #[error(
        "unknown placeholder `{{{placeholder}}}`: write {{header.x-name}} or {{data.field}}, or alternatives separated by |"
    )]
    Unknown { placeholder: String },
    #[error("`{{{placeholder}}}` is nested more than {} fields deep", limits::DATA_PATH_WORDS_MAX)]
    TooDeep { placeholder: String },
}

/// What fills the placeholders.
pub trait TemplateInput {
    /// The name is in lower case.
    fn header(&self, name: &str) -> Option<&str>;
    /// The JSON field at this path.
    fn data(&self, path: &[String]) -> Option<&str>;
}

impl SourceTemplate {
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
            let froms =
                inside.split('|').map(|from| TemplateField::parse(from.trim())).collect::<Option<Vec<_>>>();
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

    /// `None` if there is anything to fill in.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [TemplatePiece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Paths of all data fields it reads.
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

    /// `None` if a placeholder has no value.
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

    /// Drops segments whose placeholder has no value; `None` if nothing remains.
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

fn value_of<'a>(froms: &[TemplateField], material: &'a dyn TemplateInput) -> Option<&'a str> {
    let values = froms.iter().map(|from| match from {
        TemplateField::Header(name) => material.header(name),
        TemplateField::Data(path) => material.data(path),
    });
    values.flatten().find(|value| !value.is_empty())
}

/// Maps a value to the characters of one segment; empty if none remain.
fn as_part_of_one(value: &str) -> String {
    as_segments(value).replace('.', "_")
}

/// Maps a value to the characters of event types, without empty segments.
fn as_segments(value: &str) -> String {
    let words = value.split('.').filter(|word| !word.is_empty());
    let fitting = words.map(|word| word.replace(|c: char| !pattern::is_of_a_word(c), "_"));
    fitting.collect::<Vec<_>>().join(".")
}

/// An event type under construction.
#[derive(Default)]
struct Segments {
    whole: String,
    /// What follows the last literal dot of the template.
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
