//! Dead letters and failure groups in a terminal.

use std::fmt::Write as _;
use std::time::Duration;

use redrive_core::letters::envelope::{Envelope, Tier};
use redrive_core::text::{counted, show_count};
use redrive_core::time::Timestamp;

use crate::deliveries::text::{data, short_id};
use crate::letters::json::{FailureGroupJson, LetterJson, QueueCount};
use crate::terminal::moment::{ago, moment};
use crate::terminal::spark::{spark, sums};
use crate::terminal::table::{Cell, CellAlign, FactList, Table};
use crate::terminal::{cut, next_steps, plain, queue_name, shell_word, style};

const MESSAGE_COLUMNS_MAX: usize = 100;

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
    let mut facts = FactList::new();
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
    let mut table =
        Table::new(&[CellAlign::Right, CellAlign::Left, CellAlign::Left, CellAlign::Left, CellAlign::Left]);
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
    // Original ids are never shortened.
    let is_ours = redrive_core::ids::DeliveryId::parse(id).is_some();
    let id = if is_ours { short_id(id) } else { shell_word(id) };
    let poison = match envelope.tier {
        Tier::Dead => "",
        Tier::Poison => " --include-poison --note 'the cause is fixed'",
    };
    let mut steps = vec![
        (format!("redrive dlq replay {id}{poison}"), "replays it, once the cause is fixed"),
        (format!("redrive dlq edit {id}"), "resends it with new data"),
    ];
    if is_ours {
        steps.push((format!("redrive why {id}"), "shows its history with the rule lines"));
    }
    steps
}

const MESSAGE_COLUMNS_MIN: usize = 24;

const MESSAGE_COLUMNS_DEFAULT: usize = 60;

const NAME_COLUMNS_MAX: usize = 32;

/// Trend columns: a day by the hour, or an hour by five minutes.
const HOURS: usize = 24;

/// On narrow terminals.
const HOURS_NARROW: usize = 8;

const WIDE_COLUMNS: usize = 120;

const HOUR: Duration = Duration::from_hours(1);

fn short_queue(service: &str, channel: Option<&str>) -> String {
    cut(&queue_name(service, channel), NAME_COLUMNS_MAX)
}

pub(crate) fn list(letters: &[LetterJson], now: Timestamp, columns: Option<usize>) -> String {
    if letters.is_empty() {
        return format!("{} no matching dead letters\n", style::good("✓"));
    }
    let mut table = Table::new(&[
        CellAlign::Whole,
        CellAlign::Left,
        CellAlign::Left,
        CellAlign::Left,
        CellAlign::Left,
        CellAlign::Right,
        CellAlign::Left,
    ]);
    table.head(&["LETTER", "DIED", "SERVICE", "TYPE", "CODE", "ATTEMPTS", "MESSAGE"]);
    let room = |letter: &LetterJson| {
        let before = [8, 8, letter.service.len(), letter.event_type.len(), letter.failure_code.len(), 8];
        message_room(columns, before.into_iter().sum::<usize>() + 6 * 2)
    };
    let room = letters.iter().map(room).min().unwrap_or(MESSAGE_COLUMNS_DEFAULT);
    for letter in letters {
        let message = cut(&format!("{}{}", marks(letter), plain(&letter.message)), room);
        table.push(vec![
            Cell::bold(short_id(&letter.id)),
            Cell::dim(ago(letter.died_at, now)),
            Cell::plain(short_queue(&letter.service, letter.channel.as_deref())),
            Cell::plain(cut(&plain(&letter.event_type), NAME_COLUMNS_MAX)),
            Cell::painted(cut(&plain(&letter.failure_code), NAME_COLUMNS_MAX), style::warning),
            Cell::plain(letter.attempts.to_string()),
            Cell::plain(message),
        ]);
    }
    let mut out = table.within(columns).text();
    let first = short_id(&letters[0].id);
    out.push_str(&next_steps(&[
        (format!("redrive dlq show {first}"), "shows a letter with its attempts and data"),
        ("redrive dlq groups".to_owned(), "shows causes of dead letters"),
    ]));
    out
}

fn marks(letter: &LetterJson) -> String {
    let mut marks = Vec::new();
    if letter.tier == "poison" {
        marks.push("poison".to_owned());
    }
    marks.extend(letter.claimed_by.map(|replay| format!("replay {replay}")));
    marks.extend(letter.holds.map(|behind| match behind {
        0 => "blocks its session".to_owned(),
        behind => format!("holds {}", show_count(behind)),
    }));
    if marks.is_empty() { String::new() } else { format!("[{}] ", marks.join(", ")) }
}

fn message_room(columns: Option<usize>, before: usize) -> usize {
    columns.map_or(MESSAGE_COLUMNS_DEFAULT, |columns| columns.saturating_sub(before).max(MESSAGE_COLUMNS_MIN))
}

pub(crate) fn groups(
    groups: &[FailureGroupJson],
    claimed_by: Option<u64>,
    now: Timestamp,
    columns: Option<usize>,
) -> String {
    if groups.is_empty() {
        return format!("{} no dead letters\n", style::good("✓"));
    }
    let is_narrow = columns.is_some_and(|columns| columns < WIDE_COLUMNS);
    let hours = if is_narrow { HOURS_NARROW } else { HOURS };
    let is_young = groups.iter().all(|group| now.since(group.first_seen) < HOUR);
    let trend = |group: &FailureGroupJson| {
        let per_hour = usize::try_from(HOUR.as_secs() / group.trend.span_seconds.max(1)).unwrap_or(1).max(1);
        let counts = if is_young { group.trend.counts.clone() } else { sums(&group.trend.counts, per_hour) };
        let shown = if is_young { per_hour } else { hours };
        spark(&counts[counts.len().saturating_sub(shown)..])
    };
    let title = if is_young { "LAST HOUR".to_owned() } else { format!("LAST {hours} HOURS") };
    let mut table = Table::new(&[
        CellAlign::Whole,
        CellAlign::Right,
        CellAlign::Left,
        CellAlign::Left,
        CellAlign::Left,
        CellAlign::Whole,
        CellAlign::Left,
    ]);
    table.head(&["FAILURE GROUP", "COUNT", "LAST SEEN", "SERVICE", "CODE", &title, "MESSAGE"]);
    for group in groups {
        let poison = match group.poison {
            0 => String::new(),
            count if count == group.count => "[poison] ".to_owned(),
            count => format!("[{} poison] ", show_count(count)),
        };
        let services = services(&group.services);
        let before = 16 + 8 + 9 + services.len() + group.code.len() + hours.max(title.len()) + 6 * 2;
        let message = cut(&format!("{poison}{}", plain(&group.message)), message_room(columns, before));
        table.push(vec![
            Cell::bold(plain(&group.fingerprint)),
            Cell::painted(show_count(group.count), style::error),
            Cell::dim(ago(group.last_seen, now)),
            Cell::plain(services),
            Cell::painted(cut(&plain(&group.code), NAME_COLUMNS_MAX), style::warning),
            Cell::plain(trend(group)),
            Cell::plain(message),
        ]);
    }
    let mut out = table.within(columns).text();
    let all: u64 = groups.iter().map(|group| group.count).sum();
    let summary = format!("{} of {}", counted(all, "dead letter"), counted(groups.len() as u64, "cause"));
    let _ = writeln!(out, "\n{}", style::dim(summary));
    let show = format!("redrive dlq show {}", short_id(&groups[0].sample));
    out.push_str(&next_steps(&[
        (show, "shows a letter of the first group"),
        send_again(&groups[0], claimed_by),
    ]));
    out
}

fn send_again(group: &FailureGroupJson, claimed_by: Option<u64>) -> (String, &'static str) {
    if let Some(replay) = claimed_by {
        return (format!("redrive replays {replay}"), "shows the replay of these letters");
    }
    let command = format!("redrive dlq replay --fingerprint {} --canary", plain(&group.fingerprint));
    if group.poison == group.count {
        let poison = format!("{command} --include-poison --note 'the cause is fixed'");
        return (poison, "replays the first group, though all its letters are poison");
    }
    (command, "replays the first group: one, then ten, then the rest")
}

fn services(services: &[QueueCount]) -> String {
    match services {
        [] => String::new(),
        [one] => short_queue(&one.service, one.channel.as_deref()),
        [first, rest @ ..] => {
            format!("{} +{}", short_queue(&first.service, first.channel.as_deref()), rest.len())
        }
    }
}
