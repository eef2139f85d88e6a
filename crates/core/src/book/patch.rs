//! A change to a rule book: a partial book with only the changed keys.
//!
//! Applying it means the same for people and programs: an existing key gets the new value, a missing key is
//! added; a row of `events` is found by its type, and all other lists grow.

use std::fmt::{self, Display, Write as _};

use super::problem::Problems;
use super::yaml::{self, Quoted, YamlNode, YamlValue};

/// A partial rule book, in the order it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch(PatchNode);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatchNode {
    Value(String),
    /// An unchanged value that must be restated beside a changed one.
    Kept(String),
    Map(Vec<(String, PatchNode)>),
    List(Vec<PatchNode>),
}

/// One step on the path from the root of a book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchStep {
    Key(String),
    /// Into the row with this pattern, below `events`.
    Row(String),
}

#[must_use]
pub fn keys(keys: &[&str]) -> Vec<PatchStep> {
    keys.iter().map(|key| PatchStep::Key((*key).to_owned())).collect()
}

/// The book's text with the part applied; the problems if either is not YAML.
pub fn laid_over(book: &str, part: &str) -> Result<String, Problems> {
    let (mut book, part) = (read(book)?, read(part)?);
    book.merge(part, PatchConflict::Replace).expect("what clashes is replaced");
    Ok(book.to_string())
}

impl Default for Patch {
    fn default() -> Self {
        Self(PatchNode::Map(Vec::new()))
    }
}

impl Patch {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value is YAML on one line.
    #[must_use]
    pub fn set(self, place: &[PatchStep], key: &str, value: impl Display) -> Self {
        self.put(place, key, PatchNode::Value(value.to_string()))
    }

    /// Restates an existing value, which a redefined entry needs.
    #[must_use]
    pub fn keep(self, place: &[PatchStep], key: &str, value: impl Display) -> Self {
        self.put(place, key, PatchNode::Kept(value.to_string()))
    }

    #[must_use]
    pub fn add(self, place: &[PatchStep], key: &str, item: impl Display) -> Self {
        self.put(place, key, PatchNode::List(vec![PatchNode::Value(item.to_string())]))
    }

    fn put(mut self, place: &[PatchStep], key: &str, part: PatchNode) -> Self {
        self.0
            .merge(PatchNode::at(place, key, part), PatchConflict::Replace)
            .expect("what clashes is replaced");
        self
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.merge(other.0, PatchConflict::Replace).expect("what clashes is replaced");
        self
    }

    /// Both patches in one, or the key they disagree about.
    pub fn merged(&self, other: &Self) -> Result<Self, String> {
        let mut all = self.clone();
        all.0.merge(other.0.clone(), PatchConflict::Refuse)?;
        Ok(all)
    }

    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.overlaps(&other.0)
    }
}

/// YAML, one line per value.
impl Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Copy)]
enum PatchConflict {
    Replace,
    Refuse,
}

impl PatchNode {
    fn at(place: &[PatchStep], key: &str, part: Self) -> Self {
        match place {
            [] => Self::Map(vec![(key.to_owned(), part)]),
            [PatchStep::Key(name), rest @ ..] => Self::Map(vec![(name.clone(), Self::at(rest, key, part))]),
            [PatchStep::Row(pattern), rest @ ..] => {
                let mut row = Self::Map(vec![("type".to_owned(), Self::Value(scalar(pattern)))]);
                row.merge(Self::at(rest, key, part), PatchConflict::Replace)
                    .expect("what clashes is replaced");
                Self::List(vec![row])
            }
        }
    }

    /// Merges a change, or returns the conflicting key.
    fn merge(&mut self, change: Self, clash: PatchConflict) -> Result<(), String> {
        match (self, change) {
            (Self::Map(entries), Self::Map(changes)) => {
                for (key, change) in changes {
                    let Some((_, known)) = entries.iter_mut().find(|(known, _)| *known == key) else {
                        entries.push((key, change));
                        continue;
                    };
                    // The innermost key names the conflict.
                    known.merge(change, clash).map_err(|inner| if inner.is_empty() { key } else { inner })?;
                }
            }
            (Self::List(items), Self::List(changes)) => {
                for change in changes {
                    match items.iter().position(|item| change.is_row_of(item)) {
                        Some(place) => items[place].merge(change, clash)?,
                        None if items.contains(&change) => {}
                        None => items.push(change),
                    }
                }
            }
            (Self::Value(_), Self::Kept(_)) => {}
            (known @ Self::Kept(_), change @ Self::Value(_)) => *known = change,
            (known, change) if *known == change => {}
            (known, change) => match clash {
                PatchConflict::Replace => *known = change,
                PatchConflict::Refuse => return Err(String::new()),
            },
        }
        Ok(())
    }

    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Map(one), Self::Map(other)) => one.iter().any(|(key, part)| {
                // The `type` only identifies a row.
                let same = other.iter().find(|(known, _)| known == key && key != "type");
                same.is_some_and(|(_, other)| part.overlaps(other))
            }),
            (Self::List(one), Self::List(other)) if one.iter().chain(other).all(Self::is_map) => {
                one.iter().any(|row| other.iter().any(|other| row.is_row_of(other) && row.overlaps(other)))
            }
            _ => true,
        }
    }

    const fn is_map(&self) -> bool {
        matches!(self, Self::Map(_))
    }

    /// Whether both are the same row of `events`.
    fn is_row_of(&self, row: &Self) -> bool {
        self.is_map() && row.event_type().is_some() && row.event_type() == self.event_type()
    }

    fn event_type(&self) -> Option<&str> {
        match self {
            Self::Value(text) | Self::Kept(text) => Some(text.trim_matches('"')),
            Self::Map(entries) => match entries.iter().find(|(key, _)| key == "type") {
                Some((_, Self::Value(text))) => Some(text.trim_matches('"')),
                _ => None,
            },
            Self::List(_) => None,
        }
    }
}

fn read(text: &str) -> Result<PatchNode, Problems> {
    let mut problems = Problems::default();
    let node = yaml::read(text, &mut problems);
    if let Some(node) = &node {
        yaml::check_keys(node, &mut problems);
    }
    match node {
        Some(node) if !problems.has_errors() => Ok(PatchNode::of(&node)),
        Some(_) | None => Err(problems),
    }
}

impl PatchNode {
    fn of(node: &YamlNode) -> Self {
        match &node.value {
            YamlValue::Null | YamlValue::Refused => Self::Value("null".to_owned()),
            YamlValue::Scalar { text, quoted: Quoted::No } if is_plain(text) => Self::Value(text.to_string()),
            YamlValue::Scalar { text, .. } => Self::Value(serde_json::Value::from(&**text).to_string()),
            YamlValue::Map(entries) => {
                let entry = |(key, value): &(YamlNode, YamlNode)| {
                    (key.text().expect("keys are texts").to_owned(), Self::of(value))
                };
                Self::Map(entries.iter().map(entry).collect())
            }
            YamlValue::List(items) => Self::List(items.iter().map(Self::of).collect()),
        }
    }

    /// Writes what follows a key or a list dash, indented to the column.
    fn write(&self, out: &mut String, column: usize) {
        match self {
            Self::Map(entries) if !entries.is_empty() => {
                for (at, (key, value)) in entries.iter().enumerate() {
                    if at > 0 {
                        let _ = write!(out, "{:column$}", "");
                    }
                    let _ = write!(out, "{}:", key_text(key));
                    value.write_inside(out, column);
                }
            }
            Self::List(items) if !items.is_empty() => {
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        let _ = write!(out, "{:column$}", "");
                    }
                    out.push_str("- ");
                    item.write(out, column + 2);
                }
            }
            Self::Map(_) => out.push_str("{}\n"),
            Self::List(_) => out.push_str("[]\n"),
            Self::Value(value) | Self::Kept(value) => {
                let _ = writeln!(out, "{value}");
            }
        }
    }

    /// On the same line as its key, or indented below it.
    fn write_inside(&self, out: &mut String, column: usize) {
        let is_below = match self {
            Self::Map(entries) => !entries.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Value(_) | Self::Kept(_) => false,
        };
        if is_below {
            let _ = write!(out, "\n{:1$}", "", column + 2);
        } else {
            out.push(' ');
        }
        self.write(out, column + 2);
    }
}

impl Display for PatchNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text, 0);
        f.write_str(&text)
    }
}

/// Whether an unquoted text means the same elsewhere. Otherwise quoting would turn a number or keyword into
/// text.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || " ._/%+-".contains(c))
}

/// Words that some YAML versions do not read as text.
const WORDS: [&str; 10] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan"];

#[must_use]
pub fn scalar(text: &str) -> String {
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins_well && has_plain_chars(text) && !WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(quoted, "\\{c}"),
            ' '..='~' => write!(quoted, "{c}"),
            '\u{ffff}'.. => write!(quoted, "\\U{:08x}", u32::from(c)),
            _ => write!(quoted, "\\u{:04x}", u32::from(c)),
        };
    }
    quoted.push('"');
    quoted
}

fn key_text(text: &str) -> String {
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if begins_well && has_plain_chars(text) { text.to_owned() } else { scalar(text) }
}

fn has_plain_chars(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_part_is_put_into_a_whole() {
        #[rustfmt::skip]
        let cases = [
            ("a key is added",          "a: 1",                          "b: 2",               "a: 1\nb: 2\n"),
            ("and replaced",            "a: 1",                          "a: 20%",             "a: 20%\n"),
            ("deep inside",             "a: { b: 1s, c: x }",            "a: { b: 2s }",       "a:\n  b: 2s\n  c: x\n"),
            ("a list grows",            "a: [x]",                        "a: [y]",             "a:\n  - x\n  - y\n"),
            ("a row has its type",      "events: [{ type: o.p, x: 1 }]", "events: [{ type: o.p, x: 2 }]", "events:\n  - type: o.p\n    x: 2\n"),
            ("commas and braces",       "a: Orders, and more {x}",       "b: 2",               "a: \"Orders, and more {x}\"\nb: 2\n"),
            ("a colon, and a sharp",    "a: http://h:1/#x",              "b: 2",               "a: \"http://h:1/#x\"\nb: 2\n"),
            ("quotes within",           "a: say \"no\"",                 "b: 2",               "a: \"say \\\"no\\\"\"\nb: 2\n"),
            ("several lines",           "a: |\n  one\n  two\n",          "b: 2",               "a: \"one\\ntwo\\n\"\nb: 2\n"),
            ("a number in quotes",      "a: \"1\"",                      "b: ~",               "a: \"1\"\nb: null\n"),
            ("what is empty",           "a: {}",                         "b: []",              "a: {}\nb: []\n"),
            ("lists in lists",          "a: [[x, y], [z]]",              "b: [{ c: [1] }]",    "a:\n  - - x\n    - y\n  - - z\nb:\n  - c:\n      - 1\n"),
        ];
        for (name, book, part, expected) in cases {
            let whole = laid_over(book, part).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
            assert_eq!(whole, expected, "{name}");
            assert!(
                read(&whole).is_ok_and(|again| again.to_string() == whole),
                "{name}: it is read as it is written"
            );
        }
    }

    #[test]
    fn what_yaml_would_mistake_stands_in_quotes() {
        #[rustfmt::skip]
        let cases = [
            ("a plain name",      "pubsub-kafka",          "pubsub-kafka"),
            ("a bool",            "true",                  "\"true\""),
            ("a bool of old",     "Yes",                   "\"Yes\""),
            ("nothing",           "null",                  "\"null\""),
            ("a number",          "1",                     "\"1\""),
            ("an address",        "https://example.com/a", "\"https://example.com/a\""),
            ("no text",           "",                      "\"\""),
            ("a quote",           "a\"b\\",                "\"a\\\"b\\\\\""),
            ("a line break",      "a\nb",                  "\"a\\u000ab\""),
            ("far from ASCII",    "🦀",                    "\"\\U0001f980\""),
        ];
        for (name, text, expected) in cases {
            assert_eq!(scalar(text), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_back(text in any::<String>()) {
            let mut problems = Problems::default();
            let node = yaml::read(&format!("{}: {0}\n", scalar(&text)), &mut problems).expect("a map");
            let [(key, value)] = node.entries() else { panic!("one entry") };
            prop_assert_eq!(key.text(), Some(text.as_str()));
            prop_assert_eq!(value.text(), Some(text.as_str()));
        }
    }
}
