//! Limits calls to one dependency: in flight, per second, and none while it asks us to wait.
//!
//! - **In flight.** At most `in_flight` slots are out. A slot is returned only by [`Throttle::release`].
//! - **Hold.** A `Retry-After` applies to the whole dependency, not to one call.
//! - **Rate.** The configured one, if any. When the dependency throttles us, it is halved (the one measured
//!   over the last ten seconds where none is configured), and a rate is learnt that stays just below what the
//!   dependency allows: see `learnt.rs`. It is forgotten when no call has had to wait for it for `memory`.
//!
//! Why not every refusal halves the rate: when a dependency begins to throttle, every call in flight is
//! refused for the same reason. 64 calls would halve the rate 64 times. So a refusal counts only if a call
//! was made since the last one that did.
//!
//! Calls at a learnt rate are evenly spaced, and idle time is not saved up: a limit without bursts would
//! refuse them.
//!
//! Invariants:
//! - no more than `in_flight` slots are out, except those given before the limit was lowered
//! - over any span, no more calls are admitted than the rate allows in it and in [`limits::RATE_BURST`], and
//!   one
//! - [`ThrottlePass::WaitUntil`] is always later than `now`; asking then finds the rate ready
//! - a rate never falls below one call in [`limits::RATE_MEASURED_OVER`], so it can always grow back

mod learnt;

use std::num::NonZeroU32;
use std::time::Duration;

use self::learnt::LearntRate;
use crate::limits;
use crate::policy::window::CallWindow;
use crate::text::{Rate, Share};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleSettings {
    pub in_flight: NonZeroU32,
    pub rate: Option<Rate>,
    pub growth: Share,
    pub memory: Duration,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throttle {
    in_flight: u32,
    hold_until: Option<Timestamp>,
    /// When the next call is due at the current rate; calls may run ahead of it by the burst.
    next_at: Timestamp,
    learnt: Option<LearntRate>,
    recent: Option<CallWindow>,
}

#[derive(Debug)]
pub enum ThrottlePass {
    Go(Slot),
    Full,
    WaitUntil(Timestamp),
}

/// The room of one call, until it is released. A slot that is dropped is never free again.
#[derive(Debug)]
#[must_use = "a slot is given back by `release`"]
pub struct Slot {
    _only_made_here: (),
}

impl Slot {
    /// The slot of a call that was admitted by [`Throttle::flows_until`] and counted by
    /// [`Throttle::take_stock`].
    pub(crate) const fn of_free_call() -> Self {
        Self { _only_made_here: () }
    }
}

impl Throttle {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[inline]
    pub fn admit(&mut self, settings: &ThrottleSettings, now: Timestamp) -> ThrottlePass {
        if let Some(until) = self.hold_until {
            if now < until {
                return ThrottlePass::WaitUntil(until);
            }
            self.hold_until = None;
        }
        if self.in_flight >= settings.in_flight.get() {
            return ThrottlePass::Full;
        }
        if let Some(until) = self.paced(settings, now) {
            return ThrottlePass::WaitUntil(until);
        }
        self.recent.get_or_insert_with(|| CallWindow::new(limits::RATE_MEASURED_OVER, now)).count_call(now);
        self.in_flight += 1;
        ThrottlePass::Go(Slot { _only_made_here: () })
    }

    /// Until when calls may be admitted without [`Self::admit`], as long as at most `in_flight` of them are
    /// out: nothing else limits them, and until then they are counted alike. `None` if something does.
    ///
    /// A caller that uses this must report the calls by [`Self::take_stock`] before any other question.
    #[must_use]
    pub fn flows_until(&self, settings: &ThrottleSettings) -> Option<Timestamp> {
        let is_calm = self.hold_until.is_none() && self.learnt.is_none() && settings.rate.is_none();
        let recent = self.recent.as_ref()?;
        is_calm.then(|| recent.counts_alike_until())
    }

    /// Counts calls that were admitted by [`Self::flows_until`]; `in_flight` is the current total.
    pub fn take_stock(&mut self, let_in: u32, in_flight: u32, at: Timestamp) {
        if let Some(recent) = self.recent.as_mut().filter(|_| let_in > 0) {
            recent.count_calls(let_in, at);
        }
        self.in_flight = in_flight;
    }

    /// Returns a slot when its call has ended, however it ended.
    ///
    /// # Panics
    ///
    /// If the slot is of another throttle, and that shows.
    #[inline]
    pub fn release(&mut self, _slot: Slot) {
        assert!(self.in_flight > 0, "a slot is released to the throttle that gave it");
        self.in_flight -= 1;
    }

    pub fn throttled(&mut self, settings: &ThrottleSettings, retry_after: Option<Duration>, now: Timestamp) {
        let hold = retry_after.unwrap_or_default().min(limits::RETRY_AFTER_MAX);
        let known = self.learnt.take().filter(|learnt| !learnt.is_forgotten(settings, now));
        let is_news = known.as_ref().is_none_or(|learnt| learnt.is_news(now));
        let mut learnt = if let Some(mut learnt) = known {
            if is_news {
                learnt.cut(settings, hold);
            }
            learnt
        } else {
            let measured = self.measured(now);
            LearntRate::new(settings.rate.map_or(measured, Rate::as_per_second), measured, now)
        };
        // Nothing is learnt before calls are made again.
        if retry_after.is_some() {
            let until = self.hold_until.max(Some(now + hold)).unwrap_or(now);
            self.hold_until = Some(until);
            learnt.hold(until);
        } else if is_news {
            let until = now + learnt.pauses_for();
            self.next_at = self.next_at.max(until);
            learnt.pause(until);
        }
        self.learnt = Some(learnt);
    }

    #[must_use]
    pub const fn hold_until(&self) -> Option<Timestamp> {
        self.hold_until
    }

    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    #[must_use]
    pub fn current_rate(&self, settings: &ThrottleSettings, now: Timestamp) -> Option<Rate> {
        let learnt = self.learnt.as_ref().filter(|learnt| !learnt.is_forgotten(settings, now));
        learnt.map(|learnt| learnt.rate(settings)).map_or(settings.rate, Rate::per_second)
    }

    #[inline]
    fn paced(&mut self, settings: &ThrottleSettings, now: Timestamp) -> Option<Timestamp> {
        if self.learnt.is_some() {
            return self.paced_as_learnt(settings, now);
        }
        let rate = settings.rate?.as_per_second();
        let ready_at = self.next_at - limits::RATE_BURST;
        if now < ready_at {
            return Some(ready_at);
        }
        self.next_at = self.next_at.max(now) + interval(rate);
        None
    }

    #[cold]
    fn paced_as_learnt(&mut self, settings: &ThrottleSettings, now: Timestamp) -> Option<Timestamp> {
        let Some(learnt) = self.learnt.as_mut().filter(|learnt| !learnt.is_forgotten(settings, now)) else {
            self.learnt = None;
            return self.paced(settings, now);
        };
        if now < self.next_at {
            learnt.wait(now);
            return Some(self.next_at);
        }
        self.next_at = learnt.call(settings, self.next_at, now) + interval(learnt.rate(settings));
        None
    }

    fn measured(&self, now: Timestamp) -> f64 {
        let measured = self.recent.as_ref().map_or(0.0, |recent| {
            // A single second is too short to distinguish a burst from a rate.
            let span = recent.covered(now).max(Duration::from_secs(1));
            f64::from(recent.calls(now).made) / span.as_secs_f64()
        });
        measured.max(floor())
    }
}

/// One call in the time over which rates are measured: a slower rate could not be measured.
fn floor() -> f64 {
    1.0 / limits::RATE_MEASURED_OVER.as_secs_f64()
}

fn interval(rate: f64) -> Duration {
    // Rounded up, so that no span has more calls than the rate allows; a cast saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and it saturates")]
    Duration::from_nanos((1e9 / rate).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_000_000_000);

    const fn after(ms: u64) -> Timestamp {
        Timestamp::from_millis(START.as_millis() + ms)
    }

    fn settings(in_flight: u32, per_second: Option<f64>) -> ThrottleSettings {
        ThrottleSettings {
            in_flight: NonZeroU32::new(in_flight).expect("not 0"),
            rate: per_second.map(|count| Rate::per_second(count).expect("a rate")),
            growth: limits::RATE_GROWTH_DEFAULT,
            memory: limits::RATE_MEMORY_DEFAULT,
        }
    }

    const S1: Option<Duration> = Some(Duration::from_secs(1));
    const S5: Option<Duration> = Some(Duration::from_secs(5));
    const S30: Option<Duration> = Some(Duration::from_secs(30));
    const YEARS: Option<Duration> = Some(limits::DURATION_MAX);

    fn admitted(throttle: &mut Throttle, settings: &ThrottleSettings, calls: u32, now: Timestamp) -> u32 {
        let mut count = 0;
        for _ in 0..calls {
            if let ThrottlePass::Go(slot) = throttle.admit(settings, now) {
                throttle.release(slot);
                count += 1;
            }
        }
        count
    }

    fn rate(throttle: &Throttle, settings: &ThrottleSettings, now: Timestamp) -> Option<f64> {
        throttle.current_rate(settings, now).map(|rate| (rate.as_per_second() * 1_000.0).round() / 1_000.0)
    }

    #[test]
    fn calls_in_flight_are_bounded() {
        let two = settings(2, None);
        let mut throttle = Throttle::new();
        let ThrottlePass::Go(first) = throttle.admit(&two, START) else { panic!("there is room") };
        let ThrottlePass::Go(second) = throttle.admit(&two, START) else { panic!("there is room") };
        assert!(matches!(throttle.admit(&two, START), ThrottlePass::Full));
        throttle.release(first);
        assert!(
            matches!(throttle.admit(&settings(1, None), START), ThrottlePass::Full),
            "the limit was lowered"
        );
        throttle.release(second);
        assert_eq!(throttle.in_flight(), 0);
        assert!(matches!(throttle.admit(&settings(1, None), START), ThrottlePass::Go(_)));
    }

    #[test]
    fn calls_are_paced() {
        #[rustfmt::skip]
        let cases = [
            ("no rate, no pace",                     None,          0,      100),
            ("one at a time",                        Some(1.0),     0,      1),
            ("the next a second later, all but the burst", Some(1.0), 899,  1),
            ("and then it goes",                     Some(1.0),     900,    2),
            ("a tenth of a second ahead, and one",   Some(100.0),   0,      11),
            ("as the rate says from there on",       Some(100.0),   50,     16),
            ("idle time is not saved up",            Some(100.0),   60_000, 22),
        ];
        for (name, per_second, later, expected) in cases {
            let limits = settings(64, per_second);
            let mut throttle = Throttle::new();
            let mut count = admitted(&mut throttle, &limits, 100, START);
            if later > 0 {
                count += admitted(&mut throttle, &limits, 100, after(later));
            }
            assert_eq!(count, expected, "{name}");
        }
    }

    #[test]
    fn a_wait_asked_for_holds_everybody() {
        #[rustfmt::skip]
        let cases = [
            ("nothing asked for",             vec![None],                       None),
            ("five seconds",                  vec![S5],                    Some(5)),
            ("a shorter one does not shorten", vec![S5, S1, None],    Some(5)),
            ("a longer one stretches",        vec![S5, S30],          Some(30)),
            ("a day at most",                 vec![YEARS],            Some(86_400)),
        ];
        for (name, waits, expected) in cases {
            let limits = settings(64, None);
            let mut throttle = Throttle::new();
            for wait in waits {
                throttle.throttled(&limits, wait, START);
            }
            let expected = expected.map(|seconds| after(seconds * 1_000));
            assert_eq!(throttle.hold_until(), expected, "{name}");
            let Some(until) = expected else { continue };
            let early = throttle.admit(&limits, until - Duration::from_nanos(1));
            assert!(matches!(early, ThrottlePass::WaitUntil(at) if at == until), "{name}: held");
            assert!(matches!(throttle.admit(&limits, until), ThrottlePass::Go(_)), "{name}: over");
            assert_eq!(throttle.hold_until(), None, "{name}: over");
        }
    }

    #[test]
    fn a_rate_is_halved_once_for_one_reason() {
        #[rustfmt::skip]
        let cases = [
            ("not throttled",                       vec![],                                              100.0),
            ("halved",                              vec![(0, None, 0)],                                  50.0),
            ("the crowd in flight brings old news", vec![(0, None, 0), (10, None, 0), (999, None, 0)],   50.0),
            ("so it does while calls are paused",   vec![(0, None, 0), (249, None, 1)],                  50.0),
            ("a call since then brings new",        vec![(0, None, 0), (250, None, 1)],                  25.0),
            ("and so after a hold",                 vec![(0, S30, 0), (30_000, None, 1)],                25.0),
            ("but not during it",                   vec![(0, S30, 0), (20_000, None, 1)],                50.0),
        ];
        for (name, throttled, expected) in cases {
            let limits = settings(64, Some(100.0));
            let mut throttle = Throttle::new();
            for (ms, wait, calls) in throttled {
                admitted(&mut throttle, &limits, calls, after(ms));
                throttle.throttled(&limits, wait, after(ms));
            }
            assert_eq!(rate(&throttle, &limits, after(31_000)), Some(expected), "{name}");
        }
    }

    fn pressed(throttle: &mut Throttle, settings: &ThrottleSettings, from: u64, seconds: u64) -> Vec<u32> {
        let second = |second: u64| {
            let millis = from + second * 1_000..from + (second + 1) * 1_000;
            millis.map(|ms| admitted(throttle, settings, 1, after(ms))).sum()
        };
        (0..seconds).map(second).collect()
    }

    fn throttled_at_twenty(limits: &ThrottleSettings) -> Throttle {
        let mut throttle = Throttle::new();
        for ms in (0..20_000).step_by(50) {
            assert_eq!(admitted(&mut throttle, limits, 1, after(ms)), 1);
        }
        throttle.throttled(limits, None, after(20_000));
        throttle
    }

    #[test]
    fn where_no_rate_is_set_the_measured_one_is_halved() {
        let limits = settings(64, None);
        let throttle = throttled_at_twenty(&limits);
        let halved = rate(&throttle, &limits, after(20_000)).expect("there is a limit now");
        assert!((halved - 10.0).abs() < 0.1, "20 a second were measured, {halved} is half of it");
    }

    #[test]
    fn what_waits_never_comes_all_at_once() {
        #[rustfmt::skip]
        let cases = [
            ("to the rate of before at five times that, then 4 % a second", settings(64, None), (21, 120, 1_000)),
            ("no further than what is configured", settings(64, Some(25.0)), (21, 25, 25)),
            ("never beyond what went well", ThrottleSettings { growth: Share::NONE, ..settings(64, None) }, (10, 10, 10)),
        ];
        for (name, limits, (soon, later, last)) in cases {
            let mut throttle = throttled_at_twenty(&settings(64, None));
            let made = pressed(&mut throttle, &limits, 20_000, 130);
            assert!(made.windows(2).all(|pair| pair[1] <= pair[0] + pair[0] / 4 + 2), "{name}: {made:?}");
            assert!(made[4] <= soon + 1, "{name}: {made:?}");
            assert!(made[44] <= later && made[129] <= last, "{name}: {made:?}");
            assert!(made[44] * 2 >= later, "{name}: {made:?}");
        }
    }

    #[test]
    fn what_is_learnt_is_kept_while_it_is_needed_and_forgotten_when_it_is_not() {
        let limits = ThrottleSettings { growth: Share::NONE, ..settings(64, None) };
        let mut throttle = throttled_at_twenty(&limits);
        pressed(&mut throttle, &limits, 20_000, 1_200);
        let last = 1_220_000;
        assert!(rate(&throttle, &limits, after(last + 599_000)).is_some(), "it was needed ten minutes ago");
        assert_eq!(throttle.flows_until(&limits), None);
        assert_eq!(rate(&throttle, &limits, after(last + 600_000)), None);
        assert_eq!(admitted(&mut throttle, &limits, 100, after(last + 600_000)), 100);
        assert!(throttle.flows_until(&limits).is_some());
        let brief = ThrottleSettings { memory: Duration::ZERO, ..limits };
        assert_eq!(rate(&throttled_at_twenty(&brief), &brief, after(20_000)), None, "nothing is remembered");
    }

    #[test]
    fn a_rate_never_falls_to_nothing() {
        #[rustfmt::skip]
        let cases = [
            ("a configured one",                        Some(100.0),  0.1),
            ("one that is slower than the floor stays", Some(0.001),  0.001),
            ("none, and nothing was measured",          None,         0.1),
        ];
        for (name, per_second, expected) in cases {
            let limits = settings(64, per_second);
            let mut throttle = Throttle::new();
            for hour in 0..100 {
                admitted(&mut throttle, &limits, 1, after(hour * 300_000));
                throttle.throttled(&limits, None, after(hour * 300_000));
            }
            assert_eq!(rate(&throttle, &limits, after(99 * 300_000)), Some(expected), "{name}");
        }
    }

    #[test]
    fn a_configured_rate_that_was_lowered_is_the_one_to_halve() {
        let mut throttle = Throttle::new();
        throttle.throttled(&settings(64, Some(100.0)), None, START);
        let lower = settings(64, Some(10.0));
        assert_eq!(admitted(&mut throttle, &lower, 1, after(1_000)), 1);
        throttle.throttled(&lower, None, after(1_000));
        assert_eq!(rate(&throttle, &lower, after(1_000)), Some(5.0));
    }

    #[derive(Clone, Debug)]
    enum Act {
        Admit,
        Release,
        Throttled { retry_after_ms: Option<u64> },
        Pass { ms: u64 },
    }

    fn any_act() -> impl Strategy<Value = Act> {
        prop_oneof![
            6 => Just(Act::Admit),
            4 => Just(Act::Release),
            1 => prop::option::of(0_u64..2_000).prop_map(|retry_after_ms| Act::Throttled { retry_after_ms }),
            4 => (0_u64..400).prop_map(|ms| Act::Pass { ms }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn limits_hold_and_it_never_wedges(
            in_flight in 1_u32..6,
            per_second in prop::option::of(0.5_f64..200.0),
            acts in prop::collection::vec(any_act(), 1..120),
        ) {
            let limits = settings(in_flight, per_second);
            let mut throttle = Throttle::new();
            let (mut now, mut slots, mut admitted_at) = (START, Vec::new(), Vec::new());
            for act in acts {
                match act {
                    Act::Admit => match throttle.admit(&limits, now) {
                        ThrottlePass::Go(slot) => {
                            slots.push(slot);
                            admitted_at.push(now);
                        }
                        ThrottlePass::Full => prop_assert_eq!(slots.len(), in_flight as usize),
                        ThrottlePass::WaitUntil(at) => prop_assert!(at > now),
                    },
                    Act::Release => slots.pop().into_iter().for_each(|slot| throttle.release(slot)),
                    Act::Throttled { retry_after_ms } => {
                        throttle.throttled(&limits, retry_after_ms.map(Duration::from_millis), now);
                    }
                    Act::Pass { ms } => now = now + Duration::from_millis(ms),
                }
                prop_assert!(slots.len() <= in_flight as usize);
                prop_assert_eq!(throttle.in_flight() as usize, slots.len());
            }
            for (first, &from) in admitted_at.iter().enumerate() {
                for (last, &to) in admitted_at.iter().enumerate().skip(first) {
                    let span = (to.since(from) + limits::RATE_BURST).as_secs_f64();
                    let most = per_second.map_or(f64::INFINITY, |rate| rate * span + 1.0);
                    prop_assert!((last - first + 1) as f64 <= most + 1e-6);
                }
            }
            for slot in slots {
                throttle.release(slot);
            }
            for (name, is_last) in [("the hold", false), ("the rate", false), ("nothing", true)] {
                match throttle.admit(&limits, now) {
                    ThrottlePass::Go(_) => break,
                    ThrottlePass::WaitUntil(at) if !is_last => now = at,
                    stuck => prop_assert!(false, "waiting for {name} gave {stuck:?}"),
                }
            }
        }
    }
}
