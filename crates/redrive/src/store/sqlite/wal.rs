//! Keeps the write-ahead log within bounds, so that it neither grows for ever nor makes a write wait for long.
//!
//! A thread of its own copies the log into the file while the writer goes on; that gets nearly all of it.
//! At the bound the writer copies the little that is left and starts the log from its beginning. A reader
//! that looks at an old state keeps the log from starting anew; then it is tried again a little later, and
//! readers of ours look for a moment only.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;

use rusqlite::{Connection, OpenFlags};

use super::fault::Fault;

/// Sizes of the log, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalBounds {
    /// When this much is not in the file yet, the thread begins to copy.
    pub copy_from: u64,
    /// When the log is this large, the writer starts it anew.
    pub restart_at: u64,
}

impl WalBounds {
    /// Half a second of heavy writing is copied at a time.
    pub const DEFAULT: Self = Self { copy_from: 16 << 20, restart_at: 64 << 20 };
}

/// Watches the log.
#[derive(Debug)]
pub(super) struct Checkpointer {
    bounds: WalBounds,
    frame_bytes: u64,
    /// When the log could not be started anew at this size, it is tried again at a larger one.
    restart_at: u64,
    helper: Option<Helper>,
}

/// The thread that copies.
#[derive(Debug)]
struct Helper {
    work: Option<SyncSender<()>>,
    busy: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// How much of the log there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frames {
    all: u64,
    copied: u64,
}

impl Checkpointer {
    pub(super) fn start(connection: &Connection, path: &Path, bounds: WalBounds) -> Result<Self, Fault> {
        let page_bytes: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let copier = Connection::open_with_flags(path, flags)?;
        let helper = Some(Helper::start(copier));
        let frame_bytes = page_bytes.cast_unsigned();
        Ok(Self { bounds, frame_bytes, restart_at: bounds.restart_at, helper })
    }

    /// Looks at the log after a transaction.
    pub(super) fn after_commit(&mut self, connection: &Connection) -> Result<(), Fault> {
        let frames = checkpoint(connection, "PRAGMA wal_checkpoint(NOOP)")?;
        let bytes = frames.all * self.frame_bytes;
        if bytes >= self.restart_at {
            return self.restart(connection, bytes);
        }
        if (frames.all - frames.copied) * self.frame_bytes >= self.bounds.copy_from
            && let Some(helper) = &self.helper
        {
            helper.copy();
        }
        Ok(())
    }

    fn restart(&mut self, connection: &Connection, bytes: u64) -> Result<(), Fault> {
        let is_busy = self.helper.as_ref().is_some_and(Helper::is_busy);
        // While the thread is at it, most of the work is being done; but not for ever.
        if is_busy && bytes < 2 * self.bounds.restart_at {
            return Ok(());
        }
        let frames = checkpoint(connection, "PRAGMA wal_checkpoint(RESTART)")?;
        let is_new = frames.all == frames.copied;
        self.restart_at = if is_new { self.bounds.restart_at } else { bytes + self.bounds.copy_from };
        Ok(())
    }
}

/// Runs a checkpoint; one that others are in the way of is no error, it has just done less.
fn checkpoint(connection: &Connection, sql: &str) -> Result<Frames, Fault> {
    let read = |row: &rusqlite::Row<'_>| {
        let (busy, all, copied): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (all, copied) = (all.max(0).cast_unsigned(), copied.max(0).cast_unsigned());
        // Somebody still reads the old log, though all of it may be copied.
        Ok(Frames { all, copied: if busy == 0 { copied } else { copied.min(all.saturating_sub(1)) } })
    };
    Ok(connection.prepare_cached(sql)?.query_row([], read)?)
}

impl Helper {
    fn start(connection: Connection) -> Self {
        let (work, orders) = mpsc::sync_channel(1);
        let busy = Arc::new(AtomicBool::new(false));
        let is_busy = Arc::clone(&busy);
        let thread = std::thread::spawn(move || {
            while let Ok(()) = orders.recv() {
                // What fails here is done by the writer, who reports it.
                let _ = checkpoint(&connection, "PRAGMA wal_checkpoint(PASSIVE)");
                is_busy.store(false, Ordering::Release);
            }
        });
        Self { work: Some(work), busy, thread: Some(thread) }
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    fn copy(&self) {
        if let Some(work) = &self.work
            && !self.busy.swap(true, Ordering::AcqRel)
        {
            // There is room for one order, and none is out while nobody is busy.
            let _ = work.try_send(());
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing to tell that matters now.
            let _ = thread.join();
        }
    }
}
