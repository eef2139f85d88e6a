//! The contract against a scripted source and a folder, and what only a script can show.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use redrive_core::book::connectors::Endpoint;
use redrive_core::book::connectors::Profile;
use redrive_core::book::connectors::folder::{SOURCE, Spool};
use redrive_core::policy::answer::{BrokerError, Seen};
use tempfile::TempDir;
use tokio::sync::watch;

use super::contract::{Upstream, keeps};
use super::*;
use crate::connectors::{Drivers, SourceSite};
use crate::secret::Secrets;

/// A queue in memory: what is not acknowledged when a connection ends is delivered again.
#[derive(Clone)]
struct Script(Arc<Mutex<Queue>>, watch::Sender<u64>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u64, String)>,
    delivered: VecDeque<(u64, String)>,
    put: u64,
    is_away: bool,
}

impl Script {
    fn new() -> Self {
        Self(Arc::default(), watch::Sender::new(0))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let changed = change(&mut self.0.lock().expect("no test panics here"));
        self.1.send_modify(|version| *version += 1);
        changed
    }
}

fn away() -> SourceError {
    SourceError {
        seen: Seen::Broker(BrokerError::Unavailable),
        message: "away".to_owned(),
        retry_after: None,
    }
}

impl Source for Script {
    fn connect(&self) -> Doing<'_, Result<Connection, SourceError>> {
        let is_away = self.change(|queue| {
            while let Some(message) = queue.delivered.pop_back() {
                queue.waiting.push_front(message);
            }
            queue.is_away
        });
        let (messages, acks) = (Box::new(self.clone()), Box::new(self.clone()));
        Box::pin(async move { if is_away { Err(away()) } else { Ok(Connection { messages, acks }) } })
    }
}

impl Messages for Script {
    fn next(&mut self, room: Room) -> Doing<'_, Result<Read, SourceError>> {
        Box::pin(async move {
            let mut changed = self.1.subscribe();
            loop {
                let read = {
                    let mut queue = self.0.lock().expect("no test panics here");
                    if queue.is_away {
                        return Err(away());
                    }
                    let count = queue.waiting.len().min(room.messages);
                    let read: Vec<(u64, String)> = queue.waiting.drain(..count).collect();
                    queue.delivered.extend(read.iter().cloned());
                    read
                };
                if !read.is_empty() {
                    return Ok(Read::Messages(read.into_iter().map(message).collect()));
                }
                changed.changed().await.map_err(|_| away())?;
            }
        })
    }
}

fn message((number, body): (u64, String)) -> Message {
    Message {
        id: number.to_string(),
        partition: None,
        headers: Vec::new(),
        body: body.into(),
        fault: None,
        token: Arc::new(number),
    }
}

impl Acknowledge for Script {
    fn settle(&mut self, settled: Vec<Settled>) -> Doing<'_, Result<(), SourceError>> {
        self.change(|queue| {
            for one in settled {
                let number = one.token.downcast_ref::<u64>().expect("a token of ours");
                queue.delivered.retain(|(known, _)| known != number);
            }
        });
        Box::pin(async { Ok(()) })
    }

    fn lag(&mut self) -> Doing<'_, Option<u64>> {
        let lag = self.change(|queue| queue.waiting.len() + queue.delivered.len());
        Box::pin(async move { Some(lag as u64) })
    }
}

impl Upstream for Script {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.clone())
    }

    fn put(&self, bodies: Vec<String>) -> Doing<'_, ()> {
        self.change(|queue| {
            for body in bodies {
                queue.put += 1;
                let number = queue.put;
                queue.waiting.push_back((number, body));
            }
        });
        Box::pin(async {})
    }

    fn unacknowledged(&self) -> Doing<'_, usize> {
        let left = self.change(|queue| queue.waiting.len() + queue.delivered.len());
        Box::pin(async move { left })
    }

    fn go_away(&self) -> Doing<'_, ()> {
        self.change(|queue| queue.is_away = true);
        Box::pin(async {})
    }

    fn come_back(&self) -> Doing<'_, ()> {
        self.change(|queue| queue.is_away = false);
        Box::pin(async {})
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scripted_source_keeps_the_contract() {
    keeps(Script::new).await;
}

/// A folder whose files have one event each.
struct Spooled {
    folder: TempDir,
    put: Mutex<usize>,
}

impl Spooled {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("in")).expect("made");
        Self { folder, put: Mutex::new(0) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("in")
    }

    fn hidden(&self) -> PathBuf {
        self.folder.path().join("hidden")
    }
}

impl Upstream for Spooled {
    fn source(&self) -> Arc<dyn Source> {
        let settings = Spool { folder: self.path().to_string_lossy().into_owned(), keeps: false };
        let endpoint = Endpoint::new(&SOURCE, Arc::new(settings), Profile::default());
        let site = SourceSite { name: "in", secrets: &Secrets::default() };
        Drivers::built_in().source(&endpoint, &site).expect("it is built in").expect("it can be made")
    }

    fn put(&self, bodies: Vec<String>) -> Doing<'_, ()> {
        let mut put = self.put.lock().expect("no test panics here");
        for body in bodies {
            *put += 1;
            let hidden = self.path().join(".new");
            std::fs::write(&hidden, body).expect("written");
            std::fs::rename(hidden, self.path().join(format!("{put:06}.json"))).expect("renamed");
        }
        Box::pin(async {})
    }

    fn unacknowledged(&self) -> Doing<'_, usize> {
        let entries = std::fs::read_dir(self.path()).expect("it is there");
        let files = entries.filter(|entry| {
            entry.as_ref().is_ok_and(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        });
        let count = files.count();
        Box::pin(async move { count })
    }

    fn go_away(&self) -> Doing<'_, ()> {
        std::fs::rename(self.path(), self.hidden()).expect("renamed");
        Box::pin(async {})
    }

    fn come_back(&self) -> Doing<'_, ()> {
        std::fs::rename(self.hidden(), self.path()).expect("renamed");
        Box::pin(async {})
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_keeps_the_contract() {
    keeps(Spooled::new).await;
}
