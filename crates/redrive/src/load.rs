//! Loads rule books from files, reading at most one byte more than a book may have.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use redrive_core::limits;

/// The file could not be read.
#[derive(Debug, thiserror::Error)]
#[error("could not read {}", path.display())]
pub struct LoadError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

/// The bytes of a rule book; an oversized file is cut just above the limit, so that parsing refuses it.
pub fn load(path: &Path) -> Result<Vec<u8>, LoadError> {
    let fail = |source| LoadError { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let bound = limits::BOOK_BYTES_MAX as u64 + 1;
    File::open(path).and_then(|file| file.take(bound).read_to_end(&mut bytes)).map_err(fail)?;
    Ok(bytes)
}
