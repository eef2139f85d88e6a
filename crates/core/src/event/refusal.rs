//! Why input is not an event: which field, what is wrong, and what to do.
//!
//! A reason continues the name of its field: "`id` is missing".

use crate::book::pattern::InvalidType;
use crate::limits;
use crate::time::InvalidTimestamp;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}`{field}` {reason}", within_a_batch(*index))]
pub struct InvalidEvent {
    /// Position in the batch, from 0.
    pub index: Option<usize>,
    /// An attribute, or a part of the request.
    pub field: String,
    pub reason: InvalidReason,
}

fn within_a_batch(index: Option<usize>) -> String {
    index.map(|index| format!("event {index} of the batch, counted from 0: ")).unwrap_or_default()
}

impl InvalidEvent {
    /// The name comes from the sender, so it is cut to the length of a valid name.
    pub(super) fn new(field: &str, reason: InvalidReason) -> Self {
        let field = field.chars().take(limits::EXTENSION_NAME_BYTES_MAX).collect();
        Self { index: None, field, reason }
    }

    pub(super) fn at(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReason {
    #[error("is missing")]
    Missing,
    #[error(
        "is missing: set the header `ce-{attribute}`, or send the type in the path and any JSON: POST /v1/events/{{type}}"
    )]
    MissingHeader { attribute: &'static str },
    #[error("is empty: give it a value or remove it")]
    Empty,
    #[error("is {bytes} bytes long: the maximum is {bytes_max}")]
    TooLong { bytes: usize, bytes_max: usize },
    #[error("contains {character:?}: control characters and noncharacters are not allowed")]
    Character { character: char },
    #[error("contains {character:?}: a media type is printable ASCII")]
    MediaTypeCharacter { character: char },
    #[error("is not valid UTF-8: percent-encode its UTF-8 bytes")]
    NotUtf8,
    #[error("is given twice")]
    Twice,
    #[error("is {found}: write it as a text in quotes")]
    NotText { found: &'static str },
    #[error("is {found}: an attribute is a text, a whole number of 32 bits, true or false")]
    NotAttribute { found: &'static str },
    #[error("is not 1.0, the supported version of CloudEvents")]
    Version,
    #[error("cannot be routed: {0}")]
    Type(#[from] InvalidType),
    #[error("is not a valid time: {0}, from 1970 on")]
    Time(#[from] InvalidTimestamp),
    #[error("is not an attribute name: use lower-case letters and digits only")]
    AttributeName,
    #[error("is reserved")]
    TakenName,
    #[error("is set by the header `content-type`: remove `ce-datacontenttype`")]
    ContentTypeHeader,
    #[error("is given beside `data`: give one of the two")]
    DataTwice,
    #[error("is not padded base64 in the standard alphabet")]
    NotBase64,
    #[error("is not valid JSON: {message}")]
    NotJson {
        /// The parser's message, with line and column.
        message: String,
    },
    #[error("is empty: send at least one event")]
    EmptyBatch,
    #[error("has more than {} events: send several batches", limits::BATCH_EVENTS_MAX)]
    TooManyEvents,
    #[error("are more than {}: move some into the data", limits::EXTENSIONS_MAX)]
    TooManyExtensions,
    #[error("exceed {} bytes in total: move some into the data", limits::EXTENSIONS_BYTES_MAX)]
    ExtensionsTooLarge,
    #[error(
        "is not `application/cloudevents+json` or `application/cloudevents-batch+json`: send one of these"
    )]
    UnknownFormat,
    #[error("is a CloudEvents type: send the data as separate events, or as `application/json`")]
    EventWithinEvent,
    #[error("marks the body as a whole event: post it to /v1/events, without a type")]
    WholeEvent,
}

impl InvalidReason {
    /// The parser's message, without repeating the sender's input at length.
    pub(crate) fn not_json(error: &serde_json::Error) -> Self {
        let mut message = error.to_string();
        if message.len() > limits::JSON_MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(limits::JSON_MESSAGE_BYTES_MAX));
            message.push_str(&format!("… at line {} column {}", error.line(), error.column()));
        }
        Self::NotJson { message }
    }
}
