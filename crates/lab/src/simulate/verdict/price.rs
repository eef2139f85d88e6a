//! What a change costs that helps: figures that get clearly worse by it.

use std::fmt;

use crate::scenario::expectation::{Metric, Value};
use crate::simulate::compare::{listed, may_be_better};
use crate::simulate::report::{SimulationReport, ratio};
use redrive_core::text::show_count;

/// So many times as much, and more, is clearly worse.
const WORSE_FROM: f64 = 1.1;

/// Figures that get clearly worse, each with what it was and what it is. What still waits and what is dead are not
/// among them: a change with more of those helps nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::simulate) struct Price {
    calls: Option<(Value, Value)>,
    duplicates: Option<(Value, Value)>,
    latency: Option<(Value, Value)>,
    /// So many wait for ever with the change, as they did without it, and are a good part of all.
    waiting: Option<u64>,
}

/// So large a part of all that still waits belongs beside whatever a change helps with.
const WAITING_FROM: f64 = 0.1;

impl Price {
    pub(super) fn between(before: &SimulationReport, after: &SimulationReport) -> Self {
        let worse = |metric: Metric| {
            let (was, is) = (before.value(metric, None), after.value(metric, None));
            (is.as_f64() >= WORSE_FROM * was.as_f64() && is.as_f64() > was.as_f64()).then_some((was, is))
        };
        // What arrives only with the change arrives late, and is no delay of the rest.
        let [was, is] = [before, after].map(|report| ratio(report.delivered, report.deliveries));
        let latency = worse(Metric::LatencyP99).filter(|_| may_be_better(Metric::LatencyP99, was, is));
        let is_much = after.waiting as f64 >= WAITING_FROM * after.deliveries as f64;
        Self {
            calls: worse(Metric::Calls),
            duplicates: worse(Metric::Duplicates),
            latency,
            waiting: Some(after.waiting).filter(|waiting| *waiting > 0 && is_much),
        }
    }
}

/// "at the price of 1.9 times the calls", or nothing.
impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |(was, is): (Value, Value)| format!("{:.1} times the calls", is.as_f64() / was.as_f64());
        let change =
            |name: &str, pair: Option<(Value, Value)>| pair.map(|(was, is)| format!("{name} {was} → {is}"));
        let worse = [
            self.calls.map(times),
            change("duplicates", self.duplicates),
            change("p99 latency", self.latency),
        ];
        let worse: Vec<String> = worse.into_iter().flatten().collect();
        if !worse.is_empty() {
            write!(f, "at the price of {}", listed(&worse))?;
        }
        if let Some(waiting) = self.waiting {
            let lead = if worse.is_empty() { "" } else { ", " };
            write!(f, "{lead}and yet {} still wait", show_count(waiting))?;
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
        let count = |was, is| Some((Value::Count(was), Value::Count(is)));
        let seconds = |count| Value::Duration(Duration::from_secs(count));
        #[rustfmt::skip]
        let cases = [
            ("nothing",    Price::default(), ""),
            ("calls",      Price { calls: count(12_435, 23_263), ..Price::default() }, "at the price of 1.9 times the calls"),
            ("all of it",  Price { calls: count(10, 20), duplicates: count(729, 932), latency: Some((seconds(1), seconds(9))), waiting: Some(1_625) },
                "at the price of 2.0 times the calls, duplicates 729 → 932 and p99 latency 1s → 9s, and yet 1,625 still wait"),
            ("who waits",  Price { waiting: Some(7), ..Price::default() }, "and yet 7 still wait"),
        ];
        for (name, price, expected) in cases {
            assert_eq!(price.to_string(), expected, "{name}");
        }
    }
}
