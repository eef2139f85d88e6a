//! All that the twin knows beside the model, and what its verbs do to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use redrive_core::engine::attempt_record::AttemptRecord;
use redrive_core::engine::{PendingDelivery, QueueName};
use redrive_core::event::Event;
use redrive_core::event::attribute::{EventId, EventSource};
use redrive_core::event::copy_rule::RememberedKeys;
use redrive_core::ids::{DependencyName, Seq, ServiceName};
use redrive_core::letters::replay::ReplayId;
use redrive_core::store_model::{Model, ModelRow, RowState};
use redrive_core::time::Timestamp;

use super::access_store::Door;
use super::letters::Kind;
use super::replays::ReplayRecord;
use crate::store::access_store::AuditActor;
use crate::store::admit::{self, AdmissionLedger, Backlog, BacklogFit, EarlierEvent, RoutePlan};
use crate::store::letter::{AuditRecord, KindId, LetterNumber};
use crate::store::{
    Addressee, BatchResult, CRASHES_MAX, DeliveryState, LetterClosure, RecoveredState, StateChange,
    WriteBatch,
};

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) model: Model<Extra>,
    pub(super) events: BTreeMap<Seq, Kept>,
    pub(super) ids: BTreeMap<(EventSource, EventId), BTreeSet<Seq>>,
    pub(super) kinds: BTreeMap<KindId, Kind>,
    /// The kind of each letter.
    pub(super) kind_of: BTreeMap<LetterNumber, KindId>,
    pub(super) replays: BTreeMap<ReplayId, ReplayRecord>,
    /// What deliveries are known by whose rule has a key of its own: the event, and until when.
    pub(super) keys: BTreeMap<Vec<u8>, (Seq, Timestamp)>,
    /// Letters from elsewhere, by what they were known as there.
    pub(super) imported: BTreeMap<String, Seq>,
    pub(super) audit: BTreeMap<u64, AuditRecord>,
    /// Who gave the order that is being carried out.
    pub(super) actor: AuditActor,
    pub(super) door: Door,
    /// Deliveries that were delivered and events that nobody wanted, with when: what may be deleted later.
    pub(super) ending: VecDeque<(Timestamp, Seq)>,
    /// Up to here events were found older than ids are kept.
    pub(super) ids_checked: Seq,
    pub(super) books: BTreeMap<u64, Book>,
    /// How many books have come.
    books_turn: u64,
    owed: BTreeSet<DependencyName>,
    crashes: VecDeque<(Timestamp, Seq)>,
    /// Whether a run has begun that has not been closed.
    running: bool,
    last_alive_at: Option<Timestamp>,
}

/// What is kept with a delivery beside what the model knows.
#[derive(Clone, Debug)]
pub(super) struct Extra {
    pub(super) event: Seq,
    pub(super) subscription: Arc<str>,
    pub(super) stories: Vec<AttemptRecord>,
    /// The event that took its place if it is superseded, else the event whose letter it took the place of.
    pub(super) linked: Option<Seq>,
    /// How it was done with, if it was.
    pub(super) closed: Option<LetterClosure>,
}

/// An event, or what is remembered of it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) event: Arc<Event>,
    pub(super) received_at: Timestamp,
    pub(super) content: u64,
    pub(super) first_delivery: Seq,
    pub(super) delivery_count: u32,
    /// Whether more of it is kept than its id.
    pub(super) whole: bool,
    /// Whether it came with a letter from elsewhere, and was not sent.
    pub(super) imported: bool,
}

/// A rule book.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    /// None if stories name it that nobody has shown.
    pub(super) text: Option<Arc<str>>,
    /// When it last came, among all that did.
    pub(super) turn: u64,
    /// How many stories name it.
    pub(super) stories: u64,
}

impl Kept {
    /// The places of its deliveries.
    pub(super) fn deliveries(&self) -> impl Iterator<Item = Seq> + use<> {
        let first = self.first_delivery.get();
        (first..first + u64::from(self.delivery_count)).map(Seq::new)
    }

    fn earlier(&self, seq: Seq) -> EarlierEvent {
        EarlierEvent {
            seq,
            content: self.content,
            deliveries: self.delivery_count,
            accepted_at: self.received_at,
            remembered: RememberedKeys { last_at: self.received_at, kept: self.whole },
        }
    }

    /// Whether nobody has wanted it so far.
    pub(super) fn is_unrouted(&self) -> bool {
        self.whole && self.delivery_count == 0
    }
}

impl AdmissionLedger for World {
    type Error = Infallible;

    fn find(&mut self, event: &Event, content: u64) -> Result<Option<EarlierEvent>, Infallible> {
        let places = self.ids.get(&(event.source.clone(), event.id.clone()));
        // An event that a letter from elsewhere brought was not sent, and keeps nothing out that is.
        let sent = places.into_iter().flatten().filter(|seq| !self.events[seq].imported);
        let all = sent.map(|seq| self.events[seq].earlier(*seq));
        Ok(all.reduce(|found, earlier| found.beside(earlier, content)))
    }

    fn find_key(&mut self, key: &[u8], now: Timestamp) -> Result<Option<EarlierEvent>, Infallible> {
        let Some((seq, until)) = self.keys.get(key).copied() else { return Ok(None) };
        let found = self.events.get(&seq).map(|kept| kept.earlier(seq));
        if !found.is_some_and(|earlier| earlier.remembered.kept) && until <= now {
            return Ok(None);
        }
        // The key may be all that is left of it.
        let remembered = RememberedKeys { last_at: now, kept: false };
        let gone = EarlierEvent { seq, content: 0, deliveries: 1, accepted_at: now, remembered };
        Ok(Some(found.unwrap_or(gone)))
    }

    fn waiting(&self, service: &ServiceName) -> Backlog {
        let is_open = |row: &&ModelRow<Extra>| row.state.is_open() && row.waiting.queue.service == *service;
        let mut backlog = Backlog::default();
        for row in self.model.rows().filter(is_open) {
            backlog.deliveries += 1;
            backlog.bytes += row.waiting.bytes() as u64;
        }
        backlog
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            model: Model::default(),
            events: BTreeMap::new(),
            ids: BTreeMap::new(),
            kinds: BTreeMap::new(),
            kind_of: BTreeMap::new(),
            replays: BTreeMap::new(),
            keys: BTreeMap::new(),
            imported: BTreeMap::new(),
            audit: BTreeMap::new(),
            actor: AuditActor::unknown(),
            door: Door::default(),
            ending: VecDeque::new(),
            ids_checked: Seq::NONE,
            books: BTreeMap::new(),
            books_turn: 0,
            owed: BTreeSet::new(),
            crashes: VecDeque::new(),
            running: false,
            last_alive_at: None,
        }
    }

    /// The delivery at that place, which is there.
    pub(super) fn row(&self, seq: Seq) -> &ModelRow<Extra> {
        self.model.row(seq).expect("only a delivery that is there is asked for")
    }

    /// What it is, as a reader sees it.
    pub(super) fn state(&self, row: &ModelRow<Extra>) -> DeliveryState {
        let written_at = row.waiting.written_at;
        match &row.state {
            RowState::Ready => DeliveryState::Ready,
            RowState::Due(at) => DeliveryState::Due { at: *at },
            RowState::Behind => DeliveryState::Behind,
            RowState::Delivered => DeliveryState::Delivered { at: written_at },
            RowState::Dead(death) => {
                let letter = row.letter.and_then(|number| self.model.letter(number));
                let at = letter.expect("a dead delivery has a letter").died_at;
                DeliveryState::Dead { at, death: death.clone() }
            }
            RowState::Closed => {
                let how = row.extra.closed.clone().expect("it is known how it was closed");
                DeliveryState::Closed { at: written_at, how }
            }
        }
    }

    /// Whether a delivery was purged.
    pub(super) fn is_purged(&self, seq: Seq) -> bool {
        self.row(seq).extra.closed == Some(LetterClosure::Purged)
    }

    pub(super) fn recover(&mut self, now: Timestamp) -> RecoveredState {
        let now = self.last_alive_at.map_or(now, |last| last.max(now));
        if std::mem::replace(&mut self.running, true) {
            self.crashes.push_back((now, self.model.last()));
            if self.crashes.len() > CRASHES_MAX {
                self.crashes.pop_front();
            }
        }
        if let Some(last_alive_at) = self.last_alive_at {
            self.model.absences.add(last_alive_at, now);
        }
        self.last_alive_at = Some(now);
        self.model.begin_run();
        self.model.breakers.retain(|_, record| !record.is_expired(now));
        let waiting = self.model.queues().filter(|(_, open)| *open > 0);
        let waiting: BTreeSet<QueueName> = waiting.map(|(queue, _)| (**queue).clone()).collect();
        let text = |hash: &u64| self.books[hash].text.as_deref().map(str::to_owned);
        RecoveredState {
            resumes_at: now,
            seed: self.seed,
            queues: waiting.into_iter().collect(),
            paused: self.model.paused.clone(),
            absences: self.model.absences.clone(),
            breakers: self.model.breakers.values().cloned().collect(),
            replays: self.model.unfinished_replays().cloned().collect(),
            owed: self.owed.clone(),
            books: self.newest_books().iter().filter_map(text).collect(),
            crashes: self.crashes.iter().copied().collect(),
        }
    }

    pub(super) fn close(&mut self, now: Timestamp) {
        self.running = false;
        self.last_alive_at = self.last_alive_at.max(Some(now));
    }

    pub(super) fn write(&mut self, batch: &WriteBatch, now: Timestamp) -> BatchResult {
        let mut written = BatchResult::default();
        for settlement in &batch.settlements {
            written.settled.push(self.settle(settlement, now));
        }
        for submission in &batch.submissions {
            let submitted = self.submit(submission, now, &mut written.waiting);
            written.submitted.push(submitted);
        }
        for note in &batch.changes {
            self.note(note, now, &mut written.waiting);
        }
        for given in &batch.commands {
            self.command(given, now, &mut written.waiting);
        }
        for advance in &batch.advances {
            let advanced = self.advance(advance, now, &mut written.waiting);
            written.advanced.push(advanced);
        }
        self.last_alive_at = self.last_alive_at.max(Some(now));
        written
    }

    fn note(&mut self, note: &StateChange, now: Timestamp, waiting: &mut Vec<PendingDelivery>) {
        match note {
            StateChange::Pause(service) => {
                self.model.paused.entry(service.clone()).or_insert(now);
            }
            StateChange::Resume(service) => {
                self.model.paused.remove(service);
            }
            StateChange::Breaker(record) => self.model.keep_breaker(record, now),
            StateChange::Absence { from } => self.model.absences.add(*from, now),
            // Every batch is a sign of life.
            StateChange::Alive => {}
            StateChange::Book { hash, text } => {
                self.books_turn += 1;
                let book = self.books.entry(*hash).or_default();
                book.text = Some(Arc::clone(text));
                book.turn = self.books_turn;
            }
            StateChange::AutoReplayDue(dependency) => {
                self.owed.insert(dependency.clone());
            }
            StateChange::AutoReplayDone(dependency) => {
                self.owed.remove(dependency);
            }
            StateChange::Release(queue) => self.model.release(queue),
            StateChange::Key(key) => self.save_key(key),
            StateChange::Refused(refused) => self.save_refused(refused, now),
            StateChange::Memo { name, value } => self.save_memo(name, value.as_deref()),
            StateChange::Audit(deed) => self.save_audit_entry(deed, now),
            StateChange::Route { event, routes } => self.route(*event, routes, now, waiting),
        }
    }

    fn route(
        &mut self,
        event: Seq,
        routes: &[Addressee],
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) {
        let Some(kept) = self.events.get(&event).filter(|kept| kept.is_unrouted()) else { return };
        let whole = Arc::clone(&kept.event);
        let Ok(Some(RoutePlan { to, keys })) = admit::route(self, routes, &whole, now) else { return };
        let first_delivery = self.model.last().next();
        let kept = self.events.get_mut(&event).expect("it was there");
        kept.first_delivery = first_delivery;
        kept.delivery_count = admit::deliveries(to.len());
        for addressee in to {
            waiting.extend(self.add_delivery(event, addressee, BacklogFit::Waits, now));
        }
        self.write_keys(event, keys);
    }
}
