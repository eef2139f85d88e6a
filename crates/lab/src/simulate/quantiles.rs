//! Latency quantiles of a report.
//!
//! Times are counted in ranges less than 1 % wide, with the longest time of each, so a quantile is a time that
//! occurred, and equal times give it exactly: expectations compare with it. Memory follows the longest time.

use std::time::Duration;

use serde::Serialize;

const STEPS_BITS: u32 = 7;
const STEPS: u64 = 1 << STEPS_BITS;
/// Enough for centuries in microseconds.
const RANGES: usize = 54 << STEPS_BITS;

#[derive(Clone, Debug, Default)]
pub(crate) struct LatencySketch {
    ranges: Vec<LatencyRange>,
    count: u64,
    max: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct LatencyRange {
    count: u64,
    longest_micros: u64,
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
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let place = range_of(micros).min(RANGES - 1);
        if self.ranges.len() <= place {
            self.ranges.resize(place + 1, LatencyRange::default());
        }
        let range = &mut self.ranges[place];
        range.count += 1;
        range.longest_micros = range.longest_micros.max(micros);
        self.count += 1;
        self.max = self.max.max(time);
    }

    /// `None` if no time was added.
    pub(crate) fn quantiles(&self) -> Option<Quantiles> {
        (self.count > 0).then(|| Quantiles {
            p50_ms: self.quantile(500),
            p90_ms: self.quantile(900),
            p99_ms: self.quantile(990),
            max_ms: millis_of(u64::try_from(self.max.as_micros()).unwrap_or(u64::MAX)),
        })
    }

    fn quantile(&self, in_thousand: u64) -> u64 {
        let wanted = (self.count * in_thousand).div_ceil(1_000).max(1);
        let mut below = 0;
        let found = self.ranges.iter().find(|range| {
            below += range.count;
            below >= wanted
        });
        millis_of(found.map_or(0, |range| range.longest_micros))
    }
}

/// Rounded to the nearest millisecond.
const fn millis_of(micros: u64) -> u64 {
    micros.saturating_add(500) / 1_000
}

fn range_of(micros: u64) -> usize {
    if micros < STEPS {
        return usize::try_from(micros).expect("below 128");
    }
    let doublings = micros.ilog2() - STEPS_BITS;
    let step = (micros >> doublings) - STEPS;
    usize::try_from(u64::from(doublings + 1) * STEPS + step).expect("a few thousand at most")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_each_other_and_none_is_wider_than_a_hundredth() {
        let mut began_at = 0;
        for micros in 1..200_000_u64 {
            let (before, own) = (range_of(micros - 1), range_of(micros));
            assert!(own == before || own == before + 1, "{micros}");
            if own > before {
                began_at = micros;
            }
            assert!(100 * (micros - began_at) <= began_at, "{micros} is in one with {began_at}");
        }
        assert!(range_of(u64::MAX >> 4) < RANGES);
    }

    #[test]
    fn equal_times_are_reported_exactly() {
        let mut times = LatencySketch::default();
        (0..100).for_each(|_| times.add(Duration::from_secs(5)));
        times.add(Duration::from_secs(9));
        let Quantiles { p50_ms, p90_ms, p99_ms, max_ms } = times.quantiles().expect("there are times");
        assert_eq!((p50_ms, p90_ms, p99_ms, max_ms), (5_000, 5_000, 5_000, 9_000));
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut times = LatencySketch::default();
        assert_eq!(times.quantiles(), None);
        (1..=1_000).for_each(|millis| times.add(Duration::from_millis(millis)));
        let quantiles = times.quantiles().expect("there are times");
        assert!((500..=505).contains(&quantiles.p50_ms), "{quantiles:?}");
        assert!((990..=1_000).contains(&quantiles.p99_ms), "{quantiles:?}");
        assert_eq!(quantiles.max_ms, 1_000);
    }
}
