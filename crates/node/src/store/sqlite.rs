//! A store in one SQLite file, for a single process.
//!
//! A data folder holds `redrive.db`, SQLite's companion files while it is open, and `lock`, which keeps other
//! processes out and is removed on close. One connection writes and syncs once per batch; every table and index
//! that a batch must touch grows at its end only. Readers have their own connections, in this or another process.
//!
//! Invariants: memory agrees with what is durable, or the store reports that it does not know and refuses to work
//! until reopened; a file that is damaged, newer or foreign is never changed.

mod access_store;
mod audit;
mod backup;
mod bloom;
mod changes;
mod commands;
mod dedup;
mod disk;
mod encode;
mod fault;
mod file_identity;
mod housekeeping;
mod imports;
mod letters;
mod lock;
mod names;
mod purge;
mod reader;
mod reassign;
mod recover;
mod replay;
mod retention;
mod rows;
mod schema;
mod select;
mod session_order;
mod settle;
mod sql;
mod state;
#[cfg(test)]
mod tests;
mod transactions;
mod wal;
mod wal_scan;
mod write;

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::{LoadRequest, LoadedPage};
use redrive_core::time::Timestamp;
use rusqlite::Connection;

use self::backup::LiveBackup;
use self::file_identity::PinnedFile;
use self::lock::{FolderLock, not_read};
use self::reader::SqliteReader;
use self::transactions::{StoreIdentity, StoreWriter};
pub use self::wal::WalBounds;
use self::wal::{Checkpointer, DurableFrames, LogCopy};
use self::wal_scan::WalScan;
use super::{
    Backup, BackupProgress, BatchResult, DiskRoom, HousekeepingStep, RecoveredState, RetentionRules, Store,
    StoreError, StoreReader, WriteBatch,
};
use redrive::private;

const FILE: &str = "redrive.db";
/// Longest wait for another connection's lock.
const BUSY_MAX: Duration = Duration::from_millis(100);

/// The defaults suit everything but tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// With less free disk space the store accepts no new events, so that it can still settle.
    pub free_bytes_min: u64,
    /// Event hashes kept in memory before they are sealed.
    pub run_length: usize,
    pub wal: WalBounds,
    /// Seed of a new store; `None` draws one.
    pub seed: Option<u64>,
    pub loss: LossPolicy,
}

/// What happens to commits that a damaged write-ahead log has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossPolicy {
    /// The store does not open.
    Refused,
    /// The store opens without them.
    Accepted,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            free_bytes_min: 256 << 20,
            run_length: 512 * 1024,
            wal: WalBounds::DEFAULT,
            seed: None,
            loss: LossPolicy::Refused,
        }
    }
}

#[derive(Debug)]
pub struct Sqlite {
    folder: PathBuf,
    options: Options,
    writer: WriterSlot,
    /// Identity when the store was last open.
    was: Option<StoreIdentity>,
    /// Frames of the log that hold all commits of this run.
    durable: DurableFrames,
    /// Dropped last: keeps the database open until SQLite has closed it.
    lock: FolderLock,
}

/// Owner of the writing connection.
#[derive(Debug)]
enum WriterSlot {
    Here(Box<StoreWriter>, Connection),
    /// A backup in progress has it.
    Copying(Box<LiveBackup>),
    /// Being moved, or could not be reopened.
    Gone,
}

impl Sqlite {
    /// Opens the store of a folder; creates both if missing.
    pub fn open(folder: &Path, options: Options) -> Result<Self, StoreError> {
        private::make_folder(folder).map_err(|source| lock::not_opened(folder, &source))?;
        let lock = FolderLock::take(folder)?;
        let walk = check_log(folder, options.loss, DurableFrames::Unknown)?;
        let writer = open_writer(folder, lock.database(), &options)?;
        if let WriterSlot::Here(_, connection) = &writer
            && walk != WalScan::Whole
        {
            let _ = empty_log(connection);
        }
        Ok(Self {
            folder: folder.to_owned(),
            options,
            writer,
            was: None,
            durable: DurableFrames::Unknown,
            lock,
        })
    }

    /// Opens a reader beside the process that owns the folder.
    pub fn open_reader(folder: &Path) -> Result<Box<dyn StoreReader>, StoreError> {
        let path = folder.join(FILE);
        // SQLite's own error would not say why. Opening and closing the file here would drop SQLite's locks, the
        // writer's in this process included.
        may_read(&path).map_err(|error| match backup::refuse_partial(folder) {
            Ok(()) => not_read(folder, &error),
            Err(partial) => partial,
        })?;
        Ok(Box::new(SqliteReader::open(&path)?))
    }

    /// Lets tests make the writing connection fail.
    #[cfg(test)]
    pub(super) fn connection(&mut self) -> &mut Connection {
        match &mut self.writer {
            WriterSlot::Here(_, connection) => connection,
            WriterSlot::Copying(_) | WriterSlot::Gone => panic!("the connection is elsewhere"),
        }
    }

    /// Runs a task with the writer, on the backup's thread if one is in progress.
    fn with_writer<T: Send + 'static>(
        &mut self,
        task: impl FnOnce(&mut StoreWriter, &Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.drop_abandoned_backup();
        match &mut self.writer {
            WriterSlot::Here(core, connection) => task(core, connection),
            WriterSlot::Copying(copying) => copying.with_writer(task),
            WriterSlot::Gone => Err(gone()),
        }
    }

    fn drop_abandoned_backup(&mut self) {
        if matches!(&self.writer, WriterSlot::Copying(copying) if copying.is_abandoned()) {
            self.end_backup();
        }
    }

    /// Abandons a backup and takes the writer back.
    fn end_backup(&mut self) {
        self.writer = match std::mem::replace(&mut self.writer, WriterSlot::Gone) {
            WriterSlot::Copying(copying) => {
                let (core, connection) = copying.abandon();
                WriterSlot::Here(Box::new(core), connection)
            }
            other => other,
        };
    }

    fn start_backup(&mut self, step: &mut Backup) -> Result<(), StoreError> {
        let target = backup::prepare(&step.folder)?;
        let WriterSlot::Here(core, connection) = std::mem::replace(&mut self.writer, WriterSlot::Gone) else {
            return Err(gone());
        };
        let begun = step.begun.insert(Arc::new(()));
        match LiveBackup::start(&step.folder, target, *core, connection, begun) {
            Ok(copying) => {
                self.writer = WriterSlot::Copying(Box::new(copying));
                Ok(())
            }
            Err(failed) => {
                let (core, connection, error) = *failed;
                self.writer = WriterSlot::Here(Box::new(core), connection);
                step.begun = None;
                backup::discard(&step.folder);
                Err(StoreError::NotWritten(error.into()))
            }
        }
    }
}

fn gone() -> StoreError {
    StoreError::Unknown("the database could not be reopened".into())
}

#[cfg(unix)]
fn may_read(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::READ_OK)?)
}

#[cfg(not(unix))]
fn may_read(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

/// Finds commits that SQLite would drop silently; an error unless the loss is accepted.
fn check_log(folder: &Path, loss: LossPolicy, durable: DurableFrames) -> Result<WalScan, StoreError> {
    let path = file_identity::log_of(&folder.join(FILE));
    let walk =
        wal_scan::walk(&path, schema::PAGE_BYTES).map_err(|source| lock::not_opened(&path, &source))?;
    let walk = match (walk, durable) {
        // All commits of this run are before it: these frames are left from commits that failed.
        (WalScan::Lost { frame, .. }, DurableFrames::Frames(frames)) if frame > frames => WalScan::Unfinished,
        (walk, _) => walk,
    };
    let shown = path.display();
    match (walk, loss) {
        (WalScan::Whole, _) => {}
        (WalScan::Unfinished, _) => {
            tracing::warn!(path = %shown, "last transaction of the write-ahead log is unreadable, ignored");
        }
        (WalScan::Lost { frame, commits }, LossPolicy::Accepted) => {
            tracing::error!(path = %shown, frame, commits, "write-ahead log damaged, loss of commits accepted");
        }
        (WalScan::Lost { frame, commits }, LossPolicy::Refused) => {
            return Err(StoreError::LostCommits { path, frame, commits });
        }
    }
    Ok(walk)
}

/// Restarts the log, so that frames after its last good commit never count as a loss.
fn empty_log(connection: &Connection) -> Option<LogCopy> {
    let emptied = Checkpointer::empty(connection);
    match &emptied {
        Ok(LogCopy::Whole) => {}
        Ok(LogCopy::Partly) => tracing::warn!("write-ahead log not truncated, a reader is active"),
        Err(fault) => tracing::warn!(%fault, "write-ahead log could not be truncated"),
    }
    emptied.ok()
}

fn open_writer(folder: &Path, database: &fs::File, options: &Options) -> Result<WriterSlot, StoreError> {
    // Stores must not share a seed, or knowing one would reveal the other.
    let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
    let (core, connection) = StoreWriter::open(&folder.join(FILE), database, options, seed)?;
    Ok(WriterSlot::Here(Box::new(core), connection))
}

impl Store for Sqlite {
    fn recover(&mut self, now: Timestamp) -> Result<RecoveredState, StoreError> {
        self.with_writer(move |core, connection| core.recover(connection, now))
    }

    fn write(&mut self, batch: &WriteBatch, now: Timestamp) -> Result<BatchResult, StoreError> {
        if let WriterSlot::Here(core, connection) = &mut self.writer {
            return core.write(connection, batch, now);
        }
        let batch = batch.clone();
        self.with_writer(move |core, connection| core.write(connection, &batch, now))
    }

    fn load(&mut self, load: &LoadRequest) -> Result<LoadedPage, StoreError> {
        let load = load.clone();
        self.with_writer(move |core, connection| core.load(connection, &load))
    }

    fn housekeep(&mut self, keep: &RetentionRules, now: Timestamp) -> Result<HousekeepingStep, StoreError> {
        let keep = keep.clone();
        self.with_writer(move |core, connection| core.housekeep(connection, &keep, now))
    }

    fn back_up(&mut self, step: &mut Backup) -> Result<BackupProgress, StoreError> {
        if step.begun.is_none() {
            self.end_backup();
            self.start_backup(step)?;
        }
        let copying = match &self.writer {
            WriterSlot::Copying(copying) if copying.is_of(step.begun.as_ref()) => Some(copying),
            WriterSlot::Copying(_) | WriterSlot::Here(..) | WriterSlot::Gone => None,
        };
        let Some(copying) = copying else {
            return Err(StoreError::NotWritten("the backup was abandoned or is already complete".into()));
        };
        let progress = copying.step(step.pages_per_step)?;
        if progress.remaining > 0 {
            return Ok(progress);
        }
        let WriterSlot::Copying(copying) = std::mem::replace(&mut self.writer, WriterSlot::Gone) else {
            unreachable!("it was there a moment ago");
        };
        let (core, connection, finished) = copying.finish();
        self.writer = WriterSlot::Here(Box::new(core), connection);
        finished.map(|()| progress)
    }

    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError> {
        Self::open_reader(&self.folder)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.end_backup();
        let path = self.folder.join(FILE);
        if let WriterSlot::Here(core, connection) = &mut self.writer {
            self.was = Some(core.identity());
            if core.durable() != DurableFrames::AsFound {
                self.durable = core.durable();
            }
            // Otherwise readers would stay on the deleted log and the writer use a new one.
            core.check_place(connection)?;
        }
        // Never create an empty store where a folder was moved away.
        let fail = |source: io::Error| lock::not_opened(&path, &source);
        PinnedFile::new(&path, self.lock.database()).map_err(fail)?.check()?;
        // Must come before closing the file, which may remove the log. An accepted loss covers one start, not the
        // rest of the run.
        let walk = check_log(&self.folder, LossPolicy::Refused, self.durable)?;
        // Close the old connection first.
        self.writer = WriterSlot::Gone;
        let writer = open_writer(&self.folder, self.lock.database(), &self.options)?;
        // A failed commit may have left frames.
        if let WriterSlot::Here(_, connection) = &writer
            && walk != WalScan::Whole
            && empty_log(connection) == Some(LogCopy::Whole)
        {
            self.durable = DurableFrames::Frames(0);
        }
        if let (WriterSlot::Here(core, _), Some(was)) = (&writer, &self.was)
            && core.identity() != *was
        {
            let reason = "it is a different store than before".to_owned();
            return Err(StoreError::Damaged { what: path.display().to_string(), reason });
        }
        self.writer = writer;
        Ok(())
    }

    fn has_room(&mut self) -> Result<DiskRoom, StoreError> {
        self.with_writer(StoreWriter::check_place)?;
        // Free pages within the file are reused first.
        let within = self.with_writer(|_, connection| StoreWriter::free_bytes(connection)).unwrap_or(0);
        disk::room(&self.folder, within, self.options.free_bytes_min)
    }

    fn close(mut self: Box<Self>, now: Timestamp) -> Result<(), StoreError> {
        self.end_backup();
        self.with_writer(move |core, connection| core.close(connection, now))
    }
}

/// Writes one batch to a folder that no server is using; creates both if missing. It counts as a short run of its
/// own.
pub fn write_once(folder: &Path, batch: &WriteBatch, now: Timestamp) -> Result<BatchResult, StoreError> {
    let mut store = Box::new(Sqlite::open(folder, Options::default())?);
    let now = store.recover(now)?.resumes_at;
    let written = store.write(batch, now)?;
    store.close(now)?;
    Ok(written)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionResult {
    pub bytes_before: u64,
    pub bytes_after: u64,
}

/// Rewrites the file without free pages. No other process may use the folder.
pub fn compact(folder: &Path) -> Result<CompactionResult, StoreError> {
    let path = folder.join(FILE);
    let bytes = || match fs::metadata(&path) {
        Ok(found) => Ok(found.len()),
        Err(source) => Err(lock::not_opened(&path, &source)),
    };
    let bytes_before = bytes()?;
    let _lock = FolderLock::take(folder)?;
    check_log(folder, LossPolicy::Refused, DurableFrames::Unknown)?;
    let connection = schema::open(&path, 0)?;
    // The temporary copy may be too large for memory.
    connection.execute_batch("PRAGMA temp_store = file; VACUUM")?;
    connection.pragma_update_and_check(None, "wal_checkpoint", "truncate", |_| Ok(()))?;
    drop(connection);
    Ok(CompactionResult { bytes_before, bytes_after: bytes()? })
}
