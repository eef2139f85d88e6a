//! Queries and bodies of requests, read by serde into types that also describe them.
//!
//! A request may be a tuple of such types: each takes its own keys. Unknown keys are refused.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, forward_to_deserialize_any};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::error::ApiError;
use crate::api::{App, body};
use crate::letters::{LIST_DEFAULT, LIST_MAX};

/// The largest number a key takes, for the sake of clients and the store.
const NUMBER_MAX: u64 = i64::MAX.unsigned_abs();

/// Notes are kept in the audit log and shown with it.
const NOTE_CHARS_MAX: usize = 1_000;

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

impl serde::de::Error for WrongField {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::new("body", format!("is not valid: {message}"))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(field, "is missing")
    }
}

pub(crate) struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<App> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        Ok(Self(of_query(parts.uri.query())?))
    }
}

/// A JSON body; optional if none of its keys is required.
pub(crate) struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        Ok(Self(of_body(&body::read_limited(app, &parts.headers, body).await?)?))
    }
}

pub(crate) fn of_query<T: DeserializeOwned>(query: Option<&str>) -> Result<T, WrongField> {
    let mut keys = Map::new();
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if keys.insert(name.to_string(), Value::String(value.into_owned())).is_some() {
            return Err(WrongField::new(&name, "is given twice"));
        }
    }
    of_keys(keys)
}

pub(crate) fn of_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, WrongField> {
    if body.trim_ascii().is_empty() {
        return of_keys(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(keys)) => of_keys(keys),
        Ok(Value::Null) => of_keys(Map::new()),
        Ok(_) => Err(WrongField::new("body", "is not a JSON object")),
        Err(error) => Err(WrongField::new("body", format!("is not a JSON object: {error}"))),
    }
}

fn of_keys<T: DeserializeOwned>(mut keys: Map<String, Value>) -> Result<T, WrongField> {
    let request = T::deserialize(RequestKeys(&mut keys))?;
    match keys.keys().next() {
        None => Ok(request),
        Some(name) => Err(WrongField::new(name, "is unknown")),
    }
}

/// The remaining keys. Null counts as absent.
struct RequestKeys<'a>(&'a mut Map<String, Value>);

impl<'de> Deserializer<'de> for RequestKeys<'_> {
    type Error = WrongField;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WrongField> {
        let taken = names.iter().filter_map(|name| Some((*name, self.0.shift_remove(*name)?)));
        visitor.visit_map(RequestFields(taken.filter(|(_, value)| !value.is_null()).collect()))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongField> {
        visitor.visit_seq(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The parts of a tuple, each of which takes its keys.
impl<'de> SeqAccess<'de> for RequestKeys<'_> {
    type Error = WrongField;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, WrongField> {
        seed.deserialize(RequestKeys(self.0)).map(Some)
    }
}

/// Keys with values; the last is the next.
struct RequestFields(Vec<(&'static str, Value)>);

impl<'de> MapAccess<'de> for RequestFields {
    type Error = WrongField;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, WrongField> {
        let name = self.0.last().map(|(name, _)| StrDeserializer::new(name));
        name.map(|name| seed.deserialize(name)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, WrongField> {
        let (name, value) = self.0.pop().expect("a value is asked for after its key");
        if value == "" {
            return Err(WrongField::new(name, "is empty"));
        }
        seed.deserialize(value).map_err(|error| WrongField::new(name, format!("is not valid: {error}")))
    }
}

pub(crate) fn read<T, E: std::fmt::Display>(
    field: &str,
    text: Option<&str>,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, WrongField> {
    let wrong = |error| WrongField::new(field, format!("is not valid: {error}"));
    text.map(read).transpose().map_err(wrong)
}

pub(crate) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let number = match Value::deserialize(from)? {
        Value::Number(number) => number.as_u64(),
        // A sign is refused.
        Value::String(text) => text.parse().ok().filter(|_| !text.starts_with('+')),
        _ => None,
    };
    let wrong = || D::Error::custom("it must be a whole number of at most 63 bits");
    number.filter(|number| *number <= NUMBER_MAX).map(Some).ok_or_else(wrong)
}

pub(crate) fn note<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let note = Option::<String>::deserialize(from)?;
    if note.as_deref().is_some_and(|note| note.chars().nth(NOTE_CHARS_MAX).is_some()) {
        return Err(D::Error::custom(format_args!("the note has more than {NOTE_CHARS_MAX} characters")));
    }
    Ok(note)
}

/// Paging of a list.
#[derive(Deserialize, ToSchema)]
pub(crate) struct PageQuery {
    /// Maximum of entries: 50 by default, at most 500.
    #[serde(default, deserialize_with = "number")]
    limit: Option<u64>,
}

impl PageQuery {
    pub(crate) fn rows_max(&self) -> usize {
        let limit = self.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX)
    }
}

/// Continues a list of numbered entries.
#[derive(Deserialize, ToSchema)]
pub(crate) struct BeforeQuery {
    /// The `next` of an earlier response.
    #[serde(default, deserialize_with = "number")]
    pub(crate) before: Option<u64>,
}

/// The reason of an action.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteRequest {
    /// Reason, for the audit log.
    #[serde(default, deserialize_with = "note")]
    #[schema(min_length = 1, max_length = 1000)]
    pub(crate) note: Option<String>,
}

/// An empty object.
#[derive(Serialize, ToSchema)]
pub(crate) struct EmptyResponse {}

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
            assert_eq!(of_body::<NoteRequest>(body.as_bytes()).is_ok(), expected, "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        #[rustfmt::skip]
        let cases = [
            ("nothing",       "",                     Ok((None, 50))),
            ("null",          r#"{"before":null}"#,   Ok((None, 50))),
            ("numbers",       r#"{"before":7,"limit":"9"}"#, Ok((Some(7), 9))),
            ("too many",      r#"{"limit":501}"#,     Ok((None, 500))),
            ("a sign",        r#"{"limit":"+9"}"#,    Err("`limit` is not valid: it must be a whole number of at most 63 bits")),
            ("too large",     r#"{"before":9223372036854775808}"#, Err("`before` is not valid: it must be a whole number of at most 63 bits")),
            ("empty",         r#"{"before":""}"#,     Err("`before` is empty")),
            ("unknown",       r#"{"beforee":1}"#,     Err("`beforee` is unknown")),
            ("no object",     "[]",                   Err("`body` is not a JSON object")),
        ];
        for (name, body, expected) in cases {
            let seen = of_body::<(BeforeQuery, PageQuery)>(body.as_bytes());
            let seen = seen.map(|(BeforeQuery { before }, page)| (before, page.rows_max()));
            assert_eq!(
                seen.map_err(|wrong| wrong.to_string()),
                expected.map_err(ToOwned::to_owned),
                "{name}"
            );
        }
    }
}
