//! Templates for the names of dead-letter queues, such as `_{service}.deadletter[.{channel}]`.
//!
//! Invariant: a template that parses renders for every delivery that has the parts outside its brackets;
//! square brackets are dropped, whole, when a part inside them has no value.

use std::fmt;

use crate::ids::{ChannelName, ServiceName};

pub const DEFAULT: &str = "_{service}.deadletter[.{channel}]";

/// The name of a queue that no rule book has.
#[must_use]
pub fn default_name(service: &ServiceName, channel: Option<&ChannelName>) -> String {
    let parts = NameParts { service, channel, queue: None, stage: None, event: None };
    NameTemplate::default().render(&parts).expect("a service is all that it needs")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placeholder {
    Service,
    Channel,
    Queue,
    Stage,
    Event,
}

impl Placeholder {
    pub const ALL: [Self; 5] = [Self::Service, Self::Channel, Self::Queue, Self::Stage, Self::Event];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Channel => "channel",
            Self::Queue => "queue",
            Self::Stage => "stage",
            Self::Event => "event",
        }
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.as_str())
    }
}

#[derive(Clone, Copy, Debug)]
pub struct NameParts<'a> {
    pub service: &'a ServiceName,
    pub channel: Option<&'a ChannelName>,
    pub queue: Option<&'a str>,
    pub stage: Option<&'a str>,
    pub event: Option<&'a str>,
}

impl<'a> NameParts<'a> {
    fn value(&self, placeholder: Placeholder) -> Option<&'a str> {
        let value = match placeholder {
            Placeholder::Service => Some(self.service.as_str()),
            Placeholder::Channel => self.channel.map(ChannelName::as_str),
            Placeholder::Queue => self.queue,
            Placeholder::Stage => self.stage,
            Placeholder::Event => self.event,
        };
        value.filter(|text| !text.is_empty())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameTemplate {
    text: String,
    sections: Vec<Section>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Section {
    Always(Vec<TemplatePiece>),
    IfKnown(Vec<TemplatePiece>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Value(Placeholder),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    #[error("a name template cannot be empty")]
    Empty,
    #[error("`{{{name}}}` is not a placeholder: use {known}", known = known())]
    UnknownPlaceholder { name: String },
    #[error("unmatched `{mark}` at character {column}")]
    Unpaired {
        mark: char,
        /// From 1.
        column: usize,
    },
    #[error("`[` at character {column} is inside other brackets: brackets cannot be nested")]
    Nested { column: usize },
    #[error("`[{inside}]` has no placeholder: remove the brackets")]
    NeverDrops { inside: String },
}

fn known() -> String {
    Placeholder::ALL.map(|placeholder| format!("`{placeholder}`")).join(", ")
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name template `{template}` needs `{placeholder}`, which this delivery does not have")]
pub struct MissingPart {
    pub template: String,
    pub placeholder: Placeholder,
}

impl NameTemplate {
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        if text.is_empty() {
            return Err(InvalidTemplate::Empty);
        }
        let mut sections = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            if let Some(after) = rest.strip_prefix('[') {
                let inside = bracketed(text, at, after)?;
                sections.push(Section::IfKnown(pieces(text, at + 1, inside)?));
                at += inside.len() + "[]".len();
            } else {
                let plain = &rest[..rest.find(['[', ']']).unwrap_or(rest.len())];
                if plain.is_empty() {
                    return Err(unpaired(text, at));
                }
                sections.push(Section::Always(pieces(text, at, plain)?));
                at += plain.len();
            }
        }
        Ok(Self { text: text.to_owned(), sections })
    }

    pub fn render(&self, parts: &NameParts<'_>) -> Result<String, MissingPart> {
        let mut name = String::new();
        for section in &self.sections {
            match section {
                Section::Always(pieces) => {
                    let missing = |placeholder| MissingPart { template: self.text.clone(), placeholder };
                    name.push_str(&filled_in(pieces, parts).map_err(missing)?);
                }
                Section::IfKnown(pieces) => name.push_str(&filled_in(pieces, parts).unwrap_or_default()),
            }
        }
        Ok(name)
    }
}

impl Default for NameTemplate {
    fn default() -> Self {
        Self::parse(DEFAULT).expect("the default is a template")
    }
}

impl fmt::Display for NameTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// Fails with the first placeholder that has no value.
fn filled_in(pieces: &[TemplatePiece], parts: &NameParts<'_>) -> Result<String, Placeholder> {
    let texts = pieces.iter().map(|piece| match piece {
        TemplatePiece::Text(text) => Ok(text.as_str()),
        TemplatePiece::Value(placeholder) => parts.value(*placeholder).ok_or(*placeholder),
    });
    texts.collect()
}

fn bracketed<'a>(text: &str, at: usize, after: &'a str) -> Result<&'a str, InvalidTemplate> {
    let inside = &after[..after.find(']').ok_or_else(|| unpaired(text, at))?];
    if let Some(inner) = inside.find('[') {
        return Err(InvalidTemplate::Nested { column: column(text, at + 1 + inner) });
    }
    if !inside.contains('{') {
        return Err(InvalidTemplate::NeverDrops { inside: inside.to_owned() });
    }
    Ok(inside)
}

fn pieces(text: &str, mut at: usize, stretch: &str) -> Result<Vec<TemplatePiece>, InvalidTemplate> {
    let mut pieces = Vec::new();
    let mut rest = stretch;
    while !rest.is_empty() {
        let length = if let Some(after) = rest.strip_prefix('{') {
            let name = &after[..after.find(['{', '}']).unwrap_or(after.len())];
            if !after[name.len()..].starts_with('}') {
                return Err(unpaired(text, at));
            }
            let found = Placeholder::ALL.into_iter().find(|placeholder| placeholder.as_str() == name);
            let unknown = || InvalidTemplate::UnknownPlaceholder { name: name.to_owned() };
            pieces.push(TemplatePiece::Value(found.ok_or_else(unknown)?));
            name.len() + "{}".len()
        } else {
            let plain = &rest[..rest.find(['{', '}']).unwrap_or(rest.len())];
            if plain.is_empty() {
                return Err(unpaired(text, at));
            }
            pieces.push(TemplatePiece::Text(plain.to_owned()));
            plain.len()
        };
        at += length;
        rest = &rest[length..];
    }
    Ok(pieces)
}

fn unpaired(text: &str, at: usize) -> InvalidTemplate {
    let mark = text[at..].chars().next().expect("only called where a brace or bracket stands");
    InvalidTemplate::Unpaired { mark, column: column(text, at) }
}

fn column(text: &str, at: usize) -> usize {
    text[..at].chars().count() + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_conventions_of_all_systems_render() {
        let service = ServiceName::new("notification-svc").expect("a name");
        let email = ChannelName::new("email").expect("a name");
        let bare = NameParts { service: &service, channel: None, queue: None, stage: None, event: None };
        let with_channel = NameParts { channel: Some(&email), ..bare };
        let redis = NameParts { queue: Some("engineering:queue"), ..bare };
        let sqs = NameParts { queue: Some("rez-web-action"), stage: Some("prod"), ..bare };
        let typed = NameParts { event: Some("todo.task.created"), ..with_channel };
        let nameless = NameParts { queue: Some(""), ..bare };
        let missing =
            |template: &str, placeholder| Err(MissingPart { template: template.to_owned(), placeholder });
        #[rustfmt::skip]
        let cases = [
            ("the default",              DEFAULT,                bare,         Ok("_notification-svc.deadletter")),
            ("the default, a channel",   DEFAULT,                with_channel, Ok("_notification-svc.deadletter.email")),
            ("Redis streams",            "{queue}:dlq",          redis,        Ok("engineering:queue:dlq")),
            ("SQS",                      "{queue}-dlq-{stage}",  sqs,          Ok("rez-web-action-dlq-prod")),
            ("no placeholder at all",    "dead",                 bare,         Ok("dead")),
            ("an event type",            "dlq/{event}",          typed,        Ok("dlq/todo.task.created")),
            ("one missing drops both",   "x[.{channel}.{stage}]y", with_channel, Ok("xy")),
            ("two options",              "[{stage}.]x[.{channel}]", with_channel, Ok("x.email")),
            ("another script",           "почта[.{channel}]é",   with_channel, Ok("почта.emailé")),
            ("a queue it does not have", "{queue}:dlq",          bare,         missing("{queue}:dlq", Placeholder::Queue)),
            ("a stage it does not have", "{queue}-dlq-{stage}",  redis,        missing("{queue}-dlq-{stage}", Placeholder::Stage)),
            ("an empty queue is none",   "{queue}:dlq",          nameless,     missing("{queue}:dlq", Placeholder::Queue)),
        ];
        for (name, template, parts, expected) in cases {
            let parsed = NameTemplate::parse(template).expect(name);
            assert_eq!(parsed.render(&parts), expected.map(str::to_owned), "{name}");
            assert_eq!(parsed.to_string(), template, "{name}");
        }
        assert_eq!(NameTemplate::default().to_string(), DEFAULT);
    }

    #[test]
    fn what_is_no_template_is_refused_with_the_reason() {
        #[rustfmt::skip]
        let cases = [
            ("",                    "a name template cannot be empty"),
            ("_{servce}.dead",      "`{servce}` is not a placeholder: use `{service}`, `{channel}`, `{queue}`, `{stage}`, `{event}`"),
            ("{}",                  "`{}` is not a placeholder: use `{service}`, `{channel}`, `{queue}`, `{stage}`, `{event}`"),
            ("{Service}",           "`{Service}` is not a placeholder: use `{service}`, `{channel}`, `{queue}`, `{stage}`, `{event}`"),
            ("a{service",           "unmatched `{` at character 2"),
            ("é}",                  "unmatched `}` at character 2"),
            ("{{service}}",         "unmatched `{` at character 1"),
            ("a[.{channel}",        "unmatched `[` at character 2"),
            ("a.{channel}]",        "unmatched `]` at character 12"),
            ("a[.{channel]}",       "unmatched `{` at character 4"),
            ("{ser[vice}]",         "unmatched `{` at character 1"),
            ("[a[{channel}]]",      "`[` at character 3 is inside other brackets: brackets cannot be nested"),
            ("x[.dead]",            "`[.dead]` has no placeholder: remove the brackets"),
        ];
        for (template, expected) in cases {
            let error = NameTemplate::parse(template).expect_err(template);
            assert_eq!(error.to_string(), expected, "{template}");
        }
    }

    #[test]
    fn a_missing_part_is_named() {
        let service = ServiceName::new("s").expect("a name");
        let parts = NameParts { service: &service, channel: None, queue: None, stage: None, event: None };
        let error = NameTemplate::parse("{queue}:dlq").expect("a template").render(&parts);
        assert_eq!(
            error.expect_err("no queue").to_string(),
            "the name template `{queue}:dlq` needs `{queue}`, which this delivery does not have"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in prop_oneof![any::<String>(), r"([\[\]{}é]|service|queue|x){0,12}"]) {
            if let Ok(template) = NameTemplate::parse(&text) {
                prop_assert_eq!(template.to_string(), text);
            }
        }
    }
}
