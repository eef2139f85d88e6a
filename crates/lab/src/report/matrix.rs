//! All rows of a book as Markdown tables, one for each service.
//!
//! A channel with one event is shown by its title; with several, each line names its event.

use super::{breaker_name, cell, idempotency, letter_name, limit, reaction};
use redrive_core::book::RuleBook;
use redrive_core::book::model::{ChannelEntry, EventRow, ReactionName, Sections, ServiceEntry};
use redrive_core::policy::category::Category;

const HEAD: &str = "\
| Event | Retry Policy | Idempotency Pattern | DLQ | Circuit Breaker | Timeout |
|-------|-------------|--------------------|----|-----------------|---------|
";

#[must_use]
pub fn render(book: &RuleBook) -> String {
    let sections = book.sections();
    let tables: Vec<String> = sections.services.iter().map(|service| table(sections, service)).collect();
    tables.join("\n")
}

fn table(sections: &Sections, service: &ServiceEntry) -> String {
    let title = service.title.as_deref().unwrap_or(service.name.as_str());
    let mut lines = format!("### {}\n\n{HEAD}", cell(title));
    for row in &service.rows {
        lines.push_str(&line(&event(row), &cells(sections, service, None, row)));
    }
    for channel in &service.channels {
        for (name, cells) in channel_rows(sections, service, channel) {
            lines.push_str(&line(&name, &cells));
        }
    }
    lines
}

fn channel_rows(
    sections: &Sections,
    service: &ServiceEntry,
    channel: &ChannelEntry,
) -> Vec<(String, [String; 5])> {
    let title = cell(channel.title.as_deref().unwrap_or(channel.name.as_str()));
    let name = |row: &EventRow| match (&row.title, channel.rows.len()) {
        (Some(own), _) => cell(own),
        (None, 1) => title.clone(),
        (None, _) => format!("{title}: {}", event(row)),
    };
    channel.rows.iter().map(|row| (name(row), cells(sections, service, Some(channel), row))).collect()
}

fn event(row: &EventRow) -> String {
    match &row.title {
        Some(title) => cell(title),
        None => format!("`{}`", row.pattern.value),
    }
}

/// All but the first: retry policy, idempotency, dead letters, breaker, timeout.
fn cells(
    sections: &Sections,
    service: &ServiceEntry,
    channel: Option<&ChannelEntry>,
    row: &EventRow,
) -> [String; 5] {
    let resolved = sections.resolve(service, channel, row);
    let retry = &resolved.reaction_to(Category::Transient).value;
    let retry = match retry {
        ReactionName::Policy(name) => format!("`{name}`"),
        ReactionName::DeadLetter | ReactionName::Pause => reaction(retry).to_owned(),
    };
    [
        retry,
        cell(&idempotency(&resolved).to_string()),
        format!("`{}`", cell(&letter_name(&resolved))),
        breaker_name(&resolved),
        limit(resolved.rule.timeouts.whole),
    ]
}

fn line(event: &str, cells: &[String; 5]) -> String {
    format!("| {event} | {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::book::connectors::built_in;

    fn rows(services: &str) -> Vec<String> {
        let text = format!("version: 1\nservices:\n  svc:\n    target: {{ log: stdout }}\n{services}");
        let reading = redrive_core::book::read(&text, built_in());
        let book = reading.book.unwrap_or_else(|| panic!("{:?}\n{text}", reading.problems));
        let tables = render(&book);
        tables.lines().skip(4).map(str::to_owned).collect()
    }

    #[test]
    fn every_cell_has_its_words() {
        #[rustfmt::skip]
        let cases = [
            ("all that is built in",  "{ type: a.b }",
             "| `a.b` | `standard` | Event ID dedup (Embedded) | `_svc.deadletter` | none | 10s |"),
            ("a row with a title",    "{ type: a.b, title: Jobs API callback }",
             "| Jobs API callback | `standard` | Event ID dedup (Embedded) | `_svc.deadletter` | none | 10s |"),
            ("a bar in a title",      "{ type: a.b, title: 'a|b' }",
             "| a\\|b | `standard` | Event ID dedup (Embedded) | `_svc.deadletter` | none | 10s |"),
            ("an act for a policy",   "{ type: a.b, on_failure: { transient: dead-letter } }",
             "| `a.b` | dead-letter | Event ID dedup (Embedded) | `_svc.deadletter` | none | 10s |"),
            ("a store that we have not",         "{ type: a.b, idempotency: { store: redis } }",
             "| `a.b` | `standard` | Event ID dedup (Redis, not available) | `_svc.deadletter` | none | 10s |"),
            ("our own, by another id", "{ type: a.b, idempotency: { by: notification-id } }",
             "| `a.b` | `standard` | Notification ID dedup (Embedded) | `_svc.deadletter` | none | 10s |"),
            ("none",                  "{ type: a.b, idempotency: { by: none } }",
             "| `a.b` | `standard` | none | `_svc.deadletter` | none | 10s |"),
            ("the consumer's",        "{ type: a.b, facts: { idempotent_by: { pattern: upsert, store: postgres } } }",
             "| `a.b` | `standard` | Idempotent upsert (PostgreSQL) | `_svc.deadletter` | none | 10s |"),
            ("a store of its own",    "{ type: a.b, facts: { idempotent_by: { pattern: upsert, store: index } } }",
             "| `a.b` | `standard` | Idempotent upsert (index) | `_svc.deadletter` | none | 10s |"),
            ("the consumer's, without a store", "{ type: a.b, facts: { idempotent_by: state-check } }",
             "| `a.b` | `standard` | Conditional state check | `_svc.deadletter` | none | 10s |"),
            ("a consumer that does nothing is ours", "{ type: a.b, facts: { idempotent_by: nothing } }",
             "| `a.b` | `standard` | Event ID dedup (Embedded) | `_svc.deadletter` | none | 10s |"),
            ("a named breaker",       "{ type: a.b, breaker: kafkaBreaker }",
             "| `a.b` | `standard` | Event ID dedup (Embedded) | `_svc.deadletter` | kafkaBreaker | 10s |"),
            ("a timeout that grows",  "{ type: a.b, timeout: { first: 5s, max: 30s } }",
             "| `a.b` | `standard` | Event ID dedup (Embedded) | `_svc.deadletter` | none | 5s to 30s |"),
        ];
        for (name, row, expected) in cases {
            assert_eq!(rows(&format!("    events: [{row}]\n")), [expected], "{name}");
        }
    }

    #[test]
    fn a_channel_has_a_line_for_each_event() {
        let channel = |rest: &str| {
            let rows = rows(&format!("    channels: {{ email: {{ {rest} }} }}\n"));
            rows.iter()
                .map(|row| row.split(" | ").take(2).collect::<Vec<_>>().join(" | "))
                .collect::<Vec<_>>()
        };
        #[rustfmt::skip]
        let cases = [
            ("one event, by title", "title: Email dispatch, events: [a.b]",      vec!["| Email dispatch | `standard`"]),
            ("one event, by name",  "events: [a.b]",                             vec!["| email | `standard`"]),
            ("treated alike",       "title: Email dispatch, events: [a.b, c.d]",
             vec!["| Email dispatch: `a.b` | `standard`", "| Email dispatch: `c.d` | `standard`"]),
            ("treated differently", "events: [a.b, { type: c.d, retry: none }]",
             vec!["| email: `a.b` | `standard`", "| email: `c.d` | `none`"]),
            ("one has a title",     "events: [{ type: a.b, title: Mail }, c.d]",
             vec!["| Mail | `standard`", "| email: `c.d` | `standard`"]),
            ("a title of the row",  "events: [{ type: a.b, title: Mail }]",      vec!["| Mail | `standard`"]),
        ];
        for (name, rest, expected) in cases {
            assert_eq!(channel(rest), expected, "{name}");
        }
    }
}
