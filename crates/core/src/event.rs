//! Events: what happened, told in the attributes of CloudEvents 1.0 and bytes that nobody looks into.
//!
//! An event comes in once, in one of four forms: attributes as HTTP headers ([`binary`]), all of it as one
//! JSON object or a list of them ([`structured`]), or any JSON posted under a type ([`easy`]). It goes out in
//! the first two.
//!
//! Invariants: every field is checked by its type, so an event in hand can be routed, stored and sent; what is
//! sent reads back as the same event; data are kept byte for byte; any bytes end in events or in a refusal
//! that names the field, never in a panic; and a batch is taken whole or not at all.

pub mod attribute;
pub mod binary;
pub mod copy_rule;
mod draft;
pub mod simple;
pub mod idempotency;
pub mod refusal;
pub mod reserved;
pub mod structured;

use std::collections::BTreeMap;

use bytes::Bytes;

use self::attribute::{
    ContentType, CorrelationId, EventId, EventSource, EventType, ExtensionName, ExtensionValue, SessionKey,
    EventSubject, TraceParent,
};
use self::refusal::{InvalidEvent, InvalidReason};
use crate::event::idempotency::DedupKey;
use crate::time::Timestamp;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its id, which no other event of its source has.
    pub id: EventId,
    /// Where it happened.
    pub source: EventSource,
    /// What kind of event it is: what the rule book goes by.
    pub event_type: EventType,
    /// What it is about, within its source.
    pub subject: Option<EventSubject>,
    /// When it happened.
    pub time: Option<Timestamp>,
    /// What the data are; nothing is known of them if it is not said.
    pub content_type: Option<ContentType>,
    /// The key within which deliveries keep their order: the attribute `partitionkey`.
    pub session: Option<SessionKey>,
    /// What ties it to other events: the attribute `correlationid`.
    pub correlation_id: Option<CorrelationId>,
    /// The trace it belongs to, as W3C writes it.
    pub traceparent: Option<TraceParent>,
    /// All other attributes, `dataschema` among them, which only targets understand.
    pub extensions: BTreeMap<ExtensionName, ExtensionValue>,
    /// The data as they came; empty if none are defined.
    pub data: Bytes,
}

/// A request that brings events.
#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    /// Its headers.
    pub headers: &'a dyn HeaderList,
    /// Its whole body.
    pub body: &'a Bytes,
}

/// The headers of a request, in whatever form the server has them.
pub trait HeaderList {
    /// Every name with its value, in any order and any case.
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

/// What a request brought: whoever sent a list wants to be answered with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// An event on its own.
    One(Box<Event>),
    /// A list of at least one.
    Batch(Vec<Event>),
}

impl Parsed {
    /// The events in the order in which they came.
    #[must_use]
    pub fn into_events(self) -> Vec<Event> {
        match self {
            Self::One(event) => vec![*event],
            Self::Batch(events) => events,
        }
    }
}

/// Reads what was posted to `/v1/events`, in the form that its content type says.
pub fn parse(incoming: Incoming<'_>) -> Result<Parsed, InvalidEvent> {
    let content_type = content_type_of(incoming.headers)?;
    let one = |event| Parsed::One(Box::new(event));
    match EventFormat::of(content_type.as_ref())? {
        EventFormat::Binary => binary::read(incoming, content_type).map(one),
        EventFormat::Structured => structured::read(incoming.body).map(one),
        EventFormat::Batch => structured::read_batch(incoming.body).map(Parsed::Batch),
    }
}

/// How the parts of an event are laid out in a request.
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

/// The one content type among the headers, if there is any.
fn content_type_of(headers: &dyn HeaderList) -> Result<Option<ContentType>, InvalidEvent> {
    let refuse = |reason| InvalidEvent::new("content-type", reason);
    let mut found = headers.each().filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let Some((_, value)) = found.next() else { return Ok(None) };
    if found.next().is_some() {
        return Err(refuse(InvalidReason::Twice));
    }
    let text = std::str::from_utf8(value).map_err(|_| refuse(InvalidReason::NotUtf8))?.trim();
    // An empty one says as much as none.
    if text.is_empty() {
        return Ok(None);
    }
    ContentType::new(text).map(Some).map_err(refuse)
}

impl Event {
    /// What tells it from all other events.
    #[must_use]
    pub fn dedup_key(&self) -> DedupKey<'_> {
        DedupKey { source: self.source.as_str(), event_id: self.id.as_str() }
    }

    /// The attributes that are stated, in the order in which they are written; the content type, which each
    /// form has its own place for, is not among them.
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
        let others = self.extensions.iter().map(|(name, value)| (name.as_str(), AttributeValue::Extension(value)));
        named.chain(time).chain(others)
    }
}

/// A value on its way out.
enum AttributeValue<'a> {
    Text(&'a str),
    Time(Timestamp),
    Extension(&'a ExtensionValue),
}

#[cfg(test)]
mod tests;
