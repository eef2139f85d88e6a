//! Redrive's side, and the two lower bounds: the bare call and the clock.
//!
//! `success` and `failure` of [`Guard`] are the only places that call `redrive_core`. Until the core
//! has its breaker and its decision, they draw the jitter and no more, and the names below say so.

use std::hint::black_box;
use std::time::{Duration, Instant};

use redrive_core::ids::{Attempt, DeliveryId, Seed};
use redrive_core::time::Timestamp;

use crate::call::{self, Unavailable};
use crate::measure::Subject;

/// Ours as a caller uses it, who has to read the clock; the ratios refer to this one.
pub const WITH_CLOCK: &str = "redrive-core, jitter only yet, and the clock";
const WITHOUT_CLOCK: &str = "redrive-core, jitter only yet";

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

/// A closed breaker and a retry policy: 3 retries, 100ms doubling up to 10s, with jitter.
struct Guard {
    seed: Seed,
}

impl Guard {
    fn new() -> Self {
        Self { seed: Seed(1) }
    }

    /// Asks the breaker, makes the call, tells the breaker.
    #[inline]
    fn success(&mut self, input: u64, _now: Timestamp) -> Result<u64, Unavailable> {
        black_box(self.seed.draw(DeliveryId(u128::from(input)), Attempt::FIRST));
        call::succeed(input)
    }

    /// Asks the breaker, makes the call, tells the breaker, decides: the delay of the first retry.
    #[inline]
    fn failure(&mut self, input: u64, _now: Timestamp) -> Option<Duration> {
        call::fail(input).err()?;
        let draw = self.seed.draw(DeliveryId(u128::from(input)), Attempt::FIRST);
        Some(Duration::from_nanos(draw % 100_000_000))
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
