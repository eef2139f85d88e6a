//! Alerts in a terminal: a table of alerts, the receivers, and the outcome of a test.

use redrive_core::alerts::{AlertState, AlertView};
use redrive_core::text::show_count;
use redrive_core::time::Timestamp;

use crate::alerts::json::{AlertsResponse, ReceiverJson, ReceiverTestOutcome, ReceiverTestResponse};
use crate::deliveries::text::short_id;
use crate::terminal::moment::{ago, coming};
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{plain, shell_word, style};

pub(crate) fn page(found: &AlertsResponse, now: Timestamp, columns: Option<usize>) -> String {
    if found.alerts.is_empty() && found.receivers.is_empty() {
        return format!("{} the rule book has no alerts\n", style::warning("!"));
    }
    let mut text = alerts(&found.alerts, now).within(columns).text();
    if !found.receivers.is_empty() {
        text.push('\n');
        text.push_str(&receivers(&found.receivers).within(columns).text());
    }
    text
}

pub(crate) fn tested(tested: &ReceiverTestResponse, now: Timestamp) -> String {
    let name = style::bold(plain(&tested.receiver));
    let because = tested.message.as_deref().map(plain).unwrap_or_default();
    let story = tested.delivery.as_deref().map_or_else(String::new, |delivery| {
        let command = style::bold(format!("redrive why {}", shell_word(&short_id(delivery))));
        format!("; see `{command}`")
    });
    match tested.outcome {
        ReceiverTestOutcome::Delivered => format!("{} test message delivered to {name}\n", style::good("✓")),
        ReceiverTestOutcome::Retrying => {
            let again = tested.due_at.map_or_else(|| "later".to_owned(), |at| coming(at, now));
            format!(
                "{} test message to {name} failed: {because}; next attempt {again}{story}\n",
                style::warning("!")
            )
        }
        ReceiverTestOutcome::Dead => {
            format!("{} test message to {name} failed for good: {because}{story}\n", style::error("✗"))
        }
        ReceiverTestOutcome::Waiting => {
            let list = style::bold("redrive alerts");
            format!("{} no outcome yet; see {list}\n", style::warning("!"))
        }
    }
}

fn alerts(alerts: &[AlertView], now: Timestamp) -> Table {
    let left = CellAlign::Left;
    let mut table = Table::new(&[left, left, left, CellAlign::Right, left, CellAlign::Right, left, left]);
    table.head(&["STATE", "SEVERITY", "ALERT", "VALUE", "SINCE", "NOTIFIED", "TO", "WHEN"]);
    for alert in alerts {
        let name = match &alert.covers {
            Some(covers) => format!("{} ({covers})", alert.name),
            None => alert.name.clone(),
        };
        table.push(vec![
            state(alert.state),
            Cell::plain(plain(&alert.severity)),
            Cell::bold(plain(&name)),
            Cell::plain(plain(alert.value.as_deref().unwrap_or("-"))),
            Cell::dim(alert.since.map_or_else(|| "-".to_owned(), |since| ago(since, now))),
            Cell::plain(show_count(u64::from(alert.told))),
            Cell::plain(plain(&alert.to.join(", "))),
            Cell::dim(plain(&alert.when)),
        ]);
    }
    table
}

fn receivers(receivers: &[ReceiverJson]) -> Table {
    let left = CellAlign::Left;
    let mut table = Table::new(&[left, left, left, left, CellAlign::Right, CellAlign::Right, left]);
    table.head(&["RECEIVER", "KIND", "ADDRESS", "HOURS", "WAITING", "DEAD", "LAST ERROR"]);
    for receiver in receivers {
        let hours = match (&receiver.hours, receiver.open_now) {
            (None, _) => Cell::dim("always"),
            (Some(hours), true) => Cell::plain(plain(hours)),
            (Some(hours), false) => Cell::dim(format!("{} (not now)", plain(hours))),
        };
        table.push(vec![
            Cell::bold(plain(&receiver.name)),
            Cell::plain(plain(&receiver.kind)),
            Cell::plain(plain(&receiver.address)),
            hours,
            Cell::plain(show_count(receiver.waiting)),
            Cell::failures(receiver.dead),
            Cell::dim(plain(receiver.last_trouble.as_deref().unwrap_or("-"))),
        ]);
    }
    table
}

fn state(state: AlertState) -> Cell {
    match state {
        AlertState::Quiet => Cell::dim("quiet"),
        AlertState::Pending => Cell::painted("pending", style::warning),
        AlertState::Firing => Cell::painted("firing", style::error),
    }
}
