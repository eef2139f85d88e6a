//! Latency quantiles, recorded in microseconds with three digits.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longer times are counted as this.
const MICROS_MAX: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

#[derive(Clone, Debug)]
pub(super) struct Latencies(Histogram<u64>);

/// In milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Latency {
    pub count: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, MICROS_MAX, DIGITS).expect("the bounds are in order"))
    }
}

impl Latencies {
    pub(super) fn add(&mut self, micros: u64) {
        self.0.saturating_record(micros.max(1));
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    pub(super) fn quantiles(&self) -> Latency {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1_000.0;
        Latency {
            count: self.0.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: self.0.max() as f64 / 1_000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_told_in_milliseconds() {
        let mut first = Latencies::default();
        (1..=500).for_each(|millis| first.add(millis * 1_000));
        let mut second = Latencies::default();
        (501..=1_000).for_each(|millis| second.add(millis * 1_000));
        first.join(&second);
        let found = first.quantiles();
        assert_eq!(found.count, 1_000);
        for (found, expected) in [(found.p50_ms, 500.0), (found.p99_ms, 990.0), (found.p999_ms, 999.0)] {
            assert!((found - expected).abs() < 1.0, "{found} for {expected}");
        }
    }
}
