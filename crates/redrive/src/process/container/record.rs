//! Records of containers on disk, and containers that could not be removed yet.
//!
//! A record is synced before its container starts, because a container of another machine also outlives a
//! power cut. It is deleted once the runtime has removed the container.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::client::{ContainerState, RuntimeClient};
use crate::process::family::RunMark;
use crate::process::run_records::RunRecords;

/// More than any crash can leave.
const RECORDS_MAX: usize = 100_000;
const EXTENSION: &str = "container";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastSeen {
    /// Or it is unknown.
    Running,
    Ended,
}

impl LastSeen {
    pub(super) fn of(state: &Result<Option<ContainerState>, String>) -> Self {
        match state {
            Ok(Some(state)) if !state.is_running => Self::Ended,
            Ok(_) | Err(_) => Self::Running,
        }
    }
}

#[derive(Debug)]
pub(super) struct ContainerRecord {
    mark: RunMark,
    about: RecordText,
    /// `None` if this supervisor keeps no records.
    file: Option<PathBuf>,
    cid_file: PathBuf,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct RecordText {
    runtime: String,
    key: String,
}

impl ContainerRecord {
    pub(super) fn begin(
        mark: RunMark,
        runtime: &str,
        key: &str,
        records: Option<&RunRecords>,
    ) -> io::Result<Self> {
        let about = RecordText { runtime: runtime.to_owned(), key: key.to_owned() };
        let record = match records {
            Some(records) => Self::at(records.folder(), mark, about),
            None => Self { file: None, ..Self::at(&std::env::temp_dir(), mark, about) },
        };
        if let Some(path) = &record.file {
            let mut file = File::create(path)?;
            file.write_all(&serde_json::to_vec(&record.about)?)?;
            file.sync_all()?;
            File::open(path.parent().unwrap_or(path))?.sync_all()?;
        }
        Ok(record)
    }

    fn at(folder: &Path, mark: RunMark, about: RecordText) -> Self {
        let file = folder.join(mark.as_str()).with_extension(EXTENSION);
        let cid_file = folder.join(format!("redrive-{}.cid", mark.as_str()));
        Self { mark, about, file: Some(file), cid_file }
    }

    /// `None` for other files, and for one whose container cannot have started.
    fn read(path: &Path) -> Option<Self> {
        let mark = path.file_stem()?.to_str().and_then(RunMark::read)?;
        path.extension().filter(|extension| *extension == EXTENSION)?;
        let about = serde_json::from_slice(&fs::read(path).ok()?);
        if about.is_err() {
            let _ = fs::remove_file(path);
        }
        Some(Self::at(path.parent()?, mark, about.ok()?))
    }

    pub(super) fn name(&self) -> String {
        format!("redrive-{}", self.mark.as_str())
    }

    pub(super) fn cid_file(&self) -> &Path {
        &self.cid_file
    }

    /// `None` until it is created. Docker makes the file first and fills it later.
    pub(super) fn id(&self) -> Option<String> {
        let text = fs::read_to_string(&self.cid_file).ok()?;
        let id = text.trim();
        (!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| id.to_owned())
    }

    pub(super) fn client(&self) -> RuntimeClient {
        RuntimeClient::new(&self.about.runtime)
    }

    /// Returns whether it was still running.
    fn end(&self, seen: LastSeen) -> Result<bool, String> {
        let client = self.client();
        let was_running = seen == LastSeen::Running && client.kill(&self.name())?;
        client.remove(&self.name())?;
        for file in self.file.iter().chain([&self.cid_file]) {
            match fs::remove_file(file) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(%error, file = %file.display(), "could not remove the record of a container");
                }
            }
        }
        Ok(was_running)
    }
}

/// Containers that could not be removed, by all runs of a supervisor.
#[derive(Clone, Debug, Default)]
pub(in crate::process) struct Leftovers(Arc<Mutex<Vec<ContainerRecord>>>);

impl Leftovers {
    /// Ends the containers of earlier runs and returns how many still ran.
    pub(in crate::process) fn of(records: &RunRecords) -> io::Result<(Self, usize)> {
        let (mut left, mut survived) = (Vec::<ContainerRecord>::new(), 0);
        for entry in fs::read_dir(records.folder())?.take(RECORDS_MAX) {
            let Some(record) = ContainerRecord::read(&entry?.path()) else { continue };
            // A runtime that does not answer is asked once.
            if left.iter().any(|one| one.about.runtime == record.about.runtime) {
                left.push(record);
                continue;
            }
            match record.end(LastSeen::Running) {
                Ok(was_running) => survived += usize::from(was_running),
                Err(reason) => {
                    tracing::warn!(reason, "could not end a container of an earlier run; trying again later");
                    left.push(record);
                }
            }
        }
        Ok((Self(Arc::new(Mutex::new(left))), survived))
    }

    /// Removes what is left of that runtime; fails if a container with that key stays.
    pub(super) fn settle(&self, runtime: &str, key: &str) -> Result<(), String> {
        // Locked throughout: another run of the same key must not start meanwhile.
        let mut left = self.records();
        let mut failed = None;
        left.retain(|record| {
            if record.about.runtime != runtime {
                return true;
            }
            match record.end(LastSeen::Running) {
                Ok(_) => false,
                Err(reason) => {
                    if record.about.key == key {
                        failed =
                            Some(format!("the container of an earlier attempt could not be ended: {reason}"));
                    }
                    true
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }

    pub(super) fn remove(&self, record: ContainerRecord, seen: LastSeen) {
        if let Err(reason) = record.end(seen) {
            tracing::warn!(reason, name = record.name(), "could not remove a container; trying again later");
            self.records().push(record);
        }
    }

    fn records(&self) -> MutexGuard<'_, Vec<ContainerRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
