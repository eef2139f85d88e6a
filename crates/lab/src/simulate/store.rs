//! What one node of a simulation has stored: deliveries that have not ended, their sessions, and what a restart
//! needs. Everything that is written is durable at once.
//!
//! Invariant: what has ended is gone, so memory follows what waits and not what has passed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::layers::Taken;
use redrive_core::engine::{
    Absences, Fate, Followers, Load, Next, Page, QueueName, Settlement, Waiting, Wanted,
};
use redrive_core::event::Event;
use redrive_core::hash::Map;
use redrive_core::ids::{DeliveryId, DependencyName, Seq, ServiceName};
use redrive_core::policy::breaker::Record;
use redrive_core::policy::decide::History;
use redrive_core::time::Timestamp;

/// All that is durable on one node.
#[derive(Debug)]
pub(super) struct Store {
    last: u64,
    rows: Map<Seq, Row>,
    queues: Vec<Index>,
    places: Map<Arc<QueueName>, usize>,
    /// Those of a session that have not ended, the head first.
    lanes: Map<Lane, VecDeque<Seq>>,
    pub paused: BTreeMap<ServiceName, Timestamp>,
    pub breakers: BTreeMap<DependencyName, Record>,
    pub absences: Absences,
}

/// A session of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lane {
    pub queue: usize,
    pub session: u32,
}

/// A delivery to be stored.
#[derive(Clone, Debug)]
pub(super) struct New {
    pub queue: usize,
    pub dependency: usize,
    pub session: Option<u32>,
    pub event: Arc<Event>,
    /// Tells what is delivered from all else, whatever book it is delivered by.
    pub content: u64,
    pub sent_at: Timestamp,
    pub is_poison: bool,
}

/// A delivery that has not ended.
#[derive(Debug)]
pub(super) struct Row {
    pub lane: Option<Lane>,
    pub queue: usize,
    pub dependency: usize,
    pub sent_at: Timestamp,
    pub is_poison: bool,
    /// How often it was called for, whether or not somebody heard the end of it.
    pub calls: u32,
    /// How often it took effect at its target.
    pub taken: u32,
    /// The same for a target that calls others: that may be after the row is gone.
    pub taken_within: Option<Taken>,
    state: State,
    waiting: Waiting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Due(Timestamp),
    Behind,
}

/// Which of a queue may start, and when.
#[derive(Debug)]
struct Index {
    name: Arc<QueueName>,
    ready: BTreeSet<Seq>,
    due: BTreeSet<(Timestamp, Seq)>,
}

/// What became of a settlement.
#[derive(Debug)]
pub(super) struct Settled {
    pub fate: Fate,
    /// The next of its session.
    pub promoted: Option<Box<Waiting>>,
    /// The delivery, if it has ended.
    pub ended: Option<Row>,
}

impl Store {
    pub(super) fn new(queues: &[Arc<QueueName>]) -> Self {
        let index = |name: &Arc<QueueName>| Index {
            name: Arc::clone(name),
            ready: BTreeSet::new(),
            due: BTreeSet::new(),
        };
        Self {
            last: 0,
            rows: Map::default(),
            queues: queues.iter().map(index).collect(),
            places: queues.iter().enumerate().map(|(place, name)| (Arc::clone(name), place)).collect(),
            lanes: Map::default(),
            paused: BTreeMap::new(),
            breakers: BTreeMap::new(),
            absences: Absences::new(),
        }
    }

    /// Takes a delivery; hands it back if it may start.
    pub(super) fn accept(&mut self, new: New, now: Timestamp) -> Option<Waiting> {
        self.last += 1;
        let seq = Seq::new(self.last);
        let New { queue, dependency, session, event, content, sent_at, is_poison } = new;
        let lane = session.map(|session| Lane { queue, session });
        let waiting = Waiting {
            id: DeliveryId::new(seq, content),
            queue: Arc::clone(&self.queues[queue].name),
            event,
            sequence: lane.map(|_| seq),
            replaying: None,
            attempts: 0,
            due_at: None,
            history: History::new(),
            book: None,
            written_at: now,
            start_recorded: false,
            damaged: false,
        };
        let members = lane.map(|lane| self.lanes.entry(lane).or_default());
        let is_head = members.is_none_or(|members| {
            members.push_back(seq);
            members.len() == 1
        });
        let state = if is_head { State::Ready } else { State::Behind };
        let may_start = is_head.then(|| waiting.clone());
        if is_head {
            self.queues[queue].ready.insert(seq);
        }
        let row = Row {
            lane,
            queue,
            dependency,
            sent_at,
            is_poison,
            calls: 0,
            taken: 0,
            taken_within: None,
            state,
            waiting,
        };
        self.rows.insert(seq, row);
        may_start
    }

    /// The delivery at that place.
    pub(super) fn row(&mut self, id: DeliveryId) -> &mut Row {
        self.rows.get_mut(&id.seq()).expect("nobody calls for what has ended")
    }

    /// How often each of those that have not ended was called for.
    pub(super) fn calls_of_open(&self) -> impl Iterator<Item = u32> {
        self.rows.values().map(|row| row.calls)
    }

    /// How many stand behind a dead one that holds their session.
    pub(super) fn behind_dead(&self) -> u64 {
        let held = self
            .lanes
            .values()
            .filter(|members| members.front().is_some_and(|head| !self.rows.contains_key(head)));
        held.map(|members| members.len() as u64 - 1).sum()
    }

    /// The place of a queue.
    pub(super) fn place(&self, queue: &Arc<QueueName>) -> usize {
        self.places[queue]
    }

    /// Queues in which something waits.
    pub(super) fn open_queues(&self) -> Vec<QueueName> {
        let open = self.queues.iter().filter(|queue| !queue.ready.is_empty() || !queue.due.is_empty());
        open.map(|queue| (*queue.name).clone()).collect()
    }

    /// Writes what became of a delivery.
    pub(super) fn settle(&mut self, settlement: &Settlement) -> Settled {
        let seq = settlement.delivery.seq();
        let stale = Settled { fate: Fate::Stale, promoted: None, ended: None };
        let Some(row) = self.rows.get_mut(&seq) else { return stale };
        if row.state == State::Behind || row.waiting.attempts != settlement.attempts_before {
            return stale;
        }
        row.waiting.attempts = settlement.attempts;
        row.waiting.history = settlement.history.clone();
        row.waiting.book = Some(settlement.book);
        row.waiting.written_at = settlement.at;
        row.waiting.start_recorded = settlement.next == Next::Starting;
        if let Some(service) = &settlement.pause {
            self.paused.entry(service.clone()).or_insert(settlement.at);
        }
        let (promoted, ended) = match &settlement.next {
            Next::Ready | Next::Starting => {
                self.put(seq, State::Ready);
                (None, None)
            }
            Next::Due { at } => {
                self.put(seq, State::Due(*at));
                (None, None)
            }
            Next::Delivered => self.end(seq, Followers::GoOn),
            Next::Dead(death) => self.end(seq, death.followers),
        };
        Settled { fate: Fate::Written, promoted, ended }
    }

    fn put(&mut self, seq: Seq, state: State) {
        let row = self.rows.get_mut(&seq).expect("it has not ended");
        let before = std::mem::replace(&mut row.state, state);
        row.waiting.due_at = match state {
            State::Due(at) => Some(at),
            State::Ready | State::Behind => None,
        };
        let index = &mut self.queues[row.queue];
        index.remove(seq, before);
        match state {
            State::Ready => {
                index.ready.insert(seq);
            }
            State::Due(at) => {
                index.due.insert((at, seq));
            }
            State::Behind => {}
        }
    }

    /// It is over; who stands behind it in its session may start, unless a dead one holds it.
    fn end(&mut self, seq: Seq, followers: Followers) -> (Option<Box<Waiting>>, Option<Row>) {
        let row = self.rows.remove(&seq).expect("it has not ended");
        self.queues[row.queue].remove(seq, row.state);
        let mut next = None;
        if let Some(lane) = row.lane {
            // The head of a held session stays in its lane for ever: nobody replays it here.
            if followers == Followers::GoOn
                && let Some(members) = self.lanes.get_mut(&lane)
            {
                let head = members.pop_front();
                assert_eq!(head, Some(seq), "only the head of a session ends");
                next = members.front().copied();
                if members.is_empty() {
                    self.lanes.remove(&lane);
                }
            }
        }
        let promoted = next.map(|next| {
            self.put(next, State::Ready);
            Box::new(self.rows[&next].waiting.clone())
        });
        (promoted, Some(row))
    }

    /// Looks for deliveries that may start.
    pub(super) fn load(&self, load: &Load) -> Page {
        let index = &self.queues[self.place(&load.queue)];
        let rows_max = load.rows_max as usize;
        let mut rows = Vec::new();
        let (mut more, mut next_due_at) = (false, None);
        let mut take = |seq: &Seq| {
            // Payloads are empty here, so bytes bound nothing.
            more = rows.len() == rows_max;
            if !more {
                rows.push(self.rows[seq].waiting.clone());
            }
            !more
        };
        match load.wanted {
            Wanted::Ready { after } => {
                let range = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
                let _ = index.ready.range(range).all(&mut take);
            }
            Wanted::Due { until } => {
                let _ = index.due.iter().take_while(|(at, _)| *at <= until).all(|(_, seq)| take(seq));
                next_due_at = index
                    .due
                    .range((until + std::time::Duration::from_nanos(1), Seq::NONE)..)
                    .next()
                    .map(|(at, _)| *at);
            }
        }
        Page { queue: Arc::clone(&load.queue), wanted: load.wanted, rows, more, next_due_at }
    }
}

impl Index {
    fn remove(&mut self, seq: Seq, state: State) {
        match state {
            State::Ready => {
                self.ready.remove(&seq);
            }
            State::Due(at) => {
                self.due.remove(&(at, seq));
            }
            State::Behind => {}
        }
    }
}
