//! Whether the files that are open are still the ones at their path.
//!
//! A folder that is deleted, moved or replaced leaves its files open, and a commit into them succeeds: what it
//! wrote is gone with the next start. So the files are compared after every commit, before its answer. A removal
//! that comes after the comparison is one that comes after the answer.
//!
//! Invariant: both files are held open for as long as they are compared, so their numbers are not given to others.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// What tells a file from all others that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    pub(super) fn of(found: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self(found.dev(), found.ino())
    }

    /// Where files have no number, they cannot be told apart.
    #[cfg(not(unix))]
    pub(super) fn of(_found: &Metadata) -> Self {
        Self(0, 0)
    }
}

/// A file and where it was opened.
#[derive(Debug)]
pub(super) struct PinnedFile {
    path: PathBuf,
    id: FileId,
}

impl PinnedFile {
    /// That open file, which was found at that path. The path is made absolute: what is found by it must not
    /// depend on where a folder above it was moved to.
    pub(super) fn new(path: &Path, file: &File) -> io::Result<Self> {
        Ok(Self { path: std::path::absolute(path)?, id: FileId::of(&file.metadata()?) })
    }

    /// Says what is at the path instead, if it is not the file.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let reason = match fs::metadata(&self.path) {
            Ok(found) if FileId::of(&found) == self.id => return Ok(()),
            Ok(_) => "another file is in its place".to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => "it is not there any more".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(StoreError::Displaced { path: self.path.clone(), reason })
    }
}

/// Which file is no longer at its path.
#[derive(Debug)]
pub(super) enum DisplacedFile {
    /// The database, and perhaps all of the folder.
    Database(StoreError),
    /// The log; the database is in its place.
    LogAlone(StoreError),
}

/// The files of a store that is open: the database, whose owner holds it open, and its write-ahead log.
#[derive(Debug)]
pub(super) struct Anchor {
    database: PinnedFile,
    log: PinnedFile,
    /// SQLite puts no lock on its log, so closing this one frees none.
    _log: File,
}

impl Anchor {
    /// The files of a database that SQLite has just opened; its owner has that file of it.
    pub(super) fn new(path: &Path, database: &File) -> io::Result<Self> {
        let log_path = log_of(path);
        let log = File::open(&log_path)?;
        Ok(Self { database: PinnedFile::new(path, database)?, log: PinnedFile::new(&log_path, &log)?, _log: log })
    }

    /// Says what is wrong if one of them is no longer at its path.
    pub(super) fn check(&self) -> Result<(), DisplacedFile> {
        self.database.check().map_err(DisplacedFile::Database)?;
        self.log.check().map_err(DisplacedFile::LogAlone)
    }
}

/// The write-ahead log of a database.
pub(super) fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log)
}
