//! A node with a store that fails when asked to, and a target that answers when asked to.

mod access;
mod books;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::book::connectors::built_in;
use redrive_core::engine::{Ending, EngineBounds, LoadRequest, LoadedPage, TargetCall};
use redrive_core::event::simple::{SimpleEvent, parse_simple};
use redrive_core::event::{Event, HeaderList};
use redrive_core::ids::ServiceName;
use redrive_core::policy::answer::{HeaderPairs, ReplyKind, TargetReply};
use redrive_core::time::Timestamp;
use tokio::sync::Semaphore;

use super::{Config, Fatal, Node, ReadError, SubmitError, stranded};
use crate::store::access_store::AuditActor;
use crate::store::sqlite::Sqlite;
use crate::store::tests::DataFolder;
use crate::store::{
    Backup, BackupProgress, BatchResult, DeliveryState, DiskRoom, EventKey, HousekeepingStep,
    Occurrence as Came, RecoveredState, RetentionRules, Store, StoreError, StoreReader, WriteBatch,
};
use crate::target::Target;
use crate::target::registry::Targets;

const BOOK: &str = "version: 1\nservices:\n  shop:\n    target: { log: stdout }\n    order: session\n    retry: aggressive\n    events: [\"orders.*\"]\n";
/// Long enough for any machine; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// How the store behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Well,
    /// Nothing is written, and it says so.
    Refuses,
    /// It is written, and it says that nobody knows; nothing more is until it is opened anew.
    LosesTheAnswer,
    /// It cannot say how much room there is.
    Blind,
    /// There is too little room.
    Full,
    /// It has no memory left until it is opened anew.
    Exhausted,
    /// It has a bug.
    Panics,
}

struct Flaky {
    inner: Sqlite,
    mood: Arc<Mutex<Mood>>,
    reopened: Arc<AtomicUsize>,
    is_unknown: bool,
}

impl Store for Flaky {
    fn recover(&mut self, now: Timestamp) -> Result<RecoveredState, StoreError> {
        self.inner.recover(now)
    }

    fn write(&mut self, batch: &WriteBatch, now: Timestamp) -> Result<BatchResult, StoreError> {
        let mood = *self.mood.lock().expect("no test panics here");
        if self.is_unknown {
            return Err(StoreError::Unknown("as asked".into()));
        }
        match mood {
            Mood::Exhausted if self.reopened.load(Ordering::SeqCst) == 0 => Err(StoreError::OutOfMemory),
            Mood::Well | Mood::Blind | Mood::Full | Mood::Exhausted => self.inner.write(batch, now),
            Mood::Panics => panic!("as asked"),
            Mood::Refuses => Err(StoreError::NotWritten("as asked".into())),
            Mood::LosesTheAnswer => {
                self.inner.write(batch, now)?;
                self.is_unknown = true;
                Err(StoreError::Unknown("as asked".into()))
            }
        }
    }

    fn load(&mut self, load: &LoadRequest) -> Result<LoadedPage, StoreError> {
        self.inner.load(load)
    }

    fn housekeep(&mut self, keep: &RetentionRules, now: Timestamp) -> Result<HousekeepingStep, StoreError> {
        self.inner.housekeep(keep, now)
    }

    fn back_up(&mut self, step: &mut Backup) -> Result<BackupProgress, StoreError> {
        self.inner.back_up(step)
    }

    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError> {
        self.inner.reader()
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.reopened.fetch_add(1, Ordering::SeqCst);
        self.is_unknown = false;
        self.inner.reopen()
    }

    fn has_room(&mut self) -> Result<DiskRoom, StoreError> {
        match *self.mood.lock().expect("no test panics here") {
            Mood::Blind => Err(StoreError::NotWritten("as asked".into())),
            Mood::Full => Ok(DiskRoom::Short { free_bytes: 1, needed_bytes: 2 }),
            Mood::Well | Mood::Refuses | Mood::LosesTheAnswer | Mood::Exhausted | Mood::Panics => {
                self.inner.has_room()
            }
        }
    }

    fn close(self: Box<Self>, now: Timestamp) -> Result<(), StoreError> {
        Box::new(self.inner).close(now)
    }
}

/// Answers 200 as often as it was allowed to, and remembers who called.
struct Gate {
    open: Semaphore,
    calls: Mutex<Vec<(String, u32)>>,
}

impl Target for Gate {
    fn call(&self, call: Arc<TargetCall>) -> Pin<Box<dyn Future<Output = Ending> + Send + '_>> {
        Box::pin(async move {
            let row = &call.deliveries[0];
            self.calls
                .lock()
                .expect("no test panics here")
                .push((row.event.id.to_string(), row.attempts + 1));
            self.open.acquire().await.expect("semaphore is never closed").forget();
            let seen = ReplyKind::Http { status: 200, headers: HeaderPairs::default(), body: String::new() };
            Ending::Reply(TargetReply::new(seen, String::new()))
        })
    }
}

/// A node and all that it stands on.
struct Bench {
    node: Node,
    mood: Arc<Mutex<Mood>>,
    reopened: Arc<AtomicUsize>,
    gate: Arc<Gate>,
    store: DataFolder,
}

impl Bench {
    fn start(open: usize) -> Self {
        Self::on(&DataFolder::default(), open)
    }

    fn on(store: &DataFolder, open: usize) -> Self {
        Self::feeling(Mood::Well, store, open)
    }

    /// Its store feels like that from the start.
    fn feeling(mood: Mood, store: &DataFolder, open: usize) -> Self {
        let (mood, reopened) = (Arc::new(Mutex::new(mood)), Arc::new(AtomicUsize::new(0)));
        let gate = Arc::new(Gate { open: Semaphore::new(open), calls: Mutex::default() });
        let inner = store.open();
        let flaky =
            Flaky { inner, mood: Arc::clone(&mood), reopened: Arc::clone(&reopened), is_unknown: false };
        let book = Arc::new(book());
        let node = Node::start(Config {
            targets: Targets::all_to(&book, &(Arc::clone(&gate) as Arc<dyn Target>)),
            book,
            book_text: BOOK.into(),
            store: Box::new(flaky),
            bounds: EngineBounds { window: 8, window_bytes: 1 << 20, calls: 8 },
        });
        Self { node: node.expect("a store that is well"), mood, reopened, gate, store: store.clone() }
    }

    fn feels(&self, mood: Mood) {
        *self.mood.lock().expect("no test panics here") = mood;
    }

    fn calls(&self) -> Vec<(String, u32)> {
        self.gate.calls.lock().expect("no test panics here").clone()
    }

    /// Waits until it is so.
    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    fn states(&self) -> BTreeMap<String, DeliveryState> {
        let reader = self.store.reader();
        let filter =
            crate::store::DeliveryFilter { rows_max: 100, ..crate::store::DeliveryFilter::default() };
        let views = reader.list(&filter).expect("in memory").deliveries;
        views.into_iter().map(|view| (view.event_id, view.state)).collect()
    }

    fn delivered(&self) -> usize {
        self.states().values().filter(|state| matches!(state, DeliveryState::Delivered { .. })).count()
    }
}

fn book() -> RuleBook {
    let reading = redrive_core::book::read(BOOK, built_in());
    reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems))
}

fn event(id: &str) -> Event {
    let headers: Vec<(String, String)> = Vec::new();
    let generated_id = redrive_core::event::attribute::EventId::new(id).expect("an id");
    parse_simple(SimpleEvent {
        event_type: "orders.placed",
        partition_key: Some("k"),
        idempotency_key: None,
        generated_id: &generated_id,
        headers: &headers as &dyn HeaderList,
        body: &bytes::Bytes::from_static(b"{}"),
    })
    .expect("an event")
}

#[tokio::test]
async fn events_of_a_session_go_out_one_after_the_other() {
    let bench = Bench::start(100);
    let events = (0..20).map(|n| event(&format!("e{n:02}"))).collect();
    let taken = bench.node.submit(events).await.expect("taken");
    assert!(taken.iter().all(|taken| taken.seen == Came::First && taken.deliveries == 1));
    bench.until("all delivered", |bench| bench.delivered() == 20).await;
    let order: Vec<String> = bench.calls().into_iter().map(|(id, _)| id).collect();
    assert!(order.is_sorted(), "{order:?}");
    let counts = bench.node.read(|reader| reader.counts()).await.expect("in memory");
    let snapshot = bench.node.snapshot().await.expect("it runs");
    assert_eq!(stranded(&snapshot, &counts), 0);
}

#[tokio::test]
async fn the_text_of_the_book_is_there_before_it_is_durable() {
    let bench = Bench::feeling(Mood::Refuses, &DataFolder::default(), 0);
    let (book, text) = bench.node.book_and_text();
    let hash = book.hash();
    let durable = bench.node.read(move |reader| reader.book(hash)).await.expect("in memory");
    assert_eq!((&*text, durable), (BOOK, None));
}

#[tokio::test]
async fn a_caller_who_goes_away_strands_nothing() {
    let bench = Bench::start(100);
    for n in 0..50 {
        let asked = bench.node.submit(vec![event(&format!("e{n:02}"))]);
        // Polled once, so that it is on its way, and then dropped.
        tokio::select! { biased; _ = asked => {} () = std::future::ready(()) => {} }
    }
    bench.until("all delivered", |bench| bench.delivered() == 50).await;
}

#[tokio::test]
async fn while_the_store_fails_nothing_is_taken_nothing_starts_and_outcomes_are_kept() {
    let bench = Bench::start(0);
    bench.node.submit(vec![event("a"), event("b")]).await.expect("taken");
    bench.until("the first is called", |bench| bench.calls().len() == 1).await;
    bench.feels(Mood::Refuses);
    let refused = bench.node.submit(vec![event("c")]).await;
    assert!(matches!(refused, Err(SubmitError::Failing { .. })), "{refused:?}");
    bench.gate.open.add_permits(100);
    let node = bench.node.clone();
    let pause = node.pause(ServiceName::new("shop").expect("a name"), &AuditActor::unknown()).await;
    assert!(matches!(pause, Err(SubmitError::Failing { .. })), "an operator is told at once: {pause:?}");
    // A second refusal shows that the writer has gone round since the call ended.
    let refused = bench.node.submit(vec![event("c")]).await;
    assert!(matches!(refused, Err(SubmitError::Failing { .. })), "{refused:?}");
    assert_eq!(bench.delivered(), 0, "the target said yes, and that is not durable");
    assert_eq!(bench.calls().len(), 1, "the next of the session has not started");
    bench.feels(Mood::Well);
    bench.until("both delivered", |bench| bench.delivered() == 2).await;
    assert_eq!(bench.calls(), [("a".to_owned(), 1), ("b".to_owned(), 1)], "each was called once");
    bench.node.submit(vec![event("c")]).await.expect("taken again");
    bench.until("all delivered", |bench| bench.delivered() == 3).await;
}

#[tokio::test]
async fn what_was_written_though_nobody_knew_is_found_again() {
    let bench = Bench::start(100);
    // What a start writes is durable once this is.
    bench
        .node
        .resume(ServiceName::new("shop").expect("a name"), &AuditActor::unknown())
        .await
        .expect("durable");
    bench.feels(Mood::LosesTheAnswer);
    let refused = bench.node.submit(vec![event("a")]).await;
    assert!(matches!(refused, Err(SubmitError::Unknown { .. })), "{refused:?}");
    bench.feels(Mood::Well);
    bench.until("delivered all the same", |bench| bench.delivered() == 1).await;
    assert!(bench.reopened.load(Ordering::SeqCst) > 0, "the store was opened anew");
    let again = bench.node.submit(vec![event("a")]).await.expect("the sender tries again");
    assert_eq!(again[0].seen, Came::Duplicate);
    assert_eq!(bench.calls().len(), 1);
}

#[tokio::test]
async fn healing_that_ends_without_an_answer_is_tried_on_a_store_opened_anew() {
    let bench = Bench::start(100);
    bench.feels(Mood::Refuses);
    let refused = bench.node.submit(vec![event("a")]).await;
    assert!(matches!(refused, Err(SubmitError::Failing { .. })), "{refused:?}");
    bench.feels(Mood::LosesTheAnswer);
    bench.until("it is opened anew", |bench| bench.reopened.load(Ordering::SeqCst) > 0).await;
    bench.feels(Mood::Well);
    while bench.node.submit(vec![event("a")]).await.is_err() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    bench.until("delivered", |bench| bench.delivered() == 1).await;
}

#[tokio::test]
async fn a_stop_waits_for_calls_and_what_it_cuts_short_burns_nothing() {
    let store = DataFolder::default();
    let bench = Bench::on(&store, 0);
    bench.node.submit(vec![event("a")]).await.expect("taken");
    bench.until("it is called", |bench| bench.calls().len() == 1).await;
    let stopped = bench.node.stop(Duration::from_millis(20)).await;
    assert_eq!(stopped.interrupted, 1);
    let refused = bench.node.submit(vec![event("b")]).await;
    assert_eq!(refused, Err(SubmitError::Stopping));

    let next = Bench::on(&store, 1);
    next.until("delivered by the next run", |bench| bench.delivered() == 1).await;
    assert_eq!(next.calls(), [("a".to_owned(), 1)], "the same attempt once more");
    let stopped = next.node.stop(PATIENCE).await;
    assert_eq!(stopped.interrupted, 0);
    let found = store.reader().events(&EventKey::Id("a".to_owned())).expect("in memory");
    assert_eq!(found[0].deliveries[0].attempts, 1);
}

#[tokio::test]
async fn a_paused_service_waits_and_goes_on() {
    let bench = Bench::start(100);
    let shop = ServiceName::new("shop").expect("a name");
    bench.node.pause(shop.clone(), &AuditActor::unknown()).await.expect("durable");
    bench.node.submit(vec![event("a")]).await.expect("taken");
    let snapshot = bench.node.snapshot().await.expect("it runs");
    assert!(snapshot.queues[0].held.is_some());
    assert_eq!(bench.calls(), []);
    bench.node.resume(shop, &AuditActor::unknown()).await.expect("durable");
    bench.until("delivered", |bench| bench.delivered() == 1).await;
}

#[tokio::test]
async fn with_too_little_room_nothing_is_taken_from_the_very_start() {
    let bench = Bench::feeling(Mood::Full, &DataFolder::default(), 100);
    let refused = bench.node.submit(vec![event("a")]).await;
    assert_eq!(refused, Err(SubmitError::NoRoom { free_bytes: 1, needed_bytes: 2 }));
    assert!(bench.node.health().disk_short.is_some());
    bench.feels(Mood::Well);
    bench.until("there is room", |bench| bench.node.health().disk_short.is_none()).await;
    bench.node.submit(vec![event("a")]).await.expect("taken");
}

#[tokio::test]
async fn a_store_that_cannot_tell_its_room_takes_nothing() {
    let bench = Bench::start(100);
    bench.feels(Mood::Blind);
    bench.until("it is found out", |bench| bench.node.health().store_failing.is_some()).await;
    let refused = bench.node.submit(vec![event("a")]).await;
    assert!(matches!(refused, Err(SubmitError::Failing { .. })), "{refused:?}");
    bench.feels(Mood::Well);
    bench.until("it is well", |bench| bench.node.health().store_failing.is_none()).await;
    bench.node.submit(vec![event("a")]).await.expect("taken");
}

#[tokio::test]
async fn a_node_that_is_broken_tells_its_host_and_takes_nothing_more() {
    let bench = Bench::start(100);
    bench.feels(Mood::Panics);
    let lost = bench.node.submit(vec![event("a")]).await;
    assert_eq!(lost, Err(SubmitError::Stopping));
    let fatal = tokio::time::timeout(PATIENCE, bench.node.failed()).await.expect("it is told");
    assert_eq!(fatal, Fatal { part: "the writer", message: "as asked".to_owned() });
    assert_eq!(bench.node.submit(vec![event("b")]).await, Err(SubmitError::Stopping));
    assert!(bench.node.health().stopping);
    bench.node.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_question_that_comes_at_the_end_is_told_that_it_is_the_end() {
    let bench = Bench::start(100);
    bench.node.stop(Duration::ZERO).await;
    let answer = bench.node.read(|reader| reader.counts()).await;
    assert!(matches!(answer, Err(ReadError::Stopping)), "{answer:?}");
}

#[tokio::test]
async fn a_store_without_memory_is_opened_anew_and_nothing_stays_stuck() {
    let bench = Bench::start(0);
    bench.node.submit(vec![event("a")]).await.expect("taken");
    bench.until("it is called", |bench| bench.calls().len() == 1).await;
    bench.feels(Mood::Exhausted);
    bench.gate.open.add_permits(100);
    bench.until("delivered", |bench| bench.delivered() == 1).await;
    assert_eq!(bench.reopened.load(Ordering::SeqCst), 1);
    bench.node.submit(vec![event("b")]).await.expect("taken");
    bench.until("both delivered", |bench| bench.delivered() == 2).await;
}
