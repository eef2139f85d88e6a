//! All that a store in memory knows, and what its verbs do to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use redrive_core::engine::story::Story;
use redrive_core::engine::{Absences, Followers, Load, Page, QueueName, Waiting, Wanted};
use redrive_core::event::Event;
use redrive_core::event::attribute::{EventId, EventSource};
use redrive_core::event::copies::Remembered;
use redrive_core::ids::{DeliveryId, DependencyName, Seq, ServiceName};
use redrive_core::letters::replay::{ReplayId, Replaying};
use redrive_core::policy::breaker::Record;
use redrive_core::policy::decide::History;
use redrive_core::time::Timestamp;

use super::door::Door;
use super::letters::{Kind, Letter};
use super::replays::Replay;
use crate::store::admit::{self, Backlog, Earlier, Fit, Ledger, Routed};
use crate::store::door::By;
use crate::store::letter::{AuditRecord, KindId, LetterNumber};
use crate::store::{Addressee, Batch, CRASHES_MAX, Closed, Counts, DeliveryState, Note, Recovered, Written};

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) seed: u64,
    /// The last place given.
    pub(super) last: Seq,
    pub(super) events: BTreeMap<Seq, Kept>,
    pub(super) ids: BTreeMap<(EventSource, EventId), BTreeSet<Seq>>,
    pub(super) rows: BTreeMap<Seq, Row>,
    /// Those at the head of their session, or with none, that may start.
    pub(super) ready: BTreeSet<(Arc<QueueName>, Seq)>,
    /// Those that wait for their time.
    pub(super) due: BTreeSet<(Arc<QueueName>, Timestamp, Seq)>,
    /// Of each session, those that have not ended or that hold it, by their turn.
    pub(super) lanes: BTreeMap<u64, BTreeSet<(Seq, Seq)>>,
    /// Sessions that a dead letter holds, even while it is replayed.
    pub(super) held: BTreeMap<u64, Held>,
    pub(super) letters: BTreeMap<LetterNumber, Letter>,
    /// The largest number of a letter in this run.
    pub(super) last_letter: LetterNumber,
    /// Which letter a delivery is.
    pub(super) numbers: BTreeMap<Seq, LetterNumber>,
    pub(super) kinds: BTreeMap<KindId, Kind>,
    pub(super) replays: BTreeMap<ReplayId, Replay>,
    /// What deliveries are known by whose rule has a key of its own: the event, and until when.
    pub(super) keys: BTreeMap<Vec<u8>, (Seq, Timestamp)>,
    /// Letters from elsewhere, by what they were known as there.
    pub(super) imported: BTreeMap<String, Seq>,
    pub(super) audit: BTreeMap<u64, AuditRecord>,
    /// Who gave the order that is being carried out.
    pub(super) acting: By,
    pub(super) door: Door,
    pub(super) counts: Counts,
    /// Deliveries that were delivered and events that nobody wanted, with when: what may be deleted later.
    pub(super) ending: VecDeque<(Timestamp, Seq)>,
    /// Up to here events were found older than ids are kept.
    pub(super) ids_checked: Seq,
    pub(super) books: BTreeMap<u64, Book>,
    /// How many books have come.
    books_turn: u64,
    pub(super) paused: BTreeMap<ServiceName, Timestamp>,
    absences: Absences,
    breakers: BTreeMap<DependencyName, Record>,
    owed: BTreeSet<DependencyName>,
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
    pub(super) content: u64,
    pub(super) first_delivery: Seq,
    pub(super) delivery_count: u32,
    /// Whether more of it is kept than its id.
    pub(super) whole: bool,
    /// Whether it came with a letter from elsewhere, and was not sent.
    pub(super) imported: bool,
}

/// A delivery.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: DeliveryId,
    pub(super) event: Seq,
    pub(super) queue: Arc<QueueName>,
    pub(super) subscription: Arc<str>,
    pub(super) lane: Option<u64>,
    pub(super) state: DeliveryState,
    pub(super) attempts: u32,
    pub(super) history: History,
    pub(super) book: Option<u64>,
    pub(super) written_at: Timestamp,
    pub(super) start_recorded: bool,
    pub(super) stories: Vec<Story>,
    /// Its place in the order of its session, if that is not its own.
    pub(super) turn: Option<Seq>,
    /// The replay that sends it again.
    pub(super) replaying: Option<Replaying>,
    /// How often it has been replayed.
    pub(super) replays: u32,
    /// The event that took its place if it is superseded, else the event whose letter it took the place of.
    pub(super) linked: Option<Seq>,
}

/// A session that a dead letter holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) letter: Seq,
    pub(super) since: Timestamp,
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

    fn earlier(&self, seq: Seq) -> Earlier {
        Earlier {
            seq,
            content: self.content,
            deliveries: self.delivery_count,
            accepted_at: self.received_at,
            remembered: Remembered { last_at: self.received_at, kept: self.whole },
        }
    }

    /// Whether nobody has wanted it so far.
    pub(super) fn is_unrouted(&self) -> bool {
        self.whole && self.delivery_count == 0
    }
}

impl Row {
    /// Its place in the order of its session.
    pub(super) fn turn(&self) -> Seq {
        self.turn.unwrap_or(self.id.seq())
    }

    /// Whether it may start, now or when its time has come.
    pub(super) fn is_head(&self) -> bool {
        matches!(self.state, DeliveryState::Ready | DeliveryState::Due { .. })
    }

    /// Whether it is dead and those behind it in its session wait for it.
    pub(super) fn holds(&self) -> bool {
        matches!(&self.state, DeliveryState::Dead { death, .. } if death.followers == Followers::Wait)
    }

    /// Whether another took its place.
    pub(super) fn is_superseded(&self) -> bool {
        matches!(self.state, DeliveryState::Closed { how: Closed::Superseded { .. }, .. })
    }

    /// Its session, if it has a place in it still.
    pub(super) fn open_lane(&self) -> Option<u64> {
        let is_open = match self.state {
            DeliveryState::Ready | DeliveryState::Due { .. } | DeliveryState::Behind => true,
            DeliveryState::Dead { .. } => self.holds(),
            DeliveryState::Delivered { .. } | DeliveryState::Closed { .. } => false,
        };
        self.lane.filter(|_| is_open)
    }
}

impl Ledger for World {
    type Error = Infallible;

    fn find(&mut self, event: &Event, content: u64) -> Result<Option<Earlier>, Infallible> {
        let places = self.ids.get(&(event.source.clone(), event.id.clone()));
        // An event that a letter from elsewhere brought was not sent, and keeps nothing out that is.
        let sent = places.into_iter().flatten().filter(|seq| !self.events[seq].imported);
        let all = sent.map(|seq| self.events[seq].earlier(*seq));
        Ok(all.reduce(|found, earlier| found.beside(earlier, content)))
    }

    fn find_key(&mut self, key: &[u8], now: Timestamp) -> Result<Option<Earlier>, Infallible> {
        let Some((seq, until)) = self.keys.get(key).copied() else { return Ok(None) };
        let found = self.events.get(&seq).map(|kept| kept.earlier(seq));
        if !found.is_some_and(|earlier| earlier.remembered.kept) && until <= now {
            return Ok(None);
        }
        // The key may be all that is left of it.
        let remembered = Remembered { last_at: now, kept: false };
        let gone = Earlier { seq, content: 0, deliveries: 1, accepted_at: now, remembered };
        Ok(Some(found.unwrap_or(gone)))
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
            held: BTreeMap::new(),
            letters: BTreeMap::new(),
            last_letter: LetterNumber(0),
            numbers: BTreeMap::new(),
            kinds: BTreeMap::new(),
            replays: BTreeMap::new(),
            keys: BTreeMap::new(),
            imported: BTreeMap::new(),
            audit: BTreeMap::new(),
            acting: By::nobody(),
            door: Door::default(),
            counts: Counts::default(),
            ending: VecDeque::new(),
            ids_checked: Seq::NONE,
            books: BTreeMap::new(),
            books_turn: 0,
            paused: BTreeMap::new(),
            absences: Absences::new(),
            breakers: BTreeMap::new(),
            owed: BTreeSet::new(),
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
        self.last_letter = self.letters.last_key_value().map_or(LetterNumber(0), |(number, _)| *number);
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
            replays: self.unfinished_replays(),
            owed: self.owed.clone(),
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
            Note::Owe(dependency) => {
                self.owed.insert(dependency.clone());
            }
            Note::Paid(dependency) => {
                self.owed.remove(dependency);
            }
            Note::Release(queue) => {
                let parked = (Arc::clone(queue), Timestamp::NEVER, Seq::NONE);
                let parked = self.due.range(parked..).take_while(|(name, _, _)| name == queue);
                let places: Vec<Seq> = parked.map(|(_, _, seq)| *seq).collect();
                for seq in places {
                    self.change(seq, DeliveryState::Ready);
                }
            }
            Note::Key(key) => self.keep_key(key),
            Note::Refused(refused) => self.keep_refused(refused, now),
            Note::Memo { name, value } => self.keep_memo(name, value.as_deref()),
            Note::Deed(deed) => self.keep_deed(deed, now),
            Note::Route { event, routes } => self.route(*event, routes, now, waiting),
        }
    }

    fn route(&mut self, event: Seq, routes: &[Addressee], now: Timestamp, waiting: &mut Vec<Waiting>) {
        let Some(kept) = self.events.get(&event).filter(|kept| kept.is_unrouted()) else { return };
        let whole = Arc::clone(&kept.event);
        let Ok(Some(Routed { to, keys })) = admit::route(self, routes, &whole, now) else { return };
        let first_delivery = self.last.next();
        let kept = self.events.get_mut(&event).expect("it was there");
        kept.first_delivery = first_delivery;
        kept.delivery_count = admit::deliveries(to.len());
        self.counts.unrouted -= 1;
        for addressee in to {
            waiting.extend(self.add_delivery(event, addressee, Fit::Waits, now));
        }
        self.keep_keys(event, keys);
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

    pub(super) fn waiting_at(&self, seq: Seq) -> Waiting {
        let row = &self.rows[&seq];
        Waiting {
            id: row.id,
            queue: Arc::clone(&row.queue),
            event: Arc::clone(&self.events[&row.event].event),
            sequence: row.lane.map(|_| row.turn()),
            replaying: row.replaying,
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
            damaged: false,
        }
    }
}
