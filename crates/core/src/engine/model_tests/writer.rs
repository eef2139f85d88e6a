//! The one who writes, as the live server has one: requests wait in line, go to disk together, and are
//! answered in order some time after they are durable.
//!
//! Invariant: answers reach the engine in the order in which things became durable, pages of a load among
//! them, so that a page never shows less than the engine knew before.

use std::collections::VecDeque;
use std::sync::Arc;

use super::checker::Checker;
use super::orders::{Order, Ordered};
use super::plan::Act;
use super::store::{Addressee, Store};
use crate::engine::{
    Advance, LoadRequest, LoadedPage, PendingDelivery, QueueName, Settlement, SettlementResult,
};
use crate::event::Event;
use crate::letters::replay::ReplayJob;
use crate::policy::breaker::BreakerRecord;
use crate::time::Timestamp;

/// The most requests that go to disk together.
const ROUND_MAX: usize = 24;

/// A request to write or read.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Settle(Arc<Settlement>),
    Submit(Submission),
    Act(Act),
    Keep(Box<BreakerRecord>),
    Release(Arc<QueueName>),
    Absence { from: Timestamp },
    Alive,
    Order(Order),
    Advance(Advance),
    Load(LoadRequest),
}

/// An event on its way in.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    pub client: usize,
    pub event: Arc<Event>,
    pub to: Vec<Addressee>,
}

/// What a request came to.
#[derive(Debug)]
pub(super) enum Answer {
    Settled(Arc<Settlement>, SettlementResult, Option<Box<PendingDelivery>>),
    Accepted(Vec<PendingDelivery>),
    Taken {
        client: usize,
    },
    Done(Act),
    Released(Arc<QueueName>),
    Ordered(Ordered),
    Advanced(ReplayJob, u32),
    /// With the replays that are open, or whose letters are on their way.
    Healed(Vec<ReplayJob>),
    Loaded(LoadedPage),
}

/// What waits to be written, and what is on its way to disk.
#[derive(Debug, Default)]
pub(super) struct Writer {
    waiting: VecDeque<Request>,
    round: Vec<Request>,
}

impl Writer {
    pub(super) fn ask(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    /// Whether something is on its way to disk.
    pub(super) fn is_writing(&self) -> bool {
        !self.round.is_empty()
    }

    /// Whether there is nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.round.is_empty() && self.waiting.is_empty()
    }

    /// Sends what waits on its way.
    pub(super) fn begin_round(&mut self) {
        assert!(self.round.is_empty(), "one round after the other");
        let count = self.waiting.len().min(ROUND_MAX);
        self.round = self.waiting.drain(..count).collect();
    }

    /// The round is durable: settlements first, then what came in, notes, orders and steps of replays; what
    /// was to be read comes last.
    pub(super) fn finish_round(
        &mut self,
        store: &mut Store,
        now: Timestamp,
        checker: &mut Checker,
    ) -> Vec<Answer> {
        let round = std::mem::take(&mut self.round);
        let mut answers = Vec::new();
        store.written(now);
        for request in &round {
            if let Request::Settle(settlement) = request {
                let (fate, promoted) = store.settle(settlement, checker);
                answers.push(Answer::Settled(Arc::clone(settlement), fate, promoted));
            }
        }
        let mut taken = Vec::new();
        let mut may_start = Vec::new();
        for request in &round {
            if let Request::Submit(Submission { client, event, to }) = request {
                may_start.extend(store.accept(event, to, now, checker));
                taken.push(Answer::Taken { client: *client });
            }
        }
        let (mut notes, mut loads) = (Vec::new(), Vec::new());
        for request in &round {
            match request {
                Request::Settle(_)
                | Request::Submit(_)
                | Request::Alive
                | Request::Order(_)
                | Request::Advance(_) => {}
                Request::Load(load) => loads.push(load.clone()),
                Request::Act(act) => {
                    store.act(act, now);
                    notes.push(Answer::Done(act.clone()));
                }
                Request::Keep(record) => store.keep(record, now),
                Request::Release(queue) => {
                    store.release(queue);
                    notes.push(Answer::Released(Arc::clone(queue)));
                }
                Request::Absence { from } => {
                    store.was_away(*from, now);
                    notes.push(Answer::Healed(store.replays_to_go_on_with()));
                }
            }
        }
        let mut letters = Vec::new();
        for request in &round {
            if let Request::Order(order) = request {
                letters.push(Answer::Ordered(store.order(order, now, &mut may_start, checker)));
            }
        }
        for request in &round {
            if let Request::Advance(advance) = request {
                let advanced = store.advance(advance, now, &mut may_start, checker);
                letters.extend(advanced.map(|(job, sent)| Answer::Advanced(job, sent)));
            }
        }
        answers.push(Answer::Accepted(may_start));
        answers.extend(taken);
        answers.extend(notes);
        answers.extend(letters);
        answers.extend(loads.iter().map(|load| Answer::Loaded(store.load(load))));
        answers
    }

    /// A copy of the round, for one that is durable without an answer.
    pub(super) fn round(&self) -> Vec<Request> {
        self.round.clone()
    }

    /// The round is still in hand.
    pub(super) fn set_round(&mut self, round: Vec<Request>) {
        self.round = round;
    }

    /// The round has failed: what came in is refused, what is in hand is kept, and no page is awaited, nor
    /// steps.
    pub(super) fn fail_round(&mut self) -> Vec<usize> {
        let mut refused = Vec::new();
        for request in std::mem::take(&mut self.round).into_iter().rev() {
            match request {
                Request::Submit(submission) => refused.push(submission.client),
                // The command is answered as failed, though perhaps it was written.
                Request::Load(_)
                | Request::Alive
                | Request::Absence { .. }
                | Request::Order(_)
                | Request::Advance(_) => {}
                Request::Settle(_) | Request::Act(_) | Request::Keep(_) | Request::Release(_) => {
                    self.waiting.push_front(request);
                }
            }
        }
        refused.extend(self.refuse_waiting());
        refused
    }

    fn refuse_waiting(&mut self) -> Vec<usize> {
        let mut refused = Vec::new();
        self.waiting.retain(|request| match request {
            Request::Submit(submission) => {
                refused.push(submission.client);
                false
            }
            Request::Load(_)
            | Request::Alive
            | Request::Absence { .. }
            | Request::Order(_)
            | Request::Advance(_) => false,
            Request::Settle(_) | Request::Act(_) | Request::Keep(_) | Request::Release(_) => true,
        });
        refused
    }
}
