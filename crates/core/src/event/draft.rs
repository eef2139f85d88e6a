//! An event in the making: attributes come one by one, from headers or from JSON, and are checked alike.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::Event;
use super::attribute::{
    Bounds, ContentType, CorrelationId, EventId, EventSource, EventType, ExtensionName, ExtensionText,
    ExtensionValue, SessionKey, Subject, Text, TraceParent, check_length,
};
use super::refusal::{InvalidEvent, Reason};
use crate::limits;
use crate::time::Timestamp;

/// The attributes so far.
#[derive(Default)]
pub(super) struct Draft {
    version: Option<Version>,
    pub(super) id: Option<EventId>,
    pub(super) source: Option<EventSource>,
    pub(super) event_type: Option<EventType>,
    pub(super) content_type: Option<ContentType>,
    subject: Option<Subject>,
    time: Option<Timestamp>,
    session: Option<SessionKey>,
    correlation_id: Option<CorrelationId>,
    traceparent: Option<TraceParent>,
    extensions: BTreeMap<ExtensionName, ExtensionValue>,
    extension_bytes: usize,
}

/// The one version of CloudEvents there is.
struct Version;

/// The value of an attribute as a form has it.
pub(super) enum Given<'a> {
    Text(Cow<'a, str>),
    Integer(i32),
    Boolean(bool),
}

/// Where a form has its attributes, so that a missing one can be asked for.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Headers,
    Members,
}

impl Draft {
    /// Takes an attribute.
    pub(super) fn set(&mut self, name: &str, given: &Given<'_>) -> Result<(), InvalidEvent> {
        self.take(name, given).map_err(|reason| {
            let together = matches!(reason, Reason::TooManyExtensions | Reason::ExtensionsTooLarge);
            InvalidEvent::new(if together { "extensions" } else { name }, reason)
        })
    }

    fn take(&mut self, name: &str, given: &Given<'_>) -> Result<(), Reason> {
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

    fn extend(&mut self, name: ExtensionName, given: &Given<'_>) -> Result<(), Reason> {
        let value = match given {
            Given::Text(text) if name.as_str() == "dataschema" && text.is_empty() => {
                return Err(Reason::Empty);
            }
            Given::Text(text) => ExtensionValue::Text(ExtensionText::new(text)?),
            Given::Integer(_) | Given::Boolean(_) if name.as_str() == "dataschema" => {
                return Err(Reason::NotText { found: given.kind() });
            }
            Given::Integer(number) => ExtensionValue::Integer(*number),
            Given::Boolean(truth) => ExtensionValue::Boolean(*truth),
        };
        self.extension_bytes += name.as_str().len() + given.bytes();
        if self.extension_bytes > limits::EXTENSIONS_BYTES_MAX {
            return Err(Reason::ExtensionsTooLarge);
        }
        if self.extensions.insert(name, value).is_some() {
            return Err(Reason::Twice);
        }
        if self.extensions.len() > limits::EXTENSIONS_MAX { Err(Reason::TooManyExtensions) } else { Ok(()) }
    }

    /// Says which version it is, for a form that need not say so itself.
    pub(super) fn assume_version(&mut self) {
        self.version.get_or_insert(Version);
    }

    /// The event, if nothing is missing.
    pub(super) fn finish(self, data: Bytes, place: Place) -> Result<Event, InvalidEvent> {
        let missing = |attribute: &'static str| {
            InvalidEvent::new(
                attribute,
                match place {
                    Place::Headers => Reason::MissingHeader { attribute },
                    Place::Members => Reason::Missing,
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

impl Given<'_> {
    fn text(&self) -> Result<&str, Reason> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Integer(_) | Self::Boolean(_) => Err(Reason::NotText { found: self.kind() }),
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) => "a number",
            Self::Boolean(_) => "true or false",
        }
    }

    /// About how much it takes when written.
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Integer(_) | Self::Boolean(_) => size_of::<i32>(),
        }
    }
}

impl Version {
    fn new(text: &str) -> Result<Self, Reason> {
        if text == "1.0" { Ok(Self) } else { Err(Reason::Version) }
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Reason> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Reason::Twice),
    }
}

fn text<Of: Bounds>(given: &Given<'_>) -> Result<Text<Of>, Reason> {
    Text::new(given.text()?)
}

fn time(text: &str) -> Result<Timestamp, Reason> {
    if text.is_empty() {
        return Err(Reason::Empty);
    }
    check_length(text, limits::EVENT_TIME_BYTES_MAX)?;
    Ok(text.parse()?)
}

fn content_type(text: &str) -> Result<ContentType, Reason> {
    let content_type = ContentType::new(text.trim())?;
    // As headers, its content type would say that the whole request is another event.
    if content_type.is_cloudevents() { Err(Reason::EventWithinEvent) } else { Ok(content_type) }
}
