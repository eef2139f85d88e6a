//! Expectations of a simulation: `METRIC [of NAME] OP VALUE`, such as `dead_letters == 0`,
//! `amplification of warehouse < 1.5` or `drain < 2m`.
//!
//! Without `of`, a metric of dependencies is that of the worst one.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use redrive_core::book::problem::suggest;
use redrive_core::text;

#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    pub metric: RunMetric,
    /// A dependency; none: all of them.
    pub of: Option<String>,
    pub op: ComparisonOp,
    pub limit: MetricValue,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonOp {
    Equal,
    NotEqual,
    Below,
    AtMost,
    Above,
    AtLeast,
}

const OPS: [(&str, ComparisonOp); 6] = [
    ("==", ComparisonOp::Equal),
    ("!=", ComparisonOp::NotEqual),
    ("<", ComparisonOp::Below),
    ("<=", ComparisonOp::AtMost),
    (">", ComparisonOp::Above),
    (">=", ComparisonOp::AtLeast),
];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    Count(u64),
    Number(f64),
    PerSecond(f64),
    /// From 0 to 1.
    Share(f64),
    Duration(Duration),
    /// It did not end within the run: longer than any time.
    Never,
    /// Undefined, since nothing arrived.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricUnit {
    Count,
    Number,
    Share,
    Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunMetric {
    Delivered,
    DeadLetters,
    Waiting,
    Duplicates,
    OrderViolations,
    LatencyP50,
    LatencyP99,
    AttemptsMax,
    Calls,
    Amplification,
    CallRate,
    QueueDepth,
    Drain,
    BreakerOpened,
}

#[derive(Clone, Copy, Debug)]
pub struct MetricInfo {
    pub name: &'static str,
    metric: RunMetric,
    unit: MetricUnit,
    scope: MetricScope,
    pub(crate) better: Better,
    pub(crate) apart: Apart,
    pub about: &'static str,
}

#[rustfmt::skip]
const METRICS: [MetricInfo; 14] = [
    info("dead_letters",     RunMetric::DeadLetters,     MetricUnit::Count,    MetricScope::Sum,   Better::Less,    Apart::AtAll,
        "dead letters"),
    info("delivered",        RunMetric::Delivered,       MetricUnit::Share,    MetricScope::Whole, Better::More,    Apart::AtAll,
        "the share of deliveries that succeeded"),
    info("waiting",          RunMetric::Waiting,         MetricUnit::Count,    MetricScope::Whole, Better::Less,    Apart::AtAll,
        "deliveries still open at the end of the run"),
    info("duplicates",       RunMetric::Duplicates,      MetricUnit::Count,    MetricScope::Whole, Better::Less,    Apart::AtAll,
        "duplicate side effects"),
    info("order_violations", RunMetric::OrderViolations, MetricUnit::Count,    MetricScope::Whole, Better::Less,    Apart::AtAll,
        "calls out of session order"),
    info("latency_p50",      RunMetric::LatencyP50,      MetricUnit::Duration, MetricScope::Whole, Better::Less,    Apart::Seconds(0.01),
        "median time to delivery; never met if nothing was delivered"),
    info("latency_p99",      RunMetric::LatencyP99,      MetricUnit::Duration, MetricScope::Whole, Better::Less,    Apart::Seconds(0.01),
        "99th percentile of the time to delivery; never met if nothing was delivered"),
    // Few attempts may be efficient, or a sign of giving up.
    info("attempts_max",     RunMetric::AttemptsMax,     MetricUnit::Count,    MetricScope::Whole, Better::Neither, Apart::AtAll,
        "most attempts of one delivery"),
    info("amplification",    RunMetric::Amplification,   MetricUnit::Number,   MetricScope::Worst, Better::Less,    Apart::Part(0.02),
        "attempts for each first attempt"),
    info("drain",            RunMetric::Drain,           MetricUnit::Duration, MetricScope::Worst, Better::Less,    Apart::Seconds(1.0),
        "time from the end of a failure until the backlog is back at its level before it"),
    info("queue_depth",      RunMetric::QueueDepth,      MetricUnit::Count,    MetricScope::Worst, Better::Less,    Apart::Part(PART_OF_PEAK_MIN),
        "most deliveries waiting at once"),
    info("breaker_opened",   RunMetric::BreakerOpened,   MetricUnit::Count,    MetricScope::Sum,   Better::Neither, Apart::AtAll,
        "closed breakers that opened; one that reopens after a failed probe does not count"),
    info("calls",            RunMetric::Calls,           MetricUnit::Count,    MetricScope::Sum,   Better::Less,    Apart::Part(0.02),
        "calls made"),
    info("call_rate",        RunMetric::CallRate,        MetricUnit::Number,   MetricScope::Worst, Better::Less,    Apart::Part(PART_OF_PEAK_MIN),
        "most calls started within one second"),
];

const fn info(
    name: &'static str,
    metric: RunMetric,
    unit: MetricUnit,
    scope: MetricScope,
    better: Better,
    apart: Apart,
    about: &'static str,
) -> MetricInfo {
    MetricInfo { name, metric, unit, scope, better, apart, about }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricScope {
    Whole,
    /// Of one dependency, or the sum over all.
    Sum,
    /// Of one dependency, or the worst one.
    Worst,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
    Neither,
}

/// The least difference between two values that is worth reporting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Apart {
    AtAll,
    /// More than this part of the larger one.
    Part(f64),
    /// At least so many seconds, and more than [`PART_OF_PEAK_MIN`].
    Seconds(f64),
}

/// Peaks and times depend on a few calls and vary more.
const PART_OF_PEAK_MIN: f64 = 0.05;

impl Apart {
    pub(crate) fn is_between(self, one: MetricValue, other: MetricValue) -> bool {
        let (one, other) = (one.as_f64(), other.as_f64());
        if one.is_infinite() || other.is_infinite() {
            return one.is_finite() || other.is_finite();
        }
        let (apart, larger) = ((one - other).abs(), one.max(other));
        match self {
            Self::AtAll => apart > 1e-9,
            Self::Part(part) => apart > part * larger,
            Self::Seconds(seconds) => apart >= seconds && apart > PART_OF_PEAK_MIN * larger,
        }
    }
}

impl MetricInfo {
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        self.unit.about()
    }

    #[must_use]
    pub const fn without_of(&self) -> &'static str {
        match self.scope {
            MetricScope::Whole => "the whole run; no `of`",
            MetricScope::Sum => "sum over all dependencies",
            MetricScope::Worst => "the worst dependency",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExpectation {
    #[error("unknown metric `{word}`")]
    Metric { word: String },
    #[error("`{metric}` is a metric of the whole run, not of one dependency")]
    Whole { metric: &'static str },
    #[error("`{metric}` needs ==, !=, <, <=, > or >= and {unit}")]
    NoLimit { metric: &'static str, unit: &'static str },
    #[error("`{metric}` is compared with {unit}, not with `{value}`")]
    Value { metric: &'static str, unit: &'static str, value: String },
}

impl InvalidExpectation {
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Metric { word } => suggest(word, METRICS.map(|info| info.name)),
            Self::Whole { .. } => "remove `of`".to_owned(),
            Self::NoLimit { .. } | Self::Value { .. } => {
                "METRIC [of NAME] OP VALUE, such as \"amplification of warehouse < 1.5\"".to_owned()
            }
        }
    }
}

pub fn metrics() -> impl Iterator<Item = MetricInfo> {
    METRICS.into_iter()
}

impl RunMetric {
    pub(crate) fn info(self) -> MetricInfo {
        METRICS.into_iter().find(|info| info.metric == self).expect("every metric is in the table")
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.info().name
    }
}

impl MetricUnit {
    const fn about(self) -> &'static str {
        match self {
            Self::Count => "a whole number such as 0",
            Self::Number => "a number such as 1.5",
            Self::Share => "a share such as 99.9%",
            Self::Duration => "a duration such as 2m",
        }
    }

    fn read(self, text: &str) -> Option<MetricValue> {
        match self {
            Self::Count => text.parse().ok().map(MetricValue::Count),
            Self::Number => {
                text.parse().ok().filter(|number: &f64| number.is_finite()).map(MetricValue::Number)
            }
            Self::Share => text::parse_share(text).ok().map(|share| MetricValue::Share(share.get())),
            Self::Duration => text::parse_duration(text).ok().map(MetricValue::Duration),
        }
    }
}

fn spaced(text: &str) -> String {
    let is_sign = |letter: char| matches!(letter, '=' | '!' | '<' | '>');
    let mut spaced = String::with_capacity(text.len() + 2);
    let mut was_sign = false;
    for letter in text.chars() {
        if is_sign(letter) != was_sign {
            spaced.push(' ');
            was_sign = is_sign(letter);
        }
        spaced.push(letter);
    }
    spaced
}

impl Expectation {
    pub fn parse(text: &str) -> Result<Self, InvalidExpectation> {
        let spaced = spaced(text);
        let mut words = spaced.split_whitespace();
        let first = words.next().unwrap_or_default();
        let known = METRICS.into_iter().find(|info| info.name == first);
        let unknown = || InvalidExpectation::Metric { word: first.to_owned() };
        let MetricInfo { name, metric, unit, scope, .. } = known.ok_or_else(unknown)?;
        let no_limit = || InvalidExpectation::NoLimit { metric: name, unit: unit.about() };
        let mut next = words.next().ok_or_else(no_limit)?;
        let mut of = None;
        if next == "of" {
            if scope == MetricScope::Whole {
                return Err(InvalidExpectation::Whole { metric: name });
            }
            of = Some(words.next().ok_or_else(no_limit)?.to_owned());
            next = words.next().ok_or_else(no_limit)?;
        }
        let (_, op) = OPS.into_iter().find(|(sign, _)| *sign == next).ok_or_else(no_limit)?;
        let value = words.collect::<Vec<_>>().join(" ");
        let wrong = || InvalidExpectation::Value { metric: name, unit: unit.about(), value: value.clone() };
        let limit = unit.read(&value).ok_or_else(wrong)?;
        Ok(Self { metric, of, op, limit, text: text.to_owned() })
    }

    /// An undefined value meets no expectation.
    #[must_use]
    pub fn is_met_by(&self, value: MetricValue) -> bool {
        if value == MetricValue::Nothing {
            return false;
        }
        let order = value.compared(self.limit);
        match self.op {
            ComparisonOp::Equal => order == Ordering::Equal,
            ComparisonOp::NotEqual => order != Ordering::Equal,
            ComparisonOp::Below => order == Ordering::Less,
            ComparisonOp::AtMost => order != Ordering::Greater,
            ComparisonOp::Above => order == Ordering::Greater,
            ComparisonOp::AtLeast => order != Ordering::Less,
        }
    }
}

impl MetricValue {
    fn compared(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Never, Self::Never) => Ordering::Equal,
            (Self::Never, _) => Ordering::Greater,
            (_, Self::Never) => Ordering::Less,
            (one, other) => {
                let (one, other) = (one.as_f64(), other.as_f64());
                // A share read from a percentage may differ in the last digit from a computed one.
                if (one - other).abs() <= 1e-9 { Ordering::Equal } else { one.total_cmp(&other) }
            }
        }
    }

    #[must_use]
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Number(number) | Self::PerSecond(number) | Self::Share(number) => number,
            Self::Duration(span) => span.as_secs_f64(),
            Self::Never | Self::Nothing => f64::INFINITY,
        }
    }
}

impl fmt::Display for MetricValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => f.write_str(&text::show_count(*count)),
            Self::Number(number) => write!(f, "{number:.2}"),
            Self::PerSecond(count) => f.write_str(&text::show_per_second(*count)),
            Self::Share(share) => write!(f, "{:.2}%", share * 100.0),
            Self::Duration(span) => f.write_str(&text::show_measured(*span)),
            Self::Never => f.write_str("never"),
            Self::Nothing => f.write_str("nothing arrived"),
        }
    }
}

/// A plain number; `null` for `Never` and `Nothing`.
impl Serialize for MetricValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Number(_) | Self::PerSecond(_) | Self::Share(_) | Self::Duration(_) => {
                serializer.serialize_f64(self.as_f64())
            }
            Self::Never | Self::Nothing => serializer.serialize_none(),
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_are_read_and_held_against_figures() {
        let minutes = |count| MetricValue::Duration(Duration::from_mins(count));
        #[rustfmt::skip]
        let cases = [
            ("dead_letters == 0",                 MetricValue::Count(0),      true),
            ("dead_letters == 0",                 MetricValue::Count(1),      false),
            ("dead_letters != 0",                 MetricValue::Count(1),      true),
            ("amplification < 1.5",               MetricValue::Number(1.49),  true),
            ("amplification of warehouse < 1.5",  MetricValue::Number(1.5),   false),
            ("delivered >= 99.9%",                MetricValue::Share(0.999),  true),
            ("delivered > 99.9%",                 MetricValue::Share(0.999),  false),
            ("drain <= 2m",                       minutes(2),           true),
            ("drain<=2m",                         minutes(2),           true),
            ("amplification of a.b>1.5",          MetricValue::Number(1.6),   true),
            ("drain < 2m",                        MetricValue::Never,         false),
            ("drain > 1h",                        MetricValue::Never,         true),
            ("latency_p99 < 1s",                  MetricValue::Nothing,       false),
            ("latency_p99 > 1s",                  MetricValue::Nothing,       false),
            ("latency_p99 != 1s",                 MetricValue::Nothing,       false),
        ];
        for (text, value, expected) in cases {
            let expectation = Expectation::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(expectation.is_met_by(value), expected, "{text} with {value}");
            assert_eq!(expectation.to_string(), text);
        }
    }

    #[test]
    fn values_are_shown_and_serialized() {
        #[rustfmt::skip]
        let cases = [
            ("a count",         MetricValue::Count(1_760),                             "1,760",  "1760"),
            ("a ratio",         MetricValue::Number(1.466),                            "1.47",   "1.466"),
            ("many a second",   MetricValue::PerSecond(1_706.2),                       "1,706",  "1706.2"),
            ("few a second",    MetricValue::PerSecond(4.25),                          "4.3",    "4.25"),
            ("a share",         MetricValue::Share(0.8917),                            "89.17%", "0.8917"),
            ("a time",          MetricValue::Duration(Duration::from_millis(403_250)), "6m43s",  "403.25"),
            ("what never came", MetricValue::Never,                                    "never",  "null"),
        ];
        for (name, value, shown, json) in cases {
            assert_eq!(value.to_string(), shown, "{name}");
            assert_eq!(serde_json::to_string(&value).expect("a number"), json, "{name}");
        }
    }

    #[test]
    fn what_is_no_expectation_is_refused_with_a_cure() {
        #[rustfmt::skip]
        let cases = [
            ("",                        "unknown metric ``"),
            ("dead_leters == 0",        "unknown metric `dead_leters`"),
            ("dead_letters",            "`dead_letters` needs ==, !=, <, <=, > or >= and a whole number such as 0"),
            ("dead_letters = 0",        "`dead_letters` needs ==, !=, <, <=, > or >= and a whole number such as 0"),
            ("dead_letters == few",     "`dead_letters` is compared with a whole number such as 0, not with `few`"),
            ("drain < 2",               "`drain` is compared with a duration such as 2m, not with `2`"),
            ("drain of",                "`drain` needs ==, !=, <, <=, > or >= and a duration such as 2m"),
            ("delivered of x > 1%",     "`delivered` is a metric of the whole run, not of one dependency"),
            ("amplification < inf",     "`amplification` is compared with a number such as 1.5, not with `inf`"),
        ];
        for (text, expected) in cases {
            let error = Expectation::parse(text).expect_err(text);
            assert_eq!(error.to_string(), expected, "{text}");
            assert!(!error.help().is_empty(), "{text}");
        }
        assert_eq!(
            Expectation::parse("dead_leters == 0").expect_err("misspelt").help(),
            "did you mean `dead_letters`?"
        );
    }
}
