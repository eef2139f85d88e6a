//! What is expected of a simulation: `METRIC [of NAME] OP VALUE`, such as `dead_letters == 0`,
//! `amplification of warehouse < 1.5` or `drain < 2m`.
//!
//! Without `of` a metric that belongs to dependencies is that of the worst of them.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use redrive_core::book::problem::suggest;
use redrive_core::text;

/// What is expected.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// What is looked at.
    pub metric: Metric,
    /// Of which dependency; of all if not said.
    pub of: Option<String>,
    /// How it is compared.
    pub op: Op,
    /// With what.
    pub limit: Value,
    text: String,
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
}

const OPS: [(&str, Op); 6] = [
    ("==", Op::Equal),
    ("!=", Op::NotEqual),
    ("<", Op::Below),
    ("<=", Op::AtMost),
    (">", Op::Above),
    (">=", Op::AtLeast),
];

/// A value with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A number.
    Number(f64),
    /// So many in a second.
    PerSecond(f64),
    /// A share of all, from 0 to 1.
    Share(f64),
    /// A time.
    Duration(Duration),
    /// It did not come to an end, which is longer than any time.
    Never,
    /// There is nothing that it could be taken of: nothing arrived.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Count,
    Number,
    Share,
    Duration,
}

/// A figure that runs are told apart by, in the order in which figures are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
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

/// What is known of a metric; all of it stands in one table.
#[derive(Clone, Copy, Debug)]
pub struct MetricInfo {
    pub name: &'static str,
    metric: Metric,
    unit: Unit,
    scope: Scope,
    pub(crate) better: Better,
    pub(crate) apart: Apart,
    pub about: &'static str,
}

#[rustfmt::skip]
const METRICS: [MetricInfo; 14] = [
    info("dead_letters",     Metric::DeadLetters,     Unit::Count,    Scope::Sum,   Better::Less,    Apart::AtAll,
        "deliveries that failed for good"),
    info("delivered",        Metric::Delivered,       Unit::Share,    Scope::Whole, Better::More,    Apart::AtAll,
        "the share of deliveries that arrived"),
    info("waiting",          Metric::Waiting,         Unit::Count,    Scope::Whole, Better::Less,    Apart::AtAll,
        "deliveries that had not ended when the run did"),
    info("duplicates",       Metric::Duplicates,      Unit::Count,    Scope::Whole, Better::Less,    Apart::AtAll,
        "times that something took effect again"),
    info("order_violations", Metric::OrderViolations, Unit::Count,    Scope::Whole, Better::Less,    Apart::AtAll,
        "calls that came out of the order of their session"),
    info("latency_p50",      Metric::LatencyP50,      Unit::Duration, Scope::Whole, Better::Less,    Apart::Seconds(0.01),
        "half of those that arrived did so within it; never met if nothing arrived"),
    info("latency_p99",      Metric::LatencyP99,      Unit::Duration, Scope::Whole, Better::Less,    Apart::Seconds(0.01),
        "99 of 100 of those that arrived did so within it; never met if nothing arrived"),
    // Few attempts may be thrift, or giving up.
    info("attempts_max",     Metric::AttemptsMax,     Unit::Count,    Scope::Whole, Better::Neither, Apart::AtAll,
        "the most attempts of one delivery"),
    info("amplification",    Metric::Amplification,   Unit::Number,   Scope::Worst, Better::Less,    Apart::Part(0.02),
        "attempts for each first attempt"),
    info("drain",            Metric::Drain,           Unit::Duration, Scope::Worst, Better::Less,    Apart::Seconds(1.0),
        "from the end of a trouble until no more waits than before it"),
    info("queue_depth",      Metric::QueueDepth,      Unit::Count,    Scope::Worst, Better::Less,    Apart::Part(PART_OF_PEAK_MIN),
        "the most deliveries that waited at a time"),
    info("breaker_opened",   Metric::BreakerOpened,   Unit::Count,    Scope::Sum,   Better::Neither, Apart::AtAll,
        "how often breakers opened that were closed; one that opens again after a probe failed was not"),
    info("calls",            Metric::Calls,           Unit::Count,    Scope::Sum,   Better::Less,    Apart::Part(0.02),
        "calls that were made"),
    info("call_rate",        Metric::CallRate,        Unit::Number,   Scope::Worst, Better::Less,    Apart::Part(PART_OF_PEAK_MIN),
        "the most calls that began within one second"),
];

const fn info(
    name: &'static str,
    metric: Metric,
    unit: Unit,
    scope: Scope,
    better: Better,
    apart: Apart,
    about: &'static str,
) -> MetricInfo {
    MetricInfo { name, metric, unit, scope, better, apart, about }
}

/// Of what a metric is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Whole,
    /// Of one dependency, or of all together.
    Sum,
    /// Of one dependency, or of the worst.
    Worst,
}

/// What of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
    /// It is neither good nor bad in itself.
    Neither,
}

/// How far apart two values must be for a difference that is worth a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Apart {
    AtAll,
    /// By more than this part of the larger one.
    Part(f64),
    /// By so many seconds at least, and more than [`PART_OF_PEAK_MIN`].
    Seconds(f64),
}

/// Peaks and times depend on a few calls, so more is asked of them.
const PART_OF_PEAK_MIN: f64 = 0.05;

impl Apart {
    /// Whether two values differ by more than a reader would shrug at.
    pub(crate) fn is_between(self, one: Value, other: Value) -> bool {
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
    /// What it is compared with.
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        self.unit.about()
    }

    #[must_use]
    pub const fn without_of(&self) -> &'static str {
        match self.scope {
            Scope::Whole => "of the whole run; there is no `of`",
            Scope::Sum => "of all together",
            Scope::Worst => "of the worst dependency",
        }
    }
}

/// Why a text is no expectation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExpectation {
    /// No such metric.
    #[error("there is no metric `{word}`")]
    Metric { word: String },
    /// The metric belongs to the whole run.
    #[error("`{metric}` is counted over the whole run, not of one dependency")]
    Whole { metric: &'static str },
    /// No comparison.
    #[error("`{metric}` needs ==, !=, <, <=, > or >= and {unit}")]
    NoLimit { metric: &'static str, unit: &'static str },
    /// The value does not fit the metric.
    #[error("`{metric}` is compared with {unit}, not with `{value}`")]
    Value { metric: &'static str, unit: &'static str, value: String },
}

impl InvalidExpectation {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Metric { word } => suggest(word, METRICS.map(|info| info.name)),
            Self::Whole { .. } => "leave `of` out".to_owned(),
            Self::NoLimit { .. } | Self::Value { .. } => {
                "METRIC [of NAME] OP VALUE, such as \"amplification of warehouse < 1.5\"".to_owned()
            }
        }
    }
}

/// Every metric, for the reference.
pub fn metrics() -> impl Iterator<Item = MetricInfo> {
    METRICS.into_iter()
}

impl Metric {
    pub(crate) fn info(self) -> MetricInfo {
        METRICS.into_iter().find(|info| info.metric == self).expect("every metric is in the table")
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.info().name
    }
}

impl Unit {
    const fn about(self) -> &'static str {
        match self {
            Self::Count => "a whole number such as 0",
            Self::Number => "a number such as 1.5",
            Self::Share => "a share such as 99.9%",
            Self::Duration => "a duration such as 2m",
        }
    }

    fn read(self, text: &str) -> Option<Value> {
        match self {
            Self::Count => text.parse().ok().map(Value::Count),
            Self::Number => text.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Number),
            Self::Share => text::parse_share(text).ok().map(|share| Value::Share(share.get())),
            Self::Duration => text::parse_duration(text).ok().map(Value::Duration),
        }
    }
}

/// With a blank before and after each comparison, so that `drain<2m` is as good as `drain < 2m`.
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
    /// Reads an expectation.
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
            if scope == Scope::Whole {
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

    /// Whether a figure meets it; what there is nothing of meets nothing.
    #[must_use]
    pub fn is_met_by(&self, value: Value) -> bool {
        if value == Value::Nothing {
            return false;
        }
        let order = value.compared(self.limit);
        match self.op {
            Op::Equal => order == Ordering::Equal,
            Op::NotEqual => order != Ordering::Equal,
            Op::Below => order == Ordering::Less,
            Op::AtMost => order != Ordering::Greater,
            Op::Above => order == Ordering::Greater,
            Op::AtLeast => order != Ordering::Less,
        }
    }
}

impl Value {
    fn compared(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Never, Self::Never) => Ordering::Equal,
            (Self::Never, _) => Ordering::Greater,
            (_, Self::Never) => Ordering::Less,
            (one, other) => {
                let (one, other) = (one.as_f64(), other.as_f64());
                // A share that was read from a percentage lies a last digit beside one that was counted.
                if (one - other).abs() <= 1e-9 { Ordering::Equal } else { one.total_cmp(&other) }
            }
        }
    }

    /// As a plain number: times are in seconds.
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

impl fmt::Display for Value {
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

/// For programs: a plain number, and none where something never came.
impl Serialize for Value {
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

/// As it was written.
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
        let minutes = |count| Value::Duration(Duration::from_mins(count));
        #[rustfmt::skip]
        let cases = [
            ("dead_letters == 0",                 Value::Count(0),      true),
            ("dead_letters == 0",                 Value::Count(1),      false),
            ("dead_letters != 0",                 Value::Count(1),      true),
            ("amplification < 1.5",               Value::Number(1.49),  true),
            ("amplification of warehouse < 1.5",  Value::Number(1.5),   false),
            ("delivered >= 99.9%",                Value::Share(0.999),  true),
            ("delivered > 99.9%",                 Value::Share(0.999),  false),
            ("drain <= 2m",                       minutes(2),           true),
            ("drain<=2m",                         minutes(2),           true),
            ("amplification of a.b>1.5",          Value::Number(1.6),   true),
            ("drain < 2m",                        Value::Never,         false),
            ("drain > 1h",                        Value::Never,         true),
            ("latency_p99 < 1s",                  Value::Nothing,       false),
            ("latency_p99 > 1s",                  Value::Nothing,       false),
            ("latency_p99 != 1s",                 Value::Nothing,       false),
        ];
        for (text, value, expected) in cases {
            let expectation = Expectation::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(expectation.is_met_by(value), expected, "{text} with {value}");
            assert_eq!(expectation.to_string(), text);
        }
    }

    #[test]
    fn values_are_shown_to_people_and_told_to_programs() {
        #[rustfmt::skip]
        let cases = [
            ("a count",         Value::Count(1_760),                             "1,760",  "1760"),
            ("a ratio",         Value::Number(1.466),                            "1.47",   "1.466"),
            ("many a second",   Value::PerSecond(1_706.2),                       "1,706",  "1706.2"),
            ("few a second",    Value::PerSecond(4.25),                          "4.3",    "4.25"),
            ("a share",         Value::Share(0.8917),                            "89.17%", "0.8917"),
            ("a time",          Value::Duration(Duration::from_millis(403_250)), "6m43s",  "403.25"),
            ("what never came", Value::Never,                                    "never",  "null"),
        ];
        for (name, value, shown, told) in cases {
            assert_eq!(value.to_string(), shown, "{name}");
            assert_eq!(serde_json::to_string(&value).expect("a number"), told, "{name}");
        }
    }

    #[test]
    fn what_is_no_expectation_is_refused_with_a_cure() {
        #[rustfmt::skip]
        let cases = [
            ("",                        "there is no metric ``"),
            ("dead_leters == 0",        "there is no metric `dead_leters`"),
            ("dead_letters",            "`dead_letters` needs ==, !=, <, <=, > or >= and a whole number such as 0"),
            ("dead_letters = 0",        "`dead_letters` needs ==, !=, <, <=, > or >= and a whole number such as 0"),
            ("dead_letters == few",     "`dead_letters` is compared with a whole number such as 0, not with `few`"),
            ("drain < 2",               "`drain` is compared with a duration such as 2m, not with `2`"),
            ("drain of",                "`drain` needs ==, !=, <, <=, > or >= and a duration such as 2m"),
            ("delivered of x > 1%",     "`delivered` is counted over the whole run, not of one dependency"),
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
