//! Durations in ranges so fine that a quantile is off by at most 2.5 %: for alerts and the page.
//!
//! Each power of two from 128 µs to almost five hours is cut into twenty equal ranges; shorter times are one
//! range, and longer ones count in the last. Only ranges with a count are kept.
//!
//! Invariant: memory is bounded: there are [`RANGES`] ranges.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The shortest time that is distinguished, as a power of two in microseconds.
const FLOOR_BITS: u32 = 7;
const OCTAVES: u16 = 27;
const PARTS: u16 = 20;
const RANGES: u16 = 1 + OCTAVES * PARTS;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sketch {
    /// Sorted by range.
    counts: Vec<(u16, u64)>,
}

impl Sketch {
    pub fn add(&mut self, time: Duration) {
        let range = range_of(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        self.put(range, 1);
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| *count).sum()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub fn merge(&mut self, other: &Self) {
        for (range, count) in &other.counts {
            self.put(*range, *count);
        }
    }

    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts.clone();
        let mut before = earlier.counts.iter().peekable();
        for (range, count) in &mut counts {
            while before.next_if(|(known, _)| known < range).is_some() {}
            if let Some((_, known)) = before.next_if(|(known, _)| known == range) {
                *count = count.saturating_sub(*known);
            }
        }
        counts.retain(|(_, count)| *count > 0);
        Self { counts }
    }

    /// The time that this share (0 to 1) of all did not exceed, to within 2.5 %. `None` if nothing was
    /// counted.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = (share.clamp(0.0, 1.0) * self.count() as f64).max(1.0);
        let mut seen = 0_u64;
        let found = self.counts.iter().find(|(_, count)| {
            seen = seen.saturating_add(*count);
            seen as f64 >= wanted
        });
        // A rounding error must not lead beyond the last.
        found.or(self.counts.last()).map(|(range, _)| middle_of(*range))
    }

    fn put(&mut self, range: u16, count: u64) {
        match self.counts.binary_search_by_key(&range, |(known, _)| *known) {
            Ok(place) => self.counts[place].1 = self.counts[place].1.saturating_add(count),
            Err(place) => self.counts.insert(place, (range, count)),
        }
    }
}

fn range_of(micros: u64) -> u16 {
    let Some(bits) = micros.checked_ilog2().filter(|bits| *bits >= FLOOR_BITS) else { return 0 };
    let octave = u64::from(bits - FLOOR_BITS);
    if octave >= u64::from(OCTAVES) {
        return RANGES - 1;
    }
    let part = ((micros - (1 << bits)) * u64::from(PARTS)) >> bits;
    u16::try_from(1 + octave * u64::from(PARTS) + part).expect("there are fewer ranges")
}

fn middle_of(range: u16) -> Duration {
    let Some(place) = range.checked_sub(1) else { return Duration::from_micros((1 << FLOOR_BITS) / 2) };
    let octave = 1_u64 << (FLOOR_BITS + u32::from(place / PARTS));
    // The lower bound is at (PARTS + part) of so many parts, the upper one part further.
    let half_parts = 2 * u64::from(PARTS + place % PARTS) + 1;
    Duration::from_nanos(octave * 1_000 / (2 * u64::from(PARTS)) * half_parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_follow_each_other_and_hold_what_falls_into_them() {
        for range in 0..RANGES {
            let middle = u64::try_from(middle_of(range).as_micros()).expect("a few hours");
            assert_eq!(range_of(middle), range, "{middle} µs");
        }
        let (mut before, mut micros) = (0, 1_u64);
        while micros < 1 << 36 {
            let range = range_of(micros);
            assert!(range >= before && range < RANGES, "{micros} µs");
            (before, micros) = (range, micros + 1 + micros / 100);
        }
        assert_eq!(range_of(u64::MAX), RANGES - 1);
    }

    proptest! {
        #[test]
        fn a_quantile_is_off_by_three_percent_at_most(
            mut micros in prop::collection::vec(prop_oneof![
                128_u64..10_000, 10_000_u64..1_000_000, 1_000_000_u64..60_000_000, 60_000_000_u64..15_000_000_000,
            ], 1..300),
            share in prop_oneof![Just(0.5), Just(0.99), 0.01..1.0_f64],
        ) {
            let mut sketch = Sketch::default();
            for time in &micros {
                sketch.add(Duration::from_micros(*time));
            }
            micros.sort_unstable();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among few")]
            let place = ((share * micros.len() as f64).ceil() as usize).clamp(1, micros.len());
            let (exact, found) = (micros[place - 1] as f64, sketch.quantile(share).expect("there are some"));
            let off = (found.as_secs_f64() * 1e6 - exact).abs() / exact;
            prop_assert!(off <= 0.03, "{found:?} instead of {exact} µs");
            prop_assert!(sketch.counts.len() <= usize::from(RANGES));
        }

        #[test]
        fn what_came_since_is_what_was_added(
            first in prop::collection::vec(0_u64..100_000, 0..50),
            more in prop::collection::vec(0_u64..100_000, 0..50),
        ) {
            let of = |times: &[u64]| {
                let mut sketch = Sketch::default();
                for time in times {
                    sketch.add(Duration::from_micros(*time));
                }
                sketch
            };
            let (first, more) = (of(&first), of(&more));
            let mut both = first.clone();
            both.merge(&more);
            prop_assert_eq!(both.count(), first.count() + more.count());
            prop_assert_eq!(both.since(&first), more);
        }
    }
}
