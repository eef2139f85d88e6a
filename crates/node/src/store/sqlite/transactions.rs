//! The verbs of the store, each a transaction: what is begun is durable as a whole, or nothing has changed.

use std::fs::File;
use std::path::{Path, PathBuf};

use redrive_core::engine::{Load, Page};
use redrive_core::time::Timestamp;
use rusqlite::Connection;

use super::file_identity::{Anchor, DisplacedFile};
use super::fault::SqliteFault;
use super::sql::Sql;
use super::state::StoreState;
use super::wal::{Checkpointer, DurableFrames, LogCopy};
use super::{Options, housekeeping, lock, recover, retention, rows, schema, write};
use crate::store::{WriteBatch, HousekeepingStep, RetentionRules, RecoveredState, StoreError, BatchResult};

/// All that belongs to the writing connection but itself: while a copy is made, somebody else looks at that.
#[derive(Debug)]
pub(super) struct StoreWriter {
    path: PathBuf,
    state: StoreState,
    checkpointer: Checkpointer,
    anchor: Anchor,
    health: MemoryHealth,
    log: LogPlace,
}

/// Where the commits of the log are, so that each change is logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogPlace {
    InPlace,
    /// The log is gone, and the database has all of it.
    Saved,
    /// The log is gone, and the database has not all of it yet.
    NotSaved,
}

/// Whether memory agrees with the file.
#[derive(Debug)]
enum MemoryHealth {
    Good,
    /// A transaction was rolled back, and what it had changed in memory could not be read anew.
    Behind,
    /// Nobody knows whether a transaction is durable, for that reason; only opening the file anew shows.
    Unknown(String),
}

/// What tells a store from all others: it was drawn when the store was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreIdentity(u64);

impl StoreWriter {
    pub(super) fn identity(&self) -> StoreIdentity {
        StoreIdentity(self.state.meta.seed)
    }

    /// How many frames of the log hold all that was committed.
    pub(super) const fn durable(&self) -> DurableFrames {
        self.checkpointer.durable()
    }

    /// What is free within the file.
    pub(super) fn free_bytes(on: &Connection) -> Result<u64, StoreError> {
        let read = |name| on.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        Ok(read("freelist_count")?.cast_unsigned() * read("page_size")?.cast_unsigned())
    }

    /// Says what is wrong if the files are no longer at their path.
    ///
    /// A log that was deleted is open still, and holds commits that no restart would find: they are copied into the
    /// database, which is in its place.
    pub(super) fn check_place(&mut self, on: &Connection) -> Result<(), StoreError> {
        match self.anchor.check() {
            Ok(()) => {
                self.log = LogPlace::InPlace;
                Ok(())
            }
            Err(DisplacedFile::Database(error)) => Err(error),
            Err(DisplacedFile::LogAlone(error)) => {
                self.save_log(on);
                Err(error)
            }
        }
    }

    fn save_log(&mut self, on: &Connection) {
        let path = self.path.display();
        let (log, fault) = match Checkpointer::save(on) {
            Ok(LogCopy::Whole) => (LogPlace::Saved, None),
            Ok(LogCopy::Partly) => (LogPlace::NotSaved, Some("it is being read".to_owned())),
            Err(fault) => (LogPlace::NotSaved, Some(fault.to_string())),
        };
        if self.log == log || self.log == LogPlace::Saved {
            return;
        }
        self.log = log;
        match fault {
            None => {
                tracing::error!(%path, "the write-ahead log was deleted, moved or replaced: its commits are saved in the database; restart the server");
            }
            Some(fault) => {
                tracing::error!(%path, fault, "the write-ahead log was deleted, moved or replaced: its commits are not in the database yet; keep the server running");
            }
        }
    }

    /// Opens the database at that path, which its owner holds open as that file.
    pub(super) fn open(
        path: &Path,
        database: &File,
        options: &Options,
        seed: u64,
    ) -> Result<(Self, Connection), StoreError> {
        let connection = schema::open(path, seed)?;
        let fail = |fault: SqliteFault| fault.not_opened(path);
        let state = StoreState::load(&connection, options.run_length).map_err(fail)?;
        let checkpointer = Checkpointer::start(&connection, path, options.wal).map_err(fail)?;
        let anchor = Anchor::new(path, database).map_err(|source| lock::not_opened(path, &source))?;
        let (health, log) = (MemoryHealth::Good, LogPlace::InPlace);
        let mut core = Self { path: path.to_owned(), state, checkpointer, anchor, health, log };
        // The files may have been replaced while they were opened.
        core.check_place(&connection)?;
        Ok((core, connection))
    }

    pub(super) fn recover(&mut self, on: &Connection, now: Timestamp) -> Result<RecoveredState, StoreError> {
        self.transact(on, |state| recover::recover(on, state, now))
    }

    pub(super) fn close(&mut self, on: &Connection, now: Timestamp) -> Result<(), StoreError> {
        self.transact(on, |state| recover::close(on, state, now))
    }

    pub(super) fn write(
        &mut self,
        on: &Connection,
        batch: &WriteBatch,
        now: Timestamp,
    ) -> Result<BatchResult, StoreError> {
        if self.state.dedup.is_overdue() {
            self.seal(on)?;
        }
        self.transact(on, |state| write::write(on, state, batch, now))
    }

    pub(super) fn load(&mut self, on: &Connection, load: &Load) -> Result<Page, StoreError> {
        self.check(on)?;
        Ok(rows::load(on, &self.state.names, load)?)
    }

    pub(super) fn housekeep(
        &mut self,
        on: &Connection,
        keep: &RetentionRules,
        now: Timestamp,
    ) -> Result<HousekeepingStep, StoreError> {
        self.check(on)?;
        let old = retention::look(on, &mut self.state, keep, now)?;
        if old.is_empty() && !housekeeping::is_due(on, &self.state, keep, now)? {
            return Ok(HousekeepingStep::default());
        }
        let (chores, step) = self.transact(on, |state| housekeeping::housekeep(on, state, keep, &old, now))?;
        if let Some(step) = step {
            self.state.dedup.apply(step);
        }
        Ok(HousekeepingStep { more: chores.more || self.state.dedup.has_work(self.state.meta.ids_checked), ..chores })
    }

    /// Does a step of sealing, for want of anybody who does the chores.
    fn seal(&mut self, on: &Connection) -> Result<(), StoreError> {
        let step = self.transact(on, |state| state.dedup.step(on, state.meta.ids_checked))?;
        if let Some(step) = step {
            self.state.dedup.apply(step);
        }
        Ok(())
    }

    /// Refuses to go on while memory does not agree with the file.
    fn check(&mut self, on: &Connection) -> Result<(), StoreError> {
        match &self.health {
            MemoryHealth::Good => Ok(()),
            MemoryHealth::Unknown(reason) => Err(StoreError::Unknown(reason.clone().into())),
            MemoryHealth::Behind => {
                self.state.roll_back(on)?;
                self.health = MemoryHealth::Good;
                Ok(())
            }
        }
    }

    fn transact<T>(
        &mut self,
        on: &Connection,
        work: impl FnOnce(&mut StoreState) -> Result<T, SqliteFault>,
    ) -> Result<T, StoreError> {
        self.check(on)?;
        on.run("BEGIN IMMEDIATE", [])?;
        let done = match work(&mut self.state) {
            Ok(done) => done,
            Err(fault) => {
                self.roll_back(on);
                return Err(fault.into());
            }
        };
        if let Err(fault) = on.run("COMMIT", []) {
            self.roll_back(on);
            self.health = MemoryHealth::Unknown(fault.to_string());
            return Err(StoreError::Unknown(fault.into()));
        }
        // A commit into files that are not at their path any more is one that no restart would find.
        if let Err(displaced) = self.check_place(on) {
            self.health = MemoryHealth::Unknown(displaced.to_string());
            return Err(displaced);
        }
        self.state.dedup.commit();
        // What was written is safe; a log that cannot be copied now is tried again after the next.
        let _ = self.checkpointer.after_commit(on);
        Ok(done)
    }

    fn roll_back(&mut self, on: &Connection) {
        self.health = MemoryHealth::Behind;
        // Some errors have ended the transaction already.
        if !on.is_autocommit()
            && let Err(fault) = on.run("ROLLBACK", [])
        {
            self.health = MemoryHealth::Unknown(fault.to_string());
            return;
        }
        if self.state.roll_back(on).is_ok() {
            self.health = MemoryHealth::Good;
        }
    }
}
