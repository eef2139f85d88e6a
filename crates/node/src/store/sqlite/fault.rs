//! Errors of SQLite, and their mapping to store errors.

use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use super::encode::UnreadableValue;
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub(super) enum SqlFault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Unreadable(#[from] UnreadableValue),
}

pub(super) type SqlResult<T> = Result<T, SqlFault>;

impl SqlFault {
    pub(super) const fn unreadable(what: &'static str) -> Self {
        Self::Unreadable(UnreadableValue::new(what))
    }

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

    fn is_damage(&self) -> bool {
        match self {
            Self::Unreadable(_) => true,
            Self::Sqlite(error) => match error.sqlite_error_code() {
                Some(code) => matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase),
                // Not an SQLite error: a column held an unexpected value.
                None => true,
            },
        }
    }
}

/// For an open store, when nothing was changed.
impl From<SqlFault> for StoreError {
    fn from(fault: SqlFault) -> Self {
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
        SqlFault::from(error).into()
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
