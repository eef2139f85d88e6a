//! Alertmanager's API v2: one alert per subject, which ends when ours does.
//!
//! Alertmanager resolves alerts that are not repeated in time, so each carries an end: late enough for two
//! more repeats. An alert of a server that is gone resolves by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use redrive_core::alerts::notice::{AlertNotice, AlertStage, AlertSubject};
use redrive_core::book::model::{AlertSeverity, Sections};
use redrive_core::time::Timestamp;
use serde_json::{Map, Value, json};

use super::{ReceiverMessage, text};

pub(super) const PATH: &str = "/api/v2/alerts";
const LATE_MAX: Duration = Duration::from_mins(10);
const TEST_LASTS: Duration = Duration::from_mins(1);

pub(super) struct Repeats(BTreeMap<String, Duration>);

impl Repeats {
    pub(super) fn of(book: &Sections) -> Self {
        let levels = book.layers();
        let alerts = book.alerts.iter().chain(levels.iter().flat_map(|level| &level.alerts));
        let mut repeats = BTreeMap::new();
        for alert in alerts {
            let every = repeats.entry(alert.title()).or_insert(Duration::ZERO);
            *every = alert.repeats_every().max(*every);
        }
        Self(repeats)
    }

    /// Alerts that left the book are not repeated.
    fn of_alert(&self, notice: &AlertNotice) -> Duration {
        let usual = || AlertSeverity::parse(&notice.severity).map_or(LATE_MAX, AlertSeverity::response_time);
        self.0.get(&notice.alert).copied().unwrap_or_else(usual)
    }
}

pub(super) fn message(notice: &AlertNotice, repeats: &Repeats) -> ReceiverMessage {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let ends_at = match notice.stage {
        AlertStage::Firing | AlertStage::Repeated => notice.at + 2 * repeats.of_alert(notice) + LATE_MAX,
        AlertStage::Resolved => notice.at,
        AlertStage::Test => notice.at + TEST_LASTS,
    };
    let everything = AlertSubject { of: String::new(), value: String::new(), since: notice.since };
    let subjects = if notice.subjects.is_empty() { &[everything] } else { notice.subjects.as_slice() };
    let raised = subjects.iter().map(|subject| alert(notice, subject, ends_at));
    let ended = notice.ended.iter().map(|subject| alert(notice, subject, notice.at));
    let alerts: Vec<Value> = raised.chain(ended).collect();
    ReceiverMessage { headers, body: Value::from(alerts).to_string().into() }
}

fn alert(notice: &AlertNotice, subject: &AlertSubject, ends_at: Timestamp) -> Value {
    let mut labels = Map::new();
    // The subject's labels come first, so that they cannot replace the alert's own.
    for (name, value) in subject.of.split(", ").filter_map(|part| part.split_once('=')) {
        labels.insert(label_name(name), value.into());
    }
    if let Some(covers) = &notice.covers {
        labels.insert("covers".to_owned(), covers.clone().into());
    }
    labels.insert("alertname".to_owned(), notice.alert.clone().into());
    labels.insert("severity".to_owned(), notice.severity.clone().into());
    labels.insert("source".to_owned(), "redrive".into());
    let mut annotations = json!({
        "summary": text::subject_line(notice),
        "description": text::lines(notice).join("\n"),
        "condition": notice.condition,
        "value": subject.value,
    });
    if let Some(action) = &notice.action {
        annotations["action"] = action.clone().into();
    }
    json!({
        "labels": labels,
        "annotations": annotations,
        "startsAt": subject.since,
        // An end before the start is refused.
        "endsAt": ends_at.max(subject.since),
    })
}

fn label_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::notice_test::notice;
    use super::*;
    use redrive_core::book::connectors::built_in;

    fn alerts(stage: AlertStage, repeat: &str) -> Vec<Value> {
        let text = format!(
            "version: 1\nalerts: [{{ name: breaker-open, when: breaker_open, severity: critical, repeat: {repeat} }}]\n"
        );
        let book = redrive_core::book::read(&text, built_in()).book.expect("a book");
        let message = message(&notice(stage), &Repeats::of(book.sections()));
        serde_json::from_slice(&message.body).expect("a list")
    }

    #[test]
    fn every_subject_is_an_alert_that_ends_with_ours() {
        let firing = alerts(AlertStage::Firing, "1h");
        assert_eq!(firing.len(), 2);
        assert_eq!(
            firing[1]["labels"],
            json!({ "dependency": "crm", "alertname": "breaker-open", "severity": "critical", "source": "redrive" })
        );
        assert_eq!(firing[0]["startsAt"], "2025-10-21T14:30:00.25Z");
        assert_eq!(firing[0]["endsAt"], "2025-10-21T16:42:05.25Z", "until it was to be said twice more");
        assert_eq!(firing[0]["annotations"]["action"], "look after it");
        let resolved = alerts(AlertStage::Resolved, "1h");
        assert_eq!(resolved[0]["labels"], firing[0]["labels"], "it is the same alert");
        assert_eq!(resolved[0]["startsAt"], firing[0]["startsAt"]);
        assert_eq!(resolved[0]["endsAt"], "2025-10-21T14:32:05.25Z");
    }

    #[test]
    fn what_has_ended_ends_there_while_the_rest_lasts() {
        let mut told = notice(AlertStage::Firing);
        told.ended = told.subjects.split_off(1);
        let message = message(&told, &Repeats(BTreeMap::new()));
        let alerts: Vec<Value> = serde_json::from_slice(&message.body).expect("a list");
        assert_eq!(alerts[1]["labels"]["dependency"], "crm");
        assert_eq!(alerts[1]["endsAt"], "2025-10-21T14:32:05.25Z");
        assert!(alerts[0]["endsAt"].as_str() > alerts[1]["endsAt"].as_str(), "{alerts:?}");
    }

    #[test]
    fn an_alert_about_everything_is_one() {
        let mut told = notice(AlertStage::Firing);
        told.subjects.clear();
        let message = message(&told, &Repeats(BTreeMap::new()));
        let alerts: Vec<Value> = serde_json::from_slice(&message.body).expect("a list");
        assert_eq!(alerts.len(), 1);
        assert_eq!(alerts[0]["startsAt"], "2025-10-21T14:30:00.25Z");
    }

    #[test]
    fn nobody_can_name_a_thing_so_that_it_is_another_alert() {
        let mut told = notice(AlertStage::Firing);
        told.subjects[0].of = "alertname=mine, event-type=a".to_owned();
        let message = message(&told, &Repeats(BTreeMap::new()));
        let alerts: Vec<Value> = serde_json::from_slice(&message.body).expect("a list");
        assert_eq!(alerts[0]["labels"]["alertname"], "breaker-open");
        assert_eq!(alerts[0]["labels"]["event_type"], "a");
    }
}
