//! The archive: every payload as it came, kept for audit beside the store and for longer than it.
//!
//! Events are accepted and delivered whether there is an archive or not. Once they are durable in the store,
//! the [`archivist`] writes them to the [`Archive`] one after the other, and remembers in the store how far it
//! has come; what is done when that fails is decided by [`redrive_core::archive`].
//!
//! Invariants: no name in an archive has anything in it that a sender chose; what was written once may be
//! written again and is the same; the place that is remembered never runs ahead of what is durable.

pub mod archivist;
pub mod entry;
pub mod folder;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::archive::Failure;
use redrive_core::ids::Receipt;

pub use self::entry::{Day, Entry, Kept};

/// Something that an archive is doing.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T, ArchiveFailure>> + Send + 'a>>;

/// Keeps events for audit: a folder, or one day a store of objects.
pub trait Archive: Send + Sync {
    /// Keeps an event; durable only once [`Archive::sync`] says so. Whoever asks may stop waiting, and ask
    /// again for the same event.
    fn put(&self, entry: Arc<Entry>) -> Doing<'_, ()>;

    /// Makes all that was put durable.
    fn sync(&self) -> Doing<'_, ()>;

    /// Deletes all days before that one; says how many.
    fn forget(&self, before: Day) -> Doing<'_, u64>;

    /// Finds events, the latest day first.
    fn get(&self, key: ArchiveKey) -> Doing<'_, Found>;
}

/// What goes by a key, up to a bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Events as they were accepted.
    pub kept: Vec<Kept>,
    /// What is called like one of them and is none, and why: each a sentence that names it.
    pub damaged: Vec<String>,
}

/// How an event is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveKey {
    /// By its id, which several sources may have used.
    Id(String),
    /// By its receipt.
    Receipt(Receipt),
}

/// Why an archive did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveFailure {
    /// It has no room at the moment, or asks to slow down.
    #[error("it takes nothing at the moment: {reason}")]
    Throttled {
        /// For how long, if it said so.
        retry_after: Option<Duration>,
        /// Its words.
        reason: String,
    },
    /// It did not answer.
    #[error("no answer within {within:?}")]
    TimedOut {
        /// How long it had.
        within: Duration,
    },
    /// It does not let us in, or is not what it should be: somebody has to act.
    #[error("it lets nobody in: {reason}")]
    Credentials {
        /// Its words.
        reason: String,
    },
    /// Anything else.
    #[error("{reason}")]
    Other {
        /// What went wrong.
        reason: String,
    },
}

impl ArchiveFailure {
    /// What matters of it for what follows.
    #[must_use]
    pub const fn failure(&self) -> Failure {
        match self {
            Self::Throttled { retry_after, .. } => Failure::Throttled { retry_after: *retry_after },
            Self::TimedOut { .. } => Failure::TimedOut,
            Self::Credentials { .. } => Failure::LockedOut,
            Self::Other { .. } => Failure::Other,
        }
    }
}
