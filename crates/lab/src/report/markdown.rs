//! One rule as a Markdown page.
//!
//! The page always has the same headings, bullets and columns, so that pages can be compared; values that the book does
//! not state are marked as such.

use std::fmt::Write as _;
use std::time::Duration;

use super::{breaker_name, cell, days, idempotency, letter_name, limit, matcher, reaction, title_case, trip};
use redrive_core::alerts::Incident;
use redrive_core::book::RuleBook;
use redrive_core::book::expression::{AlertMetric, Condition, Quantity, Threshold, ThresholdOp};
use redrive_core::book::keywords::Keyword;
use redrive_core::book::model::{Alert, AlertSeverity, IdempotencyBy, ReactionName};
use redrive_core::book::resolve::{Resolved, RuleLevel};
use redrive_core::policy::answer::{AnswerKind, TargetAnswer};
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};
use redrive_core::policy::rule::{FailureMatch, Matcher, OverrideMeaning};
use redrive_core::text::{Rate, show_duration};

const OPEN: &str = "not declared";

#[must_use]
pub fn render(book: &RuleBook, resolved: &Resolved<'_>) -> String {
    [
        head(resolved),
        overrides(resolved),
        retry(resolved),
        dead_letter(book, resolved),
        duplicates(resolved),
        breaker(resolved),
        timeouts(book, resolved),
        alerting(book, resolved),
    ]
    .join("\n")
}

fn head(resolved: &Resolved<'_>) -> String {
    let service = resolved.service.title.as_deref().unwrap_or(resolved.service.name.as_str());
    let channel = resolved.channel.map(|channel| {
        let title = channel.title.as_deref().unwrap_or(channel.name.as_str());
        format!(" ({title})")
    });
    let critical = resolved.criticality.as_ref().map(|known| title_case(known.value.as_word()));
    let loss = resolved.data_loss.as_ref().map(|known| title_case(known.value.as_word()));
    format!(
        "## Resilience Rules: {}{} consuming {}\n\n\
         **Consumer Group:** {}\n**Criticality:** {}\n**Data Loss Tolerance:** {}\n",
        cell(service),
        channel.unwrap_or_default(),
        resolved.row.pattern.value,
        resolved.consumer_group.value,
        critical.as_deref().unwrap_or(OPEN),
        loss.as_deref().unwrap_or(OPEN),
    )
}

fn overrides(resolved: &Resolved<'_>) -> String {
    let mut lines = "### Error Classification Overrides\n\
                     | Error | Default Category | Override | Reason |\n\
                     |-------|-----------------|----------|--------|\n"
        .to_owned();
    for (row, _) in &resolved.classify {
        let meaning = match row.meaning {
            OverrideMeaning::Failure(category) => category.as_str(),
            OverrideMeaning::Delivered => "delivered",
        };
        let usual = usual_category(&row.when, resolved.rule.timeouts.category);
        let reason = row.because.as_deref().unwrap_or("–");
        let _ = writeln!(lines, "| {} | {usual} | {meaning} | {} |", cell(&matcher(&row.when)), cell(reason));
    }
    if resolved.classify.is_empty() {
        lines.push_str("| none | – | – | – |\n");
    }
    lines
}

/// The category without the override, if the status or the code alone decides it.
fn usual_category(when: &Matcher, timeout_category: Category) -> String {
    let of = |what: AnswerKind<'_>| {
        let answer = TargetAnswer { what, message: "", retry_after: None };
        match classify(&answer, &[], timeout_category) {
            Outcome::Failed(failure) => failure.category.as_str(),
            Outcome::Delivered { .. } => "delivered",
        }
    };
    let mut found: Vec<&str> = Vec::new();
    for range in &when.statuses {
        for status in range.first..=range.last {
            let word = of(AnswerKind::Http { status, headers: &(), body: "" });
            if !found.contains(&word) {
                found.push(word);
            }
        }
    }
    if let (true, Some(code)) = (found.is_empty(), &when.code) {
        found.push(of(AnswerKind::Reported { code: code.as_str() }));
    }
    if found.is_empty() { "any".to_owned() } else { found.join(", ") }
}

fn retry(resolved: &Resolved<'_>) -> String {
    let name = match &resolved.reaction_to(Category::Transient).value {
        ReactionName::Policy(name) => name.to_string(),
        ReactionName::DeadLetter => "none (dead-letter at once)".to_owned(),
        ReactionName::Pause => "none (the service pauses)".to_owned(),
    };
    let backoff = resolved.retry_policy().map(|policy| &policy.backoff).filter(|b| b.retries() > 0);
    let (initial, max, retries, window) = match backoff {
        Some(backoff) => (
            format!("{}ms", trimmed(backoff.initial().as_secs_f64() * 1_000.0)),
            format!("{}s", trimmed(backoff.max().as_secs_f64())),
            backoff.retries().to_string(),
            backoff.window().map_or_else(|| "none".to_owned(), show_duration),
        ),
        None => ("–".to_owned(), "–".to_owned(), "0".to_owned(), "–".to_owned()),
    };
    format!(
        "### Retry Policy\n- **Named policy:** {name}\n- **Initial delay:** {initial}\n\
         - **Max delay:** {max}\n- **Max retries:** {retries}\n- **Max window:** {window}\n{}",
        further_reactions(resolved)
    )
}

fn further_reactions(resolved: &Resolved<'_>) -> String {
    let transient = resolved.reaction_to(Category::Transient);
    let mut lines = String::new();
    for (kind, known) in &resolved.reactions {
        // Unknown and internal failures follow the named policy unless stated otherwise.
        let is_named = *kind == FailureMatch::Category(Category::Transient) || known == transient;
        if !is_named && known.origin.level != RuleLevel::BuiltIn {
            let _ = writeln!(lines, "- **On {}:** {}", kind, reaction(&known.value));
        }
    }
    lines
}

/// Rounded to three decimals.
fn trimmed(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

fn dead_letter(book: &RuleBook, resolved: &Resolved<'_>) -> String {
    let letter = &resolved.dead_letter;
    let mut strategy = letter.reprocess.value.as_word().to_owned();
    if !letter.categories.is_empty() {
        let categories: Vec<_> = letter.categories.iter().map(|category| category.as_str()).collect();
        let _ = write!(strategy, " ({})", categories.join(", "));
    }
    if let Some(cron) = &letter.reprocess_cron {
        let _ = write!(strategy, ", also at `{}` (UTC)", cron.value.as_str());
    }
    format!(
        "### Dead-Letter Queue\n- **DLQ topic:** {}\n- **Retention:** {}\n\
         - **Alert threshold:** {}\n- **Reprocessing strategy:** {strategy}\n",
        letter_name(resolved),
        days(letter.retention.value),
        letter_alert(book, resolved),
    )
}

/// The inflow that raises an alert: the rule's own limit, else those of the alerts on inflow.
fn letter_alert(book: &RuleBook, resolved: &Resolved<'_>) -> String {
    if let Some(known) = &resolved.dead_letter.alert {
        return entries_per_minute(known.value);
    }
    let all = resolved.alerts.iter().map(|(alert, _)| *alert).chain(&book.sections().alerts);
    let on_inflow = all.map(|alert| &alert.when).filter(|when| when.metric == AlertMetric::DeadLetterInflow);
    let limits: Vec<String> = on_inflow
        .filter_map(|when| match when.limit {
            Some(Threshold { op: ThresholdOp::Above, value: Quantity::Rate(rate) }) => {
                Some(entries_per_minute(rate) + &scope(when))
            }
            Some(Threshold { op, value: Quantity::Rate(rate) }) => {
                Some(format!("{} {}{}", operator(op), entries_per_minute(rate), scope(when)))
            }
            Some(Threshold {
                value: Quantity::Share(_) | Quantity::Count(_) | Quantity::Duration(_),
                ..
            })
            | None => None,
        })
        .collect();
    if limits.is_empty() { "none".to_owned() } else { limits.join(", ") }
}

fn entries_per_minute(rate: Rate) -> String {
    format!("{} entries/minute", trimmed(rate.as_per_second() * 60.0))
}

fn duplicates(resolved: &Resolved<'_>) -> String {
    let found = idempotency(resolved);
    let own = &resolved.idempotency;
    let (ttl, key) = match own.by.value {
        IdempotencyBy::EventId | IdempotencyBy::NotificationId => (days(own.ttl.value), own.key_shown()),
        IdempotencyBy::Nothing => ("–".to_owned(), "–"),
    };
    format!(
        "### Idempotency\n- **Pattern:** {}\n- **Dedup store:** {}\n- **Dedup TTL:** {ttl}\n\
         - **Dedup key:** {}\n",
        found.pattern,
        found.store.as_deref().unwrap_or("–"),
        cell(key),
    )
}

fn breaker(resolved: &Resolved<'_>) -> String {
    let settings = resolved.rule.breaker.as_ref().map(|breaker| &breaker.settings);
    let (threshold, open) = match settings {
        Some(settings) => (trip(settings.trip()), show_duration(settings.open())),
        None => ("–".to_owned(), "–".to_owned()),
    };
    format!(
        "### Circuit Breaker\n- **Named breaker:** {}\n- **Trip threshold:** {threshold}\n\
         - **Open timeout:** {open}\n",
        breaker_name(resolved),
    )
}

fn timeouts(book: &RuleBook, resolved: &Resolved<'_>) -> String {
    let own = std::iter::once(&resolved.dependency.value);
    let further = resolved.facts.uses.iter().map(|at| &at.value);
    let mut listed = Vec::new();
    for name in own.chain(further) {
        let stated = book.sections().dependencies.get(name).and_then(|entry| entry.layer.timeout.as_ref());
        if let Some(whole) = stated.and_then(|at| at.value.whole) {
            listed.push(format!("{name} {}", limit(whole)));
        }
    }
    listed.dedup();
    let listed = if listed.is_empty() { OPEN.to_owned() } else { listed.join(", ") };
    format!(
        "### Timeouts\n- **Processing timeout:** {}\n- **Dependency timeouts:** {listed}\n",
        limit(resolved.rule.timeouts.whole)
    )
}

struct AlertRow {
    metric: AlertMetric,
    threshold: String,
    severity: AlertSeverity,
    action: Option<String>,
}

/// Every rule should have an alert on these.
const EXPECTED: [AlertMetric; 4] = [
    AlertMetric::RetryRate,
    AlertMetric::DeadLetterInflow,
    AlertMetric::ConsumerLag,
    AlertMetric::BreakerOpen,
];

fn alerting(book: &RuleBook, resolved: &Resolved<'_>) -> String {
    let mut lines = "### Alerting\n\
                     | Metric | Threshold | Severity | Action |\n\
                     |--------|-----------|----------|--------|\n"
        .to_owned();
    let rows = alert_rows(book, resolved);
    let mut line = |row: &AlertRow| {
        let action = row.action.as_deref().unwrap_or("–");
        let _ = writeln!(
            lines,
            "| {} | {} | {} | {} |",
            metric_title(row.metric),
            row.threshold,
            title_case(row.severity.as_str()),
            cell(action)
        );
    };
    let mut missing = Vec::new();
    for metric in EXPECTED {
        let of_metric: Vec<_> = rows.iter().filter(|row| row.metric == metric).collect();
        if of_metric.is_empty() {
            missing.push(metric);
        }
        of_metric.into_iter().for_each(&mut line);
    }
    rows.iter().filter(|row| !EXPECTED.contains(&row.metric)).for_each(&mut line);
    for metric in missing {
        let _ = writeln!(lines, "| {} | {OPEN} | – | – |", metric_title(metric));
    }
    lines
}

fn alert_rows(book: &RuleBook, resolved: &Resolved<'_>) -> Vec<AlertRow> {
    let row = |alert: &Alert| AlertRow {
        metric: alert.when.metric,
        threshold: threshold(&alert.when),
        severity: alert.severity,
        action: alert.action.clone(),
    };
    let mut rows: Vec<AlertRow> = resolved.alerts.iter().map(|(alert, _)| row(alert)).collect();
    rows.extend(book.sections().alerts.iter().map(row));
    if let Some(known) = &resolved.dead_letter.alert {
        // This limit of the rule is an alert by itself.
        let threshold = format!("> {}/min", trimmed(known.value.as_per_second() * 60.0));
        let severity = AlertSeverity::Critical;
        rows.insert(0, AlertRow { metric: AlertMetric::DeadLetterInflow, threshold, severity, action: None });
    }
    rows
}

fn threshold(when: &Condition) -> String {
    match (when.limit, when.lasting) {
        (Some(Threshold { op, value }), _) => {
            format!("{} {}{}", operator(op), quantity(value, when.metric), scope(when))
        }
        (None, Some(lasting)) => format!("> {}{}", minutes(lasting), group(when)),
        (None, None) => format!("at once{}", group(when)),
    }
}

fn scope(when: &Condition) -> String {
    let over = when.over.map(|over| format!(" over {}", show_duration(over)));
    let lasting = when.lasting.map(|lasting| format!(" for {}", show_duration(lasting)));
    over.unwrap_or_default() + &lasting.unwrap_or_default() + &group(when)
}

fn group(when: &Condition) -> String {
    when.by.map(|by| format!(" by {}", by.as_str().replace('_', " "))).unwrap_or_default()
}

const fn operator(op: ThresholdOp) -> &'static str {
    match op {
        ThresholdOp::Above => ">",
        ThresholdOp::AtLeast => "≥",
        ThresholdOp::Below => "<",
        ThresholdOp::AtMost => "≤",
    }
}

fn quantity(value: Quantity, metric: AlertMetric) -> String {
    match value {
        Quantity::Share(share) => share.to_string(),
        Quantity::Count(count) if metric == AlertMetric::ConsumerLag => format!("{count} messages"),
        Quantity::Count(count) => count.to_string(),
        Quantity::Rate(rate) if metric == AlertMetric::DeadLetterInflow => {
            format!("{}/min", trimmed(rate.as_per_second() * 60.0))
        }
        Quantity::Rate(rate) => rate.to_string(),
        Quantity::Duration(span) => show_duration(span),
    }
}

fn minutes(span: Duration) -> String {
    match (span.as_secs(), span.subsec_nanos()) {
        (60, 0) => "1 minute".to_owned(),
        (secs, 0) if secs > 0 && secs.is_multiple_of(60) => format!("{} minutes", secs / 60),
        _ => show_duration(span),
    }
}

const fn metric_title(metric: AlertMetric) -> &'static str {
    match metric {
        AlertMetric::ErrorRate => "Error rate",
        AlertMetric::TransientRate => "Transient error rate",
        AlertMetric::UnavailableRate => "503 rate",
        AlertMetric::RetryRate => "Retry rate",
        AlertMetric::ExhaustedRate => "Retries exhausted",
        AlertMetric::DeadLetters => "DLQ depth",
        AlertMetric::DeadLetterInflow => "DLQ inflow",
        AlertMetric::DeadLetterAge => "DLQ age",
        AlertMetric::BreakerOpen => "Circuit breaker open",
        AlertMetric::BreakerOpened => "Circuit breaker opened",
        AlertMetric::AuthFailures => "Authentication failures",
        AlertMetric::ConfigFailures => "Configuration failures",
        AlertMetric::ConsumerLag => "Consumer lag",
        AlertMetric::OldestWaiting => "Oldest waiting",
        AlertMetric::LatencyP99 => "Latency p99",
        AlertMetric::Incident(Incident::CredentialsRefused) => "Credentials refused",
        AlertMetric::Incident(Incident::Misconfigured) => "Configuration failure",
        AlertMetric::Incident(Incident::InternalFailure) => "Internal failure",
        AlertMetric::Incident(Incident::PolicyExhausted) => "Retries of a policy exhausted",
        AlertMetric::Incident(Incident::EventDamaged) => "Damaged event",
        AlertMetric::Incident(Incident::ServiceRemoved) => "Service removed while deliveries wait",
        AlertMetric::Incident(Incident::SecretGone) => "Secret without a value",
        AlertMetric::Incident(Incident::ArchiveStuck) => "Archive write failing",
        AlertMetric::Incident(Incident::ArchiveIncomplete) => "Event missing from the archive",
        AlertMetric::Incident(Incident::IssuerGone) => "Issuer keys unavailable",
        AlertMetric::Incident(Incident::CertificateRefused) => "Certificate refused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::book::connectors::built_in;

    fn page(service: &str, book: &str) -> String {
        let text = format!(
            "version: 1\n{book}\nservices:\n  svc: {{ target: {{ log: stdout }}, events: [a.b]{service} }}\n"
        );
        let reading = redrive_core::book::read(&text, built_in());
        let book = reading.book.unwrap_or_else(|| panic!("{:?}\n{text}", reading.problems));
        render(&book, &book.explain("svc", None, "a.b").expect("it is wanted"))
    }

    #[test]
    fn alerts_are_shown_as_the_book_states_them() {
        let of_book = |when: &str| format!("alerts: [{{ when: \"{when}\", severity: high{{}} }}]");
        #[rustfmt::skip]
        let cases = [
            ("no action is made up", "breaker_open for 10m", "",
             "| Circuit breaker open | > 10 minutes | High | – |"),
            ("a stated one is kept", "breaker_open for 10m", ", action: \"Call | wait\"",
             "| Circuit breaker open | > 10 minutes | High | Call \\| wait |"),
            ("a state by group",     "breaker_open for 10m by dependency", "",
             "| Circuit breaker open | > 10 minutes by dependency | High | – |"),
            ("a state at once",      "breaker_opened by dependency", "",
             "| Circuit breaker opened | at once by dependency | High | – |"),
            ("all parts",            "retry_rate > 50% over 5m for 2m by event_type", "",
             "| Retry rate | > 50% over 5m for 2m by event type | High | – |"),
            ("no alert on inflow",   "consumer_lag > 10 by service", "",
             "- **Alert threshold:** none"),
            ("an alert on inflow",   "dead_letter_inflow > 10/m by service", "",
             "- **Alert threshold:** 10 entries/minute by service"),
            ("from there on",        "dead_letter_inflow >= 1/s", "",
             "- **Alert threshold:** ≥ 60 entries/minute"),
        ];
        for (name, when, action, expected) in cases {
            let page = page("", &of_book(when).replace("{}", action));
            assert!(page.lines().any(|line| line == expected), "{name}: {expected}\n{page}");
        }
        let own =
            page(", dead_letter: { alert: 5/m }", &of_book("dead_letter_inflow > 10/m").replace("{}", ""));
        assert!(
            own.contains("- **Alert threshold:** 5 entries/minute\n"),
            "the rule's own goes first: {own}"
        );
    }

    #[test]
    fn reactions_that_the_book_states_are_listed() {
        #[rustfmt::skip]
        let cases: [(&str, &str, &[&str]); 5] = [
            ("nothing stated",         "",                                                    &[]),
            ("the named policy alone", ", retry: patient",                                    &[]),
            ("a category",             ", on_failure: { rate-limited: upstream }",            &["- **On rate-limited:** upstream"]),
            ("acts",                   ", on_failure: { fatal: pause, unknown: dead-letter }", &["- **On fatal:** pause", "- **On unknown:** dead-letter"]),
            ("a status",               ", retry: patient, on_failure: { 503: aggressive }",   &["- **On 503:** aggressive"]),
        ];
        for (name, service, expected) in cases {
            let page = page(service, "");
            let listed: Vec<&str> = page.lines().filter(|line| line.starts_with("- **On ")).collect();
            assert_eq!(listed, expected, "{name}");
        }
    }
}
