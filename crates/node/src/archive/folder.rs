//! An archive in a folder: one folder per day, 256 within it, and one file per event.
//!
//! A dedicated thread writes, so a hanging disk blocks only this archive: callers time out, and later calls
//! find the thread busy and time out too.
//!
//! Invariants: a file is written under a temporary name and renamed, so it is there whole or not at all; no
//! symbolic link below the folder is followed and no pipe is waited for; only the owner can read the files;
//! only folders named like days are deleted.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use tokio::sync::{mpsc, oneshot};

use super::entry::{self, ArchiveEntry, ArchivedEvent, Day};
use super::{Archive, ArchiveFailure, ArchiveFuture, ArchiveKey, ArchiveMatches};
use crate::connectors::{Driver, Make, settings};
use redrive_core::book::connectors;

/// Callers send one job at a time.
const JOBS_MAX: usize = 1;
const FOUND_MAX: usize = 100;
const FILE_BYTES_MAX: u64 = 1 << 30;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const FOLDER_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

pub struct FolderArchive {
    folder: PathBuf,
    jobs: mpsc::Sender<FolderJob>,
}

enum FolderJob {
    Put { entry: Arc<ArchiveEntry>, reply: FolderReply },
    Sync { reply: FolderReply },
}

type FolderReply = oneshot::Sender<io::Result<()>>;

impl FolderArchive {
    /// The folder is created when the first event is written.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let (jobs, receiver) = mpsc::channel(JOBS_MAX);
        let writer = FolderWriter { folder: folder.to_owned(), unsynced: BTreeSet::new() };
        // The thread ends when the sender is dropped.
        std::thread::Builder::new().name("redrive-archive".to_owned()).spawn(move || writer.run(receiver))?;
        Ok(Self { folder: folder.to_owned(), jobs })
    }

    async fn ask(&self, job: impl FnOnce(FolderReply) -> FolderJob) -> Result<(), ArchiveFailure> {
        let (reply, answer) = oneshot::channel();
        let gone = || ArchiveFailure::Other { reason: "archive writer thread ended".to_owned() };
        self.jobs.send(job(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?.map_err(|error| failure(&self.folder, &error))
    }

    /// Runs beside the writer thread, which must not wait for a long deletion or search.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, ArchiveFailure> {
        let folder = self.folder.clone();
        let done = tokio::task::spawn_blocking(move || work(&folder)).await;
        let done = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        done.map_err(|error| failure(&self.folder, &error))
    }
}

pub(crate) const DRIVER: Driver = Driver {
    connector: &connectors::folder::ARCHIVE,
    make: Make::Archive(|endpoint| match FolderArchive::new(settings::<String>(endpoint).as_ref()) {
        Ok(archive) => Ok(Arc::new(archive)),
        Err(error) => Err(ArchiveFailure::Other { reason: error.to_string() }),
    }),
};

impl Archive for FolderArchive {
    fn put(&self, entry: Arc<ArchiveEntry>) -> ArchiveFuture<'_, ()> {
        Box::pin(self.ask(move |reply| FolderJob::Put { entry, reply }))
    }

    fn sync(&self) -> ArchiveFuture<'_, ()> {
        Box::pin(self.ask(|reply| FolderJob::Sync { reply }))
    }

    fn forget(&self, before: Day) -> ArchiveFuture<'_, u64> {
        Box::pin(self.blocking(move |folder| forget(folder, &before)))
    }

    fn get(&self, key: ArchiveKey) -> ArchiveFuture<'_, ArchiveMatches> {
        Box::pin(self.blocking(move |folder| find(folder, &key)))
    }
}

fn failure(folder: &Path, error: &io::Error) -> ArchiveFailure {
    let reason = format!("{}: {error}", folder.display());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ArchiveFailure::Throttled { retry_after: None, reason }
        }
        // None of these resolves itself.
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotADirectory => {
            ArchiveFailure::Credentials { reason }
        }
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            ArchiveFailure::Credentials { reason }
        }
        _ => ArchiveFailure::Other { reason },
    }
}

struct FolderWriter {
    folder: PathBuf,
    /// Day, folder and file of what is not yet durable.
    unsynced: BTreeSet<(String, String, String)>,
}

impl FolderWriter {
    fn run(mut self, mut jobs: mpsc::Receiver<FolderJob>) {
        while let Some(job) = jobs.blocking_recv() {
            let (outcome, reply) = match job {
                FolderJob::Put { entry, reply } => (self.put(&entry), reply),
                FolderJob::Sync { reply } => (self.sync(), reply),
            };
            let _ = reply.send(outcome);
        }
    }

    fn put(&mut self, entry: &ArchiveEntry) -> io::Result<()> {
        let ArchiveEntry { day, bucket, file: name, bytes } = entry;
        let root = self.root()?;
        let bucket_folder = made_in(made_in(root, day.as_str())?, bucket)?;
        let temporary = format!(".{name}");
        match rustix::fs::unlinkat(&bucket_folder, &temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&bucket_folder, &temporary, flags, FILE_MODE)?);
        let written = file
            .write_all(bytes)
            .and_then(|()| Ok(rustix::fs::renameat(&bucket_folder, &temporary, &bucket_folder, name)?));
        if let Err(error) = written {
            // If this fails, the next attempt removes it.
            let _ = rustix::fs::unlinkat(&bucket_folder, &temporary, AtFlags::empty());
            return Err(error);
        }
        self.unsynced.insert((day.to_string(), bucket.clone(), name.clone()));
        Ok(())
    }

    /// Syncs files, then their folders. On an error the archivist writes the page again.
    fn sync(&mut self) -> io::Result<()> {
        let unsynced = std::mem::take(&mut self.unsynced);
        let root = self.root()?;
        let mut days: Vec<(&str, OwnedFd)> = Vec::new();
        let mut buckets: Vec<(&str, &str, OwnedFd)> = Vec::new();
        for (day, bucket, name) in &unsynced {
            if days.last().is_none_or(|(last, _)| last != day) {
                days.push((day, below(&root, day)?));
            }
            let (_, day_folder) = days.last().expect("one was pushed");
            if buckets.last().is_none_or(|(of, last, _)| of != day || last != bucket) {
                if let Some((_, _, done)) = buckets.pop() {
                    rustix::fs::fsync(done)?;
                }
                buckets.push((day, bucket, below(day_folder, bucket)?));
            }
            let (_, _, bucket_folder) = buckets.last().expect("one was pushed");
            opened(bucket_folder, name)?.sync_all()?;
        }
        let folders = buckets.into_iter().map(|(_, _, folder)| folder);
        for folder in folders.chain(days.into_iter().map(|(_, folder)| folder)).chain([root]) {
            rustix::fs::fsync(folder)?;
        }
        Ok(())
    }

    /// Unlike the folders below it, the root itself may be a symbolic link.
    fn root(&self) -> io::Result<OwnedFd> {
        let open = || rustix::fs::open(&self.folder, FOLDER_FLAGS, Mode::empty());
        match open() {
            Ok(root) => Ok(root),
            Err(Errno::NOENT) => {
                DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&self.folder)?;
                Ok(open()?)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn made_in(folder: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    match below(&folder, name) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        found => return found,
    }
    match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(FOLDER_MODE)) {
        Ok(()) | Err(Errno::EXIST) => below(&folder, name),
        Err(error) => Err(error.into()),
    }
}

/// Opens a folder; a symbolic link is an error.
fn below(folder: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(folder, name, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty())?)
}

fn days(folder: &Path) -> io::Result<Vec<Day>> {
    let mut days = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A symbolic link is not a folder here.
        if entry.file_type()?.is_dir() {
            days.extend(entry.file_name().to_str().and_then(Day::parse));
        }
    }
    days.sort_unstable_by(|one, other| other.cmp(one));
    Ok(days)
}

/// Deletes all earlier days and returns how many; a failure does not stop the others.
fn forget(folder: &Path, before: &Day) -> io::Result<u64> {
    let days = match days(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        days => days?,
    };
    let root = rustix::fs::open(folder, FOLDER_FLAGS, Mode::empty())?;
    let (mut deleted, mut failure) = (0, None);
    for day in days.iter().filter(|day| *day < before) {
        match forget_day(&root, day) {
            Ok(()) => deleted += 1,
            Err(error) => failure = Some(io::Error::new(error.kind(), format!("{day}: {error}"))),
        }
    }
    failure.map_or(Ok(deleted), Err)
}

/// Deletes the two levels that a day has. Deeper folders are not ours, and recursion would be unbounded.
fn forget_day(root: impl AsFd, day: &Day) -> io::Result<()> {
    let day_folder = below(&root, day.as_str())?;
    for bucket in entries(&day_folder)? {
        if let Ok(bucket_folder) = below(&day_folder, &*bucket) {
            for file in entries(&bucket_folder)? {
                // A file that stays makes the removal of its folder fail.
                let _ = rustix::fs::unlinkat(&bucket_folder, &*file, AtFlags::empty());
            }
            rustix::fs::unlinkat(&day_folder, &*bucket, AtFlags::REMOVEDIR)?;
        } else {
            rustix::fs::unlinkat(&day_folder, &*bucket, AtFlags::empty())?;
        }
    }
    Ok(rustix::fs::unlinkat(&root, day.as_str(), AtFlags::REMOVEDIR)?)
}

/// Finds events in an archive, latest day first; works on archives of stopped servers too.
pub fn find(folder: &Path, key: &ArchiveKey) -> io::Result<ArchiveMatches> {
    let mut found = ArchiveMatches::default();
    let root = rustix::fs::open(folder, FOLDER_FLAGS, Mode::empty())?;
    for day in days(folder)? {
        let Some(day_folder) = there(&root, day.as_str())? else { continue };
        let buckets = match key {
            ArchiveKey::Id(id) => vec![entry::bucket_of(&entry::hash_of(id)).to_owned()],
            ArchiveKey::Receipt(_) => {
                names(&day_folder)?.into_iter().filter(|name| entry::is_bucket(name)).collect()
            }
        };
        for bucket in buckets {
            let Some(bucket_folder) = there(&day_folder, &bucket)? else { continue };
            let fits = |name: &String| match key {
                ArchiveKey::Id(id) => entry::has_hash(name, &entry::hash_of(id)),
                ArchiveKey::Receipt(receipt) => entry::has_receipt(name, *receipt),
            };
            for name in names(&bucket_folder)?.into_iter().filter(fits) {
                if found.kept.len() + found.damaged.len() == FOUND_MAX {
                    return Ok(found);
                }
                match read(&bucket_folder, &name) {
                    // Two ids may share a hash.
                    Ok(kept) if matches!(key, ArchiveKey::Id(id) if kept.id != *id) => {}
                    Ok(kept) => found.kept.push(kept),
                    // A foreign file must not hide an event.
                    Err(error) => {
                        let path = folder.join(day.as_str()).join(&bucket).join(name);
                        found.damaged.push(format!("{} is damaged: {error}", path.display()));
                    }
                }
            }
        }
    }
    Ok(found)
}

fn there(folder: impl AsFd, name: &str) -> io::Result<Option<OwnedFd>> {
    match below(folder, name) {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sorted; names that are not UTF-8 are not ours.
fn names(folder: impl AsFd) -> io::Result<Vec<String>> {
    let names = entries(folder)?.into_iter().filter_map(|name| name.into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    Ok(names)
}

fn entries(folder: impl AsFd) -> io::Result<Vec<CString>> {
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        entries.push(entry?.file_name().to_owned());
    }
    entries.retain(|name| !matches!(name.to_bytes(), b"." | b".."));
    Ok(entries)
}

fn read(folder: impl AsFd, name: &str) -> io::Result<ArchivedEvent> {
    let mut file = opened(folder, name)?;
    if file.metadata()?.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "file is too large"));
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    (&mut file).take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    ArchivedEvent::read(bytes).map_err(|damaged| io::Error::new(ErrorKind::InvalidData, damaged))
}

/// Opens a regular file, without blocking on a pipe in its place.
fn opened(folder: impl AsFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(ErrorKind::InvalidData, "not a regular file"))
}

#[cfg(test)]
mod tests;
