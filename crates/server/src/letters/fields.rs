//! The keys of a request, from a query or a JSON object, taken one by one: one that nobody takes is refused.

use serde_json::{Map, Value};

/// A key with a value that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {reason}")]
pub(crate) struct WrongField {
    pub(crate) field: String,
    pub(crate) reason: String,
}

impl WrongField {
    pub(crate) fn new(field: &str, reason: impl Into<String>) -> Self {
        Self { field: field.to_owned(), reason: reason.into() }
    }
}

/// The largest number that a key takes: clients and the store have no larger ones.
const NUMBER_MAX: u64 = i64::MAX.unsigned_abs();

/// The longest note: it is kept with what was done, and shown wherever that is.
pub(crate) const NOTE_CHARS_MAX: usize = 1_000;

/// What is left of the keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// From the part of an address behind the question mark.
    pub(crate) fn of_query(query: Option<&str>) -> Result<Self, WrongField> {
        let mut fields = Map::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if fields.insert(name.to_string(), Value::String(value.into_owned())).is_some() {
                return Err(WrongField::new(&name, "stands twice"));
            }
        }
        Ok(Self(fields))
    }

    /// From a body, which may be left out.
    pub(crate) fn of_body(body: &[u8]) -> Result<Self, WrongField> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(Value::Null) => Ok(Self::default()),
            Ok(_) => Err(WrongField::new("body", "is no JSON object")),
            Err(error) => Err(WrongField::new("body", format!("is no JSON object: {error}"))),
        }
    }

    /// From pairs that somebody has typed.
    pub(crate) fn of_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.to_owned(), Value::String(value))).collect())
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, WrongField> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Err(WrongField::new(name, "is empty")),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(WrongField::new(name, "must be a text")),
        }
    }

    /// Why somebody did it, in their own words.
    pub(crate) fn note(&mut self) -> Result<Option<String>, WrongField> {
        let note = self.text("note")?;
        note.map(|note| check_note(&note).map(|()| note)).transpose()
    }

    pub(crate) fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, WrongField> {
        let wrong = || WrongField::new(name, "must be a list of texts");
        let Some(value) = self.take(name) else { return Ok(None) };
        let Value::Array(values) = value else { return Err(wrong()) };
        let texts = values.iter().map(|value| value.as_str().map(ToOwned::to_owned).ok_or_else(wrong));
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// What a text says, by somebody who knows how to read it.
    pub(crate) fn read<T, E: std::fmt::Display>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, WrongField> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        read(&text).map(Some).map_err(|error| WrongField::new(name, format!("is not right: {error}")))
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, WrongField> {
        let wrong = || WrongField::new(name, "must be a whole number of at most 63 bits");
        let number = match self.take(name) {
            None => return Ok(None),
            Some(Value::Number(number)) => number.as_u64(),
            // A sign is no part of a number here.
            Some(Value::String(text)) => text.parse().ok().filter(|_| !text.starts_with('+')),
            Some(_) => None,
        };
        number.filter(|number| *number <= NUMBER_MAX).ok_or_else(wrong).map(Some)
    }

    /// A rate, as a number for each second or as a text such as `20/s`.
    pub(crate) fn value(&mut self, name: &str) -> Option<Value> {
        self.take(name)
    }

    pub(crate) fn is_set(&mut self, name: &str) -> Result<bool, WrongField> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(truth)) => Ok(truth),
            Some(Value::String(text)) if text == "true" || text == "false" => Ok(text == "true"),
            Some(_) => Err(WrongField::new(name, "must be true or false")),
        }
    }

    /// Nothing may be left that nobody knows.
    pub(crate) fn finish(self) -> Result<(), WrongField> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(WrongField::new(name, "is not known here")),
        }
    }
}

/// Refuses a note that is none any more.
pub(crate) fn check_note(note: &str) -> Result<(), WrongField> {
    if note.chars().nth(NOTE_CHARS_MAX).is_none() {
        return Ok(());
    }
    Err(WrongField::new("note", format!("has more than {NOTE_CHARS_MAX} characters")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_no_place_to_keep_things() {
        #[rustfmt::skip]
        let cases = [
            ("none",                0,                  true),
            ("a word",              4,                  true),
            ("as long as may be",   NOTE_CHARS_MAX,     true),
            ("one more",            NOTE_CHARS_MAX + 1, false),
        ];
        for (name, chars, expected) in cases {
            let body = serde_json::json!({ "note": (chars > 0).then(|| "é".repeat(chars)) }).to_string();
            let note = Fields::of_body(body.as_bytes()).expect("an object").note();
            assert_eq!(note.is_ok(), expected, "{name}");
        }
    }
}
