//! Bounds the size of the write-ahead log.
//!
//! A thread copies the log into the database while the writer continues. At the bound the writer copies the rest
//! and restarts the log. A reader on an old snapshot prevents a restart, which is then retried later; our readers
//! are short.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::fault::{SqlFault, SqlResult};
use super::sql::Sql;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalBounds {
    /// Uncopied bytes at which the thread starts.
    pub copy_from: u64,
    /// Log size in bytes at which the writer restarts it.
    pub restart_at: u64,
}

const COPY_MAX: Duration = Duration::from_secs(10);

impl WalBounds {
    /// About 0.1 s of heavy writing per copy, so that the next commit hardly waits for the disk.
    pub const DEFAULT: Self = Self { copy_from: 4 << 20, restart_at: 64 << 20 };
}

#[derive(Debug)]
pub(super) struct Checkpointer {
    bounds: WalBounds,
    frame_bytes: u64,
    /// Grows after a restart that was blocked.
    restart_at: u64,
    durable: DurableFrames,
    helper: CopierThread,
}

/// Without a thread there is no `work`, and the writer's restart copies everything.
#[derive(Debug)]
struct CopierThread {
    work: Option<SyncSender<()>>,
    done: Receiver<()>,
    is_busy: bool,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WalFrames {
    all: u64,
    copied: u64,
    /// Whether other connections limited a checkpoint.
    is_blocked: bool,
}

/// Log frames that hold all commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DurableFrames {
    /// No commit since the file was opened.
    AsFound,
    Frames(u64),
    /// The log could not be read after the last commit.
    Unknown,
}

/// How much of the log was copied into the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogCopy {
    Whole,
    /// A reader is on an old snapshot.
    Partly,
}

impl Checkpointer {
    pub(super) fn start(connection: &Connection, path: &Path, bounds: WalBounds) -> SqlResult<Self> {
        let page_bytes: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let copier = Connection::open_with_flags(path, flags)?;
        let helper = CopierThread::start(copier);
        let frame_bytes = page_bytes.cast_unsigned();
        Ok(Self {
            bounds,
            frame_bytes,
            restart_at: bounds.restart_at,
            durable: DurableFrames::AsFound,
            helper,
        })
    }

    pub(super) fn after_commit(&mut self, connection: &Connection) -> SqlResult<()> {
        self.durable = DurableFrames::Unknown;
        let frames = checkpoint(connection, "PRAGMA wal_checkpoint(NOOP)")?;
        self.durable = DurableFrames::Frames(frames.all);
        let bytes = frames.all * self.frame_bytes;
        if bytes >= self.restart_at {
            return self.restart(connection, bytes);
        }
        if (frames.all - frames.copied) * self.frame_bytes >= self.bounds.copy_from {
            self.helper.copy();
        }
        Ok(())
    }

    pub(super) const fn durable(&self) -> DurableFrames {
        self.durable
    }

    /// Otherwise frames after its last good commit would count as a loss.
    pub(super) fn empty(connection: &Connection) -> SqlResult<LogCopy> {
        let frames = checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(if frames.is_blocked { LogCopy::Partly } else { LogCopy::Whole })
    }

    /// Readers may prevent truncation; it matters only that all is copied.
    pub(super) fn save(connection: &Connection) -> SqlResult<LogCopy> {
        let frames = checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)")?;
        let is_copied = !frames.is_blocked || frames.copied >= frames.all;
        Ok(if is_copied { LogCopy::Whole } else { LogCopy::Partly })
    }

    fn restart(&mut self, connection: &Connection, bytes: u64) -> SqlResult<()> {
        // The thread is doing most of the work; wait for it only at twice the bound.
        if self.helper.is_busy() {
            if bytes < 2 * self.bounds.restart_at {
                return Ok(());
            }
            self.helper.wait();
        }
        let frames = checkpoint(connection, "PRAGMA wal_checkpoint(RESTART)")?;
        self.restart_at =
            if frames.is_blocked { bytes + self.bounds.copy_from } else { self.bounds.restart_at };
        Ok(())
    }
}

/// A blocked checkpoint is not an error.
fn checkpoint(connection: &Connection, sql: &str) -> SqlResult<WalFrames> {
    let found = connection.first(sql, [], |row| {
        let (is_blocked, all, copied): (bool, i64, i64) = row.try_into()?;
        // -1 means unknown.
        let (all, copied) = (all.max(0).cast_unsigned(), copied.max(0).cast_unsigned());
        Ok(WalFrames { all, copied, is_blocked })
    })?;
    found.ok_or(SqlFault::unreadable("the size of the write-ahead log"))
}

impl CopierThread {
    fn start(connection: Connection) -> Self {
        let (work, orders) = mpsc::sync_channel(1);
        let (ended, done) = mpsc::sync_channel(1);
        let copy = move || {
            while let Ok(()) = orders.recv() {
                // The writer repeats and reports what fails here.
                let _ = checkpoint(&connection, "PRAGMA wal_checkpoint(PASSIVE)");
                let _ = ended.send(());
            }
        };
        let thread = std::thread::Builder::new().name("redrive-wal".to_owned()).spawn(copy);
        if let Err(error) = &thread {
            tracing::warn!(%error, "checkpoint thread not started; the writer makes checkpoints itself");
        }
        let thread = thread.ok();
        Self { work: thread.is_some().then_some(work), done, is_busy: false, thread }
    }

    fn is_busy(&mut self) -> bool {
        self.is_busy &= self.done.try_recv().is_err();
        self.is_busy
    }

    /// Gives up after [`COPY_MAX`]: then the log grows further.
    fn wait(&mut self) {
        self.is_busy &= self.done.recv_timeout(COPY_MAX).is_err();
    }

    fn copy(&mut self) {
        if !self.is_busy()
            && let Some(work) = &self.work
        {
            // Capacity is one, and no request is pending while idle.
            self.is_busy = work.try_send(()).is_ok();
        }
    }
}

impl Drop for CopierThread {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
