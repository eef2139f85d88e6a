//! Who gets the next call: lines take turns, and one that may not send waits for what keeps it.

use std::sync::Arc;

use super::dependency::{Gate, Ticket};
use super::port::{Call, CallId, Effect, Next, Signal};
use super::queue::{LineStatus, Presence, PushAt, Ready};
use super::sabotage::Sabotage;
use super::{DependencyPlace, Engine, InFlight, LinePlace, QueuePlace, Running, Stage};
use crate::breaker::{Phase, State, Transition};
use crate::decide::{Ended, HoldCause, Moment, Verdict, decide};
use crate::ids::DeliveryId;
use crate::rule::Rule;
use crate::time::Timestamp;

/// What came of a line's turn.
enum Turn {
    /// It sent something, or got rid of something, and may have more.
    Sent,
    /// It has nothing to send, or nothing that it may.
    Idle,
    /// It waits for its dependency.
    AwaitDependency,
    /// It waits for a share of the calls.
    AwaitShare,
    /// It is to be started alone, when nothing else runs.
    AwaitQuiet,
}

impl Engine {
    fn may_start(&self) -> bool {
        let may_settle = self.store_failing_since.is_none() || self.sabotaged_by(Sabotage::StartsUnsettled);
        may_settle && self.running == Running::Yes && self.caution.alone.is_none()
    }

    pub(super) fn dispatch(&mut self, now: Timestamp) {
        while self.may_start()
            && let Some(place) = self.runnable.pop_front()
        {
            let status = match self.take_turn(place, now) {
                Turn::Sent => {
                    self.runnable.push_back(place);
                    LineStatus::Runnable
                }
                Turn::Idle => LineStatus::Idle,
                Turn::AwaitDependency => {
                    let dependency = self.queues[place.queue.0].lines[place.line].dependency;
                    self.dependencies[dependency.0].waiters.push_back(place);
                    LineStatus::AwaitsDependency
                }
                Turn::AwaitShare => {
                    self.share_waiters.push_back(place);
                    LineStatus::AwaitsShare
                }
                Turn::AwaitQuiet => {
                    // It keeps its turn: nothing else starts before it.
                    self.runnable.push_front(place);
                    self.queues[place.queue.0].lines[place.line].status = LineStatus::Runnable;
                    return;
                }
            };
            self.queues[place.queue.0].lines[place.line].status = status;
        }
    }

    fn take_turn(&mut self, place: LinePlace, now: Timestamp) -> Turn {
        let queue = &self.queues[place.queue.0];
        let Presence::Here { batch_max } = queue.presence else { return Turn::Idle };
        if self.services[queue.service.0].is_paused() && !self.sabotaged_by(Sabotage::IgnoresPause) {
            return Turn::Idle;
        }
        if queue.lines[place.line].ready.is_empty() {
            return Turn::Idle;
        }
        if self.shares.free(queue.service.0) == 0 {
            return Turn::AwaitShare;
        }
        let index = self.whose_turn(place, now);
        let line = &self.queues[place.queue.0].lines[place.line];
        let first = &line.ready[index];
        let suspect = self.caution.suspects(first.waiting.id.seq(), now);
        if suspect && !self.is_quiet() {
            return Turn::AwaitQuiet;
        }
        let (rule, dependency) = (Arc::clone(&first.rule), line.dependency);
        let limit = rule.timeouts.whole.limit(first.waiting.next_attempt());
        match self.admit(dependency, &rule, limit, now) {
            Gate::Open(ticket, transition) => {
                let delivery = first_id(&self.queues[place.queue.0].lines[place.line].ready[index]);
                if let Some(transition) = transition {
                    self.breaker_changed(dependency, transition, Some(delivery), now);
                }
                self.send(place, index, if suspect { 1 } else { batch_max }, ticket, now);
                Turn::Sent
            }
            Gate::Held(cause, until) => {
                self.set_dependency_timer(dependency, until);
                self.hold_line(place, cause, until, now);
                Turn::AwaitDependency
            }
            Gate::Paced(until) => {
                self.set_dependency_timer(dependency, until);
                Turn::AwaitDependency
            }
            Gate::Busy => Turn::AwaitDependency,
        }
    }

    fn admit(
        &mut self,
        dependency: DependencyPlace,
        rule: &Rule,
        limit: std::time::Duration,
        now: Timestamp,
    ) -> Gate {
        let dependency = &mut self.dependencies[dependency.0];
        #[cfg(test)]
        if let Some(way) = self.sabotage
            && way.passes(dependency.breaker.state(now))
        {
            return dependency.admit(&Rule { breaker: None, ..rule.clone() }, limit, now);
        }
        dependency.admit(rule, limit, now)
    }

    /// Of a line whose breaker is not closed, one whose failure did not open it: that one had its chance.
    fn whose_turn(&self, place: LinePlace, now: Timestamp) -> usize {
        let line = &self.queues[place.queue.0].lines[place.line];
        let dependency = &self.dependencies[line.dependency.0];
        let Some(opened_by) = dependency.opened_by else { return 0 };
        match dependency.breaker.state(now) {
            State::Closed { .. } => 0,
            State::Open { .. } | State::HalfOpen { .. } => {
                let other = line.ready.iter().position(|ready| ready.waiting.id.seq() != opened_by);
                other.unwrap_or(0)
            }
        }
    }

    /// Makes a call of the delivery at that place and, for a batch, of those behind it with the same rule.
    fn send(&mut self, place: LinePlace, index: usize, batch_max: u32, ticket: Ticket, now: Timestamp) {
        let service = self.queues[place.queue.0].service;
        let dependency = self.queues[place.queue.0].lines[place.line].dependency;
        let mut batch: Vec<Ready> = Vec::new();
        while batch.len() < batch_max as usize && self.shares.free(service.0) > 0 {
            let fits =
                |ready: &Ready| batch.first().is_none_or(|first| Arc::ptr_eq(&first.rule, &ready.rule));
            let line = &self.queues[place.queue.0].lines[place.line];
            if !line.ready.get(index).is_some_and(fits) {
                break;
            }
            let ready = self.queues[place.queue.0].take(place.line, index).expect("it was just there");
            if self.is_past_deadline(&ready, now) {
                self.bury_late(place.queue, ready, now);
                continue;
            }
            if self.caution.suspects(ready.waiting.id.seq(), now) {
                if batch.is_empty() {
                    self.dependencies[dependency.0].unused(ticket);
                    self.start_alone(place.queue, ready, now);
                } else {
                    self.queues[place.queue.0].push(place.line, ready, PushAt::Front);
                    self.begin_call(place.queue, dependency, ticket, batch, now);
                }
                self.look_for_more(place.queue, now);
                return;
            }
            self.shares.take(service.0);
            batch.push(ready);
        }
        if batch.is_empty() {
            self.dependencies[dependency.0].unused(ticket);
        } else {
            self.begin_call(place.queue, dependency, ticket, batch, now);
        }
        self.look_for_more(place.queue, now);
    }

    fn start_alone(&mut self, place: QueuePlace, ready: Ready, now: Timestamp) {
        self.caution.alone = Some(ready.waiting.id.seq());
        let row = ready.waiting.clone();
        let settlement = self.settlement_without_attempt(&row, Next::Starting, now);
        self.settle(place, row, settlement, Stage::ToBeMade(Box::new(ready)));
    }

    /// The start is on record: now it may run, with nothing beside it.
    pub(super) fn begin_alone(&mut self, place: QueuePlace, ready: Ready, now: Timestamp) {
        let dependency = self.dependency(&ready.rule.dependency);
        let limit = ready.rule.timeouts.whole.limit(ready.waiting.next_attempt());
        match self.dependencies[dependency.0].admit(&ready.rule, limit, now) {
            Gate::Open(ticket, _) => {
                let service = self.queues[place.0].service;
                self.shares.take(service.0);
                self.begin_call(place, dependency, ticket, vec![ready], now);
            }
            Gate::Held(..) | Gate::Paced(_) | Gate::Busy => {
                self.caution.alone = None;
                self.line_up(place, ready.waiting, PushAt::Front, now);
            }
        }
    }

    fn begin_call(
        &mut self,
        queue: QueuePlace,
        dependency: DependencyPlace,
        ticket: Ticket,
        batch: Vec<Ready>,
        now: Timestamp,
    ) {
        let rule = Arc::clone(&batch[0].rule);
        let mut deliveries = Vec::with_capacity(batch.len());
        for ready in batch {
            let history = self.history_at_start(&ready, now);
            deliveries.push(super::Waiting { history, due_at: None, ..ready.waiting });
        }
        let attempts = deliveries.iter().map(|row| rule.timeouts.whole.limit(row.next_attempt()));
        self.last_call = CallId(self.last_call.0 + 1);
        let call = Arc::new(Call {
            id: self.last_call,
            queue: Arc::clone(&self.queues[queue.0].name),
            limit: attempts.max().expect("a call carries something"),
            deliveries,
            rule,
            book: Arc::clone(&self.book),
            started_at: now,
        });
        self.effects.push_back(Effect::Start(Arc::clone(&call)));
        self.calls.insert(call.id, InFlight { call, queue, dependency, ticket });
    }

    fn history_at_start(&self, ready: &Ready, now: Timestamp) -> crate::decide::History {
        let row = &ready.waiting;
        let mut history = self.history_of(row, &ready.rule, now);
        let service = &self.services[self.queues[self.queue_places[&row.queue].0].service.0];
        if let Some(since) = service.paused_since(ready_since(row)) {
            history = history.paused(since);
        }
        if let Some(since) = ready.blocked_since {
            history = history.held_since(since);
        }
        history.started(now)
    }

    /// The dependency lets nobody through: those who have waited too long end here.
    fn hold_line(&mut self, place: LinePlace, cause: HoldCause, until: Timestamp, now: Timestamp) {
        let dependency = self.queues[place.queue.0].lines[place.line].dependency;
        let breaker = &self.dependencies[dependency.0].breaker;
        // Calls that probes keep waiting are over as soon as the probes are.
        if cause == HoldCause::BreakerOpen && !matches!(breaker.state(now), State::Open { .. }) {
            return;
        }
        let began = match cause {
            HoldCause::BreakerOpen => breaker.not_closed_since().unwrap_or(now),
            HoldCause::AskedToWait => now,
        };
        let mut index = 0;
        while let Some(ready) = self.queues[place.queue.0].lines[place.line].ready.get(index) {
            let row = &ready.waiting;
            let since = ready.blocked_since.unwrap_or_else(|| {
                let since = began.max(ready_since(row));
                since + self.absences.within(since, now)
            });
            let history = self.history_of(row, &ready.rule, now).held_since(since);
            let ended = match cause {
                HoldCause::BreakerOpen => Ended::BreakerOpen { until },
                HoldCause::AskedToWait => Ended::AskedToWait { until },
            };
            let moment = Moment { now, seed: self.seed, delivery: row.id, attempt: row.next_attempt() };
            let decision = decide(&ready.rule, &history, &ended, &moment);
            match decision.verdict {
                Verdict::DeadLetter { .. } => {
                    let ready =
                        self.queues[place.queue.0].take(place.line, index).expect("it was just there");
                    self.bury_held(place.queue, ready, history, &decision, now);
                }
                Verdict::Hold { until } => {
                    self.set_dependency_timer(dependency, until);
                    self.queues[place.queue.0].lines[place.line].ready[index].blocked_since = Some(since);
                    index += 1;
                }
                Verdict::Deliver | Verdict::Retry { .. } | Verdict::Pause => {
                    unreachable!("what did not start is held or given up")
                }
            }
        }
        self.look_for_more(place.queue, now);
    }

    /// A call on the dependency is over: some who waited for that may go on.
    pub(super) fn wake_some(&mut self, place: DependencyPlace) {
        for _ in 0..2 {
            let Some(line) = self.dependencies[place.0].waiters.pop_front() else { return };
            self.wake(line);
        }
    }

    pub(super) fn wake_all(&mut self, place: DependencyPlace) {
        for line in std::mem::take(&mut self.dependencies[place.0].waiters) {
            self.wake(line);
        }
    }

    pub(super) fn wake_for_share(&mut self) {
        // Whoever finds its own part used up waits again; others may have room.
        for line in std::mem::take(&mut self.share_waiters) {
            self.wake(line);
        }
    }

    fn wake(&mut self, line: LinePlace) {
        self.queues[line.queue.0].lines[line.line].status = LineStatus::Idle;
        self.make_runnable(line);
    }

    /// What a breaker was when the last run ended holds on, from the first time that it is met.
    pub(super) fn meet_breaker(&mut self, place: DependencyPlace, rule: &Rule, now: Timestamp) {
        let Some(named) = &rule.breaker else { return };
        let dependency = &mut self.dependencies[place.0];
        if dependency.breaker_settings.as_ref() == Some(&named.settings) {
            return;
        }
        if dependency.breaker_settings.replace(named.settings.clone()).is_none() {
            let remembered =
                self.remembered_breakers.iter().find(|record| record.service_name == dependency.name);
            if let Some(record) = remembered {
                dependency.breaker.adopt(record, &named.settings, now);
            }
        }
    }

    pub(super) fn breaker_changed(
        &mut self,
        place: DependencyPlace,
        transition: Transition,
        by: Option<DeliveryId>,
        now: Timestamp,
    ) {
        let dependency = &mut self.dependencies[place.0];
        match transition.to {
            Phase::Open => dependency.opened_by = by.map(DeliveryId::seq),
            Phase::Closed => {
                dependency.opened_by = None;
                dependency.ramp_up();
            }
            Phase::HalfOpen => {}
        }
        let record = dependency.breaker.record(&dependency.name, now);
        let name = dependency.name.clone();
        self.effects.push_back(Effect::Keep(Box::new(record)));
        let signal = Signal::Breaker { dependency: name, transition, by };
        self.effects.push_back(Effect::Signal(Box::new(signal)));
        self.wake_all(place);
    }
}

/// From when it could have started.
pub(super) fn ready_since(row: &super::Waiting) -> Timestamp {
    row.due_at.map_or(row.written_at, |due_at| due_at.max(row.written_at))
}

fn first_id(ready: &Ready) -> DeliveryId {
    ready.waiting.id
}
