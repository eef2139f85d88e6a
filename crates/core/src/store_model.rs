//! A store in memory: the simplest implementation of deliveries, sessions, dead letters and replays. The
//! engine's model tests, the simulator and the contract tests of the real stores use it; what the simulator
//! does not need is compiled for tests only.
//!
//! It has no rule book, deduplication or retention: callers decide which delivery is added, which letters a
//! replay claims and what is forgotten. `X` is the caller's own data for each delivery.
//!
//! Invariant: of each session with anything in it exactly one delivery may start; or none may, the first is a
//! dead letter that holds the rest, and [`Model::holder`] returns it.

mod letters;
#[cfg(any(test, feature = "testing"))]
mod replays;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

pub use self::letters::ModelLetter;
#[cfg(any(test, feature = "testing"))]
pub use self::replays::ModelReplay;
use crate::engine::{
    Absences, DeadLetterInfo, LoadRequest, LoadScope, LoadedPage, NextState, PendingDelivery, QueueName,
    SessionFollowers, Settlement, SettlementResult,
};
use crate::event::Event;
use crate::hash::Map;
use crate::ids::{DeliveryId, DependencyName, Seq, ServiceName};
use crate::letters::LetterNumber;
#[cfg(any(test, feature = "testing"))]
use crate::letters::replay::ReplayId;
use crate::policy::breaker::BreakerRecord;
use crate::policy::decide::History;
use crate::time::Timestamp;

#[derive(Clone, Debug)]
pub struct Model<X> {
    last: Seq,
    rows: Map<Seq, ModelRow<X>>,
    queues: Vec<ReadyIndex>,
    places: Map<Arc<QueueName>, usize>,
    lanes: Map<Lane, BTreeSet<(Seq, Seq)>>,
    held: BTreeMap<Lane, Holder>,
    letters: BTreeMap<LetterNumber, ModelLetter>,
    last_letter: LetterNumber,
    #[cfg(any(test, feature = "testing"))]
    replays: BTreeMap<ReplayId, ModelReplay>,
    pub paused: BTreeMap<ServiceName, Timestamp>,
    pub breakers: BTreeMap<DependencyName, BreakerRecord>,
    pub absences: Absences,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u64);

#[derive(Clone, Debug)]
pub struct NewRow<X> {
    /// Its seq is the one after [`Model::last`].
    pub id: DeliveryId,
    pub queue: Arc<QueueName>,
    pub event: Arc<Event>,
    pub lane: Option<Lane>,
    pub extra: X,
}

#[derive(Clone, Debug)]
pub struct ModelRow<X> {
    pub waiting: PendingDelivery,
    pub state: RowState,
    pub lane: Option<Lane>,
    pub turn: Seq,
    pub replays: u32,
    pub letter: Option<LetterNumber>,
    pub extra: X,
    place: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowState {
    Ready,
    Due(Timestamp),
    /// Another of its session is first.
    Behind,
    Dead(Box<DeadLetterInfo>),
    Delivered,
    Closed,
}

/// The letter that holds a session, dead or being replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    pub letter: Seq,
    pub since: Timestamp,
}

#[derive(Debug)]
pub struct SettleResult {
    pub fate: SettlementResult,
    pub promoted: Option<Box<PendingDelivery>>,
}

#[derive(Clone, Debug)]
struct ReadyIndex {
    name: Arc<QueueName>,
    ready: BTreeSet<Seq>,
    due: BTreeSet<(Timestamp, Seq)>,
    open: u64,
}

impl RowState {
    #[must_use]
    pub const fn is_head(&self) -> bool {
        matches!(self, Self::Ready | Self::Due(_))
    }

    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Ready | Self::Due(_) | Self::Behind)
    }

    /// Whether it is dead and those behind it in its session wait for it.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self, Self::Dead(info) if info.followers == SessionFollowers::Wait)
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
    #[must_use]
    pub const fn last(&self) -> Seq {
        self.last
    }

    pub fn add(&mut self, new: NewRow<X>, now: Timestamp) -> Option<PendingDelivery> {
        let turn = new.id.seq();
        self.insert(new, turn, now)
    }

    fn insert(&mut self, new: NewRow<X>, turn: Seq, now: Timestamp) -> Option<PendingDelivery> {
        let NewRow { id, queue, event, lane, extra } = new;
        let seq = id.seq();
        assert_eq!(seq, self.last.next(), "places are given without gaps");
        self.last = seq;
        let state = self.state_in(lane, turn);
        let place = self.place(&queue);
        let waiting = PendingDelivery {
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
        let row = ModelRow { waiting, state, lane, turn, replays: 0, letter: None, extra, place };
        self.rows.insert(seq, row);
        self.list(seq);
        self.if_head(seq)
    }

    #[must_use]
    pub fn row(&self, seq: Seq) -> Option<&ModelRow<X>> {
        self.rows.get(&seq)
    }

    pub fn extra(&mut self, seq: Seq) -> &mut X {
        &mut self.get_mut(seq).extra
    }

    pub fn rows(&self) -> impl Iterator<Item = &ModelRow<X>> {
        self.rows.values()
    }

    pub fn forget(&mut self, seq: Seq) -> Option<ModelRow<X>> {
        let row = self.rows.remove(&seq)?;
        assert!(!row.state.is_open() && !row.state.holds(), "what waits, or is waited for, is not forgotten");
        row.letter.and_then(|number| self.letters.remove(&number));
        Some(row)
    }

    /// In the order in which they were first seen, with the number of open deliveries.
    pub fn queues(&self) -> impl Iterator<Item = (&Arc<QueueName>, u64)> {
        self.queues.iter().map(|queue| (&queue.name, queue.open))
    }

    pub fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> SettleResult {
        let stale = SettleResult { fate: SettlementResult::Stale, promoted: None };
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
        waiting.start_recorded = settlement.next == NextState::Starting;
        if let Some(service) = &settlement.pause {
            self.paused.entry(service.clone()).or_insert(settlement.at);
        }
        #[cfg(any(test, feature = "testing"))]
        if matches!(settlement.next, NextState::Delivered | NextState::Dead(_)) {
            self.answer_replay(seq, settlement, now);
        }
        let promoted = match &settlement.next {
            NextState::Ready | NextState::Starting => {
                self.put(seq, RowState::Ready);
                None
            }
            NextState::Due { at } => {
                self.put(seq, RowState::Due(*at));
                None
            }
            NextState::Delivered => {
                self.put(seq, RowState::Delivered);
                self.move_on(seq, now)
            }
            NextState::Dead(info) => {
                self.dead_letter(seq, info, settlement.at);
                self.move_on(seq, now)
            }
        };
        SettleResult { fate: SettlementResult::Written, promoted: promoted.map(Box::new) }
    }

    #[must_use]
    pub fn load(&self, load: &LoadRequest) -> LoadedPage {
        let LoadRequest { queue, wanted, rows_max, bytes_max } = load;
        let mut page = LoadedPage {
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
            LoadScope::Ready { after } => {
                let mut found = index.ready.range((Bound::Excluded(after), Bound::Unbounded));
                found.find(|seq| take(**seq));
            }
            LoadScope::Due { until } => {
                let later = (Bound::Excluded((until, Seq::new(u64::MAX))), Bound::Unbounded);
                let next = index.due.range(later).next().map(|(at, _)| *at);
                index.due.iter().take_while(|(at, _)| *at <= until).find(|(_, seq)| take(*seq));
                page.next_due_at = next.filter(|at| *at != Timestamp::NEVER);
            }
        }
        page
    }

    pub fn held(&self) -> impl Iterator<Item = (Lane, Holder)> {
        self.held.iter().map(|(lane, holder)| (*lane, *holder))
    }

    #[must_use]
    pub fn behind(&self, lane: Lane) -> u64 {
        self.lane(lane).filter(|(_, seq)| self.get(*seq).state == RowState::Behind).count() as u64
    }

    pub fn put(&mut self, seq: Seq, state: RowState) {
        self.unlist(seq);
        self.get_mut(seq).state = state;
        self.list(seq);
    }

    /// Lets the first of a delivery's session start if none of it may; if that one is a dead letter, it holds
    /// the rest.
    fn move_on(&mut self, seq: Seq, now: Timestamp) -> Option<PendingDelivery> {
        let lane = self.get(seq).lane?;
        self.move_lane_on(lane, now)
    }

    fn move_lane_on(&mut self, lane: Lane, now: Timestamp) -> Option<PendingDelivery> {
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
        self.put(first, RowState::Ready);
        self.if_head(first)
    }

    /// The state of a delivery that enters a session in that turn: it waits for one that may start, and for
    /// those before it.
    fn state_in(&self, lane: Option<Lane>, turn: Seq) -> RowState {
        let mut others = lane.into_iter().flat_map(|lane| self.lane(lane));
        let waits = others.any(|(before, seq)| before < turn || self.get(seq).state.is_head());
        if waits { RowState::Behind } else { RowState::Ready }
    }

    fn lane(&self, lane: Lane) -> impl Iterator<Item = (Seq, Seq)> {
        self.lanes.get(&lane).into_iter().flatten().copied()
    }

    fn if_head(&self, seq: Seq) -> Option<PendingDelivery> {
        let row = self.get(seq);
        row.state.is_head().then(|| row.waiting.clone())
    }

    fn get(&self, seq: Seq) -> &ModelRow<X> {
        &self.rows[&seq]
    }

    fn get_mut(&mut self, seq: Seq) -> &mut ModelRow<X> {
        self.rows.get_mut(&seq).expect("a delivery that was seen is there")
    }

    fn place(&mut self, queue: &Arc<QueueName>) -> usize {
        if let Some(place) = self.places.get(queue) {
            return *place;
        }
        let name = Arc::clone(queue);
        self.queues.push(ReadyIndex { name, ready: BTreeSet::new(), due: BTreeSet::new(), open: 0 });
        self.places.insert(Arc::clone(queue), self.queues.len() - 1);
        self.queues.len() - 1
    }

    fn unlist(&mut self, seq: Seq) {
        let row = &self.rows[&seq];
        let index = &mut self.queues[row.place];
        index.open -= u64::from(row.state.is_open());
        match row.state {
            RowState::Ready => index.ready.remove(&seq),
            RowState::Due(at) => index.due.remove(&(at, seq)),
            RowState::Behind | RowState::Dead(_) | RowState::Delivered | RowState::Closed => false,
        };
        if let Some(lane) = row.open_lane() {
            let members = self.lanes.get_mut(&lane).expect("it has its place there");
            members.remove(&(row.turn, seq));
            if members.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }

    fn list(&mut self, seq: Seq) {
        let row = self.rows.get_mut(&seq).expect("a delivery that was seen is there");
        let index = &mut self.queues[row.place];
        index.open += u64::from(row.state.is_open());
        row.waiting.due_at = None;
        match row.state {
            RowState::Ready => {
                index.ready.insert(seq);
            }
            RowState::Due(at) => {
                row.waiting.due_at = Some(at);
                index.due.insert((at, seq));
            }
            RowState::Behind | RowState::Dead(_) | RowState::Delivered | RowState::Closed => {}
        }
        if let Some(lane) = row.open_lane() {
            self.lanes.entry(lane).or_default().insert((row.turn, seq));
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl<X> Model<X> {
    pub fn skip_place(&mut self) -> Seq {
        self.last = self.last.next();
        self.last
    }

    pub fn release(&mut self, queue: &Arc<QueueName>) {
        let Some(place) = self.places.get(queue) else { return };
        let parked = self.queues[*place].due.range((Timestamp::NEVER, Seq::NONE)..);
        for seq in parked.map(|(_, seq)| *seq).collect::<Vec<_>>() {
            self.put(seq, RowState::Ready);
        }
    }

    pub fn keep_breaker(&mut self, record: &BreakerRecord, now: Timestamp) {
        if record.replaces(self.breakers.get(&record.service_name), now) {
            self.breakers.insert(record.service_name.clone(), record.clone());
        }
    }

    #[must_use]
    pub fn holder(&self, lane: Lane) -> Option<Holder> {
        self.held.get(&lane).copied()
    }

    /// Moves an open delivery to another queue, with an empty history; returns those that may start: the next
    /// of the session it has left, and itself.
    pub fn redirect(
        &mut self,
        seq: Seq,
        to: &Arc<QueueName>,
        lane: Option<Lane>,
        now: Timestamp,
    ) -> (Option<PendingDelivery>, Option<PendingDelivery>) {
        let left = self.move_to(seq, Some(to), lane, now, &History::new());
        self.leave_replay(seq, now);
        (left.and_then(|lane| self.move_lane_on(lane, now)), self.if_head(seq))
    }

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

impl<X> ModelRow<X> {
    fn open_lane(&self) -> Option<Lane> {
        self.lane.filter(|_| self.state.is_open() || self.state.holds())
    }
}
