//! The API's description: kept, printed and served alike, and whole in itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::{Folder, redrive};
use crate::server::{Server, serve};

/// Writes the description instead of comparing it: `REDRIVE_UPDATE=1 cargo test -p redrive-server openapi`.
#[test]
fn the_description_that_is_kept_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let made = redrive(&["openapi"]).printed();
    if std::env::var_os("REDRIVE_UPDATE").is_some() {
        fs::write(&path, &made).expect("the docs can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/reference/openapi.json is out of date: run REDRIVE_UPDATE=1 cargo test -p redrive-server openapi"
    );
}

#[test]
fn a_server_describes_itself() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    let told = server.get("/openapi.json");
    assert_eq!(told.status, 200);
    let printed: Value = serde_json::from_str(&redrive(&["openapi"]).printed()).expect("it is JSON");
    assert_eq!(told.json(), printed);
    server.stop().assert_calm();
}

#[test]
fn the_description_is_whole() {
    let document: Value = serde_json::from_str(&redrive(&["openapi"]).printed()).expect("it is JSON");
    assert_eq!(document["openapi"], "3.1.0");
    let mut problems = Vec::new();
    references(&document, &mut |path| {
        if document.pointer(path.trim_start_matches('#')).is_none() {
            problems.push(format!("{path} leads nowhere"));
        }
    });
    for (name, schema) in document["components"]["schemas"].as_object().expect("there are schemas") {
        if schema.get("allOf").is_some() {
            problems.push(format!("{name}: openapi-python-client drops what is composed of others"));
        }
        if document["components"]["responses"].get(name).is_some() {
            problems.push(format!("{name}: a response has that name too"));
        }
    }
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("there are paths") {
        for (method, operation) in item.as_object().expect("there are operations") {
            let name = format!("{method} {path}");
            let id = operation["operationId"].as_str().unwrap_or_default();
            if !ids.insert(id) {
                problems.push(format!("{name}: another is called {id} too"));
            }
            // Go generators name the response of an operation so.
            let (first, rest) = id.split_at(id.len().min(1));
            let response = format!("{}{rest}Response", first.to_uppercase());
            if document["components"]["schemas"].get(&response).is_some() {
                problems.push(format!("{name}: {response} is a schema already"));
            }
            for text in texts(operation) {
                for schema in text.split("the schema `").skip(1).filter_map(|rest| rest.split('`').next()) {
                    if document["components"]["schemas"].get(schema).is_none() {
                        problems.push(format!("{name}: there is no schema {schema}"));
                    }
                }
            }
            if operation["summary"].as_str().is_none_or(str::is_empty) {
                problems.push(format!("{name}: nothing is said of it"));
            }
            for status in ["400", "403", "500", "503"] {
                if operation["responses"].get(status).is_none() {
                    problems.push(format!("{name}: {status} is not told"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Every text in a value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(members) => members.values().flat_map(texts).collect(),
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::String(text) => vec![text],
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Every reference in a value.
fn references(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(members) => {
            if let Some(path) = members.get("$ref").and_then(Value::as_str) {
                found(path);
            }
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A hash is told in digits: as a number it has more bits than many clients keep.
#[test]
fn no_hash_is_told_as_a_number() {
    fn walk(name: &str, schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(entries) => {
                let is_number = schema["type"] == "integer" || schema["format"] == "uint64";
                let is_hash = ["book", "hash", "fingerprint", "receipt", "content"].contains(&name);
                if schema["format"] == "uint64" || is_number && is_hash {
                    found.push(name.to_owned());
                }
                entries.iter().for_each(|(key, value)| walk(key, value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(name, item, found)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_str(&redrive(&["openapi"]).printed()).expect("it is JSON");
    let mut found = Vec::new();
    walk("", &document, &mut found);
    assert!(found.is_empty(), "{found:?}");
    assert!(document.to_string().contains(r#""pattern":"^[0-9a-f]{16}$""#), "hashes are told in digits");
}
