//! Errors of once-only work.
//!
//! Invariant: the caller that did the work gets its value, even if it could not be recorded.

use std::time::Duration;

use redrive_core::text::show_duration;

use super::RESULT_BYTES_MAX;
use super::store::{DedupStoreError, InvalidKey};

/// No shared result.
#[derive(Debug, thiserror::Error)]
pub enum OnceError<T, E> {
    /// The work failed; the next caller does it again.
    #[error("{0}")]
    Failed(E),
    /// Another caller does the work.
    #[error("work in progress; its lease ends in {} unless renewed", show_duration(*.retry_after))]
    InProgress {
        /// When its lease ends unless renewed.
        retry_after: Duration,
    },
    /// The store was unreachable for longer than the lease and another caller took over; the work was
    /// stopped.
    #[error("another caller took over the work")]
    Overtaken,
    /// The work was done but not recorded: the next caller may do it again.
    #[error("work done, but its result was not recorded: {why}")]
    Unrecorded {
        /// The result.
        value: T,
        /// Why it was not recorded.
        why: Unrecorded,
    },
    /// The recorded result has another type.
    #[error("recorded result has another type: {0}")]
    Unreadable(serde_json::Error),
    /// The store could not be asked, so the work was not done.
    #[error(transparent)]
    Store(#[from] DedupStoreError),
    /// The key is invalid.
    #[error(transparent)]
    OnceKey(#[from] InvalidKey),
}

/// A result could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Unrecorded {
    /// Another caller took over, and its result counts.
    #[error("another caller took over")]
    Overtaken,
    /// The store failed.
    #[error(transparent)]
    Store(DedupStoreError),
    /// It is not serializable as JSON.
    #[error("result is not serializable as JSON: {0}")]
    NotJson(serde_json::Error),
    /// It is too large.
    #[error("result has {bytes} bytes, the limit is {RESULT_BYTES_MAX}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl<T, E> OnceError<T, E> {
    /// When to try again, if known.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InProgress { retry_after } => Some(*retry_after),
            Self::Failed(_)
            | Self::Overtaken
            | Self::Unrecorded { .. }
            | Self::Unreadable(_)
            | Self::Store(_)
            | Self::OnceKey(_) => None,
        }
    }
}
