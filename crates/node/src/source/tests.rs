//! The contract against a scripted source and a folder, and what only a script can show.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use redrive_core::book::connectors::Endpoint;
use redrive_core::book::connectors::Profile;
use redrive_core::book::connectors::folder::{FolderSettings, SOURCE};
use redrive_core::policy::answer::{BrokerError, ReplyKind};
use tempfile::TempDir;
use tokio::sync::watch;

use super::contract::{Bench, Upstream, event, ids, keeps};
use super::*;
use crate::connectors::{ConnectorFuture, Drivers, SourceSite};
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
    SourceError::new(ReplyKind::Broker(BrokerError::Unavailable), "away")
}

impl Source for Script {
    fn connect(&self) -> ConnectorFuture<'_, Result<SourceConnection, SourceError>> {
        let is_away = self.change(|queue| {
            while let Some(message) = queue.delivered.pop_back() {
                queue.waiting.push_front(message);
            }
            queue.is_away
        });
        let (messages, acks) = (Box::new(self.clone()), Box::new(self.clone()));
        Box::pin(async move { if is_away { Err(away()) } else { Ok(SourceConnection { messages, acks }) } })
    }
}

impl Messages for Script {
    fn next(&mut self, room: ReadRoom) -> ConnectorFuture<'_, Result<SourceRead, SourceError>> {
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
                    return Ok(SourceRead::Messages(read.into_iter().map(message).collect()));
                }
                changed.changed().await.map_err(|_| away())?;
            }
        })
    }
}

fn message((number, body): (u64, String)) -> SourceMessage {
    SourceMessage {
        id: number.to_string(),
        partition: None,
        headers: Vec::new(),
        body: body.into(),
        fault: None,
        token: Arc::new(number),
    }
}

impl Acknowledge for Script {
    fn settle(&mut self, settled: Vec<SettledMessage>) -> ConnectorFuture<'_, Result<(), SourceError>> {
        self.change(|queue| {
            for one in settled {
                let number = one.token.downcast_ref::<u64>().expect("a token of ours");
                queue.delivered.retain(|(known, _)| known != number);
            }
        });
        Box::pin(async { Ok(()) })
    }

    fn lag(&mut self) -> ConnectorFuture<'_, Option<u64>> {
        let lag = self.change(|queue| queue.waiting.len() + queue.delivered.len());
        Box::pin(async move { Some(lag as u64) })
    }
}

impl Upstream for Script {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.clone())
    }

    fn put(&self, bodies: Vec<String>) -> ConnectorFuture<'_, ()> {
        self.change(|queue| {
            for body in bodies {
                queue.put += 1;
                let number = queue.put;
                queue.waiting.push_back((number, body));
            }
        });
        Box::pin(async {})
    }

    fn unacknowledged(&self) -> ConnectorFuture<'_, usize> {
        let left = self.change(|queue| queue.waiting.len() + queue.delivered.len());
        Box::pin(async move { left })
    }

    fn go_away(&self) -> ConnectorFuture<'_, ()> {
        self.change(|queue| queue.is_away = true);
        Box::pin(async {})
    }

    fn come_back(&self) -> ConnectorFuture<'_, ()> {
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
        let settings = FolderSettings { folder: self.path().to_string_lossy().into_owned(), keeps: false };
        let endpoint = Endpoint::new(&SOURCE, Arc::new(settings), Profile::default());
        let site = SourceSite { name: "in", secrets: &Secrets::default() };
        Drivers::built_in().source(&endpoint, &site).expect("it is built in").expect("it can be made")
    }

    fn put(&self, bodies: Vec<String>) -> ConnectorFuture<'_, ()> {
        let mut put = self.put.lock().expect("no test panics here");
        for body in bodies {
            *put += 1;
            let hidden = self.path().join(".new");
            std::fs::write(&hidden, body).expect("written");
            std::fs::rename(hidden, self.path().join(format!("{put:06}.json"))).expect("renamed");
        }
        Box::pin(async {})
    }

    fn unacknowledged(&self) -> ConnectorFuture<'_, usize> {
        let entries = std::fs::read_dir(self.path()).expect("it is there");
        let files = entries.filter(|entry| {
            entry.as_ref().is_ok_and(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        });
        let count = files.count();
        Box::pin(async move { count })
    }

    fn go_away(&self) -> ConnectorFuture<'_, ()> {
        std::fs::rename(self.path(), self.hidden()).expect("renamed");
        Box::pin(async {})
    }

    fn come_back(&self) -> ConnectorFuture<'_, ()> {
        std::fs::rename(self.hidden(), self.path()).expect("renamed");
        Box::pin(async {})
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_keeps_the_contract() {
    keeps(Spooled::new).await;
}

#[test]
fn a_message_is_a_cloudevent_or_made_one_by_templates() {
    use super::convert::Converter;
    let read = |keys: &str, headers: &[(&str, &str)], body: &str| {
        let book = format!("version: 1\nsources: {{ in: {{ folder: /f{keys} }} }}\n");
        let book = crate::target::call_test::book_of(&book);
        let converter = Converter::new("in", &book.sections().sources["in"].value);
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let message = SourceMessage { headers, ..message((7, body.to_owned())) };
        converter.event(&message, Timestamp::EPOCH).map(|event| {
            let session = event.session.map(|session| session.to_string()).unwrap_or_default();
            format!("{} {} {} {session}", event.source, event.id, event.event_type)
        })
    };
    let whole = r#"{"specversion":"1.0","id":"e","source":"/s","type":"a.b","data":{"k":"ann"}}"#;
    let bound = [("ce-specversion", "1.0"), ("ce-id", "e"), ("ce-source", "/s"), ("ce-type", "a.b")];
    let batch = [("content-type", "application/cloudevents-batch+json")];
    #[rustfmt::skip]
    let cases = [
        ("a whole event",             "",                                        &[][..],    whole,            Ok("/s e a.b ")),
        ("with a session made",       ", session: \"{data.k}\"",                 &[],        whole,            Ok("/s e a.b ann")),
        ("plain data",                ", type: x.y",                             &[],        "{}",             Ok("/sources/in 7 x.y ")),
        ("an id of its own",          ", type: \"x.{data.t}\", id: \"{data.i}\"", &[],       r#"{"t":1,"i":2}"#, Ok("/sources/in 2 x.1 ")),
        ("headers of a binding",      ", type: x.y",                             &bound,     "{}",             Ok("/s e a.b ")),
        ("no event",                  "",                                        &[],        "{}",             Err("`specversion`")),
        ("no JSON for a template",    ", type: \"x.{data.t}\"",                  &[],        "no",             Err("`body`")),
        ("a batch",                   "",                                        &batch,     &format!("[{whole}]"), Err("a batch")),
        ("a source of ours",          "",                                        &[],        &whole.replace("\"/s\"", "\"/schedules/x\""), Err("for the schedules")),
    ];
    for (name, keys, headers, body, expected) in cases {
        match (read(keys, headers, body), expected) {
            (Ok(event), Ok(expected)) => assert_eq!(event, expected, "{name}"),
            (Err(reason), Err(part)) => assert!(reason.contains(part), "{name}: {reason}"),
            (came, _) => panic!("{name}: {came:?}"),
        }
    }
}

/// Gives what a test says, and remembers what is acknowledged.
#[derive(Clone, Default)]
struct Steps {
    reads: Arc<tokio::sync::Mutex<VecDeque<SourceRead>>>,
    acked: Arc<Mutex<Vec<u64>>>,
    connects: Arc<Mutex<usize>>,
}

impl Source for Steps {
    fn connect(&self) -> ConnectorFuture<'_, Result<SourceConnection, SourceError>> {
        *self.connects.lock().expect("no test panics here") += 1;
        let (messages, acks) = (Box::new(self.clone()), Box::new(self.clone()));
        Box::pin(async move { Ok(SourceConnection { messages, acks }) })
    }
}

impl Messages for Steps {
    fn next(&mut self, _: ReadRoom) -> ConnectorFuture<'_, Result<SourceRead, SourceError>> {
        Box::pin(async {
            loop {
                if let Some(read) = self.reads.lock().await.pop_front() {
                    return Ok(read);
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
    }
}

impl Acknowledge for Steps {
    fn settle(&mut self, settled: Vec<SettledMessage>) -> ConnectorFuture<'_, Result<(), SourceError>> {
        let numbers = settled.iter().map(|one| *one.token.downcast_ref::<u64>().expect("a token of ours"));
        self.acked.lock().expect("no test panics here").extend(numbers);
        Box::pin(async { Ok(()) })
    }

    fn lag(&mut self) -> ConnectorFuture<'_, Option<u64>> {
        Box::pin(async { None })
    }
}

impl Upstream for Steps {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.clone())
    }

    fn put(&self, _: Vec<String>) -> ConnectorFuture<'_, ()> {
        Box::pin(async {})
    }

    fn unacknowledged(&self) -> ConnectorFuture<'_, usize> {
        Box::pin(async { 0 })
    }

    fn go_away(&self) -> ConnectorFuture<'_, ()> {
        Box::pin(async {})
    }

    fn come_back(&self) -> ConnectorFuture<'_, ()> {
        Box::pin(async {})
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_revoked_before_it_is_handed_over_is_dropped_and_not_acknowledged() {
    let steps = Steps::default();
    let bench = Bench::new(steps.clone());
    let of = |partition: &str, numbers: std::ops::Range<u64>| {
        let number = |number: u64| SourceMessage {
            partition: Some(partition.into()),
            ..message((number, event(usize::try_from(number).expect("a small number"))))
        };
        SourceRead::Messages(numbers.map(number).collect())
    };
    bench.pause().await;
    let sources = bench.start();
    // The service takes four while it is paused.
    steps.reads.lock().await.push_back(of("one", 0..6));
    bench.until("it is held", async || matches!(bench.view().state, SourceState::Held(_))).await;
    let mut more =
        VecDeque::from([of("two", 6..8), SourceRead::Revoked(vec!["one".into()]), of("one", 8..10)]);
    steps.reads.lock().await.append(&mut more);
    bench.until("all is read", async || steps.reads.lock().await.is_empty()).await;
    bench.until("the revoked are dropped", async || bench.view().held <= 4).await;
    bench.resume().await;
    bench.until("the rest is taken", async || bench.accepted().await.len() == 8).await;
    assert_eq!(bench.accepted().await, [ids(0..4), ids(6..10)].concat());
    bench.until("and acknowledged", async || steps.acked.lock().expect("no panic").len() == 8).await;
    assert_eq!(*steps.acked.lock().expect("no panic"), [0, 1, 2, 3, 6, 7, 8, 9]);
    assert_eq!(*steps.connects.lock().expect("no panic"), 1);
    sources.stop().await;
}
