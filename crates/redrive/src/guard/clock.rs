//! The clock of guards: the wall clock at the start, then the timers' clock.
//!
//! It never goes back, and stops where a test pauses the timers.

use redrive_core::time::Timestamp;
use tokio::time::Instant;

use crate::clock::wall_clock;

#[derive(Clone, Copy, Debug)]
pub(super) struct GuardClock {
    begun_at: Timestamp,
    begun: Instant,
}

impl GuardClock {
    /// A clock that shows the current wall-clock time.
    pub(super) fn start() -> Self {
        Self { begun_at: wall_clock(), begun: Instant::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.begun_at + self.begun.elapsed()
    }

    /// The same moment as an `Instant`, for timers.
    pub(super) fn instant_of(&self, at: Timestamp) -> Instant {
        self.begun + at.since(self.begun_at)
    }
}
