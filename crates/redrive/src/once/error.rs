//! Why work for a key has no result that all can have.
//!
//! Invariant: whoever did the work gets its value, also where it could not be written down.

use std::time::Duration;

use redrive_core::text::show_duration;

use super::RESULT_BYTES_MAX;
use super::store::{InvalidKey, StoreError};

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum OnceError<T, E> {
    /// The work itself failed. Nothing is kept of that: the next who comes does it again.
    #[error("{0}")]
    Failed(E),
    /// Another does the work now.
    #[error("the work is in progress, at most for {} unless it is renewed", show_duration(*.retry_after))]
    InProgress {
        /// The lease of who does it ends then, if it is not renewed.
        retry_after: Duration,
    },
    /// The store went unheard for longer than the lease, and another has taken over; the work was stopped.
    #[error("another has taken over the work")]
    Overtaken,
    /// The work was done, and could not be written down: the next who comes may do it again.
    #[error("the work was done, and its result could not be kept: {why}")]
    Unrecorded {
        /// What came of it.
        value: T,
        /// Why it could not be written down.
        why: Unrecorded,
    },
    /// The work was done before, and what came of it is not of the type that is asked for.
    #[error("what came of the work before is something else: {0}")]
    Unreadable(serde_json::Error),
    /// The store could not say whether it was done before, so it was not done.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is no key.
    #[error(transparent)]
    Key(#[from] InvalidKey),
}

/// Why what came of work could not be written down.
#[derive(Debug, thiserror::Error)]
pub enum Unrecorded {
    /// Another has taken over meanwhile, and its result is the one that counts.
    #[error("another has taken over meanwhile")]
    Overtaken,
    /// The store could not do it.
    #[error(transparent)]
    Store(StoreError),
    /// It cannot be written as JSON.
    #[error("it cannot be written as JSON: {0}")]
    NotJson(serde_json::Error),
    /// It is larger than what is kept.
    #[error("it has {bytes} bytes, and at most {RESULT_BYTES_MAX} are kept")]
    TooLarge {
        /// How large it is.
        bytes: usize,
    },
}

impl<T, E> OnceError<T, E> {
    /// When it is worth coming again, where that is known.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InProgress { retry_after } => Some(*retry_after),
            Self::Failed(_)
            | Self::Overtaken
            | Self::Unrecorded { .. }
            | Self::Unreadable(_)
            | Self::Store(_)
            | Self::Key(_) => None,
        }
    }
}
