//! Lints about dead letters: queue names, retention, alerts and reprocessing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ExampleBook::{Book, Service, With};
use super::{Findings, Lint, LintScope, ON_CALL};
use redrive_core::book::expression::{AlertMetric, Quantity, ThresholdOp};
use redrive_core::book::model::{Alert, DataLoss, DeliveryOrder, Reprocess, Sections};
use redrive_core::book::problem::{BookSpan, ProblemSeverity};
use redrive_core::book::resolve::Resolved;
use redrive_core::policy::category::Category;
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "dead-letter-name",
        severity: ProblemSeverity::Warning,
        summary: "a dead-letter queue with an unconventional name",
        explanation: "Tools and people find dead-letter queues by name. Three forms are in use: \
                      `_{service}.deadletter[.{channel}]`, `{queue}:dlq` for Redis streams and `{queue}-dlq-{stage}` for \
                      SQS. A queue with another name is easily overlooked. Use one of the three.",
        bad: Service(r#"dead_letter: { name: "{service}-failed" }"#),
        fix: &[("{service}-failed", "_{service}.deadletter[.{channel}]")],
        scope: LintScope::Row(dead_letter_name),
    },
    Lint {
        code: "dead-letter-name-incomplete",
        severity: ProblemSeverity::Error,
        summary: "a dead-letter name with a placeholder that has no value",
        explanation: "The template has a placeholder without a value for this row, so its dead letters have no queue. State \
                      `queue` or `stage` beside the name, or put the optional part into square brackets, which drop out: \
                      `_{service}.deadletter[.{channel}]`.",
        bad: Service(r#"dead_letter: { name: "{queue}:dlq" }"#),
        fix: &[(r#":dlq""#, r#":dlq", queue: work"#)],
        scope: LintScope::Row(dead_letter_name_incomplete),
    },
    Lint {
        code: "dead-letter-names-collide",
        severity: ProblemSeverity::Warning,
        summary: "one dead-letter queue for several services or channels",
        explanation: "Dead letters of different services or channels share a queue. Its depth and age then point at none of \
                      them, a replay sends to all, and one that fails a lot hides the others. Use `{service}` and \
                      `[.{channel}]` in the name, or name each queue.",
        bad: Book(&[
            "services:",
            "  notify:",
            r#"    target: { http: "http://127.0.0.1:9000" }"#,
            r#"    dead_letter: { name: "_{service}.deadletter" }"#,
            "    events: [todo.task.created]",
            r#"    channels: { email: { target: { http: "http://127.0.0.1:9001" }, events: [todo.task.created] } }"#,
        ]),
        fix: &[(r#".deadletter""#, r#".deadletter[.{channel}]""#)],
        scope: LintScope::Rows(dead_letter_names_collide),
    },
    Lint {
        code: "retention-too-short",
        severity: ProblemSeverity::Warning,
        summary: "a short retention of dead letters",
        explanation: "A dead letter is the last copy of its event. Finding and fixing the cause may take a weekend, a \
                      holiday or a vendor's answer. Keep dead letters for at least 7 days, and for 30 days (the default) \
                      where data loss is not acceptable.",
        bad: Service("dead_letter: { retention: 2d }"),
        fix: &[("retention: 2d", "retention: 30d")],
        scope: LintScope::Row(retention_too_short),
    },
    Lint {
        code: "dead-letters-unwatched",
        severity: ProblemSeverity::Warning,
        summary: "no alert on the depth, age or inflow of dead letters",
        explanation: "Dead letters need a person, and so an alert. Depth (`dead_letters > 1000`) shows a growing queue, age \
                      (`dead_letter_age > 48h`) a neglected one, inflow (`dead_letter_inflow > 10/m`, or `dead_letter: { \
                      alert: 10/m }`) a new failure. Watch all three. Only a note in a book without alerts or receivers, \
                      or with one of the three and nothing critical.",
        bad: With(
            &["alerts:", "  - { when: error_rate > 5% over 5m, severity: high, to: [on-call] }", ON_CALL],
            "",
        ),
        fix: &[(
            "receivers:",
            "  - { when: dead_letters > 1000, severity: high, to: [on-call] }\n  - { when: dead_letter_age > 48h, severity: medium, to: [on-call] }\n  - { when: dead_letter_inflow > 10/m, severity: high, to: [on-call] }\nreceivers:",
        )],
        scope: LintScope::Row(dead_letters_unwatched),
    },
    Lint {
        code: "retention-before-age-alert",
        severity: ProblemSeverity::Error,
        summary: "a retention shorter than the alert on dead-letter age",
        explanation: "Each dead letter is deleted before it reaches the age of the alert, so the alert never fires. Keep dead \
                      letters longer than that age, with time left to act, or alert earlier.",
        bad: With(
            &[ON_CALL],
            "dead_letter: { retention: 7d }, alerts: [{ when: dead_letter_age > 10d, severity: high, to: [on-call] }]",
        ),
        fix: &[("dead_letter_age > 10d", "dead_letter_age > 48h")],
        scope: LintScope::Row(retention_before_age_alert),
    },
    Lint {
        code: "automatic-reprocess-of-permanent",
        severity: ProblemSeverity::Warning,
        summary: "automatic reprocessing of permanent failures",
        explanation: "Permanent failures and invalid messages fail again. Reprocessing them loads a dependency that has just \
                      recovered and moves them to the poison tier, which bulk replays skip. Use `reprocess: filtered` \
                      with the categories that recover: transient, rate-limited, unknown.",
        bad: Service("dead_letter: { reprocess: automatic }"),
        fix: &[(
            "reprocess: automatic",
            "reprocess: filtered, reprocess_categories: [transient, rate-limited]",
        )],
        scope: LintScope::Row(automatic_reprocess_of_permanent),
    },
    Lint {
        code: "filtered-without-categories",
        severity: ProblemSeverity::Error,
        summary: "`reprocess: filtered` without categories",
        explanation: "Filtered reprocessing brings back the dead letters of the named categories only. None is named, so none \
                      comes back. Add `reprocess_categories`, or write `manual` if people decide.",
        bad: Service("dead_letter: { reprocess: filtered }"),
        fix: &[("reprocess: filtered", "reprocess: filtered, reprocess_categories: [transient]")],
        scope: LintScope::Row(filtered_without_categories),
    },
    Lint {
        code: "reprocess-categories-ignored",
        severity: ProblemSeverity::Warning,
        summary: "`reprocess_categories` without `reprocess: filtered`",
        explanation: "The categories apply to `reprocess: filtered` only. Here dead letters come back by hand, or all of them \
                      automatically, and the list has no effect. Write `reprocess: filtered`, or remove the list.",
        bad: Service("dead_letter: { reprocess_categories: [transient] }"),
        fix: &[("reprocess_categories", "reprocess: filtered, reprocess_categories")],
        scope: LintScope::Row(reprocess_categories_ignored),
    },
    Lint {
        code: "reprocess-cron-ignored",
        severity: ProblemSeverity::Warning,
        summary: "`reprocess_cron` with `reprocess: manual`",
        explanation: "The cron schedules automatic reprocessing, and with `reprocess: manual` (the default) there is none: it \
                      has no effect. Write `reprocess: filtered` with the categories that recover, or remove the cron.",
        bad: Service(r#"dead_letter: { reprocess_cron: "0 3 * * *" }"#),
        fix: &[("reprocess_cron", "reprocess: filtered, reprocess_categories: [transient], reprocess_cron")],
        scope: LintScope::Row(reprocess_cron_ignored),
    },
    Lint {
        code: "strict-order-unwatched",
        severity: ProblemSeverity::Warning,
        summary: "`order: session-strict` without an alert on dead letters",
        explanation: "With `order: session-strict` a dead letter blocks its session until it is resolved. Without an alert on \
                      dead letters or their age the session may stay blocked for the whole retention. Add one, or use \
                      `order: session`, which continues after a dead letter.",
        bad: With(&[ON_CALL], "order: session-strict"),
        fix: &[(
            "session-strict",
            "session-strict, alerts: [{ when: dead_letters > 0, severity: high, to: [on-call] }]",
        )],
        scope: LintScope::Row(strict_order_unwatched),
    },
];

fn dead_letter_name(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Ok(name) = &resolved.dead_letter.name else { return };
    if !is_conventional(name) {
        findings.report(
            resolved.place(resolved.dead_letter.template.origin),
            format!("`{name}` is not a conventional dead-letter name"),
            "use \"_{service}.deadletter[.{channel}]\", \"{queue}:dlq\" or \"{queue}-dlq-{stage}\"",
        );
    }
}

fn is_conventional(name: &str) -> bool {
    let of_service = name.strip_prefix('_').and_then(|rest| rest.split_once(".deadletter"));
    let of_service = of_service.is_some_and(|(service, channel)| {
        !service.is_empty() && (channel.is_empty() || channel.starts_with('.') && channel.len() > 1)
    });
    let of_stream = name.strip_suffix(":dlq").is_some_and(|queue| !queue.is_empty());
    let of_stage =
        name.split_once("-dlq-").is_some_and(|(queue, stage)| !queue.is_empty() && !stage.is_empty());
    of_service || of_stream || of_stage
}

fn dead_letter_name_incomplete(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    if let Err(missing) = &resolved.dead_letter.name {
        findings.report(
            resolved.place(resolved.dead_letter.template.origin),
            format!("the dead letters of `{}` have no queue: {missing}", resolved.row.pattern.value),
            "state the missing part beside the name, or put it into square brackets",
        );
    }
}

fn owner(row: &Resolved<'_>) -> (BookSpan, String) {
    match row.channel {
        Some(channel) => (channel.span, format!("{}.{}", row.service.name, channel.name)),
        None => (row.service.span, row.service.name.to_string()),
    }
}

fn dead_letter_names_collide<'a>(rows: &[Resolved<'a>], findings: &mut Findings<'a>) {
    let mut first_owners: BTreeMap<&str, (BookSpan, String)> = BTreeMap::new();
    for row in rows {
        let Ok(name) = &row.dead_letter.name else { continue };
        let (span, owner) = owner(row);
        let (first, first_owner) = first_owners.entry(name).or_insert_with(|| (span, owner.clone()));
        if *first != span {
            let place = row.dead_letter.template.origin.span.unwrap_or(span);
            let message = format!("the dead letters of `{first_owner}` and `{owner}` share `{name}`");
            findings.at_row(row).report(place, message, "use `{service}` and `[.{channel}]` in the name");
        }
    }
}

/// A shorter retention leaves no time to fix the cause.
const RETENTION_MIN: Duration = Duration::from_hours(7 * 24);
/// The same where data loss is not acceptable: the default.
const RETENTION_MIN_LOSSLESS: Duration = Duration::from_hours(30 * 24);

fn retention_too_short(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let retention = &resolved.dead_letter.retention;
    let lossless = resolved.data_loss.as_ref().is_some_and(|known| known.value == DataLoss::NotAcceptable);
    let (least, reason) = if lossless {
        (RETENTION_MIN_LOSSLESS, ", and data loss is not acceptable")
    } else {
        (RETENTION_MIN, " only")
    };
    if retention.value < least {
        let [kept, least] = [retention.value, least].map(show_duration);
        let message = format!("dead letters are kept for {kept}{reason}");
        let help = format!("keep them for at least {least}; the default is 30d");
        findings.report(resolved.place(retention.origin), message, help);
    }
}

fn alerts_for<'r, 'a>(
    resolved: &'r Resolved<'a>,
    book: &'a Sections,
    metric: AlertMetric,
) -> impl Iterator<Item = &'a Alert> + 'r {
    let own = resolved.alerts.iter().map(|(alert, _)| *alert);
    own.chain(&book.alerts).filter(move |alert| alert.when.metric == metric)
}

fn dead_letters_unwatched<'a>(resolved: &Resolved<'a>, findings: &mut Findings<'a>) {
    let book = findings.book();
    // An alert on the very first dead letter makes age and number unnecessary.
    if alerts_for(resolved, book, AlertMetric::DeadLetters).any(fires_on_the_first) {
        return;
    }
    let figures = [
        (AlertMetric::DeadLetters, "depth (`dead_letters > 1000`)"),
        (AlertMetric::DeadLetterAge, "age (`dead_letter_age > 48h`)"),
        (AlertMetric::DeadLetterInflow, "inflow (`dead_letter_inflow > 10/m`)"),
    ];
    let is_missing = |(metric, _): &&(AlertMetric, _)| {
        let by_rule = *metric == AlertMetric::DeadLetterInflow && resolved.dead_letter.alert.is_some();
        !by_rule && alerts_for(resolved, book, *metric).next().is_none()
    };
    let missing: Vec<&str> = figures.iter().filter(is_missing).map(|(_, figure)| *figure).collect();
    if missing.is_empty() {
        return;
    }
    let of_book = book.services.first().map_or(resolved.service.span, |service| service.span);
    let is_critical = resolved.criticality.is_some() || resolved.data_loss.is_some();
    let has_alerts = !book.receivers.is_empty() || !book.alerts.is_empty() || !resolved.alerts.is_empty();
    if !has_alerts && !is_critical {
        let message = "this book has no alerts on dead letters";
        let help = "add `receivers` and `alerts` before production";
        return findings.report_as(ProblemSeverity::Info, of_book, message, help);
    }
    let is_watched = missing.len() < figures.len();
    let severity = if is_watched && !is_critical { ProblemSeverity::Info } else { ProblemSeverity::Warning };
    let missing = missing.join(", ");
    // What the whole book lacks is reported once, not for each service.
    if resolved.alerts.is_empty() && resolved.dead_letter.alert.is_none() {
        let message = format!("no alert on dead letters by {missing}");
        findings.report_as(severity, of_book, message, "add alerts for the whole book, or for each service");
    } else {
        let (place, owner) = owner(resolved);
        let message = format!("no alert on the dead letters of `{owner}` by {missing}");
        findings.report_as(severity, place, message, "add alerts, here or for the whole book");
    }
}

fn fires_on_the_first(alert: &Alert) -> bool {
    alert.when.lasting.is_none()
        && alert.when.limit.is_some_and(|limit| match (limit.op, limit.value) {
            (ThresholdOp::Above, Quantity::Count(count)) => count == 0,
            (ThresholdOp::AtLeast, Quantity::Count(count)) => count <= 1,
            (ThresholdOp::Above | ThresholdOp::AtLeast | ThresholdOp::Below | ThresholdOp::AtMost, _) => {
                false
            }
        })
}

fn retention_before_age_alert<'a>(resolved: &Resolved<'a>, findings: &mut Findings<'a>) {
    let alerts = alerts_for(resolved, findings.book(), AlertMetric::DeadLetterAge);
    let first = alerts.filter_map(|alert| Some((age_alerted(alert)?, alert))).min_by_key(|(age, _)| *age);
    let Some((age, alert)) = first else { return };
    let retention = &resolved.dead_letter.retention;
    if age >= retention.value {
        let place = retention.origin.span.unwrap_or(alert.span);
        let [kept, age] = [retention.value, age].map(show_duration);
        let message = format!("dead letters are deleted after {kept}, before the alert at {age}");
        findings.report(place, message, "keep them longer, or alert earlier");
    }
}

fn age_alerted(alert: &Alert) -> Option<Duration> {
    let limit = alert.when.limit?;
    match (limit.op, limit.value) {
        (ThresholdOp::Above | ThresholdOp::AtLeast, Quantity::Duration(age)) => {
            Some(age.saturating_add(alert.when.lasting.unwrap_or_default()))
        }
        (ThresholdOp::Below | ThresholdOp::AtMost, _)
        | (_, Quantity::Share(_) | Quantity::Count(_) | Quantity::Rate(_)) => None,
    }
}

fn automatic_reprocess_of_permanent(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let letter = &resolved.dead_letter;
    let fails_again = |category: &&Category| matches!(category, Category::Permanent | Category::Invalid);
    let what = match letter.reprocess.value {
        Reprocess::Manual => return,
        Reprocess::Automatic => "all dead letters, permanent and invalid ones included".to_owned(),
        Reprocess::Filtered => match letter.categories.iter().find(fails_again) {
            Some(category) => format!("dead letters of category `{category}`"),
            None => return,
        },
    };
    findings.report(
        resolved.place(letter.reprocess.origin),
        format!("this reprocesses {what}, which fail again"),
        "write `reprocess: filtered` with `reprocess_categories: [transient, rate-limited, unknown]`",
    );
}

fn filtered_without_categories(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let letter = &resolved.dead_letter;
    if letter.reprocess.value == Reprocess::Filtered && letter.categories.is_empty() {
        let place = resolved.place(letter.reprocess.origin);
        let help = "add `reprocess_categories`, such as [transient, rate-limited]";
        findings.report(place, "`filtered` reprocesses nothing without categories", help);
    }
}

fn reprocess_categories_ignored<'a>(resolved: &Resolved<'a>, findings: &mut Findings<'a>) {
    let reprocess = &resolved.dead_letter.reprocess;
    if reprocess.value == Reprocess::Filtered {
        return;
    }
    let stated = resolved
        .levels(findings.book())
        .into_iter()
        .find_map(|(level, layer)| layer.dead_letter.categories.as_ref().map(|at| (level, at.span)));
    // A row may return to `manual` where the defaults filter.
    if let Some((level, span)) = stated
        && level <= reprocess.origin.level
    {
        let message = "these categories have no effect: `reprocess` is not `filtered`";
        findings.report(span, message, "write `reprocess: filtered`, or remove the categories");
    }
}

fn reprocess_cron_ignored<'a>(resolved: &Resolved<'a>, findings: &mut Findings<'a>) {
    let reprocess = &resolved.dead_letter.reprocess;
    // A row may return to `manual` where the service has a cron.
    if reprocess.value == Reprocess::Manual
        && let Some(cron) = &resolved.dead_letter.reprocess_cron
        && cron.origin.level <= reprocess.origin.level
    {
        let message = "this cron has no effect: `reprocess` is `manual`";
        let help = "write `reprocess: filtered` with `reprocess_categories`, or remove the cron";
        findings.report(resolved.place(cron.origin), message, help);
    }
}

fn strict_order_unwatched<'a>(resolved: &Resolved<'a>, findings: &mut Findings<'a>) {
    let is_watched = |metric| alerts_for(resolved, findings.book(), metric).next().is_some();
    if resolved.order.value == DeliveryOrder::SessionStrict
        && ![AlertMetric::DeadLetters, AlertMetric::DeadLetterAge].into_iter().any(is_watched)
    {
        findings.report(
            resolved.place(resolved.order.origin),
            "a dead letter blocks its whole session, and there is no alert on dead letters",
            "add an alert such as `dead_letters > 0` or `dead_letter_age > 1h`",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::is_conventional;
    use redrive_core::book::connectors::built_in;

    #[test]
    fn the_three_forms_of_names_are_known() {
        #[rustfmt::skip]
        let cases = [
            ("a service's",             "_mail.deadletter",        true),
            ("a channel's",             "_mail.deadletter.email",  true),
            ("a stream's",              "work:queue:dlq",          true),
            ("a stage's",               "rez-actions-dlq-prod",    true),
            ("no service",              "_.deadletter",            false),
            ("no underscore",           "mail.deadletter",         false),
            ("glued on",                "_mail.deadletters",       false),
            ("no channel after the dot", "_mail.deadletter.",      false),
            ("no queue",                ":dlq",                    false),
            ("no stage",                "work-dlq-",               false),
            ("something else",          "failed",                  false),
        ];
        for (name, queue, expected) in cases {
            assert_eq!(is_conventional(queue), expected, "{name}");
        }
    }

    #[test]
    fn dead_letters_are_judged() {
        let watched = "alerts:
  - { when: dead_letters > 9, severity: high, to: [x] }
  - { when: dead_letter_age > 2d, severity: high, to: [x] }
  - { when: dead_letter_inflow > 9/m, severity: high, to: [x] }
receivers: { x: { webhook: \"https://x.test/\" } }
";
        #[rustfmt::skip]
        let cases = [
            ("a plain service",                  "events: [a]", vec![]),
            ("an event in the name",             "dead_letter: { name: \"_{event}.deadletter\" }\n    events: [a]", vec![]),
            ("a queue and no stage",             "dead_letter: { name: \"{queue}-dlq-{stage}\", queue: q }\n    events: [a]", vec!["5:26 dead-letter-name-incomplete"]),
            ("a queue of one row",               "events: [{ type: a, dead_letter: { name: failed } }, b]", vec!["5:46 dead-letter-name"]),
            ("a queue of another service",       "dead_letter: { name: _t.deadletter }\n    events: [a]\n  t:\n    target: { log: stdout }\n    events: [a]", vec!["7:3 dead-letter-names-collide"]),
            ("a week is enough",                 "dead_letter: { retention: 7d }\n    events: [a]", vec![]),
            ("but not for what may not be lost", "dead_letter: { retention: 29d }\n    data_loss: not-acceptable\n    events: [a]", vec!["5:31 retention-too-short"]),
            ("gone before the alert",            "dead_letter: { retention: 2d }\n    events: [a]", vec!["5:31 retention-before-age-alert", "5:31 retention-too-short"]),
            ("another alert comes first",        "dead_letter: { retention: 7d }\n    alerts: [{ when: dead_letter_age > 8d, severity: high, to: [x] }]\n    events: [a]", vec![]),
            ("a category that cannot heal",      "dead_letter: { reprocess: filtered, reprocess_categories: [transient, invalid] }\n    events: [a]", vec!["5:31 automatic-reprocess-of-permanent"]),
            ("a row that goes back to people",   "dead_letter: { reprocess: filtered, reprocess_categories: [transient] }\n    events: [a, { type: b, dead_letter: { reprocess: manual } }]", vec![]),
            ("a row with idle categories",       "dead_letter: { reprocess: manual }\n    events: [{ type: b, dead_letter: { reprocess_categories: [transient] } }]", vec!["6:62 reprocess-categories-ignored"]),
            ("a cron without an effect",         "dead_letter: { reprocess_cron: \"0 3 * * *\" }\n    events: [a]", vec!["5:36 reprocess-cron-ignored"]),
            ("a row without the cron's service", "dead_letter: { reprocess: filtered, reprocess_categories: [transient], reprocess_cron: \"0 3 * * *\" }\n    events: [a, { type: b, dead_letter: { reprocess: manual } }]", vec![]),
            ("strict order that is watched",     "order: session-strict\n    events: [a]", vec![]),
        ];
        for (name, text, expected) in cases {
            let book =
                format!("version: 1\nservices:\n  s:\n    target: {{ log: stdout }}\n    {text}\n{watched}");
            assert_eq!(found(&book, super::LINTS), expected, "{name}");
        }
    }

    #[test]
    fn first_steps_are_not_nagged() {
        let book = |more: &str| {
            format!(
                "version: 1\nservices:\n  s: {{ target: {{ log: stdout }}, events: [a]{more} }}\n  t: {{ target: {{ log: stdout }}, events: [a] }}\n"
            )
        };
        let severities = |book: &str| {
            let problems = crate::lint::check(book.as_bytes(), built_in()).problems.into_iter();
            let of_code = problems.filter(|problem| problem.code == "dead-letters-unwatched");
            of_code
                .map(|problem| format!("{} {}", problem.span.position, problem.severity))
                .collect::<Vec<_>>()
        };
        assert_eq!(severities(&book("")), ["3:3 info"]);
        assert_eq!(severities(&book(", criticality: high")), ["3:3 warning"]);
        let allowed = ", allow: [{ lint: dead-letters-unwatched, because: a demo }]";
        assert_eq!(severities(&book(allowed)), ["3:3 info"]);
        let alert = |when: &str| {
            let receiver = "receivers: { ops: { webhook: \"https://pager.example.test/\" } }";
            format!("alerts: [{{ when: {when}, severity: high, to: [ops] }}]\n{receiver}\n")
        };
        let (letters, others) = (alert("dead_letters > 3 by service"), alert("error_rate > 5% over 5m"));
        assert_eq!(severities(&(book("") + &letters)), ["3:3 info"], "one figure is watched");
        assert_eq!(severities(&(book("") + &others)), ["3:3 warning"], "none is");
        let dear = severities(&(book(", criticality: high") + &letters));
        assert_eq!(dear, ["3:3 warning"], "much depends on it");
    }
}
