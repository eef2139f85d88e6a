//! The alerts of a rule book as a rule file for Prometheus, with a word on what has no series there.
//!
//! Invariants: a rule is made of names in `metric_names.rs` alone; what stands in a book as text never becomes
//! a template; an alert is exported or named among the losses, never neither.

mod expression;

use std::fmt::Write as _;
use std::time::Duration;

use crate::dapr::Remark;
use redrive_core::alerts::covers::{self, Named};
use redrive_core::book::RuleBook;
use redrive_core::book::expression::Grouping;
use redrive_core::text;

/// A rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Its text.
    pub yaml: String,
    /// Alerts that have no place in it.
    pub losses: Vec<Remark>,
}

/// Makes a rule file of all alerts that are switched on.
#[must_use]
pub fn export(book: &RuleBook) -> Exported {
    let mut rules = String::new();
    let mut losses = Vec::new();
    for named in covers::named(book.sections()) {
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
    Exported { yaml, losses }
}

fn rule(Named { name, covers, alert, .. }: &Named<'_>, expression: &str) -> String {
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

/// The labels that a grouping tells apart by; none for what has no series.
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

/// A text in double quotes: what JSON writes, YAML and PromQL read.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A text that Prometheus' templates leave as it is.
fn no_template(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

/// A duration as Prometheus reads it: in whole milliseconds, and at least one.
fn span(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
    text::show_duration(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests;
