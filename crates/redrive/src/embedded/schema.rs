//! The tables of the file, and how it is opened by several processes at once.
//!
//! Invariants: what is looked at is looked at before anything is changed, so a file that is refused stays as it
//! was; and the tables are made in one transaction, by whoever comes first.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::private;

/// Says that a file is one of these: `RDRF`.
const APPLICATION_ID: i32 = 0x5244_5246;
/// The newest format that this release knows.
const FORMAT: u32 = 1;
/// The longest that one connection waits for another's lock.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// How long it is waited before it is tried again to get the file for oneself.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(5);

const TABLES: &str = "
-- What is in progress and what was done, by key.
CREATE TABLE once (
    key     TEXT PRIMARY KEY,
    -- Of who holds it, or held it.
    token   INTEGER NOT NULL,
    -- When it was begun, renewed or finished, and when its lease or its time is over: milliseconds since 1970.
    since   INTEGER NOT NULL,
    ends_at INTEGER NOT NULL,
    -- What came of it; null while it is in progress.
    result  BLOB
) STRICT;
CREATE INDEX once_ends ON once (ends_at);

-- The last token that was given, so that no two holders share one, whatever rows have gone.
CREATE TABLE tokens (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL) STRICT;
INSERT INTO tokens VALUES (1, 0);

-- What is known of breakers, as JSON.
CREATE TABLE breakers (
    dependency TEXT PRIMARY KEY,
    record     TEXT NOT NULL,
    -- From then on it means nothing: milliseconds since 1970.
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX breakers_expire ON breakers (expires_at);
";

/// Why a file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system or SQLite does not let us.
    #[error("{path} cannot be opened: {reason}", path = .path.display())]
    NotOpened {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It is something else.
    #[error("{path} is not a file of shared state: {reason}", path = .path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it is.
        reason: String,
    },
    /// A newer release made it.
    #[error(
        "{path} has format {found}, and this release knows formats up to {known}: use a newer release",
        path = .path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that is known here.
        known: u32,
    },
}

impl OpenError {
    pub(super) fn thread(path: &Path, source: &std::io::Error) -> Self {
        let reason = format!("there is no thread for it ({source})");
        Self::NotOpened { path: path.to_owned(), reason }
    }

    fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let (path, reason) = (path.to_owned(), error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::NotOurs { path, reason },
            _ => Self::NotOpened { path, reason },
        }
    }
}

/// Opens the file, and makes it if it is not there.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    let fail = |error: rusqlite::Error| OpenError::sqlite(path, &error);
    private::make_file(path)
        .map_err(|source| OpenError::NotOpened { path: path.to_owned(), reason: source.to_string() })?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mut connection = Connection::open_with_flags(path, flags).map_err(fail)?;
    connection.busy_timeout(BUSY_MAX).map_err(fail)?;
    check(&connection.transaction().map_err(fail)?, path)?;
    write_ahead(&connection).map_err(fail)?;
    make_tables(&mut connection, path)?;
    Ok(connection)
}

/// Refuses a file that is not ours, or of a format that only a newer release knows; gives its format. It is
/// asked within a transaction, for another process may be making the tables.
fn check(transaction: &Transaction<'_>, path: &Path) -> Result<u32, OpenError> {
    let fail = |error: rusqlite::Error| OpenError::sqlite(path, &error);
    let application: i32 =
        transaction.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(fail)?;
    let found: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(fail)?;
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: u32 = transaction.query_row(tables, [], |row| row.get(0)).map_err(fail)?;
    let is_new = (application, found, tables) == (0, 0, 0);
    if application != APPLICATION_ID && !is_new {
        let reason = "it is a database of something else".to_owned();
        return Err(OpenError::NotOurs { path: path.to_owned(), reason });
    }
    if found > FORMAT {
        return Err(OpenError::TooNew { path: path.to_owned(), found, known: FORMAT });
    }
    Ok(found)
}

/// Has changes written ahead, so that who reads and who writes do not wait for each other. For that a
/// connection needs the file for itself for a moment, and SQLite does not wait for such a moment by itself.
fn write_ahead(connection: &Connection) -> Result<(), rusqlite::Error> {
    let give_up_at = Instant::now() + BUSY_MAX;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())) {
            Err(error) if is_busy(&error) && Instant::now() < give_up_at => {
                std::thread::sleep(TRY_AGAIN_AFTER);
            }
            other => return other,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn make_tables(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let fail = |error: rusqlite::Error| OpenError::sqlite(path, &error);
    let making = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
    // Another process may have been first.
    if check(&making, path)? == 0 {
        making.execute_batch(TABLES).map_err(fail)?;
        making.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail)?;
        making.pragma_update(None, "user_version", FORMAT).map_err(fail)?;
    }
    making.commit().map_err(fail)
}
