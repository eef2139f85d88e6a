//! The ntfy format: text in the body, title and priority in headers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use redrive_core::alerts::notice::{AlertNotice, AlertStage};

use super::ReceiverMessage;
use super::text;

const TITLE: HeaderName = HeaderName::from_static("title");
const PRIORITY: HeaderName = HeaderName::from_static("priority");
const TAGS: HeaderName = HeaderName::from_static("tags");
/// What a phone shows; servers allow more.
const TITLE_CHARS_MAX: usize = 200;
/// ntfy turns a longer body into an attachment.
const BODY_BYTES_MAX: usize = 4_000;

pub(super) fn message(notice: &AlertNotice) -> ReceiverMessage {
    let mut headers = HeaderMap::new();
    let title: String = text::subject_line(notice).chars().take(TITLE_CHARS_MAX).collect();
    headers.insert(TITLE, header(&title));
    headers.insert(PRIORITY, HeaderValue::from_static(priority(notice)));
    headers.insert(TAGS, HeaderValue::from_static(tags(notice)));
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    let mut body = text::lines(notice).join("\n");
    body.truncate(body.floor_char_boundary(BODY_BYTES_MAX));
    ReceiverMessage { headers, body: body.into() }
}

/// 5 overrides silent mode, 3 is the default.
fn priority(notice: &AlertNotice) -> &'static str {
    match (notice.stage, notice.severity.as_str()) {
        (AlertStage::Firing | AlertStage::Repeated, "critical") => "5",
        (AlertStage::Firing | AlertStage::Repeated, "high") => "4",
        (AlertStage::Firing | AlertStage::Repeated | AlertStage::Resolved | AlertStage::Test, _) => "3",
    }
}

/// ntfy shows the first as an emoji.
fn tags(notice: &AlertNotice) -> &'static str {
    match (notice.stage, notice.severity.as_str()) {
        (AlertStage::Resolved, _) => "white_check_mark,redrive",
        (AlertStage::Test, _) => "test_tube,redrive",
        (AlertStage::Firing | AlertStage::Repeated, "critical") => "rotating_light,redrive",
        (AlertStage::Firing | AlertStage::Repeated, _) => "warning,redrive",
    }
}

/// ntfy decodes RFC 2047 headers.
fn header(text: &str) -> HeaderValue {
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let value = if plain { text.to_owned() } else { format!("=?UTF-8?B?{}?=", STANDARD.encode(text)) };
    HeaderValue::try_from(value).expect("printable ASCII")
}

#[cfg(test)]
mod tests {
    use super::super::notice_test::notice;
    use super::*;

    #[test]
    fn a_notice_is_as_loud_as_it_is_urgent() {
        #[rustfmt::skip]
        let cases = [
            (AlertStage::Firing,   "critical", "5", "rotating_light,redrive"),
            (AlertStage::Repeated, "high",     "4", "warning,redrive"),
            (AlertStage::Firing,   "medium",   "3", "warning,redrive"),
            (AlertStage::Firing,   "warning",  "3", "warning,redrive"),
            (AlertStage::Resolved, "critical", "3", "white_check_mark,redrive"),
        ];
        for (stage, severity, priority, tags) in cases {
            let message = message(&AlertNotice { severity: severity.to_owned(), ..notice(stage) });
            assert_eq!(message.headers[PRIORITY], priority, "{stage:?} {severity}");
            assert_eq!(message.headers[TAGS], tags, "{stage:?} {severity}");
        }
    }

    #[test]
    fn a_title_of_any_letters_fits_a_header() {
        let of = |summary: &str| {
            let message = message(&AlertNotice { summary: summary.to_owned(), ..notice(AlertStage::Firing) });
            message.headers[TITLE].to_str().expect("ASCII").to_owned()
        };
        assert_eq!(of("12 dead letters"), "[critical] 12 dead letters");
        assert_eq!(of("Störung"), "=?UTF-8?B?W2NyaXRpY2FsXSBTdMO2cnVuZw==?=");
        assert!(of(&"x".repeat(9_000)).len() <= TITLE_CHARS_MAX);
    }
}
