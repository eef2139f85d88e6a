//! How long things took, in ranges of which each is less than a hundredth longer than the one before, with the longest
//! of each: quantiles are times that there were, within 1 %, in memory that follows the longest and not the count.

use std::time::Duration;

use serde::Serialize;

const STEPS_BITS: u32 = 7;
const STEPS: u64 = 1 << STEPS_BITS;
/// Microseconds have as many doublings as there are in a few centuries.
const RANGES: usize = 54 << STEPS_BITS;

/// Times by range.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    ranges: Vec<InRange>,
    count: u64,
    max: Duration,
}

/// Those of one range.
#[derive(Clone, Copy, Debug, Default)]
struct InRange {
    count: u64,
    longest_micros: u64,
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
    pub(crate) fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let place = range_of(micros).min(RANGES - 1);
        if self.ranges.len() <= place {
            self.ranges.resize(place + 1, InRange::default());
        }
        let range = &mut self.ranges[place];
        range.count += 1;
        range.longest_micros = range.longest_micros.max(micros);
        self.count += 1;
        self.max = self.max.max(time);
    }

    /// The time that so many in a thousand did not exceed; there was such a one.
    fn quantile(&self, in_thousand: u64) -> u64 {
        let wanted = (self.count * in_thousand).div_ceil(1_000).max(1);
        let mut below = 0;
        let found = self.ranges.iter().find(|range| {
            below += range.count;
            below >= wanted
        });
        millis_of(found.map_or(0, |range| range.longest_micros))
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
            assert!(100 * (micros - began_at) <= began_at, "{micros} lies in one with {began_at}");
        }
        assert!(range_of(u64::MAX >> 4) < RANGES);
    }

    #[test]
    fn what_all_took_is_told_as_it_is() {
        let mut times = Times::default();
        (0..100).for_each(|_| times.add(Duration::from_secs(5)));
        times.add(Duration::from_secs(9));
        let told = times.told();
        assert_eq!((told.p50_ms, told.p90_ms, told.p99_ms, told.max_ms), (5_000, 5_000, 5_000, 9_000));
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut times = Times::default();
        assert_eq!((times.told(), times.told_of_any()), (Quantiles::default(), None));
        (1..=1_000).for_each(|millis| times.add(Duration::from_millis(millis)));
        let told = times.told();
        assert!((500..=505).contains(&told.p50_ms), "{told:?}");
        assert!((990..=1_000).contains(&told.p99_ms), "{told:?}");
        assert_eq!(told.max_ms, 1_000);
    }
}
