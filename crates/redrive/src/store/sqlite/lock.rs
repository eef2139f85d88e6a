//! One process owns a data folder: it holds a lock on a file there, and says in it who it is.
//!
//! The system frees the lock when the process ends, however it ends, so a crash leaves nothing to clean up. Whoever
//! gives a folder back frees it by name: a child that was just forked and has not begun its program holds every
//! file of ours open, and a file that is only closed on our side would stay locked until it does.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::private;
use crate::store::StoreError;

/// The file that is locked.
const FILE: &str = "lock";
/// More of another's note than this nobody needs to read.
const OWNER_BYTES_MAX: u64 = 100;

/// Holds the folder until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing it is the second best, and comes anyway.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes the folder, or says who has it.
    pub(super) fn take(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(FILE);
        let fail = |source: io::Error| not_opened(&path, &source);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = private::for_owner(&mut options).open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse { path: folder.to_owned(), owner: owner(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(fail(source)),
        }
        // Who has it is a help to people and no more: a note that cannot be written stops nobody.
        let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        Ok(Self { file })
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
        let lock = Lock::take(folder.path()).expect("it is free");
        match Lock::take(folder.path()) {
            Err(StoreError::InUse { owner, .. }) => assert_eq!(owner, std::process::id().to_string()),
            other => panic!("it is taken: {other:?}"),
        }
        drop(lock);
        Lock::take(folder.path()).expect("it is free again");
    }

    #[test]
    fn a_folder_is_free_at_once_though_a_child_has_its_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let lock = Lock::take(folder.path()).expect("it is free");
        let of_a_child = lock.file.try_clone().expect("as a fork has it");
        drop(lock);
        Lock::take(folder.path()).expect("it is free again");
        drop(of_a_child);
    }
}
