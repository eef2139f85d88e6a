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
            Value::Scalar { text, quoted: Quoted::No } if is_plain(text) => Self::Value(text.to_string()),
            Value::Scalar { text, .. } => Self::Value(serde_json::Value::from(&**text).to_string()),
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

/// Whether a text without quotes means the same between braces as in a line of its own. What does not is no number
/// and no other word that quotes would make a text.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || " ._/%+-".contains(c))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_put_into_a_whole() {
        #[rustfmt::skip]
        let cases = [
            ("a key is added",          "a: 1",                          "b: 2",               r#"{ "a": 1, "b": 2 }"#),
            ("and replaced",            "a: 1",                          "a: 20%",             r#"{ "a": 20% }"#),
            ("deep inside",             "a: { b: 1s, c: x }",            "a: { b: 2s }",       r#"{ "a": { "b": 2s, "c": x } }"#),
            ("a list grows",            "a: [x]",                        "a: [y]",             r#"{ "a": [x, y] }"#),
            ("a row has its type",      "events: [{ type: o.p, x: 1 }]", "events: [{ type: o.p, x: 2 }]", r#"{ "events": [{ "type": o.p, "x": 2 }] }"#),
            ("commas and braces",       "a: Orders, and more {x}",       "b: 2",               r#"{ "a": "Orders, and more {x}", "b": 2 }"#),
            ("a colon, and a sharp",    "a: http://h:1/#x",              "b: 2",               r#"{ "a": "http://h:1/#x", "b": 2 }"#),
            ("quotes within",           "a: say \"no\"",                 "b: 2",               r#"{ "a": "say \"no\"", "b": 2 }"#),
            ("several lines",           "a: |\n  one\n  two\n",          "b: 2",               r#"{ "a": "one\ntwo\n", "b": 2 }"#),
            ("a number in quotes",      "a: \"1\"",                      "b: ~",               r#"{ "a": "1", "b": null }"#),
        ];
        for (name, book, part, expected) in cases {
            let whole = laid_over(book, part).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
            assert_eq!(whole, expected, "{name}");
            assert!(
                parsed(&whole).is_ok_and(|again| again.written() == whole),
                "{name}: it is read as it is written"
            );
        }
    }
}
