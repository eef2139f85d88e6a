//! The attributes of an event, each a type that is checked once.
//!
//! Invariants: no attribute contains characters that CloudEvents forbids (control characters and
//! noncharacters), so each can be written as a header, as JSON and to a log; each is bounded; an event type can
//! be matched by patterns.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::refusal::InvalidReason;
use crate::book::pattern;
use crate::limits;

/// A text attribute; the parameter keeps attributes of different kinds apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<Of> {
    text: Arc<str>,
    of: PhantomData<fn() -> Of>,
}

pub trait TextBounds {
    const BYTES_MIN: usize;
    const BYTES_MAX: usize;
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdMark {}
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceMark {}
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubjectMark {}
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionMark {}
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CorrelationMark {}
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TraceMark {}
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExtensionMark {}

pub type EventId = Text<IdMark>;
/// A URI reference.
pub type EventSource = Text<SourceMark>;
pub type EventSubject = Text<SubjectMark>;
pub type SessionKey = Text<SessionMark>;
pub type CorrelationId = Text<CorrelationMark>;
/// Not validated as a trace; readers ignore invalid ones.
pub type TraceParent = Text<TraceMark>;
pub type ExtensionText = Text<ExtensionMark>;

impl TextBounds for IdMark {
    const BYTES_MIN: usize = 1;
    const BYTES_MAX: usize = limits::EVENT_ID_BYTES_MAX;
}

impl TextBounds for SourceMark {
    const BYTES_MIN: usize = 1;
    const BYTES_MAX: usize = limits::EVENT_SOURCE_BYTES_MAX;
}

impl TextBounds for SubjectMark {
    const BYTES_MIN: usize = 1;
    const BYTES_MAX: usize = limits::SUBJECT_BYTES_MAX;
}

impl TextBounds for SessionMark {
    const BYTES_MIN: usize = 1;
    const BYTES_MAX: usize = limits::SESSION_KEY_BYTES_MAX;
}

impl TextBounds for CorrelationMark {
    const BYTES_MIN: usize = 1;
    const BYTES_MAX: usize = limits::CORRELATION_ID_BYTES_MAX;
}

impl TextBounds for TraceMark {
    const BYTES_MIN: usize = 1;
    const BYTES_MAX: usize = limits::TRACEPARENT_BYTES_MAX;
}

impl TextBounds for ExtensionMark {
    const BYTES_MIN: usize = 0;
    const BYTES_MAX: usize = limits::EXTENSIONS_BYTES_MAX;
}

impl<Of: TextBounds> Text<Of> {
    pub fn new(text: &str) -> Result<Self, InvalidReason> {
        if text.len() < Of::BYTES_MIN {
            return Err(InvalidReason::Empty);
        }
        check_length(text, Of::BYTES_MAX)?;
        match text.chars().find(|&character| is_forbidden(character)) {
            Some(character) => Err(InvalidReason::Character { character }),
            None => Ok(Self { text: text.into(), of: PhantomData }),
        }
    }
}

impl<Of> Text<Of> {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<Of> fmt::Debug for Text<Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl<Of> fmt::Display for Text<Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

pub(super) fn check_length(text: &str, bytes_max: usize) -> Result<(), InvalidReason> {
    let bytes = text.len();
    if bytes > bytes_max { Err(InvalidReason::TooLong { bytes, bytes_max }) } else { Ok(()) }
}

/// Control characters and noncharacters, which CloudEvents forbids in strings.
fn is_forbidden(character: char) -> bool {
    let code = u32::from(character);
    character.is_control() || code & 0xfffe == 0xfffe || (0xfdd0..=0xfdef).contains(&code)
}

/// Words separated by dots.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Arc<str>);

impl EventType {
    pub fn new(text: &str) -> Result<Self, InvalidReason> {
        if text.is_empty() {
            return Err(InvalidReason::Empty);
        }
        pattern::check_type(text)?;
        Ok(Self(text.into()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A media type with its parameters, as received.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentType(Arc<str>);

impl ContentType {
    pub fn new(text: &str) -> Result<Self, InvalidReason> {
        if text.is_empty() {
            return Err(InvalidReason::Empty);
        }
        check_length(text, limits::CONTENT_TYPE_BYTES_MAX)?;
        match text.chars().find(|character| !matches!(character, ' '..='~')) {
            Some(character) => Err(InvalidReason::MediaTypeCharacter { character }),
            None => Ok(Self(text.into())),
        }
    }

    #[must_use]
    pub fn json() -> Self {
        Self("application/json".into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without parameters.
    #[must_use]
    pub fn media_type(&self) -> &str {
        let end = self.0.find(';').unwrap_or(self.0.len());
        self.0[..end].trim()
    }

    /// `…/json` or `…/…+json`.
    #[must_use]
    pub fn is_json(&self) -> bool {
        let Some((_, subtype)) = self.media_type().split_once('/') else { return false };
        let suffix = subtype.rsplit_once('+').map_or(subtype, |(_, suffix)| suffix);
        suffix.eq_ignore_ascii_case("json")
    }

    pub(super) fn is_cloudevents(&self) -> bool {
        const PREFIX: &str = "application/cloudevents";
        self.media_type().get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
    }
}

impl fmt::Debug for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Names with a meaning of their own, which cannot name an extension.
const TAKEN: [&str; 11] = [
    "correlationid",
    "data",
    "datacontenttype",
    "id",
    "partitionkey",
    "source",
    "specversion",
    "subject",
    "time",
    "traceparent",
    "type",
];

/// Lower-case letters and digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtensionName(Box<str>);

impl ExtensionName {
    pub fn new(text: &str) -> Result<Self, InvalidReason> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if text.is_empty() || !text.bytes().all(fits) {
            return Err(InvalidReason::AttributeName);
        }
        check_length(text, limits::EXTENSION_NAME_BYTES_MAX)?;
        if TAKEN.contains(&text) { Err(InvalidReason::TakenName) } else { Ok(Self(text.into())) }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ExtensionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for ExtensionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Headers only carry text, so other values become text there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtensionValue {
    /// Also used for bytes, addresses and times.
    Text(ExtensionText),
    Integer(i32),
    Boolean(bool),
}

impl fmt::Display for ExtensionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.pad(text.as_str()),
            Self::Integer(number) => fmt::Display::fmt(number, f),
            Self::Boolean(truth) => fmt::Display::fmt(truth, f),
        }
    }
}
