//! The time as guards see it: the wall clock when the book was opened, and from there on the clock of the timers.
//!
//! It never goes back, and where a test has paused the timers it stands still with them.

use redrive_core::time::Timestamp;
use tokio::time::Instant;

use crate::clock::wall_clock;

/// Tells the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    begun_at: Timestamp,
    begun: Instant,
}

impl Clock {
    /// A clock that shows what the wall clock shows now.
    pub(super) fn start() -> Self {
        Self { begun_at: wall_clock(), begun: Instant::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.begun_at + self.begun.elapsed()
    }

    /// The same point for timers.
    pub(super) fn instant_of(&self, at: Timestamp) -> Instant {
        self.begun + at.since(self.begun_at)
    }
}
