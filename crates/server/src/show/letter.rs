//! A dead letter: why it is one, every attempt, and what it carries.

use std::fmt::Write as _;

use redrive_core::letters::envelope::{Envelope, Tier};
use redrive_core::time::Timestamp;

use super::event::{data, short_id};
use super::moment::{ago, moment};
use super::table::{Cell, Facts, Side, Table};
use super::{cut, next_steps, plain, shell_word, style};

/// Longer messages are cut.
const MESSAGE_COLUMNS_MAX: usize = 100;

/// The whole page.
pub(crate) fn page(envelope: &Envelope, now: Timestamp) -> String {
    let event_type = envelope.original_topic.as_deref().unwrap_or("–");
    let mut out = format!(
        "{} → {}  {}\n",
        style::bold(plain(event_type)),
        style::bold(plain(&envelope.consumer_service)),
        style::dim(format!("letter {}", plain(envelope.dlq_id.as_str())))
    );
    out.push_str(&facts(envelope, now));
    if !envelope.retry_attempts.is_empty() {
        let _ = write!(out, "\n{}\n{}", style::bold("attempts"), attempts(envelope));
    }
    out.push_str(&data(&envelope.original_message));
    out.push_str(&next_steps(&steps(envelope)));
    out
}

fn facts(envelope: &Envelope, now: Timestamp) -> String {
    let mut facts = Facts::new();
    facts.push("tier", Cell::painted(envelope.tier.as_str(), style::error), "");
    facts.push("died", Cell::plain(moment(envelope.routed_to_dlq_at)), ago(envelope.routed_to_dlq_at, now));
    facts.text("category", Some(&envelope.category.to_string()));
    facts.text("failure group", envelope.fingerprint.map(|group| group.to_string()).as_deref());
    facts.text("event", envelope.original_event_id.as_deref());
    facts.text("session", envelope.session_id.as_deref());
    facts.text("correlation id", envelope.correlation_id.as_deref());
    facts.text("row", envelope.subscription_id.as_deref());
    facts.text("consumer group", envelope.consumer_group.as_deref());
    facts.replays(envelope.replays);
    facts.lines()
}

fn attempts(envelope: &Envelope) -> String {
    let mut table = Table::new(&[Side::Right, Side::Left, Side::Left, Side::Left, Side::Left]);
    table.head(&["  NO", "FAILED AT", "STATUS", "CODE", "MESSAGE"]);
    for record in &envelope.retry_attempts {
        let code = record.error_code.as_ref().map(|code| plain(code.as_str())).unwrap_or_default();
        let message = record.error.as_deref().map(plain).unwrap_or_default();
        table.push(vec![
            Cell::plain(record.attempt.get().to_string()),
            Cell::plain(moment(record.timestamp)),
            Cell::plain(record.http_status.map(|status| status.to_string()).unwrap_or_default()),
            Cell::painted(code, style::warning),
            Cell::plain(cut(&message, MESSAGE_COLUMNS_MAX)),
        ]);
    }
    table.text()
}

fn steps(envelope: &Envelope) -> Vec<(String, &'static str)> {
    let id = envelope.dlq_id.as_str();
    // An id from elsewhere is whole or nothing.
    let is_ours = redrive_core::ids::DeliveryId::parse(id).is_some();
    let id = if is_ours { short_id(id) } else { shell_word(id) };
    let poison = match envelope.tier {
        Tier::Dead => "",
        Tier::Poison => " --include-poison --note 'why it should go through now'",
    };
    let mut steps = vec![
        (format!("redrive dlq replay {id}{poison}"), "sends it again, once the cause is mended"),
        (format!("redrive dlq edit {id}"), "sends it with other content"),
    ];
    if is_ours {
        steps.push((format!("redrive why {id}"), "tells its whole story, with the lines of the rule book"));
    }
    steps
}
