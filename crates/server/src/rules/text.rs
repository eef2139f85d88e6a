//! Rules in a terminal: all rows of a book in one table, or one rule with the origin of every value.

use std::fmt::Write as _;

use redrive_core::book::RuleBook;
use redrive_core::book::model::{ChannelEntry, ServiceEntry};
use redrive_core::book::resolve::Resolved;
use redrive_core::policy::category::Category;
use redrive_lab::report::explain::{ExplainedValue, explain};
use redrive_lab::report::{breaker_name, letter_name, limit, reaction};

use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{self, style};

pub(crate) fn overview(rules: &[Resolved<'_>]) -> String {
    let mut table = Table::new(&[CellAlign::Left; 5]);
    table.head(&["  EVENT", "RETRY", "BREAKER", "TIMEOUT", "DEAD LETTERS"]);
    for rule in rules {
        let mut name = format!("  {}", rule.row.pattern.value);
        if let Some(channel) = rule.channel {
            name = format!("  {}: {}", channel.name, rule.row.pattern.value);
        }
        table.push(vec![
            Cell::plain(name),
            Cell::bold(reaction(&rule.reaction_to(Category::Transient).value)),
            Cell::plain(breaker_name(rule)),
            Cell::plain(limit(rule.rule.timeouts.whole)),
            Cell::dim(letter_name(rule)),
        ]);
    }
    let mut lines = table.lines().into_iter();
    let mut page = lines.next().unwrap_or_default() + "\n";
    let mut last: Option<&ServiceEntry> = None;
    for (rule, line) in rules.iter().zip(lines) {
        if last.is_none_or(|last| last.name != rule.service.name) {
            page.push_str(&heading(rule.service));
            last = Some(rule.service);
        }
        page.push_str(&line);
        page.push('\n');
    }
    let channels = rules.iter().filter_map(|rule| rule.channel.map(|channel| (rule.service, channel)));
    let _ = writeln!(page, "\n{}", style::dim(counted(rules, channels)));
    page
}

fn heading(service: &ServiceEntry) -> String {
    let title = service.title.as_ref().map(|title| format!("  {}", style::dim(title))).unwrap_or_default();
    format!("\n{}{title}\n", style::bold(&service.name))
}

fn counted<'a>(
    rules: &[Resolved<'_>],
    channels: impl Iterator<Item = (&'a ServiceEntry, &'a ChannelEntry)>,
) -> String {
    let count = |number: usize, word: &str| redrive_core::text::counted(number as u64, word);
    let mut services: Vec<_> = rules.iter().map(|rule| &rule.service.name).collect();
    services.dedup();
    let mut channels: Vec<_> = channels.map(|(service, channel)| (&service.name, &channel.name)).collect();
    channels.dedup();
    let mut text = format!("{}, {}", count(services.len(), "service"), count(rules.len(), "row"));
    if !channels.is_empty() {
        let _ = write!(text, ", {}", count(channels.len(), "channel"));
    }
    text
}

pub(crate) fn whole(book: &RuleBook, rule: &Resolved<'_>, event: &str) -> String {
    let mut page = title(rule, event);
    let groups = explain(book, rule);
    // Sentences get columns of their own; otherwise they would widen all others.
    let is_sentence = |value: &ExplainedValue| value.key.is_empty();
    let mut named = Table::new(&[CellAlign::Left; 4]);
    let values = groups.iter().flat_map(|group| &group.values);
    values.filter(|value| !is_sentence(value)).for_each(|value| named.push(row(value)));
    let mut named = named.lines().into_iter();
    for group in &groups {
        let _ = writeln!(page, "\n{}", style::bold(group.title));
        let mut sentences = Table::new(&[CellAlign::Left; 4]);
        group.values.iter().filter(|value| is_sentence(value)).for_each(|value| sentences.push(row(value)));
        let rows = group.values.iter().filter(|value| !is_sentence(value)).count();
        for line in named.by_ref().take(rows).chain(sentences.lines()) {
            page.push_str(&line);
            page.push('\n');
        }
    }
    page
}

fn row(value: &ExplainedValue) -> Vec<Cell> {
    let origin = format!("({})", value.stated);
    vec![
        Cell::plain(format!("  {}", value.label)),
        if value.stated.is_built_in() { Cell::plain(&value.shown) } else { Cell::bold(&value.shown) },
        Cell::dim(origin),
        Cell::dim(&value.note),
    ]
}

fn title(rule: &Resolved<'_>, event: &str) -> String {
    let pattern = &rule.row.pattern;
    let place = if pattern.value.as_str() == event {
        format!("row on line {}", pattern.span.position.line)
    } else {
        format!("row `{}` on line {}", pattern.value, pattern.span.position.line)
    };
    format!("{} ← {}  {}\n", style::bold(terminal::name_of(rule)), style::bold(event), style::dim(place))
}
