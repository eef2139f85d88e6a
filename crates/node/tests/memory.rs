//! A store whose SQLite runs out of memory refuses what it cannot write, loses nothing, and goes on when there is
//! memory again. A program of its own, since SQLite's limit holds for the whole process.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::book::model::DeliveryOrder;
use redrive_core::engine::QueueName;
use redrive_core::event::Event;
use redrive_core::event::attribute::{EventId, EventSource, EventType};
use redrive_core::event::copy_rule::CopyRule;
use redrive_core::ids::ServiceName;
use redrive_core::time::Timestamp;
use redrive_node::store::sqlite::{Options, Sqlite};
use redrive_node::store::{
    Addressee, OverflowPolicy, Store, StoreError, Submission, SubmittedEvent, WaitingBound, WriteBatch,
};
use rusqlite::ffi;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// What SQLite may take beyond what it has; none lifts the limit.
#[expect(unsafe_code, reason = "only SQLite's own interface raises its limit again")]
fn limit_memory(beyond: Option<i64>) {
    // SAFETY: both functions take and give a number, lock what they look at, and may be called at any time.
    unsafe {
        let limit = beyond.map_or(0, |bytes| ffi::sqlite3_memory_used() + bytes);
        ffi::sqlite3_hard_heap_limit64(limit);
    }
}

fn batch(id: &str, bytes: usize) -> WriteBatch {
    let event = Event {
        id: EventId::new(id).expect("an id"),
        source: EventSource::new("/tests").expect("a source"),
        event_type: EventType::new("order.placed").expect("a type"),
        subject: None,
        time: None,
        content_type: None,
        session: None,
        correlation_id: None,
        traceparent: None,
        extensions: BTreeMap::new(),
        data: vec![7; bytes].into(),
    };
    let service = ServiceName::new("orders").expect("a name");
    let addressee = Addressee {
        queue: Arc::new(QueueName { service, channel: None }),
        subscription: "orders: order.*".into(),
        copies: CopyRule::default(),
        violation: None,
        order: DeliveryOrder::None,
        letter_name: "_tests.deadletter".into(),
        consumer_group: "tests".into(),
        bound: WaitingBound {
            deliveries_max: u64::MAX,
            bytes_max: u64::MAX,
            per_session_max: u64::MAX,
            when_full: OverflowPolicy::Refuse,
        },
    };
    let submitted = SubmittedEvent { event: Arc::new(event), routes: vec![addressee] };
    WriteBatch { submissions: vec![Submission { events: vec![submitted] }], ..WriteBatch::default() }
}

#[test]
fn a_store_whose_sqlite_runs_out_of_memory_goes_on_when_there_is_some() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Sqlite::open(folder.path(), Options::default()).expect("it opens");
    store.recover(NOW).expect("it recovers");
    store.write(&batch("before", 1_000), NOW).expect("there is memory");

    limit_memory(Some(100_000));
    for _ in 0..3 {
        let error = store.write(&batch("refused", 5_000_000), NOW).expect_err("it needs more");
        assert!(matches!(error, StoreError::OutOfMemory), "{error}");
    }
    limit_memory(None);
    store.write(&batch("refused", 5_000_000), NOW).expect("there is memory again");
    store.write(&batch("after", 1_000), NOW).expect("and it goes on");
    let counts = store.reader().and_then(|reader| reader.counts()).expect("it reads");
    assert_eq!(counts.events, 3, "nothing is lost, and nothing is there twice");
}
