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

/// A figure of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Deliveries that failed for good.
    DeadLetters,
    /// The share of deliveries that arrived.
    Delivered,
    /// Deliveries that had not ended when the run did.
    Waiting,
    /// Deliveries that took effect more than once.
    Duplicates,
    /// Calls that came out of the order of their session.
    OrderViolations,
    /// Half of the deliveries that arrived did so within this time.
    LatencyP50,
    /// 99 of 100 of them did.
    LatencyP99,
    /// The most attempts of a delivery.
    AttemptsMax,
    /// Calls for each first call.
    Amplification,
    /// How long after the end of a trouble no more waits than before it.
    Drain,
    /// The most deliveries that waited at a time.
    QueueDepth,
    /// How often a breaker opened that was closed.
    BreakerOpened,
    /// Calls that were made.
    Calls,
    /// The most calls that began within one second.
    CallRate,
}

const METRICS: [(&str, Metric, Unit, Scope); 14] = [
    ("dead_letters", Metric::DeadLetters, Unit::Count, Scope::Any),
    ("delivered", Metric::Delivered, Unit::Share, Scope::Whole),
    ("waiting", Metric::Waiting, Unit::Count, Scope::Whole),
    ("duplicates", Metric::Duplicates, Unit::Count, Scope::Whole),
    ("order_violations", Metric::OrderViolations, Unit::Count, Scope::Whole),
    ("latency_p50", Metric::LatencyP50, Unit::Duration, Scope::Whole),
    ("latency_p99", Metric::LatencyP99, Unit::Duration, Scope::Whole),
    ("attempts_max", Metric::AttemptsMax, Unit::Count, Scope::Whole),
    ("amplification", Metric::Amplification, Unit::Number, Scope::Any),
    ("drain", Metric::Drain, Unit::Duration, Scope::Any),
    ("queue_depth", Metric::QueueDepth, Unit::Count, Scope::Any),
    ("breaker_opened", Metric::BreakerOpened, Unit::Count, Scope::Any),
    ("calls", Metric::Calls, Unit::Count, Scope::Any),
    ("call_rate", Metric::CallRate, Unit::Number, Scope::Any),
];

/// What a figure is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Only the whole run.
    Whole,
    /// The whole run, or one dependency.
    Any,
}

/// Why a text is no expectation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExpectation {
    /// No such metric.
    #[error("there is no metric `{word}`")]
    Metric {
        /// What was written.
        word: String,
    },
    /// The metric belongs to the whole run.
    #[error("`{metric}` is counted over the whole run, not of one dependency")]
    Whole {
        /// The metric.
        metric: &'static str,
    },
    /// No comparison.
    #[error("`{metric}` needs ==, !=, <, <=, > or >= and {unit}")]
    NoLimit {
        /// The metric.
        metric: &'static str,
        /// What it is compared with.
        unit: &'static str,
    },
    /// The value does not fit the metric.
    #[error("`{metric}` is compared with {unit}, not with `{value}`")]
    Value {
        /// The metric.
        metric: &'static str,
        /// What it is compared with.
        unit: &'static str,
        /// What was written.
        value: String,
    },
}

impl InvalidExpectation {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Metric { word } => suggest(word, METRICS.map(|(name, ..)| name)),
            Self::Whole { .. } => "leave `of` out".to_owned(),
            Self::NoLimit { .. } | Self::Value { .. } => {
                "METRIC [of NAME] OP VALUE, such as \"amplification of warehouse < 1.5\"".to_owned()
            }
        }
    }
}

/// A metric, for people who look for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricInfo {
    /// Its name.
    pub name: &'static str,
    /// What it is compared with.
    pub unit: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What it is of where no dependency is named.
    pub without_of: &'static str,
}

/// Every metric.
pub fn metrics() -> impl Iterator<Item = MetricInfo> {
    METRICS.into_iter().map(|(name, metric, unit, scope)| MetricInfo {
        name,
        unit: unit.about(),
        about: metric.about(),
        without_of: match (scope, metric) {
            (Scope::Whole, _) => "of the whole run; there is no `of`",
            (Scope::Any, Metric::DeadLetters | Metric::Calls | Metric::BreakerOpened) => "of all together",
            (Scope::Any, _) => "of the worst dependency",
        },
    })
}

impl Metric {
    /// Its name in scenarios.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        let found = METRICS.into_iter().find(|(_, metric, ..)| *metric == self);
        found.expect("every metric is in the table").0
    }

    /// What it is, in a few words.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::DeadLetters => "deliveries that failed for good",
            Self::Delivered => "the share of deliveries that arrived",
            Self::Waiting => "deliveries that had not ended when the run did",
            Self::Duplicates => "times that something took effect again",
            Self::OrderViolations => "calls that came out of the order of their session",
            Self::LatencyP50 => "half of those that arrived did so within it; never met if nothing arrived",
            Self::LatencyP99 => {
                "99 of 100 of those that arrived did so within it; never met if nothing arrived"
            }
            Self::AttemptsMax => "the most attempts of one delivery",
            Self::Amplification => "attempts for each first attempt",
            Self::Drain => "from the end of a trouble until no more waits than before it",
            Self::QueueDepth => "the most deliveries that waited at a time",
            Self::BreakerOpened => {
                "how often breakers opened that were closed; one that opens again after a probe failed was not"
            }
            Self::Calls => "calls that were made",
            Self::CallRate => "the most calls that began within one second",
        }
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
        let known = METRICS.into_iter().find(|(name, ..)| *name == first);
        let unknown = || InvalidExpectation::Metric { word: first.to_owned() };
        let (name, metric, unit, scope) = known.ok_or_else(unknown)?;
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
