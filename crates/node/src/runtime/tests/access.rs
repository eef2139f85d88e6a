//! What a node keeps for its doors, and who is on record for what was done.

use bytes::Bytes;
use redrive_core::access::{AccessScope, Role};
use redrive_core::book::connectors::built_in;
use redrive_core::event::attribute::EventType;

use super::*;
use crate::runtime::{KeyError, REROUTE_PAGE};
use crate::store::StateChange;
use crate::store::access_store::{AuditEntry, KEYS_MAX, KeyRecord, RefusedBody};
use crate::store::sqlite::{Options, Sqlite, write_once};

fn key(id: &str) -> KeyRecord {
    KeyRecord {
        id: id.to_owned(),
        name: "deploy".to_owned(),
        hash: [3; 32],
        role: Role::Operator,
        scope: AccessScope::default(),
        per_second: None,
        created_at: Timestamp::EPOCH,
        expires_at: None,
        revoked_at: None,
    }
}

fn created(id: &str) -> AuditEntry {
    AuditEntry { act: "key-create", what: id.to_owned(), by: AuditActor::named("ann"), note: None }
}

fn refused() -> RefusedBody {
    RefusedBody {
        number: 0,
        at: Timestamp::EPOCH,
        source: "hub".to_owned(),
        reason: "no id".to_owned(),
        headers: Vec::new(),
        body: Bytes::from_static(b"?"),
        body_bytes: 1,
    }
}

impl Bench {
    /// What is on record, the first act first.
    async fn record(&self) -> Vec<(String, String, Option<String>)> {
        let records = self.node.read(|reader| reader.audit(None, 100)).await.expect("in memory");
        records.into_iter().rev().map(|record| (record.act, record.what, record.by)).collect()
    }
}

fn told(act: &str, what: &str, by: Option<&str>) -> (String, String, Option<String>) {
    (act.to_owned(), what.to_owned(), by.map(str::to_owned))
}

#[tokio::test]
async fn a_key_is_durable_with_the_record_of_it() {
    let bench = Bench::start(0);
    bench.node.put_key(key("a"), created("a")).await.expect("durable");
    assert_eq!(bench.node.keys().await.expect("in memory"), [key("a")]);
    assert_eq!(bench.record().await, [told("key-create", "a", Some("ann"))]);
    bench.feels(Mood::Refuses);
    let failed = bench.node.put_key(key("b"), created("b")).await;
    assert!(matches!(failed, Err(KeyError::NotWritten(_))), "{failed:?}");
    bench.feels(Mood::Well);
    while bench.node.set_memo("probe", None).await.is_err() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(bench.node.keys().await.expect("in memory").len(), 1, "what was refused does not come later");
    assert_eq!(bench.record().await.len(), 1, "nor does its record");
}

#[tokio::test]
async fn one_key_too_many_is_refused_with_a_word() {
    let store = DataFolder::default();
    let notes = (0..KEYS_MAX).map(|number| StateChange::Key(Box::new(key(&number.to_string()))));
    let batch = WriteBatch { changes: notes.collect(), ..WriteBatch::default() };
    write_once(store.path(), &batch, Timestamp::EPOCH).expect("it is written");
    let bench = Bench::on(&store, 0);
    let refused = bench.node.put_key(key("new"), created("new")).await;
    assert!(matches!(refused, Err(KeyError::TooMany)), "{refused:?}");
    assert!(bench.record().await.is_empty());
    bench.node.put_key(key("7"), created("7")).await.expect("one of those that there are");
}

#[tokio::test]
async fn of_two_keys_for_one_place_one_is_refused_even_if_nobody_waits_for_the_other() {
    let store = DataFolder::default();
    let notes = (1..KEYS_MAX).map(|number| StateChange::Key(Box::new(key(&number.to_string()))));
    let batch = WriteBatch { changes: notes.collect(), ..WriteBatch::default() };
    write_once(store.path(), &batch, Timestamp::EPOCH).expect("it is written");
    let bench = Bench::on(&store, 0);
    let put = |id: &'static str| {
        let node = bench.node.clone();
        async move { node.put_key(key(id), created(id)).await }
    };
    let left = tokio::time::timeout(Duration::ZERO, put("left")).await;
    assert!(left.is_err(), "it was asked for, and nobody waited");
    let (one, other) = tokio::join!(put("one"), put("other"));
    let kept = bench.node.keys().await.expect("in memory");
    assert_eq!(kept.last().map(|key| key.id.as_str()), Some("left"), "the first to ask has the place");
    assert!(matches!((one, other), (Err(KeyError::TooMany), Err(KeyError::TooMany))));
    assert_eq!((kept.len(), bench.record().await.len()), (KEYS_MAX, 1), "what is on record was done");
}

#[tokio::test]
async fn a_refused_body_waits_for_nobody_and_is_dropped_when_many_wait() {
    let bench = Bench::start(0);
    assert!(bench.node.refuse_body(refused()));
    bench.node.set_memo("after", Some("it".to_owned())).await.expect("durable");
    let found = bench.node.read(|reader| reader.refused(None, 9)).await.expect("in memory");
    assert_eq!(found.len(), 1);
    assert_eq!(bench.node.memo("after").await.expect("in memory").as_deref(), Some("it"));
    // The writer stands still meanwhile.
    let held = bench.mood.lock().expect("no test panics here");
    let taken = (0..100).filter(|_| bench.node.refuse_body(refused())).count();
    // The writer may have taken some before it met the lock.
    assert!((16..=32).contains(&taken), "{taken}");
    drop(held);
}

#[tokio::test]
async fn refused_bodies_do_not_pile_up_while_the_store_fails() {
    let bench = Bench::start(0);
    bench.feels(Mood::Refuses);
    let failed = bench.node.set_memo("probe", None).await;
    assert!(failed.is_err());
    for _ in 0..3 {
        assert!(bench.node.refuse_body(refused()));
        // Whoever asks and is refused shows that the writer has gone round.
        bench.node.set_memo("probe", None).await.expect_err("it still fails");
    }
    bench.feels(Mood::Well);
    while bench.node.set_memo("probe", None).await.is_err() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let found = bench.node.read(|reader| reader.refused(None, 9)).await.expect("in memory");
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn what_people_do_is_on_record_with_their_name() {
    let bench = Bench::start(100);
    let shop = ServiceName::new("shop").expect("a name");
    bench.node.pause(shop.clone(), &AuditActor::named("ann")).await.expect("durable");
    bench.node.resume(shop, &AuditActor::unknown()).await.expect("durable");
    bench.node.route_unrouted(&AuditActor::named("ben")).await.expect("in memory");
    let expected = [told("pause", "shop", Some("ann")), told("resume", "shop", None)];
    assert_eq!(bench.record().await, expected, "routing nothing leaves no record");
}

#[tokio::test]
async fn events_that_somebody_wants_by_now_are_routed_page_by_page_however_many() {
    let bench = Bench::start(0);
    let count = 2 * REROUTE_PAGE + 7;
    let unwanted = |number: usize| {
        let event_type = EventType::new("nobody.wants").expect("a type");
        Event { event_type, session: None, ..event(&number.to_string()) }
    };
    bench.node.submit((0..count).map(unwanted).collect()).await.expect("taken");
    let text = BOOK.replace("orders.*", "nobody.*");
    let book = Arc::new(redrive_core::book::read(&text, built_in()).book.expect("a book"));
    let gate = Arc::clone(&bench.gate) as Arc<dyn Target>;
    let targets = Targets::all_to(&book, &gate);
    bench.node.change_book(book, text.as_str().into(), targets).await.expect("durable");
    let rerouted = bench.node.route_unrouted(&AuditActor::named("ann")).await.expect("in memory");
    assert_eq!((rerouted.seen, rerouted.routed), (count as u64, count as u64));
    let what = format!("{count} of {count} unrouted events");
    assert_eq!(bench.record().await, [told("route", &what, Some("ann"))]);
    let again = bench.node.route_unrouted(&AuditActor::named("ann")).await.expect("in memory");
    assert_eq!((again.seen, again.routed), (0, 0));
}

#[tokio::test]
async fn a_copy_that_is_done_is_on_record_and_has_the_keys() {
    let (home, copies) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let store = Sqlite::open(home.path(), Options::default()).expect("it opens");
    let book = Arc::new(book());
    let gate = Arc::new(Gate { open: Semaphore::new(0), calls: Mutex::default() });
    let node = Node::start(Config {
        targets: Targets::all_to(&book, &(gate as Arc<dyn Target>)),
        book,
        book_text: BOOK.into(),
        store: Box::new(store),
        bounds: EngineBounds { window: 8, window_bytes: 1 << 20, calls: 8 },
    });
    let node = node.expect("an empty store");
    node.put_key(key("a"), created("a")).await.expect("durable");
    let copy = copies.path().join("copy");
    for folder in [copy.clone(), home.path().to_owned()] {
        let mut steps = node.back_up(folder, &AuditActor::named("ann"));
        while steps.recv().await.is_some() {}
    }
    node.set_memo("after", None).await.expect("durable");
    let records = node.read(|reader| reader.audit(None, 9)).await.expect("it answers");
    let acts: Vec<_> = records.iter().map(|record| (record.act.as_str(), record.what.as_str())).collect();
    let name = copy.display().to_string();
    assert_eq!(acts, [("backup", name.as_str()), ("key-create", "a")], "one that failed was not done");
    let reader = Sqlite::open_reader(&copy).expect("it is a store");
    assert_eq!(reader.keys().expect("it answers"), [key("a")]);
    node.stop(PATIENCE).await;
}
