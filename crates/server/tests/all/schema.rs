//! `redrive schema`: a JSON Schema that takes good books and refuses bad ones.

use std::fs;
use std::path::Path;

use redrive_core::book::connectors::built_in;
use redrive_core::book::problem::Problems;
use redrive_core::book::yaml::{self, Quoted, YamlNode};
use redrive_lab::lint;
use regex::Regex;
use serde_json::Value;

use crate::run::{Folder, redrive};

/// Holds books against the schema that the binary prints.
///
/// It knows the words of JSON Schema that we use and stops at any other, so none is passed over.
struct Checker {
    schema: Value,
}

impl Checker {
    fn new() -> Self {
        Self::printed_by(&["schema"])
    }

    fn printed_by(arguments: &[&str]) -> Self {
        let printed = redrive(arguments).printed();
        let schema: Value = serde_json::from_str(&printed).expect("the schema is JSON");
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        Self { schema }
    }

    fn problem(&self, book: &str) -> Option<String> {
        let node = yaml::read(book, &mut Problems::default()).expect("the book is YAML");
        self.holds(&self.schema, &json(&node)).err()
    }

    fn holds(&self, schema: &Value, value: &Value) -> Result<(), String> {
        // `additionalProperties: false` is a schema too.
        let Value::Object(words) = schema else {
            return if *schema == Value::Bool(false) {
                Err(format!("{value} may not be there"))
            } else {
                Ok(())
            };
        };
        for (word, wanted) in words {
            if !self.word_holds(word, wanted, schema, value)? {
                return Err(format!("{value} does not fit {word}: {wanted}"));
            }
        }
        Ok(())
    }

    fn word_holds(&self, word: &str, wanted: &Value, schema: &Value, value: &Value) -> Result<bool, String> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let fitting = || list(wanted).iter().filter(|schema| self.holds(schema, value).is_ok()).count();
        let number = |compare: fn(f64, f64) -> bool| match (value.as_f64(), wanted.as_f64()) {
            (Some(value), Some(wanted)) => compare(value, wanted),
            _ => true,
        };
        Ok(match word {
            "title" | "description" | "examples" | "$schema" | "$defs" => true,
            "$ref" => {
                let path = wanted.as_str().and_then(|path| path.strip_prefix('#')).expect("a local path");
                let target = self.schema.pointer(path).expect("every reference leads somewhere");
                self.holds(target, value)?;
                true
            }
            "type" => match wanted {
                Value::Array(types) => types.iter().any(|name| is_type(name, value)),
                name => is_type(name, value),
            },
            "enum" => list(wanted).contains(value),
            "const" => wanted == value,
            "minimum" => number(|value, least| value >= least),
            "maximum" => number(|value, most| value <= most),
            "minLength" => value.as_str().is_none_or(|text| !text.is_empty()),
            "pattern" => value.as_str().is_none_or(|text| {
                let pattern = wanted.as_str().expect("a pattern is a text");
                Regex::new(pattern).expect("a pattern of ours can be read").is_match(text)
            }),
            "anyOf" => fitting() > 0,
            "oneOf" => fitting() == 1,
            "items" => list(value).iter().try_for_each(|item| self.holds(wanted, item)).map(|()| true)?,
            "required" => list(wanted).iter().filter_map(Value::as_str).all(|key| value.get(key).is_some()),
            "propertyNames" => {
                entries(value).all(|(key, _)| self.holds(wanted, &key.as_str().into()).is_ok())
            }
            "properties" => {
                let mut known = entries(value).filter_map(|(key, value)| Some((wanted.get(key)?, value)));
                known.try_for_each(|(schema, value)| self.holds(schema, value))?;
                true
            }
            "additionalProperties" => {
                let known = |key: &str| schema["properties"].get(key).is_some();
                let mut others = entries(value).filter(|(key, _)| !known(key));
                others.try_for_each(|(_, value)| self.holds(wanted, value))?;
                true
            }
            other => panic!("this test does not know the word {other}"),
        })
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
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

/// What an editor sees: YAML's core schema.
fn json(node: &YamlNode) -> Value {
    match &node.value {
        yaml::YamlValue::Null => Value::Null,
        yaml::YamlValue::Refused => panic!("a book of this test holds something that is refused"),
        yaml::YamlValue::Scalar { text, quoted: Quoted::No } => serde_json::from_str(text)
            .ok()
            .filter(|value: &Value| !value.is_string())
            .unwrap_or_else(|| text.to_string().into()),
        yaml::YamlValue::Scalar { text, .. } => text.to_string().into(),
        yaml::YamlValue::List(items) => items.iter().map(json).collect(),
        yaml::YamlValue::Map(entries) => {
            let text = |key: &YamlNode| key.text().expect("keys are texts").to_owned();
            entries
                .iter()
                .map(|(key, value)| (text(key), json(value)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
    }
}

#[test]
fn good_books_pass() {
    let checker = Checker::new();
    let mut books: Vec<(String, String)> = crate::examples::SYSTEMS
        .map(crate::examples::path)
        .into_iter()
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).expect("it can be read")))
        .collect();
    let folder = Folder::new();
    folder.run(&["init"]).printed();
    books.push(("init".to_owned(), fs::read_to_string(folder.path("redrive.yaml")).expect("it was written")));
    for lint in lint::all() {
        // Bad books are allowed too: what a lint finds is no mistake of form.
        books.push((lint.code.to_owned(), lint.bad_book()));
        books.push((lint.code.to_owned(), lint.fixed_book()));
    }
    let problems: Vec<_> = books
        .iter()
        .filter(|(_, book)| redrive_core::book::read(book, built_in()).book.is_some())
        .filter_map(|(name, book)| checker.problem(book).map(|problem| format!("{name}: {problem}")))
        .collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn every_form_of_a_value_passes_or_not() {
    let checker = Checker::new();
    let service =
        |rest: &str| format!("version: 1\nservices:\n  svc: {{ target: {{ log: stdout }}, {rest} }}\n");
    let row = |rest: &str| service(&format!("events: [{{ type: a.b, {rest} }}]"));
    #[rustfmt::skip]
    let cases = [
        ("an empty section",               "version: 1\nservices:\n".to_owned(),              true),
        ("no version",                     "services:\n".to_owned(),                          false),
        ("another version",                "version: 2\n".to_owned(),                         false),
        ("a key that is not known",        "version: 1\nservises: {}\n".to_owned(),           false),
        ("rows in short",                  service("events: [a.b, \"c.*\"]"),                 true),
        ("a type with an empty segment",   service("events: [a..b]"),                         false),
        ("a policy of the catalog",        row("retry: patient"),                             true),
        ("a policy of the book",           row("retry: my-own"),                              true),
        ("a policy that is no name",       row("retry: \"my own\""),                          false),
        ("a duration",                     row("hold_max: 1h30m"),                            true),
        ("a duration without a unit",      row("hold_max: 30"),                               false),
        ("a timeout by its name",          row("timeout: slow"),                              true),
        ("a timeout by its length",        row("timeout: 1.5s"),                              true),
        ("a timeout by its parts",         row("timeout: { first: 1s, max: 9s }"),            true),
        ("a part that is not known",       row("timeout: { frist: 1s }"),                     false),
        ("reactions",                      row("on_failure: { transient: none, 503: aggressive, 500-599: dead-letter }"), true),
        ("a category that is not known",   row("on_failure: { transent: none }"),             false),
        ("a word",                         row("criticality: high"),                          true),
        ("a word that is not known",       row("criticality: huge"),                          false),
        ("overrides by status",            row("classify: [{ status: [404, 500-599], as: transient }]"), true),
        ("an override without a meaning",  row("classify: [{ status: 404 }]"),                false),
        ("a rate",                         row("dead_letter: { alert: 10/m }"),               true),
        ("a rate without a time",          row("dead_letter: { alert: 10 }"),                 false),
        ("a short fact",                   row("facts: { idempotent_by: upsert }"),           true),
        ("a long fact",                    row("facts: { idempotent_by: { pattern: upsert, store: index } }"), true),
        ("two kinds of target",            "version: 1\nservices: { a: { target: { log: stdout, http: x }, events: [a.b] } }\n".to_owned(), false),
        ("no kind of target",              "version: 1\nservices: { a: { target: { format: binary }, events: [a.b] } }\n".to_owned(), false),
        ("jitter with a width",            "version: 1\nretry_policies: { a: { from: worker, jitter: spread 25% } }\n".to_owned(), true),
        ("jitter that is not known",       "version: 1\nretry_policies: { a: { from: worker, jitter: wild } }\n".to_owned(), false),
        ("retries without end",            "version: 1\nretry_policies: { a: { from: worker, retries: unlimited } }\n".to_owned(), true),
        ("too many retries",               "version: 1\nretry_policies: { a: { from: worker, retries: 100001 } }\n".to_owned(), false),
        ("a text that looks like a number", row("dead_letter: { stage: 1 }"),                 true),
    ];
    for (name, book, expected) in cases {
        let problem = checker.problem(&book);
        assert_eq!(problem.is_none(), expected, "{name}: {}", problem.unwrap_or_default());
        let reading = redrive_core::book::read(&book, built_in());
        let form = ["undefined-name", "bad-name"];
        let refused = reading.problems.into_sorted().iter().any(|problem| !form.contains(&problem.code));
        assert!(
            expected || refused || name.contains("no name"),
            "{name}: `check` takes what the schema refuses"
        );
    }
}

#[test]
fn scenarios_pass_if_they_can_be_read() {
    let checker = Checker::printed_by(&["schema", "scenario"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut problems = Vec::new();
    let mut seen = 0;
    for folder in ["examples/scenarios", "fuzz/corpus/scenario"] {
        let entries = fs::read_dir(root.join(folder)).expect("there are some");
        for path in entries.map(|entry| entry.expect("it can be listed").path()).filter(|path| path.is_file())
        {
            let Ok(text) = fs::read_to_string(&path) else { continue };
            if redrive_lab::scenario::read(&text).scenario.is_none() {
                continue;
            }
            seen += 1;
            problems.extend(checker.problem(&text).map(|problem| format!("{}: {problem}", path.display())));
        }
    }
    assert!(problems.is_empty() && seen > 10, "{seen} scenarios\n{}\n", problems.join("\n"));
    let with = |rest: &str| format!("version: 1\nduration: 1m\n{rest}\n");
    #[rustfmt::skip]
    let cases = [
        ("a rate",             with("arrivals: [{ type: a.b, rate: 1/s }]"),                                 true),
        ("no rate",            with("arrivals: [{ type: a.b, rate: 1 }]"),                                   false),
        ("two flows",          with("arrivals: [{ type: a.b, rate: 1/s, trace: x }]"),                       false),
        ("a latency in short", with("dependencies: { a: { latency: 1s } }"),                                 true),
        ("a status in short",  with("dependencies: { a: { phases: [{ at: 1s, for: 1s, fails: 503 }] } }"),   true),
        ("a success",          with("dependencies: { a: { phases: [{ at: 1s, for: 1s, fails: 200 }] } }"),   false),
        ("a mood nobody knows", with("dependencies: { a: { phases: [{ at: 1s, for: 1s, is: sad }] } }"),     false),
        ("a misspelt key",     with("arrival: []"),                                                          false),
        ("no duration",        "version: 1\n".to_owned(),                                                    false),
    ];
    for (name, text, expected) in cases {
        let problem = checker.problem(&text);
        assert_eq!(problem.is_none(), expected, "{name}: {}", problem.unwrap_or_default());
        assert_eq!(redrive_lab::scenario::read(&text).scenario.is_some(), expected, "{name}");
    }
}
