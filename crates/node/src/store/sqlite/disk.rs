//! Disk space: free for new events, and used by the store.

use std::io::ErrorKind;
use std::path::Path;

use super::file_identity::log_of;
use crate::store::{DiskRoom, StoreError};

/// Counts free pages within the file too.
#[cfg(unix)]
pub(super) fn room(folder: &Path, free_within: u64, needed_bytes: u64) -> Result<DiskRoom, StoreError> {
    let found = rustix::fs::statvfs(folder).map_err(|error| StoreError::NotWritten(error.into()))?;
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize).saturating_add(free_within);
    Ok(if free_bytes < needed_bytes {
        DiskRoom::Short { free_bytes, needed_bytes }
    } else {
        DiskRoom::Enough
    })
}

/// Without statvfs, a full disk shows when a write fails.
#[cfg(not(unix))]
pub(super) fn room(_folder: &Path, _free_within: u64, _needed_bytes: u64) -> Result<DiskRoom, StoreError> {
    Ok(DiskRoom::Enough)
}

/// Database and write-ahead log.
pub(super) fn bytes(file: &Path) -> Result<u64, StoreError> {
    Ok(length(file)? + length(&log_of(file))?)
}

fn length(file: &Path) -> Result<u64, StoreError> {
    match file.metadata() {
        Ok(found) => Ok(found.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::NotWritten(error.into())),
    }
}
