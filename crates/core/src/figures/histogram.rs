//! How long things took, by ranges that are the same for everything, so that all of them can be added up.

use std::time::Duration;

/// The upper ends of the ranges, in milliseconds; beyond the last there is one more.
pub const BOUNDS_MS: [u32; 19] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 300_000,
    1_800_000, 7_200_000,
];

/// The same in nanoseconds: what is compared with every time is not worked out every time.
const BOUNDS_NANOS: [u64; BOUNDS_MS.len()] = {
    let mut bounds = [0; BOUNDS_MS.len()];
    let mut place = 0;
    while place < bounds.len() {
        bounds[place] = BOUNDS_MS[place] as u64 * 1_000_000;
        place += 1;
    }
    bounds
};

/// Times by range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many times fell into each range.
    pub counts: [u64; BOUNDS_MS.len() + 1],
    /// The sum of all times, in microseconds.
    pub sum_micros: u64,
}

impl Histogram {
    /// Counts a time.
    pub fn add(&mut self, time: Duration) {
        // In 64 bits there is room for five centuries.
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[BOUNDS_NANOS.partition_point(|bound| *bound < nanos)] += 1;
        self.sum_micros = self.sum_micros.saturating_add(nanos / 1_000);
    }

    /// How many were counted.
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
