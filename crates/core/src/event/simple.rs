//! Easy form: any JSON posted under a type, so that the first event needs no lesson.
//!
//! What is not said is filled in; what is said, with the headers of the binary form, holds. The body must be
//! JSON whatever the content type says: `curl -d` calls everything a form.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::attribute::{ContentType, EventId, EventSource};
use super::draft::{RawAttribute, AttributePlace};
use super::refusal::{InvalidEvent, InvalidReason};
use super::{Event, HeaderList, binary, content_type_of};

/// The source of events that name none.
pub const SOURCE_DEFAULT: &str = "/v1/events";

/// A request in the easy form.
#[derive(Clone, Copy)]
pub struct SimpleEvent<'a> {
    /// The type, from the path.
    pub event_type: &'a str,
    /// The session key, from the query.
    pub partition_key: Option<&'a str>,
    /// The header `Idempotency-Key`, which becomes the event's id.
    pub idempotency_key: Option<&'a str>,
    /// An id that nobody has used, for an event that says none.
    pub generated_id: &'a EventId,
    /// All headers.
    pub headers: &'a dyn HeaderList,
    /// The whole body.
    pub body: &'a Bytes,
}

/// Reads what was posted to `/v1/events/{type}`.
pub fn parse_easy(easy: SimpleEvent<'_>) -> Result<Event, InvalidEvent> {
    let mut draft = binary::draft_of(easy.headers)?;
    draft.assume_version();
    draft.set("type", &RawAttribute::Text(easy.event_type.into()))?;
    if let Some(key) = easy.partition_key {
        draft.set("partitionkey", &RawAttribute::Text(key.into()))?;
    }
    if let Some(key) = easy.idempotency_key {
        let refuse = |reason| InvalidEvent::new("idempotency-key", reason);
        let id = EventId::new(key).map_err(refuse)?;
        if draft.id.replace(id).is_some() {
            return Err(refuse(InvalidReason::Twice));
        }
    }
    draft.id.get_or_insert_with(|| easy.generated_id.clone());
    draft.source.get_or_insert_with(|| EventSource::new(SOURCE_DEFAULT).expect("a short plain text"));
    draft.content_type = json_type(content_type_of(easy.headers)?, easy.body)?;
    draft.finish(easy.body.clone(), AttributePlace::Headers)
}

/// What the body is, which must be JSON or nothing.
fn json_type(stated: Option<ContentType>, body: &Bytes) -> Result<Option<ContentType>, InvalidEvent> {
    if stated.as_ref().is_some_and(ContentType::is_cloudevents) {
        return Err(InvalidEvent::new("content-type", InvalidReason::WholeEvent));
    }
    if body.is_empty() {
        return Ok(None);
    }
    // Unlike a value that is ignored, a raw one must be text.
    match serde_json::from_slice::<&RawValue>(body) {
        Ok(_) => Ok(Some(stated.filter(ContentType::is_json).unwrap_or_else(ContentType::json))),
        Err(error) => Err(InvalidEvent::new("body", InvalidReason::not_json(&error))),
    }
}
