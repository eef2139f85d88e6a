//! Lints about event schemas: fields that no event can have.

use std::collections::BTreeSet;

use redrive_core::book::event_schema::EventSchema;
use redrive_core::book::model::{EventRow, Sections};
use redrive_core::book::problem::{BookSpan, ProblemSeverity};

use super::ExampleBook::Book;
use super::{Findings, Lint, LintScope};

pub(super) const LINTS: &[Lint] = &[UNKNOWN_FIELD];

const UNKNOWN_FIELD: Lint = Lint {
    code: "unknown-schema-field",
    severity: ProblemSeverity::Warning,
    summary: "a template or condition names a field that the schema of its events does not have",
    explanation: "The schema in `event_types` lists the properties of an event's data, and this field is not one of them. \
                  For an event without it, a condition with it is not met, and a template with it makes the delivery a \
                  dead letter. Correct the name, add the field to the schema, or state `additionalProperties`.",
    bad: Book(&[
        "event_types: { orders.placed: { schema: { type: object, properties: { total: { type: number } } } } }",
        "services:",
        r#"  shop: { target: { log: stdout }, events: [{ type: orders.placed, where: "data.totl > 100" }] }"#,
    ]),
    fix: &[("data.totl", "data.total")],
    scope: LintScope::Book(unknown_schema_field),
};

fn unknown_schema_field<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    if book.event_types.is_empty() {
        return;
    }
    let mut reported: BTreeSet<(BookSpan, &str)> = BTreeSet::new();
    for (service, channel, row) in book.rows() {
        let target = channel.and_then(|channel| channel.target.as_ref()).unwrap_or(&service.target);
        let condition = row.condition.iter().map(|at| (at.span, at.value.fields()));
        let uses = target.endpoint.profile.templates.iter().map(|used| (used.span, used.template.fields()));
        for (event_type, schema) in schemas_of(book, row) {
            for (span, fields) in condition.clone().chain(uses.clone()) {
                for field in fields.iter().filter(|field| !has(schema, field)) {
                    if reported.insert((span, field)) {
                        let message = format!("the schema of `{event_type}` has no `{field}`");
                        findings.report(span, message, "correct the name, or add it to the schema");
                    }
                }
            }
        }
    }
}

fn schemas_of<'a>(book: &'a Sections, row: &EventRow) -> Vec<(&'a str, &'a EventSchema)> {
    let matching = book.event_types.iter().filter(|(event_type, _)| row.pattern.value.matches(event_type));
    matching.map(|(event_type, entry)| (event_type.as_str(), &entry.schema)).collect()
}

fn has(schema: &EventSchema, field: &str) -> bool {
    let mut words = field.split('.');
    if words.next() != Some("data") {
        return true;
    }
    schema.may_have(&words.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn templates_of_targets_are_compared_too() {
        let found_in = |target: &str| {
            let schema = "{ type: object, properties: { total: { type: number } } }";
            let book = format!(
                "version: 1\nevent_types: {{ orders.placed: {{ schema: {schema} }} }}\nservices:\n  s: {{ target: {{ {target} }}, events: [orders.placed] }}\n"
            );
            !found(&book, LINTS).is_empty()
        };
        #[rustfmt::skip]
        let cases = [
            ("a path",    r#"http: "http://h.test/", path: "/{{ data.totl }}""#,                 true),
            ("a body",    r#"http: "http://h.test/", body: { of: ["{data.totl}"] }"#,            true),
            ("a header",  r#"http: "http://h.test/", headers: { x: "{{ data.totl }}" }"#,        true),
            ("a title",   r#"ntfy: "http://h.test/t", title: "{{ data.totl }}""#,                true),
            ("a property", r#"http: "http://h.test/", body: { of: ["{data.total}", "{type}"] }"#, false),
        ];
        for (name, target, expected) in cases {
            assert_eq!(found_in(target), expected, "{name}");
        }
    }

    #[test]
    fn fields_are_compared_with_the_schema_of_the_events_of_their_row() {
        let schema = "{ type: object, properties: { total: { type: number }, user: { type: object, properties: { name: {} } }, any: {} } }";
        #[rustfmt::skip]
        let cases = [
            ("a property",                "orders.placed", "data.total > 1",           false),
            ("one inside another",        "orders.placed", "data.user.name == 'a'",    false),
            ("below a free one",          "orders.placed", "data.any.thing == 'a'",    false),
            ("no property",               "orders.placed", "data.totl > 1",            true),
            ("no property of another",    "orders.placed", "data.user.nick == 'a'",    true),
            ("an attribute",              "orders.placed", "subject == 'a'",           false),
            ("a pattern",                 "\"orders.*\"",  "data.totl > 1",            true),
            ("a type without a schema",   "orders.packed", "data.totl > 1",            false),
        ];
        for (name, event_type, condition, expected) in cases {
            let book = format!(
                "version: 1\nevent_types: {{ orders.placed: {{ schema: {schema} }} }}\nservices:\n  s: {{ target: {{ log: stdout }}, events: [{{ type: {event_type}, where: \"{condition}\" }}] }}\n"
            );
            assert_eq!(!found(&book, LINTS).is_empty(), expected, "{name}");
        }
    }
}
