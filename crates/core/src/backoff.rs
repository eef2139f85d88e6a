//! How long to wait before a retry.
//!
//! `delay(n) = min(max, initial × factor^n)` for retry n = 0, 1, …, or the n-th of an explicit list,
//! then jitter. Jitter is a hash of seed, delivery and attempt and never a draw from a generator.

use std::time::Duration;

/// A retry policy that was checked when it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    schedule: Schedule,
    jitter: Jitter,
    retries: u32,
    window: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
#[expect(dead_code, reason = "the constructors are still to come")]
enum Schedule {
    Exponential { initial: Duration, factor: f64, max: Duration },
    Listed(Vec<Duration>),
}

/// How a delay is spread, so that many who failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    /// Not at all.
    None,
    /// Anything from 0 to the delay.
    Full,
    /// Anything from half the delay to all of it.
    Equal,
    /// Up to this much more.
    Plus(Duration),
    /// Up to this share more or less.
    SpreadShare(crate::text::Share),
    /// Up to this much more or less.
    SpreadBy(Duration),
    /// Anything from `initial` to three times the delay before, at most `max`.
    Decorrelated,
}

impl Backoff {
    /// How many retries it allows.
    #[must_use]
    pub const fn retries(&self) -> u32 {
        self.retries
    }
}
