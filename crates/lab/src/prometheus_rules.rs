//! The alerts of a rule book as a rule file for Prometheus.
//!
//! Invariants: a rule uses only names of `metric_names.rs`; a text of the book never becomes a template; an alert is
//! either exported or listed among the losses.

mod expression;

use std::fmt::Write as _;
use std::time::Duration;

use crate::dapr::Remark;
use redrive_core::alerts::scope::{self, NamedAlert};
use redrive_core::book::RuleBook;
use redrive_core::book::expression::Grouping;
use redrive_core::text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFile {
    pub yaml: String,
    /// Alerts that cannot be exported.
    pub losses: Vec<Remark>,
}

/// Exports all alerts that are switched on.
#[must_use]
pub fn export(book: &RuleBook) -> RuleFile {
    let mut rules = String::new();
    let mut losses = Vec::new();
    for named in scope::named(book.sections()) {
        match expression::of(book, &named.covers, &named.alert.when) {
            Ok(expression) => rules.push_str(&rule(&named, &expression)),
            Err(why) => {
                let line = named.alert.span.position.line;
                let what = format!("`{}` on line {line}", named.name);
                // A comment ends with its line.
                let _ = writeln!(rules, "      # Left out: {}: {why}.", what.replace(['\n', '\r'], " "));
                losses.push(Remark { what, why: why.to_owned() });
            }
        }
    }
    let has_rules = rules.contains("- alert:");
    let list = if has_rules { format!("\n{rules}") } else { format!(" []\n{rules}") };
    let yaml = format!(
        "# The alerts of a Redrive rule book, for Prometheus.\n\
         # Their windows need several samples: scrape with `scrape_interval: 15s` or less.\ngroups:\n  - name: redrive\n    rules:{list}"
    );
    RuleFile { yaml, losses }
}

fn rule(NamedAlert { name, covers, alert, .. }: &NamedAlert<'_>, expression: &str) -> String {
    let mut rule = String::new();
    let mut put = |key: &str, value: &str| {
        let _ = writeln!(rule, "{key}: {}", quoted(value));
    };
    put("      - alert", name);
    put("        expr", expression);
    if let Some(lasting) = alert.when.lasting {
        put("        for", &span(lasting));
    }
    rule.push_str("        labels:\n");
    let mut put = |key: &str, value: &str| {
        let _ = writeln!(rule, "          {key}: {}", quoted(value));
    };
    put("severity", alert.severity.as_str());
    if !alert.to.is_empty() {
        put("receivers", &alert.to.join(","));
    }
    if let Some(covers) = covers.shown() {
        put("covers", &no_template(&covers));
    }
    rule.push_str("        annotations:\n");
    let mut put = |key: &str, value: &str| {
        let _ = writeln!(rule, "          {key}: {}", quoted(value));
    };
    let of = labels(alert.when.by).iter().map(|label| format!(" {{{{ $labels.{label} }}}}"));
    let of: String = of.collect();
    put("summary", &format!("{}:{of} {{{{ $value | humanize }}}}", no_template(name)));
    put("description", &no_template(&alert.when.to_string()));
    if let Some(action) = &alert.action {
        put("action", &no_template(action));
    }
    rule
}

/// The labels of a grouping; none without a series.
const fn labels(by: Option<Grouping>) -> &'static [&'static str] {
    match by {
        None | Some(Grouping::Fingerprint | Grouping::Source) => &[],
        Some(Grouping::Service) => &["service"],
        Some(Grouping::Channel) => &["service", "channel"],
        Some(Grouping::Dependency) => &["dependency"],
        Some(Grouping::Category) => &["category"],
        Some(Grouping::EventType) => &["event_type"],
    }
}

/// A JSON string, which YAML and PromQL read too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Escapes a text for the templates of Prometheus.
fn no_template(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

/// A duration for Prometheus: whole milliseconds, at least one.
fn span(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
    text::show_duration(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests;
