//! Makes a copy of the store while others write.
//!
//! SQLite copies page by page, and what the same connection changes meanwhile goes into the copy too; a
//! change through any other connection would make it begin again. So for as long as a copy is made, the
//! connection and its copier live on a thread's stack, and every verb goes there and back. Nothing of this
//! costs anything while no copy is made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use rusqlite::Connection;
use rusqlite::backup::{Backup, Progress};

use super::transactions::StoreWriter;
use super::fault::SqliteFault;
use super::{FILE, lock};
use crate::store::{BackupProgress, StoreError};
use redrive::private;

/// What the copy is called until it is whole.
const PARTIAL: &str = "redrive.db.partial";

/// A copy in the making, and the writer with it.
#[derive(Debug)]
pub(super) struct LiveBackup {
    folder: PathBuf,
    orders: SyncSender<Order>,
    thread: JoinHandle<(StoreWriter, Connection, Connection)>,
    /// Alive for as long as somebody asks for the copy.
    begun: Weak<()>,
}

type WriterTask = Box<dyn FnOnce(&mut StoreWriter, &Connection) + Send>;

enum Order {
    Do(WriterTask),
    Copy { pages: i32, answer: SyncSender<Result<Progress, SqliteFault>> },
}

impl LiveBackup {
    /// Takes the writer along.
    pub(super) fn start(
        folder: &Path,
        target: Connection,
        core: StoreWriter,
        source: Connection,
        begun: &Arc<()>,
    ) -> Self {
        let (orders, receiver) = mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || run(core, source, target, &receiver));
        Self { folder: folder.to_owned(), orders, thread, begun: Arc::downgrade(begun) }
    }

    /// Whether nobody asks for it any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.begun.strong_count() == 0
    }

    /// Whether it is the copy that began with that.
    pub(super) fn is_of(&self, begun: Option<&Arc<()>>) -> bool {
        begun.is_some_and(|begun| std::ptr::eq(Arc::as_ptr(begun), self.begun.as_ptr()))
    }

    /// Does something with the writer.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut StoreWriter, &Connection) -> T + Send + 'static,
    ) -> T {
        let (sender, answer) = mpsc::sync_channel(1);
        let task: WriterTask = Box::new(move |core, connection| {
            // Whoever asked waits for the answer.
            let _ = sender.send(task(core, connection));
        });
        self.orders.send(Order::Do(task)).expect("the thread takes orders until it has none");
        answer.recv().expect("the thread answers every order")
    }

    /// Copies some pages; when none remain, [`Self::finish`] makes it a store.
    pub(super) fn step(&self, pages: u32) -> Result<BackupProgress, StoreError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let pages = i32::try_from(pages.max(1)).unwrap_or(i32::MAX);
        self.orders.send(Order::Copy { pages, answer }).expect("the thread takes orders until it has none");
        let progress = answered.recv().expect("the thread answers every order")?;
        let count = |pages: i32| u64::try_from(pages).unwrap_or_default();
        let (pages, remaining) = (count(progress.pagecount), count(progress.remaining));
        // Before its first page a copy does not know how many there are.
        Ok(BackupProgress { pages, remaining: if pages == 0 { 1 } else { remaining } })
    }

    /// Gives the writer back and leaves nothing of the copy.
    pub(super) fn abandon(self) -> (StoreWriter, Connection) {
        let folder = self.folder.clone();
        let (core, source, target) = self.end();
        drop(target);
        // It was in a folder of its own; what cannot be removed is found there by its name.
        let _ = fs::remove_file(folder.join(PARTIAL));
        (core, source)
    }

    /// Gives the writer back and makes the copy a store that has ended its run well.
    pub(super) fn finish(self) -> (StoreWriter, Connection, Result<(), StoreError>) {
        let folder = self.folder.clone();
        let (core, source, target) = self.end();
        let finished = finish(&folder, target);
        (core, source, finished)
    }

    fn end(self) -> (StoreWriter, Connection, Connection) {
        drop(self.orders);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Do(_) => "Do",
            Self::Copy { .. } => "Copy",
        })
    }
}

fn run(
    mut core: StoreWriter,
    source: Connection,
    mut target: Connection,
    orders: &Receiver<Order>,
) -> (StoreWriter, Connection, Connection) {
    {
        let copier = Backup::new(&source, &mut target);
        while let Ok(order) = orders.recv() {
            match order {
                Order::Do(task) => task(&mut core, &source),
                Order::Copy { pages, answer } => {
                    let progress = match &copier {
                        // A page that somebody holds is copied by a later step.
                        Ok(copier) => copier.step(pages).map(|_| copier.progress()).map_err(SqliteFault::from),
                        Err(_) => Err(SqliteFault::unreadable("the file to copy to")),
                    };
                    let _ = answer.send(progress);
                }
            }
        }
    }
    (core, source, target)
}

/// Refuses a folder with a copy that was never finished: an empty store beside it would be taken for the copy.
pub(super) fn refuse_partial(folder: &Path) -> Result<(), StoreError> {
    if !folder.join(PARTIAL).exists() {
        return Ok(());
    }
    let reason =
        format!("it has a backup that was not finished ({PARTIAL}): make a new backup, or delete that file");
    Err(StoreError::NotOpened { path: folder.to_owned(), reason })
}

/// A folder that holds nothing, and in it the file to copy to.
pub(super) fn prepare(folder: &Path) -> Result<Connection, StoreError> {
    let fail = |source: io::Error| lock::not_opened(folder, &source);
    private::make_folder(folder).map_err(fail)?;
    if fs::read_dir(folder).map_err(fail)?.next().is_some() {
        let reason = "the folder for a copy must be empty".to_owned();
        return Err(StoreError::NotOpened { path: folder.to_owned(), reason });
    }
    let path = folder.join(PARTIAL);
    private::make_file(&path).map_err(fail)?;
    Connection::open(&path).map_err(|fault| SqliteFault::from(fault).not_opened(&path))
}

fn finish(folder: &Path, target: Connection) -> Result<(), StoreError> {
    let path = folder.join(PARTIAL);
    // Whoever opens the copy did not crash.
    target.execute("UPDATE meta SET running = 0", [])?;
    target.pragma_update_and_check(None, "wal_checkpoint", "truncate", |_| Ok(()))?;
    target.close().map_err(|(_, error)| error)?;
    let fail = |error: io::Error| StoreError::NotWritten(error.into());
    fs::rename(&path, folder.join(FILE)).map_err(fail)?;
    // The name is durable when the folder is.
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(fail)
}
