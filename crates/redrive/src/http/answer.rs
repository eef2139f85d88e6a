//! Converts an HTTP response into what rules look at, and into one line for people.
//!
//! Invariant: what is kept of a response is bounded and safe for terminals and stores.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use redrive_core::policy::answer::{HeaderPairs, ReplyKind, TargetReply};
use redrive_core::policy::retry_after;
use redrive_core::time::Timestamp;

/// Bytes of a response body that are kept.
pub const BODY_KEPT_MAX: usize = 16 * 1024;

/// The longest wait for the body of an unsuccessful response; its status has said what matters.
#[cfg(any(feature = "reqwest", feature = "hyper"))]
pub(super) const BODY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Bytes of the body that are quoted in the message.
const BODY_TOLD_MAX: usize = 300;

/// The response in the core's terms.
#[must_use]
pub fn reply(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> TargetReply {
    let body = text(body);
    TargetReply {
        message: message(status, &body),
        retry_after: wait_asked_for(headers),
        seen: ReplyKind::Http { status: status.as_u16(), headers: pairs(headers), body },
    }
}

/// The wait asked for by `Retry-After`, where a date is relative to our own clock, and by `retry-after-ms`.
pub fn wait_asked_for(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let seconds = text(header::RETRY_AFTER.as_str()).and_then(|asked_for| {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        retry_after::parse(asked_for, Timestamp::EPOCH + since_1970)
    });
    retry_after::combined(seconds, text("retry-after-ms").and_then(retry_after::parse_millis))
}

fn pairs(headers: &HeaderMap) -> HeaderPairs {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    HeaderPairs(headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect())
}

/// The bytes as printable text: invalid UTF-8 and control characters are replaced.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let seen =
        |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { char::REPLACEMENT_CHARACTER } else { c };
    String::from_utf8_lossy(bytes).replace("\r\n", "\n").chars().map(seen).collect()
}

/// `503 Service Unavailable: try again later`, in one line.
fn message(code: StatusCode, body: &str) -> String {
    let status = match code.canonical_reason() {
        Some(reason) => format!("{} {reason}", code.as_u16()),
        None => code.as_u16().to_string(),
    };
    let line = body.split_whitespace().collect::<Vec<_>>().join(" ");
    // An HTML page says less than the status.
    if line.is_empty() || line.starts_with('<') || code.is_success() {
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
            assert_eq!(message(StatusCode::from_u16(status).expect("a status"), body), expected, "{name}");
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
