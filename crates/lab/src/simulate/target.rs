//! A simulated dependency: its modes over time, and its capacity.
//!
//! Calls beyond its capacity wait inside it in order. A caller that gives up does not cancel its call; the dependency
//! still works on it, which is how a retry storm can keep it down.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::agenda::CallAnswer;
use super::chance::{Curve, nanos_in, unit};
use crate::scenario::{Behaviour, CallFailure, Capacity, FailureMode, FailurePhase, Latency};
use redrive_core::hash::stable_64_of;
use redrive_core::limits;
use redrive_core::policy::backoff::nanos;

const REFUSED_AFTER: Duration = Duration::from_millis(1);
const REJECTED_AFTER: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct SimulatedTarget {
    curve: Curve,
    modes: Vec<(u64, u64, MoodState)>,
    next_mode: usize,
    inside: WorkQueue,
    /// Rate limits that no scenario can express, for tests.
    #[cfg(test)]
    pub limiter: Option<Limiter>,
}

#[cfg(test)]
pub(super) struct Limiter(pub Box<dyn FnMut(u64) -> Option<CallAnswer>>);

#[cfg(test)]
impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Limiter")
    }
}

#[derive(Debug)]
enum MoodState {
    Down,
    Hanging,
    Slow(Curve),
    Failing(Vec<(u16, f64)>),
    Throttled { per_call_nanos: u64, retry_after: Option<Duration>, next_at: u64 },
    Mixed(Vec<(CallFailure, f64)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallOutcome {
    pub said: CallAnswer,
    pub took: Duration,
    /// At the target, whatever the caller sees.
    pub takes_effect: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedCall {
    pub at_nanos: u64,
    pub limit: Duration,
    pub draw: u64,
    pub is_poison: bool,
}

impl SimulatedTarget {
    pub(super) fn new(behaviour: &Behaviour) -> Self {
        let state = |phase: &FailurePhase| {
            let state = match &phase.mode {
                FailureMode::Down => MoodState::Down,
                FailureMode::Hanging => MoodState::Hanging,
                FailureMode::Slow(latency) => MoodState::Slow(Curve::new(*latency)),
                FailureMode::Failing(shares) => {
                    MoodState::Failing(shares.iter().map(|(status, share)| (*status, share.get())).collect())
                }
                FailureMode::Throttled { rate, retry_after } => MoodState::Throttled {
                    per_call_nanos: nanos_in(1.0 / rate.as_per_second()),
                    retry_after: *retry_after,
                    next_at: 0,
                },
                FailureMode::Mixed(shares) => {
                    MoodState::Mixed(shares.iter().map(|(met, share)| (*met, share.get())).collect())
                }
            };
            (nanos(phase.at), nanos(phase.until()), state)
        };
        Self {
            curve: Curve::new(behaviour.latency.unwrap_or(Latency::USUAL)),
            modes: behaviour.phases.iter().map(state).collect(),
            next_mode: 0,
            inside: WorkQueue::new(behaviour.capacity.unwrap_or_default()),
            #[cfg(test)]
            limiter: None,
        }
    }

    /// Outside of incidents; `None` if unlimited.
    pub(super) fn per_second(&self) -> Option<f64> {
        let by_rate = self.inside.per_call_nanos.map(|nanos| 1e9 / nanos as f64);
        let by_slots =
            self.inside.concurrent.map(|concurrent| f64::from(concurrent) / self.curve.mean_seconds());
        match (by_rate, by_slots) {
            (Some(rate), Some(slots)) => Some(rate.min(slots)),
            (rate, slots) => rate.or(slots),
        }
    }

    /// `call.at_nanos` must not decrease.
    pub(super) fn call(&mut self, call: SimulatedCall) -> CallOutcome {
        let now = call.at_nanos;
        let failed =
            |said, after: Duration| CallOutcome { said, took: after.min(call.limit), takes_effect: false };
        let hangs = failed(CallAnswer::Nothing, call.limit);
        #[cfg(test)]
        if let Some(said) = self.limiter.as_mut().and_then(|limiter| limiter.0(now)) {
            return failed(said, REJECTED_AFTER);
        }
        while self.modes.get(self.next_mode).is_some_and(|(_, until, _)| *until <= now) {
            self.next_mode += 1;
        }
        let mode = self.modes.get_mut(self.next_mode).filter(|(from, ..)| *from <= now);
        let (mut curve, mut said) = (self.curve, CallAnswer::Done);
        let draw = || unit(stable_64_of(call.draw, 2));
        match mode.map(|(.., state)| state) {
            None => {}
            Some(MoodState::Down) => return failed(CallAnswer::Refused, REFUSED_AFTER),
            Some(MoodState::Hanging) => return hangs,
            Some(MoodState::Slow(slow)) => curve = *slow,
            Some(MoodState::Failing(shares)) => {
                said = fallen_on(shares, draw()).map_or(said, CallAnswer::Status);
            }
            Some(MoodState::Throttled { next_at, retry_after, .. }) if now < *next_at => {
                return failed(CallAnswer::TooMany(*retry_after), REJECTED_AFTER);
            }
            Some(MoodState::Throttled { per_call_nanos, next_at, .. }) => {
                *next_at = now.saturating_add(*per_call_nanos);
            }
            Some(MoodState::Mixed(shares)) => match fallen_on(shares, draw()) {
                Some(CallFailure::Refused) => return failed(CallAnswer::Refused, REFUSED_AFTER),
                Some(CallFailure::Nothing) => return hangs,
                Some(CallFailure::Status(429)) => return failed(CallAnswer::TooMany(None), REJECTED_AFTER),
                Some(CallFailure::Status(status)) => said = CallAnswer::Status(status),
                None => {}
            },
        }
        if call.is_poison && said == CallAnswer::Done {
            said = CallAnswer::Status(422);
        }
        let Some(took) = self.inside.work(now, curve.at(call.draw)) else {
            return failed(CallAnswer::Status(503), REJECTED_AFTER);
        };
        let takes_effect = said == CallAnswer::Done;
        let in_time = if took >= call.limit { (CallAnswer::Nothing, call.limit) } else { (said, took) };
        CallOutcome { said: in_time.0, took: in_time.1, takes_effect }
    }
}

fn fallen_on<T: Copy>(shares: &[(T, f64)], draw: f64) -> Option<T> {
    let mut below = 0.0;
    shares.iter().find_map(|(failure, share)| {
        below += share;
        (draw < below).then_some(*failure)
    })
}

#[derive(Debug)]
struct WorkQueue {
    per_call_nanos: Option<u64>,
    concurrent: Option<u32>,
    queue_max: usize,
    /// Share by which the work on a call grows per waiting call.
    growth: f64,
    next_at: u64,
    /// Completion times of the calls in progress and planned; at most `concurrent`.
    slots: BinaryHeap<Reverse<u64>>,
    waiting: VecDeque<u64>,
}

impl WorkQueue {
    fn new(capacity: Capacity) -> Self {
        Self {
            per_call_nanos: capacity.rate.map(|rate| nanos_in(1.0 / rate.as_per_second()).max(1)),
            concurrent: capacity.concurrent,
            queue_max: capacity.queue.unwrap_or(limits::SIMULATION_INSIDE_DEFAULT) as usize,
            growth: capacity.collapse.map_or(0.0, |share| share.get() / 100.0),
            next_at: 0,
            slots: BinaryHeap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// `None` if the queue is full.
    fn work(&mut self, now: u64, work: Duration) -> Option<Duration> {
        if self.per_call_nanos.is_none() && self.concurrent.is_none() {
            return Some(work);
        }
        while self.waiting.front().is_some_and(|begins| *begins <= now) {
            self.waiting.pop_front();
        }
        let stretch = 1.0 + self.growth * self.waiting.len() as f64;
        let mut begins = now;
        if self.per_call_nanos.is_some() {
            begins = begins.max(self.next_at);
        }
        let is_full = self.concurrent.is_some_and(|concurrent| self.slots.len() >= concurrent as usize);
        if is_full && let Some(Reverse(free_at)) = self.slots.peek() {
            begins = begins.max(*free_at);
        }
        if begins > now && self.waiting.len() >= self.queue_max {
            return None;
        }
        if begins > now {
            self.waiting.push_back(begins);
        }
        if let Some(per_call) = self.per_call_nanos {
            self.next_at = begins.saturating_add(nanos_in(per_call as f64 * 1e-9 * stretch));
        }
        let work = work.mul_f64(stretch);
        let done = begins.saturating_add(nanos(work));
        if self.concurrent.is_some() {
            if is_full {
                self.slots.pop();
            }
            self.slots.push(Reverse(done));
        }
        Some(Duration::from_nanos(done - now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::text::{Rate, Share};

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const ALWAYS_TEN: Latency = Latency { p50: ms(10), p99: ms(10) };

    fn target(capacity: Option<Capacity>, mode: Option<FailureMode>) -> SimulatedTarget {
        let phases = mode.map(|mode| FailurePhase { at: ms(0), lasting: ms(60_000), mode });
        SimulatedTarget::new(&Behaviour {
            latency: Some(ALWAYS_TEN),
            capacity,
            phases: phases.into_iter().collect(),
            calls: Vec::new(),
        })
    }

    fn knock(at: u64) -> SimulatedCall {
        SimulatedCall { at_nanos: at * 1_000_000, limit: ms(1_000), draw: at, is_poison: false }
    }

    #[test]
    fn a_mood_decides_what_a_caller_is_told() {
        let rate = Rate::per_second(1.0).expect("a rate");
        let throttled = FailureMode::Throttled { rate, retry_after: Some(ms(5_000)) };
        let slow = |millis| FailureMode::Slow(Latency { p50: ms(millis), p99: ms(millis) });
        let done = (CallAnswer::Done, true);
        #[rustfmt::skip]
        let cases = [
            ("all is well",                 None,                                    10,    done),
            ("no listener",                 Some(FailureMode::Down),                        1,     (CallAnswer::Refused, false)),
            ("it never answers",            Some(FailureMode::Hanging),                     1_000, (CallAnswer::Nothing, false)),
            ("it is slow",                  Some(slow(500)),                         500,   done),
            ("too slow, and takes it all the same", Some(slow(3_000)),               1_000, (CallAnswer::Nothing, true)),
            ("it fails",                    Some(FailureMode::Failing(vec![(503, Share::ALL)])), 10, (CallAnswer::Status(503), false)),
            ("it never fails",              Some(FailureMode::Failing(vec![(503, Share::NONE)])), 10, done),
            ("the first of many",           Some(throttled),                         10,    done),
        ];
        for (name, mode, took, (said, takes_effect)) in cases {
            let outcome = target(None, mode).call(knock(0));
            assert_eq!(outcome, CallOutcome { said, took: ms(took), takes_effect }, "{name}");
        }
        let poisoned = target(None, None).call(SimulatedCall { is_poison: true, ..knock(0) });
        assert_eq!((poisoned.said, poisoned.takes_effect), (CallAnswer::Status(422), false));
    }

    #[test]
    fn a_throttle_lets_through_what_its_rate_allows() {
        let rate = Rate::per_second(2.0).expect("a rate");
        let mut target = target(None, Some(FailureMode::Throttled { rate, retry_after: Some(ms(5_000)) }));
        let told = [0, 100, 499, 500, 600, 1_200].map(|at| target.call(knock(at)).said);
        let too_many = CallAnswer::TooMany(Some(ms(5_000)));
        assert_eq!(
            told,
            [CallAnswer::Done, too_many, too_many, CallAnswer::Done, too_many, CallAnswer::Done]
        );
        let hardly_any = Rate::per_second(1e-30).expect("a rate");
        let mut target =
            self::target(None, Some(FailureMode::Throttled { rate: hardly_any, retry_after: None }));
        let told = [5, 6, 50_000].map(|at| target.call(knock(at)).said);
        assert_eq!(told, [CallAnswer::Done, CallAnswer::TooMany(None), CallAnswer::TooMany(None)]);
    }

    #[test]
    fn shares_of_failures_are_those_of_the_calls() {
        let share = |percent: f64| Share::new(percent / 100.0).expect("a share");
        let mut target =
            target(None, Some(FailureMode::Failing(vec![(503, share(30.0)), (500, share(5.0))])));
        let (mut unavailable, mut broken) = (0, 0);
        for draw in 0..10_000 {
            match target.call(SimulatedCall { draw: stable_64_of(draw, 1), ..knock(1) }).said {
                CallAnswer::Status(503) => unavailable += 1,
                CallAnswer::Status(500) => broken += 1,
                _ => {}
            }
        }
        assert!((2_800..3_200).contains(&unavailable), "{unavailable}");
        assert!((400..600).contains(&broken), "{broken}");
    }

    #[test]
    fn what_cannot_be_taken_at_once_waits_inside() {
        let rate = |count| Rate::per_second(count);
        let by_rate = Capacity { rate: rate(10.0), ..Capacity::default() };
        let by_slots = Capacity { concurrent: Some(2), ..Capacity::default() };
        let with_room = Capacity { queue: Some(1), ..by_rate };
        let collapsing = Capacity { collapse: Some(Share::ALL), ..by_slots };
        // Six calls at one moment, each of 10 ms; 0 is turned away.
        #[rustfmt::skip]
        let cases = [
            ("everything",                 Capacity::default(), [10, 10, 10, 10, 10, 10]),
            ("ten in a second",            by_rate,             [10, 110, 210, 310, 410, 510]),
            ("two at once",                by_slots,            [10, 10, 20, 20, 30, 30]),
            ("one may wait",               with_room,           [10, 110, 0, 0, 0, 0]),
        ];
        for (name, capacity, expected) in cases {
            let mut target = target(Some(capacity), None);
            let told = expected.map(|_| match target.call(knock(0)) {
                CallOutcome { said: CallAnswer::Done, took, .. } => {
                    u64::try_from(took.as_millis()).expect("short")
                }
                _ => 0,
            });
            assert_eq!(told, expected, "{name}");
        }
        let mut target = target(Some(collapsing), None);
        let took =
            |target: &mut SimulatedTarget| (0..100).map(|_| target.call(knock(0)).took).last().expect("some");
        assert!(
            took(&mut target) > ms(700),
            "each that waits makes the work on others longer: {:?}",
            took(&mut target)
        );
    }

    #[test]
    fn a_caller_who_gives_up_takes_nothing_back() {
        let capacity = Capacity { rate: Rate::per_second(1.0), ..Capacity::default() };
        let mut target = target(Some(capacity), None);
        let told: Vec<CallAnswer> = (0..5).map(|_| target.call(knock(0)).said).collect();
        assert_eq!(told[0], CallAnswer::Done);
        assert_eq!(
            told[1..],
            [CallAnswer::Nothing; 4],
            "the second begins after a second, and nobody waits for it"
        );
        assert_eq!(
            target.call(knock(4_500)).said,
            CallAnswer::Done,
            "all of them have been worked on by then"
        );
        assert_eq!(target.per_second(), Some(1.0));
    }
}
