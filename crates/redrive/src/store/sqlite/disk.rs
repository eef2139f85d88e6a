//! What a data folder takes of its disk: whether there is room, and how to give back what is free.

use std::path::Path;

use crate::store::{Room, StoreError};

/// Whether that much is free on the disk of a folder, together with what is free within the file.
#[cfg(unix)]
pub(super) fn room(folder: &Path, free_within: u64, needed_bytes: u64) -> Result<Room, StoreError> {
    let found = rustix::fs::statvfs(folder)
        .map_err(|source| StoreError::NotWritten { path: folder.to_owned(), reason: source.to_string() })?;
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize).saturating_add(free_within);
    Ok(if free_bytes < needed_bytes { Room::Short { free_bytes, needed_bytes } } else { Room::Enough })
}

/// Where nobody says how much is free, writes say it when they fail.
#[cfg(not(unix))]
pub(super) fn room(_folder: &Path, _free_within: u64, _needed_bytes: u64) -> Result<Room, StoreError> {
    Ok(Room::Enough)
}
