//! Durations by ranges that are the same everywhere, so that histograms can be added up.

use std::time::Duration;

/// Upper bounds of the ranges, in milliseconds; there is one more range beyond the last.
pub const BOUNDS_MS: [u32; 19] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 300_000,
    1_800_000, 7_200_000,
];

/// Precomputed in nanoseconds.
const BOUNDS_NANOS: [u64; BOUNDS_MS.len()] = {
    let mut bounds = [0; BOUNDS_MS.len()];
    let mut place = 0;
    while place < bounds.len() {
        bounds[place] = BOUNDS_MS[place] as u64 * 1_000_000;
        place += 1;
    }
    bounds
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    pub counts: [u64; BOUNDS_MS.len() + 1],
    pub sum_micros: u64,
}

impl Histogram {
    pub fn add(&mut self, time: Duration) {
        // 64 bits have room for five centuries.
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[BOUNDS_NANOS.partition_point(|bound| *bound < nanos)] += 1;
        self.sum_micros = self.sum_micros.saturating_add(nanos / 1_000);
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_range_and_summed() {
        let mut histogram = Histogram::default();
        for millis in 1..=100 {
            histogram.add(Duration::from_millis(millis));
        }
        histogram.add(Duration::from_hours(5));
        assert_eq!(histogram.counts[..8], [1, 1, 3, 5, 10, 30, 50, 0]);
        assert_eq!(histogram.counts[BOUNDS_MS.len()], 1, "beyond the last bound");
        assert_eq!(histogram.count(), 101);
        assert_eq!(histogram.sum_micros, 5_050_000 + 18_000_000_000);
    }
}
