//! What an attempt is told about itself.

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

    /// Whether an attempt went before it.
    #[must_use]
    pub const fn is_retry(&self) -> bool {
        self.number.get() > 1
    }

    /// How long it may take: then it is dropped and counts as timed out.
    #[must_use]
    pub const fn limit(&self) -> Duration {
        self.limit
    }

    /// When the whole call ends, if it has a deadline.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How much time the whole call has left, if it has a deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// What to send as an idempotency key: the same for every attempt of one call, and another for every call.
    #[must_use]
    pub const fn idempotency_key(&self) -> CallKey {
        self.key
    }
}

thread_local! {
    /// What this thread drew, and how many calls it has made.
    static NEXT: Cell<(u64, u64)> = Cell::new((RandomState::new().hash_one(0), 0));
}

/// Tells one call from all others; shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallKey(DeliveryId);

impl CallKey {
    /// A key that nobody else has: the draw of this thread and how many calls it has made.
    pub(super) fn new() -> Self {
        NEXT.with(|next| {
            let (drawn, count) = next.get();
            next.set((drawn, count.wrapping_add(1)));
            Self(DeliveryId(u128::from(drawn) << 64 | u128::from(count)))
        })
    }

    /// Has the next call of this thread the key that a rehearsal has.
    #[cfg(test)]
    pub(super) fn next_is_one() {
        NEXT.with(|next| next.set((0, 1)));
    }

    /// What the jitter of the call depends on.
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
