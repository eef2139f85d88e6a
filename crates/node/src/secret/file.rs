//! Secrets in files, which are rotated by rewriting or replacing the file.
//!
//! Invariants: the file's stamp is taken before it is read, from the open file, so that a later write shows
//! and a half-written file is read again; a hanging file system blocks one thread per file at most.

use std::fs::{File, Metadata};
use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::{ChangeCheck, SECRET_BYTES_MAX, SecretError, SecretSource, SecretValues};

/// A file and its stamp at the last good read.
pub(super) struct SecretFile {
    path: Arc<str>,
    read: Mutex<Option<FileStamp>>,
    /// Held until the access ends, not only while it is awaited.
    turn: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    modified_at: Option<SystemTime>,
    length: u64,
    /// Inode and change time, where the system has them.
    identity: (u64, i64, i64),
}

impl SecretFile {
    pub(super) fn new(path: &str) -> Self {
        Self { path: path.into(), read: Mutex::new(None), turn: Arc::new(Semaphore::new(1)) }
    }
}

impl SecretSource for SecretFile {
    fn read_now(&self) -> Option<Result<SecretValues, SecretError>> {
        Some(read(&self.path).map(|(values, _)| values))
    }

    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<SecretValues, SecretError>> + Send + '_>> {
        Box::pin(async move {
            let path = Arc::clone(&self.path);
            let unreadable = |source| SecretError::Unreadable { path: self.path.to_string(), source };
            let turn = Arc::clone(&self.turn).acquire_owned().await.expect("semaphore is never closed");
            let reading = spawn_blocking(move || in_turn(turn, || read(&path))).await;
            let (values, stamp) = reading.map_err(|broken| unreadable(io::Error::other(broken)))??;
            *self.read.lock().expect("lock is not poisoned") = Some(stamp);
            Ok(values)
        })
    }

    /// A missing or inaccessible file counts as unchanged: it may be being replaced.
    fn look(&self) -> Option<Pin<Box<dyn Future<Output = ChangeCheck> + Send + '_>>> {
        let path = Arc::clone(&self.path);
        // Another access is running, perhaps for long.
        let turn = Arc::clone(&self.turn).try_acquire_owned().ok()?;
        Some(Box::pin(async move {
            let looking = spawn_blocking(move || in_turn(turn, || std::fs::metadata(&*path).ok()));
            let now = looking.await.ok().flatten();
            let read = *self.read.lock().expect("lock is not poisoned");
            match (read, now.as_ref().map(stamp)) {
                (Some(read), Some(now)) if read != now => ChangeCheck::Changed,
                (Some(_) | None, Some(_) | None) => ChangeCheck::Same,
            }
        }))
    }
}

fn in_turn<T>(turn: OwnedSemaphorePermit, work: impl FnOnce() -> T) -> T {
    let done = work();
    drop(turn);
    done
}

pub(super) fn read(path: &str) -> Result<(SecretValues, FileStamp), SecretError> {
    let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
    // Opening a pipe could block.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(SecretError::NoFile(path.to_owned()));
    }
    let mut file = open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    // It may have been replaced in between.
    if !metadata.is_file() {
        return Err(SecretError::NoFile(path.to_owned()));
    }
    let stamp = stamp(&metadata);
    // Of fixed size: a growing buffer leaves copies that are not wiped.
    let mut buffer = Zeroizing::new(vec![0; SECRET_BYTES_MAX + 1]);
    let length = fill(&mut file, &mut buffer).map_err(unreadable)?;
    Ok((SecretValues::from_lines(&buffer[..length], path)?, stamp))
}

/// Does not block on a pipe.
fn open(path: &str) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
    );
    options.read(true).open(path)
}

fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    loop {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(filled),
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn stamp(metadata: &Metadata) -> FileStamp {
    FileStamp { modified_at: metadata.modified().ok(), length: metadata.len(), identity: identity(metadata) }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn identity(_metadata: &Metadata) -> (u64, i64, i64) {
    (0, 0, 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn while_somebody_is_at_a_file_nobody_else_takes_a_thread_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        std::fs::write(&path, "hunter2").expect("a file");
        let watched = SecretFile::new(&path.display().to_string());
        let turn = Arc::clone(&watched.turn).acquire_owned().await.expect("semaphore is never closed");
        assert!(watched.look().is_none(), "a look does not wait");
        let fetched = timeout(Duration::from_millis(10), watched.fetch()).await;
        assert!(fetched.is_err(), "a fetch does, for as long as it may");
        drop(turn);
        assert!(watched.fetch().await.is_ok());
        assert!(watched.look().is_some(), "the turn is given back");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_opened_without_anybody_at_its_other_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("it is made");
        let file = open(path.to_str().expect("text")).expect("it opens");
        assert!(!file.metadata().expect("it is there").is_file());
    }
}
