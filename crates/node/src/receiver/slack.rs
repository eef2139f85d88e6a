//! Slack's incoming webhook format, which Mattermost, Rocket.Chat and others accept too: a line of text and
//! an attachment in the colour of the severity.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use redrive_core::alerts::notice::{AlertNotice, AlertStage};
use serde_json::json;

use super::{ReceiverMessage, text};

pub(super) fn message(notice: &AlertNotice) -> ReceiverMessage {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let line = escaped(&text::subject_line(notice));
    let text = escaped(&text::lines(notice).join("\n"));
    let attachment = json!({ "color": colour(notice), "fallback": line, "text": text });
    let body = json!({ "text": line, "attachments": [attachment] });
    ReceiverMessage { headers, body: body.to_string().into() }
}

fn colour(notice: &AlertNotice) -> &'static str {
    match (notice.stage, notice.severity.as_str()) {
        (AlertStage::Resolved, _) => "#2e8b57",
        (AlertStage::Test, _) => "#708090",
        (AlertStage::Firing | AlertStage::Repeated, "critical") => "#b22222",
        (AlertStage::Firing | AlertStage::Repeated, "high") => "#e8590c",
        (AlertStage::Firing | AlertStage::Repeated, _) => "#e0a800",
    }
}

/// These three are markup: an event type must not be able to mention a channel.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::notice_test::notice;
    use super::*;

    #[test]
    fn a_notice_is_a_line_and_an_attachment() {
        let mut told = notice(AlertStage::Firing);
        told.summary = "<!channel> & more".to_owned();
        let body: serde_json::Value = serde_json::from_slice(&message(&told).body).expect("JSON");
        assert_eq!(body["text"], "[critical] &lt;!channel&gt; &amp; more");
        assert_eq!(body["attachments"][0]["color"], "#b22222");
        let text = body["attachments"][0]["text"].as_str().expect("a text");
        assert!(text.contains("- dependency=mail-api: open") && text.contains("What to do: look after it"));
    }
}
