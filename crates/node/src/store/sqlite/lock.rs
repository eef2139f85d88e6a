//! One process owns a data folder: it locks the file `lock` and writes its process id into it. It also locks the
//! database, so that deleting the lock file admits no second owner.
//!
//! The system frees locks when the process ends, so a crash leaves nothing to clean up. Locks are released
//! explicitly, not only by closing: a child that was just forked still holds all our files open.
//!
//! Invariant: the database stays open here until SQLite has closed it. SQLite uses POSIX locks, which do not
//! conflict with ours, but a process loses all of those on a file as soon as it closes that file once.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::file_identity::FileId;
use super::{FILE as DATABASE, backup};
use crate::store::StoreError;
use redrive::private;

const FILE: &str = "lock";
/// Of another process's lock file.
const OWNER_BYTES_MAX: u64 = 100;
/// Retries when the owner removes the lock file at the same time.
const TRIES_MAX: u32 = 10;

/// Releases the folder when dropped.
#[derive(Debug)]
pub(super) struct FolderLock {
    path: PathBuf,
    file: File,
    database: File,
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        remove(&self.path, &self.file);
        // Closing would release them too, but later if a child has them.
        let _ = self.database.unlock();
        let _ = self.file.unlock();
    }
}

impl FolderLock {
    /// Creates an empty database if there is none.
    pub(super) fn take(folder: &Path) -> Result<Self, StoreError> {
        backup::refuse_partial(folder)?;
        let path = folder.join(FILE);
        let in_use = |owner| StoreError::InUse { path: folder.to_owned(), owner };
        let mut file = lock_file(&path, in_use)?;
        let database = lock_database(folder, in_use).inspect_err(|_| remove(&path, &file))?;
        // Informational: ignore a failed write.
        let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        Ok(Self { path, file, database })
    }

    /// Open while the lock is held.
    pub(super) fn database(&self) -> &File {
        &self.database
    }
}

fn lock_file(path: &Path, in_use: impl Fn(String) -> StoreError) -> Result<File, StoreError> {
    let fail = |source: io::Error| not_opened(path, &source);
    for _ in 0..TRIES_MAX {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = private::for_owner(&mut options).open(path).map_err(fail)?;
        match file.try_lock() {
            // The previous owner may have removed the file before we locked it.
            Ok(()) if is_at(path, &file) => return Ok(file),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(owner(&mut file))),
            Err(TryLockError::Error(source)) => return Err(fail(source)),
        }
    }
    Err(in_use("unknown".to_owned()))
}

fn lock_database(folder: &Path, in_use: impl Fn(String) -> StoreError) -> Result<File, StoreError> {
    let path = folder.join(DATABASE);
    let fail = |source: io::Error| not_opened(&path, &source);
    private::make_file(&path).map_err(fail)?;
    let database = OpenOptions::new().read(true).write(true).open(&path).map_err(fail)?;
    match database.try_lock() {
        Ok(()) => Ok(database),
        Err(TryLockError::WouldBlock) => Err(in_use("unknown, its lock file was deleted".to_owned())),
        Err(TryLockError::Error(source)) => Err(fail(source)),
    }
}

/// Must be locked; a different file at the path stays.
fn remove(path: &Path, file: &File) {
    if is_at(path, file) {
        let _ = fs::remove_file(path);
    }
}

fn is_at(path: &Path, file: &File) -> bool {
    match (fs::metadata(path), file.metadata()) {
        (Ok(found), Ok(open)) => FileId::of(&found) == FileId::of(&open),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

fn owner(file: &mut File) -> String {
    let mut owner = String::new();
    let read = file.rewind().and_then(|()| file.take(OWNER_BYTES_MAX).read_to_string(&mut owner));
    let owner = owner.trim();
    if read.is_err() || owner.is_empty() { "unknown".to_owned() } else { owner.to_owned() }
}

/// Explains an IO error of writing.
pub(super) fn not_opened(path: &Path, source: &io::Error) -> StoreError {
    let reason = match source.kind() {
        io::ErrorKind::PermissionDenied => format!("permission denied for writing ({source})"),
        io::ErrorKind::ReadOnlyFilesystem => format!("the file system is read-only ({source})"),
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "a file is in the place of the folder".to_owned()
        }
        _ => source.to_string(),
    };
    StoreError::NotOpened { path: PathBuf::from(path), reason }
}

/// Explains an IO error of reading.
pub(super) fn not_read(folder: &Path, source: &io::Error) -> StoreError {
    let reason = match source.kind() {
        io::ErrorKind::NotFound if folder.exists() => "it contains no store".to_owned(),
        io::ErrorKind::NotFound => "folder not found".to_owned(),
        io::ErrorKind::NotADirectory => "it is a file, not a data folder".to_owned(),
        io::ErrorKind::PermissionDenied => format!("permission denied for reading ({source})"),
        _ => source.to_string(),
    };
    StoreError::NotOpened { path: PathBuf::from(folder), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let lock = FolderLock::take(folder.path()).expect("it is free");
        match FolderLock::take(folder.path()) {
            Err(StoreError::InUse { owner, .. }) => assert_eq!(owner, std::process::id().to_string()),
            other => panic!("it is taken: {other:?}"),
        }
        drop(lock);
        assert!(!folder.path().join(FILE).exists(), "nothing is left to be taken for stale");
        FolderLock::take(folder.path()).expect("it is free again");
    }

    #[test]
    fn a_lock_file_that_was_deleted_lets_nobody_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let lock = FolderLock::take(folder.path()).expect("it is free");
        fs::remove_file(folder.path().join(FILE)).expect("it was there");
        for _ in 0..2 {
            let other = FolderLock::take(folder.path());
            assert!(matches!(other, Err(StoreError::InUse { .. })), "{other:?}");
            assert!(!folder.path().join(FILE).exists(), "a refusal leaves no lock file behind");
        }
        drop(lock);
        FolderLock::take(folder.path()).expect("it is free again");
    }

    #[test]
    fn a_folder_is_free_at_once_though_a_child_has_its_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let lock = FolderLock::take(folder.path()).expect("it is free");
        let of_a_child = lock.file.try_clone().expect("as a fork has it");
        drop(lock);
        FolderLock::take(folder.path()).expect("it is free again");
        drop(of_a_child);
    }
}
