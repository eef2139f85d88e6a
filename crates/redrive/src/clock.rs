//! The time: the wall clock when the node started, and from there on a clock that nobody can set.
//!
//! Invariant: it never goes back, not even over a restart: it begins no earlier than the last thing that
//! the store remembers.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redrive_core::time::Timestamp;

/// A wall clock that is this far from ours has been set.
pub const STEP_MIN: Duration = Duration::from_secs(5);

/// Tells the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    begun_at: Timestamp,
    begun: Instant,
}

/// What the machine's clock says.
#[must_use]
pub fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::EPOCH + since
}

impl Clock {
    /// A clock that shows this now.
    #[must_use]
    pub fn starting_at(now: Timestamp) -> Self {
        Self { begun_at: now, begun: Instant::now() }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.begun_at + self.begun.elapsed()
    }

    /// The same point for timers.
    #[must_use]
    pub fn instant_of(&self, at: Timestamp) -> Instant {
        self.begun + at.since(self.begun_at)
    }
}
