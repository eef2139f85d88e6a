//! The store of one process that may go down at any moment: what is in here is durable, what is still with the
//! writer is not.
//!
//! [`Model`] keeps deliveries, letters and replays. Around it stand what a run of the model needs beside that,
//! the checker, which learns of all that became durable, and the sabotage of stores.

mod letters;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::letters::Chosen;
use super::checker::Checker;
use super::plan::Act;
use crate::engine::model_tests::sabotage::Sabotage;
use crate::engine::{
    Absences, DeadLetterInfo, LoadRequest, LoadedPage, NextState, OperatorCommand, PendingDelivery,
    QueueName, Settlement, SettlementResult,
};
use crate::event::{Event, idempotency};
use crate::hash::stable_64;
use crate::ids::{Seq, ServiceName};
use crate::letters::replay::{ReplayId, ReplayJob, ReplayState};
use crate::limits;
use crate::policy::breaker::BreakerRecord;
pub(super) use crate::store_model::Lane;
use crate::store_model::{Model, ModelRow, NewRow, RowState};
use crate::time::Timestamp;

/// All that is durable.
#[derive(Debug, Default)]
pub(super) struct Store {
    model: Model<()>,
    /// By the id of the event: the places of its deliveries.
    events: BTreeMap<String, Vec<Seq>>,
    /// What each replay sends.
    chosen: BTreeMap<ReplayId, Chosen>,
    /// The most that may wait behind a dead letter that holds its session.
    behind_max: u64,
    sabotage: Option<Sabotage>,
    /// The place of the book that was read last.
    pub book: usize,
    crashes: Vec<(Timestamp, Seq)>,
    running: Running,
    /// The latest time that was written; the clock of the next run does not begin before it.
    pub last_written_at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Running {
    #[default]
    No,
    Yes,
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
    Dead(&'a DeadLetterInfo),
}

/// What there is to go on with.
#[derive(Debug)]
pub(super) struct Recovered {
    pub queues: Vec<QueueName>,
    pub paused: BTreeMap<ServiceName, Timestamp>,
    pub absences: Absences,
    pub breakers: Vec<BreakerRecord>,
    pub replays: Vec<ReplayJob>,
    pub suspects_until: Option<Seq>,
}

impl Store {
    /// An empty one.
    pub(super) fn new(behind_max: u64, sabotage: Option<Sabotage>) -> Self {
        Self { behind_max, sabotage, ..Self::default() }
    }

    /// Begins a run, and counts the one before as crashed if it did not end.
    pub(super) fn recover(&mut self, now: Timestamp) -> Recovered {
        if self.running == Running::Yes {
            self.crashes.push((now, self.model.last()));
        }
        self.running = Running::Yes;
        if self.last_written_at > Timestamp::EPOCH {
            self.model.absences.add(self.last_written_at, now);
        }
        self.written(now);
        let queues: BTreeSet<&Arc<QueueName>> =
            self.model.queues().filter(|(_, open)| *open > 0).map(|(name, _)| name).collect();
        Recovered {
            queues: queues.into_iter().map(|name| (**name).clone()).collect(),
            paused: self.model.paused.clone(),
            absences: self.model.absences.clone(),
            breakers: self.model.breakers.values().cloned().collect(),
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
    ) -> Vec<PendingDelivery> {
        let mut may_start = Vec::new();
        if self.events.contains_key(event.id.as_str()) {
            return may_start;
        }
        self.model.skip_place();
        let mut places = Vec::new();
        for Addressee { queue, lane } in to {
            let lane = lane.as_ref().map(|session| lane_of(queue, session));
            let is_full = lane.is_some_and(|lane| {
                self.model.holder(lane).is_some() && self.model.behind(lane) >= self.behind_max
            });
            let new = self.new_row(event, queue, lane);
            let id = new.id;
            places.push(id.seq());
            checker.accepted(id, queue, event, lane, now);
            if is_full {
                checker.overflowed(id, now);
                self.model.add_dead(new, &letters::overflow(queue), now);
            } else {
                may_start.extend(self.model.add(new, now));
            }
        }
        self.events.insert(event.id.as_str().to_owned(), places);
        may_start
    }

    /// A delivery that has the next place.
    fn new_row(&self, event: &Arc<Event>, queue: &Arc<QueueName>, lane: Option<Lane>) -> NewRow<()> {
        let QueueName { service, channel } = &**queue;
        let seq = self.model.last().next();
        let id = idempotency::delivery_id(seq, event.dedup_key(), service, channel.as_ref());
        NewRow { id, queue: Arc::clone(queue), event: Arc::clone(event), lane, extra: () }
    }

    /// Writes what became of a delivery; hands back who comes next in its session.
    pub(super) fn settle(
        &mut self,
        settlement: &Settlement,
        checker: &mut Checker,
    ) -> (SettlementResult, Option<Box<PendingDelivery>>) {
        let (id, at) = (settlement.delivery, settlement.at);
        let replaying = self.model.row(id.seq()).and_then(|row| row.waiting.replaying);
        let replay = replaying.map(|replaying| (replaying.replay, self.replay_state(replaying.replay)));
        let settled = self.model.settle(settlement, at);
        if settled.fate == SettlementResult::Stale {
            return (SettlementResult::Stale, None);
        }
        checker.settled(id, settlement.attempts);
        match &settlement.next {
            NextState::Ready | NextState::Starting | NextState::Due { .. } => {}
            NextState::Delivered => checker.ended_for_good(id, Outcome::Delivered, at),
            NextState::Dead(info) => checker.ended_for_good(id, Outcome::Dead(info), at),
        }
        if let Some((replay, before)) = replay {
            match self.replay_state(replay) {
                after if after == before => {}
                ReplayState::Done => checker.replay_done(replay),
                _ => checker.replay_stopped(replay, &settlement.next),
            }
        }
        (SettlementResult::Written, settled.promoted)
    }

    fn replay_state(&self, id: ReplayId) -> ReplayState {
        self.model.replays()[&id].job.state
    }

    /// Writes down what people want.
    pub(super) fn act(&mut self, act: &Act, now: Timestamp) {
        match act {
            Act::Tell(OperatorCommand::Pause(service)) => {
                self.model.paused.entry(service.clone()).or_insert(now);
            }
            Act::Tell(OperatorCommand::Resume(service)) => {
                self.model.paused.remove(service);
            }
            Act::Tell(OperatorCommand::Trip(_) | OperatorCommand::Reset(_)) => {}
            Act::Read(book) => self.book = *book,
            Act::Letters(_) => unreachable!("it has become an order"),
        }
    }

    /// What waited for a rule may start.
    pub(super) fn release(&mut self, queue: &Arc<QueueName>) {
        self.model.release(queue);
    }

    /// Keeps what a breaker is, if that is news.
    pub(super) fn keep(&mut self, record: &BreakerRecord, now: Timestamp) {
        self.model.keep_breaker(record, now);
    }

    /// Nothing could be written since then.
    pub(super) fn was_away(&mut self, from: Timestamp, now: Timestamp) {
        self.model.absences.add(from, now);
    }

    /// Looks for what may start.
    pub(super) fn load(&self, load: &LoadRequest) -> LoadedPage {
        self.model.load(load)
    }

    /// How many deliveries an event has; none if it is not there.
    pub(super) fn deliveries_of(&self, event_id: &str) -> Option<usize> {
        self.events.get(event_id).map(Vec::len)
    }

    /// Whether nothing moves any more but by people: what has not ended waits behind a dead letter, and no
    /// replay has anything to do.
    pub(super) fn is_settled(&self) -> bool {
        self.stuck().next().is_none()
            && !self.model.replays().values().any(|replay| is_unfinished(&replay.job))
    }

    /// What has not ended and does not wait behind a dead letter.
    fn stuck(&self) -> impl Iterator<Item = &ModelRow<()>> {
        let is_held = |row: &ModelRow<()>| {
            let holder = row.lane.and_then(|lane| self.model.holder(lane));
            let holder = holder.and_then(|holder| self.model.row(holder.letter));
            row.state == RowState::Behind && holder.is_some_and(|holder| holder.state.holds())
        };
        self.model.rows().filter(move |row| row.state.is_open() && !is_held(row))
    }

    /// What has not ended and should have, in words.
    pub(super) fn show_open(&self) -> Vec<String> {
        let open = self.stuck().map(|row| {
            let PendingDelivery { id, queue, attempts, .. } = &row.waiting;
            format!("{id} of {queue} after {attempts} attempts: {:?}", row.state)
        });
        let jobs = self.model.replays().values().map(|replay| &replay.job);
        open.chain(jobs.filter(|job| is_unfinished(job)).map(|job| format!("{job:?}"))).collect()
    }
}

fn lane_of(queue: &QueueName, session: &str) -> Lane {
    Lane(stable_64(format!("{queue}\n{session}").as_bytes(), 0))
}

/// Whether a replay should go on by itself, and has nothing under way.
const fn is_unfinished(job: &ReplayJob) -> bool {
    match job.state {
        ReplayState::Gathering => true,
        ReplayState::Running => job.tally.in_flight() == 0,
        ReplayState::Paused | ReplayState::Stopped | ReplayState::Cancelled | ReplayState::Done => false,
    }
}
