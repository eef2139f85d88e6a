//! Why a store did not do what it was asked.

use std::path::PathBuf;

#[cfg(doc)]
use super::Store;

/// What went wrong below the store.
type ErrorSource = Box<dyn std::error::Error + Send + Sync>;

/// Why a store did not do what it was asked. Only what concerns a file or folder that was to be opened names it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was changed; it may go better later.
    #[error("could not read or write the store: {0}")]
    NotWritten(#[source] ErrorSource),
    /// Nobody knows whether it is durable; [`Store::reopen`] shows.
    #[error("a commit to the store failed; it may or may not be durable: {0}")]
    Unknown(#[source] ErrorSource),
    /// There was not enough memory, and nothing was changed. [`Store::reopen`] gives back what the store holds.
    #[error("out of memory while reading or writing the store")]
    OutOfMemory,
    /// The files that are open are no longer the ones at their path. What was written last may be in them and
    /// nowhere else; [`Store::reopen`] works once they are back.
    #[error("{} was deleted, moved or replaced while it was open: {reason}; put it back, or restart on the folder that is to be used", path.display())]
    Displaced {
        /// Which file.
        path: PathBuf,
        /// What is at its path instead.
        reason: String,
    },
    /// The write-ahead log is damaged in the middle, and commits behind that place cannot be read.
    #[error("{} is damaged at frame {frame}: {commits} committed transactions behind it cannot be read and would be lost; nothing was changed. Restore a backup, or accept the loss with `redrive serve --accept-loss`", path.display())]
    LostCommits {
        /// The log.
        path: PathBuf,
        /// The first frame that cannot be read, counted from 1.
        frame: u64,
        /// How many commits would be lost.
        commits: u64,
    },
    /// What is stored cannot be read.
    #[error("{what} is damaged: {reason}; nothing was changed, restore a backup or move the folder away")]
    Damaged {
        /// The store, or the file that was to be opened.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process has it.
    #[error("another redrive is running on {} (process {owner}); stop it, or use another folder with --data", path.display())]
    InUse {
        /// Which folder.
        path: PathBuf,
        /// Who has it, as far as it said.
        owner: String,
    },
    /// A newer release wrote it.
    #[error("{} has format {found}, and this release knows formats up to {known}; use a newer redrive", path.display())]
    TooNew {
        /// Which folder.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// The machine has no thread for the writer.
    #[error("could not start the writer thread: {reason}")]
    NoThread {
        /// Why not.
        reason: String,
    },
    /// It cannot be opened.
    #[error("could not open {}: {reason}", path.display())]
    NotOpened {
        /// Which folder.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

impl StoreError {
    /// Whether it is open what is durable: a batch that failed with it may have been written all the same.
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

    /// Whether it takes [`Store::reopen`] to get over it.
    #[must_use]
    pub const fn wants_reopening(&self) -> bool {
        self.leaves_unknown() || matches!(self, Self::OutOfMemory)
    }
}
