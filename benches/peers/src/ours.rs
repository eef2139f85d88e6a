//! Redrive's side, and the two lower bounds: the bare call and the clock.
//!
//! `success` and `failure` of [`Guard`] do what the engine does around every attempt: ask the breaker,
//! make the call, classify what came back, decide, and tell the breaker.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use redrive_core::book::{self, connectors};
use redrive_core::ids::{Attempt, DeliveryId, Seed};
use redrive_core::policy::answer::{AnswerKind, TargetAnswer};
use redrive_core::policy::breaker::{Admission, Breaker, CountingUnit, RawBreaker, Trip};
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};
use redrive_core::policy::decide::{AttemptResult, History, Moment, Verdict, decide};
use redrive_core::policy::rule::Rule;
use redrive_core::time::Timestamp;

use crate::call::{self, Unavailable};
use crate::measure::Subject;

/// Ours as a caller uses it, who has to read the clock; the ratios refer to this one.
pub const WITH_CLOCK: &str = "redrive-core, and the clock";
const WITHOUT_CLOCK: &str = "redrive-core";

pub fn success() -> Vec<Subject> {
    let (mut guard, mut timed, clock) = (Guard::new(), Guard::new(), Clock::start());
    assert_eq!(Guard::new().success(7, Timestamp::EPOCH), Ok(7), "the call's result comes through");
    vec![
        Subject::new("bare call", |input| {
            let _ = black_box(call::succeed(input));
        }),
        clock_alone(),
        Subject::new(WITHOUT_CLOCK, move |input| {
            let _ = black_box(guard.success(input, Timestamp::from_nanos(input)));
        }),
        Subject::new(WITH_CLOCK, move |input| {
            let _ = black_box(timed.success(input, clock.now()));
        }),
    ]
}

pub fn failure() -> Vec<Subject> {
    let (mut guard, mut timed, clock) = (Guard::new(), Guard::new(), Clock::start());
    assert!(Guard::new().failure(7, Timestamp::EPOCH).is_some(), "a first failure is retried");
    vec![
        Subject::new("bare call", |input| {
            let _ = black_box(call::fail(input));
        }),
        clock_alone(),
        Subject::new(WITHOUT_CLOCK, move |input| {
            black_box(guard.failure(input, Timestamp::from_nanos(input)));
        }),
        Subject::new(WITH_CLOCK, move |input| {
            black_box(timed.failure(input, clock.now()));
        }),
    ]
}

/// A closed breaker and a retry policy, 3 retries, 100ms doubling up to 10s, with jitter, and the rest
/// of a rule: window, holds, reactions by category.
struct Guard {
    rule: Rule,
    breaker: Breaker,
    seed: Seed,
}

const BOOK: &str = "\
version: 1
retry_policies: { three: { initial: 100ms, max: 10s, retries: 3, window: 5m } }
services:
  target:
    target: { http: \"http://127.0.0.1/\" }
    retry: three
    breaker: kafkaBreaker
    events: [called]
";

const LEASE: Duration = Duration::from_secs(30);

impl Guard {
    fn new() -> Self {
        let book = book::read(BOOK, connectors::built_in()).book.expect("the book above is sound");
        let rule = book.rule("target", None, "called").expect("the service wants it");
        let mut rule = Rule::clone(rule);
        // The trip lies out of reach, so that the breaker stays closed however many calls fail.
        let raw = RawBreaker {
            trip: Trip::Consecutive(NonZeroU32::MAX),
            open: LEASE,
            probes: 1,
            close_after: None,
            reset: None,
            count: CountingUnit::Attempt,
        };
        let breaker = rule.breaker.as_mut().expect("the rule names one");
        breaker.settings = raw.try_into().expect("sound settings");
        Self { rule, breaker: Breaker::new(), seed: Seed(1) }
    }

    /// Asks the breaker, makes the call, decides, tells the breaker.
    #[inline]
    fn success(&mut self, input: u64, now: Timestamp) -> Result<u64, Unavailable> {
        let breaker = &self.rule.breaker.as_ref().expect("the rule has one").settings;
        let Admission::Allowed(permit) = self.breaker.admit(breaker, LEASE, now) else {
            return Err(Unavailable);
        };
        let result = call::succeed(input);
        let ended = AttemptResult::Outcome(Outcome::Delivered { matched: None });
        let decision = decide(&self.rule, &History::new(), &ended, &self.moment(input, now));
        self.breaker.settle(permit, decision.observation, breaker, now);
        result
    }

    /// Asks the breaker, makes the call, classifies, decides, tells the breaker: when the first retry is due.
    #[inline]
    fn failure(&mut self, input: u64, now: Timestamp) -> Option<Duration> {
        let breaker = &self.rule.breaker.as_ref().expect("the rule has one").settings;
        let Admission::Allowed(permit) = self.breaker.admit(breaker, LEASE, now) else { return None };
        call::fail(input).err()?;
        let what = AnswerKind::Http { status: 503, headers: &(), body: "" };
        let answer = TargetAnswer { what, message: "", retry_after: None };
        let outcome = classify(&answer, &self.rule.classify, Category::Transient);
        let moment = self.moment(input, now);
        let decision = decide(&self.rule, &History::new(), &AttemptResult::Outcome(outcome), &moment);
        self.breaker.settle(permit, decision.observation, breaker, now);
        match decision.verdict {
            Verdict::Retry { due_at } => Some(due_at.since(now)),
            _ => None,
        }
    }

    fn moment(&self, input: u64, now: Timestamp) -> Moment {
        let delivery = DeliveryId(u128::from(input));
        Moment { now, seed: self.seed, delivery, attempt: Attempt::FIRST }
    }
}

/// The time as a caller of the core keeps it: the wall clock at the start plus the monotonic clock.
struct Clock {
    wall: Timestamp,
    started_at: Instant,
}

impl Clock {
    fn start() -> Self {
        Self { wall: Timestamp::from_millis(1_700_000_000_000), started_at: Instant::now() }
    }

    fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Timestamp::from_nanos(self.wall.as_nanos().saturating_add(elapsed))
    }
}

fn clock_alone() -> Subject {
    let clock = Clock::start();
    Subject::new("clock alone", move |_| {
        black_box(clock.now());
    })
}
