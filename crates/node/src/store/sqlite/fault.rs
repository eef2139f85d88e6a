//! What may go wrong with SQLite, and what of it a store's owner has to know.

use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use super::encode::UnreadableValue;
use crate::store::StoreError;

/// Something went wrong within a verb.
#[derive(Debug, thiserror::Error)]
pub(super) enum SqliteFault {
    /// SQLite says so.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// What it gave is not what it should be, or not there.
    #[error(transparent)]
    Unreadable(#[from] UnreadableValue),
}

impl SqliteFault {
    /// Something stored is not what it should be, or not there.
    pub(super) const fn unreadable(what: &'static str) -> Self {
        Self::Unreadable(UnreadableValue::new(what))
    }

    /// As the owner hears it, when the store could not be opened.
    pub(super) fn not_opened(&self, path: &Path) -> StoreError {
        let reason = self.to_string();
        if self.is_damage() {
            StoreError::Damaged { what: path.display().to_string(), reason }
        } else {
            StoreError::NotOpened { path: path.to_owned(), reason }
        }
    }

    fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Sqlite(rusqlite::Error::SqliteFailure(error, _)) => {
                error.code == ErrorCode::OutOfMemory || error.extended_code == ffi::SQLITE_IOERR_NOMEM
            }
            Self::Sqlite(_) | Self::Unreadable(_) => false,
        }
    }

    /// Whether waiting cannot help.
    fn is_damage(&self) -> bool {
        match self {
            Self::Unreadable(_) => true,
            Self::Sqlite(error) => match error.sqlite_error_code() {
                Some(code) => matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase),
                // Not SQLite itself: a column held what it never should.
                None => true,
            },
        }
    }
}

/// As the owner of an open store hears it, when nothing was changed.
impl From<SqliteFault> for StoreError {
    fn from(fault: SqliteFault) -> Self {
        if fault.is_damage() {
            Self::Damaged { what: "the store".to_owned(), reason: fault.to_string() }
        } else if fault.is_out_of_memory() {
            Self::OutOfMemory
        } else {
            Self::NotWritten(fault.into())
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        SqliteFault::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_told_by_what_helps_against_it() {
        let told = |code| StoreError::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        assert!(matches!(told(ffi::SQLITE_NOMEM), StoreError::OutOfMemory));
        assert!(matches!(told(ffi::SQLITE_IOERR_NOMEM), StoreError::OutOfMemory));
        assert!(matches!(told(ffi::SQLITE_IOERR_WRITE), StoreError::NotWritten(_)));
        assert!(matches!(told(ffi::SQLITE_FULL), StoreError::NotWritten(_)));
        assert!(matches!(told(ffi::SQLITE_CORRUPT), StoreError::Damaged { .. }));
    }
}
