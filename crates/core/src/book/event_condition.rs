//! What conditions on events can name: `where` of an event row.

use super::cel::{CelExpression, CelValues, InvalidCel};
use crate::event::Event;
use crate::event::attribute::{ContentType, ExtensionValue, Text};

/// Absent attributes are `null`; `data` is the parsed JSON, other text as text, `null` for bytes.
pub const NAMES: [&str; 9] =
    ["id", "source", "type", "subject", "session", "correlation_id", "time", "data", "extensions"];

pub fn parse(text: &str) -> Result<CelExpression, InvalidCel> {
    CelExpression::parse(text, &NAMES)
}

#[must_use]
pub fn values(event: &Event) -> CelValues {
    let extensions = event.extensions.iter().map(|(name, value)| {
        let value = match value {
            ExtensionValue::Text(text) => serde_json::Value::from(text.as_str()),
            ExtensionValue::Integer(number) => (*number).into(),
            ExtensionValue::Boolean(is) => (*is).into(),
        };
        (name.as_str().to_owned(), value)
    });
    let extensions: serde_json::Map<_, _> = extensions.collect();
    CelValues::new(event.data.len())
        .with("id", event.id.as_str())
        .with("source", event.source.as_str())
        .with("type", event.event_type.as_str())
        .with("subject", event.subject.as_ref().map(Text::as_str))
        .with("session", event.session.as_ref().map(Text::as_str))
        .with("correlation_id", event.correlation_id.as_ref().map(Text::as_str))
        .with("time", event.time.map(|time| time.to_string()))
        .with("extensions", extensions)
        .with("data", data(event))
}

fn data(event: &Event) -> serde_json::Value {
    if event.content_type.as_ref().is_none_or(ContentType::is_json) {
        return serde_json::from_slice(&event.data).unwrap_or_default();
    }
    std::str::from_utf8(&event.data).map(serde_json::Value::from).unwrap_or_default()
}
