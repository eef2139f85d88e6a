//! Rate limits per caller: a burst, refilled over time (generic cell rate algorithm).
//!
//! One number per caller is enough: the time at which its quota is full again. Each request moves it by the
//! cost of one request; a request that would move it beyond the quota is refused and costs nothing.
//!
//! Invariants:
//! - over any span, at most the quota plus the refill of that span passes;
//! - after a quiet window a caller has its full quota again, and may be forgotten.

use std::time::Duration;

use crate::text::Rate;
use crate::time::Timestamp;

/// Requests per window, as shown to callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Largest burst.
    pub requests: u32,
    /// Time to refill completely.
    pub window_seconds: u32,
    /// Time to refill one request.
    every: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    pub quota: Quota,
    /// Requests allowed right now.
    pub remaining: u32,
    /// Time until the quota is full.
    pub whole_after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {} requests in {} s", quota.requests, quota.window_seconds)]
pub struct TooMany {
    pub quota: Quota,
    /// Never zero.
    pub retry_after: Duration,
}

/// In seconds; the smallest unit in which one request fits is used.
const UNITS_SECONDS: [u32; 4] = [1, 60, 60 * 60, 24 * 60 * 60];

impl Quota {
    /// Requests per second, or else per minute, hour or day; at least one a day.
    #[must_use]
    pub fn of(rate: Rate) -> Self {
        // Rounding must not turn ten a minute into nine.
        let count = |unit: u32| rate.as_per_second() * f64::from(unit) * (1.0 + 1e-9);
        let fitting = UNITS_SECONDS.into_iter().find(|unit| count(*unit) >= 1.0);
        let unit = fitting.unwrap_or(UNITS_SECONDS[UNITS_SECONDS.len() - 1]);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is bounded first")]
        let requests = count(unit).clamp(1.0, f64::from(u32::MAX)) as u32;
        let every = (1.0 / rate.as_per_second()).min(f64::from(unit));
        Self {
            requests,
            window_seconds: unit,
            every: Duration::from_secs_f64(every).max(Duration::from_nanos(1)),
        }
    }

    fn whole(self) -> Duration {
        self.every.saturating_mul(self.requests)
    }
}

/// Usage of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    whole_at: Timestamp,
}

impl Meter {
    pub const UNUSED: Self = Self { whole_at: Timestamp::EPOCH };

    pub fn take(&mut self, quota: Quota, now: Timestamp) -> Result<Allowed, TooMany> {
        // After the quota was lowered, no more than the whole quota is owed.
        let owed = self.whole_at.since(now).min(quota.whole());
        let would_owe = owed + quota.every;
        let Some(left) = quota.whole().checked_sub(would_owe) else {
            return Err(TooMany { quota, retry_after: would_owe.saturating_sub(quota.whole()) });
        };
        self.whole_at = now + would_owe;
        let remaining = left.as_nanos() / quota.every.as_nanos();
        let remaining = u32::try_from(remaining).expect("no more than the quota");
        Ok(Allowed { quota, remaining, whole_after: would_owe })
    }

    /// Whether forgetting it changes nothing.
    #[must_use]
    pub fn is_at_rest(self, now: Timestamp) -> bool {
        self.whole_at <= now
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quota(per_second: f64) -> Quota {
        Quota::of(Rate::per_second(per_second).expect("a rate"))
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    #[test]
    fn rates_become_quotas_in_whole_numbers() {
        #[rustfmt::skip]
        let cases = [
            ("a hundred a second",      100.0,       100,      1),
            ("one a second",            1.0,         1,        1),
            ("a part more",             2.5,         2,        1),
            ("ten a minute",            10.0 / 60.0, 10,       60),
            ("one in two seconds",      0.5,         30,       60),
            ("seven an hour",           7.0 / 3600.0, 7,       3_600),
            ("next to none",            1e-12,       1,        86_400),
            ("next to all",             1e12,        u32::MAX, 1),
        ];
        for (name, rate, requests, window_seconds) in cases {
            let quota = quota(rate);
            assert_eq!((quota.requests, quota.window_seconds), (requests, window_seconds), "{name}");
        }
    }

    #[test]
    fn a_quota_is_used_up_and_comes_back() {
        let quota = quota(4.0);
        let mut meter = Meter::UNUSED;
        let ms = Duration::from_millis;
        #[rustfmt::skip]
        let cases = [
            ("the first",              0,    Ok((3, ms(250)))),
            ("all at once",            0,    Ok((2, ms(500)))),
            ("still",                  0,    Ok((1, ms(750)))),
            ("the last",               0,    Ok((0, ms(1_000)))),
            ("one too many",           0,    Err(ms(250))),
            ("and again",              100,  Err(ms(150))),
            ("one is back",            250,  Ok((0, ms(1_000)))),
            ("no more than one",       250,  Err(ms(250))),
            ("all are back",           9_000, Ok((3, ms(250)))),
            ("a clock that went back", 8_000, Err(ms(250))),
        ];
        for (name, millis, expected) in cases {
            let taken = meter.take(quota, at(millis));
            let told = taken.map(|left| (left.remaining, left.whole_after)).map_err(|no| no.retry_after);
            assert_eq!(told, expected, "{name}");
        }
    }

    #[test]
    fn a_smaller_quota_holds_at_once_and_forgives_what_it_never_had() {
        let mut meter = Meter::UNUSED;
        for _ in 0..10 {
            meter.take(quota(1.0 / 60.0), at(0)).ok();
        }
        let refused = meter.take(quota(100.0), at(0)).expect_err("all of it is owed");
        assert_eq!(refused.retry_after, Duration::from_millis(10), "and not a minute");
        assert!(meter.take(quota(100.0), at(60_000)).is_ok());
    }

    #[test]
    fn one_that_is_at_rest_may_be_forgotten() {
        let mut meter = Meter::UNUSED;
        assert!(meter.is_at_rest(at(0)));
        meter.take(quota(2.0), at(0)).expect("the first");
        assert!(!meter.is_at_rest(at(499)));
        assert!(meter.is_at_rest(at(500)));
    }

    proptest! {
        #[test]
        fn never_more_than_the_quota_and_what_came_back(
            per_second in 0.01_f64..50.0,
            steps in proptest::collection::vec(0_u64..2_000, 1..200),
        ) {
            let quota = quota(per_second);
            let (mut meter, mut now, mut passed) = (Meter::UNUSED, 0, Vec::new());
            for step in steps {
                now += step;
                match meter.take(quota, at(now)) {
                    Ok(_) => passed.push(now),
                    Err(no) => {
                        prop_assert!(!no.retry_after.is_zero());
                        prop_assert!(meter.clone().take(quota, at(now) + no.retry_after).is_ok());
                    }
                }
            }
            for (place, from) in passed.iter().enumerate() {
                for (count, to) in passed[place..].iter().enumerate() {
                    let back = (to - from) as f64 / 1_000.0 * per_second;
                    prop_assert!((count + 1) as f64 <= f64::from(quota.requests) + back + 1e-6);
                }
            }
        }
    }
}
