//! What a closed breaker remembers of its calls, and whether that is enough to open it.
//!
//! - It counts as its trip requires, and starts again when a new rule book has another trip.
//! - Only a failure opens a breaker: the trip is judged when one is counted, never on a success, though a
//!   success may be the call that reaches a failure rate's minimum.
//! - Memory is bounded: one number, the last N failure times, or a window of fixed size. Counting a success
//!   never allocates.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use super::OnSuccess;
use super::settings::{BreakerSettings, Trip};
use crate::policy::window::CallWindow;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct FailureTally {
    counts: TripCounts,
    /// By then, unless another failure comes, the failures so far are forgotten.
    clears_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
enum TripCounts {
    InARow(u32),
    Times(FailureTimes),
    Calls(CallWindow),
}

/// The last N failures, oldest first, so that the N-th knows exactly how long ago the first was.
#[derive(Clone, Debug, PartialEq)]
struct FailureTimes {
    times: VecDeque<Timestamp>,
    within: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TripJudgement {
    Holds,
    Trips { failures: u32 },
}

impl Default for FailureTally {
    fn default() -> Self {
        Self { counts: TripCounts::InARow(0), clears_at: Timestamp::NEVER }
    }
}

impl FailureTally {
    #[inline]
    pub(super) fn success(&mut self, trip: Trip, now: Timestamp) {
        match self.counts_for(trip, now) {
            TripCounts::InARow(failures) => *failures = 0,
            TripCounts::Times(_) => {}
            TripCounts::Calls(window) => window.count_call(now),
        }
    }

    pub(super) fn on_success(&self, trip: Trip) -> OnSuccess {
        if !self.counts.fit(trip) {
            return OnSuccess::Changes;
        }
        match &self.counts {
            TripCounts::InARow(0) | TripCounts::Times(_) => OnSuccess::Nothing,
            TripCounts::InARow(_) => OnSuccess::Changes,
            TripCounts::Calls(window) => OnSuccess::Counts { alike_until: window.counts_alike_until() },
        }
    }

    pub(super) fn successes(&mut self, count: u32, trip: Trip, at: Timestamp) {
        match self.counts_for(trip, at) {
            TripCounts::InARow(failures) => *failures = 0,
            TripCounts::Times(_) => {}
            TripCounts::Calls(window) => window.count_calls(count, at),
        }
    }

    pub(super) fn failure(&mut self, settings: &BreakerSettings, now: Timestamp) -> TripJudgement {
        if now >= self.clears_at {
            self.forget_failures();
        }
        self.clears_at = settings.reset().map_or(Timestamp::NEVER, |reset| now + reset);
        let trip = settings.trip();
        if self.counts_for(trip, now).count_failure(trip, now) {
            TripJudgement::Trips { failures: self.failures(now) }
        } else {
            TripJudgement::Holds
        }
    }

    pub(super) fn failures(&self, now: Timestamp) -> u32 {
        if now >= self.clears_at {
            return 0;
        }
        match &self.counts {
            TripCounts::InARow(failures) => *failures,
            TripCounts::Times(failures) => failures.count(now),
            TripCounts::Calls(window) => window.calls(now).failed,
        }
    }

    #[inline]
    fn counts_for(&mut self, trip: Trip, now: Timestamp) -> &mut TripCounts {
        if !self.counts.fit(trip) {
            self.counts = TripCounts::new(trip, now);
        }
        &mut self.counts
    }

    fn forget_failures(&mut self) {
        match &mut self.counts {
            TripCounts::InARow(failures) => *failures = 0,
            TripCounts::Times(failures) => failures.times.clear(),
            TripCounts::Calls(window) => window.forget_failures(),
        }
    }
}

impl TripCounts {
    fn new(trip: Trip, now: Timestamp) -> Self {
        match trip {
            Trip::Consecutive(_) => Self::InARow(0),
            Trip::Failures { within, .. } => Self::Times(FailureTimes { times: VecDeque::new(), within }),
            Trip::FailureRate { within, .. } => Self::Calls(CallWindow::new(within, now)),
        }
    }

    #[inline]
    fn fit(&self, trip: Trip) -> bool {
        match (self, trip) {
            (Self::InARow(_), Trip::Consecutive(_)) => true,
            (Self::Times(failures), Trip::Failures { within, .. }) => failures.within == within,
            (Self::Calls(window), Trip::FailureRate { within, .. }) => window.within() == within,
            (Self::InARow(_) | Self::Times(_) | Self::Calls(_), _) => false,
        }
    }

    fn count_failure(&mut self, trip: Trip, now: Timestamp) -> bool {
        match (self, trip) {
            (Self::InARow(failures), Trip::Consecutive(count)) => {
                *failures = failures.saturating_add(1);
                *failures >= count.get()
            }
            (Self::Times(failures), Trip::Failures { count, .. }) => {
                failures.push(count, now);
                failures.count(now) >= count.get()
            }
            (Self::Calls(window), Trip::FailureRate { share, of_at_least, .. }) => {
                window.count_failure(now);
                let calls = window.calls(now);
                // A share such as 7 % is no exact f64: 0.07 × 100 is a little more than 7.
                let enough = share.get() * f64::from(calls.made) - 1e-6;
                calls.made >= of_at_least.get() && f64::from(calls.failed) >= enough
            }
            (Self::InARow(_) | Self::Times(_) | Self::Calls(_), _) => {
                unreachable!("the counts were made for this trip just before")
            }
        }
    }
}

impl FailureTimes {
    fn push(&mut self, kept: NonZeroU32, now: Timestamp) {
        while self.times.len() >= kept.get() as usize {
            self.times.pop_front();
        }
        self.times.push_back(now);
    }

    fn count(&self, now: Timestamp) -> u32 {
        self.times.iter().filter(|&&failed_at| now.since(failed_at) <= self.within).map(|_| 1).sum()
    }
}
