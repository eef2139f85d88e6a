//! All that a store in memory knows, and what its verbs do to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use redrive_core::breaker::Record;
use redrive_core::decide::History;
use redrive_core::engine::{Absences, Load, Next, Page, QueueName, Settlement, Waiting, Wanted};
use redrive_core::event::Event;
use redrive_core::event::attribute::{EventId, EventSource};
use redrive_core::idempotency;
use redrive_core::ids::{DeliveryId, DependencyName, Seq, ServiceName};
use redrive_core::story::Story;
use redrive_core::time::Timestamp;

use crate::store::admit::{self, Admitted, Backlog, Earlier, Fit, Ledger};
use crate::store::{
    Addressee, Batch, CRASHES_MAX, Counts, DeliveryState, Note, Recovered, Refusal, Settled, Submission,
    Taken, Written, derive,
};

#[derive(Clone, Debug)]
pub(super) struct World {
    seed: u64,
    /// The last place given.
    pub(super) last: Seq,
    pub(super) events: BTreeMap<Seq, Kept>,
    pub(super) ids: BTreeMap<(EventSource, EventId), Seq>,
    pub(super) rows: BTreeMap<Seq, Row>,
    /// Those at the head of their session, or with none, that may start.
    ready: BTreeSet<(Arc<QueueName>, Seq)>,
    /// Those that wait for their time.
    due: BTreeSet<(Arc<QueueName>, Timestamp, Seq)>,
    /// Of each session, those that have not ended; the first is its head.
    lanes: BTreeMap<u64, BTreeSet<Seq>>,
    pub(super) counts: Counts,
    /// Deliveries that were delivered and events that nobody wanted, with when: what may be deleted later.
    pub(super) ending: VecDeque<(Timestamp, Seq)>,
    /// Up to here events were found older than ids are kept.
    pub(super) ids_checked: Seq,
    pub(super) books: BTreeMap<u64, Book>,
    /// How many books have come.
    books_turn: u64,
    paused: BTreeMap<ServiceName, Timestamp>,
    absences: Absences,
    breakers: BTreeMap<DependencyName, Record>,
    crashes: VecDeque<(Timestamp, Seq)>,
    /// Whether a run has begun that has not been closed.
    running: bool,
    last_alive_at: Option<Timestamp>,
}

/// An event, or what is remembered of it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) event: Arc<Event>,
    pub(super) received_at: Timestamp,
    content: u64,
    first_delivery: Seq,
    pub(super) delivery_count: u32,
    /// Whether more of it is kept than its id.
    pub(super) whole: bool,
}

/// A delivery.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: DeliveryId,
    pub(super) event: Seq,
    pub(super) queue: Arc<QueueName>,
    pub(super) subscription: Arc<str>,
    lane: Option<u64>,
    pub(super) state: DeliveryState,
    pub(super) attempts: u32,
    history: History,
    book: Option<u64>,
    pub(super) written_at: Timestamp,
    start_recorded: bool,
    pub(super) stories: Vec<Story>,
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

    /// Whether nobody has wanted it so far.
    pub(super) fn is_unrouted(&self) -> bool {
        self.whole && self.delivery_count == 0
    }
}

impl Ledger for World {
    type Error = Infallible;

    fn find(&mut self, event: &Event) -> Result<Option<Earlier>, Infallible> {
        let seq = self.ids.get(&(event.source.clone(), event.id.clone()));
        Ok(seq.map(|seq| {
            let kept = &self.events[seq];
            Earlier { seq: *seq, content: kept.content, deliveries: kept.delivery_count }
        }))
    }

    fn waiting(&self, service: &ServiceName) -> Backlog {
        let mut backlog = Backlog::default();
        for (_, counts) in self.counts.queues.iter().filter(|(queue, _)| queue.service == *service) {
            backlog.deliveries += counts.waiting;
            backlog.bytes += counts.waiting_bytes;
        }
        backlog
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            last: Seq::NONE,
            events: BTreeMap::new(),
            ids: BTreeMap::new(),
            rows: BTreeMap::new(),
            ready: BTreeSet::new(),
            due: BTreeSet::new(),
            lanes: BTreeMap::new(),
            counts: Counts::default(),
            ending: VecDeque::new(),
            ids_checked: Seq::NONE,
            books: BTreeMap::new(),
            books_turn: 0,
            paused: BTreeMap::new(),
            absences: Absences::new(),
            breakers: BTreeMap::new(),
            crashes: VecDeque::new(),
            running: false,
            last_alive_at: None,
        }
    }

    pub(super) fn recover(&mut self, now: Timestamp) -> Recovered {
        let now = self.last_alive_at.map_or(now, |last| last.max(now));
        if std::mem::replace(&mut self.running, true) {
            self.crashes.push_back((now, self.last));
            if self.crashes.len() > CRASHES_MAX {
                self.crashes.pop_front();
            }
        }
        if let Some(last_alive_at) = self.last_alive_at {
            self.absences.add(last_alive_at, now);
        }
        self.last_alive_at = Some(now);
        self.breakers.retain(|_, record| !record.is_expired(now));
        let waiting = self.counts.queues.iter().filter(|(_, counts)| counts.waiting > 0);
        let text = |hash: &u64| self.books[hash].text.as_deref().map(str::to_owned);
        Recovered {
            resumes_at: now,
            seed: self.seed,
            queues: waiting.map(|(queue, _)| queue.clone()).collect(),
            paused: self.paused.clone(),
            absences: self.absences.clone(),
            breakers: self.breakers.values().cloned().collect(),
            replays: Vec::new(),
            books: self.newest_books().iter().filter_map(text).collect(),
            crashes: self.crashes.iter().copied().collect(),
        }
    }

    pub(super) fn close(&mut self, now: Timestamp) {
        self.running = false;
        self.last_alive_at = self.last_alive_at.max(Some(now));
    }

    pub(super) fn write(&mut self, batch: &Batch, now: Timestamp) -> Written {
        let mut written = Written::default();
        for settlement in &batch.settlements {
            written.settled.push(self.settle(settlement, now));
        }
        for submission in &batch.submissions {
            let submitted = self.submit(submission, now, &mut written.waiting);
            written.submitted.push(submitted);
        }
        for note in &batch.notes {
            self.note(note, now, &mut written.waiting);
        }
        self.last_alive_at = self.last_alive_at.max(Some(now));
        written
    }

    fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> Settled {
        let seq = settlement.delivery.seq();
        let Some(row) = self.rows.get_mut(&seq) else { return Settled::Stale };
        let at_the_head = match row.state {
            DeliveryState::Ready | DeliveryState::Due { .. } => true,
            DeliveryState::Behind
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Closed { .. } => false,
        };
        if !at_the_head || row.id != settlement.delivery || row.attempts != settlement.attempts_before {
            return Settled::Stale;
        }
        row.attempts = settlement.attempts;
        row.history = settlement.history.clone();
        row.book = Some(settlement.book);
        row.written_at = settlement.at;
        row.start_recorded = settlement.next == Next::Starting;
        if let Some(story) = &settlement.story {
            row.stories.push((**story).clone());
            self.books.entry(story.book).or_default().stories += 1;
        }
        if let Some(service) = &settlement.pause {
            self.paused.entry(service.clone()).or_insert(settlement.at);
        }
        let at = settlement.at;
        let next = match &settlement.next {
            Next::Ready | Next::Starting => DeliveryState::Ready,
            Next::Due { at } => DeliveryState::Due { at: *at },
            Next::Delivered => DeliveryState::Delivered { at },
            Next::Dead(death) => DeliveryState::Dead { at, death: death.clone() },
        };
        let promoted = self.change(seq, next, now);
        Settled::Written { promoted: promoted.map(|seq| Box::new(self.waiting_at(seq))) }
    }

    /// Gives a delivery at the head another state; says who comes next if its session is free now.
    fn change(&mut self, seq: Seq, next: DeliveryState, now: Timestamp) -> Option<Seq> {
        self.unlist(seq);
        let row = self.rows.get_mut(&seq).expect("whoever changes it has seen it");
        row.state = next;
        let bytes = self.events[&row.event].event.data.len() as u64;
        let counts = self.counts.queues.get_mut(&*row.queue).expect("counted when it was accepted");
        match row.state {
            DeliveryState::Ready | DeliveryState::Due { .. } | DeliveryState::Behind => {
                self.list_again(seq);
                return None;
            }
            DeliveryState::Delivered { .. } => {
                counts.delivered += 1;
                self.ending.push_back((now, seq));
            }
            DeliveryState::Dead { .. } => counts.dead += 1,
            DeliveryState::Closed { .. } => counts.closed += 1,
        }
        counts.waiting -= 1;
        counts.waiting_bytes -= bytes;
        let lane = row.lane?;
        let members = self.lanes.get_mut(&lane).expect("it was the head of it");
        members.remove(&seq);
        let Some(head) = members.first().copied() else {
            self.lanes.remove(&lane);
            return None;
        };
        let row = self.rows.get_mut(&head).expect("a lane holds rows");
        row.state = DeliveryState::Ready;
        self.counts.queues.get_mut(&*row.queue).expect("counted when it was accepted").behind -= 1;
        self.list_again(head);
        Some(head)
    }

    fn unlist(&mut self, seq: Seq) {
        let row = &self.rows[&seq];
        match row.state {
            DeliveryState::Ready => self.ready.remove(&(Arc::clone(&row.queue), seq)),
            DeliveryState::Due { at } => self.due.remove(&(Arc::clone(&row.queue), at, seq)),
            DeliveryState::Behind
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Closed { .. } => false,
        };
    }

    fn list_again(&mut self, seq: Seq) {
        let row = &self.rows[&seq];
        match row.state {
            DeliveryState::Ready => self.ready.insert((Arc::clone(&row.queue), seq)),
            DeliveryState::Due { at } => self.due.insert((Arc::clone(&row.queue), at, seq)),
            DeliveryState::Behind
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Closed { .. } => false,
        };
    }

    fn submit(
        &mut self,
        submission: &Submission,
        now: Timestamp,
        waiting: &mut Vec<Waiting>,
    ) -> Result<Vec<Taken>, Refusal> {
        let Ok(admitted) = admit::admit(self, submission, self.last);
        let mut taken = Vec::with_capacity(submission.events.len());
        for (submitted, admitted) in submission.events.iter().zip(admitted?) {
            let new = match admitted {
                Admitted::Known(known) => {
                    taken.push(known);
                    continue;
                }
                Admitted::New(new) => new,
            };
            taken.push(new.taken());
            let event = &submitted.event;
            self.last = new.seq;
            self.ids.insert((event.source.clone(), event.id.clone()), new.seq);
            self.counts.events += 1;
            let kept = Kept {
                event: Arc::clone(event),
                received_at: now,
                content: new.content,
                first_delivery: new.seq.next(),
                delivery_count: new.taken().deliveries,
                whole: true,
            };
            self.events.insert(new.seq, kept);
            if submitted.routes.is_empty() {
                self.counts.unrouted += 1;
                self.ending.push_back((now, new.seq));
            }
            for (addressee, fit) in submitted.routes.iter().zip(new.fits) {
                waiting.extend(self.add_delivery(new.seq, addressee, fit, now));
            }
        }
        Ok(taken)
    }

    /// Adds a delivery at the next place; says what may start now.
    fn add_delivery(&mut self, event: Seq, to: &Addressee, fit: Fit, now: Timestamp) -> Option<Waiting> {
        let seq = self.last.next();
        self.last = seq;
        let content = &self.events[&event].event;
        let QueueName { service, channel } = &*to.queue;
        let id = idempotency::delivery_id(seq, content.dedup_key(), service, channel.as_ref());
        let lane = derive::lane(self.seed, to, content);
        let counts = self.counts.queues.entry((*to.queue).clone()).or_default();
        let state = match fit {
            Fit::Overflows => {
                counts.dead += 1;
                DeliveryState::Dead { at: now, death: Box::new(derive::overflow(to)) }
            }
            Fit::Waits => {
                counts.waiting += 1;
                counts.waiting_bytes += content.data.len() as u64;
                let is_head = lane.is_none_or(|lane| {
                    let members = self.lanes.entry(lane).or_default();
                    members.insert(seq);
                    members.len() == 1
                });
                counts.behind += u64::from(!is_head);
                if is_head { DeliveryState::Ready } else { DeliveryState::Behind }
            }
        };
        let may_start = state == DeliveryState::Ready;
        let row = Row {
            id,
            event,
            queue: Arc::clone(&to.queue),
            subscription: Arc::clone(&to.subscription),
            lane,
            state,
            attempts: 0,
            history: History::new(),
            book: None,
            written_at: now,
            start_recorded: false,
            stories: Vec::new(),
        };
        self.rows.insert(seq, row);
        self.list_again(seq);
        may_start.then(|| self.waiting_at(seq))
    }

    fn note(&mut self, note: &Note, now: Timestamp, waiting: &mut Vec<Waiting>) {
        match note {
            Note::Pause(service) => {
                self.paused.entry(service.clone()).or_insert(now);
            }
            Note::Resume(service) => {
                self.paused.remove(service);
            }
            Note::Breaker(record) => {
                if record.replaces(self.breakers.get(&record.service_name), now) {
                    self.breakers.insert(record.service_name.clone(), (**record).clone());
                }
            }
            Note::Absence { from } => self.absences.add(*from, now),
            // Every batch is a sign of life.
            Note::Alive => {}
            Note::Book { hash, text } => {
                self.books_turn += 1;
                let book = self.books.entry(*hash).or_default();
                book.text = Some(Arc::clone(text));
                book.turn = self.books_turn;
            }
            Note::Release(queue) => {
                let parked = (Arc::clone(queue), Timestamp::NEVER, Seq::NONE);
                let parked = self.due.range(parked..).take_while(|(name, _, _)| name == queue);
                let places: Vec<Seq> = parked.map(|(_, _, seq)| *seq).collect();
                for seq in places {
                    self.change(seq, DeliveryState::Ready, now);
                }
            }
            Note::Route { event, routes } => self.route(*event, routes, now, waiting),
        }
    }

    fn route(&mut self, event: Seq, routes: &[Addressee], now: Timestamp, waiting: &mut Vec<Waiting>) {
        let Some(kept) = self.events.get(&event).filter(|kept| kept.is_unrouted()) else { return };
        if routes.is_empty() || !admit::all_fit(self, routes, &kept.event) {
            return;
        }
        let first_delivery = self.last.next();
        let kept = self.events.get_mut(&event).expect("it was there");
        kept.first_delivery = first_delivery;
        kept.delivery_count = admit::deliveries(routes.len());
        self.counts.unrouted -= 1;
        for addressee in routes {
            waiting.extend(self.add_delivery(event, addressee, Fit::Waits, now));
        }
    }

    pub(super) fn load(&self, load: &Load) -> Page {
        let Load { queue, wanted, rows_max, bytes_max } = load;
        let (found, next_due_at): (Box<dyn Iterator<Item = Seq>>, Option<Timestamp>) = match *wanted {
            Wanted::Ready { after } => {
                let first = (Arc::clone(queue), after.next());
                let ours = self.ready.range(first..).take_while(|(name, _)| name == queue);
                (Box::new(ours.map(|(_, seq)| *seq)), None)
            }
            Wanted::Due { until } => {
                let first = (Arc::clone(queue), Timestamp::EPOCH, Seq::NONE);
                let ours = self.due.range(first..).take_while(|(name, _, _)| name == queue);
                let later = ours.clone().map(|(_, at, _)| *at).find(|at| *at > until);
                let ours = ours.take_while(move |(_, at, _)| *at <= until);
                (Box::new(ours.map(|(_, _, seq)| *seq)), later.filter(|at| *at != Timestamp::NEVER))
            }
        };
        let mut rows: Vec<Waiting> = Vec::new();
        let (mut bytes, mut more) = (0, false);
        for seq in found {
            let row = self.waiting_at(seq);
            bytes += row.bytes();
            if rows.len() == *rows_max as usize || !rows.is_empty() && bytes > *bytes_max {
                more = true;
                break;
            }
            rows.push(row);
        }
        Page { queue: Arc::clone(queue), wanted: *wanted, rows, more, next_due_at }
    }

    fn waiting_at(&self, seq: Seq) -> Waiting {
        let row = &self.rows[&seq];
        Waiting {
            id: row.id,
            queue: Arc::clone(&row.queue),
            event: Arc::clone(&self.events[&row.event].event),
            sequence: row.lane.map(|_| seq),
            replaying: None,
            attempts: row.attempts,
            due_at: match row.state {
                DeliveryState::Due { at } => Some(at),
                DeliveryState::Ready
                | DeliveryState::Behind
                | DeliveryState::Delivered { .. }
                | DeliveryState::Dead { .. }
                | DeliveryState::Closed { .. } => None,
            },
            history: row.history.clone(),
            book: row.book,
            written_at: row.written_at,
            start_recorded: row.start_recorded,
        }
    }
}
