//! Events: the attributes of CloudEvents 1.0 and opaque data.
//!
//! An event arrives in one of four forms: attributes as HTTP headers ([`binary`]), a JSON object or a list of
//! them ([`structured`]), or any JSON posted under a type ([`simple`]). It is sent in the first two.
//!
//! Invariants: every field is checked by its type, so an event can always be routed, stored and sent; a sent
//! event reads back as the same event; data are kept byte for byte; any input gives events or an error that
//! names the field, never a panic; a batch is accepted as a whole or not at all.

pub mod attribute;
pub mod binary;
pub mod copy_rule;
mod draft;
pub mod idempotency;
pub mod refusal;
pub mod reserved;
pub mod simple;
pub mod structured;

use std::collections::BTreeMap;

use bytes::Bytes;

use self::attribute::{
    ContentType, CorrelationId, EventId, EventSource, EventSubject, EventType, ExtensionName, ExtensionValue,
    SessionKey, TraceParent,
};
use self::refusal::{InvalidEvent, InvalidReason};
use crate::event::idempotency::DedupKey;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Unique within its source.
    pub id: EventId,
    pub source: EventSource,
    pub event_type: EventType,
    pub subject: Option<EventSubject>,
    pub time: Option<Timestamp>,
    /// Unknown if absent.
    pub content_type: Option<ContentType>,
    /// Deliveries keep their order within a session: the attribute `partitionkey`.
    pub session: Option<SessionKey>,
    /// The attribute `correlationid`.
    pub correlation_id: Option<CorrelationId>,
    /// W3C trace context.
    pub traceparent: Option<TraceParent>,
    /// All other attributes, including `dataschema`, for targets only.
    pub extensions: BTreeMap<ExtensionName, ExtensionValue>,
    /// As received; may be empty.
    pub data: Bytes,
}

#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    pub headers: &'a dyn HeaderList,
    pub body: &'a Bytes,
}

/// The headers of a request, in the server's own form.
pub trait HeaderList {
    /// In any order and any case.
    fn each(&self) -> Box<dyn Iterator<Item = (&str, &[u8])> + '_>;
}

impl HeaderList for Vec<(String, String)> {
    fn each(&self) -> Box<dyn Iterator<Item = (&str, &[u8])> + '_> {
        Box::new(self.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
    }
}

impl HeaderList for &[(&str, &[u8])] {
    fn each(&self) -> Box<dyn Iterator<Item = (&str, &[u8])> + '_> {
        Box::new(self.iter().copied())
    }
}

/// A list is answered with a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    One(Box<Event>),
    Batch(Vec<Event>),
}

impl Parsed {
    #[must_use]
    pub fn into_events(self) -> Vec<Event> {
        match self {
            Self::One(event) => vec![*event],
            Self::Batch(events) => events,
        }
    }
}

/// Reads a request to `/v1/events` in the form given by its content type.
pub fn parse(incoming: Incoming<'_>) -> Result<Parsed, InvalidEvent> {
    let content_type = content_type_of(incoming.headers)?;
    let one = |event| Parsed::One(Box::new(event));
    match EventFormat::of(content_type.as_ref())? {
        EventFormat::Binary => binary::read(incoming, content_type).map(one),
        EventFormat::Structured => structured::read(incoming.body).map(one),
        EventFormat::Batch => structured::read_batch(incoming.body).map(Parsed::Batch),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventFormat {
    Binary,
    Structured,
    Batch,
}

impl EventFormat {
    fn of(content_type: Option<&ContentType>) -> Result<Self, InvalidEvent> {
        let Some(content_type) = content_type.filter(|content_type| content_type.is_cloudevents()) else {
            return Ok(Self::Binary);
        };
        match content_type.media_type().to_ascii_lowercase().as_str() {
            "application/cloudevents+json" => Ok(Self::Structured),
            "application/cloudevents-batch+json" => Ok(Self::Batch),
            _ => Err(InvalidEvent::new("content-type", InvalidReason::UnknownFormat)),
        }
    }
}

/// `None` without a content type.
fn content_type_of(headers: &dyn HeaderList) -> Result<Option<ContentType>, InvalidEvent> {
    let refuse = |reason| InvalidEvent::new("content-type", reason);
    let mut found = headers.each().filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let Some((_, value)) = found.next() else { return Ok(None) };
    if found.next().is_some() {
        return Err(refuse(InvalidReason::Twice));
    }
    let text = std::str::from_utf8(value).map_err(|_| refuse(InvalidReason::NotUtf8))?.trim();
    // An empty one counts as none.
    if text.is_empty() {
        return Ok(None);
    }
    ContentType::new(text).map(Some).map_err(refuse)
}

impl Event {
    /// Identifies the event.
    #[must_use]
    pub fn dedup_key(&self) -> DedupKey<'_> {
        DedupKey { source: self.source.as_str(), event_id: self.id.as_str() }
    }

    /// The set attributes in writing order, without the content type, whose place depends on the form.
    fn attributes(&self) -> impl Iterator<Item = (&str, AttributeValue<'_>)> {
        let named = [
            ("specversion", Some("1.0")),
            ("id", Some(self.id.as_str())),
            ("source", Some(self.source.as_str())),
            ("type", Some(self.event_type.as_str())),
            ("subject", self.subject.as_ref().map(EventSubject::as_str)),
            ("partitionkey", self.session.as_ref().map(SessionKey::as_str)),
            ("correlationid", self.correlation_id.as_ref().map(CorrelationId::as_str)),
            ("traceparent", self.traceparent.as_ref().map(TraceParent::as_str)),
        ];
        let named = named.into_iter().filter_map(|(name, text)| Some((name, AttributeValue::Text(text?))));
        let time = self.time.map(|time| ("time", AttributeValue::Time(time)));
        let others =
            self.extensions.iter().map(|(name, value)| (name.as_str(), AttributeValue::Extension(value)));
        named.chain(time).chain(others)
    }
}

/// A value to write.
enum AttributeValue<'a> {
    Text(&'a str),
    Time(Timestamp),
    Extension(&'a ExtensionValue),
}

#[cfg(test)]
mod tests;
