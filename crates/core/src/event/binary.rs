//! Binary form: attributes are headers that begin with `ce-`, the body is the data.
//!
//! Header values are percent-encoded UTF-8: everything but printable ASCII, and the space, `"` and `%`. For
//! older senders, quoted values, plain UTF-8 and a literal `%` are read too.

use std::borrow::Cow;

use super::attribute::ContentType;
use super::draft::{AttributePlace, EventDraft, RawAttribute};
use super::refusal::{InvalidEvent, InvalidReason};
use super::{AttributeValue, Event, HeaderList, Incoming};

const PREFIX: &str = "ce-";

pub(super) fn read(incoming: Incoming<'_>, content_type: Option<ContentType>) -> Result<Event, InvalidEvent> {
    let mut draft = draft_of(incoming.headers)?;
    draft.content_type = content_type;
    draft.finish(incoming.body.clone(), AttributePlace::Headers)
}

pub(super) fn draft_of(headers: &dyn HeaderList) -> Result<EventDraft, InvalidEvent> {
    let mut draft = EventDraft::default();
    for (header, value) in headers.each() {
        let Some((start, name)) = header.split_at_checked(PREFIX.len()) else { continue };
        if !start.eq_ignore_ascii_case(PREFIX) {
            continue;
        }
        let name = name.to_ascii_lowercase();
        if name == "datacontenttype" {
            return Err(InvalidEvent::new(&name, InvalidReason::ContentTypeHeader));
        }
        let text = decoded(value).map_err(|reason| InvalidEvent::new(&name, reason))?;
        draft.set(&name, &RawAttribute::Text(text))?;
    }
    Ok(draft)
}

impl Event {
    /// All attributes; the data are the body.
    #[must_use]
    pub fn binary_headers(&self) -> Vec<(String, String)> {
        let attributes = self.attributes().map(|(name, value)| {
            let value = match value {
                AttributeValue::Text(text) => encoded(text),
                AttributeValue::Time(time) => time.to_string(),
                AttributeValue::Extension(value) => encoded(&value.to_string()),
            };
            (format!("{PREFIX}{name}"), value)
        });
        let content_type = self.content_type.as_ref();
        let content_type = content_type.map(|text| ("content-type".to_owned(), text.to_string()));
        attributes.chain(content_type).collect()
    }
}

fn encoded(text: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !matches!(byte, b'"' | b'%') {
            encoded.push(char::from(byte));
        } else {
            let digits = [byte >> 4, byte & 0xf].map(|half| char::from(DIGITS[usize::from(half)]));
            encoded.extend(['%', digits[0], digits[1]]);
        }
    }
    encoded
}

fn decoded(value: &[u8]) -> Result<Cow<'_, str>, InvalidReason> {
    let value = value.trim_ascii();
    if !value.iter().any(|byte| matches!(byte, b'%' | b'"')) {
        return std::str::from_utf8(value).map(Cow::Borrowed).map_err(|_| InvalidReason::NotUtf8);
    }
    let value = match value {
        [b'"', inside @ .., b'"'] => unquoted(inside),
        plain => Cow::Borrowed(plain),
    };
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = &*value;
    while let [first, after @ ..] = rest {
        let (byte, after) = match rest {
            [b'%', high, low, after @ ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (*first, &rest[1..]),
            },
            _ => (*first, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| InvalidReason::NotUtf8)
}

/// Removes the backslashes of a quoted string.
fn unquoted(inside: &[u8]) -> Cow<'_, [u8]> {
    if !inside.contains(&b'\\') {
        return Cow::Borrowed(inside);
    }
    let mut bytes = inside.iter();
    let mut plain = Vec::with_capacity(inside.len());
    while let Some(&byte) = bytes.next() {
        plain.push(if byte == b'\\' { *bytes.next().unwrap_or(&byte) } else { byte });
    }
    Cow::Owned(plain)
}

fn digit(byte: u8) -> Option<u8> {
    let value = char::from(byte).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_are_read_as_they_are_meant() {
        #[rustfmt::skip]
        let cases: [(&str, &[u8], Result<&str, InvalidReason>); 14] = [
            ("plain",                       b"shop/1",                 Ok("shop/1")),
            ("percent-encoded",             b"Euro%20%E2%82%AC",       Ok("Euro €")),
            ("lower-case digits",           b"%e2%82%ac",              Ok("€")),
            ("plain UTF-8",                 "магазин".as_bytes(),      Ok("магазин")),
            ("decoded once only",           b"%2541",                  Ok("%41")),
            ("a percent of its own",        b"100%",                   Ok("100%")),
            ("before what is no digit",     b"5%zz%4",                 Ok("5%zz%4")),
            ("in quotes",                   b"\"a b\"",                Ok("a b")),
            ("quotes within quotes",        b"\"a \\\"b\\\" \\\\\"",   Ok("a \"b\" \\")),
            ("a quote alone",               b"\"",                     Ok("\"")),
            ("quotes in the middle",        b"a \"b\"",                Ok("a \"b\"")),
            ("space around",                b" \ta ",                  Ok("a")),
            ("bytes that are no text",      b"\xff",                   Err(InvalidReason::NotUtf8)),
            ("the same once decoded",       b"%ff",                    Err(InvalidReason::NotUtf8)),
        ];
        for (name, value, expected) in cases {
            assert_eq!(decoded(value).as_deref(), expected.as_ref().copied(), "{name}");
        }
    }

    #[test]
    fn header_values_are_written_in_printable_ascii() {
        #[rustfmt::skip]
        let cases = [
            ("plain",        "shop/1?a=b",   "shop/1?a=b"),
            ("a space",      " a b",         "%20a%20b"),
            ("quotes",       "\"a\"",        "%22a%22"),
            ("a percent",    "100%",         "100%25"),
            ("a euro",       "€",            "%E2%82%AC"),
            ("beyond",       "😀",           "%F0%9F%98%80"),
            ("a tilde",      "~",            "~"),
        ];
        for (name, text, expected) in cases {
            assert_eq!(encoded(text), expected, "{name}");
            assert_eq!(decoded(expected.as_bytes()).as_deref(), Ok(text), "{name} read");
        }
    }
}
