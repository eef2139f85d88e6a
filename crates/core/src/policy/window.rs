//! Counts calls and failures over a sliding time, in constant memory.
//!
//! The time is cut into sixteen equal parts; a part that is too old is dropped whole. So nothing older than
//! the time asked for is counted, and at least fifteen sixteenths of that time are always covered. Counting a
//! call is one comparison and one addition; the sums are made only on request, which is on a failure.

use std::time::Duration;

use crate::time::Timestamp;

const PARTS: u32 = 16;
const BUCKETS: usize = PARTS as usize;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallWindow {
    within: Duration,
    /// A ring; the one after `newest` is the oldest.
    buckets: [CallCounts; BUCKETS],
    newest: usize,
    newest_ends_at: Timestamp,
    began_at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallCounts {
    pub(crate) made: u32,
    pub(crate) failed: u32,
}

impl CallWindow {
    pub(crate) fn new(within: Duration, now: Timestamp) -> Self {
        Self {
            within,
            buckets: [CallCounts::default(); BUCKETS],
            newest: 0,
            newest_ends_at: now + bucket_width(within),
            began_at: now,
        }
    }

    pub(crate) const fn within(&self) -> Duration {
        self.within
    }

    /// Until when what is counted falls into the same part, whenever exactly it was.
    pub(crate) const fn counts_alike_until(&self) -> Timestamp {
        self.newest_ends_at
    }

    #[inline]
    pub(crate) fn count_call(&mut self, now: Timestamp) {
        let bucket = self.slide_to(now);
        bucket.made = bucket.made.saturating_add(1);
    }

    pub(crate) fn count_calls(&mut self, calls: u32, now: Timestamp) {
        let bucket = self.slide_to(now);
        bucket.made = bucket.made.saturating_add(calls);
    }

    pub(crate) fn count_failure(&mut self, now: Timestamp) {
        let bucket = self.slide_to(now);
        bucket.made = bucket.made.saturating_add(1);
        bucket.failed = bucket.failed.saturating_add(1);
    }

    pub(crate) fn calls(&self, now: Timestamp) -> CallCounts {
        let dropped = self.parts_to_drop(now);
        let mut sum = CallCounts::default();
        for age in dropped..BUCKETS {
            // `age` counts from the oldest, which is right after the newest.
            let bucket = self.buckets[(self.newest + 1 + age) % BUCKETS];
            sum.made = sum.made.saturating_add(bucket.made);
            sum.failed = sum.failed.saturating_add(bucket.failed);
        }
        sum
    }

    /// The time that [`Self::calls`] covers: less than all of it just after the start.
    pub(crate) fn covered(&self, now: Timestamp) -> Duration {
        let width = bucket_width(self.within);
        let mut newest_for = (now + width).since(self.newest_ends_at);
        if newest_for >= width {
            // Nothing has been counted since that part ended, so it is one of the dropped or full ones.
            newest_for = Duration::from_nanos_u128(newest_for.as_nanos() % width.as_nanos());
        }
        now.since(self.began_at).min(width * (PARTS - 1) + newest_for)
    }

    pub(crate) fn forget_failures(&mut self) {
        for bucket in &mut self.buckets {
            bucket.failed = 0;
        }
    }

    #[inline]
    fn slide_to(&mut self, now: Timestamp) -> &mut CallCounts {
        if now >= self.newest_ends_at {
            self.drop_old(now);
        }
        &mut self.buckets[self.newest]
    }

    #[cold]
    fn drop_old(&mut self, now: Timestamp) {
        let dropped = self.parts_to_drop(now);
        if dropped == BUCKETS {
            *self = Self { began_at: self.began_at, ..Self::new(self.within, now) };
            return;
        }
        for _ in 0..dropped {
            self.newest = (self.newest + 1) % BUCKETS;
            self.buckets[self.newest] = CallCounts::default();
            self.newest_ends_at = self.newest_ends_at + bucket_width(self.within);
        }
    }

    fn parts_to_drop(&self, now: Timestamp) -> usize {
        if now < self.newest_ends_at {
            return 0;
        }
        let whole = now.since(self.newest_ends_at).as_nanos() / bucket_width(self.within).as_nanos();
        usize::try_from(whole).map_or(BUCKETS, |whole| whole.saturating_add(1).min(BUCKETS))
    }
}

fn bucket_width(within: Duration) -> Duration {
    (within / PARTS).max(Duration::from_nanos(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    #[test]
    fn old_calls_are_dropped() {
        #[rustfmt::skip]
        let cases = [
            ("at once",                        0,      2, 1),
            ("within the first part",          999,    2, 1),
            ("while the first part is kept",   15_999, 2, 1),
            ("the first part is dropped",      16_000, 0, 0),
            ("much later",                     90_000, 0, 0),
        ];
        for (name, later, made, failed) in cases {
            let mut window = CallWindow::new(Duration::from_secs(16), at(0));
            window.count_call(at(0));
            window.count_failure(at(0));
            assert_eq!(window.calls(at(later)), CallCounts { made, failed }, "{name}, only looked at");
            window.count_call(at(later));
            assert_eq!(window.calls(at(later)), CallCounts { made: made + 1, failed }, "{name}");
        }
    }

    #[test]
    fn the_time_covered_grows_until_it_is_all() {
        let mut window = CallWindow::new(Duration::from_secs(16), at(0));
        let cases =
            [(0, 0), (500, 500), (3_200, 3_200), (40_000, 15_000), (40_700, 15_700), (41_000, 15_000)];
        for (later, covered) in cases {
            assert_eq!(window.covered(at(later)), Duration::from_millis(covered), "before {later} ms");
            window.count_call(at(later));
            assert_eq!(window.covered(at(later)), Duration::from_millis(covered), "after {later} ms");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn counts_lie_between_those_of_the_time_and_of_fifteen_sixteenths_of_it(
            steps in prop::collection::vec((0_u64..700, any::<bool>()), 1..60),
        ) {
            let within = Duration::from_millis(1_600);
            let mut window = CallWindow::new(within, at(0));
            let (mut millis, mut failures) = (0, Vec::new());
            for (step, failed) in steps {
                millis += step;
                if failed {
                    window.count_failure(at(millis));
                    failures.push(millis);
                } else {
                    window.count_call(at(millis));
                }
                let younger_than = |age: u64| failures.iter().filter(|&&f| millis - f < age).map(|_| 1).sum::<u32>();
                let counted = window.calls(at(millis)).failed;
                prop_assert!(counted <= younger_than(1_600), "nothing older counts");
                prop_assert!(counted >= younger_than(1_500), "nothing younger is dropped");
            }
        }
    }
}
