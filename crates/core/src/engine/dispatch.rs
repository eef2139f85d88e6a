//! Who gets the next call: lines take turns, and one that may not send waits for what keeps it.

use std::sync::Arc;

use super::port::{Call, CallId, Effect, Next, Settlement, Signal, Waiting};
use super::queue::{LineStatus, Presence, PushAt, Ready, Starts};
use super::{Company, DependencyPlace, Engine, InFlight, LinePlace, QueuePlace, Running, Stage, Start};
use crate::ids::DeliveryId;
use crate::policy::admission::{BudgetClaim, Gate, Request, Ticket};
use crate::policy::breaker::{Phase, State, Transition};
use crate::policy::decide::{Ended, History, HoldCause, Moment, Verdict, decide};
use crate::policy::rule::Rule;
use crate::time::Timestamp;

/// What came of a line's turn.
enum Turn {
    /// It sent something, or got rid of something, and may have more.
    Sent,
    /// It has nothing to send, or nothing that it may.
    Idle,
    /// It waits for its dependency.
    AwaitDependency,
    /// It has retries alone, and there are too many of them.
    AwaitBudget,
    /// It waits for a share of the calls.
    AwaitShare,
    /// It is to be started alone, when nothing else runs.
    AwaitQuiet,
}

/// What became of a delivery that may not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// It waits in its place.
    Waits,
    /// It may not wait any longer.
    Buried,
}

impl Engine {
    fn may_start(&self) -> bool {
        self.store_failing_since.is_none() && self.running == Running::Yes && self.caution.alone.is_none()
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
                Turn::Idle => {
                    self.pass_turn_on(place);
                    LineStatus::Idle
                }
                Turn::AwaitDependency => {
                    let dependency = self.queues[place.queue.0].lines[place.line].dependency;
                    self.dependencies[dependency.0].waiters.push_back(place);
                    LineStatus::AwaitsDependency
                }
                Turn::AwaitBudget => {
                    let dependency = self.queues[place.queue.0].lines[place.line].dependency;
                    self.dependencies[dependency.0].retriers.push_back(place);
                    self.pass_turn_on(place);
                    LineStatus::AwaitsBudget
                }
                Turn::AwaitShare => {
                    self.share_waiters.push_back(place);
                    self.pass_turn_on(place);
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

    /// Whoever does not use its turn gives it to another who waits for the same dependency: the call whose
    /// end gave them that turn wakes nobody else.
    fn pass_turn_on(&mut self, place: LinePlace) {
        let dependency = self.queues[place.queue.0].lines[place.line].dependency;
        if let Some(line) = self.dependencies[dependency.0].waiters.pop_front() {
            self.wake(line);
        }
    }

    fn take_turn(&mut self, place: LinePlace, now: Timestamp) -> Turn {
        let queue = &self.queues[place.queue.0];
        let Presence::Here { batch_max, .. } = queue.presence else { return Turn::Idle };
        if self.services[queue.service.0].is_paused() {
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
        if Self::is_notified(first) {
            let ready = self.queues[place.queue.0].take(place.line, index).expect("it was just there");
            self.deliver_notified(place.queue, ready, now);
            self.look_for_more(place.queue, now);
            return Turn::Sent;
        }
        let suspect = self.caution.suspects(first.waiting.id.seq(), now);
        if suspect && !self.is_quiet() {
            return Turn::AwaitQuiet;
        }
        let (rule, dependency, delivery) = (Arc::clone(&first.rule), line.dependency, first.waiting.id);
        let request = Request {
            limit: rule.timeouts.whole.limit(first.waiting.next_attempt()),
            claim: if first.waiting.is_retry() { BudgetClaim::Retry } else { BudgetClaim::First },
        };
        let (gate, transition) = self.dependencies[dependency.0].control.admit(&rule, request, now);
        if let Some(transition) = transition {
            self.breaker_changed(dependency, transition, Some(delivery), now);
        }
        match gate {
            Gate::Open(ticket) => {
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
            Gate::OverBudget(until) => {
                self.set_dependency_timer(dependency, until);
                Turn::AwaitBudget
            }
            Gate::Busy => Turn::AwaitDependency,
        }
    }

    /// Of a line whose breaker is not closed, one whose failure did not open it: that one had its chance. Of
    /// one whose retries are too many for now, one that is no retry: those who wait keep nobody else waiting.
    fn whose_turn(&self, place: LinePlace, now: Timestamp) -> usize {
        let line = &self.queues[place.queue.0].lines[place.line];
        let dependency = &self.dependencies[line.dependency.0];
        if dependency.control.retries_from(now).is_some() {
            let first = line.ready.iter().position(|ready| !ready.waiting.is_retry());
            return first.unwrap_or(0);
        }
        let Some(opened_by) = dependency.opened_by else { return 0 };
        match dependency.control.breaker().state(now) {
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
            if Self::is_notified(&ready) {
                self.deliver_notified(place.queue, ready, now);
                continue;
            }
            if self.caution.suspects(ready.waiting.id.seq(), now) {
                if batch.is_empty() {
                    self.caution.alone = Some(ready.waiting.id.seq());
                    let start = Start { ready, dependency, ticket, company: Company::Nobody };
                    self.start_on_record(place.queue, start, now);
                } else {
                    self.queues[place.queue.0].push(place.line, ready, PushAt::Front);
                    self.begin_call(place.queue, dependency, ticket, batch, Starts::AtOnce, now);
                }
                self.look_for_more(place.queue, now);
                return;
            }
            self.shares.take(service.0);
            if self.records_starts(place.queue) {
                let start = Start { ready, dependency, ticket, company: Company::Others };
                self.start_on_record(place.queue, start, now);
                return self.look_for_more(place.queue, now);
            }
            batch.push(ready);
        }
        if batch.is_empty() {
            self.dependencies[dependency.0].control.unused(ticket);
        } else {
            self.begin_call(place.queue, dependency, ticket, batch, Starts::AtOnce, now);
        }
        self.look_for_more(place.queue, now);
    }

    fn records_starts(&self, place: QueuePlace) -> bool {
        matches!(self.queues[place.0].presence, Presence::Here { starts: Starts::OnRecord, .. })
    }

    fn start_on_record(&mut self, place: QueuePlace, start: Start, now: Timestamp) {
        let row = start.ready.waiting.clone();
        let settlement = self.settlement_without_attempt(&row, Next::Starting, now);
        let emits = self.worker_of(&row).map_or_else(Vec::new, |worker| worker.started(&row, now));
        let settlement = Settlement { emits, ..settlement };
        self.settle(place, row, settlement, Stage::ToBeMade(Box::new(start)));
    }

    /// The start is on record: now it may run.
    pub(super) fn begin_recorded(&mut self, place: QueuePlace, row: Waiting, start: Start, now: Timestamp) {
        let Start { ready, dependency, ticket, company } = start;
        let row = Waiting { start_recorded: false, ..row };
        let service = self.queues[place.0].service;
        let may_start = self.store_failing_since.is_none() && self.running == Running::Yes;
        let has_same_rule = self.rule(&row).is_some_and(|rule| Arc::ptr_eq(rule, &ready.rule));
        let is_held = self.dependencies[dependency.0].control.barrier(&ready.rule, now).is_some();
        // Its deadline may have passed while its start was being written.
        let may_start = may_start && !self.is_past_deadline(&ready, now);
        if may_start && has_same_rule && !is_held && !self.services[service.0].is_paused() {
            if company == Company::Nobody {
                self.shares.take(service.0);
            }
            let ready = Ready { waiting: row, ..ready };
            return self.begin_call(place, dependency, ticket, vec![ready], Starts::OnRecord, now);
        }
        // Something has come up. It did not start, and if Redrive goes down now, it was not this one's fault.
        self.not_begun(place, Start { ready, dependency, ticket, company });
        let settlement = self.settlement_without_attempt(&row, Next::Ready, now);
        self.settle(place, row, settlement, Stage::NotMade);
    }

    /// Gives back what a call was to have that is not made.
    pub(super) fn not_begun(&mut self, place: QueuePlace, start: Start) {
        let Start { dependency, ticket, company, .. } = start;
        self.dependencies[dependency.0].control.unused(ticket);
        match company {
            Company::Nobody => self.caution.alone = None,
            Company::Others => {
                self.shares.give_back(self.queues[place.0].service.0);
                self.wake_some(dependency);
                self.wake_for_share();
            }
        }
    }

    fn begin_call(
        &mut self,
        queue: QueuePlace,
        dependency: DependencyPlace,
        ticket: Ticket,
        batch: Vec<Ready>,
        starts: Starts,
        now: Timestamp,
    ) {
        let rule = Arc::clone(&batch[0].rule);
        let mut deliveries = Vec::with_capacity(batch.len());
        for ready in batch {
            let history = self.history_at_start(&ready, now);
            deliveries.push(Waiting { history, due_at: None, ..ready.waiting });
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
        let beside = self.dependencies[dependency.0].control.in_flight();
        self.calls.insert(call.id, InFlight { call, queue, dependency, ticket, beside, starts });
    }

    fn history_at_start(&self, ready: &Ready, now: Timestamp) -> History {
        let mut history = self.history_of(&ready.waiting, &ready.rule, now);
        if let Some(since) = ready.blocked_since {
            history = history.held_since(self.less_excuses(&ready.waiting, since, now));
        }
        history.started(now)
    }

    /// That time, later by what Redrive was away and the service paused since.
    fn less_excuses(&self, row: &Waiting, since: Timestamp, now: Timestamp) -> Timestamp {
        since + self.away_within(since, now) + self.paused_within(row, since, now)
    }

    /// The dependency lets nobody through: those who have waited too long end here.
    fn hold_line(&mut self, place: LinePlace, cause: HoldCause, until: Timestamp, now: Timestamp) {
        let dependency = self.queues[place.queue.0].lines[place.line].dependency;
        let breaker = self.dependencies[dependency.0].control.breaker();
        // Calls that probes keep waiting are over as soon as the probes are.
        if cause == HoldCause::BreakerOpen && !matches!(breaker.state(now), State::Open { .. }) {
            return;
        }
        let mut index = 0;
        while index < self.queues[place.queue.0].lines[place.line].ready.len() {
            match self.hold(place, index, cause, until, now) {
                Held::Waits => index += 1,
                Held::Buried => {}
            }
        }
        self.look_for_more(place.queue, now);
    }

    /// Holds one delivery of a line, or buries it if it may not be held any longer.
    pub(super) fn hold(
        &mut self,
        place: LinePlace,
        index: usize,
        cause: HoldCause,
        until: Timestamp,
        now: Timestamp,
    ) -> Held {
        let line = &self.queues[place.queue.0].lines[place.line];
        let (ready, dependency) = (&line.ready[index], line.dependency);
        let row = &ready.waiting;
        let since = ready.blocked_since.unwrap_or_else(|| match cause {
            HoldCause::BreakerOpen => {
                let began = self.dependencies[dependency.0].control.breaker().not_closed_since();
                began.map_or(now, |began| began.max(ready_since(row)))
            }
            HoldCause::AskedToWait => now,
        });
        let history = self.history_of(row, &ready.rule, now);
        let history = history.held_since(self.less_excuses(row, since, now));
        let ended = match cause {
            HoldCause::BreakerOpen => Ended::BreakerOpen { until },
            HoldCause::AskedToWait => Ended::AskedToWait { until },
        };
        let moment = Moment { now, seed: self.seed, delivery: row.id, attempt: row.next_attempt() };
        let decision = decide(&ready.rule, &history, &ended, &moment);
        match decision.verdict {
            Verdict::DeadLetter { .. } => {
                let ready = self.queues[place.queue.0].take(place.line, index).expect("it was just there");
                self.bury_held(place.queue, ready, history, &decision, now);
                Held::Buried
            }
            Verdict::Hold { until } => {
                self.set_dependency_timer(dependency, until);
                self.queues[place.queue.0].lines[place.line].ready[index].blocked_since = Some(since);
                Held::Waits
            }
            Verdict::Deliver | Verdict::Retry { .. } | Verdict::Pause => {
                unreachable!("what did not start is held or given up")
            }
        }
    }

    /// A call on the dependency is over: some who waited for that may go on.
    pub(super) fn wake_some(&mut self, place: DependencyPlace) {
        for _ in 0..2 {
            let Some(line) = self.dependencies[place.0].waiters.pop_front() else { return };
            self.wake(line);
        }
    }

    pub(super) fn wake_all(&mut self, place: DependencyPlace) {
        let dependency = &mut self.dependencies[place.0];
        let retriers = std::mem::take(&mut dependency.retriers);
        for line in std::mem::take(&mut dependency.waiters).into_iter().chain(retriers) {
            self.wake(line);
        }
    }

    /// A line that waits for the budget has got something that may be no retry.
    pub(super) fn wake_retrier(&mut self, line: LinePlace) {
        let dependency = self.queues[line.queue.0].lines[line.line].dependency;
        self.dependencies[dependency.0].retriers.retain(|waiting| *waiting != line);
        self.wake(line);
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
        if dependency.control.set_breaker(&named.settings) {
            let remembered =
                self.remembered_breakers.iter().find(|record| record.service_name == dependency.name);
            if let Some(record) = remembered {
                dependency.control.adopt(record, now);
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
            Phase::Closed => dependency.opened_by = None,
            Phase::HalfOpen => {}
        }
        let record = dependency.control.record(&dependency.name, now);
        let name = dependency.name.clone();
        self.effects.push_back(Effect::Keep(Box::new(record)));
        if transition.to == Phase::Closed && self.book.reprocesses(&name) {
            self.effects.push_back(Effect::Reprocess(name.clone()));
        }
        let signal = Signal::Breaker { dependency: name, transition, by };
        self.effects.push_back(Effect::Signal(Box::new(signal)));
        self.wake_all(place);
    }
}

/// From when it could have started.
fn ready_since(row: &Waiting) -> Timestamp {
    row.due_at.map_or(row.written_at, |due_at| due_at.max(row.written_at))
}
