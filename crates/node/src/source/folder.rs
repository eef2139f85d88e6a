//! The `folder` source: reads files that are moved into a folder.
//!
//! Files are read in the order of their names, lines in theirs. A file must be written elsewhere, or under a
//! name that begins with a dot or ends in `.tmp` or `.part`, and then renamed. When all of its events are
//! durable it is deleted, or moved to `done`; a file with a refused event is moved to `refused` as a whole,
//! with a text that lists lines and reasons. Moved back after a fix it is read again, and accepted events are
//! duplicates.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redrive::private;
use redrive_core::book::connectors::folder::{FolderSettings, SOURCE};
use redrive_core::hash;
use redrive_core::policy::answer::{BrokerError, ReplyKind};
use serde::de::IgnoredAny;

use super::{
    Acknowledge, MessageVerdict, Messages, ReadRoom, SettledMessage, Source, SourceConnection, SourceError,
    SourceMessage, SourceRead,
};
use crate::connectors::{ConnectorFuture, Driver, Make, settings};

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// File names per scan; the others wait for the next.
const NAMES_MAX: usize = 4_096;
/// Bytes of a one-event file, or of a line.
const EVENT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Refused lines listed per file.
const REASONS_MAX: usize = 1_000;

const UNFINISHED: [&str; 2] = [".tmp", ".part"];
/// Suffixes of files with one event per line.
const WITH_LINES: [&str; 2] = [".ndjson", ".jsonl"];
const DONE: &str = "done";
const REFUSED: &str = "refused";

pub(crate) const DRIVER: Driver = Driver {
    connector: &SOURCE,
    make: Make::Source(|endpoint, _| {
        Ok(Arc::new(FolderSource(settings::<FolderSettings>(endpoint).clone())))
    }),
};

struct FolderSource(FolderSettings);

impl Source for FolderSource {
    fn connect(&self) -> ConnectorFuture<'_, Result<SourceConnection, SourceError>> {
        let FolderSettings { folder, keeps } = self.0.clone();
        Box::pin(blocking(move || {
            let folder = PathBuf::from(folder);
            fs::read_dir(&folder)?;
            private::make_folder(&folder.join(REFUSED))?;
            if keeps {
                private::make_folder(&folder.join(DONE))?;
            }
            let spool = Arc::new(OpenSpool { folder, keeps, open: Mutex::default() });
            let reader = FolderReader { spool: Arc::clone(&spool), names: VecDeque::new(), file: None };
            Ok(SourceConnection {
                messages: Box::new(FolderMessages(Some(reader))),
                acks: Box::new(FolderAcks(spool)),
            })
        }))
    }
}

struct OpenSpool {
    folder: PathBuf,
    keeps: bool,
    /// Files being read or not fully acknowledged, by name.
    open: Mutex<BTreeMap<Arc<str>, OpenFile>>,
}

#[derive(Default)]
struct OpenFile {
    unsettled: u64,
    is_read: bool,
    reasons: Vec<String>,
}

impl OpenSpool {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, OpenFile>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, name: &str) -> io::Result<()> {
        let reasons = match self.lock().get_mut(name) {
            Some(file) if file.is_read && file.unsettled == 0 => std::mem::take(&mut file.reasons),
            Some(_) | None => return Ok(()),
        };
        let file = self.folder.join(name);
        let ended = if !reasons.is_empty() {
            let refused = self.folder.join(REFUSED);
            fs::write(refused.join(format!("{name}.reason.txt")), reasons.concat())?;
            fs::rename(&file, refused.join(name))
        } else if self.keeps {
            fs::rename(&file, self.folder.join(DONE).join(name))
        } else {
            fs::remove_file(&file)
        };
        match ended {
            // It was removed by someone else.
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.lock().remove(name);
        Ok(())
    }
}

struct LineToken {
    file: Arc<str>,
    number: u64,
}

struct FolderMessages(Option<FolderReader>);

impl Messages for FolderMessages {
    fn next(&mut self, room: ReadRoom) -> ConnectorFuture<'_, Result<SourceRead, SourceError>> {
        Box::pin(async move {
            loop {
                let mut reader = self.0.take().ok_or_else(|| failed(&io::Error::other("it was left")))?;
                let (reader, read) = blocking(move || {
                    let read = reader.read(room);
                    Ok((reader, read))
                })
                .await?;
                self.0 = Some(reader);
                let messages = read.map_err(|error| failed(&error))?;
                if !messages.is_empty() {
                    return Ok(SourceRead::Messages(messages));
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })
    }
}

struct FolderReader {
    spool: Arc<OpenSpool>,
    /// From the last scan, next first.
    names: VecDeque<String>,
    file: Option<FileCursor>,
}

struct FileCursor {
    name: Arc<str>,
    lines: BufReader<File>,
    has_lines: bool,
    number: u64,
}

impl FolderReader {
    fn read(&mut self, room: ReadRoom) -> io::Result<Vec<SourceMessage>> {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while messages.len() < room.messages && bytes < room.bytes {
            if self.file.is_none() && !self.open_next()? {
                break;
            }
            let Some(file) = &mut self.file else { break };
            let message = file.next()?;
            let mut open = self.spool.lock();
            let of = open.entry(Arc::clone(&file.name)).or_default();
            if let Some(message) = message {
                of.unsettled += 1;
                bytes += message.body.len();
                messages.push(message);
            } else {
                of.is_read = true;
                drop(open);
                // All of it may be acknowledged already.
                self.spool.end(&file.name)?;
                self.file = None;
            }
        }
        Ok(messages)
    }

    fn open_next(&mut self) -> io::Result<bool> {
        if self.names.is_empty() {
            let open = self.spool.lock();
            self.names = waiting(&self.spool.folder, |name| !open.contains_key(name))?.into_iter().collect();
        }
        while let Some(name) = self.names.pop_front() {
            match File::open(self.spool.folder.join(&name)) {
                Ok(file) => {
                    let has_lines = WITH_LINES.iter().any(|end| name.ends_with(end));
                    let lines = BufReader::new(file);
                    self.file = Some(FileCursor { name: name.into(), lines, has_lines, number: 0 });
                    return Ok(true);
                }
                // It was removed by someone else.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

impl FileCursor {
    fn next(&mut self) -> io::Result<Option<SourceMessage>> {
        let mut body = Vec::new();
        loop {
            body.clear();
            let mut limited = (&mut self.lines).take(EVENT_BYTES_MAX + 1);
            let read = if self.has_lines {
                limited.read_until(b'\n', &mut body)?
            } else {
                limited.read_to_end(&mut body)?
            };
            // An empty one-event file is refused, not skipped.
            if read == 0 && (self.has_lines || self.number > 0) {
                return Ok(None);
            }
            self.number += 1;
            if !body.trim_ascii().is_empty() || !self.has_lines {
                break;
            }
        }
        let is_too_long = body.len() as u64 > EVENT_BYTES_MAX;
        if is_too_long {
            body.truncate(1_024);
            if self.has_lines {
                self.lines.skip_until(b'\n')?;
            } else {
                io::copy(&mut self.lines, &mut io::sink())?;
            }
        }
        body.truncate(body.trim_ascii_end().len());
        let fault = if is_too_long {
            Some(format!("longer than {EVENT_BYTES_MAX} bytes"))
        } else {
            serde_json::from_slice::<IgnoredAny>(&body).err().map(|error| format!("not valid JSON: {error}"))
        };
        let (name, number) = (&self.name, self.number);
        Ok(Some(SourceMessage {
            id: format!("{name}:{number}:{:032x}", hash::stable_128(&body)),
            partition: None,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            fault,
            body: body.into(),
            token: Arc::new(LineToken { file: Arc::clone(name), number }),
        }))
    }
}

struct FolderAcks(Arc<OpenSpool>);

impl Acknowledge for FolderAcks {
    fn settle(&mut self, settled: Vec<SettledMessage>) -> ConnectorFuture<'_, Result<(), SourceError>> {
        let spool = Arc::clone(&self.0);
        Box::pin(blocking(move || {
            let mut files = BTreeSet::new();
            for SettledMessage { token, verdict } in settled {
                let Some(LineToken { file, number }) = token.downcast_ref() else { continue };
                let mut open = spool.lock();
                let Some(of) = open.get_mut(file) else { continue };
                of.unsettled -= 1;
                if let MessageVerdict::Refused(reason) = verdict
                    && of.reasons.len() < REASONS_MAX
                {
                    of.reasons.push(format!("line {number}: {reason}\n"));
                }
                files.insert(Arc::clone(file));
            }
            files.iter().try_for_each(|file| spool.end(file))
        }))
    }

    fn lag(&mut self) -> ConnectorFuture<'_, Option<u64>> {
        let spool = Arc::clone(&self.0);
        Box::pin(async move { blocking(move || Ok(names(&spool.folder)?.count() as u64)).await.ok() })
    }
}

/// The first names in order, bounded.
fn waiting(folder: &Path, is_new: impl Fn(&str) -> bool) -> io::Result<BTreeSet<String>> {
    let mut first = BTreeSet::new();
    for name in names(folder)?.filter(|name| is_new(name)) {
        first.insert(name);
        if first.len() > NAMES_MAX {
            first.pop_last();
        }
    }
    Ok(first)
}

/// Unordered; names that are not UTF-8 are skipped.
fn names(folder: &Path) -> io::Result<impl Iterator<Item = String>> {
    let entries = fs::read_dir(folder)?.filter_map(Result::ok);
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.filter_map(|entry| entry.file_name().into_string().ok());
    let is_whole =
        |name: &String| !name.starts_with('.') && !UNFINISHED.iter().any(|end| name.ends_with(end));
    Ok(names.filter(is_whole))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SourceError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| failed(&error))
}

fn failed(error: &io::Error) -> SourceError {
    let seen = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => BrokerError::QueueNotFound,
        ErrorKind::PermissionDenied => BrokerError::Unauthorized,
        _ => BrokerError::Unavailable,
    };
    SourceError::new(ReplyKind::Broker(seen), error.to_string())
}
