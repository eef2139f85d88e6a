//! Holds back calls to one dependency: so many in flight, so many a second, none while it asks us to wait.
//!
//! Three limits, all of which a call must pass:
//!
//! - **In flight.** At most `in_flight` slots are out. A slot is given back by [`Throttle::release`]
//!   and by nothing else.
//! - **Hold.** A `Retry-After` is said by a dependency and not to a call: nobody calls before it is over.
//! - **Rate.** The configured one, if any. When the other side throttles, the rate is halved (the one
//!   measured over the last ten seconds where none is configured) and then grows by 5 % a second,
//!   until it is the configured one again or, where there is none, until it is twice the rate at
//!   which it was first throttled: by then the limit we met is clearly gone.
//!
//! Why a rate is halved once a second at most, and never during a hold: when a dependency begins to
//! throttle, every call in flight brings the same news. 64 calls would halve the rate 64 times, to
//! nothing, for a single reason. Calls made at the new rate have had time to answer after a second;
//! during a hold none is made, so whoever answers then was called before.
//!
//! Invariants:
//! - no more than `in_flight` slots are out, but for those given before the limit was lowered
//! - over any span, no more calls are admitted than the rate allows in it and in
//!   [`limits::RATE_BURST`], and one
//! - [`Pass::WaitUntil`] is always later than `now`; asking then finds the rate ready
//! - a rate never falls below one call in [`limits::RATE_MEASURED_OVER`], so it can always grow back

use std::num::NonZeroU32;
use std::time::Duration;

use crate::limits;
use crate::text::Rate;
use crate::time::Timestamp;
use crate::window::CallWindow;

const GROWTH_STEP: Duration = Duration::from_secs(1);

/// The limits of one dependency. Any values will do: their types have been checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleSettings {
    /// Calls in flight at once.
    pub in_flight: NonZeroU32,
    /// Calls a second, if that is limited.
    pub rate: Option<Rate>,
}

/// Holds back the calls to one dependency, whoever makes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throttle {
    in_flight: u32,
    hold_until: Option<Timestamp>,
    /// When the next call is due at the current rate; calls may run ahead of it by the burst.
    next_at: Timestamp,
    /// What is left of the rate since the other side throttled.
    cut: Option<Cut>,
    recent: Option<CallWindow>,
}

/// A rate that was halved and grows back.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cut {
    /// Calls a second, as of `grown_at`.
    rate: f64,
    /// Growth has been added up to here; later than now while held.
    grown_at: Timestamp,
    /// The next halving may be then.
    halves_again_at: Timestamp,
    /// The rate at which it was first throttled.
    first: f64,
}

/// Whether a call may be made now.
#[derive(Debug)]
pub enum Pass {
    /// Yes, in this slot.
    Go(Slot),
    /// Not before another call ends.
    Full,
    /// Not before then.
    WaitUntil(Timestamp),
}

/// The room that one call takes, until it is released. A slot that is dropped is never free again.
#[derive(Debug)]
#[must_use = "a slot is given back by `release`"]
pub struct Slot {
    _only_made_here: (),
}

impl Throttle {
    /// Nothing is in flight and nobody has asked us to wait.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to make one call now.
    #[inline]
    pub fn admit(&mut self, settings: &ThrottleSettings, now: Timestamp) -> Pass {
        if let Some(until) = self.hold_until {
            if now < until {
                return Pass::WaitUntil(until);
            }
            self.hold_until = None;
        }
        if self.in_flight >= settings.in_flight.get() {
            return Pass::Full;
        }
        self.grow(settings, now);
        if let Some(rate) = rate_of(self.cut, settings) {
            let ready_at = self.next_at - limits::RATE_BURST;
            if now < ready_at {
                return Pass::WaitUntil(ready_at);
            }
            self.next_at = self.next_at.max(now) + interval(rate);
        }
        self.recent.get_or_insert_with(|| CallWindow::new(limits::RATE_MEASURED_OVER, now)).count_call(now);
        self.in_flight += 1;
        Pass::Go(Slot { _only_made_here: () })
    }

    /// Until when calls may be let in without it, as long as no more than `in_flight` of them are out: nothing
    /// else limits them, and until then they are counted alike. None if something does.
    ///
    /// Who does so tells it by [`Self::take_stock`] before it asks anything else.
    #[must_use]
    pub fn flows_until(&self, settings: &ThrottleSettings) -> Option<Timestamp> {
        let is_calm = self.hold_until.is_none() && self.cut.is_none() && settings.rate.is_none();
        let recent = self.recent.as_ref()?;
        is_calm.then(|| recent.counts_alike_until())
    }

    /// Learns that so many calls were let in without it, and how many are in flight in all by now.
    pub fn take_stock(&mut self, let_in: u32, in_flight: u32, at: Timestamp) {
        if let Some(recent) = self.recent.as_mut().filter(|_| let_in > 0) {
            recent.count_calls(let_in, at);
        }
        self.in_flight = in_flight;
    }

    /// Gives a slot back when its call has ended, however it ended.
    ///
    /// # Panics
    ///
    /// If the slot is of another throttle, and that shows.
    #[inline]
    pub fn release(&mut self, _slot: Slot) {
        assert!(self.in_flight > 0, "a slot is released to the throttle that gave it");
        self.in_flight -= 1;
    }

    /// The other side asked us to wait: holds the dependency for that long and halves the rate.
    pub fn throttled(&mut self, settings: &ThrottleSettings, retry_after: Option<Duration>, now: Timestamp) {
        self.grow(settings, now);
        let first = self.cut.map_or_else(|| self.uncut_rate(settings, now), |cut| cut.first);
        let mut cut = self.cut.unwrap_or(Cut { rate: first, grown_at: now, halves_again_at: now, first });
        if now >= cut.halves_again_at {
            // A new rule book may have lowered the configured rate below what is left of the old one.
            let current = rate_of(Some(cut), settings).unwrap_or(first);
            cut.rate = (current / 2.0).max(floor().min(current));
            cut.halves_again_at = now + limits::RATE_HALVED_EVERY;
        }
        if let Some(wait) = retry_after {
            let asked_for = now + wait.min(limits::RETRY_AFTER_MAX);
            self.hold_until = self.hold_until.max(Some(asked_for));
        }
        // Nothing is learnt during a hold, so nothing grows then and nothing is halved.
        let resumes_at = self.hold_until.map_or(now, |until| until.max(now));
        cut.halves_again_at = cut.halves_again_at.max(resumes_at);
        cut.grown_at = resumes_at;
        self.cut = Some(cut);
    }

    /// Until when nobody may call because the other side said so; it may be over.
    #[must_use]
    pub const fn hold_until(&self) -> Option<Timestamp> {
        self.hold_until
    }

    /// Calls that were admitted and have not been released.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The rate at which calls are admitted now; none if nothing limits it.
    #[must_use]
    pub fn current_rate(&self, settings: &ThrottleSettings, now: Timestamp) -> Option<Rate> {
        let grown = self.cut.and_then(|cut| cut.grown(settings, now));
        rate_of(grown, settings).and_then(Rate::per_second)
    }

    #[inline]
    fn grow(&mut self, settings: &ThrottleSettings, now: Timestamp) {
        if let Some(cut) = self.cut
            && now.since(cut.grown_at) >= GROWTH_STEP
        {
            self.cut = cut.grown(settings, now);
        }
    }

    /// The rate that the first throttled answer halves.
    fn uncut_rate(&self, settings: &ThrottleSettings, now: Timestamp) -> f64 {
        let measured = self.recent.as_ref().map_or(0.0, |recent| {
            // A single second is too short to tell a burst from a rate.
            let span = recent.covered(now).max(Duration::from_secs(1));
            f64::from(recent.calls(now).made) / span.as_secs_f64()
        });
        settings.rate.map_or(measured.max(floor()), Rate::as_per_second)
    }
}

impl Cut {
    /// What it has grown to by now; none once it is no limit any more.
    fn grown(mut self, settings: &ThrottleSettings, now: Timestamp) -> Option<Self> {
        let enough = settings.rate.map_or(self.first * 2.0, Rate::as_per_second);
        // Step by step and not by a power, whose last digits differ between machines. Each step is
        // a twentieth, so it ends after some hundred of them, however long nobody asked.
        while self.rate < enough && now.since(self.grown_at) >= GROWTH_STEP {
            self.rate *= limits::RATE_GROWTH_PER_SECOND;
            self.grown_at = self.grown_at + GROWTH_STEP;
        }
        (self.rate < enough).then_some(self)
    }
}

fn rate_of(cut: Option<Cut>, settings: &ThrottleSettings) -> Option<f64> {
    let configured = settings.rate.map(Rate::as_per_second);
    match (cut, configured) {
        (Some(cut), Some(configured)) => Some(cut.rate.min(configured)),
        (Some(cut), None) => Some(cut.rate),
        (None, configured) => configured,
    }
}

/// One call in the time over which rates are measured: what is slower could not be told from nothing.
fn floor() -> f64 {
    1.0 / limits::RATE_MEASURED_OVER.as_secs_f64()
}

fn interval(rate: f64) -> Duration {
    // Rounded up, so that no span holds more calls than the rate allows; a cast stops at the ends.
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
        }
    }

    /// A `Retry-After` of so many seconds.
    const S1: Option<Duration> = Some(Duration::from_secs(1));
    const S5: Option<Duration> = Some(Duration::from_secs(5));
    const S30: Option<Duration> = Some(Duration::from_secs(30));
    const YEARS: Option<Duration> = Some(limits::DURATION_MAX);

    /// Makes calls that end at once, as many as are let through at that moment.
    fn admitted(throttle: &mut Throttle, settings: &ThrottleSettings, calls: u32, now: Timestamp) -> u32 {
        let mut count = 0;
        for _ in 0..calls {
            if let Pass::Go(slot) = throttle.admit(settings, now) {
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
        let Pass::Go(first) = throttle.admit(&two, START) else { panic!("there is room") };
        let Pass::Go(second) = throttle.admit(&two, START) else { panic!("there is room") };
        assert!(matches!(throttle.admit(&two, START), Pass::Full));
        throttle.release(first);
        assert!(matches!(throttle.admit(&settings(1, None), START), Pass::Full), "the limit was lowered");
        throttle.release(second);
        assert_eq!(throttle.in_flight(), 0);
        assert!(matches!(throttle.admit(&settings(1, None), START), Pass::Go(_)));
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
            assert!(matches!(early, Pass::WaitUntil(at) if at == until), "{name}: held");
            assert!(matches!(throttle.admit(&limits, until), Pass::Go(_)), "{name}: over");
            assert_eq!(throttle.hold_until(), None, "{name}: over");
        }
    }

    #[test]
    fn a_configured_rate_is_halved_and_grows_back() {
        #[rustfmt::skip]
        let cases = [
            ("not throttled",                         vec![],                                    0,      100.0),
            ("halved",                                vec![(0, None)],                           0,      50.0),
            ("5 % more after a second",               vec![(0, None)],                           1_000,  52.5),
            ("and again",                             vec![(0, None)],                           2_999,  55.125),
            ("back to what is configured, no more",   vec![(0, None)],                           15_000, 100.0),
            ("the crowd in flight halves it once",    vec![(0, None), (10, None), (999, None)],  999,    50.0),
            ("but it does not grow meanwhile",        vec![(0, None), (999, None)],              1_998,  50.0),
            ("halved again a second later",           vec![(0, None), (1_000, None)],            1_000,  26.25),
            ("no growth while held",                  vec![(0, S30)],                       30_999, 50.0),
            ("no halving while held",                 vec![(0, S30), (20_000, None)],       31_000, 52.5),
        ];
        for (name, throttled, later, expected) in cases {
            let limits = settings(64, Some(100.0));
            let mut throttle = Throttle::new();
            for (ms, wait) in throttled {
                throttle.throttled(&limits, wait, after(ms));
            }
            assert_eq!(rate(&throttle, &limits, after(later)), Some(expected), "{name}");
        }
    }

    #[test]
    fn where_no_rate_is_set_the_measured_one_is_halved() {
        let limits = settings(64, None);
        let mut throttle = Throttle::new();
        for ms in (0..20_000).step_by(50) {
            assert_eq!(admitted(&mut throttle, &limits, 1, after(ms)), 1);
        }
        assert_eq!(rate(&throttle, &limits, after(20_000)), None);
        throttle.throttled(&limits, None, after(20_000));
        let halved = rate(&throttle, &limits, after(20_000)).expect("there is a limit now");
        assert!((halved - 10.0).abs() < 0.1, "20 a second were measured, {halved} is half of it");
        assert!(rate(&throttle, &limits, after(48_000)).is_some(), "from half to twice takes 29 seconds");
        assert_eq!(rate(&throttle, &limits, after(49_000)), None, "then the limit is lifted");
        assert_eq!(admitted(&mut throttle, &limits, 100, after(49_000)), 100);
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
            for second in 0..100 {
                throttle.throttled(&limits, None, after(second * 1_000));
            }
            assert_eq!(rate(&throttle, &limits, after(99_000)), Some(expected), "{name}");
        }
    }

    #[test]
    fn a_configured_rate_that_was_lowered_is_the_one_to_halve() {
        let mut throttle = Throttle::new();
        throttle.throttled(&settings(64, Some(100.0)), None, START);
        let lower = settings(64, Some(10.0));
        throttle.throttled(&lower, None, after(500));
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
                        Pass::Go(slot) => {
                            slots.push(slot);
                            admitted_at.push(now);
                        }
                        Pass::Full => prop_assert_eq!(slots.len(), in_flight as usize),
                        Pass::WaitUntil(at) => prop_assert!(at > now),
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
                    Pass::Go(_) => break,
                    Pass::WaitUntil(at) if !is_last => now = at,
                    stuck => prop_assert!(false, "waiting for {name} gave {stuck:?}"),
                }
            }
        }
    }
}
