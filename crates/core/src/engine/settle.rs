//! What follows a call: outcomes become settlements, and durable settlements release their deliveries.

use std::sync::Arc;

use super::messages::{
    CallId, CompletedCall, DeadLetterInfo, Effect, Ending, EngineActivity, NextState, PendingDelivery,
    SessionFollowers, Settlement, SettlementResult,
};
use super::queue::{PushAt, ReadyDelivery, Starts};
use super::{Engine, InFlight, QueuePlace, Settling, SettlingStage};
use crate::book::RuleBook;
use crate::engine::attempt_record::{AttemptEnd, AttemptFacts, AttemptRecord, HoldReason, RecordedVerdict};
use crate::engine::worker::{self, Worker};
use crate::event::copy_rule;
use crate::ids::{ChannelName, DeliveryId};
use crate::letters::envelope::Tier;
use crate::letters::fingerprint::Fingerprint;
use crate::limits;
use crate::policy::answer::{ReplyKind, TargetReply};
use crate::policy::breaker::Observation;
use crate::policy::category::{Category, FailureCode, codes};
use crate::policy::classify::{ConnectionStatus, Failure, Outcome, classify};
use crate::policy::decide::{AttemptResult, Decision, History, Moment, Verdict, decide};
use crate::policy::rule::Rule;
use crate::time::Timestamp;

impl Engine {
    pub(super) fn ended(&mut self, id: CallId, ending: &Ending, now: Timestamp) {
        let Some(in_flight) = self.calls.remove(&id) else { return };
        let (reply, failed, report) = match ending {
            Ending::Reply(reply) => (reply, None, None),
            Ending::Partly { reply, failed } => (reply, Some(failed), None),
            Ending::Ran { reply, report } => (reply, None, Some(&**report)),
            Ending::Interrupted => return self.interrupted(in_flight, now),
        };
        let InFlight { call, queue, dependency, ticket, beside, starts: _ } = in_flight;
        let answer = reply.as_answer();
        let outcome = classify(&answer, &call.rule.classify, call.rule.timeouts.category);
        // A batch that was answered in part was answered: the dependency counts as healthy.
        let mut observation = failed.map(|_| Observation::Success);
        for (index, row) in call.deliveries.iter().enumerate() {
            let delivered = Outcome::Delivered { matched: None };
            let has_failed = failed.is_none_or(|failed| failed.binary_search(&index).is_ok());
            let outcome = if has_failed { outcome.clone() } else { delivered };
            let ended = AttemptResult::Outcome(outcome);
            let moment = Moment { now, seed: self.seed, delivery: row.id, attempt: row.next_attempt() };
            // A call may have continued while the store could not write.
            let history = row.history.away(self.away_within(call.started_at, now));
            let row = PendingDelivery { history, ..row.clone() };
            let decision = decide(&call.rule, &row.history, &ended, &moment);
            observation.get_or_insert(decision.observation);
            let AttemptResult::Outcome(outcome) = ended else { unreachable!("it was made right above") };
            let attempt = AttemptContext {
                row: &row,
                rule: &call.rule,
                book: call.book.hash(),
                started_at: call.started_at,
            };
            let mut settlement = Self::settlement(&attempt, &outcome, reply, &decision, now);
            if call.rule.copies.keeps_notification_ids() && call.deliveries.len() == 1 {
                settlement.history = settlement.history.notified_as(copy_rule::notification_id(&answer));
            }
            if let Some(worker) = worker_of(&call.book, &row) {
                let end = worker::WorkerEnd::Run { outcome: &outcome, reply, report };
                settlement.emits = worker.ended(&row, end, &settlement);
            }
            self.report_alert(&row, &decision, &settlement);
            if settlement.pause.is_some() {
                let service = self.queues[queue.0].service;
                self.services[service.0].pause(now);
            }
            self.settle(queue, row, settlement, SettlingStage::Over { dependency, beside });
        }
        if let Outcome::Failed(failure) = &outcome
            && failure.category == Category::RateLimited
        {
            self.throttled(dependency, failure, now);
        }
        let seen = observation.expect("a call carries something");
        let first = call.deliveries[0].id;
        if let Some(transition) = self.dependencies[dependency.0].control.back(ticket, seen, &call.rule, now)
        {
            self.breaker_changed(dependency, transition, Some(first), now);
        }
        self.wake_some(dependency);
    }

    fn throttled(&mut self, place: super::DependencyPlace, failure: &Failure, now: Timestamp) {
        let dependency = &mut self.dependencies[place.0];
        if let Some(until) = dependency.control.throttled(failure.retry_after, now) {
            let activity = EngineActivity::DependencyHeld { dependency: dependency.name.clone(), until };
            self.effects.push_back(Effect::Activity(Box::new(activity)));
        }
    }

    /// Our own shutdown: it uses no retry, and the next run finds the delivery as it was.
    fn interrupted(&mut self, in_flight: InFlight, now: Timestamp) {
        let InFlight { call, queue, dependency, ticket, starts, .. } = in_flight;
        self.dependencies[dependency.0].control.unused(ticket);
        for row in &call.deliveries {
            self.shares.give_back(self.queues[queue.0].service.0);
            if starts == Starts::OnRecord {
                // Its start is recorded, and must not look as if Redrive had crashed during it.
                self.clear_alone(row);
                let settlement = self.settlement_without_attempt(row, NextState::Ready, now);
                self.settle(queue, row.clone(), settlement, SettlingStage::NotMade);
            } else {
                self.forget(queue, row.id.seq());
            }
        }
        self.queues[queue.0].left_on_disk();
    }

    fn clear_alone(&mut self, row: &PendingDelivery) {
        if self.caution.alone == Some(row.id.seq()) {
            self.caution.alone = None;
        }
    }

    pub(super) fn settle(
        &mut self,
        queue: QueuePlace,
        waiting: PendingDelivery,
        mut settlement: Settlement,
        stage: SettlingStage,
    ) {
        self.complete_letter(&waiting, &mut settlement);
        if matches!((&stage, &settlement.next), (SettlingStage::NotMade, NextState::Dead(_)))
            && settlement.emits.is_empty()
            && let Some(worker) = self.worker_of(&waiting)
        {
            settlement.emits = worker.ended(&waiting, worker::WorkerEnd::GivenUp, &settlement);
        }
        let settlement = Arc::new(settlement);
        self.effects.push_back(Effect::Settle(Arc::clone(&settlement)));
        let seq = waiting.id.seq();
        let before = self.settling.insert(seq, Settling { settlement, waiting, queue, stage });
        assert!(before.is_none(), "a delivery is settled once at a time");
    }

    pub(super) fn settled(&mut self, delivery: DeliveryId, fate: SettlementResult, now: Timestamp) {
        let seq = delivery.seq();
        let Some(Settling { settlement, waiting, queue, stage }) = self.settling.remove(&seq) else { return };
        if let SettlingStage::Over { .. } = stage {
            self.shares.give_back(self.queues[queue.0].service.0);
            self.clear_alone(&waiting);
            self.wake_for_share();
        }
        if fate == SettlementResult::Stale {
            // Another path settled it; what is left of it on disk is found by loading.
            self.clear_alone(&waiting);
            if let SettlingStage::ToBeMade(start) = stage {
                self.cancel_start(queue, *start);
            }
            self.forget(queue, seq);
            self.queues[queue.0].explore();
            self.look_for_more(queue, now);
            return self.effects.push_back(Effect::Activity(Box::new(EngineActivity::Stale(delivery))));
        }
        if matches!(settlement.next, NextState::Delivered | NextState::Dead(_)) {
            let ended = self.replays.settled(&waiting, &settlement);
            self.report_replay(ended);
        }
        let row = PendingDelivery {
            attempts: settlement.attempts,
            history: settlement.history.clone(),
            book: Some(settlement.book),
            written_at: settlement.at,
            start_recorded: settlement.next == NextState::Starting,
            ..waiting.clone()
        };
        if let Some(service) = &settlement.pause {
            // An operator may have resumed it between the call's end and now: the last write wins.
            let place = self.service(service);
            self.services[place.0].pause(now);
            self.effects.push_back(Effect::Activity(Box::new(EngineActivity::Paused(service.clone()))));
        }
        let made = match &stage {
            SettlingStage::Over { dependency, beside } => Some(CompletedCall {
                dependency: self.dependencies[dependency.0].name.clone(),
                beside: *beside,
            }),
            SettlingStage::NotMade | SettlingStage::ToBeMade(_) => None,
        };
        match (&settlement.next, stage) {
            (NextState::Delivered | NextState::Dead(_), _) => self.forget(queue, seq),
            (NextState::Ready, _) => {
                self.line_up(queue, PendingDelivery { due_at: None, ..row }, PushAt::Front, now);
            }
            (NextState::Due { at }, _) if *at <= now => {
                self.line_up(queue, PendingDelivery { due_at: Some(*at), ..row }, PushAt::Back, now);
            }
            (NextState::Due { at }, _) => {
                self.wait_for(queue, *at, PendingDelivery { due_at: Some(*at), ..row }, now);
            }
            (NextState::Starting, SettlingStage::ToBeMade(start)) => {
                return self.begin_recorded(queue, row, *start, now);
            }
            (NextState::Starting, SettlingStage::Over { .. } | SettlingStage::NotMade) => {
                unreachable!("a start is recorded before a call")
            }
        }
        let activity = EngineActivity::Settled { delivery: waiting, settlement, made };
        self.effects.push_back(Effect::Activity(Box::new(activity)));
    }

    fn settlement(
        tried: &AttemptContext<'_>,
        outcome: &Outcome,
        reply: &TargetReply,
        decision: &Decision,
        now: Timestamp,
    ) -> Settlement {
        let AttemptContext { row, rule, book, started_at } = *tried;
        let (status, response, receipt) = match &reply.seen {
            ReplyKind::Http { status, body, .. } | ReplyKind::Unexpected { status, body, .. } => {
                (Some(*status), body.as_str(), "")
            }
            ReplyKind::Taken => (None, "", beginning(&reply.message)),
            ReplyKind::Transport(_)
            | ReplyKind::Process(_)
            | ReplyKind::Broker(_)
            | ReplyKind::Malformed(_)
            | ReplyKind::ConfigMissing
            | ReplyKind::SecretUnavailable
            | ReplyKind::Internal => (None, "", ""),
        };
        let facts = AttemptFacts {
            attempt: row.next_attempt(),
            started_at,
            ended_at: now,
            book,
            rule,
            outcome: Some(outcome),
            status,
            response,
            receipt,
            held: row.history.held(now),
        };
        let next = match decision.verdict {
            Verdict::Deliver => NextState::Delivered,
            Verdict::Retry { due_at } => NextState::Due { at: due_at },
            Verdict::Hold { until } => NextState::Due { at: until },
            Verdict::DeadLetter { reason, tier } => {
                let Outcome::Failed(failure) = outcome else {
                    unreachable!("only a failure becomes a dead letter")
                };
                let code = reason.code().map_or_else(|| failure.code.clone(), FailureCode::of);
                NextState::Dead(Box::new(dead_letter_info(row, failure, code, tier)))
            }
            Verdict::Pause => NextState::Ready,
        };
        Settlement {
            delivery: row.id,
            attempts_before: row.attempts,
            attempts: row.next_attempt().get(),
            next,
            history: row.history.after(decision, now),
            book,
            record: Some(Box::new(AttemptRecord::of(&facts, decision))),
            pause: (decision.verdict == Verdict::Pause).then(|| row.queue.service.clone()),
            stop: None,
            emits: Vec::new(),
            at: now,
        }
    }

    /// No attempt: only absences and pauses enter the history, and the count of attempts stays.
    pub(super) fn settlement_without_attempt(
        &self,
        row: &PendingDelivery,
        next: NextState,
        now: Timestamp,
    ) -> Settlement {
        Settlement {
            delivery: row.id,
            attempts_before: row.attempts,
            attempts: row.attempts,
            next,
            history: self.history_by_now(row, now),
            book: row.book.unwrap_or_else(|| self.book.hash()),
            record: None,
            pause: None,
            stop: None,
            emits: Vec::new(),
            at: now,
        }
    }

    pub(super) fn dead_letter_held(
        &mut self,
        queue: QueuePlace,
        ready: ReadyDelivery,
        history: History,
        decision: &Decision,
        now: Timestamp,
    ) {
        let ReadyDelivery { waiting: row, rule, .. } = ready;
        let Verdict::DeadLetter { reason, tier } = decision.verdict else {
            unreachable!("only a delivery that is given up becomes a dead letter")
        };
        let code = FailureCode::of(reason.code().expect("what did not start has no failure of its own"));
        let dependency = &rule.dependency;
        let message =
            format!("{dependency} was not available within `hold_max`, or the rule does not hold deliveries");
        let facts = AttemptFacts {
            attempt: row.next_attempt(),
            started_at: now,
            ended_at: now,
            book: self.book.hash(),
            rule: &rule,
            outcome: None,
            status: None,
            response: "",
            receipt: "",
            held: history.held(now),
        };
        let failure = not_started(Category::Transient, code.clone(), message);
        let settlement = Settlement {
            history,
            book: self.book.hash(),
            record: Some(Box::new(AttemptRecord::of(&facts, decision))),
            ..self.settlement_without_attempt(
                &row,
                NextState::Dead(Box::new(dead_letter_info(&row, &failure, code, tier))),
                now,
            )
        };
        self.settle(queue, row, settlement, SettlingStage::NotMade);
    }

    pub(super) fn is_past_deadline(&self, ready: &ReadyDelivery, now: Timestamp) -> bool {
        let Some(deadline) = ready.rule.deadline else { return false };
        let history = self.history_of(&ready.waiting, &ready.rule, now);
        history.first_attempt_at().is_some_and(|first| now.since(first) > deadline)
    }

    pub(super) fn dead_letter_late(&mut self, queue: QueuePlace, ready: ReadyDelivery, now: Timestamp) {
        let message = "the deadline passed before the attempt could start".to_owned();
        let failure = not_started(Category::Transient, FailureCode::of(codes::DEADLINE_EXCEEDED), message);
        self.dead_letter_unstarted(queue, ready.waiting, HoldReason::Deadline, &failure, now);
    }

    /// Whether its target has returned a notification id, and so is not called again.
    pub(super) fn is_notified(ready: &ReadyDelivery) -> bool {
        ready.rule.copies.keeps_notification_ids() && ready.waiting.history.notified().is_some()
    }

    /// Its target has sent the notification already: delivered without another call.
    pub(super) fn deliver_notified(&mut self, queue: QueuePlace, ready: ReadyDelivery, now: Timestamp) {
        let verdict = RecordedVerdict::Delivered;
        self.settle_unstarted(queue, ready.waiting, HoldReason::Notified, verdict, NextState::Delivered, now);
    }

    pub(super) fn dead_letter_unrouted(&mut self, queue: QueuePlace, row: PendingDelivery, now: Timestamp) {
        let message = "no rule matches this event any more".to_owned();
        let failure = not_started(Category::Fatal, FailureCode::of(codes::RULE_REMOVED), message);
        self.dead_letter_unstarted(queue, row, HoldReason::RuleRemoved, &failure, now);
    }

    /// The stored event is damaged: no target gets it. Its code raises an alert at once.
    pub(super) fn dead_letter_damaged(&mut self, queue: QueuePlace, row: PendingDelivery, now: Timestamp) {
        let message = "the stored event is damaged and was not delivered".to_owned();
        let failure = not_started(Category::Internal, FailureCode::of(codes::DAMAGED), message);
        self.dead_letter_unstarted(queue, row, HoldReason::Damage, &failure, now);
    }

    /// No rule matches it any more: it waits for a book that has one.
    pub(super) fn park_without_rule(&mut self, queue: QueuePlace, row: PendingDelivery, now: Timestamp) {
        let until = Timestamp::NEVER;
        let (verdict, next) = (RecordedVerdict::Hold { until }, NextState::Due { at: until });
        self.settle_unstarted(queue, row, HoldReason::RuleRemoved, verdict, next, now);
    }

    fn dead_letter_unstarted(
        &mut self,
        queue: QueuePlace,
        row: PendingDelivery,
        by: HoldReason,
        failure: &Failure,
        now: Timestamp,
    ) {
        let code = failure.code.clone();
        let next = NextState::Dead(Box::new(dead_letter_info(&row, failure, code.clone(), Tier::Dead)));
        self.settle_unstarted(queue, row, by, RecordedVerdict::Dead { code, tier: Tier::Dead }, next, now);
    }

    fn settle_unstarted(
        &mut self,
        queue: QueuePlace,
        row: PendingDelivery,
        by: HoldReason,
        verdict: RecordedVerdict,
        next: NextState,
        now: Timestamp,
    ) {
        let record = Some(Box::new(AttemptRecord {
            attempt: row.next_attempt(),
            started_at: now,
            took_nanos: 0,
            end: AttemptEnd::Held { by },
            book: self.book.hash(),
            verdict,
            classified_at: None,
            reaction_at: None,
            retry: None,
            held_nanos: 0,
        }));
        let settlement = Settlement { record, ..self.settlement_without_attempt(&row, next, now) };
        self.settle(queue, row, settlement, SettlingStage::NotMade);
    }

    /// Its start was recorded and its end was not: Redrive crashed during it, and it counts as an attempt.
    pub(super) fn interrupted_by_crash(
        &mut self,
        queue: QueuePlace,
        row: PendingDelivery,
        rule: &Arc<Rule>,
        now: Timestamp,
    ) {
        let started =
            PendingDelivery { history: row.history.started(row.written_at), start_recorded: false, ..row };
        let row = PendingDelivery { history: self.history_of(&started, rule, now), ..started };
        let message = "Redrive crashed during this attempt".to_owned();
        let code = FailureCode::of(codes::INTERRUPTED);
        let outcome = Outcome::Failed(not_started(Category::Internal, code, message.clone()));
        let ended = AttemptResult::Outcome(outcome.clone());
        let moment = Moment { now, seed: self.seed, delivery: row.id, attempt: row.next_attempt() };
        let decision = decide(rule, &row.history, &ended, &moment);
        let reply = TargetReply { seen: ReplyKind::Internal, message, retry_after: None };
        let tried = AttemptContext { row: &row, rule, book: self.book.hash(), started_at: row.written_at };
        let mut settlement = Self::settlement(&tried, &outcome, &reply, &decision, now);
        if let Some(worker) = self.worker_of(&row) {
            let end = worker::WorkerEnd::Run { outcome: &outcome, reply: &reply, report: None };
            settlement.emits = worker.ended(&row, end, &settlement);
        }
        self.report_alert(&row, &decision, &settlement);
        self.settle(queue, row, settlement, SettlingStage::NotMade);
    }

    pub(super) fn worker_of(&self, row: &PendingDelivery) -> Option<&Worker> {
        worker_of(&self.book, row)
    }

    fn report_alert(&mut self, row: &PendingDelivery, decision: &Decision, settlement: &Settlement) {
        if let Some(kind) = decision.alert {
            let code = match settlement.record.as_ref().map(|record| &record.end) {
                Some(AttemptEnd::Failed { code, .. }) => code.to_string(),
                Some(AttemptEnd::Delivered { .. } | AttemptEnd::Held { .. }) | None => String::new(),
            };
            let activity =
                EngineActivity::Alert { kind, queue: Arc::clone(&row.queue), delivery: row.id, code };
            self.effects.push_back(Effect::Activity(Box::new(activity)));
        }
    }
}

#[derive(Clone, Copy)]
struct AttemptContext<'a> {
    row: &'a PendingDelivery,
    rule: &'a Rule,
    book: u64,
    started_at: Timestamp,
}

fn beginning(message: &str) -> &str {
    &message[..message.floor_char_boundary(limits::MESSAGE_BYTES_MAX)]
}

fn worker_of<'a>(book: &'a RuleBook, row: &PendingDelivery) -> Option<&'a Worker> {
    book.worker(row.queue.service.as_str(), row.queue.channel.as_ref().map(ChannelName::as_str))
}

fn not_started(category: Category, code: FailureCode, message: String) -> Failure {
    Failure {
        category,
        code,
        status: None,
        message,
        retry_after: None,
        matched: None,
        default_category: None,
        connection: ConnectionStatus::Made,
    }
}

/// By the failure alone; the rule book's part is added when it is settled.
fn dead_letter_info(
    row: &PendingDelivery,
    failure: &Failure,
    code: FailureCode,
    tier: Tier,
) -> DeadLetterInfo {
    let service = &row.queue.service;
    DeadLetterInfo {
        category: failure.category,
        code,
        failure_code: failure.code.clone(),
        tier,
        message: failure.message.clone(),
        fingerprint: Fingerprint::of(service, failure.category, &failure.code, &failure.message),
        name: String::new(),
        consumer_group: String::new(),
        followers: SessionFollowers::Continue,
    }
}
