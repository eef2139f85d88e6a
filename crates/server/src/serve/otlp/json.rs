//! Spans in OTLP JSON: ids in hexadecimal, 64-bit numbers as strings.

use redrive_core::trace::span::{AttributeValue, SpanKind, TraceSpan};
use serde_json::{Value as Json, json};

const SCOPE: &str = "redrive";

/// Status code `ERROR` of a span.
const FAILED: u8 = 2;

pub(crate) fn written(service_name: &str, spans: &[TraceSpan]) -> Vec<u8> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let resource = [("service.name", service_name), ("service.version", VERSION)].map(text);
    let spans: Vec<Json> = spans.iter().map(written_span).collect();
    let scope_spans = json!([{ "scope": { "name": SCOPE, "version": VERSION }, "spans": spans }]);
    let resource_spans = json!([{ "resource": { "attributes": resource }, "scopeSpans": scope_spans }]);
    json!({ "resourceSpans": resource_spans }).to_string().into_bytes()
}

fn written_span(span: &TraceSpan) -> Json {
    let mut attributes: Vec<Json> = span.attributes.iter().map(attribute).collect();
    attributes.extend(span.failure.as_deref().map(|code| text(("error.type", code))));
    let mut written = json!({
        "traceId": span.trace.to_string(),
        "spanId": span.id.to_string(),
        "name": name(span),
        "kind": kind(span.does),
        "startTimeUnixNano": span.started_at.as_nanos().to_string(),
        "endTimeUnixNano": span.ended_at.as_nanos().to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        written["parentSpanId"] = parent.to_string().into();
    }
    if let Some(code) = &span.failure {
        written["status"] = json!({ "code": FAILED, "message": code });
    }
    written
}

fn name(span: &TraceSpan) -> String {
    let service = span.attributes.iter().find(|(name, _)| *name == "redrive.service");
    match service {
        Some((_, AttributeValue::Text(service))) => format!("{} {service}", span.does.as_str()),
        _ => span.does.as_str().to_owned(),
    }
}

const fn kind(does: SpanKind) -> u8 {
    const INTERNAL: u8 = 1;
    const CLIENT: u8 = 3;
    const CONSUMER: u8 = 5;
    match does {
        SpanKind::Accept => CONSUMER,
        SpanKind::Deliver | SpanKind::Replay => INTERNAL,
        SpanKind::Attempt => CLIENT,
    }
}

fn attribute((key, value): &(&'static str, AttributeValue)) -> Json {
    match value {
        AttributeValue::Text(value) => text((key, value)),
        AttributeValue::Number(number) => json!({ "key": key, "value": { "intValue": number.to_string() } }),
    }
}

fn text((key, value): (&str, &str)) -> Json {
    json!({ "key": key, "value": { "stringValue": value } })
}
