//! The figures by which runs are compared, and their spread over many runs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::report::{DeadLetterCause, ExpectationResult, SimulationReport};
use crate::scenario::expectation::{MetricValue, RunMetric};

const OF_ALL: [RunMetric; 8] = [
    RunMetric::Delivered,
    RunMetric::DeadLetters,
    RunMetric::Waiting,
    RunMetric::Duplicates,
    RunMetric::OrderViolations,
    RunMetric::LatencyP50,
    RunMetric::LatencyP99,
    RunMetric::AttemptsMax,
];

const OF_EACH: [RunMetric; 6] = [
    RunMetric::Calls,
    RunMetric::Amplification,
    RunMetric::CallRate,
    RunMetric::QueueDepth,
    RunMetric::Drain,
    RunMetric::BreakerOpened,
];

/// Sorted as listed: overall figures first, then by dependency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FigureKey {
    pub of: Option<String>,
    pub metric: RunMetric,
}

/// The figures of one run, small enough to keep thousands.
#[derive(Clone, Debug)]
pub struct RunFigures {
    pub(super) seed: u64,
    pub(super) figures: BTreeMap<FigureKey, MetricValue>,
    pub(super) causes: Vec<DeadLetterCause>,
    pub(super) expectations: Vec<ExpectationResult>,
}

impl RunFigures {
    #[must_use]
    pub fn of(report: &SimulationReport) -> Self {
        let whole = OF_ALL.map(|metric| (FigureKey { metric, of: None }, report.value(metric, None)));
        let each = report.dependencies.iter().flat_map(|dependency| {
            let value = |metric| report.value_over(metric, std::iter::once(dependency));
            OF_EACH.map(|metric| (FigureKey { metric, of: Some(dependency.name.clone()) }, value(metric)))
        });
        Self {
            seed: report.seed,
            figures: whole.into_iter().chain(each).collect(),
            causes: report.dead_letters.clone(),
            expectations: report.expectations.clone(),
        }
    }

    pub(super) fn value(&self, key: &FigureKey) -> Option<MetricValue> {
        self.figures.get(key).copied()
    }

    pub(super) fn delivered(&self) -> f64 {
        let key = FigureKey { metric: RunMetric::Delivered, of: None };
        self.value(&key).expect("every run has it").as_f64()
    }

    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        self.expectations.iter().all(|expected| expected.met)
    }
}

/// A figure over several runs. Shares are 0 to 1, durations in seconds, never is `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureSpread {
    pub min: Option<f64>,
    pub median: Option<f64>,
    pub max: Option<f64>,
    /// Minimum, median, maximum.
    pub shown: (String, String, String),
}

impl FigureSpread {
    /// `values` must not be empty.
    pub(super) fn of(mut values: Vec<MetricValue>) -> Self {
        values.sort_by(|one, other| one.as_f64().total_cmp(&other.as_f64()));
        let number = |value: MetricValue| Some(value.as_f64()).filter(|number| number.is_finite());
        let (min, median, max) = (values[0], values[(values.len() - 1) / 2], values[values.len() - 1]);
        Self {
            min: number(min),
            median: number(median),
            max: number(max),
            shown: (min.to_string(), median.to_string(), max.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_worth_a_word_depends_on_the_figure() {
        let ms = |count| MetricValue::Duration(Duration::from_millis(count));
        #[rustfmt::skip]
        let cases = [
            ("one dead letter",          RunMetric::DeadLetters, MetricValue::Count(0), MetricValue::Count(1),           true),
            ("the same",                 RunMetric::DeadLetters, MetricValue::Count(7), MetricValue::Count(7),           false),
            ("one call of a thousand",   RunMetric::Calls,       MetricValue::Count(1_000), MetricValue::Count(1_001),   false),
            ("one call of ten",          RunMetric::Calls,       MetricValue::Count(10), MetricValue::Count(9),          true),
            ("a millisecond",            RunMetric::LatencyP50,  ms(3), ms(4),                               false),
            ("a second",                 RunMetric::LatencyP50,  ms(3), ms(1_003),                           true),
            ("half a second of drain",   RunMetric::Drain,       ms(500), ms(0),                             false),
            ("never and late",           RunMetric::Drain,       MetricValue::Never, ms(90_000),                   true),
            ("never and never",          RunMetric::Drain,       MetricValue::Never, MetricValue::Never,                 false),
            ("nothing and something",    RunMetric::LatencyP50,  MetricValue::Nothing, ms(9),                      true),
            ("nothing and nothing",      RunMetric::LatencyP50,  MetricValue::Nothing, MetricValue::Nothing,             false),
        ];
        for (name, metric, one, other, expected) in cases {
            assert_eq!(metric.info().apart.is_between(one, other), expected, "{name}");
            assert_eq!(metric.info().apart.is_between(other, one), expected, "{name}, the other way round");
        }
    }

    #[test]
    fn a_spread_has_its_ends_and_its_middle() {
        let told = FigureSpread::of([9, 1, 5, 7].map(MetricValue::Count).to_vec());
        assert_eq!((told.min, told.median, told.max), (Some(1.0), Some(5.0), Some(9.0)));
        let never = FigureSpread::of(vec![MetricValue::Never, MetricValue::Duration(Duration::from_secs(7))]);
        assert_eq!((never.median, never.max, never.shown.2.as_str()), (Some(7.0), None, "never"));
    }
}
