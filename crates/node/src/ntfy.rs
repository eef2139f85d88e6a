//! What ntfy servers are sent: title, priority and tags in headers, the message as the body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};

pub(crate) const TITLE: HeaderName = HeaderName::from_static("title");
pub(crate) const PRIORITY: HeaderName = HeaderName::from_static("priority");
pub(crate) const CLICK: HeaderName = HeaderName::from_static("click");
pub(crate) const TAGS: HeaderName = HeaderName::from_static("tags");
/// What a phone shows; servers allow more.
pub(crate) const TITLE_CHARS_MAX: usize = 200;
/// ntfy turns a longer body into an attachment.
const BODY_BYTES_MAX: usize = 4_000;

pub(crate) fn title(text: &str) -> HeaderValue {
    header(&text.chars().take(TITLE_CHARS_MAX).collect::<String>())
}

/// As much of it as ntfy shows as a message; ends in `…` if something is missing.
pub(crate) fn message_text(mut text: String) -> String {
    if text.len() > BODY_BYTES_MAX {
        text.truncate(text.floor_char_boundary(BODY_BYTES_MAX - '…'.len_utf8()));
        text.push('…');
    }
    text
}

/// ntfy decodes RFC 2047 headers.
pub(crate) fn header(text: &str) -> HeaderValue {
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let value = if plain { text.to_owned() } else { format!("=?UTF-8?B?{}?=", STANDARD.encode(text)) };
    HeaderValue::try_from(value).expect("printable ASCII")
}
