//! What an attempt knows about itself.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use redrive_core::ids::{self, DeliveryId};
use tokio::time::Instant;

/// One attempt of a call.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub(super) number: ids::Attempt,
    pub(super) key: CallKey,
    pub(super) limit: Duration,
    pub(super) deadline: Option<Instant>,
}

impl Attempt {
    /// Its number, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number.get()
    }

    /// Whether it is not the first.
    #[must_use]
    pub const fn is_retry(&self) -> bool {
        self.number.get() > 1
    }

    /// Its time limit.
    #[must_use]
    pub const fn limit(&self) -> Duration {
        self.limit
    }

    /// When the whole call ends, if it has a deadline.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Time left for the whole call, if it has a deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// An idempotency key: the same for all attempts of a call, different for each call.
    #[must_use]
    pub const fn idempotency_key(&self) -> CallKey {
        self.key
    }
}

thread_local! {
    /// A random number of this thread, and its number of calls.
    static NEXT: Cell<(u64, u64)> = Cell::new((RandomState::new().hash_one(0), 0));
}

/// Identifies a call; 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallKey(DeliveryId);

impl CallKey {
    /// A unique key: the thread's random number and its number of calls.
    pub(super) fn new() -> Self {
        NEXT.with(|next| {
            let (drawn, count) = next.get();
            next.set((drawn, count.wrapping_add(1)));
            Self(DeliveryId(u128::from(drawn) << 64 | u128::from(count)))
        })
    }

    /// Gives the next call of this thread the key that a rehearsal has.
    #[cfg(test)]
    pub(super) fn next_is_one() {
        NEXT.with(|next| next.set((0, 1)));
    }

    /// What the call's jitter depends on.
    pub(super) const fn as_delivery(self) -> DeliveryId {
        self.0
    }
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
