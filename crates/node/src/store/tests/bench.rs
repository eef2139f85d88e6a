//! A store on the bench: short words for what scenarios do, and an audit of what must always hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redrive_core::book::model::DeliveryOrder;
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord, RecordedVerdict};
use redrive_core::engine::{
    DeadLetterInfo, LoadRequest, LoadScope, LoadedPage, NextState, PendingDelivery, QueueName,
    SessionFollowers, Settlement,
};
use redrive_core::event::Event;
use redrive_core::event::attribute::{ContentType, EventId, EventSource, EventType, SessionKey};
use redrive_core::event::copy_rule::CopyRule;
use redrive_core::ids::{Attempt, ChannelName, DeliveryId, Seq, ServiceName};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::category::{Category, FailureCode, codes};
use redrive_core::policy::decide::History;
use redrive_core::time::Timestamp;

use super::checks;
use crate::store::{
    AcceptedEvent, Addressee, BatchResult, DeliveryFilter, DeliveryState, DeliveryView, EventKey,
    OverflowPolicy, QueueCounts, RecoveredState, RetentionRules, SettleResult, StateChange, Store,
    StoreCounts, StoreReader, Submission, SubmissionRefusal, SubmittedEvent, WaitingBound, WriteBatch,
};

/// Services whose names begin so keep the order of sessions.
const ORDERED: &str = "ord";
/// And of these, a dead one holds those behind it.
const STRICT: &str = "strict";
/// No bound that a scenario would meet by accident.
pub(super) const ROOMY: WaitingBound = WaitingBound {
    deliveries_max: 1_000_000,
    bytes_max: 1 << 40,
    per_session_max: 1_000_000,
    when_full: OverflowPolicy::Refuse,
};
/// The book that stories name, unless a scenario says otherwise.
pub(super) const BOOK: u64 = 0xfeed_face_cafe_beef;

/// A store and a clock.
pub(super) struct Bench {
    open: Box<dyn Fn() -> Box<dyn Store>>,
    store: Option<Box<dyn Store>>,
    reader: Option<Box<dyn StoreReader>>,
    pub(super) now: Timestamp,
}

pub(super) const fn at(second: u64) -> Timestamp {
    Timestamp::from_millis((1_700_000_000 + second) * 1_000)
}

pub(super) fn service(name: &str) -> ServiceName {
    ServiceName::new(name).expect("a name")
}

/// `service` or `service/channel`.
pub(super) fn queue(name: &str) -> Arc<QueueName> {
    let (service_name, channel) = name.split_once('/').map_or((name, None), |(s, c)| (s, Some(c)));
    let channel = channel.map(|channel| ChannelName::new(channel).expect("a name"));
    Arc::new(QueueName { service: service(service_name), channel })
}

/// An event of that id, with as many bytes as the id has.
pub(super) fn event(id: &str) -> Event {
    Event {
        id: EventId::new(id).expect("an id"),
        source: EventSource::new("/shop").expect("a source"),
        event_type: EventType::new("order.placed").expect("a type"),
        subject: None,
        time: Some(at(0)),
        content_type: Some(ContentType::json()),
        session: None,
        correlation_id: None,
        traceparent: None,
        extensions: BTreeMap::new(),
        data: Bytes::copy_from_slice(id.as_bytes()),
    }
}

/// An event of a session.
pub(super) fn in_session(id: &str, session: &str) -> Event {
    Event { session: Some(SessionKey::new(session).expect("a key")), ..event(id) }
}

/// Whether a service of that name keeps the order of sessions.
pub(super) fn order_of(name: &str) -> DeliveryOrder {
    match name {
        name if name.starts_with(ORDERED) => DeliveryOrder::Session,
        name if name.starts_with(STRICT) => DeliveryOrder::SessionStrict,
        _ => DeliveryOrder::None,
    }
}

pub(super) fn addressee(name: &str) -> Addressee {
    Addressee {
        queue: queue(name),
        subscription: format!("{name} wants it").into(),
        order: order_of(name),
        letter_name: format!("_{name}.deadletter").into(),
        consumer_group: name.into(),
        bound: ROOMY,
        copies: CopyRule { ttl: Duration::MAX, ..CopyRule::default() },
        violation: None,
    }
}

/// The event with those who want it: names with blanks between them.
pub(super) fn to(names: &str, event: Event) -> SubmittedEvent {
    SubmittedEvent { event: Arc::new(event), routes: names.split_whitespace().map(addressee).collect() }
}

/// The same with a bound.
pub(super) fn bounded(submitted: SubmittedEvent, bound: WaitingBound) -> SubmittedEvent {
    let bounded = |addressee: Addressee| Addressee { bound, ..addressee };
    SubmittedEvent { routes: submitted.routes.into_iter().map(bounded).collect(), ..submitted }
}

pub(super) fn death() -> DeadLetterInfo {
    let code = FailureCode::of(codes::MAX_RETRIES_EXCEEDED);
    let failure_code = FailureCode::of(codes::BAD_GATEWAY);
    let message = "502 from the shop".to_owned();
    let fingerprint = Fingerprint::of(&service("svc"), Category::Transient, &failure_code, &message);
    DeadLetterInfo {
        category: Category::Transient,
        code,
        failure_code,
        tier: Tier::Poison,
        message,
        fingerprint,
        name: "_q.deadletter".to_owned(),
        consumer_group: "q".to_owned(),
        followers: SessionFollowers::Continue,
    }
}

pub(super) fn dead() -> NextState {
    NextState::Dead(Box::new(death()))
}

/// The story of one attempt.
pub(super) fn story(attempt: u32, end: AttemptEnd, verdict: RecordedVerdict) -> AttemptRecord {
    AttemptRecord {
        attempt: Attempt::new(attempt).expect("not 0"),
        started_at: at(u64::from(attempt)),
        took_nanos: 1_234_567,
        end,
        book: BOOK,
        verdict,
        classified_at: None,
        reaction_at: None,
        retry: None,
        held_nanos: 0,
    }
}

/// Keeps delivered events and ids for so long, and dead letters for longer than any scenario lasts.
pub(super) fn keep(delivered: Duration, ids: Duration) -> RetentionRules {
    RetentionRules { delivered, ids, letters: Arc::new(|_, _| Duration::from_hours(1_000_000)) }
}

/// What an attempt at a delivery came to.
pub(super) fn settlement(
    delivery: DeliveryId,
    attempts_before: u32,
    next: NextState,
    now: Timestamp,
) -> Settlement {
    let attempt = attempts_before + 1;
    let failed = AttemptEnd::Failed {
        category: Category::Transient,
        code: FailureCode::of(codes::BAD_GATEWAY),
        status: Some(502),
        message: "502 from the shop".to_owned(),
        response: "sorry".to_owned(),
    };
    let (attempts, story) = match &next {
        NextState::Delivered => (
            attempt,
            Some(story(
                attempt,
                AttemptEnd::Delivered { status: Some(204), message: String::new() },
                RecordedVerdict::Delivered,
            )),
        ),
        NextState::Ready => (attempt, Some(story(attempt, failed, RecordedVerdict::Paused))),
        NextState::Due { at } => {
            (attempt, Some(story(attempt, failed, RecordedVerdict::Retry { due_at: *at })))
        }
        NextState::Dead(death) => {
            let told = RecordedVerdict::Dead { code: death.code.clone(), tier: death.tier };
            (attempt, Some(story(attempt, failed, told)))
        }
        NextState::Starting => (attempts_before, None),
    };
    Settlement {
        delivery,
        attempts_before,
        attempts,
        next,
        history: History::new().started(at(u64::from(attempt))),
        book: BOOK,
        record: story.map(Box::new),
        pause: None,
        stop: None,
        emits: Vec::new(),
        at: now,
    }
}

impl Bench {
    /// A bench on which a store is opened and has begun its first run.
    pub(super) fn new(open: Box<dyn Fn() -> Box<dyn Store>>) -> Self {
        let mut bench = Self { open, store: None, reader: None, now: at(0) };
        bench.crash();
        bench
    }

    pub(super) fn store(&mut self) -> &mut dyn Store {
        &mut **self.store.as_mut().expect("open between verbs")
    }

    pub(super) fn reader(&self) -> &dyn StoreReader {
        &**self.reader.as_ref().expect("open between verbs")
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// Drops the store as a killed process would, opens it again, and begins a run.
    pub(super) fn crash(&mut self) -> RecoveredState {
        drop(self.reader.take());
        drop(self.store.take());
        self.begin()
    }

    /// Closes the store as it should be, opens it again after so many seconds, and begins a run.
    pub(super) fn restart(&mut self, seconds: u64) -> RecoveredState {
        drop(self.reader.take());
        let store = self.store.take().expect("open between verbs");
        store.close(self.now).expect("it closes");
        self.wait(seconds);
        self.begin()
    }

    fn begin(&mut self) -> RecoveredState {
        let mut store = (self.open)();
        let recovered = store.recover(self.now).expect("it recovers");
        self.reader = Some(store.reader().expect("a reader"));
        self.store = Some(store);
        recovered
    }

    pub(super) fn write(&mut self, batch: &WriteBatch) -> BatchResult {
        let now = self.now;
        self.store().write(batch, now).expect("it is written")
    }

    /// Submits events, each on its own, all in one batch, and expects them to be taken.
    pub(super) fn take(&mut self, submitted: &[SubmittedEvent]) -> Vec<AcceptedEvent> {
        let each = submitted.iter().map(|one| Submission { events: vec![one.clone()] });
        let written = self.write(&WriteBatch { submissions: each.collect(), ..WriteBatch::default() });
        written.submitted.into_iter().flat_map(|taken| taken.expect("it is taken")).collect()
    }

    /// Submits events together.
    pub(super) fn submit(
        &mut self,
        events: &[SubmittedEvent],
    ) -> Result<Vec<AcceptedEvent>, SubmissionRefusal> {
        let submissions = vec![Submission { events: events.to_vec() }];
        let mut written = self.write(&WriteBatch { submissions, ..WriteBatch::default() });
        written.submitted.pop().expect("one answer for one submission")
    }

    /// Submits one event and gives what may start.
    pub(super) fn accept(&mut self, submitted: SubmittedEvent) -> Vec<PendingDelivery> {
        let submissions = vec![Submission { events: vec![submitted] }];
        self.write(&WriteBatch { submissions, ..WriteBatch::default() }).waiting
    }

    pub(super) fn note(&mut self, note: StateChange) -> Vec<PendingDelivery> {
        self.write(&WriteBatch { changes: vec![note], ..WriteBatch::default() }).waiting
    }

    pub(super) fn settle(&mut self, settlement: Settlement) -> SettleResult {
        let settlements = vec![Arc::new(settlement)];
        let mut written = self.write(&WriteBatch { settlements, ..WriteBatch::default() });
        written.settled.pop().expect("one answer for one settlement")
    }

    /// Settles a delivery for whose attempts it looks itself; gives who comes next in its session.
    pub(super) fn end(&mut self, delivery: DeliveryId, next: NextState) -> Option<PendingDelivery> {
        let attempts = self.view(delivery.seq()).attempts;
        match self.settle(settlement(delivery, attempts, next, self.now)) {
            SettleResult::Written { promoted } => promoted.map(|waiting| *waiting),
            SettleResult::Stale => panic!("{delivery} was settled otherwise"),
        }
    }

    /// All that may start, in one page.
    pub(super) fn ready(&mut self, name: &str) -> Vec<PendingDelivery> {
        self.page(name, LoadScope::Ready { after: Seq::NONE }).rows
    }

    pub(super) fn page(&mut self, name: &str, wanted: LoadScope) -> LoadedPage {
        let load = LoadRequest { queue: queue(name), wanted, rows_max: 1_000, bytes_max: usize::MAX };
        self.store().load(&load).expect("it loads")
    }

    /// The delivery at that place, with its stories.
    pub(super) fn view(&self, seq: Seq) -> DeliveryView {
        let digits = DeliveryId::new(seq, 0).to_string();
        let prefix = redrive_core::ids::IdPrefix::parse(&digits).expect("digits");
        let mut found = self.reader().deliveries(&prefix, 2).expect("it answers");
        assert_eq!(found.len(), 1, "one delivery has place {seq:?}");
        found.pop().expect("counted")
    }

    /// Every delivery, the oldest first.
    pub(super) fn all(&self) -> Vec<DeliveryView> {
        let filter = DeliveryFilter { rows_max: 1_000_000, ..DeliveryFilter::default() };
        let mut all = self.reader().list(&filter).expect("it answers").deliveries;
        all.reverse();
        all
    }

    pub(super) fn counts(&self) -> StoreCounts {
        self.reader().counts().expect("it answers")
    }

    /// Does all chores; gives how many events were deleted.
    pub(super) fn housekeep(&mut self, keep: &RetentionRules) -> u64 {
        let now = self.now;
        let mut deleted = 0;
        for _ in 0..10_000 {
            let chores = self.store().housekeep(keep, now).expect("it can");
            deleted += chores.events_deleted;
            if !chores.more {
                return deleted;
            }
        }
        panic!("chores never end");
    }

    /// What must hold at any time: counters equal a scan, each session goes on or is held, letters add up.
    pub(super) fn audit(&self) {
        let (reader, all) = (self.reader(), self.all());
        let mut scanned = StoreCounts::default();
        let is_parked = |view: &DeliveryView| view.state == DeliveryState::Due { at: Timestamp::NEVER };
        let is_behind_parked = |view: &DeliveryView| {
            let first = |of: &&DeliveryView| of.queue == view.queue && of.session == view.session;
            view.state == DeliveryState::Behind && all.iter().filter(first).any(is_parked)
        };
        for view in &all {
            let counts = scanned.queues.entry(view.queue.clone()).or_default();
            match view.state {
                DeliveryState::Delivered { .. } => counts.delivered += 1,
                DeliveryState::Dead { .. } => counts.dead += 1,
                DeliveryState::Closed { .. } => counts.closed += 1,
                DeliveryState::Ready | DeliveryState::Due { .. } | DeliveryState::Behind => {
                    let events = reader.events(&EventKey::Receipt(view.receipt)).expect("it answers");
                    counts.waiting += 1;
                    counts.behind += u64::from(view.state == DeliveryState::Behind);
                    counts.without_rule += u64::from(is_parked(view) || is_behind_parked(view));
                    counts.waiting_bytes += events[0].event.data.len() as u64;
                }
            }
        }
        let counts = reader.counts().expect("it answers");
        let nonzero = counts.queues.iter().filter(|(_, counts)| **counts != QueueCounts::default());
        let nonzero: BTreeMap<_, _> = nonzero.map(|(queue, counts)| (queue.clone(), *counts)).collect();
        assert_eq!(nonzero, scanned.queues, "counters equal a scan");
        checks::the_oldest_are(self, &all);
        let unrouted = reader.unrouted(Seq::NONE, 1_000_000).expect("it answers").len() as u64;
        assert_eq!(counts.unrouted, unrouted, "and so for unrouted events");
        checks::sessions_go_on(self, &all);
        checks::letters_add_up(self, &all);
        checks::replays_add_up(self, &all);
    }
}

/// The event ids of what waits, in its order.
pub(super) fn ids(waiting: &[PendingDelivery]) -> Vec<&str> {
    waiting.iter().map(|one| one.event.id.as_str()).collect()
}
