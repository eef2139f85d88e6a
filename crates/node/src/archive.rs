//! The archive: every payload as received, kept for audit for longer than the store keeps it.
//!
//! The [`archivist`] writes durable events to the [`Archive`] one after the other and stores its position;
//! [`redrive_core::archive`] decides how failures are handled. Delivery never waits for the archive.
//!
//! Invariants: names in an archive contain nothing that a sender chose; writing an event twice gives the same
//! file; the stored position never runs ahead of what is durable.

pub mod archivist;
pub mod entry;
pub mod folder;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::archive::ArchiveWriteFailure;
use redrive_core::ids::Receipt;

pub use self::entry::{ArchiveEntry, ArchivedEvent, Day};

pub type ArchiveFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ArchiveFailure>> + Send + 'a>>;

pub trait Archive: Send + Sync {
    /// Durable only after [`Archive::sync`]. The caller may stop waiting and put the same event again.
    fn put(&self, entry: Arc<ArchiveEntry>) -> ArchiveFuture<'_, ()>;

    fn sync(&self) -> ArchiveFuture<'_, ()>;

    /// Deletes all earlier days; returns how many.
    fn forget(&self, before: Day) -> ArchiveFuture<'_, u64>;

    /// Finds events, latest day first, up to a bound.
    fn get(&self, key: ArchiveKey) -> ArchiveFuture<'_, ArchiveMatches>;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveMatches {
    pub kept: Vec<ArchivedEvent>,
    /// Matching files that cannot be read, one sentence each.
    pub damaged: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveKey {
    /// Several sources may use the same id.
    Id(String),
    Receipt(Receipt),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveFailure {
    #[error("no space or throttled: {reason}")]
    Throttled { retry_after: Option<Duration>, reason: String },
    #[error("no answer within {within:?}")]
    TimedOut { within: Duration },
    /// Access denied or wrong kind of file: needs an operator.
    #[error("access denied: {reason}")]
    Credentials { reason: String },
    #[error("{reason}")]
    Other { reason: String },
}

impl ArchiveFailure {
    #[must_use]
    pub const fn failure(&self) -> ArchiveWriteFailure {
        match self {
            Self::Throttled { retry_after, .. } => {
                ArchiveWriteFailure::Throttled { retry_after: *retry_after }
            }
            Self::TimedOut { .. } => ArchiveWriteFailure::TimedOut,
            Self::Credentials { .. } => ArchiveWriteFailure::LockedOut,
            Self::Other { .. } => ArchiveWriteFailure::Other,
        }
    }
}
