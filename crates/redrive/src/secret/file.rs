//! Secrets in files, which are changed by writing them anew or by putting another in their place.
//!
//! Invariant: what a file looked like is noted before it is read, from the very file that is read; whatever is
//! written later shows, and a file that was half written when it was read is read again.

use std::fs::{File, Metadata};
use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::{SECRET_BYTES_MAX, SecretError, SecretSource, SecretValues, Sight};

/// A file, and what it looked like when it was read last with success.
pub(super) struct Watched {
    path: Arc<str>,
    read: Mutex<Option<Stamp>>,
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
        Self { path: path.into(), read: Mutex::new(None) }
    }
}

impl SecretSource for Watched {
    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<SecretValues, SecretError>> + Send + '_>> {
        Box::pin(async move {
            let path = Arc::clone(&self.path);
            let unreadable = |source| SecretError::Unreadable { path: self.path.to_string(), source };
            let reading = spawn_blocking(move || read(&path)).await;
            let (values, stamp) = reading.map_err(|broken| unreadable(io::Error::other(broken)))??;
            *self.read.lock().expect("nobody panics with it") = Some(stamp);
            Ok(values)
        })
    }

    /// A file that is missing for a moment, or that nobody can look at, is taken for the same: it may be on
    /// its way.
    fn look(&self) -> Option<Pin<Box<dyn Future<Output = Sight> + Send + '_>>> {
        let path = Arc::clone(&self.path);
        Some(Box::pin(async move {
            let now = spawn_blocking(move || std::fs::metadata(&*path).ok()).await.ok().flatten();
            let read = *self.read.lock().expect("nobody panics with it");
            match (read, now.as_ref().map(stamp)) {
                (Some(read), Some(now)) if read != now => Sight::Changed,
                (Some(_) | None, Some(_) | None) => Sight::Same,
            }
        }))
    }
}

/// The values, and what the file looked like before they were read.
pub(super) fn read(path: &str) -> Result<(SecretValues, Stamp), SecretError> {
    let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
    // Whoever opens a pipe may wait for ever.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(SecretError::NoFile(path.to_owned()));
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let stamp = stamp(&file.metadata().map_err(unreadable)?);
    // Of one size from the start: a buffer that grows leaves copies behind that nobody wipes.
    let mut buffer = Zeroizing::new(vec![0; SECRET_BYTES_MAX + 1]);
    let length = fill(&mut file, &mut buffer).map_err(unreadable)?;
    Ok((SecretValues::from_lines(&buffer[..length], path)?, stamp))
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
