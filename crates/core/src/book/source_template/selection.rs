//! Picks a few fields out of JSON without parsing the rest into values.
//!
//! Invariants: of a duplicate name the last counts, as for most JSON readers; numbers stay as written, since
//! two large numbers that differ only in their last digits must not become one key.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::event::refusal::InvalidReason;

/// The fields to pick, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelection {
    /// Whether this value is wanted.
    here: bool,
    below: BTreeMap<String, Self>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedFields<'a> {
    value: Option<Cow<'a, str>>,
    below: BTreeMap<String, Self>,
}

impl FieldSelection {
    /// Adds the field at this path.
    pub fn add(&mut self, path: &[String]) {
        let end = path.iter().fold(self, |at, word| at.below.entry(word.clone()).or_default());
        end.here = true;
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.here && self.below.is_empty()
    }

    /// The input must be valid JSON; the fields need not exist.
    pub fn pick<'a>(&self, json: &'a [u8]) -> Result<SelectedFields<'a>, InvalidReason> {
        // Skipped values are not checked for UTF-8 otherwise.
        let text = std::str::from_utf8(json)
            .map_err(|_| InvalidReason::NotJson { message: "not valid UTF-8".to_owned() })?;
        let picked = if text.trim_ascii_start().starts_with('{') {
            self.of_object(text)
        } else {
            serde_json::from_str(text).and_then(|raw| self.of_value(raw))
        };
        picked.map_err(|error| InvalidReason::not_json(&error))
    }

    fn of_value<'a>(&self, raw: &'a RawValue) -> Result<SelectedFields<'a>, serde_json::Error> {
        let text = raw.get();
        let mut picked = SelectedFields::default();
        match text.as_bytes().first() {
            Some(b'{') if !self.below.is_empty() => picked = self.of_object(text)?,
            Some(b'"') if self.here => {
                let JsonKey(value) = serde_json::from_str(text)?;
                picked.value = Some(value);
            }
            Some(b't' | b'f' | b'-' | b'0'..=b'9') if self.here => picked.value = Some(Cow::Borrowed(text)),
            // Null, lists and objects count as absent.
            Some(_) | None => {}
        }
        Ok(picked)
    }

    fn of_object<'a>(&self, text: &'a str) -> Result<SelectedFields<'a>, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let picked = SelectionSeed(self).deserialize(&mut reader)?;
        reader.end()?;
        Ok(picked)
    }
}

impl SelectedFields<'_> {
    /// `None` if it was not selected or does not exist.
    #[must_use]
    pub fn get(&self, path: &[impl AsRef<str>]) -> Option<&str> {
        let end = path.iter().try_fold(self, |at, word| at.below.get(word.as_ref()))?;
        end.value.as_deref()
    }
}

/// Borrowed if nothing is escaped.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct JsonKey<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// Deserializes an object for the selected fields.
struct SelectionSeed<'w>(&'w FieldSelection);

impl<'de> DeserializeSeed<'de> for SelectionSeed<'_> {
    type Value = SelectedFields<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<SelectedFields<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SelectionSeed<'_> {
    type Value = SelectedFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SelectedFields<'de>, A::Error> {
        let mut below = BTreeMap::new();
        while let Some(JsonKey(name)) = map.next_key()? {
            match self.0.below.get(&*name) {
                Some(wanted) => {
                    let picked = wanted.of_value(map.next_value()?).map_err(serde::de::Error::custom)?;
                    below.insert(name.into_owned(), picked);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(SelectedFields { value: None, below })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn what_is_picked_is_what_other_readers_see() {
        let deep = format!("{{\"a\":1,\"x\":{}{}}}", "[".repeat(5_000), "]".repeat(5_000));
        #[rustfmt::skip]
        let cases: [(&str, &str, &str, Option<&str>); 12] = [
            ("a text",                    r#"{"a":"x"}"#,                   "a",   Some("x")),
            ("with escapes",              r#"{"a":"x\n\u00e9"}"#,           "a",   Some("x\né")),
            ("a name with escapes",       r#"{"\u0061":"x"}"#,              "a",   Some("x")),
            ("the last of two",           r#"{"a":1,"a":2}"#,               "a",   Some("2")),
            ("the last of two objects",   r#"{"b":{"c":1},"b":{}}"#,        "b.c", None),
            ("the last one is no value",  r#"{"a":1,"a":null}"#,            "a",   None),
            ("below a field",             r#"{"b":{"c":-1.0}}"#,            "b.c", Some("-1.0")),
            ("the field itself",          r#"{"b":"x"}"#,                   "b",   Some("x")),
            ("a field that is an object", r#"{"b":{"c":1}}"#,               "b",   None),
            ("white space before it",     " \r\n{\"a\":1}\n",               "a",   Some("1")),
            ("no object",                 "[1]",                            "a",   None),
            ("deep things passed over",   &deep,                            "a",   Some("1")),
        ];
        let mut wanted = FieldSelection::default();
        for text in ["a", "b", "b.c"] {
            wanted.add(&path(text));
        }
        for (name, json, at, expected) in cases {
            assert_eq!(wanted.pick(json.as_bytes()).expect(name).get(&path(at)), expected, "{name}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused_wherever_it_is_wrong() {
        #[rustfmt::skip]
        let cases: [(&str, &[u8]); 8] = [
            ("nothing",                b""),
            ("a form",                 b"payload=%7B%7D"),
            ("cut short",              br#"{"a":1"#),
            ("more behind it",         br#"{"a":1} 2"#),
            ("wrong in what we skip",  br#"{"x":[1,,2],"a":1}"#),
            ("wrong in what we want",  br#"{"b":{"c":}}"#),
            ("no text in what we skip", b"{\"x\":\"\xff\",\"a\":1}"),
            ("a list cut short",       b"[1"),
        ];
        let mut wanted = FieldSelection::default();
        for text in ["a", "b.c"] {
            wanted.add(&path(text));
        }
        for (name, json) in cases {
            assert!(matches!(wanted.pick(json), Err(InvalidReason::NotJson { .. })), "{name}");
        }
    }
}
