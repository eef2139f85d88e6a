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
mod desk;
mod marks;
mod schema;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::desk::{Desk, Durability, NotDone, Task};
use self::marks::Span;
pub use self::schema::OpenError;
use redrive_core::ids::DependencyName;
use redrive_core::policy::breaker::Record;

use crate::BoxFuture;
use crate::clock::wall_clock;
use crate::once::{Begun, DedupStore, Held, Key, StoreError, Token};
use crate::shared::{Away, SharedState, Swap};
use crate::stale::Clock;

/// The SQLite library used here; connections passed in must be of the same version.
pub use rusqlite;

/// The open file; clones share it, and it closes with the last of them.
#[derive(Clone)]
pub struct File {
    path: Arc<PathBuf>,
    desk: Arc<Desk>,
}

impl File {
    /// Opens or creates the file. Blocks for the disk, and for at most a few seconds while other processes
    /// open it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_by(path.as_ref(), Arc::new(wall_clock))
    }

    fn open_by(path: &Path, clock: Clock) -> Result<Self, OpenError> {
        let connection = schema::open(path)?;
        let desk = Desk::start(connection, path, clock).map_err(|source| OpenError::thread(path, &source))?;
        Ok(Self { path: Arc::new(path.to_owned()), desk: Arc::new(desk) })
    }

    async fn ask<T: Send + 'static>(&self, task: Task<T>) -> Result<T, StoreError> {
        self.desk.ask(task).await.map_err(|error| StoreError::Away { reason: self.in_words(&error) })
    }

    async fn ask_shared<T: Send + 'static>(&self, task: Task<T>) -> Result<T, Away> {
        self.desk.ask(task).await.map_err(|error| Away::because(self.in_words(&error)))
    }

    fn in_words(&self, NotDone(reason): &NotDone) -> String {
        format!("{}: {reason}", self.path.display())
    }
}

impl SharedState for File {
    fn load<'a>(&'a self, dependency: &'a DependencyName) -> BoxFuture<'a, Result<Option<Record>, Away>> {
        let dependency = dependency.clone();
        let task = Task::reading(move |connection, _now| breakers::load(connection, &dependency));
        Box::pin(self.ask_shared(task))
    }

    fn swap<'a>(
        &'a self,
        expected: Option<&'a Record>,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, Away>> {
        let (expected, record) = (expected.cloned(), record.clone());
        let task = Task::writing(Durability::Process, move |connection, _now| {
            breakers::swap(connection, expected.as_ref(), &record)
        });
        Box::pin(self.ask_shared(task))
    }
}

impl DedupStore for File {
    fn begin<'a>(&'a self, key: &'a Key, lease: Duration) -> BoxFuture<'a, Result<Begun, StoreError>> {
        let (looked, marked, unheard) = (key.clone(), key.clone(), key.clone());
        let desk = Arc::clone(&self.desk);
        let task = Task::looking(
            move |connection, now| marks::look(connection, &looked, now),
            move |connection, now| marks::begin(connection, &marked, Span { from: now, lasts: lease }),
        )
        .unless_heard(move |begun| {
            if let Begun::Yours(token) = begun {
                desk.release(unheard, token);
            }
        });
        Box::pin(self.ask(task))
    }

    fn renew<'a>(
        &'a self,
        key: &'a Key,
        token: Token,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Held, StoreError>> {
        let key = key.clone();
        let task = Task::writing(Durability::Process, move |connection, now| {
            marks::renew(connection, &key, token, Span { from: now, lasts: lease })
        });
        Box::pin(self.ask(task))
    }

    fn finish<'a>(
        &'a self,
        key: &'a Key,
        token: Token,
        result: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Held, StoreError>> {
        let (key, result) = (key.clone(), result.to_vec());
        let task = Task::writing(Durability::Disk, move |connection, now| {
            marks::finish(connection, &key, token, &result, Span { from: now, lasts: ttl })
        });
        Box::pin(self.ask(task))
    }

    fn release(&self, key: &Key, token: Token) {
        self.desk.release(key.clone(), token);
    }

    fn forget<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), StoreError>> {
        let key = key.clone();
        let task = Task::writing(Durability::Disk, move |connection, _now| marks::forget(connection, &key));
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
