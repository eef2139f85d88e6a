//! Why something is no event: which field, what is wrong with it, and what to do.
//!
//! A reason reads on from the name of its field: "`id` is missing".

use crate::book::pattern::InvalidType;
use crate::limits;
use crate::time::InvalidTimestamp;

/// What was sent is no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}`{field}` {reason}", within_a_batch(*index))]
pub struct InvalidEvent {
    /// Which event of a batch, counted from 0.
    pub index: Option<usize>,
    /// The attribute or the part of the request.
    pub field: String,
    /// What is wrong with it.
    pub reason: InvalidReason,
}

fn within_a_batch(index: Option<usize>) -> String {
    index.map(|index| format!("event {index} of the batch, counted from 0: ")).unwrap_or_default()
}

impl InvalidEvent {
    /// A field's name is the sender's, so no more of it is shown than a name may have.
    pub(super) fn new(field: &str, reason: InvalidReason) -> Self {
        let field = field.chars().take(limits::EXTENSION_NAME_BYTES_MAX).collect();
        Self { index: None, field, reason }
    }

    pub(super) fn at(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReason {
    /// It must be there.
    #[error("is missing")]
    Missing,
    /// It must be there as a header.
    #[error(
        "is missing: set the header `ce-{attribute}`, or send the type in the path and any JSON: POST /v1/events/{{type}}"
    )]
    MissingHeader {
        /// The attribute's name.
        attribute: &'static str,
    },
    /// Nothing in it.
    #[error("is empty: give it a value or remove it")]
    Empty,
    /// Too long.
    #[error("is {bytes} bytes long: the maximum is {bytes_max}")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        bytes_max: usize,
    },
    /// A character that CloudEvents forbids.
    #[error("contains {character:?}: control characters and noncharacters are not allowed")]
    Character {
        /// The first one.
        character: char,
    },
    /// A character that media types do not have.
    #[error("contains {character:?}: a media type is printable ASCII")]
    MediaTypeCharacter {
        /// The first one.
        character: char,
    },
    /// Bytes that are no text.
    #[error("is not valid UTF-8: percent-encode its UTF-8 bytes")]
    NotUtf8,
    /// More than one value.
    #[error("is given twice")]
    Twice,
    /// JSON of another type.
    #[error("is {found}: write it as a text in quotes")]
    NotText {
        /// What it is.
        found: &'static str,
    },
    /// JSON that no attribute can be.
    #[error("is {found}: an attribute is a text, a whole number of 32 bits, true or false")]
    NotAttribute {
        /// What it is.
        found: &'static str,
    },
    /// Another version of CloudEvents.
    #[error("is not 1.0, the supported version of CloudEvents")]
    Version,
    /// A type that no pattern could claim.
    #[error("cannot be routed: {0}")]
    Type(#[from] InvalidType),
    /// No time.
    #[error("is not a valid time: {0}, from 1970 on")]
    Time(#[from] InvalidTimestamp),
    /// No name for an attribute.
    #[error("is not an attribute name: use lower-case letters and digits only")]
    AttributeName,
    /// A name that has a meaning already.
    #[error("is reserved")]
    TakenName,
    /// A header for what `content-type` says.
    #[error("is set by the header `content-type`: remove `ce-datacontenttype`")]
    ContentTypeHeader,
    /// Data in two forms.
    #[error("is given beside `data`: give one of the two")]
    DataTwice,
    /// No base64.
    #[error("is not padded base64 in the standard alphabet")]
    NotBase64,
    /// No JSON, or not that which belongs here.
    #[error("is not valid JSON: {message}")]
    NotJson {
        /// What the reader of JSON says, with line and column.
        message: String,
    },
    /// A batch of nothing.
    #[error("is empty: send at least one event")]
    EmptyBatch,
    /// A batch too long.
    #[error("has more than {} events: send several batches", limits::BATCH_EVENTS_MAX)]
    TooManyEvents,
    /// Too many attributes.
    #[error("are more than {}: move some into the data", limits::EXTENSIONS_MAX)]
    TooManyExtensions,
    /// Attributes too large together.
    #[error(
        "exceed {} bytes in total: move some into the data",
        limits::EXTENSIONS_BYTES_MAX
    )]
    ExtensionsTooLarge,
    /// A form of CloudEvents that is not known.
    #[error(
        "is not `application/cloudevents+json` or `application/cloudevents-batch+json`: send one of these"
    )]
    UnknownFormat,
    /// An event that brings events.
    #[error(
        "is a CloudEvents type: send the data as separate events, or as `application/json`"
    )]
    EventWithinEvent,
    /// A whole event where only its data belong.
    #[error("marks the body as a whole event: post it to /v1/events, without a type")]
    WholeEvent,
}

impl InvalidReason {
    /// What the reader of JSON says, without reading out to senders at length what they sent.
    pub(crate) fn not_json(error: &serde_json::Error) -> Self {
        let mut message = error.to_string();
        if message.len() > limits::JSON_MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(limits::JSON_MESSAGE_BYTES_MAX));
            message.push_str(&format!("… at line {} column {}", error.line(), error.column()));
        }
        Self::NotJson { message }
    }
}
