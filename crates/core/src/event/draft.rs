//! An event under construction: attributes arrive one by one, from headers or JSON, and are checked alike.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::Event;
use super::attribute::{
    ContentType, CorrelationId, EventId, EventSource, EventSubject, EventType, ExtensionName, ExtensionText,
    ExtensionValue, SessionKey, Text, TextBounds, TraceParent, check_length,
};
use super::refusal::{InvalidEvent, InvalidReason};
use crate::limits;
use crate::time::Timestamp;

#[derive(Default)]
pub(super) struct EventDraft {
    version: Option<Version>,
    pub(super) id: Option<EventId>,
    pub(super) source: Option<EventSource>,
    pub(super) event_type: Option<EventType>,
    pub(super) content_type: Option<ContentType>,
    subject: Option<EventSubject>,
    time: Option<Timestamp>,
    session: Option<SessionKey>,
    correlation_id: Option<CorrelationId>,
    traceparent: Option<TraceParent>,
    extensions: BTreeMap<ExtensionName, ExtensionValue>,
    extension_bytes: usize,
}

/// Only 1.0 is supported.
struct Version;

pub(super) enum RawAttribute<'a> {
    Text(Cow<'a, str>),
    Integer(i32),
    Boolean(bool),
}

/// Where attributes are read from, for messages about a missing one.
#[derive(Clone, Copy)]
pub(super) enum AttributePlace {
    Headers,
    Members,
}

impl EventDraft {
    pub(super) fn set(&mut self, name: &str, given: &RawAttribute<'_>) -> Result<(), InvalidEvent> {
        self.take(name, given).map_err(|reason| {
            let together =
                matches!(reason, InvalidReason::TooManyExtensions | InvalidReason::ExtensionsTooLarge);
            InvalidEvent::new(if together { "extensions" } else { name }, reason)
        })
    }

    fn take(&mut self, name: &str, given: &RawAttribute<'_>) -> Result<(), InvalidReason> {
        match name {
            "specversion" => once(&mut self.version, Version::new(given.text()?)?),
            "id" => once(&mut self.id, text(given)?),
            "source" => once(&mut self.source, text(given)?),
            "type" => once(&mut self.event_type, EventType::new(given.text()?)?),
            "subject" => once(&mut self.subject, text(given)?),
            "time" => once(&mut self.time, time(given.text()?)?),
            "datacontenttype" => once(&mut self.content_type, content_type(given.text()?)?),
            "partitionkey" => once(&mut self.session, text(given)?),
            "correlationid" => once(&mut self.correlation_id, text(given)?),
            "traceparent" => once(&mut self.traceparent, text(given)?),
            other => self.extend(ExtensionName::new(other)?, given),
        }
    }

    fn extend(&mut self, name: ExtensionName, given: &RawAttribute<'_>) -> Result<(), InvalidReason> {
        let value = match given {
            RawAttribute::Text(text) if name.as_str() == "dataschema" && text.is_empty() => {
                return Err(InvalidReason::Empty);
            }
            RawAttribute::Text(text) => ExtensionValue::Text(ExtensionText::new(text)?),
            RawAttribute::Integer(_) | RawAttribute::Boolean(_) if name.as_str() == "dataschema" => {
                return Err(InvalidReason::NotText { found: given.kind() });
            }
            RawAttribute::Integer(number) => ExtensionValue::Integer(*number),
            RawAttribute::Boolean(truth) => ExtensionValue::Boolean(*truth),
        };
        self.extension_bytes += name.as_str().len() + given.bytes();
        if self.extension_bytes > limits::EXTENSIONS_BYTES_MAX {
            return Err(InvalidReason::ExtensionsTooLarge);
        }
        if self.extensions.insert(name, value).is_some() {
            return Err(InvalidReason::Twice);
        }
        if self.extensions.len() > limits::EXTENSIONS_MAX {
            Err(InvalidReason::TooManyExtensions)
        } else {
            Ok(())
        }
    }

    /// For forms that need not state the version.
    pub(super) fn assume_version(&mut self) {
        self.version.get_or_insert(Version);
    }

    pub(super) fn finish(self, data: Bytes, place: AttributePlace) -> Result<Event, InvalidEvent> {
        let missing = |attribute: &'static str| {
            InvalidEvent::new(
                attribute,
                match place {
                    AttributePlace::Headers => InvalidReason::MissingHeader { attribute },
                    AttributePlace::Members => InvalidReason::Missing,
                },
            )
        };
        let Self { version, id, source, event_type, content_type, subject, time, .. } = self;
        let Self { session, correlation_id, traceparent, extensions, .. } = self;
        let Version = version.ok_or_else(|| missing("specversion"))?;
        let id = id.ok_or_else(|| missing("id"))?;
        let source = source.ok_or_else(|| missing("source"))?;
        let event_type = event_type.ok_or_else(|| missing("type"))?;
        Ok(Event {
            id,
            source,
            event_type,
            subject,
            time,
            content_type,
            session,
            correlation_id,
            traceparent,
            extensions,
            data,
        })
    }
}

impl RawAttribute<'_> {
    fn text(&self) -> Result<&str, InvalidReason> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Integer(_) | Self::Boolean(_) => Err(InvalidReason::NotText { found: self.kind() }),
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) => "a number",
            Self::Boolean(_) => "true or false",
        }
    }

    /// Approximate size when written.
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Integer(_) | Self::Boolean(_) => size_of::<i32>(),
        }
    }
}

impl Version {
    fn new(text: &str) -> Result<Self, InvalidReason> {
        if text == "1.0" { Ok(Self) } else { Err(InvalidReason::Version) }
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), InvalidReason> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(InvalidReason::Twice),
    }
}

fn text<Of: TextBounds>(given: &RawAttribute<'_>) -> Result<Text<Of>, InvalidReason> {
    Text::new(given.text()?)
}

fn time(text: &str) -> Result<Timestamp, InvalidReason> {
    if text.is_empty() {
        return Err(InvalidReason::Empty);
    }
    check_length(text, limits::EVENT_TIME_BYTES_MAX)?;
    Ok(text.parse()?)
}

fn content_type(text: &str) -> Result<ContentType, InvalidReason> {
    let content_type = ContentType::new(text.trim())?;
    // As headers, its content type would mark the whole request as an event.
    if content_type.is_cloudevents() { Err(InvalidReason::EventWithinEvent) } else { Ok(content_type) }
}
