//! What a helpful change costs: figures that get clearly worse.

use std::fmt;

use crate::scenario::expectation::{MetricValue, RunMetric};
use crate::simulate::compare::{listed, may_be_better};
use crate::simulate::report::{SimulationReport, ratio};
use redrive_core::text::show_count;

/// Ratio from which a figure is clearly worse.
const WORSE_FROM: f64 = 1.1;

/// Before and after. Waiting and dead letters are not included: a change with more of those is rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::simulate) struct Price {
    calls: Option<(MetricValue, MetricValue)>,
    duplicates: Option<(MetricValue, MetricValue)>,
    latency: Option<(MetricValue, MetricValue)>,
    /// Deliveries that wait in either case, if they are a large share.
    waiting: Option<u64>,
}

const WAITING_FROM: f64 = 0.1;

impl Price {
    pub(super) fn between(before: &SimulationReport, after: &SimulationReport) -> Self {
        let worse = |metric: RunMetric| {
            let (was, is) = (before.value(metric, None), after.value(metric, None));
            (is.as_f64() >= WORSE_FROM * was.as_f64() && is.as_f64() > was.as_f64()).then_some((was, is))
        };
        // Deliveries that arrive only with the change are late, but delay nothing else.
        let [was, is] = [before, after].map(|report| ratio(report.delivered, report.deliveries));
        let latency = worse(RunMetric::LatencyP99).filter(|_| may_be_better(RunMetric::LatencyP99, was, is));
        let is_much = after.waiting as f64 >= WAITING_FROM * after.deliveries as f64;
        Self {
            calls: worse(RunMetric::Calls),
            duplicates: worse(RunMetric::Duplicates),
            latency,
            waiting: Some(after.waiting).filter(|waiting| *waiting > 0 && is_much),
        }
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |(was, is): (MetricValue, MetricValue)| {
            format!("{:.1} times the calls", is.as_f64() / was.as_f64())
        };
        let change = |name: &str, pair: Option<(MetricValue, MetricValue)>| {
            pair.map(|(was, is)| format!("{name} {was} → {is}"))
        };
        let worse = [
            self.calls.map(times),
            change("duplicates", self.duplicates),
            change("p99 latency", self.latency),
        ];
        let worse: Vec<String> = worse.into_iter().flatten().collect();
        if !worse.is_empty() {
            write!(f, "at the cost of {}", listed(&worse))?;
        }
        if let Some(waiting) = self.waiting {
            let lead = if worse.is_empty() { "" } else { ", " };
            write!(f, "{lead}{} still waiting", show_count(waiting))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_price_is_told_in_words() {
        let count = |was, is| Some((MetricValue::Count(was), MetricValue::Count(is)));
        let seconds = |count| MetricValue::Duration(Duration::from_secs(count));
        #[rustfmt::skip]
        let cases = [
            ("nothing",    Price::default(), ""),
            ("calls",      Price { calls: count(12_435, 23_263), ..Price::default() }, "at the cost of 1.9 times the calls"),
            ("all of it",  Price { calls: count(10, 20), duplicates: count(729, 932), latency: Some((seconds(1), seconds(9))), waiting: Some(1_625) },
                "at the cost of 2.0 times the calls, duplicates 729 → 932 and p99 latency 1s → 9s, 1,625 still waiting"),
            ("who waits",  Price { waiting: Some(7), ..Price::default() }, "7 still waiting"),
        ];
        for (name, price, expected) in cases {
            assert_eq!(price.to_string(), expected, "{name}");
        }
    }
}
