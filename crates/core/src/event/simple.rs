//! Simple form: any JSON posted under a type.
//!
//! Missing attributes are filled in; those given by headers of the binary form apply. The body must be JSON
//! whatever the content type, since `curl -d` labels everything as a form.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::attribute::{ContentType, EventId, EventSource};
use super::draft::{AttributePlace, RawAttribute};
use super::refusal::{InvalidEvent, InvalidReason};
use super::{Event, HeaderList, binary, content_type_of};

/// For events without a source.
pub const SOURCE_DEFAULT: &str = "/v1/events";

#[derive(Clone, Copy)]
pub struct SimpleEvent<'a> {
    pub event_type: &'a str,
    pub partition_key: Option<&'a str>,
    /// The header `Idempotency-Key`, which becomes the event's id.
    pub idempotency_key: Option<&'a str>,
    /// A fresh id, for an event without one.
    pub generated_id: &'a EventId,
    pub headers: &'a dyn HeaderList,
    pub body: &'a Bytes,
}

/// Reads a request to `/v1/events/{type}`.
pub fn parse_simple(simple: SimpleEvent<'_>) -> Result<Event, InvalidEvent> {
    let mut draft = binary::draft_of(simple.headers)?;
    draft.assume_version();
    draft.set("type", &RawAttribute::Text(simple.event_type.into()))?;
    if let Some(key) = simple.partition_key {
        draft.set("partitionkey", &RawAttribute::Text(key.into()))?;
    }
    if let Some(key) = simple.idempotency_key {
        let refuse = |reason| InvalidEvent::new("idempotency-key", reason);
        let id = EventId::new(key).map_err(refuse)?;
        if draft.id.replace(id).is_some() {
            return Err(refuse(InvalidReason::Twice));
        }
    }
    draft.id.get_or_insert_with(|| simple.generated_id.clone());
    draft.source.get_or_insert_with(|| EventSource::new(SOURCE_DEFAULT).expect("a short plain text"));
    draft.content_type = json_type(content_type_of(simple.headers)?, simple.body)?;
    draft.finish(simple.body.clone(), AttributePlace::Headers)
}

/// The body must be JSON or empty.
fn json_type(stated: Option<ContentType>, body: &Bytes) -> Result<Option<ContentType>, InvalidEvent> {
    if stated.as_ref().is_some_and(ContentType::is_cloudevents) {
        return Err(InvalidEvent::new("content-type", InvalidReason::WholeEvent));
    }
    if body.is_empty() {
        return Ok(None);
    }
    // Unlike an ignored value, a raw one must be UTF-8.
    match serde_json::from_slice::<&RawValue>(body) {
        Ok(_) => Ok(Some(stated.filter(ContentType::is_json).unwrap_or_else(ContentType::json))),
        Err(error) => Err(InvalidEvent::new("body", InvalidReason::not_json(&error))),
    }
}
