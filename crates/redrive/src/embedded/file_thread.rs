//! The thread that reads and writes the file, so that no async thread waits for the disk.
//!
//! Tasks that arrive while a batch is written share the next transaction, and so one sync. A batch is synced
//! only if one of its tasks must survive the machine; the others only need to survive the process.
//!
//! Invariants: no caller gets a result before its transaction is committed; a failed transaction failed for
//! all of its tasks; and a caller that went away stops nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive_core::time::Timestamp;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::{breakers, leases, schema};
use crate::once::{FencingToken, OnceKey};
use crate::stale::ClockFn;

/// Capacity of the queue; further callers wait.
const WAITING_MAX: usize = 1_024;
/// Maximum number of tasks per transaction.
const BATCH_MAX: usize = 256;
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Rows deleted per sweep.
const SWEPT_AT_ONCE: usize = 100;

/// Why a task failed.
pub(super) struct TaskFailed(pub(super) String);

/// What a task must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// A crash of this process.
    Process,
    /// A crash of the machine.
    Disk,
}

type ReadFn<T> = Box<dyn FnOnce(&Connection, Timestamp) -> Result<Option<T>, rusqlite::Error> + Send>;
type WriteFn<T> = Box<dyn FnOnce(&Connection, Timestamp) -> Result<T, rusqlite::Error> + Send>;

pub(super) struct FileTask<T> {
    /// Tried first: a read that makes the write unnecessary.
    look: Option<ReadFn<T>>,
    /// Runs in a transaction if `look` had no result.
    work: Option<WriteFn<T>>,
    durability: Durability,
    /// Called with a result that no caller received.
    unheard: Option<Box<dyn FnOnce(T) + Send>>,
}

impl<T: 'static> FileTask<T> {
    pub(super) fn reading(
        look: impl Fn(&Connection, Timestamp) -> Result<T, rusqlite::Error> + Clone + Send + 'static,
    ) -> Self {
        let again = look.clone();
        Self::looking(move |connection, now| look(connection, now).map(Some), again)
    }

    pub(super) fn writing(
        durability: Durability,
        work: impl FnOnce(&Connection, Timestamp) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Self {
        Self { look: None, work: Some(Box::new(work)), durability, unheard: None }
    }

    /// A write that survives the process, skipped if `look` returns a result.
    pub(super) fn looking(
        look: impl FnOnce(&Connection, Timestamp) -> Result<Option<T>, rusqlite::Error> + Send + 'static,
        work: impl FnOnce(&Connection, Timestamp) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Self {
        Self { look: Some(Box::new(look)), ..Self::writing(Durability::Process, work) }
    }

    /// Undoes a result that no caller received.
    pub(super) fn unless_heard(self, undo: impl FnOnce(T) + Send + 'static) -> Self {
        Self { unheard: Some(Box::new(undo)), ..self }
    }
}

/// A result on its way to a caller that may have gone.
struct PendingReply<T> {
    came: Option<T>,
    unheard: Option<Box<dyn FnOnce(T) + Send>>,
}

impl<T> PendingReply<T> {
    fn heard(mut self) -> T {
        self.came.take().expect("each reply is taken once")
    }
}

impl<T> Drop for PendingReply<T> {
    fn drop(&mut self) {
        if let (Some(came), Some(unheard)) = (self.came.take(), self.unheard.take()) {
            unheard(came);
        }
    }
}

/// A task of any type with its caller.
trait QueuedTask: Send {
    fn durability(&self) -> Durability;
    /// Tries to finish by reading alone.
    fn look(&mut self, connection: &Connection, now: Timestamp) -> Result<ReadOutcome, rusqlite::Error>;
    fn work(&mut self, connection: &Connection, now: Timestamp) -> Result<(), rusqlite::Error>;
    /// Sends the result or the error to the caller.
    fn tell(self: Box<Self>, why_not: Option<&str>);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadOutcome {
    Done,
    NeedsWork,
}

struct TypedTask<T> {
    task: FileTask<T>,
    came: Option<T>,
    answer: oneshot::Sender<Result<PendingReply<T>, TaskFailed>>,
}

impl<T: Send> QueuedTask for TypedTask<T> {
    fn durability(&self) -> Durability {
        self.task.durability
    }

    fn look(&mut self, connection: &Connection, now: Timestamp) -> Result<ReadOutcome, rusqlite::Error> {
        let Some(look) = self.task.look.take() else { return Ok(ReadOutcome::NeedsWork) };
        self.came = look(connection, now)?;
        Ok(if self.came.is_some() { ReadOutcome::Done } else { ReadOutcome::NeedsWork })
    }

    fn work(&mut self, connection: &Connection, now: Timestamp) -> Result<(), rusqlite::Error> {
        let work = self.task.work.take().expect("each task runs once");
        self.came = Some(work(connection, now)?);
        Ok(())
    }

    fn tell(self: Box<Self>, why_not: Option<&str>) {
        let told = match (self.came, why_not) {
            (Some(came), None) => Ok(PendingReply { came: Some(came), unheard: self.task.unheard }),
            (_, Some(why)) => Err(TaskFailed(why.to_owned())),
            (None, None) => unreachable!("a task without an error has a result"),
        };
        // If the caller has gone, dropping the result undoes it.
        let _ = self.answer.send(told);
    }
}

/// Queues tasks for the thread; the thread ends when it is dropped.
pub(super) struct FileThread {
    orders: mpsc::Sender<Option<Box<dyn QueuedTask>>>,
    released: Arc<Mutex<Vec<(OnceKey, FencingToken)>>>,
}

impl FileThread {
    pub(super) fn start(connection: Connection, path: &Path, clock: ClockFn) -> io::Result<Self> {
        let (orders, waiting) = mpsc::channel(WAITING_MAX);
        let released: Arc<Mutex<Vec<(OnceKey, FencingToken)>>> = Arc::default();
        let path = std::path::absolute(path)?;
        let clerk = FileWorker {
            connection,
            identity: FileIdentity::of(&path),
            path,
            clock,
            released: Arc::clone(&released),
            synchronous: None,
            sweep_at: Timestamp::EPOCH,
        };
        std::thread::Builder::new().name("redrive-file".to_owned()).spawn(move || clerk.run(waiting))?;
        Ok(Self { orders, released })
    }

    pub(super) async fn ask<T: Send + 'static>(&self, task: FileTask<T>) -> Result<T, TaskFailed> {
        let gone = || TaskFailed("the thread of the file has ended".to_owned());
        let (answer, answered) = oneshot::channel();
        let order = Box::new(TypedTask { task, came: None, answer });
        self.orders.send(Some(order)).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone())).map(PendingReply::heard)
    }

    /// Queues the release of a key. Bounded by the number of keys held.
    pub(super) fn release(&self, key: OnceKey, token: FencingToken) {
        self.released.lock().expect("no code panics under this lock").push((key, token));
        // A full queue means that the thread is busy and will see the release anyway.
        let _ = self.orders.try_send(None);
    }
}

/// Distinguishes a file from another of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileIdentity {
    /// Device and inode.
    #[cfg(unix)]
    Known(u64, u64),
    #[cfg(unix)]
    Missing,
    Unknown,
}

impl FileIdentity {
    #[cfg(unix)]
    fn of(path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        match std::fs::metadata(path) {
            Ok(metadata) => Self::Known(metadata.dev(), metadata.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            Err(_) => Self::Unknown,
        }
    }

    /// Other systems do not allow removing an open file.
    #[cfg(not(unix))]
    fn of(_path: &Path) -> Self {
        Self::Unknown
    }
}

struct FileWorker {
    connection: Connection,
    path: PathBuf,
    /// The file that `connection` has open.
    identity: FileIdentity,
    clock: ClockFn,
    released: Arc<Mutex<Vec<(OnceKey, FencingToken)>>>,
    /// The current `synchronous` setting of the connection.
    synchronous: Option<Durability>,
    sweep_at: Timestamp,
}

impl FileWorker {
    fn run(mut self, mut waiting: mpsc::Receiver<Option<Box<dyn QueuedTask>>>) {
        while let Some(first) = waiting.blocking_recv() {
            let mut batch: Vec<_> = first.into_iter().collect();
            while batch.len() < BATCH_MAX
                && let Ok(next) = waiting.try_recv()
            {
                batch.extend(next);
            }
            if let Err(why) = self.follow_file() {
                for order in batch {
                    order.tell(Some(&why));
                }
                continue;
            }
            let now = (self.clock)();
            let released =
                std::mem::take(&mut *self.released.lock().expect("no code panics under this lock"));
            // The next caller must see releases, so nothing is answered by a read before they are written.
            let rest = if released.is_empty() { self.look(batch, now) } else { batch };
            self.write(rest, released, now);
            self.sweep(now);
        }
    }

    /// Reopens the file if it was removed or replaced, since other processes use the new one.
    fn follow_file(&mut self) -> Result<(), String> {
        let found = FileIdentity::of(&self.path);
        if found == self.identity || found == FileIdentity::Unknown {
            return Ok(());
        }
        self.connection = schema::open(&self.path).map_err(|error| error.to_string())?;
        self.synchronous = None;
        self.identity = FileIdentity::of(&self.path);
        tracing::error!(path = %self.path.display(), "shared state file was removed; its contents are lost, creating a new one");
        Ok(())
    }

    /// Finishes tasks that only need a read and returns the others.
    fn look(&self, batch: Vec<Box<dyn QueuedTask>>, now: Timestamp) -> Vec<Box<dyn QueuedTask>> {
        let mut rest = Vec::new();
        for mut order in batch {
            match order.look(&self.connection, now) {
                Ok(ReadOutcome::NeedsWork) => rest.push(order),
                Ok(ReadOutcome::Done) => order.tell(None),
                Err(error) => order.tell(Some(&error.to_string())),
            }
        }
        rest
    }

    fn write(
        &mut self,
        mut batch: Vec<Box<dyn QueuedTask>>,
        released: Vec<(OnceKey, FencingToken)>,
        now: Timestamp,
    ) {
        let Some(durability) = batch
            .iter()
            .map(|order| order.durability())
            .chain((!released.is_empty()).then_some(Durability::Process))
            .max()
        else {
            return;
        };
        let why_not =
            self.commit(&mut batch, &released, durability, now).err().map(|error| error.to_string());
        if why_not.is_some() {
            self.released.lock().expect("no code panics under this lock").extend(released);
        }
        for order in batch {
            order.tell(why_not.as_deref());
        }
    }

    fn commit(
        &mut self,
        batch: &mut [Box<dyn QueuedTask>],
        released: &[(OnceKey, FencingToken)],
        durability: Durability,
        now: Timestamp,
    ) -> Result<(), rusqlite::Error> {
        self.synchronise(durability)?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (key, token) in released {
            leases::release(&transaction, key, *token)?;
        }
        for order in batch {
            order.work(&transaction, now)?;
        }
        transaction.commit()
    }

    fn synchronise(&mut self, durability: Durability) -> Result<(), rusqlite::Error> {
        if self.synchronous == Some(durability) {
            return Ok(());
        }
        let mode = match durability {
            Durability::Process => "normal",
            Durability::Disk => "full",
        };
        self.connection.pragma_update(None, "synchronous", mode)?;
        self.synchronous = Some(durability);
        Ok(())
    }

    fn sweep(&mut self, now: Timestamp) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = match self.swept(now) {
            Ok(swept) if swept >= SWEPT_AT_ONCE => now,
            Ok(_) => now + SWEEP_EVERY,
            Err(error) => {
                tracing::warn!(%error, "could not delete expired rows");
                now + SWEEP_EVERY
            }
        };
    }
    /// The number of rows deleted.
    fn swept(&mut self, now: Timestamp) -> Result<usize, rusqlite::Error> {
        self.synchronise(Durability::Process)?;
        let leases = leases::sweep(&self.connection, SWEPT_AT_ONCE, now)?;
        let breakers = breakers::sweep(&self.connection, SWEPT_AT_ONCE, now)?;
        Ok(leases.max(breakers))
    }
}
