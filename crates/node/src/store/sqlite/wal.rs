//! Keeps the write-ahead log within bounds, so that it neither grows for ever nor makes a write wait for long.
//!
//! A thread of its own copies the log into the file while the writer goes on; that gets nearly all of it.
//! At the bound the writer copies the little that is left and starts the log from its beginning. A reader
//! that looks at an old state keeps the log from starting anew; then it is tried again a little later, and
//! readers of ours look for a moment only.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::fault::SqliteFault;
use super::sql::Sql;

/// Sizes of the log, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalBounds {
    /// When this much is not in the file yet, the thread begins to copy.
    pub copy_from: u64,
    /// When the log is this large, the writer starts it anew.
    pub restart_at: u64,
}

/// The longest that the writer waits for the thread.
const COPY_MAX: Duration = Duration::from_secs(10);

impl WalBounds {
    /// A tenth of a second of heavy writing is copied at a time: the disk is busy with it for so short a
    /// time that the next commit hardly waits.
    pub const DEFAULT: Self = Self { copy_from: 4 << 20, restart_at: 64 << 20 };
}

/// Watches the log.
#[derive(Debug)]
pub(super) struct Checkpointer {
    bounds: WalBounds,
    frame_bytes: u64,
    /// When the log could not be started anew at this size, it is tried again at a larger one.
    restart_at: u64,
    durable: DurableFrames,
    helper: CopierThread,
}

/// The thread that copies.
#[derive(Debug)]
struct CopierThread {
    work: Option<SyncSender<()>>,
    done: Receiver<()>,
    is_busy: bool,
    thread: Option<JoinHandle<()>>,
}

/// How much of the log there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WalFrames {
    all: u64,
    copied: u64,
    /// Whether others kept a checkpoint from doing all of its work.
    is_blocked: bool,
}

/// How many frames of the log hold all that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DurableFrames {
    /// Nothing was committed since the file was opened.
    AsFound,
    Frames(u64),
    /// The log could not be looked at after the last commit.
    Unknown,
}

/// How much of a log an attempt to empty it has copied into the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogCopy {
    Whole,
    /// A reader looks at an old state.
    Partly,
}

impl Checkpointer {
    pub(super) fn start(connection: &Connection, path: &Path, bounds: WalBounds) -> Result<Self, SqliteFault> {
        let page_bytes: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let copier = Connection::open_with_flags(path, flags)?;
        let helper = CopierThread::start(copier);
        let frame_bytes = page_bytes.cast_unsigned();
        Ok(Self { bounds, frame_bytes, restart_at: bounds.restart_at, durable: DurableFrames::AsFound, helper })
    }

    /// Looks at the log after a transaction.
    pub(super) fn after_commit(&mut self, connection: &Connection) -> Result<(), SqliteFault> {
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

    /// How many frames of the log hold all that was committed.
    pub(super) const fn durable(&self) -> DurableFrames {
        self.durable
    }

    /// Empties the log. What is behind its last good commit would be taken for a loss once that has changed.
    pub(super) fn empty(connection: &Connection) -> Result<LogCopy, SqliteFault> {
        let frames = checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(if frames.is_blocked { LogCopy::Partly } else { LogCopy::Whole })
    }

    /// Copies the log into the database. Readers may keep it from being emptied; what counts is that all is copied.
    pub(super) fn save(connection: &Connection) -> Result<LogCopy, SqliteFault> {
        let frames = checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)")?;
        let is_copied = !frames.is_blocked || frames.copied >= frames.all;
        Ok(if is_copied { LogCopy::Whole } else { LogCopy::Partly })
    }

    fn restart(&mut self, connection: &Connection, bytes: u64) -> Result<(), SqliteFault> {
        // While the thread is at it, most of the work is being done; but there is an end to patience.
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

/// Runs a checkpoint; one that others are in the way of is no error, it has just done less.
fn checkpoint(connection: &Connection, sql: &str) -> Result<WalFrames, SqliteFault> {
    let found = connection.first(sql, [], |row| {
        let (is_blocked, all, copied): (bool, i64, i64) = row.try_into()?;
        // Who could not even look says -1.
        let (all, copied) = (all.max(0).cast_unsigned(), copied.max(0).cast_unsigned());
        Ok(WalFrames { all, copied, is_blocked })
    })?;
    found.ok_or(SqliteFault::unreadable("the size of the write-ahead log"))
}

impl CopierThread {
    fn start(connection: Connection) -> Self {
        let (work, orders) = mpsc::sync_channel(1);
        let (ended, done) = mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            while let Ok(()) = orders.recv() {
                // What fails here is done by the writer, who reports it.
                let _ = checkpoint(&connection, "PRAGMA wal_checkpoint(PASSIVE)");
                let _ = ended.send(());
            }
        });
        Self { work: Some(work), done, is_busy: false, thread: Some(thread) }
    }

    fn is_busy(&mut self) -> bool {
        self.is_busy &= self.done.try_recv().is_err();
        self.is_busy
    }

    /// Waits until the copy under way is done, but not for ever: then the log grows on, and nothing worse.
    fn wait(&mut self) {
        self.is_busy &= self.done.recv_timeout(COPY_MAX).is_err();
    }

    fn copy(&mut self) {
        if !self.is_busy()
            && let Some(work) = &self.work
        {
            // There is room for one order, and none is out while nobody is busy.
            self.is_busy = work.try_send(()).is_ok();
        }
    }
}

impl Drop for CopierThread {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing to tell that matters now.
            let _ = thread.join();
        }
    }
}
