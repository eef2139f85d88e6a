//! Latency quantiles of a report, within 0.4 %.

use std::time::Duration;

use redrive_core::figures::TimeSketch;
use serde::Serialize;

/// Durations of up to decades, for [`Quantiles`].
#[derive(Clone, Debug, Default)]
pub(crate) struct LatencySketch {
    times: TimeSketch<128, 44>,
    max: Duration,
}

/// Quantiles in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    pub p50_ms: u64,
    pub p90_ms: u64,
    pub p99_ms: u64,
    pub max_ms: u64,
}

impl LatencySketch {
    pub(crate) fn add(&mut self, time: Duration) {
        self.times.add(time);
        self.max = self.max.max(time);
    }

    /// `None` if no time was added.
    pub(crate) fn quantiles(&self) -> Option<Quantiles> {
        let millis = |time: Duration| u64::try_from((time.as_micros() + 500) / 1_000).unwrap_or(u64::MAX);
        let quantile = |share| self.times.quantile(share).map(|time| millis(time.min(self.max)));
        Some(Quantiles {
            p50_ms: quantile(0.5)?,
            p90_ms: quantile(0.9)?,
            p99_ms: quantile(0.99)?,
            max_ms: millis(self.max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_half_a_percent() {
        let mut times = LatencySketch::default();
        assert_eq!(times.quantiles(), None);
        (1..=1_000).for_each(|millis| times.add(Duration::from_millis(millis)));
        let quantiles = times.quantiles().expect("there are times");
        assert!((498..=502).contains(&quantiles.p50_ms), "{quantiles:?}");
        assert!((896..=904).contains(&quantiles.p90_ms), "{quantiles:?}");
        assert!((986..=994).contains(&quantiles.p99_ms), "{quantiles:?}");
        assert_eq!(quantiles.max_ms, 1_000);
    }

    #[test]
    fn days_are_no_longer_than_the_longest() {
        let mut times = LatencySketch::default();
        (0..100).for_each(|_| times.add(Duration::from_hours(72)));
        times.add(Duration::from_hours(80));
        let quantiles = times.quantiles().expect("there are times");
        assert!(quantiles.p99_ms.abs_diff(72 * 3_600_000) * 200 <= 72 * 3_600_000, "{quantiles:?}");
        assert_eq!(quantiles.max_ms, 80 * 3_600_000);
    }
}
