//! The ntfy format: text in the body, title and priority in headers.

use http::{HeaderMap, HeaderValue};
use redrive_core::alerts::notice::{AlertNotice, AlertStage};

use super::ReceiverMessage;
use super::text;
use crate::ntfy::{PRIORITY, TAGS, TITLE, message_text, title};

pub(super) fn message(notice: &AlertNotice) -> ReceiverMessage {
    let mut headers = HeaderMap::new();
    headers.insert(TITLE, title(&text::subject_line(notice)));
    headers.insert(PRIORITY, HeaderValue::from_static(priority(notice)));
    headers.insert(TAGS, HeaderValue::from_static(tags(notice)));
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    ReceiverMessage { headers, body: message_text(text::lines(notice).join("\n")).into() }
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

#[cfg(test)]
mod tests {
    use super::super::notice_test::notice;
    use super::*;
    use crate::ntfy::TITLE_CHARS_MAX;

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
