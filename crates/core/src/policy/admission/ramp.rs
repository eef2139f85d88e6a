//! Ramp-up after an outage: calls that have waited start gradually, not all at once.
//!
//! - **In flight.** At first [`limits::RAMP_START`] calls; each success allows one more. With calls of 40 ms
//!   that is 64 within a fifth of a second, so by itself it protects only slow dependencies.
//! - **Pace.** At first calls start at the usual rate, measured before the outage; after `ramp` at twice
//!   that, after twice that time at three times. So a backlog of ten minutes drains within two, at twelve
//!   times the usual rate at worst, and a dependency that cannot bear that fails before most of it has
//!   arrived.
//!
//! The pace ends when for [`limits::RAMP_UNUSED_FOR`] fewer calls were made than it allows. After a start the
//! usual rate is unknown, so there is no pace.
//!
//! Invariants:
//! - calls while a breaker is not closed, or a pace applies, do not change the usual rate
//! - a time to wait until is always later than now, and asking then finds the pace ready

use std::time::Duration;

use crate::limits;
use crate::policy::window::CallWindow;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ramp {
    /// The most calls in flight; `None` when the limit is lifted.
    in_flight: Option<u32>,
    pace: Option<RampPace>,
    well: Option<UsualLoad>,
    usual: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
struct UsualLoad {
    calls: CallWindow,
    last_call_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct RampPace {
    /// Calls a second at first.
    usual: f64,
    doubles_after: Duration,
    began_at: Timestamp,
    /// When the next call is due; calls may run ahead of it by the burst.
    next_at: Timestamp,
}

impl Ramp {
    pub(super) const fn new() -> Self {
        Self { in_flight: None, pace: None, well: None, usual: None }
    }

    /// The dependency has recovered, or may be called again. After `doubles_after` calls may start at twice
    /// the usual rate; zero is no pace.
    pub(super) fn begin(&mut self, doubles_after: Duration, now: Timestamp) {
        self.in_flight = Some(limits::RAMP_START);
        let measured = self.well.take().map(|well| well.usual(self.usual));
        self.usual = measured.or(self.usual);
        self.pace = self.usual.filter(|_| !doubles_after.is_zero()).map(|usual| {
            let usual = usual.max(limits::RAMP_RATE_MIN);
            RampPace { usual, doubles_after, began_at: now, next_at: now }
        });
    }

    pub(super) fn is_full(&self, in_flight: u32) -> bool {
        self.in_flight.is_some_and(|most| in_flight >= most)
    }

    pub(super) fn waits_until(&mut self, now: Timestamp) -> Option<Timestamp> {
        let pace = self.pace?;
        if pace.is_unused(now) {
            self.pace = None;
            return None;
        }
        let ready_at = pace.next_at - limits::RATE_BURST;
        (now < ready_at).then_some(ready_at)
    }

    /// Calls are made while the dependency is healthy; several only where [`Self::flows_until`] allows it.
    pub(super) fn count(&mut self, calls: u32, now: Timestamp) {
        if let Some(pace) = &mut self.pace {
            pace.next_at = pace.next_at.max(now) + Duration::from_secs_f64(1.0 / pace.rate(now));
            return;
        }
        let fresh =
            || UsualLoad { calls: CallWindow::new(limits::RAMP_MEASURED_OVER, now), last_call_at: now };
        let well = self.well.get_or_insert_with(fresh);
        well.calls.count_calls(calls, now);
        well.last_call_at = now;
    }

    /// Until when calls are counted alike and nothing here limits them; `None` if something does, or none was
    /// counted.
    pub(super) fn flows_until(&self) -> Option<Timestamp> {
        let is_over = self.in_flight.is_none() && self.pace.is_none();
        self.well.as_ref().filter(|_| is_over).map(|well| well.calls.counts_alike_until())
    }

    pub(super) fn succeeded(&mut self, in_flight_max: u32) {
        self.in_flight = self.in_flight.map(|most| most + 1).filter(|most| *most < in_flight_max);
    }

    pub(super) fn rate(&self, now: Timestamp) -> Option<f64> {
        self.pace.filter(|pace| !pace.is_unused(now)).map(|pace| pace.rate(now))
    }
}

impl UsualLoad {
    /// Calls a second up to the last of them. The earlier measurement still counts if there was little time
    /// for a new one.
    fn usual(&self, known: Option<f64>) -> f64 {
        let covered = self.calls.covered(self.last_call_at);
        // A single second is too short to distinguish a burst from a rate.
        let seconds = covered.max(Duration::from_secs(1)).as_secs_f64();
        let measured = f64::from(self.calls.calls(self.last_call_at).made) / seconds;
        let is_sure = covered >= limits::RAMP_MEASURED_OVER / 2;
        known.filter(|_| !is_sure).map_or(measured, |known| measured.max(known))
    }
}

impl RampPace {
    fn rate(&self, now: Timestamp) -> f64 {
        let grown = now.since(self.began_at).as_secs_f64() / self.doubles_after.as_secs_f64();
        self.usual * (1.0 + grown)
    }

    fn is_unused(&self, now: Timestamp) -> bool {
        now.since(self.next_at) >= limits::RAMP_UNUSED_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_000_000_000);
    const TEN: Duration = Duration::from_secs(10);

    fn after(ms: u64) -> Timestamp {
        START + Duration::from_millis(ms)
    }

    fn called(per_second: u64, seconds: u64) -> Ramp {
        let mut ramp = Ramp::new();
        for call in 0..per_second * seconds {
            ramp.count(1, after(call * 1_000 / per_second));
        }
        ramp
    }

    fn made(ramp: &mut Ramp, from: Timestamp, seconds: u64) -> Vec<u64> {
        let second = |second: u64| {
            let millis = (0..1_000).map(|ms| from + Duration::from_millis(second * 1_000 + ms));
            let made = millis.filter(|now| {
                let goes = ramp.waits_until(*now).is_none();
                if goes {
                    ramp.count(1, *now);
                }
                goes
            });
            made.count() as u64
        };
        (0..seconds).map(second).collect()
    }

    #[test]
    fn calls_come_back_at_the_rate_of_before_and_grow() {
        #[rustfmt::skip]
        let cases = [
            ("as before, and twice that after ten seconds", 20, 120, TEN,            (23, 37, 57)),
            ("more quickly",                                20, 120, TEN / 2,        (24, 54, 94)),
            ("few are nothing to anybody",                   1, 120, TEN,            (12, 19, 28)),
            ("little time to learn",                        20,   3, TEN,            (24, 38, 58)),
        ];
        for (name, per_second, seconds, doubles_after, expected) in cases {
            let mut ramp = called(per_second, seconds);
            let back_at = after(1_000_000);
            ramp.begin(doubles_after, back_at);
            let made = made(&mut ramp, back_at, 20);
            assert_eq!((made[0], made[8], made[18]), expected, "{name}: {made:?}");
        }
    }

    #[test]
    fn some_have_no_pace() {
        let none = |name: &str, mut ramp: Ramp, doubles_after: Duration| {
            ramp.begin(doubles_after, after(1_000_000));
            assert_eq!(ramp.rate(after(1_000_000)), None, "{name}");
            assert_eq!(made(&mut ramp, after(1_000_000), 1), [1_000], "{name}");
        };
        none("nothing is known", Ramp::new(), TEN);
        none("the book wants none", called(20, 120), Duration::ZERO);
    }

    #[test]
    fn a_pace_that_nobody_needs_is_over() {
        let mut ramp = called(20, 120);
        ramp.begin(TEN, after(1_000_000));
        made(&mut ramp, after(1_000_000), 1);
        assert!(ramp.rate(after(1_010_500)).is_some(), "it may still be needed");
        assert_eq!(ramp.rate(after(1_011_500)), None);
        assert_eq!(made(&mut ramp, after(1_011_500), 1), [1_000]);
    }

    #[test]
    fn what_is_usual_is_not_learnt_from_an_outage() {
        let mut ramp = called(20, 120);
        for back_at in [1_000_000, 1_030_000, 2_000_000] {
            ramp.begin(TEN, after(back_at));
            assert_eq!(
                ramp.rate(after(back_at)).map(f64::round),
                Some(20.0),
                "whatever came after the last one"
            );
            made(&mut ramp, after(back_at), 5);
        }
        assert_eq!(ramp.waits_until(after(2_100_000)), None);
        ramp.count(1, after(2_100_000));
        ramp.begin(TEN, after(2_200_000));
        assert_eq!(ramp.rate(after(2_200_000)).map(f64::round), Some(20.0));
    }

    #[test]
    fn each_success_allows_one_more_in_flight() {
        let mut ramp = Ramp::new();
        ramp.begin(TEN, START);
        let mut full_from = Vec::new();
        for _ in 0..5 {
            full_from.push((0..100).find(|in_flight| ramp.is_full(*in_flight)));
            ramp.succeeded(8);
        }
        assert_eq!(full_from, [Some(4), Some(5), Some(6), Some(7), None]);
    }
}
