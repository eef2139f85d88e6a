//! A condition as a PromQL expression.
//!
//! A share needs the same minimum of calls, or of failures, as in `alert/value.rs`.

use std::collections::BTreeSet;

use super::{labels, quoted, span};
use redrive_core::alerts::OWN_SERVICE;
use redrive_core::alerts::scope::AlertScope;
use redrive_core::alerts::value::bound;
use redrive_core::book::RuleBook;
use redrive_core::book::expression::{AlertMetric, Condition, Grouping, ThresholdOp};
use redrive_core::limits;
use redrive_core::metric_names as names;
use redrive_core::metric_names::MetricName;

/// ExportGap a condition cannot be exported.
type ExportGap = &'static str;

pub(super) fn of(book: &RuleBook, covers: &AlertScope, when: &Condition) -> Result<String, ExportGap> {
    if when.by == Some(Grouping::Fingerprint) {
        return Err("failure groups are unbounded and have no series");
    }
    let builder = ExpressionBuilder { book, covers, when };
    match when.metric {
        AlertMetric::ErrorRate | AlertMetric::TransientRate => builder.failures(),
        AlertMetric::UnavailableRate => builder.share(names::UNAVAILABLE, "", names::DEPENDENCY_ATTEMPTS),
        AlertMetric::RetryRate => builder.share(names::RETRIED, "", names::FIRST_ATTEMPTS),
        AlertMetric::ExhaustedRate => builder.share(names::EXHAUSTED, "", names::DELIVERIES),
        AlertMetric::DeadLetterInflow => builder.count(names::DELIVERIES, "outcome=\"dead\""),
        AlertMetric::AuthFailures => builder.refusals(),
        AlertMetric::ConfigFailures => builder.count(names::CONFIG_FAILURES, ""),
        AlertMetric::DeadLetters => builder.stands("sum", names::DEAD_LETTERS),
        AlertMetric::DeadLetterAge => builder.stands("max", names::DEAD_LETTER_AGE),
        AlertMetric::ConsumerLag if when.by == Some(Grouping::Source) => {
            builder.stands("sum", names::SOURCE_LAG)
        }
        AlertMetric::ConsumerLag => builder.stands("sum", names::WAITING),
        AlertMetric::OldestWaiting => builder.stands("max", names::OLDEST_WAITING),
        AlertMetric::LatencyP99 => builder.latency(),
        AlertMetric::BreakerOpen | AlertMetric::BreakerOpened => Ok(builder.breaker()),
        AlertMetric::Incident(_) => Err("Redrive notifies at once, and there is no series"),
    }
}

struct ExpressionBuilder<'a> {
    book: &'a RuleBook,
    covers: &'a AlertScope,
    when: &'a Condition,
}

impl ExpressionBuilder<'_> {
    /// The series with matchers for what the alert covers; an error if it lacks those labels.
    fn series(&self, metric: MetricName, suffix: &str, more: &str) -> Result<String, ExportGap> {
        let has = |label: &&str| metric.labels.contains(label);
        let without_own = |label: &str| match label {
            "service" => format!("service!={}", quoted(OWN_SERVICE)),
            _ => format!("dependency!~{}", quoted(&format!("{OWN_SERVICE}[:.].*"))),
        };
        let wanted: Vec<(&str, String)> = match self.covers {
            AlertScope::Everything => {
                let own = ["service", "dependency"].into_iter().filter(|label| has(label));
                own.map(|label| (label, without_own(label))).collect()
            }
            AlertScope::Dependency(name) => vec![("dependency", equals("dependency", name.as_str()))],
            AlertScope::Service(service) => vec![("service", equals("service", service.as_str()))],
            AlertScope::Channel(service, channel) => vec![
                ("service", equals("service", service.as_str())),
                ("channel", equals("channel", channel.as_str())),
            ],
            AlertScope::Row(service, channel, pattern) => {
                if !pattern.is_exact() {
                    return Err("a pattern is not a label, and its event types are not known in advance");
                }
                let channel = channel.as_ref().map_or("", |channel| channel.as_str());
                vec![
                    ("service", equals("service", service.as_str())),
                    ("channel", equals("channel", channel)),
                    ("event_type", equals("event_type", pattern.as_str())),
                ]
            }
        };
        let grouped = labels(self.when.by);
        if !wanted.iter().map(|(label, _)| label).chain(grouped).all(has) {
            return Err("no series has the labels for this");
        }
        let mut matchers: Vec<String> = wanted.into_iter().map(|(_, matcher)| matcher).collect();
        if !more.is_empty() {
            matchers.push(more.to_owned());
        }
        Ok(format!("{}{suffix}{{{}}}", metric.name, matchers.join(",")))
    }

    /// `sum by (…) (increase(…))`.
    fn increase(&self, metric: MetricName, more: &str) -> Result<String, ExportGap> {
        let window = span(self.when.window().unwrap_or(limits::ALERT_OVER_DEFAULT));
        Ok(format!("{}(increase({}[{window}]))", self.aggregate("sum", &[]), self.series(metric, "", more)?))
    }

    fn aggregate(&self, function: &str, more: &[&str]) -> String {
        let by: Vec<&str> = more.iter().chain(labels(self.when.by)).copied().collect();
        if by.is_empty() { function.to_owned() } else { format!("{function} by ({}) ", by.join(", ")) }
    }

    /// `> 0.05`.
    fn limit(&self, times: f64) -> String {
        let Some(limit) = self.when.limit else { return "> 0".to_owned() };
        let op = match limit.op {
            ThresholdOp::Above => ">",
            ThresholdOp::AtLeast => ">=",
            ThresholdOp::Below => "<",
            ThresholdOp::AtMost => "<=",
        };
        // Rounds away the noise of a division.
        let bound = (bound(limit.value) * times * 1e9).round() / 1e9;
        format!("{op} {bound}")
    }

    fn share_of(&self, part: &str, whole: &str) -> String {
        let (least, enough) = (limits::ALERT_SHARE_OF_MIN, limits::ALERT_SHARE_COUNT_MIN);
        let limit = self.limit(1.0);
        if self.when.by == Some(Grouping::Category) {
            // The whole is that of all categories.
            return format!(
                "({part} / on () group_left () {whole} {limit}) and ({part} >= {enough} or ({part} and on () ({whole} >= {least})))"
            );
        }
        format!("({part} / {whole} {limit}) and ({whole} >= {least} or {part} >= {enough})")
    }

    fn share(&self, part: MetricName, more: &str, whole: MetricName) -> Result<String, ExportGap> {
        Ok(self.share_of(&self.increase(part, more)?, &self.increase(whole, "")?))
    }

    /// Shares of failed attempts, of services or of dependencies.
    fn failures(&self) -> Result<String, ExportGap> {
        let of_dependency =
            matches!(self.covers, AlertScope::Dependency(_)) || self.when.by == Some(Grouping::Dependency);
        let of_type = matches!(self.covers, AlertScope::Row(..)) || self.when.by == Some(Grouping::EventType);
        let (attempts, failures) = match (of_dependency, of_type) {
            (true, _) => (names::DEPENDENCY_ATTEMPTS, names::DEPENDENCY_FAILURES),
            (false, true) => (names::ATTEMPTS, names::FAILURES),
            // The first event of a type starts a series, which shows no increase.
            (false, false) => (names::SERVICE_ATTEMPTS, names::SERVICE_FAILURES),
        };
        let by_category = self.when.by == Some(Grouping::Category);
        match self.when.metric {
            AlertMetric::TransientRate => {
                self.share(failures, "category=~\"transient|rate-limited\"", attempts)
            }
            _ if by_category => {
                let mut all = self.when.clone();
                all.by = None;
                let whole = ExpressionBuilder { when: &all, ..*self }.increase(attempts, "")?;
                Ok(self.share_of(&self.increase(failures, "")?, &whole))
            }
            _ => self.share(attempts, "outcome=\"failed\"", attempts),
        }
    }

    fn count(&self, metric: MetricName, more: &str) -> Result<String, ExportGap> {
        let is_rate = matches!(self.when.metric, AlertMetric::DeadLetterInflow | AlertMetric::AuthFailures);
        let window = self.when.window().unwrap_or(limits::ALERT_OVER_DEFAULT);
        // A rate is compared as a count within its window.
        let times = if is_rate { window.as_secs_f64() } else { 1.0 };
        Ok(format!("{} {}", self.increase(metric, more)?, self.limit(times)))
    }

    /// Credentials refused by targets, and by Redrive itself, which belong to no service.
    fn refusals(&self) -> Result<String, ExportGap> {
        if self.when.by == Some(Grouping::Source) {
            return Err("no series has the labels for this");
        }
        if self.when.by.is_some() || *self.covers != AlertScope::Everything {
            return self.count(names::AUTH_FAILURES, "");
        }
        let window = self.when.window().unwrap_or(limits::ALERT_OVER_DEFAULT);
        let (theirs, ours) =
            (self.increase(names::AUTH_FAILURES, "")?, self.increase(names::AUTH_REJECTED, "")?);
        let limit = self.limit(window.as_secs_f64());
        // Without `or`, a sum with a missing series has no value.
        Ok(format!("({theirs} or vector(0)) + ({ours} or vector(0)) {limit}"))
    }

    fn stands(&self, function: &str, metric: MetricName) -> Result<String, ExportGap> {
        let series = self.series(metric, "", "")?;
        Ok(format!("{}({series}) {}", self.aggregate(function, &[]), self.limit(1.0)))
    }

    fn latency(&self) -> Result<String, ExportGap> {
        let of_dependency =
            matches!(self.covers, AlertScope::Dependency(_)) || self.when.by == Some(Grouping::Dependency);
        let metric = if of_dependency { names::DEPENDENCY_DURATION } else { names::ATTEMPT_DURATION };
        let window = span(self.when.window().unwrap_or(limits::ALERT_OVER_DEFAULT));
        let series = self.series(metric, "_bucket", "")?;
        let sum = self.aggregate("sum", &["le"]);
        Ok(format!("histogram_quantile(0.99, {sum}(rate({series}[{window}]))) {}", self.limit(1.0)))
    }

    fn breaker(&self) -> String {
        let open = "state=~\"open|half-open\"";
        let which = match self.covers {
            AlertScope::Everything => {
                format!("dependency!~{}", quoted(&format!("{OWN_SERVICE}[:.].*")))
            }
            AlertScope::Dependency(name) => equals("dependency", name.as_str()),
            AlertScope::Service(_) | AlertScope::Channel(..) | AlertScope::Row(..) => {
                let called: BTreeSet<String> =
                    self.covers.dependencies(self.book).map(|name| regex::escape(name.as_str())).collect();
                let called: Vec<String> = called.into_iter().collect();
                format!("dependency=~{}", quoted(&called.join("|")))
            }
        };
        let state = names::BREAKER_STATE.name;
        let is_open = format!("max by (dependency) ({state}{{{which},{open}}}) > 0");
        if self.when.metric == AlertMetric::BreakerOpen {
            return is_open;
        }
        let (trips, window) = (names::BREAKER_TRIPS.name, span(limits::BREAKER_OPENED_WITHIN));
        format!("sum by (dependency) (increase({trips}{{{which}}}[{window}])) > 0 or {is_open}")
    }
}

fn equals(label: &str, value: &str) -> String {
    format!("{label}={}", quoted(value))
}
