//! Store operations as transactions: each is durable as a whole, or nothing has changed.

use std::fs::File;
use std::path::{Path, PathBuf};

use redrive_core::engine::{LoadRequest, LoadedPage};
use redrive_core::time::Timestamp;
use rusqlite::Connection;

use super::fault::{SqlFault, SqlResult};
use super::file_identity::{Anchor, DisplacedFile};
use super::sql::Sql;
use super::state::StoreState;
use super::wal::{Checkpointer, DurableFrames, LogCopy};
use super::{Options, housekeeping, lock, recover, retention, rows, schema, write};
use crate::store::{BatchResult, HousekeepingStep, RecoveredState, RetentionRules, StoreError, WriteBatch};

/// Everything of the writer but its connection, which a backup may share.
#[derive(Debug)]
pub(super) struct StoreWriter {
    path: PathBuf,
    state: StoreState,
    checkpointer: Checkpointer,
    anchor: Anchor,
    health: MemoryHealth,
    log: LogPlace,
}

/// State of a displaced log, so that each change is logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogPlace {
    InPlace,
    /// Deleted; the database has all its commits.
    Saved,
    /// Deleted; the database lacks some of its commits.
    NotSaved,
}

/// Whether memory agrees with the file.
#[derive(Debug)]
enum MemoryHealth {
    Good,
    /// Rolled back, but memory could not be reloaded.
    Behind,
    /// A commit may or may not be durable; resolved by reopening.
    Unknown(String),
}

/// The seed, drawn when the store was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreIdentity(u64);

impl StoreWriter {
    pub(super) fn identity(&self) -> StoreIdentity {
        StoreIdentity(self.state.meta.seed)
    }

    pub(super) const fn durable(&self) -> DurableFrames {
        self.checkpointer.durable()
    }

    pub(super) fn free_bytes(on: &Connection) -> Result<u64, StoreError> {
        let read = |name| on.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        Ok(read("freelist_count")?.cast_unsigned() * read("page_size")?.cast_unsigned())
    }

    /// Fails if the files are no longer at their path.
    ///
    /// A deleted log is still open and holds commits that a restart would miss: they are copied into the database.
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
            Ok(LogCopy::Partly) => (LogPlace::NotSaved, Some("a reader is active".to_owned())),
            Err(fault) => (LogPlace::NotSaved, Some(fault.to_string())),
        };
        if self.log == log || self.log == LogPlace::Saved {
            return;
        }
        self.log = log;
        match fault {
            None => {
                tracing::error!(%path, "write-ahead log displaced, its commits are saved in the database; restart the server");
            }
            Some(fault) => {
                tracing::error!(%path, fault, "write-ahead log displaced, its commits are not in the database yet; keep the server running");
            }
        }
    }

    /// `database` is the owner's open file.
    pub(super) fn open(
        path: &Path,
        database: &File,
        options: &Options,
        seed: u64,
    ) -> Result<(Self, Connection), StoreError> {
        let connection = schema::open(path, seed)?;
        let fail = |fault: SqlFault| fault.not_opened(path);
        let state = StoreState::load(&connection, options.run_length).map_err(fail)?;
        let checkpointer = Checkpointer::start(&connection, path, options.wal).map_err(fail)?;
        let anchor = Anchor::new(path, database).map_err(|source| lock::not_opened(path, &source))?;
        let (health, log) = (MemoryHealth::Good, LogPlace::InPlace);
        let mut core = Self { path: path.to_owned(), state, checkpointer, anchor, health, log };
        // The files may have been replaced meanwhile.
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

    pub(super) fn load(&mut self, on: &Connection, load: &LoadRequest) -> Result<LoadedPage, StoreError> {
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
        let old = retention::find_expired(on, &mut self.state, keep, now)?;
        if old.is_empty() && !housekeeping::is_due(on, &self.state, keep, now)? {
            return Ok(HousekeepingStep::default());
        }
        let (chores, step) =
            self.transact(on, |state| housekeeping::housekeep(on, state, keep, &old, now))?;
        if let Some(step) = step {
            self.state.dedup.apply(step);
        }
        Ok(HousekeepingStep {
            more: chores.more || self.state.dedup.has_work(self.state.meta.ids_checked),
            ..chores
        })
    }

    /// Seals a step in case housekeeping does not run.
    fn seal(&mut self, on: &Connection) -> Result<(), StoreError> {
        let step = self.transact(on, |state| state.dedup.step(on, state.meta.ids_checked))?;
        if let Some(step) = step {
            self.state.dedup.apply(step);
        }
        Ok(())
    }

    /// Fails while memory does not agree with the file.
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
        work: impl FnOnce(&mut StoreState) -> SqlResult<T>,
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
        // A restart would not find this commit.
        if let Err(displaced) = self.check_place(on) {
            self.health = MemoryHealth::Unknown(displaced.to_string());
            return Err(displaced);
        }
        self.state.dedup.commit();
        // Durable already; a failed checkpoint is retried after the next commit.
        let _ = self.checkpointer.after_commit(on);
        Ok(done)
    }

    fn roll_back(&mut self, on: &Connection) {
        self.health = MemoryHealth::Behind;
        // Some errors end the transaction.
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
