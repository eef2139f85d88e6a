//! Circuit breaker settings (placeholder until the state machine lands in this file).
use crate::text::Share;
use std::num::NonZeroU32;
use std::time::Duration;

/// When a breaker opens, for how long, and what closes it again; checked when it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct BreakerSettings {
    trip: Trip,
    open: Duration,
    probes: NonZeroU32,
    close_after: NonZeroU32,
    reset: Option<Duration>,
    count: Count,
}

/// What opens a breaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trip {
    /// That many failures in a row.
    Consecutive(NonZeroU32),
    /// That many failures within a sliding time, successes between them or not.
    Failures {
        /// How many.
        count: NonZeroU32,
        /// Within which time.
        within: Duration,
    },
    /// That share of the calls within a sliding time, once there are enough of them.
    FailureRate {
        /// Which share.
        share: Share,
        /// Of at least that many calls.
        of_at_least: NonZeroU32,
        /// Within which time.
        within: Duration,
    },
}

/// What counts as one observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Every attempt.
    Attempt,
    /// A whole retried call, once, by its last attempt.
    Call,
}
