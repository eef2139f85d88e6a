//! An archivist beside a real node: with a real folder, and with an archive that fails when it is asked to.

use std::collections::VecDeque;
use std::path::Path;

use redrive_core::book::connectors::built_in;
use redrive_core::engine::EngineBounds;
use redrive_core::event::attribute::EventId;
use redrive_core::event::simple::{SimpleEvent, parse_simple};
use redrive_core::event::{Event, HeaderList};
use tokio::sync::broadcast;

use super::super::folder::find;
use super::super::{ArchiveFuture, ArchiveKey, ArchiveMatches, ArchivedEvent};
use super::*;
use crate::activity::{Activity, ActivityLine};
use crate::runtime::Config;
use crate::secret::Secrets;
use crate::store::tests::DataFolder;
use crate::target::registry::Targets;

/// Long enough for any machine; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Nobody wants the events of these tests, so that nothing but the archive has to do with them.
fn book(archive: &str) -> Arc<RuleBook> {
    let text = format!(
        "version: 1\nservices:\n  a:\n    target: {{ log: stdout }}\n    events: [x.y]\n\
         breakers:\n  quick: {{ trip: {{ consecutive: 3 }}, open: 100ms, probes: 1 }}\n{archive}"
    );
    let reading = redrive_core::book::read(&text, built_in());
    Arc::new(reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems)))
}

fn in_folder(folder: &Path) -> Arc<RuleBook> {
    book(&format!("archive: {{ folder: {} }}\n", folder.display()))
}

fn node_on(store: &DataFolder, book: Arc<RuleBook>) -> Node {
    let config = Config {
        targets: Targets::new(&book, &Secrets::new(&book, Drivers::built_in()), None).expect("it logs"),
        book,
        book_text: "".into(),
        store: Box::new(store.open()),
        bounds: EngineBounds { window: 8, window_bytes: 1 << 20, calls: 8 },
    };
    Node::start(config).expect("a store that is well")
}

fn event(id: &str) -> Event {
    let headers: Vec<(String, String)> = Vec::new();
    parse_simple(SimpleEvent {
        event_type: "nobody.wants",
        partition_key: None,
        idempotency_key: None,
        generated_id: &EventId::new(id).expect("an id"),
        headers: &headers as &dyn HeaderList,
        body: &bytes::Bytes::from_static(b"{\"a\": 1}"),
    })
    .expect("an event")
}

async fn submit(node: &Node, ids: &[&str]) {
    node.submit(ids.iter().map(|id| event(id)).collect()).await.expect("taken");
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn is_in(folder: &Path, id: &str) -> bool {
    find(folder, &ArchiveKey::Id(id.to_owned())).is_ok_and(|found| !found.kept.is_empty())
}

fn memo(store: &DataFolder) -> Option<String> {
    store.reader().memo(UPTO).expect("in memory")
}

/// An archive that does as it is told, and then well.
#[derive(Default)]
struct Scripted {
    puts: Mutex<VecDeque<Told>>,
    syncs: Mutex<VecDeque<ArchiveFailure>>,
    kept: Mutex<Vec<String>>,
    data: DataFolder,
}

#[derive(Clone)]
enum Told {
    Fail(ArchiveFailure),
    Hang,
}

impl Scripted {
    fn saying(puts: &[Told]) -> Arc<Self> {
        Arc::new(Self { puts: Mutex::new(puts.iter().cloned().collect()), ..Self::default() })
    }

    fn kept(&self) -> Vec<String> {
        self.kept.lock().expect("no test panics here").clone()
    }
}

impl Archive for Scripted {
    fn put(&self, entry: Arc<ArchiveEntry>) -> ArchiveFuture<'_, ()> {
        Box::pin(async move {
            let told = self.puts.lock().expect("no test panics here").pop_front();
            match told {
                Some(Told::Fail(failure)) => Err(failure),
                Some(Told::Hang) => std::future::pending().await,
                None => {
                    let kept = ArchivedEvent::read(entry.bytes.clone()).expect("as it was written");
                    self.kept.lock().expect("no test panics here").push(kept.id);
                    Ok(())
                }
            }
        })
    }

    fn sync(&self) -> ArchiveFuture<'_, ()> {
        let told = self.syncs.lock().expect("no test panics here").pop_front();
        Box::pin(async move { told.map_or(Ok(()), Err) })
    }

    fn forget(&self, _before: Day) -> ArchiveFuture<'_, u64> {
        Box::pin(async { Ok(0) })
    }

    fn get(&self, _key: ArchiveKey) -> ArchiveFuture<'_, ArchiveMatches> {
        Box::pin(async { Ok(ArchiveMatches::default()) })
    }
}

/// A node whose archive follows a script.
async fn scripted(archive: &Arc<Scripted>, keys: &str) -> (Node, Archivist) {
    let node = node_on(&archive.data, book(&format!("archive: {{ folder: /none{keys} }}\n")));
    let archive = Arc::clone(archive);
    let archivist = Archivist::with(&node, Box::new(move |_| Ok(Arc::clone(&archive) as Arc<dyn Archive>)));
    let archivist = archivist.await;
    (node, archivist)
}

fn other() -> Told {
    Told::Fail(ArchiveFailure::Other { reason: "as asked".to_owned() })
}

fn status(node: &Node, archivist: &Archivist) -> ArchiveStatus {
    archivist.status(node.now()).expect("the book has one")
}

/// The alerts that were told since somebody listens.
fn alerts(activities: &mut broadcast::Receiver<Arc<ActivityLine>>) -> Vec<String> {
    let mut alerts = Vec::new();
    while let Ok(line) = activities.try_recv() {
        if let Activity::Alert(facts) = &line.activity {
            alerts.push(facts.message.clone());
        }
    }
    alerts
}

#[tokio::test]
async fn an_archive_begins_with_what_is_accepted_from_then_on() {
    let (store, folder) = (DataFolder::default(), tempfile::tempdir().expect("a folder"));
    let node = node_on(&store, book(""));
    let archivist = Archivist::start(&node, Drivers::built_in()).await;
    submit(&node, &["before"]).await;
    assert_eq!(archivist.status(node.now()), None);
    archivist.change(&in_folder(folder.path()));
    until("it knows where it begins", || memo(&store).is_some()).await;
    submit(&node, &["after", "and then"]).await;
    until("both are in it", || is_in(folder.path(), "after") && is_in(folder.path(), "and then")).await;
    assert!(!is_in(folder.path(), "before"));
    until("it is counted", || status(&node, &archivist).archived == 2).await;
    let found = find(folder.path(), &ArchiveKey::Id("after".to_owned())).expect("it looks").kept;
    assert_eq!(found[0].data, b"{\"a\": 1}", "byte for byte");
    until("it has caught up", || status(&node, &archivist).behind.is_none()).await;
    archivist.stop().await;
}

#[tokio::test]
async fn what_came_in_while_nobody_archived_is_caught_up_with() {
    let (store, folder) = (DataFolder::default(), tempfile::tempdir().expect("a folder"));
    let node = node_on(&store, in_folder(folder.path()));
    let archivist = Archivist::start(&node, Drivers::built_in()).await;
    submit(&node, &["1", "2"]).await;
    until("they are in it", || is_in(folder.path(), "2")).await;
    archivist.stop().await;
    submit(&node, &["3", "4"]).await;
    node.stop(PATIENCE).await;

    let node = node_on(&store, in_folder(folder.path()));
    let archivist = Archivist::start(&node, Drivers::built_in()).await;
    until("the rest is in it", || is_in(folder.path(), "3") && is_in(folder.path(), "4")).await;
    until("it is counted", || {
        status(&node, &archivist).left_out == 0 && status(&node, &archivist).archived >= 2
    })
    .await;
    archivist.stop().await;
}

#[tokio::test]
async fn a_page_whose_place_was_not_noted_is_written_again_and_is_the_same() {
    let (store, folder) = (DataFolder::default(), tempfile::tempdir().expect("a folder"));
    let node = node_on(&store, in_folder(folder.path()));
    let first = Archivist::start(&node, Drivers::built_in()).await;
    let begun = memo(&store);
    submit(&node, &["1", "2", "3"]).await;
    until("they are noted", || memo(&store) != begun).await;
    first.stop().await;
    node.set_memo(UPTO, begun.clone()).await.expect("durable");
    let again = Archivist::start(&node, Drivers::built_in()).await;
    until("they are noted again", || memo(&store) != begun).await;
    for id in ["1", "2", "3"] {
        assert_eq!(find(folder.path(), &ArchiveKey::Id(id.to_owned())).expect("it looks").kept.len(), 1);
    }
    again.stop().await;
}

#[tokio::test]
async fn an_archive_that_goes_from_the_book_and_comes_back_begins_anew() {
    let (store, folder) = (DataFolder::default(), tempfile::tempdir().expect("a folder"));
    let node = node_on(&store, in_folder(folder.path()));
    let archivist = Archivist::start(&node, Drivers::built_in()).await;
    archivist.change(&book(""));
    until("its place is forgotten", || memo(&store).is_none()).await;
    submit(&node, &["meanwhile"]).await;
    archivist.change(&in_folder(folder.path()));
    until("it has a place again", || memo(&store).is_some()).await;
    submit(&node, &["after"]).await;
    until("it goes on", || is_in(folder.path(), "after")).await;
    assert!(!is_in(folder.path(), "meanwhile"));
    archivist.stop().await;
}

#[tokio::test]
async fn an_archive_that_asks_to_slow_down_misses_nothing() {
    let slow = Told::Fail(ArchiveFailure::Throttled { retry_after: None, reason: "full".to_owned() });
    let archive = Scripted::saying(&[slow.clone(), slow]);
    let (node, archivist) = scripted(&archive, "").await;
    submit(&node, &["1", "2"]).await;
    until("it waits", || matches!(status(&node, &archivist).standing, ArchiveHealth::Waiting { .. })).await;
    assert!(status(&node, &archivist).behind.is_some());
    until("both are kept", || status(&node, &archivist).archived == 2).await;
    assert_eq!(archive.kept(), ["1", "2"]);
    let status = status(&node, &archivist);
    assert_eq!((status.left_out, status.standing), (0, ArchiveHealth::Well));
    assert!(status.last_error.expect("it went wrong").1.contains("full"));
}

#[tokio::test]
async fn an_archive_that_lets_nobody_in_is_an_alert_and_misses_nothing() {
    let locked = Told::Fail(ArchiveFailure::Credentials { reason: "read-only".to_owned() });
    let archive = Scripted::saying(&[locked.clone(), locked.clone(), locked]);
    let (node, archivist) = scripted(&archive, "").await;
    let mut activities = node.activities();
    submit(&node, &["1", "2"]).await;
    until("both are kept", || status(&node, &archivist).archived == 2).await;
    let alerts = alerts(&mut activities);
    assert!(alerts.len() == 1 && alerts[0].contains("read-only"), "{alerts:?}");
    assert_eq!(archive.kept(), ["1", "2"]);
}

#[tokio::test]
async fn an_event_that_is_too_slow_twice_is_left_out() {
    let archive = Scripted::saying(&[Told::Hang, Told::Hang]);
    let (node, archivist) = scripted(&archive, ", timeout: 20ms").await;
    let mut activities = node.activities();
    submit(&node, &["slow", "2"]).await;
    until("the next one is kept", || status(&node, &archivist).archived == 1).await;
    assert_eq!(archive.kept(), ["2"]);
    assert_eq!(status(&node, &archivist).left_out, 1);
    let alerts = alerts(&mut activities);
    assert!(alerts.len() == 1 && alerts[0].contains("not archived: no answer"), "{alerts:?}");
}

#[tokio::test]
async fn an_open_breaker_leaves_out_what_comes_and_says_how_many() {
    let archive = Scripted::saying(&[other(), other(), other()]);
    let (node, archivist) = scripted(&archive, ", breaker: quick").await;
    let mut activities = node.activities();
    submit(&node, &["1", "2", "3"]).await;
    until("they are left out", || status(&node, &archivist).left_out == 3).await;
    assert_eq!(status(&node, &archivist).standing, ArchiveHealth::Open);
    // Each is left out until the breaker lets a probe through.
    let mut number = 4;
    while archive.kept().is_empty() {
        submit(&node, &[&number.to_string()]).await;
        number += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until("it is well again", || status(&node, &archivist).standing == ArchiveHealth::Well).await;
    until("all are accounted for", || {
        let ArchiveStatus { archived, left_out, .. } = status(&node, &archivist);
        archived + left_out == number - 1
    })
    .await;
    let left_out = status(&node, &archivist).left_out;
    let mut told = Vec::new();
    while let Ok(line) = activities.try_recv() {
        if let Activity::BreakerOpened(facts) | Activity::BreakerClosed(facts) = &line.activity {
            told.push(facts.message.clone());
        }
    }
    assert_eq!(told.len(), 2, "once when it opens and once when it closes: {told:?}");
    assert!(told[1].contains(&format!("{left_out} events")), "{told:?}");
}

#[tokio::test]
async fn a_page_that_is_not_durable_is_written_again_before_its_place_is_noted() {
    let archive = Scripted::saying(&[]);
    archive
        .syncs
        .lock()
        .expect("no test panics here")
        .push_back(ArchiveFailure::Other { reason: "torn".to_owned() });
    let (node, archivist) = scripted(&archive, "").await;
    let mut activities = node.activities();
    submit(&node, &["1"]).await;
    until("it went wrong", || status(&node, &archivist).is_stuck).await;
    assert_eq!(status(&node, &archivist).archived, 0);
    until("it is kept", || status(&node, &archivist).archived == 1).await;
    until("it gets on", || !status(&node, &archivist).is_stuck).await;
    assert_eq!(archive.kept(), ["1", "1"]);
    let alerts = alerts(&mut activities);
    assert!(alerts.len() == 1 && alerts[0].contains("torn"), "{alerts:?}");
}

#[tokio::test]
async fn old_days_are_deleted_and_the_rest_stays() {
    for (retention, is_deleted) in [(", retention: 30d", true), ("", false)] {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["2020-01-01", "keep-me"] {
            std::fs::create_dir(folder.path().join(name)).expect("it is made");
        }
        let rule = format!("archive: {{ folder: {}{retention} }}\n", folder.path().display());
        let store = DataFolder::default();
        let node = node_on(&store, book(&rule));
        let archivist = Archivist::start(&node, Drivers::built_in()).await;
        submit(&node, &["1"]).await;
        until("it is at work", || status(&node, &archivist).archived == 1).await;
        let old = folder.path().join("2020-01-01");
        if is_deleted {
            until("it is deleted", || !old.exists()).await;
        }
        archivist.stop().await;
        assert_eq!(old.exists(), !is_deleted, "{retention}");
        assert!(folder.path().join("keep-me").exists());
    }
}
