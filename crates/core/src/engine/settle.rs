//! What follows when a call is over: outcomes become settlements, and settlements that are durable let go.

use std::sync::Arc;

use super::port::{CallId, Death, Effect, Ending, Fate, Followers, Made, Next, Settlement, Signal, Waiting};
use super::queue::{PushAt, Ready, Starts};
use super::{Engine, InFlight, QueuePlace, Settling, Stage};
use crate::book::RuleBook;
use crate::engine::story::{End, Facts, HeldBy, Story, Told};
use crate::engine::worker::{self, Worker};
use crate::event::copies;
use crate::ids::{ChannelName, DeliveryId};
use crate::letters::envelope::Tier;
use crate::letters::fingerprint::Fingerprint;
use crate::policy::answer::{Reply, Seen};
use crate::policy::breaker::Observation;
use crate::policy::category::{Category, Code, codes};
use crate::policy::classify::{Connection, Failure, Outcome, classify};
use crate::policy::decide::{Decision, Ended, History, Moment, Verdict, decide};
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
        // A batch that was answered in part has been answered: that is what the dependency is judged by.
        let mut observation = failed.map(|_| Observation::Success);
        for (index, row) in call.deliveries.iter().enumerate() {
            let delivered = Outcome::Delivered { matched: None };
            let has_failed = failed.is_none_or(|failed| failed.binary_search(&index).is_ok());
            let outcome = if has_failed { outcome.clone() } else { delivered };
            let ended = Ended::Outcome(outcome);
            let moment = Moment { now, seed: self.seed, delivery: row.id, attempt: row.next_attempt() };
            // A call may have run on while nothing could be written.
            let history = row.history.away(self.away_within(call.started_at, now));
            let row = Waiting { history, ..row.clone() };
            let decision = decide(&call.rule, &row.history, &ended, &moment);
            observation.get_or_insert(decision.observation);
            let Ended::Outcome(outcome) = ended else { unreachable!("it was made right above") };
            let attempt =
                Tried { row: &row, rule: &call.rule, book: call.book.hash(), started_at: call.started_at };
            let mut settlement = Self::settlement(&attempt, &outcome, reply, &decision, now);
            if call.rule.copies.keeps_notification_ids() && call.deliveries.len() == 1 {
                settlement.history = settlement.history.notified_as(copies::notification_id(&answer));
            }
            if let Some(worker) = worker_of(&call.book, &row) {
                let end = worker::End::Run { outcome: &outcome, reply, report };
                settlement.emits = worker.ended(&row, end, &settlement);
            }
            self.tell_alert(&row, &decision, &settlement);
            if settlement.pause.is_some() {
                let service = self.queues[queue.0].service;
                self.services[service.0].pause(now);
            }
            self.settle(queue, row, settlement, Stage::Over { dependency, beside });
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
            let signal = Signal::DependencyHeld { dependency: dependency.name.clone(), until };
            self.effects.push_back(Effect::Signal(Box::new(signal)));
        }
    }

    /// Our own shutdown: it burns nothing, and the next run finds the delivery as it was.
    fn interrupted(&mut self, in_flight: InFlight, now: Timestamp) {
        let InFlight { call, queue, dependency, ticket, starts, .. } = in_flight;
        self.dependencies[dependency.0].control.unused(ticket);
        for row in &call.deliveries {
            self.shares.give_back(self.queues[queue.0].service.0);
            if starts == Starts::OnRecord {
                // Its start is on record, and must not look as if Redrive had gone down with it.
                self.let_go_of_alone(row);
                let settlement = self.settlement_without_attempt(row, Next::Ready, now);
                self.settle(queue, row.clone(), settlement, Stage::NotMade);
            } else {
                self.forget(queue, row.id.seq());
            }
        }
        self.queues[queue.0].left_on_disk();
    }

    fn let_go_of_alone(&mut self, row: &Waiting) {
        if self.caution.alone == Some(row.id.seq()) {
            self.caution.alone = None;
        }
    }

    pub(super) fn settle(
        &mut self,
        queue: QueuePlace,
        waiting: Waiting,
        mut settlement: Settlement,
        stage: Stage,
    ) {
        self.complete_letter(&waiting, &mut settlement);
        if matches!((&stage, &settlement.next), (Stage::NotMade, Next::Dead(_)))
            && settlement.emits.is_empty()
            && let Some(worker) = self.worker_of(&waiting)
        {
            settlement.emits = worker.ended(&waiting, worker::End::GivenUp, &settlement);
        }
        let settlement = Arc::new(settlement);
        self.effects.push_back(Effect::Settle(Arc::clone(&settlement)));
        let seq = waiting.id.seq();
        let before = self.settling.insert(seq, Settling { settlement, waiting, queue, stage });
        assert!(before.is_none(), "a delivery is settled once at a time");
    }

    pub(super) fn settled(&mut self, delivery: DeliveryId, fate: Fate, now: Timestamp) {
        let seq = delivery.seq();
        let Some(Settling { settlement, waiting, queue, stage }) = self.settling.remove(&seq) else { return };
        if let Stage::Over { .. } = stage {
            self.shares.give_back(self.queues[queue.0].service.0);
            self.let_go_of_alone(&waiting);
            self.wake_for_share();
        }
        if fate == Fate::Stale {
            // Whoever settled it knows; what is left of it on disk is found by looking.
            self.let_go_of_alone(&waiting);
            if let Stage::ToBeMade(start) = stage {
                self.not_begun(queue, *start);
            }
            self.forget(queue, seq);
            self.queues[queue.0].explore();
            self.look_for_more(queue, now);
            return self.effects.push_back(Effect::Signal(Box::new(Signal::Stale(delivery))));
        }
        if matches!(settlement.next, Next::Delivered | Next::Dead(_)) {
            let ended = self.replays.settled(&waiting, &settlement);
            self.tell_replay(ended);
        }
        let row = Waiting {
            attempts: settlement.attempts,
            history: settlement.history.clone(),
            book: Some(settlement.book),
            written_at: settlement.at,
            start_recorded: settlement.next == Next::Starting,
            ..waiting.clone()
        };
        if let Some(service) = &settlement.pause {
            // Somebody may have resumed it between the call's end and now: what is written last holds.
            let place = self.service(service);
            self.services[place.0].pause(now);
            self.effects.push_back(Effect::Signal(Box::new(Signal::Paused(service.clone()))));
        }
        let made = match &stage {
            Stage::Over { dependency, beside } => {
                Some(Made { dependency: self.dependencies[dependency.0].name.clone(), beside: *beside })
            }
            Stage::NotMade | Stage::ToBeMade(_) => None,
        };
        match (&settlement.next, stage) {
            (Next::Delivered | Next::Dead(_), _) => self.forget(queue, seq),
            (Next::Ready, _) => self.line_up(queue, Waiting { due_at: None, ..row }, PushAt::Front, now),
            (Next::Due { at }, _) if *at <= now => {
                self.line_up(queue, Waiting { due_at: Some(*at), ..row }, PushAt::Back, now);
            }
            (Next::Due { at }, _) => self.wait_for(queue, *at, Waiting { due_at: Some(*at), ..row }, now),
            (Next::Starting, Stage::ToBeMade(start)) => return self.begin_recorded(queue, row, *start, now),
            (Next::Starting, Stage::Over { .. } | Stage::NotMade) => {
                unreachable!("a start is recorded before a call")
            }
        }
        let signal = Signal::Settled { delivery: waiting, settlement, made };
        self.effects.push_back(Effect::Signal(Box::new(signal)));
    }

    fn settlement(
        tried: &Tried<'_>,
        outcome: &Outcome,
        reply: &Reply,
        decision: &Decision,
        now: Timestamp,
    ) -> Settlement {
        let Tried { row, rule, book, started_at } = *tried;
        let (status, response) = match &reply.seen {
            Seen::Http { status, body, .. } => (Some(*status), body.as_str()),
            Seen::Transport(_)
            | Seen::Process(_)
            | Seen::Taken
            | Seen::Broker(_)
            | Seen::Malformed(_)
            | Seen::ConfigMissing
            | Seen::SecretUnavailable
            | Seen::Internal => (None, ""),
        };
        let facts = Facts {
            attempt: row.next_attempt(),
            started_at,
            ended_at: now,
            book,
            rule,
            outcome: Some(outcome),
            status,
            response,
            held: row.history.held(now),
        };
        let next = match decision.verdict {
            Verdict::Deliver => Next::Delivered,
            Verdict::Retry { due_at } => Next::Due { at: due_at },
            Verdict::Hold { until } => Next::Due { at: until },
            Verdict::DeadLetter { reason, tier } => {
                let Outcome::Failed(failure) = outcome else { unreachable!("only a failure is buried") };
                let code = reason.code().map_or_else(|| failure.code.clone(), Code::of);
                Next::Dead(Box::new(death(row, failure, code, tier)))
            }
            Verdict::Pause => Next::Ready,
        };
        Settlement {
            delivery: row.id,
            attempts_before: row.attempts,
            attempts: row.next_attempt().get(),
            next,
            history: row.history.after(decision, now),
            book,
            story: Some(Box::new(Story::of(&facts, decision))),
            pause: (decision.verdict == Verdict::Pause).then(|| row.queue.service.clone()),
            stop: None,
            emits: Vec::new(),
            at: now,
        }
    }

    /// Nothing was tried: the history only learns what it is excused, and the count of attempts stays.
    pub(super) fn settlement_without_attempt(&self, row: &Waiting, next: Next, now: Timestamp) -> Settlement {
        Settlement {
            delivery: row.id,
            attempts_before: row.attempts,
            attempts: row.attempts,
            next,
            history: self.history_by_now(row, now),
            book: row.book.unwrap_or_else(|| self.book.hash()),
            story: None,
            pause: None,
            stop: None,
            emits: Vec::new(),
            at: now,
        }
    }

    /// It was held for longer than its rule allows.
    pub(super) fn bury_held(
        &mut self,
        queue: QueuePlace,
        ready: Ready,
        history: History,
        decision: &Decision,
        now: Timestamp,
    ) {
        let Ready { waiting: row, rule, .. } = ready;
        let Verdict::DeadLetter { reason, tier } = decision.verdict else {
            unreachable!("only what is given up is buried")
        };
        let code = Code::of(reason.code().expect("what did not start has no failure of its own"));
        let dependency = &rule.dependency;
        let message = format!("{dependency} did not let it through within `hold_max`, or it may not wait");
        let facts = Facts {
            attempt: row.next_attempt(),
            started_at: now,
            ended_at: now,
            book: self.book.hash(),
            rule: &rule,
            outcome: None,
            status: None,
            response: "",
            held: history.held(now),
        };
        let failure = not_started(code.clone(), message);
        let settlement = Settlement {
            history,
            book: self.book.hash(),
            story: Some(Box::new(Story::of(&facts, decision))),
            ..self.settlement_without_attempt(
                &row,
                Next::Dead(Box::new(death(&row, &failure, code, tier))),
                now,
            )
        };
        self.settle(queue, row, settlement, Stage::NotMade);
    }

    pub(super) fn is_past_deadline(&self, ready: &Ready, now: Timestamp) -> bool {
        let Some(deadline) = ready.rule.deadline else { return false };
        let history = self.history_of(&ready.waiting, &ready.rule, now);
        history.first_attempt_at().is_some_and(|first| now.since(first) > deadline)
    }

    /// It waited for its turn until after its deadline.
    pub(super) fn bury_late(&mut self, queue: QueuePlace, ready: Ready, now: Timestamp) {
        let row = ready.waiting;
        let code = Code::of(codes::DEADLINE_EXCEEDED);
        let failure = not_started(code.clone(), "its deadline passed before it could start".to_owned());
        let story = self.told_without_attempt(
            &row,
            HeldBy::Deadline,
            Told::Dead { code: code.clone(), tier: Tier::Dead },
            now,
        );
        let next = Next::Dead(Box::new(death(&row, &failure, code, Tier::Dead)));
        let settlement =
            Settlement { story: Some(story), ..self.settlement_without_attempt(&row, next, now) };
        self.settle(queue, row, settlement, Stage::NotMade);
    }

    /// Whether its target has told the id of a notification, and is not called again for that.
    pub(super) fn is_notified(ready: &Ready) -> bool {
        ready.rule.copies.keeps_notification_ids() && ready.waiting.history.notified().is_some()
    }

    /// Its target has notified already: it is delivered without another call.
    pub(super) fn deliver_notified(&mut self, queue: QueuePlace, ready: Ready, now: Timestamp) {
        let row = ready.waiting;
        let story = self.told_without_attempt(&row, HeldBy::Notified, Told::Delivered, now);
        let settlement =
            Settlement { story: Some(story), ..self.settlement_without_attempt(&row, Next::Delivered, now) };
        self.settle(queue, row, settlement, Stage::NotMade);
    }

    /// No rule wants a letter that is replayed: it is a letter again, where people find it.
    pub(super) fn bury_unwanted(&mut self, queue: QueuePlace, row: Waiting, now: Timestamp) {
        let code = Code::of(codes::RULE_REMOVED);
        let failure = Failure {
            category: Category::Fatal,
            ..not_started(code.clone(), "the rule book has nobody who wants it any more".to_owned())
        };
        let verdict = Told::Dead { code: code.clone(), tier: Tier::Dead };
        let story = self.told_without_attempt(&row, HeldBy::RuleRemoved, verdict, now);
        let next = Next::Dead(Box::new(death(&row, &failure, code, Tier::Dead)));
        let settlement =
            Settlement { story: Some(story), ..self.settlement_without_attempt(&row, next, now) };
        self.settle(queue, row, settlement, Stage::NotMade);
    }

    /// Its event does not read as it was stored: no target gets it. Its code raises an alert at once.
    pub(super) fn bury_damaged(&mut self, queue: QueuePlace, row: Waiting, now: Timestamp) {
        let code = Code::of(codes::DAMAGED);
        let message = "the stored event is damaged, and was not delivered".to_owned();
        let failure = Failure { category: Category::Internal, ..not_started(code.clone(), message) };
        let verdict = Told::Dead { code: code.clone(), tier: Tier::Dead };
        let story = self.told_without_attempt(&row, HeldBy::Damage, verdict, now);
        let next = Next::Dead(Box::new(death(&row, &failure, code, Tier::Dead)));
        let settlement =
            Settlement { story: Some(story), ..self.settlement_without_attempt(&row, next, now) };
        self.settle(queue, row, settlement, Stage::NotMade);
    }

    /// No rule wants it any more: it waits for a book that does.
    pub(super) fn put_aside(&mut self, queue: QueuePlace, row: Waiting, now: Timestamp) {
        let until = Timestamp::NEVER;
        let story = self.told_without_attempt(&row, HeldBy::RuleRemoved, Told::Hold { until }, now);
        let settlement = Settlement {
            story: Some(story),
            ..self.settlement_without_attempt(&row, Next::Due { at: until }, now)
        };
        self.settle(queue, row, settlement, Stage::NotMade);
    }

    /// Its start was recorded and its end was not: Redrive went down with it, and it counts as tried.
    pub(super) fn went_down_with(
        &mut self,
        queue: QueuePlace,
        row: Waiting,
        rule: &Arc<Rule>,
        now: Timestamp,
    ) {
        let started = Waiting { history: row.history.started(row.written_at), start_recorded: false, ..row };
        let row = Waiting { history: self.history_of(&started, rule, now), ..started };
        let message = "Redrive went down while this attempt ran".to_owned();
        let failure = Failure {
            category: Category::Internal,
            ..not_started(Code::of(codes::INTERRUPTED), message.clone())
        };
        let outcome = Outcome::Failed(failure);
        let ended = Ended::Outcome(outcome.clone());
        let moment = Moment { now, seed: self.seed, delivery: row.id, attempt: row.next_attempt() };
        let decision = decide(rule, &row.history, &ended, &moment);
        let reply = Reply { seen: Seen::Internal, message, retry_after: None };
        let tried = Tried { row: &row, rule, book: self.book.hash(), started_at: row.written_at };
        let mut settlement = Self::settlement(&tried, &outcome, &reply, &decision, now);
        if let Some(worker) = self.worker_of(&row) {
            let end = worker::End::Run { outcome: &outcome, reply: &reply, report: None };
            settlement.emits = worker.ended(&row, end, &settlement);
        }
        self.tell_alert(&row, &decision, &settlement);
        self.settle(queue, row, settlement, Stage::NotMade);
    }

    /// What runs the deliveries of that queue, if they are run.
    pub(super) fn worker_of(&self, row: &Waiting) -> Option<&Worker> {
        worker_of(&self.book, row)
    }

    fn told_without_attempt(&self, row: &Waiting, by: HeldBy, verdict: Told, now: Timestamp) -> Box<Story> {
        Box::new(Story {
            attempt: row.next_attempt(),
            started_at: now,
            took_nanos: 0,
            end: End::Held { by },
            book: self.book.hash(),
            verdict,
            classified_at: None,
            reaction_at: None,
            retry: None,
            held_nanos: 0,
        })
    }

    fn tell_alert(&mut self, row: &Waiting, decision: &Decision, settlement: &Settlement) {
        if let Some(kind) = decision.alert {
            let code = match settlement.story.as_ref().map(|story| &story.end) {
                Some(End::Failed { code, .. }) => code.to_string(),
                Some(End::Delivered { .. } | End::Held { .. }) | None => String::new(),
            };
            let signal = Signal::Alert { kind, queue: Arc::clone(&row.queue), delivery: row.id, code };
            self.effects.push_back(Effect::Signal(Box::new(signal)));
        }
    }
}

/// A delivery that was tried, by a rule of that book.
#[derive(Clone, Copy)]
struct Tried<'a> {
    row: &'a Waiting,
    rule: &'a Rule,
    book: u64,
    started_at: Timestamp,
}

fn worker_of<'a>(book: &'a RuleBook, row: &Waiting) -> Option<&'a Worker> {
    book.worker(row.queue.service.as_str(), row.queue.channel.as_ref().map(ChannelName::as_str))
}

fn not_started(code: Code, message: String) -> Failure {
    Failure {
        category: Category::Transient,
        code,
        status: None,
        message,
        retry_after: None,
        matched: None,
        default_category: None,
        connection: Connection::Made,
    }
}

/// What the failure says; what the rule book says of the letter is added when it is settled.
fn death(row: &Waiting, failure: &Failure, code: Code, tier: Tier) -> Death {
    let service = &row.queue.service;
    Death {
        category: failure.category,
        code,
        failure_code: failure.code.clone(),
        tier,
        message: failure.message.clone(),
        fingerprint: Fingerprint::of(service, failure.category, &failure.code, &failure.message),
        name: String::new(),
        consumer_group: String::new(),
        followers: Followers::GoOn,
    }
}
