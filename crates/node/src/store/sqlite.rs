//! A store in one SQLite file, for a single process: nothing to install, nothing to run beside it.
//!
//! A data folder holds the file `redrive.db`, what SQLite keeps beside it while it is open, and `lock`,
//! which tells other processes to keep out and goes when the store is closed. One connection writes; it waits for the disk once a batch, and
//! every table and index that a batch must touch grows at its end only. Readers have connections of their
//! own, here or in another process.
//!
//! Invariants: what a verb has changed in memory is what is durable, or the store says that it does not
//! know and does nothing more until it is opened anew; a file that is damaged, newer or not ours is never
//! changed.

mod file_identity;
mod audit;
mod housekeeping;
mod backup;
mod transactions;
mod dedup;
mod disk;
mod access_store;
mod encode;
mod fault;
mod bloom;
mod session_order;
mod imports;
mod letters;
mod lock;
mod wal_scan;
mod names;
mod changes;
mod commands;
mod purge;
mod reader;
mod reassign;
mod recover;
mod replay;
mod retention;
mod rows;
mod schema;
mod select;
mod settle;
mod sql;
mod state;
#[cfg(test)]
mod tests;
mod wal;
mod write;

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::{Load, Page};
use redrive_core::time::Timestamp;
use rusqlite::Connection;

use self::file_identity::PinnedFile;
use self::backup::LiveBackup;
use self::transactions::{StoreWriter, StoreIdentity};
use self::lock::{FolderLock, not_read};
use self::wal_scan::WalScan;
use self::reader::SqliteReader;
pub use self::wal::WalBounds;
use self::wal::{Checkpointer, DurableFrames, LogCopy};
use super::{
    Backup, BackupProgress, WriteBatch, HousekeepingStep, RetentionRules, StoreReader, RecoveredState, DiskRoom, Store, StoreError, BatchResult,
};
use redrive::private;

/// The file of a data folder.
const FILE: &str = "redrive.db";
/// The longest that one connection waits for another's lock.
const BUSY_MAX: Duration = Duration::from_millis(100);

/// How a store is run; the default is right but for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// With less than this free on its disk a store takes no new events, so that it can go on to settle.
    pub free_bytes_min: u64,
    /// How many hashes of events stay in memory before they are sealed.
    pub run_length: usize,
    /// The size of the write-ahead log.
    pub wal: WalBounds,
    /// The seed of a store that is made; none draws one.
    pub seed: Option<u64>,
    /// What is done about commits that a damaged log has lost.
    pub loss: LossPolicy,
}

/// What is done about commits that cannot be read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossPolicy {
    /// The store is not opened.
    Refused,
    /// The store is opened without them.
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

/// A store in a data folder.
#[derive(Debug)]
pub struct Sqlite {
    folder: PathBuf,
    options: Options,
    writer: WriterSlot,
    /// Which store it was when it was last known.
    was: Option<StoreIdentity>,
    /// What of the log holds all that was committed in this run.
    durable: DurableFrames,
    /// The last to go: it holds the database open until SQLite has let go of it.
    lock: FolderLock,
}

/// Where the writing connection is.
#[derive(Debug)]
enum WriterSlot {
    /// With us.
    Here(Box<StoreWriter>, Connection),
    /// With a copy in the making.
    Copying(Box<LiveBackup>),
    /// Nowhere: it is being moved, or could not be opened anew.
    Gone,
}

impl Sqlite {
    /// Opens the store of a folder, and makes both if they are not there.
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
        Ok(Self { folder: folder.to_owned(), options, writer, was: None, durable: DurableFrames::Unknown, lock })
    }

    /// A reader of a folder's store, beside the process that owns it.
    pub fn open_reader(folder: &Path) -> Result<Box<dyn StoreReader>, StoreError> {
        let path = folder.join(FILE);
        // SQLite would only say that it cannot open it. Opening it here to see why would free SQLite's locks when
        // it is closed, those of the writer in this process too.
        may_read(&path).map_err(|error| match backup::refuse_partial(folder) {
            Ok(()) => not_read(folder, &error),
            Err(partial) => partial,
        })?;
        Ok(Box::new(SqliteReader::open(&path)?))
    }

    /// The writing connection, so that tests can make it fail.
    #[cfg(test)]
    pub(super) fn connection(&mut self) -> &mut Connection {
        match &mut self.writer {
            WriterSlot::Here(_, connection) => connection,
            WriterSlot::Copying(_) | WriterSlot::Gone => panic!("the connection is elsewhere"),
        }
    }

    /// Does something with the writer, wherever it is.
    fn ask<T: Send + 'static>(
        &mut self,
        task: impl FnOnce(&mut StoreWriter, &Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.drop_abandoned_backup();
        match &mut self.writer {
            WriterSlot::Here(core, connection) => task(core, connection),
            WriterSlot::Copying(copying) => copying.ask(task),
            WriterSlot::Gone => Err(gone()),
        }
    }

    /// Ends a copy that nobody asks for any more.
    fn drop_abandoned_backup(&mut self) {
        if matches!(&self.writer, WriterSlot::Copying(copying) if copying.is_abandoned()) {
            self.end_backup();
        }
    }

    /// Takes the writer back from a copy in the making, which is given up.
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
        let copying = LiveBackup::start(&step.folder, target, *core, connection, begun);
        self.writer = WriterSlot::Copying(Box::new(copying));
        Ok(())
    }
}

fn gone() -> StoreError {
    StoreError::Unknown("the file could not be opened anew".into())
}

/// Whether this user may read the file.
#[cfg(unix)]
fn may_read(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::READ_OK)?)
}

#[cfg(not(unix))]
fn may_read(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

/// Looks for commits that SQLite would leave out in silence, and refuses them unless that is wanted.
fn check_log(folder: &Path, loss: LossPolicy, durable: DurableFrames) -> Result<WalScan, StoreError> {
    let path = file_identity::log_of(&folder.join(FILE));
    let walk = wal_scan::walk(&path, schema::PAGE_BYTES).map_err(|source| lock::not_opened(&path, &source))?;
    let walk = match (walk, durable) {
        // All that was committed is before it: what is there was left by commits that failed.
        (WalScan::Lost { frame, .. }, DurableFrames::Frames(frames)) if frame > frames => WalScan::Unfinished,
        (walk, _) => walk,
    };
    let shown = path.display();
    match (walk, loss) {
        (WalScan::Whole, _) => {}
        (WalScan::Unfinished, _) => {
            tracing::warn!(path = %shown, "the last transaction of the write-ahead log cannot be read: left out");
        }
        (WalScan::Lost { frame, commits }, LossPolicy::Accepted) => {
            tracing::error!(path = %shown, frame, commits, "the write-ahead log is damaged: commits are lost, as accepted");
        }
        (WalScan::Lost { frame, commits }, LossPolicy::Refused) => {
            return Err(StoreError::LostCommits { path, frame, commits });
        }
    }
    Ok(walk)
}

/// Starts the log anew, so that what is behind its last good commit is never taken for a loss.
fn empty_log(connection: &Connection) -> Option<LogCopy> {
    let emptied = Checkpointer::empty(connection);
    match &emptied {
        Ok(LogCopy::Whole) => {}
        Ok(LogCopy::Partly) => tracing::warn!("the write-ahead log was not emptied: it is being read"),
        Err(fault) => tracing::warn!(%fault, "the write-ahead log could not be emptied"),
    }
    emptied.ok()
}

fn open_writer(folder: &Path, database: &fs::File, options: &Options) -> Result<WriterSlot, StoreError> {
    // Two stores must not share jitter and hashes, or who knows one would know the other.
    let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
    let (core, connection) = StoreWriter::open(&folder.join(FILE), database, options, seed)?;
    Ok(WriterSlot::Here(Box::new(core), connection))
}

impl Store for Sqlite {
    fn recover(&mut self, now: Timestamp) -> Result<RecoveredState, StoreError> {
        self.ask(move |core, connection| core.recover(connection, now))
    }

    fn write(&mut self, batch: &WriteBatch, now: Timestamp) -> Result<BatchResult, StoreError> {
        if let WriterSlot::Here(core, connection) = &mut self.writer {
            return core.write(connection, batch, now);
        }
        let batch = batch.clone();
        self.ask(move |core, connection| core.write(connection, &batch, now))
    }

    fn load(&mut self, load: &Load) -> Result<Page, StoreError> {
        let load = load.clone();
        self.ask(move |core, connection| core.load(connection, &load))
    }

    fn housekeep(&mut self, keep: &RetentionRules, now: Timestamp) -> Result<HousekeepingStep, StoreError> {
        let keep = keep.clone();
        self.ask(move |core, connection| core.housekeep(connection, &keep, now))
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
            return Err(StoreError::NotWritten("the copy was given up, or is there already".into()));
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
            // Readers would stay on a log that is gone, beside a writer on a new one.
            core.check_place(connection)?;
        }
        // A folder that has gone away must not get a new, empty store in its place, nor another one.
        let fail = |source: io::Error| lock::not_opened(&path, &source);
        PinnedFile::new(&path, self.lock.database()).map_err(fail)?.check()?;
        // Before the file is closed, which may take the log away.
        // A loss was accepted for one start, not for the rest of the run.
        let walk = check_log(&self.folder, LossPolicy::Refused, self.durable)?;
        // What holds the file must let go of it first.
        self.writer = WriterSlot::Gone;
        let writer = open_writer(&self.folder, self.lock.database(), &self.options)?;
        // A commit that failed may have left its frames.
        if let WriterSlot::Here(_, connection) = &writer
            && walk != WalScan::Whole
            && empty_log(connection) == Some(LogCopy::Whole)
        {
            self.durable = DurableFrames::Frames(0);
        }
        if let (WriterSlot::Here(core, _), Some(was)) = (&writer, &self.was)
            && core.identity() != *was
        {
            let reason = "it is another store than the one that was there before".to_owned();
            return Err(StoreError::Damaged { what: path.display().to_string(), reason });
        }
        self.writer = writer;
        Ok(())
    }

    fn has_room(&mut self) -> Result<DiskRoom, StoreError> {
        self.ask(StoreWriter::check_place)?;
        // Rows that were deleted leave their pages to new ones, which take no more of the disk.
        let within = self.ask(|_, connection| StoreWriter::free_bytes(connection)).unwrap_or(0);
        disk::room(&self.folder, within, self.options.free_bytes_min)
    }

    fn close(mut self: Box<Self>, now: Timestamp) -> Result<(), StoreError> {
        self.end_backup();
        self.ask(move |core, connection| core.close(connection, now))
    }
}

/// Makes one batch durable in the store of a folder that nobody serves, and makes both if they are not there.
///
/// It is a short run of its own: whoever serves the folder next finds how long nobody was there, as ever.
pub fn write_once(folder: &Path, batch: &WriteBatch, now: Timestamp) -> Result<BatchResult, StoreError> {
    let mut store = Box::new(Sqlite::open(folder, Options::default())?);
    let now = store.recover(now)?.resumes_at;
    let written = store.write(batch, now)?;
    store.close(now)?;
    Ok(written)
}

/// What [`compact`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionResult {
    /// The size of the file before.
    pub bytes_before: u64,
    /// The size of the file now.
    pub bytes_after: u64,
}

/// Writes the store of a folder anew, without the room that deleted rows have left; nobody else may use it.
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
    // The new copy is made beside the file, not in memory: it may be large.
    connection.execute_batch("PRAGMA temp_store = file; VACUUM")?;
    connection.pragma_update_and_check(None, "wal_checkpoint", "truncate", |_| Ok(()))?;
    drop(connection);
    Ok(CompactionResult { bytes_before, bytes_after: bytes()? })
}
