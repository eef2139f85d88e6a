//! The thread that reads and writes the file for all of this process, so that no async thread waits for a disk.
//!
//! What waits is done together: whatever has come while the last batch was written shares one transaction, and
//! so one wait for the disk. A batch waits for it only if something in it must survive the machine; the rest
//! survives the process, since the system has it by then.
//!
//! Invariants: nobody hears that something was done before its transaction is committed; a transaction that
//! fails was done for nobody; and who has asked and gone stops nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive_core::time::Timestamp;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::{breakers, marks, schema};
use crate::once::{Key, Token};
use crate::stale::Clock;

/// The most that wait for the thread; who comes then waits for a place.
const WAITING_MAX: usize = 1_024;
/// The most that share a transaction.
const BATCH_MAX: usize = 256;
/// How often it is looked for what has expired.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// The most that is swept at once, so that nobody waits for a long sweep.
const SWEPT_AT_ONCE: usize = 100;

/// Why something was not done, in words.
pub(super) struct NotDone(pub(super) String);

/// What something must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// This process.
    Process,
    /// The machine.
    Disk,
}

type Look<T> = Box<dyn FnOnce(&Connection, Timestamp) -> Result<Option<T>, rusqlite::Error> + Send>;
type Work<T> = Box<dyn FnOnce(&Connection, Timestamp) -> Result<T, rusqlite::Error> + Send>;

/// Something to do with the file.
pub(super) struct Task<T> {
    /// What may answer by reading alone, for which nobody needs to wait for who writes.
    look: Option<Look<T>>,
    /// What is done within a transaction if there was no such answer.
    work: Option<Work<T>>,
    durability: Durability,
    /// What becomes of an answer that nobody has heard.
    unheard: Option<Box<dyn FnOnce(T) + Send>>,
}

impl<T: 'static> Task<T> {
    /// Something to read.
    pub(super) fn reading(
        look: impl Fn(&Connection, Timestamp) -> Result<T, rusqlite::Error> + Clone + Send + 'static,
    ) -> Self {
        let again = look.clone();
        Self::looking(move |connection, now| look(connection, now).map(Some), again)
    }

    /// Something to write.
    pub(super) fn writing(
        durability: Durability,
        work: impl FnOnce(&Connection, Timestamp) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Self {
        Self { look: None, work: Some(Box::new(work)), durability, unheard: None }
    }

    /// Something to write, that must survive the process, unless a look shows that there is no need.
    pub(super) fn looking(
        look: impl FnOnce(&Connection, Timestamp) -> Result<Option<T>, rusqlite::Error> + Send + 'static,
        work: impl FnOnce(&Connection, Timestamp) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Self {
        Self { look: Some(Box::new(look)), ..Self::writing(Durability::Process, work) }
    }

    /// The same, where an answer that nobody has heard is to be undone.
    pub(super) fn unless_heard(self, undo: impl FnOnce(T) + Send + 'static) -> Self {
        Self { unheard: Some(Box::new(undo)), ..self }
    }
}

/// An answer on its way: whoever asked may be gone when it arrives.
struct Answer<T> {
    came: Option<T>,
    unheard: Option<Box<dyn FnOnce(T) + Send>>,
}

impl<T> Answer<T> {
    fn heard(mut self) -> T {
        self.came.take().expect("it is heard once")
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let (Some(came), Some(unheard)) = (self.came.take(), self.unheard.take()) {
            unheard(came);
        }
    }
}

/// A task of whatever type, and who waits for it.
trait Order: Send {
    /// What it must survive.
    fn durability(&self) -> Durability;
    /// Tries to do it by reading alone.
    fn look(&mut self, connection: &Connection, now: Timestamp) -> Result<Looked, rusqlite::Error>;
    /// Does it within a transaction.
    fn work(&mut self, connection: &Connection, now: Timestamp) -> Result<(), rusqlite::Error>;
    /// Says what came of it.
    fn tell(self: Box<Self>, why_not: Option<&str>);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    Done,
    NeedsWork,
}

struct Waiting<T> {
    task: Task<T>,
    came: Option<T>,
    answer: oneshot::Sender<Result<Answer<T>, NotDone>>,
}

impl<T: Send> Order for Waiting<T> {
    fn durability(&self) -> Durability {
        self.task.durability
    }

    fn look(&mut self, connection: &Connection, now: Timestamp) -> Result<Looked, rusqlite::Error> {
        let Some(look) = self.task.look.take() else { return Ok(Looked::NeedsWork) };
        self.came = look(connection, now)?;
        Ok(if self.came.is_some() { Looked::Done } else { Looked::NeedsWork })
    }

    fn work(&mut self, connection: &Connection, now: Timestamp) -> Result<(), rusqlite::Error> {
        let work = self.task.work.take().expect("each is done once");
        self.came = Some(work(connection, now)?);
        Ok(())
    }

    fn tell(self: Box<Self>, why_not: Option<&str>) {
        let told = match (self.came, why_not) {
            (Some(came), None) => Ok(Answer { came: Some(came), unheard: self.task.unheard }),
            (_, Some(why)) => Err(NotDone(why.to_owned())),
            (None, None) => unreachable!("what was done without an error has come to something"),
        };
        // Who has gone hears nothing, and what is to be undone then is.
        let _ = self.answer.send(told);
    }
}

/// Takes tasks for the thread; the thread ends with it.
pub(super) struct Desk {
    orders: mpsc::Sender<Option<Box<dyn Order>>>,
    released: Arc<Mutex<Vec<(Key, Token)>>>,
}

impl Desk {
    pub(super) fn start(connection: Connection, path: &Path, clock: Clock) -> io::Result<Self> {
        let (orders, waiting) = mpsc::channel(WAITING_MAX);
        let released: Arc<Mutex<Vec<(Key, Token)>>> = Arc::default();
        let path = std::path::absolute(path)?;
        let clerk = Clerk {
            connection,
            identity: Identity::of(&path),
            path,
            clock,
            released: Arc::clone(&released),
            synchronous: None,
            sweep_at: Timestamp::EPOCH,
        };
        std::thread::Builder::new().name("redrive-file".to_owned()).spawn(move || clerk.run(waiting))?;
        Ok(Self { orders, released })
    }

    pub(super) async fn ask<T: Send + 'static>(&self, task: Task<T>) -> Result<T, NotDone> {
        let gone = || NotDone("the thread that reads and writes it has ended".to_owned());
        let (answer, answered) = oneshot::channel();
        let order = Box::new(Waiting { task, came: None, answer });
        self.orders.send(Some(order)).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone())).map(Answer::heard)
    }

    /// Has a mark taken away soon. There are as many of these as there was work, so they need no bound.
    pub(super) fn release(&self, key: Key, token: Token) {
        self.released.lock().expect("nobody panics with it").push((key, token));
        // If there is no place, the thread is busy, and will see it then.
        let _ = self.orders.try_send(None);
    }
}

/// Tells one file from another that has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// Its device and its number there.
    #[cfg(unix)]
    Known(u64, u64),
    /// There is none.
    #[cfg(unix)]
    Missing,
    /// The system does not say.
    Unknown,
}

impl Identity {
    #[cfg(unix)]
    fn of(path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        match std::fs::metadata(path) {
            Ok(metadata) => Self::Known(metadata.dev(), metadata.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            Err(_) => Self::Unknown,
        }
    }

    /// Elsewhere nobody can remove a file that is open.
    #[cfg(not(unix))]
    fn of(_path: &Path) -> Self {
        Self::Unknown
    }
}

/// Does what is asked for, on the thread.
struct Clerk {
    connection: Connection,
    path: PathBuf,
    /// Which file the connection has.
    identity: Identity,
    clock: Clock,
    released: Arc<Mutex<Vec<(Key, Token)>>>,
    /// What SQLite was last told about waiting for the disk.
    synchronous: Option<Durability>,
    sweep_at: Timestamp,
}

impl Clerk {
    fn run(mut self, mut waiting: mpsc::Receiver<Option<Box<dyn Order>>>) {
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
            let released = std::mem::take(&mut *self.released.lock().expect("nobody panics with it"));
            // What was released must show to who asks next, so then nobody is answered by a look before.
            let rest = if released.is_empty() { self.look(batch, now) } else { batch };
            self.write(rest, released, now);
            self.sweep(now);
        }
    }

    /// Opens the file anew if it was removed or replaced: whoever else opens it finds the new one, and what is
    /// written into the old one is written for nobody.
    fn follow_file(&mut self) -> Result<(), String> {
        let found = Identity::of(&self.path);
        if found == self.identity || found == Identity::Unknown {
            return Ok(());
        }
        self.connection = schema::open(&self.path).map_err(|error| error.to_string())?;
        self.synchronous = None;
        self.identity = Identity::of(&self.path);
        tracing::error!(path = %self.path.display(), "the file was removed: what it knew is lost, and it is made anew");
        Ok(())
    }

    /// Answers those for whom a look is enough, and gives the others.
    fn look(&self, batch: Vec<Box<dyn Order>>, now: Timestamp) -> Vec<Box<dyn Order>> {
        let mut rest = Vec::new();
        for mut order in batch {
            match order.look(&self.connection, now) {
                Ok(Looked::NeedsWork) => rest.push(order),
                Ok(Looked::Done) => order.tell(None),
                Err(error) => order.tell(Some(&error.to_string())),
            }
        }
        rest
    }

    fn write(&mut self, mut batch: Vec<Box<dyn Order>>, released: Vec<(Key, Token)>, now: Timestamp) {
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
            self.released.lock().expect("nobody panics with it").extend(released);
        }
        for order in batch {
            order.tell(why_not.as_deref());
        }
    }

    fn commit(
        &mut self,
        batch: &mut [Box<dyn Order>],
        released: &[(Key, Token)],
        durability: Durability,
        now: Timestamp,
    ) -> Result<(), rusqlite::Error> {
        self.synchronise(durability)?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (key, token) in released {
            marks::release(&transaction, key, *token)?;
        }
        for order in batch {
            order.work(&transaction, now)?;
        }
        transaction.commit()
    }

    /// Has SQLite wait for the disk with each commit, or not.
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

    /// Drops a little of what has expired, if it is time to.
    fn sweep(&mut self, now: Timestamp) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = match self.swept(now) {
            Ok(swept) if swept >= SWEPT_AT_ONCE => now,
            Ok(_) => now + SWEEP_EVERY,
            Err(error) => {
                tracing::warn!(%error, "what has expired could not be swept");
                now + SWEEP_EVERY
            }
        };
    }
    /// How many rows have gone.
    fn swept(&mut self, now: Timestamp) -> Result<usize, rusqlite::Error> {
        self.synchronise(Durability::Process)?;
        let marks = marks::sweep(&self.connection, SWEPT_AT_ONCE, now)?;
        let breakers = breakers::sweep(&self.connection, SWEPT_AT_ONCE, now)?;
        Ok(marks.max(breakers))
    }
}
