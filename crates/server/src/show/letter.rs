//! A dead letter: why it is one, every attempt, and what it carries.

use std::fmt::Write as _;

use redrive_core::letters::envelope::{Envelope, Tier};
use redrive_core::time::Timestamp;

use super::event::{data, short_id};
use super::moment::{ago, moment};
use super::table::{Cell, Side, Table};
use super::{counted, cut, next_steps, plain, shell_word, style};

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
    for line in facts(envelope, now) {
        let _ = writeln!(out, "{line}");
    }
    if !envelope.retry_attempts.is_empty() {
        let _ = writeln!(out, "\n{}", style::bold("attempts"));
        for line in attempts(envelope) {
            let _ = writeln!(out, "{line}");
        }
    }
    out.push_str(&data(&envelope.original_message));
    out.push_str(&next_steps(&steps(envelope)));
    out
}

fn facts(envelope: &Envelope, now: Timestamp) -> Vec<String> {
    let mut table = Table::new(&[Side::Left; 3]);
    let mut row = |name: &str, value: Cell, remark: String| {
        table.push(vec![Cell::dim(format!("  {name}")), value, Cell::dim(remark)]);
    };
    let tier = match envelope.tier {
        Tier::Dead => Cell::painted("dead", style::error),
        Tier::Poison => Cell::painted("poison", style::error),
    };
    row("tier", tier, String::new());
    row("died", Cell::plain(moment(envelope.routed_to_dlq_at)), ago(envelope.routed_to_dlq_at, now));
    row("category", Cell::plain(envelope.category.to_string()), String::new());
    if let Some(fingerprint) = envelope.fingerprint {
        row("failure group", Cell::plain(fingerprint.to_string()), String::new());
    }
    let mut optional = |name: &str, value: &Option<String>| {
        if let Some(value) = value {
            row(name, Cell::plain(plain(value)), String::new());
        }
    };
    optional("event", &envelope.original_event_id);
    optional("session", &envelope.session_id);
    optional("correlation id", &envelope.correlation_id);
    optional("row", &envelope.subscription_id);
    optional("consumer group", &envelope.consumer_group);
    if envelope.replays > 0 {
        row("replayed", Cell::plain(counted(u64::from(envelope.replays), "time")), String::new());
    }
    table.lines()
}

fn attempts(envelope: &Envelope) -> Vec<String> {
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
    table.lines()
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
