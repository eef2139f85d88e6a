//! Backs up the store while writes continue.
//!
//! SQLite's backup includes changes made through the same connection and starts over on changes through any other.
//! So while a backup runs, the connection and its copier live on a thread's stack, and every store operation is
//! sent there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use rusqlite::Connection;
use rusqlite::backup::Backup as Copier;

use super::fault::{SqlFault, SqlResult};
use super::transactions::StoreWriter;
use super::{FILE, lock};
use crate::store::{BackupProgress, StoreError};
use redrive::private;

/// Name of an unfinished backup.
const PARTIAL: &str = "redrive.db.partial";

/// A backup in progress, with the writer.
#[derive(Debug)]
pub(super) struct LiveBackup {
    folder: PathBuf,
    tasks: SyncSender<WriterTask>,
    thread: JoinHandle<(StoreWriter, Connection, Connection)>,
    /// Alive while the caller keeps its [`Backup`](crate::store::Backup).
    begun: Weak<()>,
}

/// Runs on the backup's thread.
type WriterTask = Box<dyn FnOnce(&mut StoreWriter, &Connection, &SqlResult<Copier<'_, '_>>) + Send>;

impl LiveBackup {
    /// Takes the writer along, and returns it if no thread could be started.
    pub(super) fn start(
        folder: &Path,
        target: Connection,
        core: StoreWriter,
        source: Connection,
        begun: &Arc<()>,
    ) -> Result<Self, Box<(StoreWriter, Connection, io::Error)>> {
        let (tasks, receiver) = mpsc::sync_channel(1);
        let (hand_over, handed_over) = mpsc::sync_channel(1);
        let copy = move || {
            let (core, source, target) = handed_over.recv().expect("sent once the thread runs");
            run(core, source, target, &receiver)
        };
        // A thread that cannot be started drops its closure, so the writer must not be in it.
        let thread = match std::thread::Builder::new().name("redrive-backup".to_owned()).spawn(copy) {
            Ok(thread) => thread,
            Err(error) => return Err(Box::new((core, source, error))),
        };
        let _ = hand_over.send((core, source, target));
        Ok(Self { folder: folder.to_owned(), tasks, thread, begun: Arc::downgrade(begun) })
    }

    /// Whether the caller dropped its backup.
    pub(super) fn is_abandoned(&self) -> bool {
        self.begun.strong_count() == 0
    }

    pub(super) fn is_of(&self, begun: Option<&Arc<()>>) -> bool {
        begun.is_some_and(|begun| std::ptr::eq(Arc::as_ptr(begun), self.begun.as_ptr()))
    }

    pub(super) fn with_writer<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut StoreWriter, &Connection) -> T + Send + 'static,
    ) -> T {
        self.send(move |core, connection, _| task(core, connection))
    }

    fn send<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut StoreWriter, &Connection, &SqlResult<Copier<'_, '_>>) -> T + Send + 'static,
    ) -> T {
        let (sender, answer) = mpsc::sync_channel(1);
        let task: WriterTask = Box::new(move |core, connection, copier| {
            // The caller waits for it.
            let _ = sender.send(task(core, connection, copier));
        });
        self.tasks.send(task).expect("the thread takes tasks until the sender is dropped");
        answer.recv().expect("the thread answers every task")
    }

    /// When no pages remain, call [`Self::finish`].
    pub(super) fn step(&self, pages: u32) -> Result<BackupProgress, StoreError> {
        let pages = i32::try_from(pages.max(1)).unwrap_or(i32::MAX);
        let progress = self.send(move |_, _, copier| match copier {
            // Pages locked by others are copied in a later step.
            Ok(copier) => copier.step(pages).map(|_| copier.progress()).map_err(SqlFault::from),
            Err(_) => Err(SqlFault::unreadable("the file to copy to")),
        })?;
        let count = |pages: i32| u64::try_from(pages).unwrap_or_default();
        let (pages, remaining) = (count(progress.pagecount), count(progress.remaining));
        // The page count is unknown before the first step.
        Ok(BackupProgress { pages, remaining: if pages == 0 { 1 } else { remaining } })
    }

    /// Returns the writer and deletes the partial copy.
    pub(super) fn abandon(self) -> (StoreWriter, Connection) {
        let folder = self.folder.clone();
        let (core, source, target) = self.end();
        drop(target);
        // A file that cannot be removed is recognised by its name.
        discard(&folder);
        (core, source)
    }

    /// Returns the writer and turns the copy into a cleanly closed store.
    pub(super) fn finish(self) -> (StoreWriter, Connection, Result<(), StoreError>) {
        let folder = self.folder.clone();
        let (core, source, target) = self.end();
        let finished = finish(&folder, target);
        (core, source, finished)
    }

    fn end(self) -> (StoreWriter, Connection, Connection) {
        drop(self.tasks);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn run(
    mut core: StoreWriter,
    source: Connection,
    mut target: Connection,
    tasks: &Receiver<WriterTask>,
) -> (StoreWriter, Connection, Connection) {
    let copier = Copier::new(&source, &mut target).map_err(SqlFault::from);
    while let Ok(task) = tasks.recv() {
        task(&mut core, &source, &copier);
    }
    drop(copier);
    (core, source, target)
}

/// An empty store beside a partial backup could be mistaken for it.
pub(super) fn refuse_partial(folder: &Path) -> Result<(), StoreError> {
    if !folder.join(PARTIAL).exists() {
        return Ok(());
    }
    let reason =
        format!("it contains an unfinished backup ({PARTIAL}); make a new backup or delete that file");
    Err(StoreError::NotOpened { path: folder.to_owned(), reason })
}

/// Removes the file of an unfinished backup.
pub(super) fn discard(folder: &Path) {
    let _ = fs::remove_file(folder.join(PARTIAL));
}

/// Creates the target file in an empty folder.
pub(super) fn prepare(folder: &Path) -> Result<Connection, StoreError> {
    let fail = |source: io::Error| lock::not_opened(folder, &source);
    private::make_folder(folder).map_err(fail)?;
    if fs::read_dir(folder).map_err(fail)?.next().is_some() {
        let reason = "the backup folder must be empty".to_owned();
        return Err(StoreError::NotOpened { path: folder.to_owned(), reason });
    }
    let path = folder.join(PARTIAL);
    private::make_file(&path).map_err(fail)?;
    Connection::open(&path).map_err(|fault| SqlFault::from(fault).not_opened(&path))
}

fn finish(folder: &Path, target: Connection) -> Result<(), StoreError> {
    let path = folder.join(PARTIAL);
    // The copy must not look like a crashed run.
    target.execute("UPDATE meta SET running = 0", [])?;
    target.pragma_update_and_check(None, "wal_checkpoint", "truncate", |_| Ok(()))?;
    target.close().map_err(|(_, error)| error)?;
    let fail = |error: io::Error| StoreError::NotWritten(error.into());
    fs::rename(&path, folder.join(FILE)).map_err(fail)?;
    // The new name is durable once the folder is synced.
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(fail)
}
