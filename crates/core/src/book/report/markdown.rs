//! One rule as a Markdown page: who consumes what, and every answer to what may go wrong.
//!
//! The page always has the same headings, bullets and columns, so that pages can be compared; what the
//! book leaves open says so.

use std::fmt::Write as _;
use std::time::Duration;

use super::{
    breaker_name, cell, criticality, data_loss, days, idempotency, letter_name, limit, matcher, reprocess,
    severity, title_case, trip,
};
use crate::answer::{Answer, What};
use crate::book::RuleBook;
use crate::book::expression::{Condition, Limit, Metric, Op, Quantity};
use crate::book::model::{Alert, AlertSeverity, IdempotencyBy, ReactionName};
use crate::book::resolve::Resolved;
use crate::category::Category;
use crate::classify::{Outcome, classify};
use crate::rule::{Matcher, Meaning};
use crate::text::{Rate, show_duration};

const OPEN: &str = "not declared";

/// The page of one rule.
#[must_use]
pub fn render(book: &RuleBook, resolved: &Resolved<'_>) -> String {
    [
        head(resolved),
        overrides(resolved),
        retry(resolved),
        dead_letter(resolved),
        harmless(resolved),
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
    let critical = resolved.criticality.as_ref().map(|known| title_case(criticality(known.value)));
    let loss = resolved.data_loss.as_ref().map(|known| title_case(data_loss(known.value)));
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
            Meaning::Failure(category) => category.as_str(),
            Meaning::Delivered => "delivered",
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

/// What such an answer would be without the override, if its status or its code alone can tell.
fn usual_category(when: &Matcher, timeout_category: Category) -> String {
    let of = |what: What<'_>| {
        let answer = Answer { what, message: "", retry_after: None };
        match classify(&answer, &[], timeout_category) {
            Outcome::Failed(failure) => failure.category.as_str(),
            Outcome::Delivered { .. } => "delivered",
        }
    };
    let mut found: Vec<&str> = Vec::new();
    for range in &when.statuses {
        for status in range.first..=range.last {
            let word = of(What::Http { status, headers: &(), body: "" });
            if !found.contains(&word) {
                found.push(word);
            }
        }
    }
    if let (true, Some(code)) = (found.is_empty(), &when.code) {
        found.push(of(What::Reported { code: code.as_str() }));
    }
    if found.is_empty() { "any".to_owned() } else { found.join(", ") }
}

fn retry(resolved: &Resolved<'_>) -> String {
    let reaction = &resolved.reaction_to(Category::Transient).value;
    let name = match reaction {
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
         - **Max delay:** {max}\n- **Max retries:** {retries}\n- **Max window:** {window}\n"
    )
}

/// A number without what lies below a thousandth of it.
fn trimmed(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

fn dead_letter(resolved: &Resolved<'_>) -> String {
    let letter = &resolved.dead_letter;
    let alert = letter.alert.as_ref().map(|known| per_minute(known.value));
    let mut strategy = reprocess(letter.reprocess.value).to_owned();
    if !letter.categories.is_empty() {
        let categories: Vec<_> = letter.categories.iter().map(|category| category.as_str()).collect();
        let _ = write!(strategy, " ({})", categories.join(", "));
    }
    format!(
        "### Dead-Letter Queue\n- **DLQ topic:** {}\n- **Retention:** {}\n\
         - **Alert threshold:** {}\n- **Reprocessing strategy:** {strategy}\n",
        letter_name(resolved),
        days(letter.retention.value),
        alert.as_deref().unwrap_or("none"),
    )
}

fn per_minute(rate: Rate) -> String {
    format!("{} entries/minute", trimmed(rate.as_per_second() * 60.0))
}

fn harmless(resolved: &Resolved<'_>) -> String {
    let found = idempotency(resolved);
    let own = &resolved.idempotency;
    let (ttl, key) = match own.by.value {
        IdempotencyBy::EventId | IdempotencyBy::NotificationId => {
            (days(own.ttl.value), own.key.value.as_str())
        }
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

/// A row of the table of alerts.
struct AlertRow {
    metric: Metric,
    threshold: String,
    severity: AlertSeverity,
    action: Option<String>,
}

/// The figures that every rule should have an alert on.
const EXPECTED: [Metric; 4] =
    [Metric::RetryRate, Metric::DeadLetterInflow, Metric::ConsumerLag, Metric::BreakerOpen];

fn alerting(book: &RuleBook, resolved: &Resolved<'_>) -> String {
    let mut lines = "### Alerting\n\
                     | Metric | Threshold | Severity | Action |\n\
                     |--------|-----------|----------|--------|\n"
        .to_owned();
    let rows = alert_rows(book, resolved);
    let mut line = |row: &AlertRow| {
        let action = row.action.as_deref().unwrap_or_else(|| usual_action(row.metric));
        let _ = writeln!(
            lines,
            "| {} | {} | {} | {} |",
            metric_title(row.metric),
            row.threshold,
            title_case(severity(row.severity)),
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

/// The alerts of the rule's levels, then those of the whole book.
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
        // Letters that arrive faster than the rule allows are an alert by themselves.
        let threshold = format!("> {}/min", trimmed(known.value.as_per_second() * 60.0));
        let severity = AlertSeverity::Critical;
        rows.insert(0, AlertRow { metric: Metric::DeadLetterInflow, threshold, severity, action: None });
    }
    rows
}

fn threshold(when: &Condition) -> String {
    let mut text = match (when.limit, when.lasting) {
        (Some(Limit { op, value }), _) => format!("{} {}", operator(op), quantity(value, when.metric)),
        (None, Some(lasting)) => return format!("> {}", minutes(lasting)),
        (None, None) => "at once".to_owned(),
    };
    if let Some(over) = when.over {
        let _ = write!(text, " over {}", show_duration(over));
    }
    if let Some(lasting) = when.lasting {
        let _ = write!(text, " for {}", show_duration(lasting));
    }
    text
}

const fn operator(op: Op) -> &'static str {
    match op {
        Op::Above => ">",
        Op::AtLeast => "≥",
        Op::Below => "<",
        Op::AtMost => "≤",
    }
}

fn quantity(value: Quantity, metric: Metric) -> String {
    match value {
        Quantity::Share(share) => share.to_string(),
        Quantity::Count(count) if metric == Metric::ConsumerLag => format!("{count} messages"),
        Quantity::Count(count) => count.to_string(),
        Quantity::Rate(rate) if metric == Metric::DeadLetterInflow => {
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

const fn metric_title(metric: Metric) -> &'static str {
    match metric {
        Metric::ErrorRate => "Error rate",
        Metric::TransientRate => "Transient error rate",
        Metric::UnavailableRate => "503 rate",
        Metric::RetryRate => "Retry rate",
        Metric::ExhaustedRate => "Retries exhausted",
        Metric::DeadLetters => "DLQ depth",
        Metric::DeadLetterInflow => "DLQ inflow",
        Metric::DeadLetterAge => "DLQ age",
        Metric::BreakerOpen => "Circuit breaker open",
        Metric::BreakerOpened => "Circuit breaker opened",
        Metric::AuthFailures => "Authentication failures",
        Metric::ConfigFailures => "Configuration failures",
        Metric::ConsumerLag => "Consumer lag",
        Metric::OldestWaiting => "Oldest waiting",
        Metric::LatencyP99 => "Latency p99",
    }
}

/// What people do about it, where the book does not say.
const fn usual_action(metric: Metric) -> &'static str {
    match metric {
        Metric::RetryRate
        | Metric::ErrorRate
        | Metric::TransientRate
        | Metric::UnavailableRate
        | Metric::ExhaustedRate
        | Metric::LatencyP99 => "Investigate dependency health",
        Metric::DeadLetterInflow => "Page on-call; check downstream",
        Metric::DeadLetters | Metric::DeadLetterAge => "Look at the causes, mend, replay",
        Metric::ConsumerLag | Metric::OldestWaiting => "Scale consumers or investigate",
        Metric::BreakerOpen | Metric::BreakerOpened => "Dependency is down; failover",
        Metric::AuthFailures => "Check credentials",
        Metric::ConfigFailures => "Check configuration",
    }
}
