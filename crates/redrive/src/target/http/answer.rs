//! Reads an answer, as far as anybody looks at it, and puts it in words.
//!
//! The status decides. It comes before the body, so a body that breaks off, hangs or never ends takes
//! nothing back: a target that has said yes has the event, and one that has said no has told why as far as
//! its body came. Only the answer to a batch must be whole, for there the body says who failed.

use std::time::{Duration, SystemTime};

use http::response::Parts;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use redrive_core::answer::{HeaderPairs, Reply, Seen};
use redrive_core::retry_after;
use redrive_core::time::Timestamp;
use tokio::time::{Instant, timeout_at};

use super::limits::{BODY_KEPT_MAX, BODY_READ_MAX, BODY_TOLD_MAX};

/// What was read of a body.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) end: BodyEnd,
}

/// Where reading a body ended.
#[derive(Debug)]
pub(super) enum BodyEnd {
    /// At its end.
    Whole,
    /// At the most that is read of one.
    TooLong,
    /// Where time was up.
    TimedOut,
    /// Where the connection broke, or spoke no HTTP any more.
    Broken(hyper::Error),
}

/// How much of a body is wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// The part that is kept.
    pub(super) kept_max: usize,
    /// The part that is read.
    pub(super) read_max: usize,
    /// How long that may take.
    pub(super) until: Instant,
}

impl Wanted {
    /// What any answer may say, until then.
    pub(super) const fn usual(until: Instant) -> Self {
        Self { kept_max: BODY_KEPT_MAX, read_max: BODY_READ_MAX, until }
    }
}

pub(super) async fn read(mut body: Incoming, wanted: Wanted) -> Body {
    let mut bytes = Vec::new();
    let end = timeout_at(wanted.until, read_into(&mut bytes, &mut body, wanted)).await;
    Body { bytes, end: end.unwrap_or(BodyEnd::TimedOut) }
}

async fn read_into(bytes: &mut Vec<u8>, body: &mut Incoming, wanted: Wanted) -> BodyEnd {
    let mut read = 0;
    while read <= wanted.read_max {
        let frame = match body.frame().await {
            None => return BodyEnd::Whole,
            Some(Err(error)) => return BodyEnd::Broken(error),
            Some(Ok(frame)) => frame,
        };
        let Some(data) = frame.data_ref() else { continue };
        read += data.len();
        let room = wanted.kept_max.saturating_sub(bytes.len());
        bytes.extend_from_slice(&data[..data.len().min(room)]);
    }
    BodyEnd::TooLong
}

/// The answer as the core hears of it.
pub(super) fn reply(head: &Parts, body: &[u8]) -> Reply {
    let body = text(body);
    Reply {
        message: message(head, &body),
        retry_after: wait_asked_for(&head.headers),
        seen: Seen::Http { status: head.status.as_u16(), headers: pairs(&head.headers), body },
    }
}

/// How long the other side asks us to wait; a date counts from our own clock.
pub(super) fn wait_asked_for(headers: &HeaderMap) -> Option<Duration> {
    let asked_for = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    retry_after::parse(asked_for, Timestamp::EPOCH + since_1970)
}

/// All headers as text; the head of an answer has a bound, and so have they.
fn pairs(headers: &HeaderMap) -> HeaderPairs {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    HeaderPairs(headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect())
}

/// The bytes as text that any store and any terminal can bear: what is no UTF-8 and what is no character
/// to be seen is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    let seen =
        |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { char::REPLACEMENT_CHARACTER } else { c };
    String::from_utf8_lossy(bytes).replace("\r\n", "\n").chars().map(seen).collect()
}

/// `503 Service Unavailable: try again later`, in one line.
fn message(head: &Parts, body: &str) -> String {
    let status = head.status;
    let status = match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    };
    let line = body.split_whitespace().collect::<Vec<_>>().join(" ");
    // A page for browsers says less than the status does.
    if line.is_empty() || line.starts_with('<') || head.status.is_success() {
        return status;
    }
    match line.char_indices().nth(BODY_TOLD_MAX) {
        Some((end, _)) => format!("{status}: {}…", &line[..end]),
        None => format!("{status}: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16) -> Parts {
        http::Response::builder().status(status).body(()).expect("a status").into_parts().0
    }

    #[test]
    fn an_answer_is_told_in_one_line() {
        let long = "x".repeat(1_000);
        let cut = format!("400 Bad Request: {}…", "x".repeat(300));
        #[rustfmt::skip]
        let cases = [
            ("a success",          200, "done",                        "200 OK"),
            ("without a body",     503, "",                            "503 Service Unavailable"),
            ("with one",           400, "no such\r\n\tfield `id`\n",   "400 Bad Request: no such field `id`"),
            ("with a page",        502, "\n<html>sorry</html>",        "502 Bad Gateway"),
            ("nobody's status",    599, "odd",                         "599: odd"),
            ("with too much",      400, &long,                         &cut),
        ];
        for (name, status, body, expected) in cases {
            assert_eq!(message(&head(status), body), expected, "{name}");
        }
    }

    #[test]
    fn bodies_become_text_that_does_no_harm() {
        #[rustfmt::skip]
        let cases: [(&str, &[u8], &str); 5] = [
            ("plain",               b"a\tb\r\nc",         "a\tb\nc"),
            ("no UTF-8",            b"a\xff\xfeb",        "a\u{fffd}\u{fffd}b"),
            ("a nought",            b"a\0b",              "a\u{fffd}b"),
            ("a terminal's orders", b"\x1b[2Jgone",       "\u{fffd}[2Jgone"),
            ("half a character",    b"\xe2\x82",          "\u{fffd}"),
        ];
        for (name, bytes, expected) in cases {
            assert_eq!(text(bytes), expected, "{name}");
        }
    }
}
