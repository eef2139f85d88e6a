//! Errors of a store.

use std::path::PathBuf;

#[cfg(doc)]
use super::Store;

type ErrorSource = Box<dyn std::error::Error + Send + Sync>;

/// Why a store operation failed. Names a path only where a file or folder was to be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was changed; a retry may succeed.
    #[error("could not read or write the store: {0}")]
    NotWritten(#[source] ErrorSource),
    /// The commit may or may not be durable; [`Store::reopen`] resolves it.
    #[error("a commit to the store failed; it may or may not be durable: {0}")]
    Unknown(#[source] ErrorSource),
    /// Nothing was changed. [`Store::reopen`] frees what the store holds.
    #[error("out of memory while reading or writing the store")]
    OutOfMemory,
    /// The open files are no longer at their path. The last writes may exist only in them; [`Store::reopen`] works
    /// once they are back.
    #[error("{} was deleted, moved or replaced while it was open: {reason}; put it back, or restart with the right folder", path.display())]
    Displaced { path: PathBuf, reason: String },
    /// The write-ahead log is damaged in the middle; later commits cannot be read.
    #[error("{} is damaged at frame {frame}: {commits} committed transactions behind it cannot be read and would be lost; nothing was changed. Restore a backup, or accept the loss with `redrive serve --accept-loss`", path.display())]
    LostCommits {
        path: PathBuf,
        /// First unreadable frame, from 1.
        frame: u64,
        commits: u64,
    },
    #[error("{what} is damaged: {reason}; nothing was changed, restore a backup or move the folder away")]
    Damaged {
        /// The store, or the file that was opened.
        what: String,
        reason: String,
    },
    #[error("another redrive is running on {} (process {owner}); stop it, or use another folder with --data", path.display())]
    InUse {
        path: PathBuf,
        /// Process id, or `unknown`.
        owner: String,
    },
    #[error("{} has format {found}, but this release supports formats up to {known}; use a newer redrive", path.display())]
    TooNew {
        path: PathBuf,
        found: u32,
        /// Newest known format.
        known: u32,
    },
    #[error("could not start the writer thread: {reason}")]
    NoThread { reason: String },
    #[error("could not open {}: {reason}", path.display())]
    NotOpened { path: PathBuf, reason: String },
}

impl StoreError {
    /// Whether a batch that failed with this error may have been written.
    #[must_use]
    pub const fn leaves_unknown(&self) -> bool {
        match self {
            Self::Unknown(_) | Self::Displaced { .. } => true,
            Self::NotWritten(_)
            | Self::OutOfMemory
            | Self::LostCommits { .. }
            | Self::Damaged { .. }
            | Self::InUse { .. }
            | Self::TooNew { .. }
            | Self::NoThread { .. }
            | Self::NotOpened { .. } => false,
        }
    }

    /// Whether recovery takes [`Store::reopen`].
    #[must_use]
    pub const fn wants_reopening(&self) -> bool {
        self.leaves_unknown() || matches!(self, Self::OutOfMemory)
    }
}
