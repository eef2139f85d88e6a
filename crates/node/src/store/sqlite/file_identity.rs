//! Checks that the open files are still the ones at their path.
//!
//! If a folder is deleted, moved or replaced, commits into its open files still succeed but are lost on the next
//! start. So the files are compared after every commit, before it is acknowledged.
//!
//! Invariant: both files stay open while they are compared, so their inode numbers are not reused.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    pub(super) fn of(found: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self(found.dev(), found.ino())
    }

    /// Without inode numbers, all files look the same.
    #[cfg(not(unix))]
    pub(super) fn of(_found: &Metadata) -> Self {
        Self(0, 0)
    }
}

#[derive(Debug)]
pub(super) struct PinnedFile {
    path: PathBuf,
    id: FileId,
}

impl PinnedFile {
    /// The path is made absolute, so that it does not depend on the working directory.
    pub(super) fn new(path: &Path, file: &File) -> io::Result<Self> {
        Ok(Self { path: std::path::absolute(path)?, id: FileId::of(&file.metadata()?) })
    }

    pub(super) fn check(&self) -> Result<(), StoreError> {
        let reason = match fs::metadata(&self.path) {
            Ok(found) if FileId::of(&found) == self.id => return Ok(()),
            Ok(_) => "another file is in its place".to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => "it no longer exists".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(StoreError::Displaced { path: self.path.clone(), reason })
    }
}

#[derive(Debug)]
pub(super) enum DisplacedFile {
    /// Perhaps with its folder.
    Database(StoreError),
    /// The database is still in place.
    LogAlone(StoreError),
}

/// Database and write-ahead log of an open store.
#[derive(Debug)]
pub(super) struct Anchor {
    database: PinnedFile,
    log: PinnedFile,
    /// SQLite holds no lock on its log, so closing this drops none.
    _log: File,
}

impl Anchor {
    /// `database` is the owner's open file.
    pub(super) fn new(path: &Path, database: &File) -> io::Result<Self> {
        let log_path = log_of(path);
        let log = File::open(&log_path)?;
        Ok(Self {
            database: PinnedFile::new(path, database)?,
            log: PinnedFile::new(&log_path, &log)?,
            _log: log,
        })
    }

    pub(super) fn check(&self) -> Result<(), DisplacedFile> {
        self.database.check().map_err(DisplacedFile::Database)?;
        self.log.check().map_err(DisplacedFile::LogAlone)
    }
}

pub(super) fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log)
}
