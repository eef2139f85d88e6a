//! Lints about dead letters: their queues, how long they are kept, who hears of them and what brings
//! them back.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Example::{Book, Service, With};
use super::{Findings, Lint, ON_CALL, Run};
use redrive_core::book::expression::{Metric, Op, Quantity};
use redrive_core::book::model::{
    Alert, ChannelEntry, DataLoss, EventRow, Order, Reprocess, Sections, ServiceEntry,
};
use redrive_core::book::problem::{Severity, Span};
use redrive_core::book::resolve::Resolved;
use redrive_core::policy::category::Category;
use redrive_core::text::show_duration;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "dead-letter-name",
        severity: Severity::Warning,
        summary: "a dead-letter queue whose name follows none of the conventions",
        explanation: "Tools, dashboards and people find dead-letter queues by their names. Three forms are \
                      in use: `_{service}.deadletter[.{channel}]`, `{queue}:dlq` for Redis streams and \
                      `{queue}-dlq-{stage}` for SQS. A queue with a name of its own is overlooked just \
                      when somebody searches for lost events. Use one of the three.",
        bad: Service(r#"dead_letter: { name: "{service}-failed" }"#),
        fix: &[("{service}-failed", "_{service}.deadletter[.{channel}]")],
        run: Run::Rule(dead_letter_name),
    },
    Lint {
        code: "dead-letter-name-incomplete",
        severity: Severity::Error,
        summary: "the name of a dead-letter queue needs a part that is not stated",
        explanation: "The template of the queue's name has a placeholder for which the book gives no value \
                      here, so a letter of this row would have no queue to go to. State `queue` or \
                      `stage` beside the name, or put what may be missing into square brackets, which \
                      drop out: `_{service}.deadletter[.{channel}]`.",
        bad: Service(r#"dead_letter: { name: "{queue}:dlq" }"#),
        fix: &[(r#":dlq""#, r#":dlq", queue: work"#)],
        run: Run::Rule(dead_letter_name_incomplete),
    },
    Lint {
        code: "dead-letter-names-collide",
        severity: Severity::Warning,
        summary: "the dead letters of several services or channels go to one queue",
        explanation: "Letters of different services, or of different channels of one, end in the same \
                      queue. Its depth and age then tell of nobody in particular, a replay of the queue \
                      sends to all of them, and one that fails a lot hides the others. Use `{service}` \
                      and `[.{channel}]` in the name, or name the queues one by one.",
        bad: Book(&[
            "services:",
            "  notify:",
            r#"    target: { http: "http://127.0.0.1:9000" }"#,
            r#"    dead_letter: { name: "_{service}.deadletter" }"#,
            "    events: [todo.task.created]",
            r#"    channels: { email: { target: { http: "http://127.0.0.1:9001" }, events: [todo.task.created] } }"#,
        ]),
        fix: &[(r#".deadletter""#, r#".deadletter[.{channel}]""#)],
        run: Run::Book(dead_letter_names_collide),
    },
    Lint {
        code: "retention-too-short",
        severity: Severity::Warning,
        summary: "dead letters are thrown away before anybody can have looked at them",
        explanation: "A dead letter is the last copy of its event. Finding the cause, mending it and \
                      replaying takes longer than people think: a weekend, a holiday, a vendor's \
                      answer. The default of 30 days leaves that time. Less than 7 days loses events \
                      for good, and where no event may be lost (`data_loss: not-acceptable`), keep the \
                      30 days or more.",
        bad: Service("dead_letter: { retention: 2d }"),
        fix: &[("retention: 2d", "retention: 30d")],
        run: Run::Rule(retention_too_short),
    },
    Lint {
        code: "dead-letters-unwatched",
        severity: Severity::Warning,
        summary: "no alert on the depth, the age or the inflow of dead letters",
        explanation: "Dead letters wait for people, and people come only when they are told. Three figures \
                      tell different stories: many letters (`dead_letters > 1000`) mean that the queue \
                      grows faster than it is emptied, an old one (`dead_letter_age > 48h`) that nobody \
                      looks, and a fast inflow (`dead_letter_inflow > 10/m`, or `dead_letter: { alert: \
                      10/m }`) that something has just broken. Watch all three. In a book without any \
                      alerts or receivers this is no more than a hint, and likewise in one that watches \
                      them by one figure and calls nothing critical.",
        bad: With(
            &["alerts:", "  - { when: error_rate > 5% over 5m, severity: high, to: [on-call] }", ON_CALL],
            "",
        ),
        fix: &[(
            "receivers:",
            "  - { when: dead_letters > 1000, severity: high, to: [on-call] }\n  - { when: dead_letter_age > 48h, severity: medium, to: [on-call] }\n  - { when: dead_letter_inflow > 10/m, severity: high, to: [on-call] }\nreceivers:",
        )],
        run: Run::Rule(dead_letters_unwatched),
    },
    Lint {
        code: "retention-before-age-alert",
        severity: Severity::Error,
        summary: "a dead letter is thrown away before the alert on its age",
        explanation: "The alert on old dead letters waits longer than the letters are kept: each is gone \
                      before anybody is told of it, and the alert can never be raised. Keep letters \
                      longer than the age at which people are told, and long enough after it for them \
                      to act.",
        bad: With(
            &[ON_CALL],
            "dead_letter: { retention: 7d }, alerts: [{ when: dead_letter_age > 10d, severity: high, to: [on-call] }]",
        ),
        fix: &[("dead_letter_age > 10d", "dead_letter_age > 48h")],
        run: Run::Rule(retention_before_age_alert),
    },
    Lint {
        code: "automatic-reprocess-of-permanent",
        severity: Severity::Warning,
        summary: "failures that no retry can heal are brought back by themselves",
        explanation: "A permanent failure says that the same call will fail again, an invalid message will \
                      not get better by waiting. Bringing such letters back by themselves burns calls on \
                      the dependency that has just recovered and ends with all of them in the poison \
                      tier, where bulk replays pass them by. Use `reprocess: filtered` with the \
                      categories that heal: transient, rate-limited, unknown.",
        bad: Service("dead_letter: { reprocess: automatic }"),
        fix: &[(
            "reprocess: automatic",
            "reprocess: filtered, reprocess_categories: [transient, rate-limited]",
        )],
        run: Run::Rule(automatic_reprocess_of_permanent),
    },
    Lint {
        code: "filtered-without-categories",
        severity: Severity::Error,
        summary: "`reprocess: filtered` does not say which categories",
        explanation: "Filtered reprocessing brings back the letters of the named categories and no others. \
                      None is named here, so nothing will ever be brought back, although the book reads \
                      as if it were. Name them under `reprocess_categories`, or write `manual` if people \
                      are to decide.",
        bad: Service("dead_letter: { reprocess: filtered }"),
        fix: &[("reprocess: filtered", "reprocess: filtered, reprocess_categories: [transient]")],
        run: Run::Rule(filtered_without_categories),
    },
    Lint {
        code: "reprocess-categories-ignored",
        severity: Severity::Warning,
        summary: "`reprocess_categories` without `reprocess: filtered`",
        explanation: "The categories say which letters `reprocess: filtered` brings back. Here letters are \
                      brought back by people, or all of them by themselves, and the list does nothing: \
                      its author probably believes that it does. Write `reprocess: filtered`, or leave \
                      the list out.",
        bad: Service("dead_letter: { reprocess_categories: [transient] }"),
        fix: &[("reprocess_categories", "reprocess: filtered, reprocess_categories")],
        run: Run::Rule(reprocess_categories_ignored),
    },
    Lint {
        code: "reprocess-cron-ignored",
        severity: Severity::Warning,
        summary: "`reprocess_cron` where people bring letters back",
        explanation: "The cron says when letters come back by themselves, and with `reprocess: manual` (the \
                      default) none do: it fires for nobody, and its author probably believes that letters \
                      are tried again at night. Write `reprocess: filtered` with the categories that a \
                      second try can help, or leave the cron out.",
        bad: Service(r#"dead_letter: { reprocess_cron: "0 3 * * *" }"#),
        fix: &[("reprocess_cron", "reprocess: filtered, reprocess_categories: [transient], reprocess_cron")],
        run: Run::Rule(reprocess_cron_ignored),
    },
    Lint {
        code: "strict-order-unwatched",
        severity: Severity::Warning,
        summary: "a dead letter holds its session, and no alert tells of it",
        explanation: "With `order: session-strict` everything behind a dead letter of the same session \
                      waits until somebody has dealt with it. Without an alert on dead letters, or on \
                      their age, nobody does, and the session stands still for as long as letters are \
                      kept. Add one, or use `order: session`, which goes on past a dead letter.",
        bad: With(&[ON_CALL], "order: session-strict"),
        fix: &[(
            "session-strict",
            "session-strict, alerts: [{ when: dead_letters > 0, severity: high, to: [on-call] }]",
        )],
        run: Run::Rule(strict_order_unwatched),
    },
];

fn dead_letter_name(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let Ok(name) = &resolved.dead_letter.name else { return };
    if !is_conventional(name) {
        findings.report(
            resolved.place(resolved.dead_letter.template.origin),
            format!("`{name}` looks like no dead-letter queue"),
            "use \"_{service}.deadletter[.{channel}]\", \"{queue}:dlq\" or \"{queue}-dlq-{stage}\"",
        );
    }
}

/// Whether the name has one of the three forms in use.
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
            format!("the letters of `{}` have no queue: {missing}", resolved.row.pattern.value),
            "state the missing part beside the name, or put it into square brackets",
        );
    }
}

/// A service or one of its channels.
#[derive(Clone, Copy)]
struct Owner<'a> {
    service: &'a ServiceEntry,
    channel: Option<&'a ChannelEntry>,
}

impl<'a> Owner<'a> {
    fn rows(self) -> &'a [std::sync::Arc<EventRow>] {
        self.channel.map_or(&self.service.rows, |channel| &channel.rows)
    }

    fn span(self) -> Span {
        self.channel.map_or(self.service.span, |channel| channel.span)
    }

    fn shown(self) -> String {
        match self.channel {
            Some(channel) => format!("`{}.{}`", self.service.name, channel.name),
            None => format!("`{}`", self.service.name),
        }
    }
}

fn dead_letter_names_collide<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    let mut first_owners: BTreeMap<String, Owner<'a>> = BTreeMap::new();
    let owners = book.services.iter().flat_map(|service| {
        let own = std::iter::once(Owner { service, channel: None });
        own.chain(service.channels.iter().map(move |channel| Owner { service, channel: Some(channel) }))
    });
    for owner in owners {
        for row in rows_with_names(owner.rows()) {
            let resolved = book.resolve(owner.service, owner.channel, row);
            let Ok(name) = &resolved.dead_letter.name else { continue };
            let first = *first_owners.entry(name.clone()).or_insert(owner);
            if first.span() == owner.span() {
                continue;
            }
            let place = resolved.dead_letter.template.origin.span.unwrap_or(owner.span());
            let message =
                format!("the letters of {} and {} all go to `{name}`", first.shown(), owner.shown());
            let layers = resolved.levels(book).into_iter().map(|(_, layer)| layer);
            findings.within_all(layers, |findings| {
                findings.report(place, message, "use `{service}` and `[.{channel}]` in the name");
            });
        }
    }
}

/// Those rows whose queue may have a name of its own, and one for all others.
fn rows_with_names(rows: &[std::sync::Arc<EventRow>]) -> impl Iterator<Item = &EventRow> {
    let is_plain = |row: &&EventRow| {
        let letter = &row.layer.dead_letter;
        row.depends_on.is_none() && letter.name.is_none() && letter.queue.is_none() && letter.stage.is_none()
    };
    let rows = || rows.iter().map(|row| &**row);
    rows().find(is_plain).into_iter().chain(rows().filter(move |row| !is_plain(row)))
}

/// Below this, letters are gone before people have dealt with them.
const RETENTION_MIN: Duration = Duration::from_hours(7 * 24);
/// The same where no event may be lost: the default.
const RETENTION_MIN_PRECIOUS: Duration = Duration::from_hours(30 * 24);

fn retention_too_short(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let retention = &resolved.dead_letter.retention;
    let precious = resolved.data_loss.as_ref().filter(|known| known.value == DataLoss::NotAcceptable);
    let (least, why) = match precious {
        Some(_) => (RETENTION_MIN_PRECIOUS, "though no event may be lost"),
        None => (RETENTION_MIN, "which is soon over"),
    };
    if retention.value < least {
        let (kept, least) = (show_duration(retention.value), show_duration(least));
        findings.report(
            resolved.place(retention.origin),
            format!("dead letters are kept for {kept}, {why}"),
            format!("keep them for {least} at least; the default is 30d"),
        );
    }
}

/// Alerts that look at the dead letters of a row.
fn alerts_for<'r, 'a>(
    resolved: &'r Resolved<'a>,
    book: &'a Sections,
    metric: Metric,
) -> impl Iterator<Item = &'a Alert> + 'r {
    let own = resolved.alerts.iter().map(|(alert, _)| *alert);
    own.chain(&book.alerts).filter(move |alert| alert.when.metric == metric)
}

/// By which dead letters are watched: depth, age and inflow.
const FIGURES_OF_LETTERS: usize = 3;

fn dead_letters_unwatched<'a>(resolved: &Resolved<'a>, findings: &mut Findings<'a>) {
    let book = findings.book();
    let watched = |metric| alerts_for(resolved, book, metric).next().is_some();
    // Who is told of the very first letter needs no word on how old or how many they are.
    if alerts_for(resolved, book, Metric::DeadLetters).any(is_told_of_the_first) {
        return;
    }
    let mut missing = Vec::new();
    if !watched(Metric::DeadLetters) {
        missing.push("depth (`dead_letters > 1000`)");
    }
    if !watched(Metric::DeadLetterAge) {
        missing.push("age (`dead_letter_age > 48h`)");
    }
    if resolved.dead_letter.alert.is_none() && !watched(Metric::DeadLetterInflow) {
        missing.push("inflow (`dead_letter_inflow > 10/m`)");
    }
    let [first, rest @ ..] = missing.as_slice() else { return };
    // Who has told nobody of anything yet, and calls nothing critical, is only taking first steps.
    let started = !book.receivers.is_empty()
        || !book.alerts.is_empty()
        || !resolved.alerts.is_empty()
        || resolved.criticality.is_some()
        || resolved.data_loss.is_some();
    if !started {
        let place = book.services.first().map_or(resolved.service.span, |service| service.span);
        let help = "add `receivers` and `alerts` before anything depends on it";
        findings.report_as(Severity::Info, place, "nobody is told of dead letters in this book", help);
        return;
    }
    // Who watches them by one figure has seen to it, and hears of the others as advice unless much depends on it.
    let is_watched = missing.len() < FIGURES_OF_LETTERS;
    let is_dear = resolved.criticality.is_some() || resolved.data_loss.is_some();
    let severity = if is_watched && !is_dear { Severity::Info } else { Severity::Warning };
    let figures = rest.iter().fold((*first).to_owned(), |all, figure| format!("{all}, {figure}"));
    // What the whole book lacks is said once, not for each service.
    if resolved.alerts.is_empty() && resolved.dead_letter.alert.is_none() {
        let place = book.services.first().map_or(resolved.service.span, |service| service.span);
        let message = format!("no alert of this book watches dead letters by {figures}");
        findings.report_as(severity, place, message, "add alerts for the whole book, or for each service");
        return;
    }
    let (place, owner) = match resolved.channel {
        Some(channel) => (channel.span, format!("{}.{}", resolved.service.name, channel.name)),
        None => (resolved.service.span, resolved.service.name.to_string()),
    };
    let message = format!("no alert watches the dead letters of `{owner}` by {figures}");
    findings.report_as(severity, place, message, "add alerts, here or for the whole book");
}

fn is_told_of_the_first(alert: &Alert) -> bool {
    alert.when.lasting.is_none()
        && alert.when.limit.is_some_and(|limit| match (limit.op, limit.value) {
            (Op::Above, Quantity::Count(count)) => count == 0,
            (Op::AtLeast, Quantity::Count(count)) => count <= 1,
            (Op::Above | Op::AtLeast | Op::Below | Op::AtMost, _) => false,
        })
}

fn retention_before_age_alert<'a>(resolved: &Resolved<'a>, findings: &mut Findings<'a>) {
    let alerts = alerts_for(resolved, findings.book(), Metric::DeadLetterAge);
    let Some((age, alert)) =
        alerts.filter_map(|alert| Some((age_told(alert)?, alert))).min_by_key(|(age, _)| *age)
    else {
        return;
    };
    let retention = &resolved.dead_letter.retention;
    if age >= retention.value {
        let [kept, age] = [retention.value, age].map(show_duration);
        findings.report(
            retention.origin.span.unwrap_or(alert.span),
            format!("dead letters are gone after {kept}, before the alert at {age} tells of them"),
            "keep them longer, or tell people sooner",
        );
    }
}

/// The age at which the alert is raised.
fn age_told(alert: &Alert) -> Option<Duration> {
    let limit = alert.when.limit?;
    match (limit.op, limit.value) {
        (Op::Above | Op::AtLeast, Quantity::Duration(age)) => {
            Some(age.saturating_add(alert.when.lasting.unwrap_or_default()))
        }
        (Op::Below | Op::AtMost, _) | (_, Quantity::Share(_) | Quantity::Count(_) | Quantity::Rate(_)) => {
            None
        }
    }
}

fn automatic_reprocess_of_permanent(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let letter = &resolved.dead_letter;
    let hopeless = |category: &&Category| match category {
        Category::Permanent | Category::Invalid => true,
        Category::Transient
        | Category::RateLimited
        | Category::Fatal
        | Category::Unknown
        | Category::Internal => false,
    };
    let what = match letter.reprocess.value {
        Reprocess::Manual => return,
        Reprocess::Automatic => "all dead letters, the permanent and invalid ones too".to_owned(),
        Reprocess::Filtered => match letter.categories.iter().find(hopeless) {
            Some(category) => format!("dead letters of category `{category}`"),
            None => return,
        },
    };
    findings.report(
        resolved.place(letter.reprocess.origin),
        format!("this brings back {what}, which will fail again"),
        "write `reprocess: filtered` with `reprocess_categories: [transient, rate-limited, unknown]`",
    );
}

fn filtered_without_categories(resolved: &Resolved<'_>, findings: &mut Findings<'_>) {
    let letter = &resolved.dead_letter;
    if letter.reprocess.value == Reprocess::Filtered && letter.categories.is_empty() {
        findings.report(
            resolved.place(letter.reprocess.origin),
            "`filtered` brings back nothing: no categories are named",
            "add `reprocess_categories`, such as [transient, rate-limited]",
        );
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
    // A row may well go back to `manual` where the defaults filter.
    if let Some((level, span)) = stated
        && level <= reprocess.origin.level
    {
        let message = "these categories do nothing: letters are not brought back by category here";
        findings.report(span, message, "write `reprocess: filtered`, or leave the categories out");
    }
}

fn reprocess_cron_ignored<'a>(resolved: &Resolved<'a>, findings: &mut Findings<'a>) {
    let reprocess = &resolved.dead_letter.reprocess;
    // A row may well go back to `manual` where the service has a cron.
    if reprocess.value == Reprocess::Manual
        && let Some(cron) = &resolved.dead_letter.reprocess_cron
        && cron.origin.level <= reprocess.origin.level
    {
        let message = "this cron fires for nobody: letters are not brought back by themselves here";
        let help = "write `reprocess: filtered` with `reprocess_categories`, or leave the cron out";
        findings.report(resolved.place(cron.origin), message, help);
    }
}

fn strict_order_unwatched<'a>(resolved: &Resolved<'a>, findings: &mut Findings<'a>) {
    if resolved.order.value != Order::SessionStrict {
        return;
    }
    let watched = [Metric::DeadLetters, Metric::DeadLetterAge]
        .into_iter()
        .any(|metric| alerts_for(resolved, findings.book(), metric).next().is_some());
    if !watched {
        findings.report(
            resolved.place(resolved.order.origin),
            "a dead letter holds its whole session here, and no alert tells of it",
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
            ("a cron for nobody",                "dead_letter: { reprocess_cron: \"0 3 * * *\" }\n    events: [a]", vec!["5:36 reprocess-cron-ignored"]),
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
        let told = |when: &str| {
            let receiver = "receivers: { ops: { webhook: \"https://pager.example.test/\" } }";
            format!("alerts: [{{ when: {when}, severity: high, to: [ops] }}]\n{receiver}\n")
        };
        let (letters, others) = (told("dead_letters > 3 by service"), told("error_rate > 5% over 5m"));
        assert_eq!(severities(&(book("") + &letters)), ["3:3 info"], "one figure is watched");
        assert_eq!(severities(&(book("") + &others)), ["3:3 warning"], "none is");
        let dear = severities(&(book(", criticality: high") + &letters));
        assert_eq!(dear, ["3:3 warning"], "much depends on it");
    }
}
