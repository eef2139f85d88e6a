//! Terminal output of an event with its deliveries, and of a delivery with its attempts.

use std::fmt::Write as _;

use redrive_core::engine::attempt_record::{AttemptEnd, HoldReason, RecordedVerdict};
use redrive_core::text::counted;
use redrive_core::time::Timestamp;
use serde_json::Value;

use crate::deliveries::attempt_text::field;
use crate::deliveries::json::{AttemptJson, DeliveryJson, DeliveryStateJson, EventJson};
use crate::deliveries::why;
use crate::deliveries::why::text::outlook;
use crate::events::json::Accepted;
use crate::terminal::moment::{ago, moment, show_wait};
use crate::terminal::table::{Cell, CellAlign, FactList, Table};
use crate::terminal::{cut, next_steps, plain, queue_name, shell_word, style};

const DATA_LINES_MAX: usize = 40;

const DATA_COLUMNS_MAX: usize = 160;

const REMARK_COLUMNS_MAX: usize = 70;

const RECEIPT_COLUMNS_MAX: usize = 60;

/// Usually enough to identify a delivery.
const SHORT_ID_DIGITS: usize = 8;

pub(crate) fn queue_of(delivery: &DeliveryJson) -> String {
    queue_name(&delivery.service, delivery.channel.as_deref())
}

pub(crate) fn short_id(id: &str) -> String {
    plain(&id.chars().take(SHORT_ID_DIGITS).collect::<String>())
}

pub(crate) fn page(shown: &EventJson, now: Timestamp) -> String {
    let text = |name: &str| plain(shown.event[name].as_str().unwrap_or("–"));
    let received = format!("received {}", ago(shown.received_at, now));
    let mut out =
        format!("{}  {}  {}\n", style::bold(text("type")), style::bold(text("id")), style::dim(received));
    out.push_str(&attributes(shown));
    out.push_str(&data(&shown.event));
    if shown.deliveries.is_empty() {
        let word = if shown.unrouted { "unrouted" } else { "no deliveries" };
        let _ = writeln!(out, "\n{} {word}", style::warning("!"));
    } else {
        let title = style::bold(counted(shown.deliveries.len() as u64, "delivery"));
        let _ = write!(out, "\n{title}\n{}", deliveries(&shown.deliveries, now));
    }
    out.push_str(&next_steps(&steps(shown)));
    out
}

fn attributes(shown: &EventJson) -> String {
    let mut facts = FactList::new();
    facts.text("receipt", Some(&shown.receipt));
    facts.text("received", Some(&moment(shown.received_at)));
    for (name, value) in shown.event.as_object().into_iter().flatten() {
        let name = match name.as_str() {
            "specversion" | "id" | "type" | "data" | "data_base64" => continue,
            "datacontenttype" => "content type",
            "partitionkey" => "session",
            "correlationid" => "correlation id",
            other => other,
        };
        let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        facts.text(&plain(name), Some(&value));
    }
    facts.lines()
}

pub(crate) fn data(event: &Value) -> String {
    let text = match (event.get("data"), event["data_base64"].as_str()) {
        (Some(Value::String(text)), _) => text.clone(),
        (Some(data), _) => serde_json::to_string_pretty(data).expect("parsed JSON can be written"),
        (None, Some(base64)) => format!("(binary, as base64:)\n{base64}"),
        (None, None) => return format!("\n{}\n", style::dim("no data")),
    };
    let mut out = format!("\n{}\n", style::bold("data"));
    let mut lines = text.lines();
    for line in lines.by_ref().take(DATA_LINES_MAX) {
        let _ = writeln!(out, "  {}", cut(&plain(line), DATA_COLUMNS_MAX));
    }
    match lines.count() as u64 {
        0 => {}
        more => {
            let rest = format!("  … {}; --format json shows all", counted(more, "more line"));
            let _ = writeln!(out, "{}", style::dim(rest));
        }
    }
    out
}

fn deliveries(deliveries: &[DeliveryJson], now: Timestamp) -> String {
    let mut table =
        Table::new(&[CellAlign::Left, CellAlign::Left, CellAlign::Left, CellAlign::Right, CellAlign::Left]);
    table.head(&["  DELIVERY", "SERVICE", "STATE", "ATTEMPTS", ""]);
    for delivery in deliveries {
        table.push(vec![
            Cell::plain(format!("  {}", short_id(&delivery.id))),
            Cell::bold(queue_of(delivery)),
            state(delivery.state),
            Cell::plain(delivery.attempts.to_string()),
            Cell::dim(cut(&remark(delivery, now), REMARK_COLUMNS_MAX)),
        ]);
    }
    table.text()
}

fn state(state: DeliveryStateJson) -> Cell {
    match state {
        DeliveryStateJson::Pending => Cell::plain("pending"),
        DeliveryStateJson::Retrying => Cell::painted("retrying", style::warning),
        DeliveryStateJson::Held => Cell::painted("held", style::warning),
        DeliveryStateJson::Replaying => Cell::painted("replaying", style::warning),
        DeliveryStateJson::Delivered => Cell::painted("delivered", style::good),
        DeliveryStateJson::Dead => Cell::painted("dead", style::error),
        DeliveryStateJson::Skipped => Cell::plain("skipped"),
        DeliveryStateJson::Purged => Cell::plain("purged"),
        DeliveryStateJson::Superseded => Cell::plain("superseded"),
    }
}

fn remark(delivery: &DeliveryJson, now: Timestamp) -> String {
    let after = delivery.ended_at.map(|at| format!("after {}", show_wait(at.since(delivery.accepted_at))));
    match delivery.state {
        DeliveryStateJson::Delivered => after.unwrap_or_default(),
        DeliveryStateJson::Dead => {
            let death = delivery.death.as_ref();
            death.map_or_else(String::new, |death| plain(&format!("{}: {}", death.code, death.message)))
        }
        DeliveryStateJson::Skipped | DeliveryStateJson::Purged | DeliveryStateJson::Superseded => {
            why::text::closing(delivery)
        }
        DeliveryStateJson::Pending
        | DeliveryStateJson::Retrying
        | DeliveryStateJson::Held
        | DeliveryStateJson::Replaying => outlook(delivery, now),
    }
}

fn steps(shown: &EventJson) -> Vec<(String, &'static str)> {
    if shown.unrouted {
        let event_type = shown.event["type"].as_str().unwrap_or("TYPE");
        let trial = format!("redrive try {}", shell_word(event_type));
        let route = "redrive route --unrouted".to_owned();
        return vec![(trial, "shows which rules nearly match"), (route, "delivers it, once a rule matches")];
    }
    // Suggests one command, for the delivery that needs it most.
    let worst = |delivery: &&DeliveryJson| match delivery.state {
        DeliveryStateJson::Dead => 0,
        DeliveryStateJson::Retrying => 1,
        DeliveryStateJson::Held => 2,
        DeliveryStateJson::Replaying => 3,
        DeliveryStateJson::Pending => 4,
        DeliveryStateJson::Skipped | DeliveryStateJson::Purged | DeliveryStateJson::Superseded => 5,
        DeliveryStateJson::Delivered => 6,
    };
    let delivery = shown.deliveries.iter().min_by_key(worst);
    delivery.map(|delivery| (why::text::command(delivery), "shows its history")).into_iter().collect()
}

pub(crate) fn delivery_page(delivery: &DeliveryJson, now: Timestamp) -> String {
    let mut out = format!(
        "{} → {}  {}\n",
        style::bold(plain(&delivery.event_type)),
        style::bold(queue_of(delivery)),
        style::dim(format!("delivery {}", plain(&delivery.id)))
    );
    out.push_str(&facts(delivery, now));
    if !delivery.stories.is_empty() {
        let _ = write!(out, "\n{}\n{}", style::bold("attempts"), attempts(delivery));
    }
    let event = format!("redrive show {}", plain(&delivery.receipt));
    let steps = [
        (why::text::command(delivery), "shows its history"),
        (event, "shows the event and its other deliveries"),
    ];
    out.push_str(&next_steps(&steps));
    out
}

fn facts(delivery: &DeliveryJson, now: Timestamp) -> String {
    let mut facts = FactList::new();
    facts.push("state", state(delivery.state), remark(delivery, now));
    let source = plain(&format!("of {}", delivery.event_source));
    facts.push("event", Cell::plain(plain(&delivery.event_id)), source);
    facts.text("receipt", Some(&delivery.receipt));
    facts.push("accepted", Cell::plain(moment(delivery.accepted_at)), ago(delivery.accepted_at, now));
    if let Some(at) = delivery.ended_at {
        facts.push("ended", Cell::plain(moment(at)), ago(at, now));
    }
    facts.text("row", Some(&delivery.subscription));
    facts.text("webhook-id", Some(&delivery.webhook_id));
    facts.replays(delivery.replays);
    if let Some(receipt) = &delivery.supersedes {
        facts.push("replaces", Cell::plain(plain(receipt)), "the event whose dead letter was edited");
    }
    facts.text("session", delivery.session.as_deref());
    facts.text("correlation id", delivery.correlation_id.as_deref());
    facts.lines()
}

fn attempts(delivery: &DeliveryJson) -> String {
    let mut table =
        Table::new(&[CellAlign::Right, CellAlign::Left, CellAlign::Right, CellAlign::Left, CellAlign::Left]);
    table.head(&["  NO", "AT", "TOOK", "RESULT", "NEXT"]);
    for AttemptJson { story, .. } in &delivery.stories {
        let (number, what) = match &story.end {
            AttemptEnd::Delivered { status, message } => {
                let status = match status {
                    Some(status) => status.to_string(),
                    None if message.is_empty() => "accepted".to_owned(),
                    None => format!("accepted: {}", cut(&plain(message), RECEIPT_COLUMNS_MAX)),
                };
                (story.attempt.get().to_string(), Cell::painted(status, style::good))
            }
            AttemptEnd::Failed { category, code, status, .. } => {
                let status = status.map(|status| format!("{status} ")).unwrap_or_default();
                let what = plain(&format!("{status}{category} {code}"));
                (story.attempt.get().to_string(), Cell::painted(what, style::warning))
            }
            AttemptEnd::Held { by: HoldReason::Notified } => (String::new(), Cell::plain("skipped")),
            AttemptEnd::Held { .. } => (String::new(), Cell::plain("held")),
        };
        let took = if story.is_attempt() { why::text::took(story.took_nanos) } else { String::new() };
        table.push(vec![
            Cell::plain(number),
            Cell::plain(moment(story.started_at)),
            Cell::dim(took),
            what,
            Cell::dim(verdict(&story.verdict)),
        ]);
    }
    table.text()
}

fn verdict(recorded: &RecordedVerdict) -> String {
    match recorded {
        RecordedVerdict::Delivered => "delivered".to_owned(),
        RecordedVerdict::Retry { due_at } => format!("retry at {}", moment(*due_at)),
        RecordedVerdict::Hold { until } if *until == Timestamp::NEVER => {
            "held until a person acts".to_owned()
        }
        RecordedVerdict::Hold { until } => format!("held until {}", moment(*until)),
        RecordedVerdict::Dead { code, .. } => plain(&format!("dead letter {code}")),
        RecordedVerdict::Paused => "service paused".to_owned(),
    }
}

pub(crate) fn accepted(event_type: &str, accepted: &Accepted) -> String {
    let event_type = style::bold(plain(event_type));
    let mut out = if accepted.duplicate {
        format!("{} {event_type} is a duplicate: not delivered again\n", style::warning("!"))
    } else {
        format!("{} accepted {event_type} (on disk)\n", style::good("✓"))
    };
    field(&mut out, "id", &plain(&accepted.id));
    field(&mut out, "receipt", &plain(&accepted.receipt));
    let takers = match accepted.deliveries {
        0 => format!("{}: no rule matches, stored as unrouted", style::warning("none")),
        count => style::bold(counted(u64::from(count), "service")),
    };
    field(&mut out, "routed to", &takers);
    let show = format!("redrive show {}", plain(&accepted.receipt));
    out.push_str(&next_steps(&[(show, "shows its deliveries")]));
    out
}
