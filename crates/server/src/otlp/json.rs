//! Spans as the protocol writes them in JSON: ids in hexadecimal, large numbers as texts.

use redrive_core::trace::span::{Does, Span, Value};
use serde::Serialize;

/// Who tells it.
const SCOPE: &str = "redrive";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    resource_spans: [ResourceSpans; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    resource: Resource,
    scope_spans: [ScopeSpans; 1],
}

#[derive(Serialize)]
struct Resource {
    attributes: Vec<Attribute>,
}

#[derive(Serialize)]
struct ScopeSpans {
    scope: Scope,
    spans: Vec<Written>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

#[derive(Serialize)]
struct Status {
    code: u8,
    message: String,
}

#[derive(Serialize)]
struct Attribute {
    key: &'static str,
    value: Typed,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Typed {
    StringValue(String),
    IntValue(String),
}

/// The code of a span that ended in a failure.
const FAILED: u8 = 2;

/// A request with all these spans.
pub(super) fn written(service_name: &str, spans: &[Span]) -> Vec<u8> {
    let resource = vec![
        Attribute { key: "service.name", value: Typed::StringValue(service_name.to_owned()) },
        Attribute { key: "service.version", value: Typed::StringValue(env!("CARGO_PKG_VERSION").to_owned()) },
    ];
    let spans = spans.iter().map(written_span).collect();
    let scope = Scope { name: SCOPE, version: env!("CARGO_PKG_VERSION") };
    let request = Request {
        resource_spans: [ResourceSpans {
            resource: Resource { attributes: resource },
            scope_spans: [ScopeSpans { scope, spans }],
        }],
    };
    serde_json::to_vec(&request).expect("texts and numbers are always JSON")
}

fn written_span(span: &Span) -> Written {
    let mut attributes: Vec<Attribute> = span.attributes.iter().map(attribute).collect();
    if let Some(code) = &span.failure {
        attributes.push(Attribute { key: "error.type", value: Typed::StringValue(code.clone()) });
    }
    Written {
        trace_id: span.trace.to_string(),
        span_id: span.id.to_string(),
        parent_span_id: span.parent.map(|id| id.to_string()),
        name: name(span),
        kind: kind(span.does),
        start_time_unix_nano: span.started_at.as_nanos().to_string(),
        end_time_unix_nano: span.ended_at.as_nanos().to_string(),
        attributes,
        status: span.failure.as_ref().map(|code| Status { code: FAILED, message: code.clone() }),
    }
}

/// What it does, and for which service if it is for one.
fn name(span: &Span) -> String {
    let service = span.attributes.iter().find(|(name, _)| *name == "redrive.service");
    match service {
        Some((_, Value::Text(service))) => format!("{} {service}", span.does.as_str()),
        _ => span.does.as_str().to_owned(),
    }
}

/// The protocol's number for the part that somebody plays.
const fn kind(does: Does) -> u8 {
    const INTERNAL: u8 = 1;
    const CLIENT: u8 = 3;
    const CONSUMER: u8 = 5;
    match does {
        Does::Accept => CONSUMER,
        Does::Deliver | Does::Replay => INTERNAL,
        Does::Attempt => CLIENT,
    }
}

fn attribute((key, value): &(&'static str, Value)) -> Attribute {
    let value = match value {
        Value::Text(text) => Typed::StringValue(text.to_string()),
        Value::Number(number) => Typed::IntValue(number.to_string()),
    };
    Attribute { key, value }
}
