//! Lints about patterns that overlap: what a wider row says does not hold for a narrower one.
//!
//! Rows are compared by what holds for them: a wider row that says again what the service says hides
//! nothing. Every row is held only against wildcard rows whose fixed beginning it shares, so a book of many
//! exact rows stays cheap to look at.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Example::Book;
use super::{Findings, Lint, Run};
use redrive_core::book::model::{
    At, ChannelEntry, DeadLetter, EventRow, Idempotency, Layer, ReactionName, Sections, ServiceEntry,
};
use redrive_core::book::pattern::Relation;
use redrive_core::book::problem::Severity;
use redrive_core::book::resolve::{Known, Resolved};
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::FailureMatch;

pub(super) const LINTS: &[Lint] = &[Lint {
    code: "hidden-pattern-value",
    severity: Severity::Warning,
    summary: "a row does not get a value that a wider pattern states",
    explanation: "The most specific row wins, whole: values fall from the service to a row, and never from \
                  one pattern to another. This row is narrower than another that states a value, and does \
                  not state it itself, so its events run under the value of the channel, the service or \
                  the defaults, while the book reads as if the wider row covered them. State the value \
                  here too, or move it from the wider row to the service.",
    bad: Book(&[
        "services:",
        "  notify:",
        r#"    target: { http: "http://127.0.0.1:9000" }"#,
        r#"    events: [{ type: "todo.task.*", timeout: 30s }, todo.task.created]"#,
    ]),
    fix: &[(r#""todo.task.*", timeout: 30s"#, r#""todo.task.*""#), ("events:", "timeout: 30s\n    events:")],
    run: Run::Book(hidden_pattern_value),
}];

fn hidden_pattern_value<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    for service in &book.services {
        let own = Owner { book, service, channel: None, rows: &service.rows };
        let around = [&book.defaults, &service.layer];
        findings.within_all(around, |findings| look_at(own, findings));
        for channel in &service.channels {
            let of_channel = Owner { book, service, channel: Some(channel), rows: &channel.rows };
            let around = [&book.defaults, &service.layer, &channel.layer];
            findings.within_all(around, |findings| look_at(of_channel, findings));
        }
    }
}

/// A service or one of its channels, with its rows.
#[derive(Clone, Copy)]
struct Owner<'a> {
    book: &'a Sections,
    service: &'a ServiceEntry,
    channel: Option<&'a ChannelEntry>,
    rows: &'a [Arc<EventRow>],
}

/// A wildcard row with what it states and what holds for it.
struct Wide<'a> {
    row: &'a EventRow,
    stated: Vec<(Key, u32)>,
    resolved: Resolved<'a>,
}

fn look_at<'a>(of: Owner<'a>, findings: &mut Findings<'a>) {
    let mut by_beginning: BTreeMap<&str, Vec<Wide<'a>>> = BTreeMap::new();
    for row in of.rows.iter().filter(|row| !row.pattern.value.is_exact()) {
        let stated = stated(row);
        if !stated.is_empty() {
            let resolved = of.book.resolve(of.service, of.channel, row);
            by_beginning.entry(beginning(row)).or_default().push(Wide { row, stated, resolved });
        }
    }
    if by_beginning.is_empty() {
        return;
    }
    for row in of.rows {
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
        report(of, row, &wider, findings);
    }
}

fn report<'a>(of: Owner<'a>, row: &'a EventRow, wider: &[&Wide<'a>], findings: &mut Findings<'a>) {
    let mut narrow: Option<Resolved<'a>> = None;
    let mut judged: Vec<Key> = stated(row).into_iter().map(|(key, _)| key).collect();
    let mut hidden: Vec<String> = Vec::new();
    for wide in wider {
        for (key, line) in &wide.stated {
            if judged.contains(key) {
                continue;
            }
            judged.push(*key);
            let narrow = narrow.get_or_insert_with(|| of.book.resolve(of.service, of.channel, row));
            if !key.is_same(of.book, &wide.resolved, narrow) {
                hidden.push(format!("`{key}` of `{}` (line {line})", wide.row.pattern.value));
            }
        }
    }
    if hidden.is_empty() {
        return;
    }
    let verb = if hidden.len() == 1 { "does" } else { "do" };
    findings.within(&row.layer, |findings| {
        findings.report(
            row.pattern.span,
            format!("{} {verb} not hold for `{}`", hidden.join(", "), row.pattern.value),
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
#[derive(Clone, Copy)]
enum Key {
    Reaction(FailureMatch),
    Named { name: &'static str, is_same: IsSame },
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Reaction(one), Self::Reaction(other)) => one == other,
            (Self::Named { name: one, .. }, Self::Named { name: other, .. }) => one == other,
            (Self::Reaction(_), Self::Named { .. }) | (Self::Named { .. }, Self::Reaction(_)) => false,
        }
    }
}

impl Key {
    /// Whether the same holds for two rows, whoever states it.
    fn is_same(self, book: &Sections, one: &Resolved<'_>, other: &Resolved<'_>) -> bool {
        match self {
            Self::Reaction(kind) => reaction(one, kind) == reaction(other, kind),
            Self::Named { is_same, .. } => is_same(book, one, other),
        }
    }
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
            Self::Named { name, .. } => f.write_str(name),
        }
    }
}

/// Whether the same value holds for two rows, whoever states it.
type IsSame = fn(&Sections, &Resolved<'_>, &Resolved<'_>) -> bool;

/// What adds to the values of other levels is never there for another row.
const ADDS_UP: IsSame = |_, _, _| false;

/// The key, the line if it is stated, and how two rows are compared.
type Named = (&'static str, Option<u32>, IsSame);

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
        idempotency,
        dead_letter,
        criticality,
        data_loss,
        consumer_group,
        alerts,
        facts: _,
        allow: _,
    } = &row.layer;
    let by_failure = reactions.iter().map(|(kind, at)| (Key::Reaction(*kind), at.span.position.line));
    let named: [Named; 12] = [
        ("classify", classify.first().map(|row| row.span.position.line), ADDS_UP),
        ("timeout", line(timeout.as_ref()), |_, a, b| a.rule.timeouts == b.rule.timeouts),
        ("breaker", line(breaker.as_ref()), |_, a, b| a.rule.breaker == b.rule.breaker),
        ("when_open", line(when_open.as_ref()), |_, a, b| a.rule.when_open == b.rule.when_open),
        ("hold_max", line(hold_max.as_ref()), |_, a, b| a.rule.hold_max == b.rule.hold_max),
        ("deadline", line(deadline.as_ref()), |_, a, b| a.rule.deadline == b.rule.deadline),
        ("fatal_after", line(fatal_after.as_ref()), |_, a, b| a.rule.fatal_after == b.rule.fatal_after),
        ("criticality", line(criticality.as_ref()), |_, a, b| {
            value(a.criticality.as_ref()) == value(b.criticality.as_ref())
        }),
        ("data_loss", line(data_loss.as_ref()), |_, a, b| {
            value(a.data_loss.as_ref()) == value(b.data_loss.as_ref())
        }),
        ("consumer_group", line(consumer_group.as_ref()), |_, a, b| {
            a.consumer_group.value == b.consumer_group.value
        }),
        ("alerts", alerts.first().map(|alert| alert.span.position.line), ADDS_UP),
        ("depends_on", line(row.depends_on.as_ref()), |_, a, b| a.dependency.value == b.dependency.value),
    ];
    let named = named.into_iter().chain(of_idempotency(idempotency)).chain(of_letters(dead_letter));
    let named = named.filter_map(|(name, line, is_same)| Some((Key::Named { name, is_same }, line?)));
    by_failure.chain(named).collect()
}

fn of_idempotency(idempotency: &Idempotency) -> [Named; 4] {
    let Idempotency { by, store, key, ttl } = idempotency;
    [
        ("idempotency.by", line(by.as_ref()), |_, a, b| a.idempotency.by.value == b.idempotency.by.value),
        ("idempotency.store", line(store.as_ref()), |_, a, b| {
            a.idempotency.store.value == b.idempotency.store.value
        }),
        ("idempotency.key", line(key.as_ref()), |_, a, b| {
            a.idempotency.key_shown() == b.idempotency.key_shown()
        }),
        ("idempotency.ttl", line(ttl.as_ref()), |_, a, b| a.idempotency.ttl.value == b.idempotency.ttl.value),
    ]
}

fn of_letters(letters: &DeadLetter) -> [Named; 10] {
    let DeadLetter { name, queue, stage, form, retention, alert, .. } = letters;
    let DeadLetter { reprocess, categories, reprocess_max, reprocess_cron, .. } = letters;
    [
        ("dead_letter.name", line(name.as_ref()), |_, a, b| {
            a.dead_letter.template.value == b.dead_letter.template.value
        }),
        ("dead_letter.queue", line(queue.as_ref()), |book, a, b| {
            let queue = |row: &Resolved<'_>| {
                let mut layers = row.levels(book).into_iter().map(|(_, layer)| &layer.dead_letter);
                layers.find_map(|letters| letters.queue.as_ref().map(|at| at.value.clone()))
            };
            queue(a) == queue(b)
        }),
        ("dead_letter.stage", line(stage.as_ref()), |book, a, b| {
            let stage = |row: &Resolved<'_>| {
                let mut layers = row.levels(book).into_iter().map(|(_, layer)| &layer.dead_letter);
                layers.find_map(|letters| letters.stage.as_ref().map(|at| at.value.clone()))
            };
            stage(a) == stage(b)
        }),
        ("dead_letter.form", line(form.as_ref()), |_, a, b| {
            a.dead_letter.form.value == b.dead_letter.form.value
        }),
        ("dead_letter.retention", line(retention.as_ref()), |_, a, b| {
            a.dead_letter.retention.value == b.dead_letter.retention.value
        }),
        ("dead_letter.alert", line(alert.as_ref()), |_, a, b| {
            value(a.dead_letter.alert.as_ref()) == value(b.dead_letter.alert.as_ref())
        }),
        ("dead_letter.reprocess", line(reprocess.as_ref()), |_, a, b| {
            a.dead_letter.reprocess.value == b.dead_letter.reprocess.value
        }),
        ("dead_letter.reprocess_categories", line(categories.as_ref()), |_, a, b| {
            a.dead_letter.categories == b.dead_letter.categories
        }),
        ("dead_letter.reprocess_max", line(reprocess_max.as_ref()), |_, a, b| {
            a.dead_letter.reprocess_max.value == b.dead_letter.reprocess_max.value
        }),
        ("dead_letter.reprocess_cron", line(reprocess_cron.as_ref()), |_, a, b| {
            value(a.dead_letter.reprocess_cron.as_ref()) == value(b.dead_letter.reprocess_cron.as_ref())
        }),
    ]
}

fn value<T>(known: Option<&Known<T>>) -> Option<&T> {
    known.map(|known| &known.value)
}

/// What follows on that failure, if something is said of it or it is a category.
fn reaction<'r>(resolved: &'r Resolved<'_>, kind: FailureMatch) -> Option<&'r ReactionName> {
    resolved.reactions.iter().find(|(known, _)| *known == kind).map(|(_, known)| &known.value)
}

fn line<T>(at: Option<&At<T>>) -> Option<u32> {
    at.map(|at| at.span.position.line)
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use crate::lint::check;
    use redrive_core::book::connectors::built_in;

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
            ("a star for everything",    "      - { type: \"*\", breaker: stateBreaker }\n      - \"a.*\"\n      - a.b\n", vec!["7:9 hidden-pattern-value", "8:9 hidden-pattern-value"]),
            ("a longer word",            "      - ab.c\n      - { type: \"a.*\", timeout: 3s }\n", vec![]),
            ("facts are no values",      "      - a.b\n      - { type: \"a.*\", facts: { p99: 3s } }\n", vec![]),
            ("what is built in, again",  "      - a.b\n      - { type: \"a.*\", retry: standard, hold_max: 1d, dead_letter: { retention: 30d } }\n", vec![]),
            ("one of two is the same",   "      - a.b\n      - { type: \"a.*\", retry: standard, timeout: 3s }\n", vec!["6:9 hidden-pattern-value"]),
            ("the nearest says the same", "      - a.b\n      - { type: \"a.*\", retry: standard }\n      - { type: \"*\", retry: none }\n", vec![]),
            ("what adds up",             "      - a.b\n      - { type: \"a.*\", classify: [{ status: 404, as: fatal }] }\n", vec!["6:9 hidden-pattern-value"]),
            ("the row silences it",      "      - { type: a.b, allow: [{ lint: hidden-pattern-value, because: meant }] }\n      - { type: \"a.*\", timeout: 3s }\n", vec![]),
        ];
        for (name, rows, expected) in cases {
            assert_eq!(found(&book(rows), super::LINTS), expected, "{name}");
        }
    }

    #[test]
    fn what_the_service_says_too_is_not_hidden() {
        #[rustfmt::skip]
        let cases = [
            ("a timeout",             "timeout: 30s"),
            ("a timeout by its name", "timeout: fast"),
            ("a policy",              "retry: none"),
            ("a status",              "on_failure: { 503: none }"),
            ("a breaker",             "breaker: stateBreaker"),
            ("an open breaker",       "when_open: dead-letter"),
            ("a deadline",            "deadline: 1m"),
            ("how much depends",      "criticality: low"),
            ("a group",               "consumer_group: g"),
            ("second copies",         "idempotency: { by: none, store: memory, key: data.k, ttl: 1h }"),
            ("dead letters",          "dead_letter: { name: \"{queue}-{event}-{stage}\", queue: q, stage: s, retention: 1d, alert: 9/m, reprocess_max: 9 }"),
            ("letters at times",      "dead_letter: { reprocess: filtered, reprocess_categories: [transient], reprocess_cron: \"0 3 * * *\" }"),
        ];
        for (name, keys) in cases {
            let rows = format!("      - a.b\n      - {{ type: \"a.*\", {keys} }}\n");
            assert_eq!(found(&book(&rows), super::LINTS), ["6:9 hidden-pattern-value"], "{name}");
            let both = book(&rows) + "    " + keys + "\n";
            assert_eq!(found(&both, super::LINTS), [""; 0], "{name}");
        }
    }

    #[test]
    fn the_nearest_row_that_states_a_value_is_named() {
        let rows = "      - { type: \"*\", timeout: 9s, on_failure: { 503: none } }\n      - { type: \"a.*\", timeout: 3s, retry: none }\n      - a.b\n";
        let problems = check(book(rows).as_bytes(), built_in()).problems;
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
