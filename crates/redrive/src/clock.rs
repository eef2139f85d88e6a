//! A clock that starts at the wall clock's time and then runs on monotonic time, so setting the machine's
//! clock does not move it.
//!
//! Invariant: it never goes back, also over a restart: it starts no earlier than the newest timestamp in the
//! store.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redrive_core::time::Timestamp;

/// A wall clock that differs from ours by more than this was set.
pub const STEP_MIN: Duration = Duration::from_secs(5);

/// A monotonic clock that yields timestamps.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    begun_at: Timestamp,
    begun: Instant,
}

/// The machine's wall clock.
#[must_use]
pub fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::EPOCH + since
}

impl MonotonicClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn starting_at(now: Timestamp) -> Self {
        Self { begun_at: now, begun: Instant::now() }
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.begun_at + self.begun.elapsed()
    }

    /// The same moment as an `Instant`, for timers.
    #[must_use]
    pub fn instant_of(&self, at: Timestamp) -> Instant {
        self.begun + at.since(self.begun_at)
    }
}
