//! Reports on a rule book: the matrix of all rows, a rule as a page, and a rule value by value.
//!
//! Everything is made from what [`redrive_core::book::resolve`] found. The same book gives the same report, byte for byte.

pub mod explain;
pub mod markdown;
pub mod matrix;
pub mod reference;

use std::time::Duration;

use redrive_core::book::EMBEDDED;
use redrive_core::book::model::{ConsumerPattern, IdempotencyBy, ReactionName};
use redrive_core::book::resolve::Resolved;
use redrive_core::policy::breaker::Trip;
use redrive_core::policy::rule::{GrowingTimeout, Matcher, StatusRange};
use redrive_core::text::show_duration;

/// How duplicates are handled: by the consumer if the book declares a pattern, else by Redrive.
#[must_use]
pub fn idempotency(resolved: &Resolved<'_>) -> DuplicateHandling {
    let by_consumer = resolved.facts.idempotent_by.as_ref().and_then(|at| {
        let pattern = consumer_pattern(at.value.pattern)?;
        Some(DuplicateHandling { pattern, store: at.value.store.as_deref().map(store) })
    });
    by_consumer.unwrap_or_else(|| {
        let own = &resolved.idempotency;
        let pattern = match own.by.value {
            IdempotencyBy::EventId => "Event ID dedup",
            IdempotencyBy::NotificationId => "Notification ID dedup",
            IdempotencyBy::Nothing => return DuplicateHandling { pattern: "none", store: None },
        };
        let missing = if own.store.value == EMBEDDED { "" } else { ", not available" };
        DuplicateHandling { pattern, store: Some(store(&own.store.value) + missing) }
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateHandling {
    pub pattern: &'static str,
    pub store: Option<String>,
}

impl std::fmt::Display for DuplicateHandling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.store {
            Some(store) => f.pad(&format!("{} ({store})", self.pattern)),
            None => f.pad(self.pattern),
        }
    }
}

/// None if the consumer does not handle duplicates.
const fn consumer_pattern(pattern: ConsumerPattern) -> Option<&'static str> {
    match pattern {
        ConsumerPattern::EventId => Some("Event ID dedup"),
        ConsumerPattern::Upsert => Some("Idempotent upsert"),
        ConsumerPattern::StateCheck => Some("Conditional state check"),
        ConsumerPattern::Outbox => Some("Transactional outbox"),
        ConsumerPattern::Nothing => None,
    }
}

fn store(word: &str) -> String {
    match word {
        "redis" => "Redis",
        "postgres" => "PostgreSQL",
        "memory" => "In-memory",
        "embedded" => "Embedded",
        other => other,
    }
    .to_owned()
}

#[must_use]
pub fn breaker_name(resolved: &Resolved<'_>) -> String {
    match &resolved.rule.breaker {
        None => "none".to_owned(),
        Some(breaker) => match &breaker.name {
            Some(name) => name.to_string(),
            None => format!("{} default", resolved.kind),
        },
    }
}

#[must_use]
pub fn trip(trip: Trip) -> String {
    match trip {
        Trip::Consecutive(count) => format!("{count} consecutive {}", plural(count.get(), "failure")),
        Trip::Failures { count, within } => {
            format!("{count} {} within {}", plural(count.get(), "failure"), show_duration(within))
        }
        Trip::FailureRate { share, of_at_least, within } => {
            format!("{share} of at least {of_at_least} calls within {}", show_duration(within))
        }
    }
}

fn plural(count: u32, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// `15s`, or `5s to 30s` for a growing timeout.
#[must_use]
pub fn limit(timeout: GrowingTimeout) -> String {
    if timeout.first == timeout.max || timeout.factor <= 1.0 {
        show_duration(timeout.first)
    } else {
        format!("{} to {}", show_duration(timeout.first), show_duration(timeout.max))
    }
}

#[must_use]
pub fn reaction(reaction: &ReactionName) -> &str {
    match reaction {
        ReactionName::Policy(name) => name.as_str(),
        ReactionName::DeadLetter => "dead-letter",
        ReactionName::Pause => "pause",
    }
}

#[must_use]
pub fn matcher(when: &Matcher) -> String {
    let Matcher { statuses: ranges, code, header, message } = when;
    let mut parts = Vec::new();
    if !ranges.is_empty() {
        parts.push(format!(
            "status {}",
            ranges.iter().map(StatusRange::to_string).collect::<Vec<_>>().join(", ")
        ));
    }
    parts.extend(code.as_ref().map(|code| format!("code {code}")));
    parts.extend(header.as_ref().map(|header| match &header.value {
        Some(value) => format!("header {}: {value}", header.name),
        None => format!("header {}", header.name),
    }));
    parts.extend(message.as_ref().map(|message| format!("message /{message}/")));
    parts.join(" and ")
}

/// The name of the dead-letter queue, or its template if the name depends on the event.
#[must_use]
pub fn letter_name(resolved: &Resolved<'_>) -> String {
    let letter = &resolved.dead_letter;
    letter.name.clone().unwrap_or_else(|_| letter.template.value.to_string())
}

fn days(span: Duration) -> String {
    const DAY_SECS: u64 = 86_400;
    match span.as_secs() {
        DAY_SECS => "1 day".to_owned(),
        secs if secs.is_multiple_of(DAY_SECS) && secs > 0 => format!("{} days", secs / DAY_SECS),
        _ => show_duration(span),
    }
}

/// `Not Acceptable` for `not-acceptable`.
fn title_case(words: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>())
    };
    words.split('-').filter_map(word).collect::<Vec<_>>().join(" ")
}

/// Escapes a text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}
