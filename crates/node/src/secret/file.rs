//! Secrets in files, which are changed by writing them anew or by putting another in their place.
//!
//! Invariant: what a file looked like is noted before it is read, from the very file that is read; whatever is
//! written later shows, and a file that was half written when it was read is read again. A file system that
//! hangs keeps one thread for each file, however often it is looked at.

use std::fs::{File, Metadata};
use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::{SECRET_BYTES_MAX, SecretError, SecretSource, SecretValues, Sight};

/// A file, and what it looked like when it was read last with success.
pub(super) struct Watched {
    path: Arc<str>,
    read: Mutex<Option<Stamp>>,
    /// For whoever touches the file, held to the end of that and not of the wait for it.
    turn: Arc<Semaphore>,
}

/// What tells one version of a file from another, at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified_at: Option<SystemTime>,
    length: u64,
    /// Which file it is and when anything of it was changed, where the system tells.
    identity: (u64, i64, i64),
}

impl Watched {
    pub(super) fn new(path: &str) -> Self {
        Self { path: path.into(), read: Mutex::new(None), turn: Arc::new(Semaphore::new(1)) }
    }
}

impl SecretSource for Watched {
    fn read_now(&self) -> Option<Result<SecretValues, SecretError>> {
        Some(read(&self.path).map(|(values, _)| values))
    }

    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<SecretValues, SecretError>> + Send + '_>> {
        Box::pin(async move {
            let path = Arc::clone(&self.path);
            let unreadable = |source| SecretError::Unreadable { path: self.path.to_string(), source };
            let turn = Arc::clone(&self.turn).acquire_owned().await.expect("nobody closes it");
            let reading = spawn_blocking(move || in_turn(turn, || read(&path))).await;
            let (values, stamp) = reading.map_err(|broken| unreadable(io::Error::other(broken)))??;
            *self.read.lock().expect("nobody panics with it") = Some(stamp);
            Ok(values)
        })
    }

    /// A file that is missing for a moment, or that nobody can look at, is taken for the same: it may be on
    /// its way.
    fn look(&self) -> Option<Pin<Box<dyn Future<Output = Sight> + Send + '_>>> {
        let path = Arc::clone(&self.path);
        // Somebody is at it, and may have been for long.
        let turn = Arc::clone(&self.turn).try_acquire_owned().ok()?;
        Some(Box::pin(async move {
            let looking = spawn_blocking(move || in_turn(turn, || std::fs::metadata(&*path).ok()));
            let now = looking.await.ok().flatten();
            let read = *self.read.lock().expect("nobody panics with it");
            match (read, now.as_ref().map(stamp)) {
                (Some(read), Some(now)) if read != now => Sight::Changed,
                (Some(_) | None, Some(_) | None) => Sight::Same,
            }
        }))
    }
}

/// Does something to its end before anybody else has the turn.
fn in_turn<T>(turn: OwnedSemaphorePermit, work: impl FnOnce() -> T) -> T {
    let done = work();
    drop(turn);
    done
}

/// The values, and what the file looked like before they were read.
pub(super) fn read(path: &str) -> Result<(SecretValues, Stamp), SecretError> {
    let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
    // Whoever opens a pipe may wait for ever.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(SecretError::NoFile(path.to_owned()));
    }
    let mut file = open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    // It may have been put there since.
    if !metadata.is_file() {
        return Err(SecretError::NoFile(path.to_owned()));
    }
    let stamp = stamp(&metadata);
    // Of one size from the start: a buffer that grows leaves copies behind that nobody wipes.
    let mut buffer = Zeroizing::new(vec![0; SECRET_BYTES_MAX + 1]);
    let length = fill(&mut file, &mut buffer).map_err(unreadable)?;
    Ok((SecretValues::from_lines(&buffer[..length], path)?, stamp))
}

/// Opens a file, and a pipe without waiting for anybody at its other end.
fn open(path: &str) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
    );
    options.read(true).open(path)
}

/// Reads to the end of the file or of the buffer, and says how much there is.
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

fn stamp(metadata: &Metadata) -> Stamp {
    Stamp { modified_at: metadata.modified().ok(), length: metadata.len(), identity: identity(metadata) }
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
        let watched = Watched::new(&path.display().to_string());
        let turn = Arc::clone(&watched.turn).acquire_owned().await.expect("nobody closes it");
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
