//! Puts a change into a book as a person would: keys replace keys, a row of `events` is found by its type, and
//! other lists grow. The result is JSON, which is YAML too.

use crate::book::problem::Problems;
use crate::book::yaml::{self, Node, Quoted, Value};

/// The book with the change in it.
pub(super) fn merged(book: &str, change: &str) -> String {
    let (mut book, change) = (parsed(book), parsed(change));
    merge(&mut book, change);
    book.written()
}

enum Part {
    Value(String),
    Map(Vec<(String, Part)>),
    List(Vec<Part>),
}

fn parsed(text: &str) -> Part {
    let mut problems = Problems::default();
    let node = yaml::read(text, &mut problems).unwrap_or_else(|| panic!("{text}\n{problems:?}"));
    assert!(!problems.has_errors(), "{text}\n{problems:?}");
    Part::of(&node)
}

impl Part {
    fn of(node: &Node) -> Self {
        match &node.value {
            Value::Null | Value::Refused => Self::Value("null".to_owned()),
            Value::Scalar { text, quoted: Quoted::No } => Self::Value(text.to_string()),
            Value::Scalar { text, quoted: Quoted::Yes } => {
                Self::Value(serde_json::Value::from(&**text).to_string())
            }
            Value::Map(entries) => {
                let entry = |(key, value): &(Node, Node)| {
                    (key.text().expect("keys are texts").to_owned(), Self::of(value))
                };
                Self::Map(entries.iter().map(entry).collect())
            }
            Value::List(items) => Self::List(items.iter().map(Self::of).collect()),
        }
    }

    fn written(&self) -> String {
        match self {
            Self::Value(value) => value.clone(),
            Self::Map(entries) => {
                let entry = |(key, value): &(String, Self)| {
                    format!("{}: {}", serde_json::Value::from(key.as_str()), value.written())
                };
                format!("{{ {} }}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
            Self::List(items) => {
                format!("[{}]", items.iter().map(Self::written).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The type of a row of `events`.
    fn event_type(&self) -> Option<&str> {
        match self {
            Self::Value(text) => Some(text.trim_matches('"')),
            Self::Map(entries) => match entries.iter().find(|(key, _)| key == "type") {
                Some((_, Self::Value(text))) => Some(text.trim_matches('"')),
                _ => None,
            },
            Self::List(_) => None,
        }
    }
}

fn merge(part: &mut Part, change: Part) {
    match (part, change) {
        (Part::Map(entries), Part::Map(changes)) => {
            for (key, change) in changes {
                match entries.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, known)) => merge(known, change),
                    None => entries.push((key, change)),
                }
            }
        }
        (Part::List(items), Part::List(changes)) => {
            for change in changes {
                let known = items.iter_mut().find(|item| {
                    matches!(change, Part::Map(_))
                        && item.event_type().is_some()
                        && item.event_type() == change.event_type()
                });
                match known {
                    Some(known) => merge(known, change),
                    None => items.push(change),
                }
            }
        }
        (part, change) => *part = change,
    }
}
