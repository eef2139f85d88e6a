//! Holds answers against the description of the API, more strictly than a client would: what is not described
//! must not be there.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::client::Answer;

/// The description as it is kept; another test sees to it that it is the server's own.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
    let text = std::fs::read_to_string(path).expect("the description is kept");
    serde_json::from_str(&text).expect("it is JSON")
});

/// An answer to a request with that head must be one of those that are described, if the request is for an
/// operation at all.
#[track_caller]
pub(crate) fn assert_described(head: &str, answer: &Answer) {
    let mut words = head.split(' ');
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return };
    let Some(operation) = operation(method, path) else { return };
    if let Ok(told) = serde_json::from_str(&answer.body)
        && let Some(number) = beyond_doubles(&told)
    {
        panic!("{method} {path}: many clients read {number} as another number: {answer:?}");
    }
    if let Err(problem) = fits(operation, answer) {
        panic!("{method} {path}: {problem}: {answer:?}");
    }
}

/// A whole number that a client which keeps numbers as doubles would change.
fn beyond_doubles(told: &Value) -> Option<&serde_json::Number> {
    const LARGEST: u64 = (1 << 53) - 1;
    match told {
        Value::Number(number) => {
            let size = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            size.is_some_and(|size| size > LARGEST).then_some(number)
        }
        Value::Array(items) => items.iter().find_map(beyond_doubles),
        Value::Object(entries) => entries.values().find_map(beyond_doubles),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}

/// The operation that a request asks for; a path with fewer names in braces goes first.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap_or_default();
    let paths = DOCUMENT["paths"].as_object().expect("there are paths");
    let fitting = paths.iter().filter(|(template, _)| is_of(template, path));
    let (_, item) = fitting.min_by_key(|(template, _)| template.matches('{').count())?;
    item.get(method.to_ascii_lowercase())
}

fn is_of(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(word), Some(given)) if word == given || word.starts_with('{') && !given.is_empty() => {}
            _ => return false,
        }
    }
}

fn fits(operation: &'static Value, answer: &Answer) -> Result<(), String> {
    let response = operation["responses"].get(answer.status.to_string()).map(resolve);
    let response = response.ok_or("this status is not described")?;
    for (name, _) in entries(&response["headers"]) {
        answer.header(&name.to_ascii_lowercase()).ok_or_else(|| format!("there is no {name}"))?;
    }
    let content_type = answer.header("content-type").unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default();
    let content = response["content"].get(content_type).ok_or("this content type is not described")?;
    if content_type != "application/json" {
        return Ok(());
    }
    let body = serde_json::from_str(&answer.body).map_err(|error| error.to_string())?;
    holds(&content["schema"], &body)
}

/// What a reference leads to.
fn resolve(schema: &'static Value) -> &'static Value {
    match schema["$ref"].as_str() {
        Some(path) => {
            DOCUMENT.pointer(path.trim_start_matches('#')).expect("every reference leads somewhere")
        }
        None => schema,
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> + use<'_> {
    value.as_object().into_iter().flatten()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Whether a value fits, and has nothing that nobody speaks of.
fn holds(schema: &'static Value, value: &Value) -> Result<(), String> {
    let mut known = Known::default();
    known.take(schema, value)?;
    match entries(value).find(|(name, _)| known.is_closed && !known.names.contains(*name)) {
        Some((name, _)) => Err(format!("`{name}` is not described")),
        None => Ok(()),
    }
}

/// What the parts of a schema say of one object.
#[derive(Default)]
struct Known {
    names: BTreeSet<String>,
    is_closed: bool,
}

impl Known {
    fn take(&mut self, schema: &'static Value, value: &Value) -> Result<(), String> {
        for (word, wanted) in entries(schema) {
            self.word(word, wanted, value).map_err(|problem| match word.as_str() {
                "$ref" => problem,
                _ => format!("{word}: {problem}"),
            })?;
        }
        Ok(())
    }

    fn word(&mut self, word: &str, wanted: &'static Value, value: &Value) -> Result<(), String> {
        let fits = match word {
            "description" | "example" | "examples" | "default" => true,
            "$ref" => {
                let path = wanted.as_str().expect("a path").trim_start_matches('#');
                return self.take(DOCUMENT.pointer(path).expect("it leads somewhere"), value);
            }
            "allOf" => return list(wanted).iter().try_for_each(|part| self.take(part, value)),
            "oneOf" => return self.one_of(list(wanted), value),
            "properties" => return self.properties(wanted, value),
            // Only maps have it, and those have no properties of their own.
            "additionalProperties" => {
                return entries(value).try_for_each(|(_, value)| holds(wanted, value));
            }
            "propertyNames" => {
                entries(value).try_for_each(|(name, _)| holds(wanted, &Value::String(name.clone()))).is_ok()
            }
            "items" => return list(value).iter().try_for_each(|item| holds(wanted, item)),
            "type" => match wanted {
                Value::Array(types) => types.iter().any(|name| is_type(name, value)),
                name => is_type(name, value),
            },
            "required" => list(wanted).iter().all(|name| value.get(name.as_str().expect("a name")).is_some()),
            "enum" => list(wanted).contains(value),
            "minimum" => !value.is_number() || value.as_f64() >= wanted.as_f64(),
            "minItems" => list(value).len() as u64 >= wanted.as_u64().expect("a count"),
            "maxItems" => list(value).len() as u64 <= wanted.as_u64().expect("a count"),
            "pattern" => {
                let pattern = Regex::new(wanted.as_str().expect("a text")).expect("it can be read");
                value.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "format" => value
                .as_str()
                .is_none_or(|text| wanted != "date-time" || text.parse::<jiff::Timestamp>().is_ok()),
            other => panic!("this test does not know the word {other}"),
        };
        if fits { Ok(()) } else { Err(format!("{value} is not {wanted}")) }
    }

    fn one_of(&mut self, several: &'static [Value], value: &Value) -> Result<(), String> {
        let mut fitting = Vec::new();
        let mut problems = Vec::new();
        for schema in several {
            let mut known = Self::default();
            match known.take(schema, value) {
                Ok(()) => fitting.push(known),
                Err(problem) => problems.push(problem),
            }
        }
        let (Some(known), true) = (fitting.pop(), fitting.is_empty()) else {
            return Err(format!("{value} fits {} of them: {problems:?}", several.len() - problems.len()));
        };
        self.names.extend(known.names);
        self.is_closed |= known.is_closed;
        Ok(())
    }

    fn properties(&mut self, wanted: &'static Value, value: &Value) -> Result<(), String> {
        self.is_closed = true;
        for (name, schema) in entries(wanted) {
            self.names.insert(name.clone());
            if let Some(value) = value.get(name) {
                holds(schema, value).map_err(|problem| format!("{name}: {problem}"))?;
            }
        }
        Ok(())
    }
}

fn is_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("null") => value.is_null(),
        _ => panic!("there is no type {name}"),
    }
}

#[test]
fn what_is_not_described_is_noticed() {
    let answer = |status, body: &str| Answer {
        status,
        headers: vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("x-correlation-id".to_owned(), "c".to_owned()),
        ],
        body: body.to_owned(),
    };
    let operation = operation("GET", "/v1/events/a?b=c").expect("it is described");
    let error = |code| format!(r#"{{"error":{{"code":"{code}","message":"m","details":{{"any":1}}}}}}"#);
    #[rustfmt::skip]
    let cases = [
        ("an answer",            answer(200, r#"{"events":[]}"#),             Ok(())),
        ("an error",             answer(404, &error("EVENT_NOT_FOUND")),      Ok(())),
        ("a code of others",     answer(404, &error("REPLAY_NOT_FOUND")),     Err("enum")),
        ("another status",       answer(418, "{}"),                           Err("this status is not described")),
        ("something missing",    answer(200, "{}"),                           Err("required")),
        ("something more",       answer(200, r#"{"events":[],"more":1}"#),    Err("`more` is not described")),
        ("something else",       answer(200, r#"{"events":{}}"#),             Err("type")),
    ];
    for (name, answer, expected) in cases {
        match (fits(operation, &answer), expected) {
            (Ok(()), Ok(())) => {}
            (Err(problem), Err(words)) => assert!(problem.contains(words), "{name}: {problem}"),
            (fits, _) => panic!("{name}: {fits:?}"),
        }
    }
}
