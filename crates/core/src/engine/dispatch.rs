//! Which line gets the next call: lines take turns, and one that may not send waits for what blocks it.

use std::sync::Arc;

use super::messages::{CallId, Effect, EngineActivity, NextState, PendingDelivery, Settlement, TargetCall};
use super::queue::{LineStatus, PushAt, QueuePresence, ReadyDelivery, Starts};
use super::{
    DependencyPlace, Engine, InFlight, Isolation, LinePlace, PendingStart, QueuePlace, RunState,
    SettlingStage,
};
use crate::ids::DeliveryId;
use crate::policy::admission::{AdmissionGate, BudgetClaim, CallRequest, CallTicket};
use crate::policy::breaker::{BreakerPhase, BreakerState, Transition};
use crate::policy::decide::{AttemptResult, History, HoldCause, Moment, Verdict, decide};
use crate::policy::rule::Rule;
use crate::time::Timestamp;

enum TurnResult {
    Sent,
    Idle,
    AwaitDependency,
    AwaitBudget,
    AwaitShare,
    AwaitQuiet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldResult {
    Held,
    DeadLettered,
}

impl Engine {
    fn may_start(&self) -> bool {
        self.store_failing_since.is_none()
            && self.running == RunState::Running
            && self.caution.alone.is_none()
    }

    pub(super) fn dispatch(&mut self, now: Timestamp) {
        while self.may_start()
            && let Some(place) = self.runnable.pop_front()
        {
            let status = match self.take_turn(place, now) {
                TurnResult::Sent => {
                    self.runnable.push_back(place);
                    LineStatus::Runnable
                }
                TurnResult::Idle => {
                    self.pass_turn_on(place);
                    LineStatus::Idle
                }
                TurnResult::AwaitDependency => {
                    let dependency = self.queues[place.queue.0].lines[place.line].dependency;
                    self.dependencies[dependency.0].waiters.push_back(place);
                    LineStatus::AwaitsDependency
                }
                TurnResult::AwaitBudget => {
                    let dependency = self.queues[place.queue.0].lines[place.line].dependency;
                    self.dependencies[dependency.0].retriers.push_back(place);
                    self.pass_turn_on(place);
                    LineStatus::AwaitsBudget
                }
                TurnResult::AwaitShare => {
                    self.share_waiters.push_back(place);
                    self.pass_turn_on(place);
                    LineStatus::AwaitsShare
                }
                TurnResult::AwaitQuiet => {
                    // It keeps its turn: nothing else starts before it.
                    self.runnable.push_front(place);
                    self.queues[place.queue.0].lines[place.line].status = LineStatus::Runnable;
                    return;
                }
            };
            self.queues[place.queue.0].lines[place.line].status = status;
        }
    }

    /// A line that does not use its turn passes it to another that waits for the same dependency: the call
    /// whose end gave it that turn wakes no other.
    fn pass_turn_on(&mut self, place: LinePlace) {
        let dependency = self.queues[place.queue.0].lines[place.line].dependency;
        if let Some(line) = self.dependencies[dependency.0].waiters.pop_front() {
            self.wake(line);
        }
    }

    fn take_turn(&mut self, place: LinePlace, now: Timestamp) -> TurnResult {
        let queue = &self.queues[place.queue.0];
        let QueuePresence::Here { batch_max, .. } = queue.presence else { return TurnResult::Idle };
        if self.services[queue.service.0].is_paused() {
            return TurnResult::Idle;
        }
        if queue.lines[place.line].ready.is_empty() {
            return TurnResult::Idle;
        }
        if self.shares.free(queue.service.0) == 0 {
            return TurnResult::AwaitShare;
        }
        let index = self.next_in_line(place, now);
        let line = &self.queues[place.queue.0].lines[place.line];
        let first = &line.ready[index];
        if Self::is_notified(first) {
            let ready = self.queues[place.queue.0].take(place.line, index).expect("it was just there");
            self.deliver_notified(place.queue, ready, now);
            self.look_for_more(place.queue, now);
            return TurnResult::Sent;
        }
        let suspect = self.caution.suspects(first.waiting.id.seq(), now);
        if suspect && !self.is_quiet() {
            return TurnResult::AwaitQuiet;
        }
        let (rule, dependency, delivery) = (Arc::clone(&first.rule), line.dependency, first.waiting.id);
        let request = CallRequest {
            limit: rule.timeouts.whole.limit(first.waiting.next_attempt()),
            claim: if first.waiting.is_retry() { BudgetClaim::Retry } else { BudgetClaim::First },
        };
        let (gate, transition) = self.dependencies[dependency.0].control.admit(&rule, request, now);
        if let Some(transition) = transition {
            self.breaker_changed(dependency, transition, Some(delivery), now);
        }
        match gate {
            AdmissionGate::Open(ticket) => {
                self.send(place, index, if suspect { 1 } else { batch_max }, ticket, now);
                TurnResult::Sent
            }
            AdmissionGate::Held(cause, until) => {
                self.set_dependency_timer(dependency, until);
                self.hold_line(place, cause, until, now);
                TurnResult::AwaitDependency
            }
            AdmissionGate::Paced(until) => {
                self.set_dependency_timer(dependency, until);
                TurnResult::AwaitDependency
            }
            AdmissionGate::OverBudget(until) => {
                self.set_dependency_timer(dependency, until);
                TurnResult::AwaitBudget
            }
            AdmissionGate::Busy => TurnResult::AwaitDependency,
        }
    }

    /// While the breaker is not closed, prefers a delivery whose failure did not open it. While the retry
    /// budget is spent, prefers one that is no retry, so that retries do not block first attempts.
    fn next_in_line(&self, place: LinePlace, now: Timestamp) -> usize {
        let line = &self.queues[place.queue.0].lines[place.line];
        let dependency = &self.dependencies[line.dependency.0];
        if dependency.control.retries_from(now).is_some() {
            let first = line.ready.iter().position(|ready| !ready.waiting.is_retry());
            return first.unwrap_or(0);
        }
        let Some(opened_by) = dependency.opened_by else { return 0 };
        match dependency.control.breaker().state(now) {
            BreakerState::Closed { .. } => 0,
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => {
                let other = line.ready.iter().position(|ready| ready.waiting.id.seq() != opened_by);
                other.unwrap_or(0)
            }
        }
    }

    /// Makes a call of the delivery at that index and, for a batch, of those behind it with the same rule.
    fn send(&mut self, place: LinePlace, index: usize, batch_max: u32, ticket: CallTicket, now: Timestamp) {
        let service = self.queues[place.queue.0].service;
        let dependency = self.queues[place.queue.0].lines[place.line].dependency;
        let mut batch: Vec<ReadyDelivery> = Vec::new();
        while batch.len() < batch_max as usize && self.shares.free(service.0) > 0 {
            let fits = |ready: &ReadyDelivery| {
                batch.first().is_none_or(|first| Arc::ptr_eq(&first.rule, &ready.rule))
            };
            let line = &self.queues[place.queue.0].lines[place.line];
            if !line.ready.get(index).is_some_and(fits) {
                break;
            }
            let ready = self.queues[place.queue.0].take(place.line, index).expect("it was just there");
            if self.is_past_deadline(&ready, now) {
                self.dead_letter_late(place.queue, ready, now);
                continue;
            }
            if Self::is_notified(&ready) {
                self.deliver_notified(place.queue, ready, now);
                continue;
            }
            if self.caution.suspects(ready.waiting.id.seq(), now) {
                if batch.is_empty() {
                    self.caution.alone = Some(ready.waiting.id.seq());
                    let start = PendingStart { ready, dependency, ticket, isolation: Isolation::Alone };
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
                let start = PendingStart { ready, dependency, ticket, isolation: Isolation::Shared };
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
        matches!(self.queues[place.0].presence, QueuePresence::Here { starts: Starts::OnRecord, .. })
    }

    fn start_on_record(&mut self, place: QueuePlace, start: PendingStart, now: Timestamp) {
        let row = start.ready.waiting.clone();
        let settlement = self.settlement_without_attempt(&row, NextState::Starting, now);
        let emits = self.worker_of(&row).map_or_else(Vec::new, |worker| worker.started(&row, now));
        let settlement = Settlement { emits, ..settlement };
        self.settle(place, row, settlement, SettlingStage::ToBeMade(Box::new(start)));
    }

    pub(super) fn begin_recorded(
        &mut self,
        place: QueuePlace,
        row: PendingDelivery,
        start: PendingStart,
        now: Timestamp,
    ) {
        let PendingStart { ready, dependency, ticket, isolation } = start;
        let row = PendingDelivery { start_recorded: false, ..row };
        let service = self.queues[place.0].service;
        let may_start = self.store_failing_since.is_none() && self.running == RunState::Running;
        let has_same_rule = self.rule(&row).is_some_and(|rule| Arc::ptr_eq(rule, &ready.rule));
        let is_held = self.dependencies[dependency.0].control.barrier(&ready.rule, now).is_some();
        // Its deadline may have passed while the start was being written.
        let may_start = may_start && !self.is_past_deadline(&ready, now);
        if may_start && has_same_rule && !is_held && !self.services[service.0].is_paused() {
            if isolation == Isolation::Alone {
                self.shares.take(service.0);
            }
            let ready = ReadyDelivery { waiting: row, ..ready };
            return self.begin_call(place, dependency, ticket, vec![ready], Starts::OnRecord, now);
        }
        // Something has changed. It did not start, so a crash from now on is not its fault.
        self.cancel_start(place, PendingStart { ready, dependency, ticket, isolation });
        let settlement = self.settlement_without_attempt(&row, NextState::Ready, now);
        self.settle(place, row, settlement, SettlingStage::NotMade);
    }

    pub(super) fn cancel_start(&mut self, place: QueuePlace, start: PendingStart) {
        let PendingStart { dependency, ticket, isolation, .. } = start;
        self.dependencies[dependency.0].control.unused(ticket);
        match isolation {
            Isolation::Alone => self.caution.alone = None,
            Isolation::Shared => {
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
        ticket: CallTicket,
        batch: Vec<ReadyDelivery>,
        starts: Starts,
        now: Timestamp,
    ) {
        let rule = Arc::clone(&batch[0].rule);
        let mut deliveries = Vec::with_capacity(batch.len());
        for ready in batch {
            let history = self.history_at_start(&ready, now);
            deliveries.push(PendingDelivery { history, due_at: None, ..ready.waiting });
        }
        let attempts = deliveries.iter().map(|row| rule.timeouts.whole.limit(row.next_attempt()));
        self.last_call = CallId(self.last_call.0 + 1);
        let call = Arc::new(TargetCall {
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

    fn history_at_start(&self, ready: &ReadyDelivery, now: Timestamp) -> History {
        let mut history = self.history_of(&ready.waiting, &ready.rule, now);
        if let Some(since) = ready.blocked_since {
            history = history.held_since(self.less_excuses(&ready.waiting, since, now));
        }
        history.started(now)
    }

    /// `since`, later by the time that Redrive was away and the service paused.
    fn less_excuses(&self, row: &PendingDelivery, since: Timestamp, now: Timestamp) -> Timestamp {
        since + self.away_within(since, now) + self.paused_within(row, since, now)
    }

    fn hold_line(&mut self, place: LinePlace, cause: HoldCause, until: Timestamp, now: Timestamp) {
        let dependency = self.queues[place.queue.0].lines[place.line].dependency;
        let breaker = self.dependencies[dependency.0].control.breaker();
        // Waiting for probes ends as soon as they do.
        if cause == HoldCause::BreakerOpen && !matches!(breaker.state(now), BreakerState::Open { .. }) {
            return;
        }
        let mut index = 0;
        while index < self.queues[place.queue.0].lines[place.line].ready.len() {
            match self.hold(place, index, cause, until, now) {
                HoldResult::Held => index += 1,
                HoldResult::DeadLettered => {}
            }
        }
        self.look_for_more(place.queue, now);
    }

    pub(super) fn hold(
        &mut self,
        place: LinePlace,
        index: usize,
        cause: HoldCause,
        until: Timestamp,
        now: Timestamp,
    ) -> HoldResult {
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
            HoldCause::BreakerOpen => AttemptResult::BreakerOpen { until },
            HoldCause::AskedToWait => AttemptResult::AskedToWait { until },
        };
        let moment = Moment { now, seed: self.seed, delivery: row.id, attempt: row.next_attempt() };
        let decision = decide(&ready.rule, &history, &ended, &moment);
        match decision.verdict {
            Verdict::DeadLetter { .. } => {
                let ready = self.queues[place.queue.0].take(place.line, index).expect("it was just there");
                self.dead_letter_held(place.queue, ready, history, &decision, now);
                HoldResult::DeadLettered
            }
            Verdict::Hold { until } => {
                self.set_dependency_timer(dependency, until);
                self.queues[place.queue.0].lines[place.line].ready[index].blocked_since = Some(since);
                HoldResult::Held
            }
            Verdict::Deliver | Verdict::Retry { .. } | Verdict::Pause => {
                unreachable!("what did not start is held or given up")
            }
        }
    }

    /// A call on the dependency has ended: two of the lines that wait for it may try.
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

    pub(super) fn wake_retrier(&mut self, line: LinePlace) {
        let dependency = self.queues[line.queue.0].lines[line.line].dependency;
        self.dependencies[dependency.0].retriers.retain(|waiting| *waiting != line);
        self.wake(line);
    }

    pub(super) fn wake_for_share(&mut self) {
        // A line whose own share is used up waits again; others may have room.
        for line in std::mem::take(&mut self.share_waiters) {
            self.wake(line);
        }
    }

    fn wake(&mut self, line: LinePlace) {
        self.queues[line.queue.0].lines[line.line].status = LineStatus::Idle;
        self.make_runnable(line);
    }

    /// A breaker continues in the state of the last run, from the first rule that attaches it.
    pub(super) fn attach_breaker(&mut self, place: DependencyPlace, rule: &Rule, now: Timestamp) {
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
            BreakerPhase::Open => dependency.opened_by = by.map(DeliveryId::seq),
            BreakerPhase::Closed => dependency.opened_by = None,
            BreakerPhase::HalfOpen => {}
        }
        let record = dependency.control.record(&dependency.name, now);
        let name = dependency.name.clone();
        self.effects.push_back(Effect::Keep(Box::new(record)));
        if transition.to == BreakerPhase::Closed && self.book.reprocesses(&name) {
            self.effects.push_back(Effect::Reprocess(name.clone()));
        }
        let activity = EngineActivity::Breaker { dependency: name, transition, by };
        self.effects.push_back(Effect::Activity(Box::new(activity)));
        self.wake_all(place);
    }
}

fn ready_since(row: &PendingDelivery) -> Timestamp {
    row.due_at.map_or(row.written_at, |due_at| due_at.max(row.written_at))
}
