//! Query parameters, described by the same types as bodies.

use std::marker::PhantomData;

use serde_json::{Value, json};
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::{IntoParams, PartialSchema};

pub(crate) struct QueryKeys<T>(PhantomData<T>);

impl<T: PartialSchema> IntoParams for QueryKeys<T> {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let object = serde_json::to_value(T::schema()).expect("a schema is JSON");
        let keys = object["properties"].as_object().into_iter().flatten();
        let required = object["required"].as_array().cloned().unwrap_or_default();
        let need =
            |name: &str| if required.contains(&json!(name)) { KeyPresence::Must } else { KeyPresence::May };
        keys.map(|(name, schema)| parameter(name, &not_null(schema), need(name))).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyPresence {
    Must,
    May,
}

fn parameter(name: &str, schema: &Value, need: KeyPresence) -> Parameter {
    let parameter = json!({
        "name": name,
        "in": "query",
        "required": need == KeyPresence::Must,
        "description": schema.get("description"),
        "schema": schema,
    });
    serde_json::from_value(parameter).expect("it is written as OpenAPI writes it")
}

/// A query parameter is never null.
fn not_null(schema: &Value) -> Value {
    if let Some(several) = schema.get("oneOf").and_then(Value::as_array) {
        let other = several.iter().find(|one| one["type"] != "null");
        return other.expect("nothing is null and nothing else").clone();
    }
    let mut schema = schema.clone();
    if let Some(other) = schema["type"].as_array().and_then(|all| all.iter().find(|one| *one != "null")) {
        schema["type"] = other.clone();
    }
    schema
}
