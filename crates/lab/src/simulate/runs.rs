//! Many runs of one scenario with different seeds: ranges instead of anecdotes.

use serde::Serialize;

use super::figures::Measured;
use super::report::Report;
use crate::scenario::expectation::{Metric, Value};

/// Reports that are put together.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    seeds: Vec<u64>,
    figures: Vec<(Metric, Option<String>, Vec<Value>)>,
    expectations: Vec<Often>,
}

/// What many runs came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranges {
    /// How many runs.
    pub runs: usize,
    /// Their seeds, from the first to the last.
    pub seeds: (u64, u64),
    /// Figures, each over all runs.
    pub figures: Vec<Range>,
    /// What was expected, and how often it came so.
    pub expectations: Vec<Often>,
}

/// A figure over all runs; shares are from 0 to 1, times in seconds, and what never came is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Which.
    pub metric: &'static str,
    /// Of which dependency, if not of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The least.
    pub min: Option<f64>,
    /// Half of the runs had no more.
    pub median: Option<f64>,
    /// 19 of 20 runs had no more.
    pub p95: Option<f64>,
    /// The most.
    pub max: Option<f64>,
    /// The same as people read it: least, middle and most.
    pub shown: (String, String, String),
}

/// How often an expectation was met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Often {
    /// As it was written.
    pub expectation: String,
    /// In so many runs.
    pub met: usize,
}

impl Runs {
    /// Adds a run; all are of the same scenario, and in the order of their seeds.
    pub fn add(&mut self, report: &Report) {
        self.add_measured(&Measured::of(report));
    }

    /// The same with what is left of a run once it is measured.
    pub fn add_measured(&mut self, run: &Measured) {
        if self.figures.is_empty() {
            let empty = |key: &super::figures::Key| (key.metric, key.of.clone(), Vec::new());
            self.figures = run.figures.iter().map(|(key, _)| empty(key)).collect();
            let never =
                |told: &super::report::Expected| Often { expectation: told.expectation.clone(), met: 0 };
            self.expectations = run.expectations.iter().map(never).collect();
        }
        self.seeds.push(run.seed);
        for ((.., values), (_, value)) in self.figures.iter_mut().zip(&run.figures) {
            values.push(*value);
        }
        for (often, told) in self.expectations.iter_mut().zip(&run.expectations) {
            often.met += usize::from(told.met);
        }
    }

    /// All of them; none if there were none.
    #[must_use]
    pub fn ranges(self) -> Option<Ranges> {
        let seeds = (*self.seeds.first()?, *self.seeds.last()?);
        let figures = self.figures.into_iter().map(|(metric, of, values)| range(metric, of, values));
        Some(Ranges {
            runs: self.seeds.len(),
            seeds,
            figures: figures.collect(),
            expectations: self.expectations,
        })
    }
}

fn range(metric: Metric, of: Option<String>, mut values: Vec<Value>) -> Range {
    values.sort_by(|one, other| one.as_f64().total_cmp(&other.as_f64()));
    let at =
        |twentieths: usize| values[((values.len() * twentieths).div_ceil(20)).clamp(1, values.len()) - 1];
    let number = |value: Value| Some(value.as_f64()).filter(|number| number.is_finite());
    let (min, median, p95, max) = (values[0], at(10), at(19), values[values.len() - 1]);
    Range {
        metric: metric.as_str(),
        of,
        min: number(min),
        median: number(median),
        p95: number(p95),
        max: number(max),
        shown: (min.to_string(), median.to_string(), max.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_range_has_its_ends_and_its_middle() {
        let seconds = |count: u64| Value::Duration(Duration::from_secs(count));
        let values: Vec<Value> = (1..=20).rev().map(seconds).collect();
        let told = range(Metric::Drain, None, values);
        assert_eq!(
            (told.min, told.median, told.p95, told.max),
            (Some(1.0), Some(10.0), Some(19.0), Some(20.0))
        );
        let one = range(Metric::Drain, None, vec![seconds(7)]);
        assert_eq!((one.min, one.median, one.p95, one.max), (Some(7.0), Some(7.0), Some(7.0), Some(7.0)));
        let never = range(Metric::Drain, None, vec![Value::Never, seconds(7)]);
        assert_eq!((never.min, never.max, never.shown.2.as_str()), (Some(7.0), None, "never"));
    }
}
