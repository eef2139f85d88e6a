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

    /// Adds another.
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.counts.iter_mut().zip(other.counts) {
            *own = own.saturating_add(other);
        }
        self.sum_micros = self.sum_micros.saturating_add(other.sum_micros);
    }

    /// What was counted since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        for (own, earlier) in since.counts.iter_mut().zip(earlier.counts) {
            *own = own.saturating_sub(earlier);
        }
        since.sum_micros = since.sum_micros.saturating_sub(earlier.sum_micros);
        since
    }

    /// The time that so large a share of all did not exceed, between 0 and 1: within the range where it lies
    /// the times are taken to be spread evenly. None if nothing was counted.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = share.clamp(0.0, 1.0) * count as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (range, inside) in self.counts.iter().enumerate() {
            // Beyond the last bound nothing is known but that it was longer.
            let upper = BOUNDS_MS.get(range).map_or(lower, |bound| f64::from(*bound));
            let inside = *inside as f64;
            if inside > 0.0 && below + inside >= wanted {
                let millis = lower + (upper - lower) * ((wanted - below) / inside).clamp(0.0, 1.0);
                return Some(Duration::from_secs_f64(millis / 1_000.0));
            }
            below += inside;
            lower = upper;
        }
        Some(Duration::from_secs_f64(lower / 1_000.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_where_the_times_were() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for millis in 1..=100 {
            histogram.add(Duration::from_millis(millis));
        }
        #[rustfmt::skip]
        let cases = [(0.5, 50), (0.99, 99), (1.0, 100), (0.1, 10), (0.0, 0)];
        for (share, millis) in cases {
            assert_eq!(histogram.quantile(share), Some(Duration::from_millis(millis)), "{share}");
        }
        assert_eq!(histogram.count(), 100);
        assert_eq!(histogram.sum_micros, 5_050_000);
    }

    #[test]
    fn what_came_since_is_what_was_added() {
        let (mut first, mut more) = (Histogram::default(), Histogram::default());
        first.add(Duration::from_millis(3));
        more.add(Duration::from_hours(5));
        let mut both = first;
        both.merge(&more);
        assert_eq!(both.since(&first), more);
        assert_eq!(more.quantile(0.5), Some(Duration::from_hours(2)), "at least the last bound");
    }
}
