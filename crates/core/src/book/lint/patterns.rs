//! Lints about patterns that overlap: what a wider row says does not hold for a narrower one.
//!
//! Every row is held only against wildcard rows whose fixed beginning it shares, so a book of many
//! exact rows stays cheap to look at.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{Findings, Lint, Run};
use crate::book::model::{At, DeadLetter, EventRow, Idempotency, Layer, Sections};
use crate::book::pattern::Relation;
use crate::book::problem::Severity;
use crate::category::Category;
use crate::rule::FailureMatch;

pub(super) const LINTS: &[Lint] = &[Lint {
    code: "hidden-pattern-value",
    severity: Severity::Warning,
    summary: "a row does not get a value that a wider pattern states",
    explanation: "The most specific row wins, whole: values fall from the service to a row, and never from \
                  one pattern to another. This row is narrower than another that states a value, and does \
                  not state it itself, so its events run under the value of the channel, the service or \
                  the defaults, while the book reads as if the wider row covered them. State the value \
                  here too, or move it from the wider row to the service.",
    bad: "version: 1
services:
  notify:
    target: { http: \"http://127.0.0.1:9000\" }
    events:
      - { type: \"todo.task.*\", timeout: 30s }
      - { type: todo.task.created }
",
    mended: "version: 1
services:
  notify:
    target: { http: \"http://127.0.0.1:9000\" }
    timeout: 30s
    events:
      - { type: \"todo.task.*\" }
      - { type: todo.task.created }
",
    run: Run::Book(hidden_pattern_value),
}];

fn hidden_pattern_value<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    for service in &book.services {
        let around = [&book.defaults, &service.layer];
        findings.within_all(around, |findings| look_at(&service.rows, findings));
        for channel in &service.channels {
            let around = [&book.defaults, &service.layer, &channel.layer];
            findings.within_all(around, |findings| look_at(&channel.rows, findings));
        }
    }
}

/// A wildcard row with what it states.
struct Wide<'a> {
    row: &'a EventRow,
    keys: Vec<(Key, u32)>,
}

fn look_at<'a>(rows: &'a [Arc<EventRow>], findings: &mut Findings<'a>) {
    let mut by_beginning: BTreeMap<&str, Vec<Wide<'a>>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.pattern.value.is_exact()) {
        let keys = stated(row);
        if !keys.is_empty() {
            by_beginning.entry(beginning(row)).or_default().push(Wide { row, keys });
        }
    }
    if by_beginning.is_empty() {
        return;
    }
    for row in rows {
        let pattern = &row.pattern.value;
        let mut wider: Vec<&Wide<'a>> = beginnings(beginning(row))
            .filter_map(|beginning| by_beginning.get(beginning))
            .flatten()
            .filter(|wide| pattern.relation(&wide.row.pattern.value) == Relation::Narrower)
            .collect();
        if wider.is_empty() {
            continue;
        }
        // The nearest comes first: it is the one whose value a reader expects.
        wider.sort_by_key(|wide| std::cmp::Reverse(wide.row.pattern.value.specificity()));
        report(row, &wider, findings);
    }
}

fn report<'a>(row: &'a EventRow, wider: &[&Wide<'a>], findings: &mut Findings<'a>) {
    let own = stated(row);
    let mut hidden: Vec<(Key, String)> = Vec::new();
    for wide in wider {
        for (key, line) in &wide.keys {
            let is_known =
                own.iter().any(|(own, _)| own == key) || hidden.iter().any(|(known, _)| known == key);
            if !is_known {
                hidden.push((*key, format!("`{key}` of `{}` (line {line})", wide.row.pattern.value)));
            }
        }
    }
    if hidden.is_empty() {
        return;
    }
    let verb = if hidden.len() == 1 { "does" } else { "do" };
    let shown: Vec<String> = hidden.into_iter().map(|(_, shown)| shown).collect();
    findings.within(&row.layer, |findings| {
        findings.report(
            row.pattern.span,
            format!("{} {verb} not hold for `{}`", shown.join(", "), row.pattern.value),
            "values never fall from one pattern to another: state them here too, or state them for the service",
        );
    });
}

/// The words before the first wildcard; all of an exact pattern.
fn beginning(row: &EventRow) -> &str {
    let text = row.pattern.value.as_str();
    text.find('*').map_or(text, |star| text[..star].trim_end_matches('.'))
}

/// `a.b`, `a` and nothing at all, for `a.b`.
fn beginnings<'t>(text: &'t str) -> impl Iterator<Item = &'t str> {
    let next = |text: &&'t str| match (*text).rsplit_once('.') {
        Some((before, _)) => Some(before),
        None if text.is_empty() => None,
        None => Some(""),
    };
    std::iter::successors(Some(text), next)
}

/// Something that a row may state.
#[derive(Clone, Copy, PartialEq)]
enum Key {
    Reaction(FailureMatch),
    Named(&'static str),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reaction(FailureMatch::Category(Category::Transient)) => f.write_str("retry"),
            Self::Reaction(FailureMatch::Category(category)) => write!(f, "on_failure: {category}"),
            Self::Reaction(FailureMatch::Status(range)) if range.first == range.last => {
                write!(f, "on_failure: {}", range.first)
            }
            Self::Reaction(FailureMatch::Status(range)) => {
                write!(f, "on_failure: {}-{}", range.first, range.last)
            }
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// What the row states, with its lines. Facts and silenced lints change nothing that happens.
fn stated(row: &EventRow) -> Vec<(Key, u32)> {
    if row.layer == Layer::default() && row.depends_on.is_none() {
        return Vec::new();
    }
    let Layer {
        reactions,
        classify,
        timeout,
        breaker,
        when_open,
        hold_max,
        deadline,
        fatal_after,
        idempotency: Idempotency { by, store, key, ttl },
        dead_letter,
        criticality,
        data_loss,
        consumer_group,
        alerts,
        facts: _,
        allow: _,
    } = &row.layer;
    let mut keys: Vec<(Key, u32)> =
        reactions.iter().map(|(kind, at)| (Key::Reaction(*kind), at.span.position.line)).collect();
    let named = [
        ("classify", classify.first().map(|row| row.span.position.line)),
        ("timeout", line(timeout.as_ref())),
        ("breaker", line(breaker.as_ref())),
        ("when_open", line(when_open.as_ref())),
        ("hold_max", line(hold_max.as_ref())),
        ("deadline", line(deadline.as_ref())),
        ("fatal_after", line(fatal_after.as_ref())),
        ("idempotency.by", line(by.as_ref())),
        ("idempotency.store", line(store.as_ref())),
        ("idempotency.key", line(key.as_ref())),
        ("idempotency.ttl", line(ttl.as_ref())),
        ("criticality", line(criticality.as_ref())),
        ("data_loss", line(data_loss.as_ref())),
        ("consumer_group", line(consumer_group.as_ref())),
        ("alerts", alerts.first().map(|alert| alert.span.position.line)),
        ("depends_on", line(row.depends_on.as_ref())),
    ];
    let named = named.into_iter().chain(stated_of_letters(dead_letter));
    keys.extend(named.filter_map(|(name, line)| Some((Key::Named(name), line?))));
    keys
}

fn stated_of_letters(letters: &DeadLetter) -> [(&'static str, Option<u32>); 9] {
    let DeadLetter { name, queue, stage, form, retention, alert, reprocess, categories, reprocess_max } =
        letters;
    [
        ("dead_letter.name", line(name.as_ref())),
        ("dead_letter.queue", line(queue.as_ref())),
        ("dead_letter.stage", line(stage.as_ref())),
        ("dead_letter.form", line(form.as_ref())),
        ("dead_letter.retention", line(retention.as_ref())),
        ("dead_letter.alert", line(alert.as_ref())),
        ("dead_letter.reprocess", line(reprocess.as_ref())),
        ("dead_letter.reprocess_categories", line(categories.as_ref())),
        ("dead_letter.reprocess_max", line(reprocess_max.as_ref())),
    ]
}

fn line<T>(at: Option<&At<T>>) -> Option<u32> {
    at.map(|at| at.span.position.line)
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use crate::book::lint::check;

    fn book(rows: &str) -> String {
        format!("version: 1\nservices:\n  s:\n    target: {{ log: stdout }}\n    events:\n{rows}")
    }

    #[test]
    fn rows_are_held_against_wider_ones() {
        #[rustfmt::skip]
        let cases = [
            ("stated in both",           "      - { type: \"a.*\", timeout: 3s }\n      - { type: a.b, timeout: 4s }\n", vec![]),
            ("the narrower comes first", "      - a.b\n      - { type: \"a.*\", timeout: 3s }\n", vec!["6:9 hidden-pattern-value"]),
            ("apart",                    "      - b.a\n      - { type: \"a.*\", timeout: 3s }\n", vec![]),
            ("a star in the middle",     "      - a.b.c\n      - { type: \"a.*.c\", retry: none }\n", vec!["6:9 hidden-pattern-value"]),
            ("a star for everything",    "      - { type: \"*\", breaker: none }\n      - \"a.*\"\n      - a.b\n", vec!["7:9 hidden-pattern-value", "8:9 hidden-pattern-value"]),
            ("a longer word",            "      - ab.c\n      - { type: \"a.*\", timeout: 3s }\n", vec![]),
            ("facts are no values",      "      - a.b\n      - { type: \"a.*\", facts: { p99: 3s } }\n", vec![]),
            ("the row silences it",      "      - { type: a.b, allow: [{ lint: hidden-pattern-value, because: meant }] }\n      - { type: \"a.*\", timeout: 3s }\n", vec![]),
        ];
        for (name, rows, expected) in cases {
            assert_eq!(found(&book(rows), super::LINTS), expected, "{name}");
        }
    }

    #[test]
    fn the_nearest_row_that_states_a_value_is_named() {
        let rows = "      - { type: \"*\", timeout: 9s, on_failure: { 503: none } }\n      - { type: \"a.*\", timeout: 3s, retry: none }\n      - a.b\n";
        let problems = check(book(rows).as_bytes()).problems;
        let messages: Vec<_> = problems
            .iter()
            .filter(|problem| problem.code == "hidden-pattern-value")
            .map(|problem| problem.message.as_str())
            .collect();
        assert_eq!(
            messages,
            [
                "`on_failure: 503` of `*` (line 6) does not hold for `a.*`",
                "`retry` of `a.*` (line 7), `timeout` of `a.*` (line 7), `on_failure: 503` of `*` (line 6) do not hold for `a.b`",
            ]
        );
    }
}
