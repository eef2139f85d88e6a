//! The tables of the file, and opening it from several processes.
//!
//! Invariants: a file is checked before anything is changed, so a refused file stays as it was; and the
//! tables are created in one transaction by whichever process comes first.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::private;

/// `RDRF`.
const APPLICATION_ID: i32 = 0x5244_5246;
/// The newest known format.
const FORMAT: u32 = 1;
/// The longest wait for another connection's lock.
const BUSY_MAX: Duration = Duration::from_secs(5);
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

/// The file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system or SQLite refused.
    #[error("{path} cannot be opened: {reason}", path = .path.display())]
    NotOpened {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// It is not a file of shared state.
    #[error("{path} is not a file of shared state: {reason}", path = .path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it is.
        reason: String,
    },
    /// A newer version created it.
    #[error(
        "{path} has format {found}, and this release knows formats up to {known}: use a newer release",
        path = .path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest known format.
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

/// Refuses a foreign file or a newer format, and returns the format. Runs in a transaction, since another
/// process may be creating the tables.
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

/// Turns the write-ahead log on. That needs exclusive access for a moment, which SQLite does not wait for by
/// itself.
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
