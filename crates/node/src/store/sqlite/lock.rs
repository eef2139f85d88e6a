//! One process owns a data folder: it holds a lock on a file there, and says in it who it is. It holds one on the
//! database too, so that a lock file which was deleted lets nobody else in.
//!
//! The system frees the locks when the process ends, however it ends, so a crash leaves nothing to clean up. Whoever
//! gives a folder back frees it by name: a child that was just forked and has not begun its program holds every
//! file of ours open, and a file that is only closed on our side would stay locked until it does.
//!
//! Invariant: the database stays open here until SQLite has closed it. SQLite's own locks are of another kind, which
//! does not meet ours, but a process loses all of those on a file as soon as it closes that file once.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::file_identity::FileId;
use super::{FILE as DATABASE, backup};
use crate::store::StoreError;
use redrive::private;

/// The file that is locked.
const FILE: &str = "lock";
/// More of another's note than this nobody needs to read.
const OWNER_BYTES_MAX: u64 = 100;
/// How often a lock file is looked for that its owner removes at the same time.
const TRIES_MAX: u32 = 10;

/// Holds the folder until it is dropped.
#[derive(Debug)]
pub(super) struct FolderLock {
    path: PathBuf,
    file: File,
    database: File,
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        remove(&self.path, &self.file);
        // Closing them is the second best, and comes anyway.
        let _ = self.database.unlock();
        let _ = self.file.unlock();
    }
}

impl FolderLock {
    /// Takes the folder, or says who has it. Makes an empty database if there is none.
    pub(super) fn take(folder: &Path) -> Result<Self, StoreError> {
        backup::refuse_partial(folder)?;
        let path = folder.join(FILE);
        let in_use = |owner| StoreError::InUse { path: folder.to_owned(), owner };
        let mut file = lock_file(&path, in_use)?;
        let database = lock_database(folder, in_use).inspect_err(|_| remove(&path, &file))?;
        // Who has it is a help to people and no more: a note that cannot be written stops nobody.
        let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        Ok(Self { path, file, database })
    }

    /// The database, which stays open for as long as the lock is held.
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
            // Whoever had it may have removed it between our opening and our locking.
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

/// Removes a lock file while it is locked, so that no other process has it; another file in its place stays.
fn remove(path: &Path, file: &File) {
    if is_at(path, file) {
        let _ = fs::remove_file(path);
    }
}

/// Whether that open file is the one at the path.
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

/// A folder or file that the system does not let us use, in words that say what to look at.
pub(super) fn not_opened(path: &Path, source: &io::Error) -> StoreError {
    let reason = match source.kind() {
        io::ErrorKind::PermissionDenied => format!("this user may not write there ({source})"),
        io::ErrorKind::ReadOnlyFilesystem => format!("it is on a disk that can only be read ({source})"),
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "there is a file where a folder should be".to_owned()
        }
        _ => source.to_string(),
    };
    StoreError::NotOpened { path: PathBuf::from(path), reason }
}

/// A store that cannot be read, in words that say what to look at.
pub(super) fn not_read(folder: &Path, source: &io::Error) -> StoreError {
    let reason = match source.kind() {
        io::ErrorKind::NotFound if folder.exists() => "there is no store in it".to_owned(),
        io::ErrorKind::NotFound => "there is no such folder".to_owned(),
        io::ErrorKind::NotADirectory => "it is a file, and a store is in a folder".to_owned(),
        io::ErrorKind::PermissionDenied => format!("this user may not read it ({source})"),
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
