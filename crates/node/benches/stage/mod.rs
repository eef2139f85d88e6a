//! A SQLite store with a stream of events of 1 KiB, for the benches and the instruction counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::book::model::DeliveryOrder;
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord, RecordedVerdict};
use redrive_core::engine::{NextState, PendingDelivery, QueueName, Settlement};
use redrive_core::event::Event;
use redrive_core::event::attribute::{ContentType, EventId, EventSource, EventType, SessionKey};
use redrive_core::ids::{Attempt, ServiceName};
use redrive_core::policy::decide::History;
use redrive_core::time::Timestamp;
use redrive_node::store::sqlite::{Options, Sqlite};
use redrive_node::store::{
    Addressee, BatchResult, OverflowPolicy, SettleResult, Store, Submission, SubmittedEvent, WaitingBound,
    WriteBatch,
};
use tempfile::TempDir;

pub(crate) const EVENT_BYTES: usize = 1_024;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unordered,
    InSessions,
    Held,
    Repeated,
}

/// A store and what goes into it next.
pub(crate) struct Stage {
    store: Sqlite,
    kind: Kind,
    sent: u64,
    waiting: Vec<PendingDelivery>,
    addressee: Addressee,
    _folder: TempDir,
}

impl Stage {
    pub(crate) fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut store = Sqlite::open(folder.path(), Options::default()).expect("it opens");
        store.recover(at(0)).expect("it recovers");
        let service = ServiceName::new("orders").expect("a name");
        let addressee = Addressee {
            queue: Arc::new(QueueName { service, channel: None }),
            subscription: "orders: order.*".into(),
            copies: redrive_core::event::copy_rule::CopyRule::default(),
            violation: None,
            order: if kind == Kind::InSessions { DeliveryOrder::Session } else { DeliveryOrder::None },
            letter_name: "_bench.deadletter".into(),
            consumer_group: "bench".into(),
            bound: WaitingBound {
                deliveries_max: u64::MAX,
                bytes_max: u64::MAX,
                per_session_max: u64::MAX,
                when_full: OverflowPolicy::Refuse,
            },
        };
        Self { store, kind, sent: 0, waiting: Vec::new(), addressee, _folder: folder }
    }

    pub(crate) fn batch(&mut self, events: usize) -> WriteBatch {
        let settlements = match self.kind {
            Kind::Held | Kind::Repeated => Vec::new(),
            Kind::Unordered | Kind::InSessions => self.waiting.iter().map(delivered).collect(),
        };
        if self.kind == Kind::Repeated && self.sent > 0 {
            self.sent = 0;
        }
        let submissions = (0..events).map(|_| {
            self.sent += 1;
            let routes = vec![self.addressee.clone()];
            Submission {
                events: vec![SubmittedEvent { event: Arc::new(event(self.sent, self.kind)), routes }],
            }
        });
        WriteBatch { submissions: submissions.collect(), settlements, ..WriteBatch::default() }
    }

    pub(crate) fn write(&mut self, batch: &WriteBatch) {
        let BatchResult { settled, waiting, .. } =
            self.store.write(batch, at(self.sent)).expect("it is written");
        self.waiting = waiting;
        for settled in settled {
            match settled {
                SettleResult::Written { promoted } => self.waiting.extend(promoted.map(|waiting| *waiting)),
                SettleResult::Stale => panic!("what was delivered had not been settled"),
            }
        }
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + millis)
}

fn event(number: u64, kind: Kind) -> Event {
    // Ids of real senders are random, and so are these.
    let id = format!("{:016x}{number:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let session = (kind == Kind::InSessions).then(|| format!("customer-{}", number % 1_000));
    Event {
        id: EventId::new(&id).expect("an id"),
        source: EventSource::new("https://example.com/shop").expect("a source"),
        event_type: EventType::new("order.placed").expect("a type"),
        subject: None,
        time: Some(at(number)),
        content_type: Some(ContentType::json()),
        session: session.map(|key| SessionKey::new(&key).expect("a key")),
        correlation_id: None,
        traceparent: None,
        extensions: BTreeMap::new(),
        data: vec![7; EVENT_BYTES].into(),
    }
}

fn delivered(waiting: &PendingDelivery) -> Arc<Settlement> {
    let (started_at, book) = (waiting.written_at, 7);
    let story = AttemptRecord {
        attempt: Attempt::FIRST,
        started_at,
        took_nanos: 1_000_000,
        end: AttemptEnd::Delivered { status: Some(200), message: String::new() },
        book,
        verdict: RecordedVerdict::Delivered,
        classified_at: None,
        reaction_at: None,
        retry: None,
        held_nanos: 0,
    };
    Arc::new(Settlement {
        delivery: waiting.id,
        attempts_before: 0,
        attempts: 1,
        next: NextState::Delivered,
        history: History::new().started(started_at),
        book,
        record: Some(Box::new(story)),
        pause: None,
        stop: None,
        emits: Vec::new(),
        at: started_at,
    })
}
