//! How long things took, in ranges of which each is a thirty-second longer than the one before: quantiles within
//! 3 %, in memory that never grows.

use std::time::Duration;

use serde::Serialize;

const STEPS_BITS: u32 = 5;
const STEPS: u64 = 1 << STEPS_BITS;
/// Microseconds have as many doublings as there are in a few centuries.
const RANGES: usize = 54 << STEPS_BITS;

/// Times by range.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    counts: Vec<u64>,
    count: u64,
    max: Duration,
}

/// What is told of many times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// Half of them took no longer.
    pub p50_ms: u64,
    /// 9 of 10.
    pub p90_ms: u64,
    /// 99 of 100.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

impl Times {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; RANGES], count: 0, max: Duration::ZERO }
    }

    pub(crate) fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.counts[range_of(micros).min(RANGES - 1)] += 1;
        self.count += 1;
        self.max = self.max.max(time);
    }

    /// The time that so many in a thousand did not exceed.
    fn quantile(&self, in_thousand: u64) -> u64 {
        let wanted = (self.count * in_thousand).div_ceil(1_000).max(1);
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= wanted
        });
        let micros =
            found.map_or(0, upper_end_of).min(u64::try_from(self.max.as_micros()).unwrap_or(u64::MAX));
        millis_of(micros)
    }

    /// The same of what there is any of.
    pub(crate) fn told_of_any(&self) -> Option<Quantiles> {
        (self.count > 0).then(|| self.told())
    }

    pub(crate) fn told(&self) -> Quantiles {
        if self.count == 0 {
            return Quantiles::default();
        }
        Quantiles {
            p50_ms: self.quantile(500),
            p90_ms: self.quantile(900),
            p99_ms: self.quantile(990),
            max_ms: millis_of(u64::try_from(self.max.as_micros()).unwrap_or(u64::MAX)),
        }
    }
}

/// To the nearest: a range is wider than what is lost by it.
const fn millis_of(micros: u64) -> u64 {
    micros.saturating_add(500) / 1_000
}

fn range_of(micros: u64) -> usize {
    if micros < STEPS {
        return usize::try_from(micros).expect("few");
    }
    let doublings = micros.ilog2() - STEPS_BITS;
    let step = (micros >> doublings) - STEPS;
    usize::try_from(u64::from(doublings + 1) * STEPS + step).expect("a few thousand at most")
}

fn upper_end_of(range: usize) -> u64 {
    let range = range as u64;
    if range < STEPS {
        return range;
    }
    let (doublings, step) = (range / STEPS - 1, range % STEPS);
    ((STEPS + step + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_range() {
        for micros in (0..2_000).chain([4_095, 4_096, 123_456, 10_000_000_000]) {
            let upper = upper_end_of(range_of(micros));
            assert!(micros <= upper && upper <= micros + micros / STEPS + 1, "{micros}: {upper}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut times = Times::new();
        assert_eq!((times.told(), times.told_of_any()), (Quantiles::default(), None));
        (1..=1_000).for_each(|millis| times.add(Duration::from_millis(millis)));
        let told = times.told();
        assert!((500..=516).contains(&told.p50_ms), "{told:?}");
        assert!((990..=1_000).contains(&told.p99_ms), "{told:?}");
        assert_eq!(told.max_ms, 1_000);
    }
}
