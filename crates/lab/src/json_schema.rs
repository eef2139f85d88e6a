//! The rule book and the scenario as JSON Schema (draft 2020-12), for editors.
//!
//! Generated from the tables in [`redrive_core::book::schema`]. The schema is weaker than `check`: it rejects no valid
//! book, except one that quotes a number or uses a number as a name.

use serde_json::{Map, Value, json};

use crate::lint;
use redrive_core::book::Connectors;
use redrive_core::book::schema::{BOOK, KeyPresence, KeySchema, NameKind, ObjectSchema, ValueType};
use redrive_core::book::validate::ACTS;
use redrive_core::limits;
use redrive_core::policy::category::Category;

const DURATION: &str = r"^([0-9]+(\.[0-9]+)?(d|h|m|s|ms))+$";
const SHARE: &str = r"^[0-9]+(\.[0-9]+)? *%$";
const NAME: &str = r"^[A-Za-z0-9._:/-]{1,200}$";
const STATUSES: &str = r"^[1-5][0-9]{2}( *- *[1-5][0-9]{2})?$";

#[must_use]
pub fn schema(connectors: &Connectors) -> Value {
    schema_of(&BOOK, connectors, "A Redrive rule book")
}

#[must_use]
pub fn schema_of(root: &ObjectSchema, connectors: &Connectors, title: &str) -> Value {
    let mut definitions = Definitions { connectors, schemas: Map::new() };
    let mut schema = object(root, &mut definitions);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(title);
    schema["$defs"] = definitions.schemas.into();
    schema
}

/// Schemas by name, for references.
struct Definitions<'a> {
    connectors: &'a Connectors,
    schemas: Map<String, Value>,
}

/// The schema of a map; those that it refers to are added to the definitions.
fn object(object: &ObjectSchema, definitions: &mut Definitions<'_>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for KeySchema { key, takes, need, about, role: _ } in object.all_fields(definitions.connectors) {
        let mut property = value(takes, definitions);
        if let Some(property) = property.as_object_mut() {
            property.insert("description".to_owned(), json!(about));
        }
        // A key may differ between connectors.
        let property = match properties.remove(*key) {
            Some(other) => {
                let mut several = match other.as_object().filter(|other| other.len() == 1) {
                    Some(meanings) => meanings["anyOf"].as_array().cloned().unwrap_or_default(),
                    None => vec![other],
                };
                several.push(property);
                json!({ "anyOf": several })
            }
            None => property,
        };
        properties.insert((*key).to_owned(), property);
        if *need == KeyPresence::Required {
            required.push(*key);
        }
    }
    let mut schema = json!({
        "title": object.name,
        "description": object.about,
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    let choices = object.one_of(definitions.connectors);
    if !choices.is_empty() {
        schema["oneOf"] = choices.iter().map(|key| json!({ "required": [key] })).collect();
    }
    schema
}

fn reference(to: &ObjectSchema, definitions: &mut Definitions<'_>) -> Value {
    let name = definition_name(to);
    if !definitions.schemas.contains_key(&name) {
        // Reserved first: maps may be recursive.
        definitions.schemas.insert(name.clone(), Value::Null);
        let schema = object(to, definitions);
        definitions.schemas.insert(name.clone(), schema);
    }
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// `retry_policy` for "a retry policy".
#[must_use]
pub fn definition_name(object: &ObjectSchema) -> String {
    let words = object.name.to_lowercase();
    let words = words.strip_prefix("a ").or_else(|| words.strip_prefix("an ")).unwrap_or(&words);
    words.replace('\'', "").replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

fn value(takes: &ValueType, definitions: &mut Definitions<'_>) -> Value {
    match takes {
        ValueType::Object(object) => reference(object, definitions),
        ValueType::MapOf(item) => json!({
            // An empty section is valid.
            "type": ["object", "null"],
            "propertyNames": { "pattern": NAME },
            "additionalProperties": value(item, definitions),
        }),
        ValueType::ByFailure(item) => json!({
            "type": "object",
            "propertyNames": { "anyOf": [{ "enum": Category::WORDS }, { "pattern": STATUSES }] },
            "additionalProperties": value(item, definitions),
        }),
        ValueType::ListOf(item) => json!({ "type": "array", "items": value(item, definitions) }),
        ValueType::OneOrMany(item) => {
            let item = value(item, definitions);
            json!({ "anyOf": [item, { "type": "array", "items": item }] })
        }
        ValueType::ShortOrLong(short, long) => {
            let short = value(short, definitions);
            json!({ "oneOf": [short, reference(long, definitions)] })
        }
        ValueType::TemplateFields => {
            json!({ "type": "object", "additionalProperties": { "type": ["string", "number", "boolean"] } })
        }
        ValueType::RequestBody => json!({ "type": ["string", "number", "boolean", "object", "array"] }),
        ValueType::JsonSchema => json!({ "type": "object" }),
        scalar => scalar_schema(scalar),
    }
}

fn scalar_schema(takes: &ValueType) -> Value {
    match takes {
        ValueType::Duration => text(DURATION, &["500ms", "30s", "5m", "24h", "7d", "1h30m"]),
        ValueType::Size => text("^[0-9]+(B|KiB|MiB|GiB)$", &["512B", "64KiB", "25MiB"]),
        ValueType::Rate => {
            text(r"^[0-9]+(\.[0-9]+)? */ *(s|sec|second|m|min|minute|h|hour)$", &["20/s", "10/m", "100/h"])
        }
        ValueType::Share => text(SHARE, &["5%", "50%"]),
        ValueType::Jitter => json!({
            "anyOf": [
                { "enum": ["none", "full", "equal", "decorrelated"] },
                text(r"^ *(plus +[0-9]|spread +[0-9]).*$", &["plus 500ms", "spread 25%", "spread 100ms"]),
            ],
        }),
        ValueType::Pattern => json!({ "type": "string", "examples": ["(?i)quota"] }),
        ValueType::EventPattern => {
            text(r"^(\*|[^\s.*]+)(\.(\*|[^\s.*]+))*$", &["todo.task.created", "todo.task.*"])
        }
        // A text may look like a number: `stage: 1`.
        ValueType::Text | ValueType::RequestTemplate => json!({ "type": ["string", "number", "boolean"] }),
        ValueType::Url => text(r"^https?://[^\s/][^\s]*$", &["http://127.0.0.1:9000/events"]),
        ValueType::SourceTemplate => {
            template(&["report.daily", "github.{header.x-github-event}.{data.action}"])
        }
        ValueType::CopyKey => template(&["data.order", "{type}/{data.order}"]),
        ValueType::LetterName => {
            template(&["_{service}.deadletter[.{channel}]", "{queue}:dlq", "{queue}-dlq-{stage}"])
        }
        ValueType::Any => json!({}),
        ValueType::Cel => json!({ "type": "string", "examples": ["status == 200 && body.ok == true"] }),
        ValueType::EventCondition => text(r"\S", &["data.total > 100", "type != \"order.test\""]),
        ValueType::Bool => json!({ "type": "boolean" }),
        ValueType::Count { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        ValueType::CountOrUnlimited => json!({
            "anyOf": [
                { "type": "integer", "minimum": 0, "maximum": limits::RETRIES_MAX },
                { "const": "unlimited" },
            ],
        }),
        ValueType::Number { min, max } => json!({ "type": "number", "minimum": min, "maximum": max }),
        ValueType::Word(words) => json!({ "enum": words }),
        ValueType::Name(kind) => name_schema(*kind),
        ValueType::Reaction => {
            let words: Vec<&str> = ACTS.into_iter().chain(NameKind::Policy.of_the_catalog()).collect();
            json!({ "anyOf": [{ "enum": words }, { "type": "string", "pattern": NAME }] })
        }
        ValueType::Statuses => statuses(&[]),
        ValueType::FailureKind => statuses(&[json!({ "enum": Category::WORDS })]),
        ValueType::Json => json!({ "type": "string", "contentMediaType": "application/json" }),
        ValueType::Cron => text(r"^\s*(\S+\s+){4}\S+\s*$", &["0 9 * * *", "*/5 * * * *"]),
        ValueType::Zone => text(r"^\S+$", &["UTC", "Europe/Berlin"]),
        ValueType::MailAddress => text(r"^\S+@\S+$", &["ann@example.com"]),
        ValueType::MailAddressTemplate => text(r"\S", &["{{ data.email }}", "ann@example.com"]),
        ValueType::MailServer => text(r"^smtps?://\S+$", &["smtp://user@mail.example.com:587"]),
        ValueType::Hours => json!({ "type": "string", "examples": ["Mon-Fri 09:00-17:00 Europe/Berlin"] }),
        ValueType::Condition => json!({
            "type": "string",
            "pattern": r"^\s*[a-z][a-z0-9_]*(\s|$)",
            "examples": ["dead_letters > 100", "breaker_open for 10m by dependency", "error_rate > 5% over 2m"],
        }),
        ValueType::Lint => json!({ "enum": lint::all().iter().map(|lint| lint.code).collect::<Vec<_>>() }),
        ValueType::Object(_)
        | ValueType::MapOf(_)
        | ValueType::ByFailure(_)
        | ValueType::ListOf(_)
        | ValueType::OneOrMany(_)
        | ValueType::TemplateFields
        | ValueType::RequestBody
        | ValueType::JsonSchema
        | ValueType::ShortOrLong(..) => unreachable!("not a single value"),
    }
}

fn template(examples: &[&str]) -> Value {
    json!({ "type": "string", "minLength": 1, "examples": examples })
}

/// A status, a range of them, or one of the others.
fn statuses(others: &[Value]) -> Value {
    let own = [json!({ "type": "integer", "minimum": 100, "maximum": 599 }), text(STATUSES, &["500-599"])];
    json!({ "anyOf": others.iter().cloned().chain(own).collect::<Vec<_>>() })
}

fn text(pattern: &str, examples: &[&str]) -> Value {
    json!({ "type": "string", "pattern": pattern, "examples": examples })
}

/// A name of the catalog, or any name of the book.
fn name_schema(kind: NameKind) -> Value {
    // A duration in place of a timeout's name also matches the pattern of names.
    let known = kind.of_the_catalog();
    let any = json!({ "type": "string", "pattern": NAME });
    if known.is_empty() { any } else { json!({ "anyOf": [{ "enum": known }, any] }) }
}
