//! Lints about overlapping patterns: values of a wider row do not apply to a narrower one.
//!
//! Rows are compared by their resolved values: a wider row that repeats what the service states hides nothing. Each row
//! is compared only with wildcard rows whose fixed beginning it shares, so that many exact rows stay cheap.

use std::collections::BTreeMap;

use super::ExampleBook::Book;
use super::{Findings, Lint, LintScope};
use redrive_core::book::model::{At, DeadLetter, EventRow, Idempotency, Layer, ReactionName};
use redrive_core::book::pattern::Relation;
use redrive_core::book::problem::{BookSpan, ProblemSeverity};
use redrive_core::book::resolve::{Resolved, ResolvedDeadLetter, ResolvedValue};
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::FailureMatch;

pub(super) const LINTS: &[Lint] = &[Lint {
    code: "hidden-pattern-value",
    severity: ProblemSeverity::Warning,
    summary: "a value of a wider pattern that does not apply to a narrower row",
    explanation: "The most specific row wins as a whole: rows inherit from the channel, the service and the defaults, never \
                  from another pattern. This row is narrower than one that states a value, so that value does not apply \
                  to its events. State the value here too, or move it from the wider row to the service.",
    bad: Book(&[
        "services:",
        "  notify:",
        r#"    target: { http: "http://127.0.0.1:9000" }"#,
        r#"    events: [{ type: "todo.task.*", timeout: 30s }, todo.task.created]"#,
    ]),
    fix: &[(r#""todo.task.*", timeout: 30s"#, r#""todo.task.*""#), ("events:", "timeout: 30s\n    events:")],
    scope: LintScope::Rows(hidden_pattern_value),
}];

fn hidden_pattern_value<'a>(rows: &[Resolved<'a>], findings: &mut Findings<'a>) {
    let owner = |row: &Resolved<'_>| (row.service.span, row.channel.map(|channel| channel.span));
    for rows in rows.chunk_by(|one, other| owner(one) == owner(other)) {
        compare(rows, findings);
    }
}

fn compare<'a>(rows: &[Resolved<'a>], findings: &mut Findings<'a>) {
    let mut by_beginning: BTreeMap<&str, Vec<&Resolved<'a>>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.row.pattern.value.is_exact()) {
        if row.row.layer != Layer::default() || row.row.depends_on.is_some() {
            by_beginning.entry(beginning(row.row)).or_default().push(row);
        }
    }
    if by_beginning.is_empty() {
        return;
    }
    for row in rows {
        let pattern = &row.row.pattern.value;
        let mut wider: Vec<&Resolved<'a>> = beginnings(beginning(row.row))
            .filter_map(|beginning| by_beginning.get(beginning))
            .flatten()
            .copied()
            .filter(|wide| pattern.relation(&wide.row.pattern.value) == Relation::Narrower)
            .collect();
        // The nearest comes first: readers expect its value.
        wider.sort_by_key(|wide| std::cmp::Reverse(wide.row.pattern.value.specificity()));
        report(row, &wider, findings);
    }
}

fn report<'a>(narrow: &Resolved<'a>, wider: &[&Resolved<'a>], findings: &mut Findings<'a>) {
    let mut judged: Vec<String> = stated(narrow, narrow).into_iter().map(|stated| stated.key).collect();
    let mut hidden: Vec<String> = Vec::new();
    for wide in wider {
        for StatedKey { key, line, is_same } in stated(wide, narrow) {
            if judged.contains(&key) {
                continue;
            }
            if !is_same {
                hidden.push(format!("`{key}` of `{}` (line {line})", wide.row.pattern.value));
            }
            judged.push(key);
        }
    }
    if !hidden.is_empty() {
        let verb = if hidden.len() == 1 { "does" } else { "do" };
        let pattern = &narrow.row.pattern;
        let message = format!("{} {verb} not apply to `{}`", hidden.join(", "), pattern.value);
        let help = "rows do not inherit from other patterns: state the values here too, or for the service";
        findings.at_row(narrow).report(pattern.span, message, help);
    }
}

/// The words before the first wildcard; all of an exact pattern.
fn beginning(row: &EventRow) -> &str {
    let text = row.pattern.value.as_str();
    text.find('*').map_or(text, |star| text[..star].trim_end_matches('.'))
}

/// `a.b`, `a` and the empty text, for `a.b`.
fn beginnings<'t>(text: &'t str) -> impl Iterator<Item = &'t str> {
    let next = |text: &&'t str| match (*text).rsplit_once('.') {
        Some((before, _)) => Some(before),
        None if text.is_empty() => None,
        None => Some(""),
    };
    std::iter::successors(Some(text), next)
}

/// A key that a row states, and whether another row has the same value, from whatever level.
struct StatedKey {
    key: String,
    line: u32,
    is_same: bool,
}

type KeyComparison = (&'static str, Option<BookSpan>, bool);

/// The keys that the row states. Facts and `allow` change no behaviour.
fn stated(own: &Resolved<'_>, other: &Resolved<'_>) -> Vec<StatedKey> {
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
        dead_letter: letters,
        criticality,
        data_loss,
        consumer_group,
        alerts,
        facts: _,
        allow: _,
    } = &own.row.layer;
    let by_failure = reactions.iter().map(|(kind, at)| {
        let key = match kind {
            FailureMatch::Category(Category::Transient) => "retry".to_owned(),
            kind => format!("on_failure: {kind}"),
        };
        let is_same = reaction(own, *kind) == reaction(other, *kind);
        StatedKey { key, line: at.span.position.line, is_same }
    });
    let (a, b) = (own, other);
    let (a_ids, b_ids) = (&own.idempotency, &other.idempotency);
    let named: [KeyComparison; 16] = [
        // These add to the values of other levels, so no other row has them.
        ("classify", classify.first().map(|row| row.span), false),
        ("timeout", span(timeout.as_ref()), a.rule.timeouts == b.rule.timeouts),
        ("breaker", span(breaker.as_ref()), a.rule.breaker == b.rule.breaker),
        ("when_open", span(when_open.as_ref()), a.rule.when_open == b.rule.when_open),
        ("hold_max", span(hold_max.as_ref()), a.rule.hold_max == b.rule.hold_max),
        ("deadline", span(deadline.as_ref()), a.rule.deadline == b.rule.deadline),
        ("fatal_after", span(fatal_after.as_ref()), a.rule.fatal_after == b.rule.fatal_after),
        ("criticality", span(criticality.as_ref()), same(a.criticality.as_ref(), b.criticality.as_ref())),
        ("data_loss", span(data_loss.as_ref()), same(a.data_loss.as_ref(), b.data_loss.as_ref())),
        ("consumer_group", span(consumer_group.as_ref()), a.consumer_group.value == b.consumer_group.value),
        ("alerts", alerts.first().map(|alert| alert.span), false),
        ("depends_on", span(own.row.depends_on.as_ref()), a.dependency.value == b.dependency.value),
        ("idempotency.by", span(by.as_ref()), a_ids.by.value == b_ids.by.value),
        ("idempotency.store", span(store.as_ref()), a_ids.store.value == b_ids.store.value),
        ("idempotency.key", span(key.as_ref()), a_ids.key_shown() == b_ids.key_shown()),
        ("idempotency.ttl", span(ttl.as_ref()), a_ids.ttl.value == b_ids.ttl.value),
    ];
    let named = named.into_iter().chain(of_letters(letters, &own.dead_letter, &other.dead_letter));
    let named = named.filter_map(|(key, span, is_same)| {
        Some(StatedKey { key: key.to_owned(), line: span?.position.line, is_same })
    });
    by_failure.chain(named).collect()
}

fn of_letters(letters: &DeadLetter, a: &ResolvedDeadLetter, b: &ResolvedDeadLetter) -> [KeyComparison; 10] {
    let DeadLetter { name, queue, stage, form, retention, alert, .. } = letters;
    let DeadLetter { reprocess, categories, reprocess_max: max, reprocess_cron: cron, .. } = letters;
    let same_cron = same(a.reprocess_cron.as_ref(), b.reprocess_cron.as_ref());
    [
        ("dead_letter.name", span(name.as_ref()), a.template.value == b.template.value),
        ("dead_letter.queue", span(queue.as_ref()), a.queue == b.queue),
        ("dead_letter.stage", span(stage.as_ref()), a.stage == b.stage),
        ("dead_letter.form", span(form.as_ref()), a.form.value == b.form.value),
        ("dead_letter.retention", span(retention.as_ref()), a.retention.value == b.retention.value),
        ("dead_letter.alert", span(alert.as_ref()), same(a.alert.as_ref(), b.alert.as_ref())),
        ("dead_letter.reprocess", span(reprocess.as_ref()), a.reprocess.value == b.reprocess.value),
        ("dead_letter.reprocess_categories", span(categories.as_ref()), a.categories == b.categories),
        ("dead_letter.reprocess_max", span(max.as_ref()), a.reprocess_max.value == b.reprocess_max.value),
        ("dead_letter.reprocess_cron", span(cron.as_ref()), same_cron),
    ]
}

fn same<T: PartialEq>(one: Option<&ResolvedValue<T>>, other: Option<&ResolvedValue<T>>) -> bool {
    one.map(|known| &known.value) == other.map(|known| &known.value)
}

fn reaction<'r>(resolved: &'r Resolved<'_>, kind: FailureMatch) -> Option<&'r ReactionName> {
    resolved.reactions.iter().find(|(known, _)| *known == kind).map(|(_, known)| &known.value)
}

fn span<T>(at: Option<&At<T>>) -> Option<BookSpan> {
    at.map(|at| at.span)
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
                "`on_failure: 503` of `*` (line 6) does not apply to `a.*`",
                "`retry` of `a.*` (line 7), `timeout` of `a.*` (line 7), `on_failure: 503` of `*` (line 6) do not apply to `a.b`",
            ]
        );
    }
}
