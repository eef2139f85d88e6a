//! What a data folder takes of its disk: whether there is room, and how to give back what is free.

use std::path::Path;

use crate::store::{Room, StoreError};

/// Whether that much is free on the disk of a folder.
#[cfg(unix)]
pub(super) fn room(folder: &Path, needed_bytes: u64) -> Result<Room, StoreError> {
    let found = rustix::fs::statvfs(folder)
        .map_err(|source| StoreError::NotWritten { path: folder.to_owned(), reason: source.to_string() })?;
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    Ok(if free_bytes < needed_bytes { Room::Short { free_bytes, needed_bytes } } else { Room::Enough })
}

/// Where nobody says how much is free, writes say it when they fail.
#[cfg(not(unix))]
pub(super) fn room(_folder: &Path, _needed_bytes: u64) -> Result<Room, StoreError> {
    Ok(Room::Enough)
}
