//! Ranges of figures over many runs with different seeds.

use serde::Serialize;

use super::figures::{FigureKey, FigureSpread, RunFigures};
use super::report::ExpectationResult;
use crate::scenario::expectation::MetricValue;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRanges {
    pub runs: usize,
    pub seeds: (u64, u64),
    pub figures: Vec<FigureRange>,
    pub expectations: Vec<ExpectationCount>,
}

/// Shares are 0 to 1, durations in seconds, never is `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureRange {
    pub metric: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    pub min: Option<f64>,
    pub median: Option<f64>,
    pub p95: Option<f64>,
    pub max: Option<f64>,
    /// Minimum, median, maximum.
    pub shown: (String, String, String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExpectationCount {
    pub expectation: String,
    pub met: usize,
}

impl RunRanges {
    /// In order of seed; at least one run.
    #[must_use]
    pub fn of(runs: &[RunFigures]) -> Self {
        let figures = runs[0].figures.keys().map(|key| {
            let values = runs.iter().filter_map(|run| run.value(key)).collect();
            range(key, values)
        });
        let often = |(place, expected): (usize, &ExpectationResult)| ExpectationCount {
            expectation: expected.expectation.clone(),
            met: runs.iter().filter(|run| run.expectations[place].met).count(),
        };
        Self {
            runs: runs.len(),
            seeds: (runs[0].seed, runs[runs.len() - 1].seed),
            figures: figures.collect(),
            expectations: runs[0].expectations.iter().enumerate().map(often).collect(),
        }
    }
}

fn range(key: &FigureKey, values: Vec<MetricValue>) -> FigureRange {
    let mut numbers: Vec<f64> = values.iter().map(|value| value.as_f64()).collect();
    numbers.sort_by(f64::total_cmp);
    let p95 = numbers[(numbers.len() * 19).div_ceil(20) - 1];
    let FigureSpread { min, median, max, shown } = FigureSpread::of(values);
    let p95 = Some(p95).filter(|number| number.is_finite());
    FigureRange { metric: key.metric.as_str(), of: key.of.clone(), min, median, p95, max, shown }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scenario::expectation::RunMetric;

    #[test]
    fn a_range_has_its_ends_and_its_middle() {
        let drain = FigureKey { metric: RunMetric::Drain, of: None };
        let seconds = |count: u64| MetricValue::Duration(Duration::from_secs(count));
        let values: Vec<MetricValue> = (1..=20).rev().map(seconds).collect();
        let expected = range(&drain, values);
        assert_eq!(
            (expected.min, expected.median, expected.p95, expected.max),
            (Some(1.0), Some(10.0), Some(19.0), Some(20.0))
        );
        let one = range(&drain, vec![seconds(7)]);
        assert_eq!((one.min, one.median, one.p95, one.max), (Some(7.0), Some(7.0), Some(7.0), Some(7.0)));
        let never = range(&drain, vec![MetricValue::Never, seconds(7)]);
        assert_eq!((never.min, never.max, never.shown.2.as_str()), (Some(7.0), None, "never"));
    }
}
