//! A store in memory, for one process that may go down at any moment: what is in here is durable, what is
//! still with the writer is not.
//!
//! It keeps the contract of the real ones: batches whole or not at all, settlements only on the number of
//! attempts that they were made for, one head for each session. Dead letters stay as rows, with what people
//! do with them in `letters.rs` and how replays go on in `replays.rs`.

mod letters;
mod replays;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::letters::Letter;
use self::replays::Replay;
use super::checker::Checker;
use super::plan::Act;
use crate::engine::simulation::sabotage::Sabotage;
use crate::engine::{
    Absences, Command, Death, Fate, Followers, Load, Next, Page, QueueName, Settlement, Waiting, Wanted,
};
use crate::event::Event;
use crate::event::idempotency;
use crate::ids::{DeliveryId, DependencyName, Seq, ServiceName};
use crate::letters::replay::{ReplayId, ReplayJob, Replaying};
use crate::limits;
use crate::policy::breaker::Record;
use crate::policy::decide::History;
use crate::time::Timestamp;

/// All that is durable.
#[derive(Debug, Default)]
pub(super) struct Store {
    last: u64,
    /// By the id of the event: the places of its deliveries.
    events: BTreeMap<String, Vec<Seq>>,
    rows: BTreeMap<Seq, Row>,
    ready: BTreeSet<(Arc<QueueName>, Seq)>,
    due: BTreeSet<(Arc<QueueName>, Timestamp, Seq)>,
    /// Deliveries that have not ended, and dead letters that keep their place, in order.
    lanes: BTreeMap<Lane, BTreeSet<(Seq, Seq)>>,
    /// Sessions that a dead letter holds, also while it is being replayed.
    held: BTreeMap<Lane, Seq>,
    open: BTreeMap<Arc<QueueName>, u64>,
    /// Dead letters by their number, which grows with the time of death.
    letters: BTreeMap<u64, Seq>,
    replays: BTreeMap<ReplayId, Replay>,
    last_letter: u64,
    /// The most that may wait behind a dead letter that holds its session.
    behind_max: usize,
    sabotage: Option<Sabotage>,
    pub paused: BTreeMap<ServiceName, Timestamp>,
    /// The place of the book that was read last.
    pub book: usize,
    absences: Absences,
    breakers: BTreeMap<DependencyName, Record>,
    crashes: Vec<(Timestamp, Seq)>,
    running: Running,
    /// The latest time that was written; the clock of the next run does not begin before it.
    pub last_written_at: Timestamp,
}

/// A session of a queue.
pub(super) type Lane = (Arc<QueueName>, String);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Running {
    #[default]
    No,
    Yes,
}

#[derive(Debug)]
struct Row {
    id: DeliveryId,
    queue: Arc<QueueName>,
    event: Arc<Event>,
    lane: Option<Lane>,
    /// Its place in the order of its session: its own, or that of the letter that it was made of.
    turn: Seq,
    state: State,
    attempts: u32,
    history: History,
    book: Option<u64>,
    written_at: Timestamp,
    start_recorded: bool,
    replaying: Option<Replaying>,
    replays: u32,
    letter: Option<Letter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Due(Timestamp),
    Behind,
    /// Dead, and it keeps its place in its session.
    Holding,
    Dead,
    /// Delivered, skipped, purged or superseded.
    Ended,
}

impl State {
    const fn is_open(self) -> bool {
        match self {
            Self::Ready | Self::Due(_) | Self::Behind => true,
            Self::Holding | Self::Dead | Self::Ended => false,
        }
    }
}

/// One who wants an event.
#[derive(Clone, Debug)]
pub(super) struct Addressee {
    pub queue: Arc<QueueName>,
    pub lane: Option<String>,
}

/// What an ended delivery came to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome<'a> {
    Delivered,
    Dead(&'a Death),
}

/// What there is to go on with.
#[derive(Debug)]
pub(super) struct Recovered {
    pub queues: Vec<QueueName>,
    pub paused: BTreeMap<ServiceName, Timestamp>,
    pub absences: Absences,
    pub breakers: Vec<Record>,
    pub replays: Vec<ReplayJob>,
    pub suspects_until: Option<Seq>,
}

impl Store {
    /// An empty one.
    pub(super) fn new(behind_max: usize, sabotage: Option<Sabotage>) -> Self {
        Self { behind_max, sabotage, ..Self::default() }
    }

    /// Begins a run, and counts the one before as crashed if it did not end.
    pub(super) fn recover(&mut self, now: Timestamp) -> Recovered {
        if self.running == Running::Yes {
            self.crashes.push((now, Seq::new(self.last)));
        }
        self.running = Running::Yes;
        if self.last_written_at > Timestamp::EPOCH {
            self.absences.add(self.last_written_at, now);
        }
        self.written(now);
        Recovered {
            queues: self
                .open
                .iter()
                .filter(|(_, open)| **open > 0)
                .map(|(name, _)| (**name).clone())
                .collect(),
            paused: self.paused.clone(),
            absences: self.absences.clone(),
            breakers: self.breakers.values().cloned().collect(),
            replays: self.replays_to_go_on_with(),
            suspects_until: self.suspects(now),
        }
    }

    /// What was there at each of the last three crashes, if those were close together.
    fn suspects(&self, now: Timestamp) -> Option<Seq> {
        let first = self.crashes.len().checked_sub(limits::CRASHES_MAX)?;
        let (noticed_at, last) = self.crashes[first];
        (now.since(noticed_at) <= limits::CRASHES_WITHIN).then_some(last)
    }

    /// The run ends as it should.
    pub(super) fn close(&mut self, now: Timestamp) {
        self.running = Running::No;
        self.written(now);
    }

    /// Every batch is a sign of life.
    pub(super) fn written(&mut self, now: Timestamp) {
        self.last_written_at = self.last_written_at.max(now);
    }

    /// Takes an event; none if it came before.
    pub(super) fn accept(
        &mut self,
        event: &Arc<Event>,
        to: &[Addressee],
        now: Timestamp,
        checker: &mut Checker,
    ) -> Vec<Waiting> {
        let mut may_start = Vec::new();
        if self.events.contains_key(event.id.as_str()) {
            return may_start;
        }
        self.last += 1;
        let mut places = Vec::new();
        for addressee in to {
            let Addressee { queue, lane } = addressee;
            let lane = lane.clone().map(|session| (Arc::clone(queue), session));
            let full = lane
                .as_ref()
                .is_some_and(|lane| self.held.contains_key(lane) && self.behind(lane) >= self.behind_max);
            let seq = self.insert(event, queue, lane, None, now);
            places.push(seq);
            checker.accepted(self.rows[&seq].id, queue, event, self.rows[&seq].lane.clone(), now);
            if full {
                self.overflow(seq, now, checker);
            }
            may_start.extend(self.line_up(seq));
        }
        self.events.insert(event.id.as_str().to_owned(), places);
        may_start
    }

    /// Makes a delivery, which stands nowhere yet.
    fn insert(
        &mut self,
        event: &Arc<Event>,
        queue: &Arc<QueueName>,
        lane: Option<Lane>,
        turn: Option<Seq>,
        now: Timestamp,
    ) -> Seq {
        self.last += 1;
        let seq = Seq::new(self.last);
        let QueueName { service, channel } = &**queue;
        let id = idempotency::delivery_id(seq, event.dedup_key(), service, channel.as_ref());
        let row = Row {
            id,
            queue: Arc::clone(queue),
            event: Arc::clone(event),
            lane,
            turn: turn.unwrap_or(seq),
            state: State::Ended,
            attempts: 0,
            history: History::new(),
            book: None,
            written_at: now,
            start_recorded: false,
            replaying: None,
            replays: 0,
            letter: None,
        };
        self.rows.insert(seq, row);
        self.put(seq, State::Behind);
        seq
    }

    /// Takes its place in its session, and may start if nobody is before it there; a dead one holds it.
    fn line_up(&mut self, seq: Seq) -> Option<Waiting> {
        let row = &self.rows[&seq];
        let is_dead = row.state == State::Holding;
        if let Some(lane) = row.lane.clone() {
            let members = self.lanes.entry(lane.clone()).or_default();
            members.insert((row.turn, seq));
            if members.len() > 1 {
                return None;
            }
            if is_dead {
                self.held.insert(lane, seq);
            }
        }
        (!is_dead).then(|| {
            self.put(seq, State::Ready);
            self.waiting(seq)
        })
    }

    /// Writes what became of a delivery; hands back who comes next in its session.
    pub(super) fn settle(
        &mut self,
        settlement: &Settlement,
        checker: &mut Checker,
    ) -> (Fate, Option<Box<Waiting>>) {
        let seq = settlement.delivery.seq();
        let Some(row) = self.rows.get_mut(&seq) else { return (Fate::Stale, None) };
        let has_ended = !matches!(row.state, State::Ready | State::Due(_));
        if has_ended || row.id != settlement.delivery || row.attempts != settlement.attempts_before {
            return (Fate::Stale, None);
        }
        row.attempts = settlement.attempts;
        row.history = settlement.history.clone();
        row.book = Some(settlement.book);
        row.written_at = settlement.at;
        row.start_recorded = settlement.next == Next::Starting;
        if let Some(service) = &settlement.pause {
            self.paused.entry(service.clone()).or_insert(settlement.at);
        }
        checker.settled(settlement.delivery, settlement.attempts);
        match &settlement.next {
            Next::Ready | Next::Starting => {
                self.put(seq, State::Ready);
                (Fate::Written, None)
            }
            Next::Due { at } => {
                self.put(seq, State::Due(*at));
                (Fate::Written, None)
            }
            Next::Delivered => {
                checker.ended_for_good(settlement.delivery, Outcome::Delivered, settlement.at);
                self.settle_replay(seq, settlement, checker);
                self.put(seq, State::Ended);
                (Fate::Written, self.leave(seq).map(Box::new))
            }
            Next::Dead(death) => {
                checker.ended_for_good(settlement.delivery, Outcome::Dead(death), settlement.at);
                self.settle_replay(seq, settlement, checker);
                self.write_letter(seq, death, settlement.at);
                let row = &self.rows[&seq];
                if let (Followers::Wait, Some(lane)) = (death.followers, row.lane.clone()) {
                    self.put(seq, State::Holding);
                    self.held.insert(lane, seq);
                    return (Fate::Written, None);
                }
                self.put(seq, State::Dead);
                (Fate::Written, self.leave(seq).map(Box::new))
            }
        }
    }

    /// It stands in its session no more: if it stood at the head, hands back who does now.
    fn leave(&mut self, seq: Seq) -> Option<Waiting> {
        let row = &self.rows[&seq];
        let lane = row.lane.clone()?;
        let members = self.lanes.get_mut(&lane)?;
        if !members.remove(&(row.turn, seq)) {
            return None;
        }
        let has_head =
            members.iter().any(|(_, member)| matches!(self.rows[member].state, State::Ready | State::Due(_)));
        if has_head || self.held.get(&lane).is_some_and(|holder| *holder != seq) {
            return None;
        }
        let first = members.first().map(|(_, first)| *first);
        match first.map(|first| (first, self.rows[&first].state)) {
            Some((holder, State::Holding)) => {
                self.held.insert(lane, holder);
                None
            }
            Some((head, _)) => {
                self.held.remove(&lane);
                self.put(head, State::Ready);
                Some(self.waiting(head))
            }
            None => {
                self.held.remove(&lane);
                None
            }
        }
    }

    /// How many wait behind whoever holds the session.
    fn behind(&self, lane: &Lane) -> usize {
        let members = self.lanes.get(lane).into_iter().flatten();
        members.filter(|(_, seq)| self.rows[seq].state == State::Behind).count()
    }

    fn put(&mut self, seq: Seq, state: State) {
        let row = self.rows.get_mut(&seq).expect("whoever moves it has seen it");
        let queue = || Arc::clone(&row.queue);
        match row.state {
            State::Ready => self.ready.remove(&(queue(), seq)),
            State::Due(at) => self.due.remove(&(queue(), at, seq)),
            State::Behind | State::Holding | State::Dead | State::Ended => false,
        };
        match state {
            State::Ready => self.ready.insert((queue(), seq)),
            State::Due(at) => self.due.insert((queue(), at, seq)),
            State::Behind | State::Holding | State::Dead | State::Ended => false,
        };
        let open = self.open.entry(queue()).or_default();
        match (row.state.is_open(), state.is_open()) {
            (false, true) => *open += 1,
            (true, false) => *open -= 1,
            (true, true) | (false, false) => {}
        }
        row.state = state;
    }

    /// Writes down what people want.
    pub(super) fn act(&mut self, act: &Act, now: Timestamp) {
        match act {
            Act::Tell(Command::Pause(service)) => {
                self.paused.entry(service.clone()).or_insert(now);
            }
            Act::Tell(Command::Resume(service)) => {
                self.paused.remove(service);
            }
            Act::Tell(Command::Trip(_) | Command::Reset(_)) => {}
            Act::Read(book) => self.book = *book,
            Act::Letters(_) => unreachable!("it has become an order"),
        }
    }

    /// What waited for a rule may start.
    pub(super) fn release(&mut self, queue: &Arc<QueueName>) {
        let parked = self.due.range((Arc::clone(queue), Timestamp::NEVER, Seq::NONE)..);
        let parked: Vec<Seq> =
            parked.take_while(|(name, _, _)| name == queue).map(|(_, _, seq)| *seq).collect();
        for seq in parked {
            self.put(seq, State::Ready);
        }
    }

    /// Keeps what a breaker is, if that is news.
    pub(super) fn keep(&mut self, record: &Record, now: Timestamp) {
        if record.replaces(self.breakers.get(&record.service_name), now) {
            self.breakers.insert(record.service_name.clone(), record.clone());
        }
    }

    /// Nothing could be written since then.
    pub(super) fn was_away(&mut self, from: Timestamp, now: Timestamp) {
        self.absences.add(from, now);
    }

    /// Looks for what may start.
    pub(super) fn load(&self, load: &Load) -> Page {
        let Load { queue, wanted, rows_max, bytes_max } = load;
        let mut next_due_at = None;
        let found: Vec<Seq> = match *wanted {
            Wanted::Ready { after } => {
                let ours = self.ready.range((Arc::clone(queue), after.next())..);
                ours.take_while(|(name, _)| name == queue).map(|(_, seq)| *seq).collect()
            }
            Wanted::Due { until } => {
                let ours = self.due.range((Arc::clone(queue), Timestamp::EPOCH, Seq::NONE)..);
                let ours = ours.take_while(|(name, _, _)| name == queue);
                next_due_at =
                    ours.clone().map(|(_, at, _)| *at).find(|at| *at > until && *at < Timestamp::NEVER);
                ours.take_while(|(_, at, _)| *at <= until).map(|(_, _, seq)| *seq).collect()
            }
        };
        let mut rows: Vec<Waiting> = Vec::new();
        let (mut bytes, mut more) = (0, false);
        for seq in found {
            let row = self.waiting(seq);
            bytes += row.bytes();
            more = rows.len() == *rows_max as usize || !rows.is_empty() && bytes > *bytes_max;
            if more {
                break;
            }
            rows.push(row);
        }
        Page { queue: Arc::clone(queue), wanted: *wanted, rows, more, next_due_at }
    }

    fn waiting(&self, seq: Seq) -> Waiting {
        let row = &self.rows[&seq];
        Waiting {
            id: row.id,
            queue: Arc::clone(&row.queue),
            event: Arc::clone(&row.event),
            sequence: row.lane.as_ref().map(|_| row.turn),
            replaying: row.replaying,
            attempts: row.attempts,
            due_at: match row.state {
                State::Due(at) => Some(at),
                State::Ready | State::Behind | State::Holding | State::Dead | State::Ended => None,
            },
            history: row.history.clone(),
            book: row.book,
            written_at: row.written_at,
            start_recorded: row.start_recorded,
            damaged: false,
        }
    }

    /// How many deliveries an event has; none if it is not there.
    pub(super) fn deliveries_of(&self, event_id: &str) -> Option<usize> {
        self.events.get(event_id).map(Vec::len)
    }

    /// Whether nothing moves any more but by people: what has not ended waits behind a dead letter, and no
    /// replay has anything to do.
    pub(super) fn is_settled(&self) -> bool {
        let open: u64 = self.open.values().sum();
        let held = self.held.iter().filter(|(_, seq)| self.rows[seq].state == State::Holding);
        let behind: usize = held.map(|(lane, _)| self.behind(lane)).sum();
        open == behind as u64 && self.replays.values().all(|replay| !replay.is_unfinished())
    }

    /// What has not ended and should have, in words.
    pub(super) fn show_open(&self) -> Vec<String> {
        let is_held = |row: &Row| {
            let holder = row.lane.as_ref().and_then(|lane| self.held.get(lane));
            row.state == State::Behind
                && holder.is_some_and(|holder| self.rows[holder].state == State::Holding)
        };
        let open = self.rows.values().filter(|row| row.state.is_open() && !is_held(row));
        let open = open.map(|row| {
            format!("{} of {} after {} attempts: {:?}", row.id, row.queue, row.attempts, row.state)
        });
        let replays = self.replays.values().filter(|replay| replay.is_unfinished());
        open.chain(replays.map(|replay| format!("{:?}", replay.job))).collect()
    }
}
