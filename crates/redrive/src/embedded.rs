//! One SQLite file that several processes of a machine share.
//!
//! It stores once-only work ([`crate::once`]) and breaker records ([`crate::shared`]). There is no server to run:
//! SQLite's locks coordinate the processes, and the file survives them.
//!
//! ```
//! use std::time::Duration;
//! use redrive::embedded::File;
//! use redrive::once::Once;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("state.db");
//! let once = Once::new(File::open(&path)?);
//! let week = Duration::from_secs(7 * 24 * 60 * 60);
//! let id = once.call("note/n-1", week, || async { Ok::<_, std::io::Error>("id-7".to_owned()) }).await?;
//! assert!(id.is_first());
//! # Ok(()) }
//! ```
//!
//! Invariants: a result is on disk before any caller gets it; a file that is damaged, newer or foreign is never
//! changed; no async thread waits for the disk; expired rows are deleted in small steps; and a file that is removed is
//! created again, so that all processes share one.

mod breakers;
mod file_thread;
mod leases;
mod schema;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::file_thread::{Durability, FileTask, FileThread, TaskFailed};
use self::leases::LeaseSpan;
pub use self::schema::OpenError;
use redrive_core::ids::DependencyName;
use redrive_core::policy::breaker::BreakerRecord;

use crate::BoxFuture;
use crate::clock::wall_clock;
use crate::once::{DedupStore, DedupStoreError, FencingToken, KeyState, OnceKey, Ownership};
use crate::shared::{Away, SharedState, Swap};
use crate::stale::ClockFn;

/// The SQLite library used here; connections passed in must be of the same version.
pub use rusqlite;

/// The open file; clones share it, and it closes with the last of them.
#[derive(Clone)]
pub struct File {
    path: Arc<PathBuf>,
    file_thread: Arc<FileThread>,
}

impl File {
    /// Opens or creates the file. Blocks for the disk, and for at most a few seconds while other processes
    /// open it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_by(path.as_ref(), Arc::new(wall_clock))
    }

    fn open_by(path: &Path, clock: ClockFn) -> Result<Self, OpenError> {
        let connection = schema::open(path)?;
        let file_thread =
            FileThread::start(connection, path, clock).map_err(|source| OpenError::thread(path, &source))?;
        Ok(Self { path: Arc::new(path.to_owned()), file_thread: Arc::new(file_thread) })
    }

    async fn ask<T: Send + 'static>(&self, task: FileTask<T>) -> Result<T, DedupStoreError> {
        self.file_thread
            .ask(task)
            .await
            .map_err(|error| DedupStoreError::Away { reason: self.in_words(&error) })
    }

    async fn ask_shared<T: Send + 'static>(&self, task: FileTask<T>) -> Result<T, Away> {
        self.file_thread.ask(task).await.map_err(|error| Away::because(self.in_words(&error)))
    }

    fn in_words(&self, TaskFailed(reason): &TaskFailed) -> String {
        format!("{}: {reason}", self.path.display())
    }
}

impl SharedState for File {
    fn load<'a>(
        &'a self,
        dependency: &'a DependencyName,
    ) -> BoxFuture<'a, Result<Option<BreakerRecord>, Away>> {
        let dependency = dependency.clone();
        let task = FileTask::reading(move |connection, _now| breakers::load(connection, &dependency));
        Box::pin(self.ask_shared(task))
    }

    fn swap<'a>(
        &'a self,
        expected: Option<&'a BreakerRecord>,
        record: &'a BreakerRecord,
    ) -> BoxFuture<'a, Result<Swap, Away>> {
        let (expected, record) = (expected.cloned(), record.clone());
        let task = FileTask::writing(Durability::Process, move |connection, _now| {
            breakers::swap(connection, expected.as_ref(), &record)
        });
        Box::pin(self.ask_shared(task))
    }
}

impl DedupStore for File {
    fn begin<'a>(
        &'a self,
        key: &'a OnceKey,
        lease: Duration,
    ) -> BoxFuture<'a, Result<KeyState, DedupStoreError>> {
        let (looked, marked, unheard) = (key.clone(), key.clone(), key.clone());
        let file_thread = Arc::clone(&self.file_thread);
        let task = FileTask::looking(
            move |connection, now| leases::look(connection, &looked, now),
            move |connection, now| leases::begin(connection, &marked, LeaseSpan { from: now, lasts: lease }),
        )
        .unless_heard(move |begun| {
            if let KeyState::Yours(token) = begun {
                file_thread.release(unheard, token);
            }
        });
        Box::pin(self.ask(task))
    }

    fn renew<'a>(
        &'a self,
        key: &'a OnceKey,
        token: FencingToken,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Ownership, DedupStoreError>> {
        let key = key.clone();
        let task = FileTask::writing(Durability::Process, move |connection, now| {
            leases::renew(connection, &key, token, LeaseSpan { from: now, lasts: lease })
        });
        Box::pin(self.ask(task))
    }

    fn finish<'a>(
        &'a self,
        key: &'a OnceKey,
        token: FencingToken,
        result: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Ownership, DedupStoreError>> {
        let (key, result) = (key.clone(), result.to_vec());
        let task = FileTask::writing(Durability::Disk, move |connection, now| {
            leases::finish(connection, &key, token, &result, LeaseSpan { from: now, lasts: ttl })
        });
        Box::pin(self.ask(task))
    }

    fn release(&self, key: &OnceKey, token: FencingToken) {
        self.file_thread.release(key.clone(), token);
    }

    fn forget<'a>(&'a self, key: &'a OnceKey) -> BoxFuture<'a, Result<(), DedupStoreError>> {
        let key = key.clone();
        let task =
            FileTask::writing(Durability::Disk, move |connection, _now| leases::forget(connection, &key));
        Box::pin(self.ask(task))
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
