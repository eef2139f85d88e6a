//! Puts a part of a book into a whole one, as a person would: keys replace keys, a row of `events` is found by its
//! type, and other lists grow. The result is JSON, which is YAML too.

use super::problem::Problems;
use super::yaml::{self, Node, Quoted, Value};

/// The text of the book with the part in it; what is wrong, if one of them is no YAML.
pub fn laid_over(book: &str, part: &str) -> Result<String, Problems> {
    let (mut book, part) = (parsed(book)?, parsed(part)?);
    merge(&mut book, part);
    Ok(book.written())
}

enum Part {
    Value(String),
    Map(Vec<(String, Part)>),
    List(Vec<Part>),
}

fn parsed(text: &str) -> Result<Part, Problems> {
    let mut problems = Problems::default();
    let node = yaml::read(text, &mut problems);
    if let Some(node) = &node {
        yaml::check_keys(node, &mut problems);
    }
    match node {
        Some(node) if !problems.has_errors() => Ok(Part::of(&node)),
        Some(_) | None => Err(problems),
    }
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
