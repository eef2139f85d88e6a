//! The JSON Schemas of both formats have every key of their tables.

use std::collections::{BTreeMap, BTreeSet};

use crate::json_schema::{definition_name, schema};
use redrive_core::book::connectors::built_in;
use redrive_core::book::schema::{BOOK, KeyPresence, ObjectSchema, ValueType};
use serde_json::{Value, json};

use crate::scenario::schema::SCENARIO;

/// Both formats.
fn roots() -> [(&'static ObjectSchema, Value); 2] {
    [(&BOOK, schema(built_in())), (&SCENARIO, crate::scenario::json_schema())]
}

/// Every map of the format, by its name in the schema.
fn objects(root: &'static ObjectSchema) -> BTreeMap<String, &'static ObjectSchema> {
    let mut found = BTreeMap::new();
    let mut waiting: Vec<&'static ObjectSchema> = vec![root];
    while let Some(object) = waiting.pop() {
        let name = definition_name(object);
        if let Some(known) = found.insert(name.clone(), object) {
            assert!(std::ptr::eq(known, object), "two maps are called {name}");
            continue;
        }
        waiting.extend(object.all_fields(built_in()).flat_map(|field| within(&field.takes)));
    }
    found
}

fn within(takes: &'static ValueType) -> Vec<&'static ObjectSchema> {
    match takes {
        ValueType::Object(object) => vec![object],
        ValueType::MapOf(item)
        | ValueType::ByFailure(item)
        | ValueType::ListOf(item)
        | ValueType::OneOrMany(item) => within(item),
        ValueType::ShortOrLong(short, object) => [within(short), vec![*object]].concat(),
        _ => Vec::new(),
    }
}

#[test]
fn every_key_of_the_tables_is_there_with_its_sentence() {
    let all = roots().map(|(root, schema)| {
        objects(root)
            .into_iter()
            .map(move |(name, object)| (root, schema.clone(), name, object))
            .collect::<Vec<_>>()
    });
    for (root, schema, name, object) in all.into_iter().flatten() {
        let described = if std::ptr::eq(object, root) { &schema } else { &schema["$defs"][&name] };
        assert_eq!(described["additionalProperties"], false, "{name}");
        let properties = described["properties"].as_object().expect("a map has properties");
        let keys: BTreeSet<&str> = object.all_fields(built_in()).map(|field| field.key).collect();
        assert_eq!(properties.keys().map(String::as_str).collect::<BTreeSet<_>>(), keys, "{name}");
        for field in object.all_fields(built_in()) {
            let property = &properties[field.key];
            let several = property["anyOf"].as_array().map(Vec::as_slice).unwrap_or_default();
            let mut abouts = std::iter::once(property).chain(several).map(|one| &one["description"]);
            assert!(abouts.any(|about| about == field.about), "{name}.{}", field.key);
            let required = described["required"].as_array().is_some_and(|r| r.contains(&json!(field.key)));
            assert_eq!(required, field.need == KeyPresence::Required, "{name}.{}", field.key);
        }
        let kinds = described["oneOf"].as_array().map_or(0, Vec::len);
        assert_eq!(kinds, object.one_of(built_in()).len(), "{name}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    for (_, schema) in roots() {
        let text = schema.to_string();
        let found = text.match_indices("\"#/$defs/").map(|(at, found)| text.split_at(at + found.len()));
        for (_, rest) in found {
            let name = rest.split('"').next().expect("a split has a first part");
            assert!(schema["$defs"][name].is_object(), "{name}");
        }
    }
}
