//! A store in memory: the plainest reading of what a store does with deliveries, sessions, dead letters and
//! replays. The engine's model tests, the simulator and the contract of the stores that ship use it; what the
//! simulator does not need is there for tests alone.
//!
//! It knows neither the rule book nor duplicates nor retention: callers decide which delivery is added, which
//! letters a replay claims and what is forgotten. `X` is what a caller keeps with each delivery.
//!
//! Invariant: of each session with anything in it exactly one delivery may start; or none may, the first is a
//! dead letter that holds the rest, and [`Model::holder`] says so.

mod letters;
#[cfg(any(test, feature = "testing"))]
mod replays;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

pub use self::letters::Letter;
#[cfg(any(test, feature = "testing"))]
pub use self::replays::Replay;
use crate::engine::{
    Absences, Death, Fate, Followers, Load, Next, Page, QueueName, Settlement, Waiting, Wanted,
};
use crate::event::Event;
use crate::hash::Map;
use crate::ids::{DeliveryId, DependencyName, Seq, ServiceName};
use crate::letters::LetterNumber;
#[cfg(any(test, feature = "testing"))]
use crate::letters::replay::ReplayId;
use crate::policy::breaker::Record;
use crate::policy::decide::History;
use crate::time::Timestamp;

/// All that is durable.
#[derive(Clone, Debug)]
pub struct Model<X> {
    last: Seq,
    rows: Map<Seq, Row<X>>,
    queues: Vec<Index>,
    places: Map<Arc<QueueName>, usize>,
    /// Deliveries that have not ended, and dead letters that hold the rest, by their turn.
    lanes: Map<Lane, BTreeSet<(Seq, Seq)>>,
    held: BTreeMap<Lane, Holder>,
    letters: BTreeMap<LetterNumber, Letter>,
    last_letter: LetterNumber,
    #[cfg(any(test, feature = "testing"))]
    replays: BTreeMap<ReplayId, Replay>,
    /// Services that are paused, and since when.
    pub paused: BTreeMap<ServiceName, Timestamp>,
    /// The last known state of each breaker.
    pub breakers: BTreeMap<DependencyName, Record>,
    /// When Redrive was away.
    pub absences: Absences,
}

/// A session of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u64);

/// A delivery to add, at the place that its id says.
#[derive(Clone, Debug)]
pub struct NewRow<X> {
    /// Its place is the one after [`Model::last`].
    pub id: DeliveryId,
    /// Where it waits.
    pub queue: Arc<QueueName>,
    /// What it delivers.
    pub event: Arc<Event>,
    /// Its session, if it keeps an order.
    pub lane: Option<Lane>,
    /// What the caller keeps with it.
    pub extra: X,
}

/// A delivery.
#[derive(Clone, Debug)]
pub struct Row<X> {
    /// As the engine gets it.
    pub waiting: Waiting,
    /// What became of it so far.
    pub state: State,
    /// Its session, if it keeps an order.
    pub lane: Option<Lane>,
    /// Its place in the order of its session: its own, or that of the letter it replaced.
    pub turn: Seq,
    /// How often it has been replayed.
    pub replays: u32,
    /// The number of its letter, while it is dead.
    pub letter: Option<LetterNumber>,
    /// What the caller keeps with it.
    pub extra: X,
    place: usize,
}

/// What a delivery is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It may start.
    Ready,
    /// It waits for its time.
    Due(Timestamp),
    /// Another of its session comes first.
    Behind,
    /// Failed for good.
    Dead(Box<Death>),
    /// Delivered.
    Delivered,
    /// A dead letter that was skipped, purged or replaced.
    Closed,
}

/// The letter that holds a session, dead or being replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its place.
    pub letter: Seq,
    /// Since when.
    pub since: Timestamp,
}

/// What a settlement did.
#[derive(Debug)]
pub struct Settled {
    /// Whether it was written.
    pub fate: Fate,
    /// The next of the session, which may start now.
    pub promoted: Option<Box<Waiting>>,
}

/// What may start of a queue, and when.
#[derive(Clone, Debug)]
struct Index {
    name: Arc<QueueName>,
    ready: BTreeSet<Seq>,
    due: BTreeSet<(Timestamp, Seq)>,
    open: u64,
}

impl State {
    /// Whether it may start, now or when its time has come.
    #[must_use]
    pub const fn is_head(&self) -> bool {
        matches!(self, Self::Ready | Self::Due(_))
    }

    /// Whether it has not ended.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Ready | Self::Due(_) | Self::Behind)
    }

    /// Whether it is dead and those behind it in its session wait for it.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self, Self::Dead(death) if death.followers == Followers::Wait)
    }
}

impl<X> Default for Model<X> {
    fn default() -> Self {
        Self {
            last: Seq::NONE,
            rows: Map::default(),
            queues: Vec::new(),
            places: Map::default(),
            lanes: Map::default(),
            held: BTreeMap::new(),
            letters: BTreeMap::new(),
            last_letter: LetterNumber(0),
            #[cfg(any(test, feature = "testing"))]
            replays: BTreeMap::new(),
            paused: BTreeMap::new(),
            breakers: BTreeMap::new(),
            absences: Absences::new(),
        }
    }
}

impl<X> Model<X> {
    /// The last place that was given.
    #[must_use]
    pub const fn last(&self) -> Seq {
        self.last
    }

    /// Adds a delivery; gives it back if it may start.
    pub fn add(&mut self, new: NewRow<X>, now: Timestamp) -> Option<Waiting> {
        let turn = new.id.seq();
        self.insert(new, turn, now)
    }

    fn insert(&mut self, new: NewRow<X>, turn: Seq, now: Timestamp) -> Option<Waiting> {
        let NewRow { id, queue, event, lane, extra } = new;
        let seq = id.seq();
        assert_eq!(seq, self.last.next(), "places are given without gaps");
        self.last = seq;
        let state = self.state_in(lane, turn);
        let place = self.place(&queue);
        let waiting = Waiting {
            id,
            queue,
            event,
            sequence: lane.map(|_| turn),
            replaying: None,
            attempts: 0,
            due_at: None,
            history: History::new(),
            book: None,
            written_at: now,
            start_recorded: false,
            damaged: false,
        };
        let row = Row { waiting, state, lane, turn, replays: 0, letter: None, extra, place };
        self.rows.insert(seq, row);
        self.list(seq);
        self.if_head(seq)
    }

    /// The delivery at that place.
    #[must_use]
    pub fn row(&self, seq: Seq) -> Option<&Row<X>> {
        self.rows.get(&seq)
    }

    /// What the caller keeps with a delivery that is there.
    pub fn extra(&mut self, seq: Seq) -> &mut X {
        &mut self.get_mut(seq).extra
    }

    /// All deliveries, in no order.
    pub fn rows(&self) -> impl Iterator<Item = &Row<X>> {
        self.rows.values()
    }

    /// Forgets a delivery that has ended and holds nothing.
    pub fn forget(&mut self, seq: Seq) -> Option<Row<X>> {
        let row = self.rows.remove(&seq)?;
        assert!(!row.state.is_open() && !row.state.holds(), "what waits, or is waited for, is not forgotten");
        row.letter.and_then(|number| self.letters.remove(&number));
        Some(row)
    }

    /// Queues in the order in which they were first seen, with how many deliveries of each have not ended.
    pub fn queues(&self) -> impl Iterator<Item = (&Arc<QueueName>, u64)> {
        self.queues.iter().map(|queue| (&queue.name, queue.open))
    }

    /// Writes what became of a delivery; nothing, if it does not fit what is on record.
    pub fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> Settled {
        let stale = Settled { fate: Fate::Stale, promoted: None };
        let seq = settlement.delivery.seq();
        let Some(row) = self.rows.get_mut(&seq) else { return stale };
        let waiting = &mut row.waiting;
        let fits = waiting.id == settlement.delivery && waiting.attempts == settlement.attempts_before;
        if !fits || !row.state.is_head() {
            return stale;
        }
        waiting.attempts = settlement.attempts;
        waiting.history = settlement.history.clone();
        waiting.book = Some(settlement.book);
        waiting.written_at = settlement.at;
        waiting.start_recorded = settlement.next == Next::Starting;
        if let Some(service) = &settlement.pause {
            self.paused.entry(service.clone()).or_insert(settlement.at);
        }
        #[cfg(any(test, feature = "testing"))]
        if matches!(settlement.next, Next::Delivered | Next::Dead(_)) {
            self.answer_replay(seq, settlement, now);
        }
        let promoted = match &settlement.next {
            Next::Ready | Next::Starting => {
                self.put(seq, State::Ready);
                None
            }
            Next::Due { at } => {
                self.put(seq, State::Due(*at));
                None
            }
            Next::Delivered => {
                self.put(seq, State::Delivered);
                self.move_on(seq, now)
            }
            Next::Dead(death) => {
                self.die(seq, death, settlement.at);
                self.move_on(seq, now)
            }
        };
        Settled { fate: Fate::Written, promoted: promoted.map(Box::new) }
    }

    /// Finds deliveries that may start.
    #[must_use]
    pub fn load(&self, load: &Load) -> Page {
        let Load { queue, wanted, rows_max, bytes_max } = load;
        let mut page = Page {
            queue: Arc::clone(queue),
            wanted: *wanted,
            rows: Vec::new(),
            more: false,
            next_due_at: None,
        };
        let Some(index) = self.places.get(queue).map(|place| &self.queues[*place]) else { return page };
        let mut bytes = 0;
        let mut take = |seq: Seq| {
            let row = &self.get(seq).waiting;
            bytes += row.bytes();
            let rows = &mut page.rows;
            page.more = rows.len() == *rows_max as usize || !rows.is_empty() && bytes > *bytes_max;
            if !page.more {
                rows.push(row.clone());
            }
            page.more
        };
        match *wanted {
            Wanted::Ready { after } => {
                let mut found = index.ready.range((Bound::Excluded(after), Bound::Unbounded));
                found.find(|seq| take(**seq));
            }
            Wanted::Due { until } => {
                let later = (Bound::Excluded((until, Seq::new(u64::MAX))), Bound::Unbounded);
                let next = index.due.range(later).next().map(|(at, _)| *at);
                index.due.iter().take_while(|(at, _)| *at <= until).find(|(_, seq)| take(*seq));
                page.next_due_at = next.filter(|at| *at != Timestamp::NEVER);
            }
        }
        page
    }

    /// Sessions that a letter holds, with those letters.
    pub fn held(&self) -> impl Iterator<Item = (Lane, Holder)> {
        self.held.iter().map(|(lane, holder)| (*lane, *holder))
    }

    /// How many of a session wait behind another.
    #[must_use]
    pub fn behind(&self, lane: Lane) -> u64 {
        self.lane(lane).filter(|(_, seq)| self.get(*seq).state == State::Behind).count() as u64
    }

    /// Moves a delivery to another state; callers that settle, close or replay need not.
    pub fn put(&mut self, seq: Seq, state: State) {
        self.unlist(seq);
        self.get_mut(seq).state = state;
        self.list(seq);
    }

    /// Lets the first of a delivery's session start if none of it may; if that one is a dead letter, it holds the rest.
    fn move_on(&mut self, seq: Seq, now: Timestamp) -> Option<Waiting> {
        let lane = self.get(seq).lane?;
        self.move_lane_on(lane, now)
    }

    fn move_lane_on(&mut self, lane: Lane, now: Timestamp) -> Option<Waiting> {
        let members: Vec<Seq> = self.lane(lane).map(|(_, seq)| seq).collect();
        let holder = self.held.get(&lane).map(|holder| holder.letter);
        // Its holder may have left it.
        if holder.is_some_and(|holder| !members.contains(&holder)) {
            self.held.remove(&lane);
        }
        let first = *members.first()?;
        if members.iter().any(|seq| self.get(*seq).state.is_head()) {
            return None;
        }
        if self.get(first).state.holds() {
            if holder != Some(first) {
                self.held.insert(lane, Holder { letter: first, since: now });
            }
            return None;
        }
        if holder != Some(first) {
            self.held.remove(&lane);
        }
        self.put(first, State::Ready);
        self.if_head(first)
    }

    /// What a delivery is that comes into a session in that turn: it waits for one that may start, and for
    /// those before it.
    fn state_in(&self, lane: Option<Lane>, turn: Seq) -> State {
        let mut others = lane.into_iter().flat_map(|lane| self.lane(lane));
        let waits = others.any(|(before, seq)| before < turn || self.get(seq).state.is_head());
        if waits { State::Behind } else { State::Ready }
    }

    fn lane(&self, lane: Lane) -> impl Iterator<Item = (Seq, Seq)> {
        self.lanes.get(&lane).into_iter().flatten().copied()
    }

    fn if_head(&self, seq: Seq) -> Option<Waiting> {
        let row = self.get(seq);
        row.state.is_head().then(|| row.waiting.clone())
    }

    fn get(&self, seq: Seq) -> &Row<X> {
        &self.rows[&seq]
    }

    fn get_mut(&mut self, seq: Seq) -> &mut Row<X> {
        self.rows.get_mut(&seq).expect("a delivery that was seen is there")
    }

    fn place(&mut self, queue: &Arc<QueueName>) -> usize {
        if let Some(place) = self.places.get(queue) {
            return *place;
        }
        let name = Arc::clone(queue);
        self.queues.push(Index { name, ready: BTreeSet::new(), due: BTreeSet::new(), open: 0 });
        self.places.insert(Arc::clone(queue), self.queues.len() - 1);
        self.queues.len() - 1
    }

    /// Takes a delivery out of all that follows from its state, queue and session.
    fn unlist(&mut self, seq: Seq) {
        let row = &self.rows[&seq];
        let index = &mut self.queues[row.place];
        index.open -= u64::from(row.state.is_open());
        match row.state {
            State::Ready => index.ready.remove(&seq),
            State::Due(at) => index.due.remove(&(at, seq)),
            State::Behind | State::Dead(_) | State::Delivered | State::Closed => false,
        };
        if let Some(lane) = row.open_lane() {
            let members = self.lanes.get_mut(&lane).expect("it has its place there");
            members.remove(&(row.turn, seq));
            if members.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }

    /// The opposite.
    fn list(&mut self, seq: Seq) {
        let row = self.rows.get_mut(&seq).expect("a delivery that was seen is there");
        let index = &mut self.queues[row.place];
        index.open += u64::from(row.state.is_open());
        row.waiting.due_at = None;
        match row.state {
            State::Ready => {
                index.ready.insert(seq);
            }
            State::Due(at) => {
                row.waiting.due_at = Some(at);
                index.due.insert((at, seq));
            }
            State::Behind | State::Dead(_) | State::Delivered | State::Closed => {}
        }
        if let Some(lane) = row.open_lane() {
            self.lanes.entry(lane).or_default().insert((row.turn, seq));
        }
    }
}

/// What only a store under test does.
#[cfg(any(test, feature = "testing"))]
impl<X> Model<X> {
    /// Gives the next place to something that is no delivery, such as an event.
    pub fn skip_place(&mut self) -> Seq {
        self.last = self.last.next();
        self.last
    }

    /// What waits for a rule in a queue may start.
    pub fn release(&mut self, queue: &Arc<QueueName>) {
        let Some(place) = self.places.get(queue) else { return };
        let parked = self.queues[*place].due.range((Timestamp::NEVER, Seq::NONE)..);
        for seq in parked.map(|(_, seq)| *seq).collect::<Vec<_>>() {
            self.put(seq, State::Ready);
        }
    }

    /// Keeps what a breaker is, if it replaces what is known.
    pub fn keep_breaker(&mut self, record: &Record, now: Timestamp) {
        if record.replaces(self.breakers.get(&record.service_name), now) {
            self.breakers.insert(record.service_name.clone(), record.clone());
        }
    }

    /// The letter that holds a session.
    #[must_use]
    pub fn holder(&self, lane: Lane) -> Option<Holder> {
        self.held.get(&lane).copied()
    }

    /// Takes a delivery that has not ended to another queue, with a history of its own; gives those that may
    /// start: the next of the session it has left, and itself.
    pub fn redirect(
        &mut self,
        seq: Seq,
        to: &Arc<QueueName>,
        lane: Option<Lane>,
        now: Timestamp,
    ) -> (Option<Waiting>, Option<Waiting>) {
        let left = self.move_to(seq, Some(to), lane, now, &History::new());
        self.leave_replay(seq, now);
        (left.and_then(|lane| self.move_lane_on(lane, now)), self.if_head(seq))
    }

    /// Puts a delivery into a session; gives the session that it has left.
    fn move_to(
        &mut self,
        seq: Seq,
        to: Option<&Arc<QueueName>>,
        lane: Option<Lane>,
        now: Timestamp,
        history: &History,
    ) -> Option<Lane> {
        self.unlist(seq);
        let state = self.state_in(lane, self.get(seq).turn);
        let place = to.map(|to| self.place(to));
        let row = self.get_mut(seq);
        let left = std::mem::replace(&mut row.lane, lane).filter(|before| lane != Some(*before));
        row.place = place.unwrap_or(row.place);
        row.state = state;
        row.waiting.sequence = lane.map(|_| row.turn);
        row.waiting.history = history.clone();
        row.waiting.book = None;
        row.waiting.start_recorded = false;
        row.waiting.written_at = now;
        if let Some(to) = to {
            row.waiting.queue = Arc::clone(to);
        }
        self.list(seq);
        left
    }
}

impl<X> Row<X> {
    /// Its session, if it has a place in it still.
    fn open_lane(&self) -> Option<Lane> {
        self.lane.filter(|_| self.state.is_open() || self.state.holds())
    }
}
