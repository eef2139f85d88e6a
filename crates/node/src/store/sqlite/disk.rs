//! What a data folder takes of its disk: how much it is, and whether there is room.

use std::io::ErrorKind;
use std::path::Path;

use super::file_identity::log_of;
use crate::store::{DiskRoom, StoreError};

/// Whether that much is free on the disk of a folder, together with what is free within the file.
#[cfg(unix)]
pub(super) fn room(folder: &Path, free_within: u64, needed_bytes: u64) -> Result<DiskRoom, StoreError> {
    let found = rustix::fs::statvfs(folder).map_err(|error| StoreError::NotWritten(error.into()))?;
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize).saturating_add(free_within);
    Ok(if free_bytes < needed_bytes { DiskRoom::Short { free_bytes, needed_bytes } } else { DiskRoom::Enough })
}

/// Where nobody says how much is free, writes say it when they fail.
#[cfg(not(unix))]
pub(super) fn room(_folder: &Path, _free_within: u64, _needed_bytes: u64) -> Result<DiskRoom, StoreError> {
    Ok(DiskRoom::Enough)
}

/// What the file takes, together with what was written and is not in it yet.
pub(super) fn bytes(file: &Path) -> Result<u64, StoreError> {
    Ok(length(file)? + length(&log_of(file))?)
}

/// A file that is not there takes nothing.
fn length(file: &Path) -> Result<u64, StoreError> {
    match file.metadata() {
        Ok(found) => Ok(found.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::NotWritten(error.into())),
    }
}
