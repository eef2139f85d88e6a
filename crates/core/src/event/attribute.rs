//! The attributes of an event, each with a type that checks it once.
//!
//! Invariants: no attribute has characters that CloudEvents forbids (control characters and code points that
//! are no characters), so each can be written as a header, as JSON and into a log; each has a bound; and an
//! event type is one that a rule book's patterns can claim.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::refusal::InvalidReason;
use crate::book::pattern;
use crate::limits;

/// A text attribute; the type parameter keeps a source from standing where a subject belongs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<Of> {
    text: Arc<str>,
    of: PhantomData<fn() -> Of>,
}

/// How long a text attribute may be.
pub trait TextBounds {
    /// The fewest bytes.
    const BYTES_MIN: usize;
    /// The most bytes.
    const BYTES_MAX: usize;
}

/// Marks the id of an event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdMark {}
/// Marks the source of an event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceMark {}
/// Marks the subject of an event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubjectMark {}
/// Marks the key of a session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionMark {}
/// Marks what ties events together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CorrelationMark {}
/// Marks the trace that an event belongs to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TraceMark {}
/// Marks the text of an attribute that only targets understand.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExtensionMark {}

/// The id of an event within its source.
pub type EventId = Text<IdMark>;
/// Where an event happened: a URI, or a part of one.
pub type EventSource = Text<SourceMark>;
/// What an event is about, within its source.
pub type EventSubject = Text<SubjectMark>;
/// The key within which deliveries keep their order.
pub type SessionKey = Text<SessionMark>;
/// What ties an event to others.
pub type CorrelationId = Text<CorrelationMark>;
/// The trace that an event belongs to; what is no trace is the reader's to ignore.
pub type TraceParent = Text<TraceMark>;
/// The text of an attribute that only targets understand; it may be empty.
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
    /// Checks the text and makes it an attribute.
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
    /// The attribute as text.
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

/// What CloudEvents keeps out of strings: control characters and code points that are no characters.
fn is_forbidden(character: char) -> bool {
    let code = u32::from(character);
    character.is_control() || code & 0xfffe == 0xfffe || (0xfdd0..=0xfdef).contains(&code)
}

/// The type of an event: words with dots between them, as the patterns of a rule book know them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Arc<str>);

impl EventType {
    /// Checks the text and makes it a type.
    pub fn new(text: &str) -> Result<Self, InvalidReason> {
        if text.is_empty() {
            return Err(InvalidReason::Empty);
        }
        pattern::check_type(text)?;
        Ok(Self(text.into()))
    }

    /// The type as text.
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

/// What an event's data are: a media type with its parameters, as it was given.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentType(Arc<str>);

impl ContentType {
    /// Checks the text and makes it a content type.
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

    /// The type of JSON.
    #[must_use]
    pub fn json() -> Self {
        Self("application/json".into())
    }

    /// It as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// It without its parameters.
    #[must_use]
    pub fn media_type(&self) -> &str {
        let end = self.0.find(';').unwrap_or(self.0.len());
        self.0[..end].trim()
    }

    /// Whether the data are JSON: `…/json` or `…/…+json`.
    #[must_use]
    pub fn is_json(&self) -> bool {
        let Some((_, subtype)) = self.media_type().split_once('/') else { return false };
        let suffix = subtype.rsplit_once('+').map_or(subtype, |(_, suffix)| suffix);
        suffix.eq_ignore_ascii_case("json")
    }

    /// Whether whole events are laid out in the data.
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

/// Names that mean something to us or to a form, and so cannot name an extension.
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

/// The name of an attribute that only targets understand: lower-case letters and digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtensionName(Box<str>);

impl ExtensionName {
    /// Checks the text and makes it a name.
    pub fn new(text: &str) -> Result<Self, InvalidReason> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if text.is_empty() || !text.bytes().all(fits) {
            return Err(InvalidReason::AttributeName);
        }
        check_length(text, limits::EXTENSION_NAME_BYTES_MAX)?;
        if TAKEN.contains(&text) { Err(InvalidReason::TakenName) } else { Ok(Self(text.into())) }
    }

    /// The name as text.
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

/// The value of such an attribute. Headers know only texts, so that is what the others become there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtensionValue {
    /// A text, which stands for bytes, addresses and times too.
    Text(ExtensionText),
    /// A whole number of 32 bits.
    Integer(i32),
    /// True or false.
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
