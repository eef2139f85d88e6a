//! JSON Schemas of event types: what the data of an event must look like.
//!
//! Invariants: a schema refers to nothing outside itself; its patterns take linear time; a violation names the
//! path and the rule, never a value of the event. Without the feature `events` a schema is kept and not applied.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::event::Event;
use crate::event::attribute::ContentType;
use crate::limits;

/// Clones share one compiled schema.
#[derive(Clone)]
pub struct EventSchema {
    json: Arc<Value>,
    #[cfg(feature = "events")]
    compiled: Arc<jsonschema::Validator>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEventSchema {
    #[error("a schema has at most {} bytes", limits::EVENT_SCHEMA_BYTES_MAX)]
    TooLong,
    #[error("a schema refers to parts of itself only, such as `#/$defs/address`, got `{reference}`")]
    Reference { reference: String },
    #[error("schema refers to itself in a circle by `{reference}`")]
    Circle { reference: String },
    #[error("invalid JSON Schema at `{path}`: {reason}")]
    Schema { path: String, reason: String },
}

/// The first violation found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` violates the schema of its event type: {reason}")]
pub struct SchemaViolation {
    /// Such as `data/items/0/price`.
    pub path: String,
    pub reason: String,
}

impl EventSchema {
    pub fn parse(json: Value) -> Result<Self, InvalidEventSchema> {
        if json.to_string().len() > limits::EVENT_SCHEMA_BYTES_MAX {
            return Err(InvalidEventSchema::TooLong);
        }
        check_references(&json, &json)?;
        #[cfg(feature = "events")]
        let compiled = Arc::new(compile(&json)?);
        Ok(Self {
            json: Arc::new(json),
            #[cfg(feature = "events")]
            compiled,
        })
    }

    #[must_use]
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// Data that are no JSON violate every schema.
    pub fn check(&self, event: &Event) -> Result<(), SchemaViolation> {
        let at_data = |reason: &str| SchemaViolation { path: "data".to_owned(), reason: reason.to_owned() };
        if !event.content_type.as_ref().is_none_or(ContentType::is_json) {
            return Err(at_data("the content type is not JSON"));
        }
        let data: Value = serde_json::from_slice(&event.data).map_err(|_| at_data("this is not JSON"))?;
        self.check_data(&data)
    }

    #[cfg(feature = "events")]
    pub fn check_data(&self, data: &Value) -> Result<(), SchemaViolation> {
        let Err(error) = self.compiled.validate(data) else { return Ok(()) };
        let mut reason = error.masked_with("the value").to_string();
        reason.truncate(reason.floor_char_boundary(limits::EVENT_SCHEMA_REASON_BYTES_MAX));
        Err(SchemaViolation { path: format!("data{}", error.instance_path()), reason })
    }

    #[cfg(not(feature = "events"))]
    pub fn check_data(&self, _: &Value) -> Result<(), SchemaViolation> {
        Ok(())
    }

    /// Whether data that fit may have that field, such as `["user", "name"]`. Only plain `properties` and `items`
    /// are followed; behind anything else, everything may be there.
    #[must_use]
    pub fn may_have(&self, path: &[&str]) -> bool {
        let mut at = &*self.json;
        for word in path {
            let Some(properties) = at.get("properties").and_then(Value::as_object) else { return true };
            let Some(next) = properties.get(*word) else {
                let more = at.get("additionalProperties");
                let is_open = more.is_some_and(|more| *more != Value::Bool(false));
                return is_open || at.get("patternProperties").is_some() || has_combination(at);
            };
            at = next;
            if has_combination(at) {
                return true;
            }
        }
        true
    }
}

fn has_combination(schema: &Value) -> bool {
    ["$ref", "allOf", "anyOf", "oneOf", "if", "$dynamicRef"].iter().any(|key| schema.get(key).is_some())
}

/// Every reference must lead to another place of the schema, and not back to where it stands without going deeper
/// into the data.
fn check_references(schema: &Value, root: &Value) -> Result<(), InvalidEventSchema> {
    match schema {
        Value::Object(fields) => {
            for key in ["$ref", "$dynamicRef", "$recursiveRef"] {
                let Some(reference) = fields.get(key).and_then(Value::as_str) else { continue };
                if !reference.starts_with('#') {
                    return Err(InvalidEventSchema::Reference { reference: reference.to_owned() });
                }
                check_circle(reference, root)?;
            }
            fields.values().try_for_each(|value| check_references(value, root))
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_references(item, root)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn check_circle(reference: &str, root: &Value) -> Result<(), InvalidEventSchema> {
    let mut passed = vec![reference.to_owned()];
    let mut open = vec![reference.to_owned()];
    while let Some(next) = open.pop() {
        let Some(place) = next.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) else { continue };
        for further in references_in_place(place) {
            if further == reference {
                return Err(InvalidEventSchema::Circle { reference: reference.to_owned() });
            }
            if !passed.contains(&further) {
                passed.push(further.clone());
                open.push(further);
            }
        }
    }
    Ok(())
}

/// References that apply to the same data as the schema itself.
fn references_in_place(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![schema];
    while let Some(place) = open.pop() {
        found.extend(place.get("$ref").and_then(Value::as_str).map(str::to_owned));
        for key in ["allOf", "anyOf", "oneOf"] {
            open.extend(place.get(key).and_then(Value::as_array).into_iter().flatten());
        }
        open.extend(["not", "if", "then", "else"].iter().filter_map(|key| place.get(key)));
        let dependent = place.get("dependentSchemas").and_then(Value::as_object);
        open.extend(dependent.into_iter().flat_map(|schemas| schemas.values()));
    }
    found
}

#[cfg(feature = "events")]
fn compile(json: &Value) -> Result<jsonschema::Validator, InvalidEventSchema> {
    let options = jsonschema::options()
        .should_validate_formats(true)
        .with_pattern_options(jsonschema::PatternOptions::regex())
        .offline();
    options.build(json).map_err(|error| {
        let mut reason = error.to_string();
        reason.truncate(reason.floor_char_boundary(limits::EVENT_SCHEMA_REASON_BYTES_MAX));
        InvalidEventSchema::Schema { path: format!("schema{}", error.instance_path()), reason }
    })
}

impl PartialEq for EventSchema {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl fmt::Debug for EventSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.json, f)
    }
}

#[cfg(all(test, feature = "events"))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_violation_names_the_path_and_no_value() {
        let schema = json!({
            "type": "object", "required": ["total"],
            "properties": {
                "total": { "type": "number", "minimum": 0 }, "mail": { "type": "string", "format": "email" },
                "code": { "type": "string", "pattern": "^[A-Z]+$" },
                "items": { "type": "array", "items": { "$ref": "#/$defs/item" } },
            },
            "$defs": { "item": { "type": "object", "properties": { "sku": { "enum": ["a", "b"] }, "more": { "$ref": "#/$defs/item" } } } },
        });
        let schema = EventSchema::parse(schema).expect("a schema");
        #[rustfmt::skip]
        let cases = [
            (json!({ "total": 1 }),                              None),
            (json!({ "total": 1, "extra": [] }),                 None),
            (json!({ "total": "hunter2" }),                      Some(("data/total", "the value is not of type \"number\""))),
            (json!({ "total": -7 }),                             Some(("data/total", "the value is less than the minimum of 0"))),
            (json!({}),                                          Some(("data", "\"total\" is a required property"))),
            (json!([]),                                          Some(("data", "the value is not of type \"object\""))),
            (json!({ "total": 1, "mail": "hunter2" }),           Some(("data/mail", "the value is not a \"email\""))),
            (json!({ "total": 1, "code": "hunter2" }),           Some(("data/code", "the value does not match \"^[A-Z]+$\""))),
            (json!({ "total": 1, "items": [{ "sku": "a" }, { "more": { "sku": 7 } }] }), Some(("data/items/1/more/sku", "the value is not one of \"a\" or \"b\""))),
        ];
        for (data, expected) in cases {
            let found = schema.check_data(&data).err();
            let found = found.as_ref().map(|violation| (violation.path.as_str(), violation.reason.as_str()));
            assert_eq!(found, expected, "{data}");
        }
        let known = ["total", "items", "code"].map(|name| schema.may_have(&[name]));
        assert_eq!(known, [true; 3]);
        assert!(!schema.may_have(&["totl"]));
        assert!(schema.may_have(&["items", "0", "sku"]));
        let open = json!({ "properties": { "a": {} }, "additionalProperties": true });
        assert!(EventSchema::parse(open).expect("a schema").may_have(&["b"]));
    }

    #[test]
    fn a_schema_that_could_not_be_applied_is_refused() {
        #[rustfmt::skip]
        let cases = [
            (json!({ "$ref": "https://other.test/schema" }),  "a schema refers to parts of itself only"),
            (json!({ "$ref": "#" }),                          "schema refers to itself in a circle by `#`"),
            (json!({ "allOf": [{ "$ref": "#" }] }),           "schema refers to itself in a circle by `#`"),
            (json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "anyOf": [{ "$ref": "#/$defs/a" }] } } }), "schema refers to itself in a circle"),
            (json!({ "$ref": "#/$defs/gone" }),               "invalid JSON Schema"),
            (json!({ "type": "numbr" }),                      "invalid JSON Schema at `schema/type`"),
            (json!({ "pattern": "(?=x)" }),                   "invalid JSON Schema"),
            (json!({ "title": "x".repeat(limits::EVENT_SCHEMA_BYTES_MAX) }), "a schema has at most"),
        ];
        for (schema, expected) in cases {
            let error = EventSchema::parse(schema.clone()).expect_err("refused").to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let deep =
            (0..60).fold(json!({ "type": "object" }), |inner, _| json!({ "properties": { "a": inner } }));
        assert!(EventSchema::parse(deep).is_ok());
    }
}
