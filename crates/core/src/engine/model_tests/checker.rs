//! Says whether the promise was kept, from what can be seen outside of the engine: what clients were answered,
//! which calls targets got, what is durable, and what people and the plan did to it.
//!
//! Every claim is one that must hold whatever the engine does inside, crashes included. Where only the engine
//! could know better (how long a breaker held one delivery, say), the claim is the widest that is still true.
//! All times are those of Redrive's own clock, which rules are written for; it goes on over restarts.

mod breakers;
mod dead_letters;
mod fairness;
mod letters;
mod replays;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::breakers::Breakers;
use self::fairness::Fairness;
pub(super) use self::letters::Closing;
use self::replays::ReplaySeen;
use self::sessions::Sessions;
use super::books::{Book, Claim, OnFatal, Order, Policy, Spec, dependency_name};
use super::store::{Lane, Outcome};
use super::targets::Means;
use crate::engine::{CallId, OperatorCommand, PendingDelivery, QueueName, SessionFollowers, TargetCall};
use crate::event::Event;
use crate::ids::{DeliveryId, ServiceName};
use crate::letters::replay::ReplayId;
use crate::time::Timestamp;

/// Redrive says at least this often that it is alive; an absence may be counted from the last time it did.
const SILENCE_MAX: Duration = Duration::from_millis(1_500);

/// The end of an absence is recorded a little before the engine learns of it.
const NOTICED_WITHIN: Duration = Duration::from_millis(25);

/// What was broken, and how it showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub rule: &'static str,
    pub how: String,
}

/// Looks on.
#[derive(Debug)]
pub(super) struct Checker {
    books: Vec<Arc<Spec>>,
    /// The one in force.
    book: usize,
    /// A service that comes with a new book has its part at once, whatever others have in flight.
    calls_max: usize,
    deliveries: BTreeMap<DeliveryId, Delivery>,
    /// Those without any call.
    fresh: BTreeSet<DeliveryId>,
    sessions: Sessions,
    replays: BTreeMap<ReplayId, ReplaySeen>,
    /// The ids of events that were acknowledged.
    acknowledged: BTreeSet<String>,
    in_flight: BTreeMap<CallId, Vec<DeliveryId>>,
    /// Deliveries with a call that is over, until that is durable.
    unwritten: BTreeSet<DeliveryId>,
    /// Until when no call may be made, by dependency.
    holds: BTreeMap<usize, Timestamp>,
    paused: BTreeSet<ServiceName>,
    /// When services were paused, as far as every run since knows.
    pauses: Vec<(ServiceName, Timestamp, Option<Timestamp>)>,
    away: Vec<(Timestamp, Timestamp)>,
    away_since: Option<Timestamp>,
    breakers: Breakers,
    /// Dependencies that have ever failed, or were tripped by hand.
    ailing: BTreeSet<usize>,
    crashes: Vec<Timestamp>,
    fairness: Fairness,
    violation: Option<Violation>,
    pub seen: Seen,
}

/// How much was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub calls: u64,
    pub repeated: u64,
    pub delivered: u64,
    pub dead: u64,
    pub replays: u64,
    pub stopped: u64,
    /// Letters that replays have sent.
    pub sent: u64,
    /// Letters that were skipped, purged or superseded.
    pub closed: u64,
}

#[derive(Debug)]
struct Delivery {
    event_id: String,
    queue: Arc<QueueName>,
    event_type: String,
    lane: Option<Lane>,
    /// Its place in the order of its session.
    turn: u64,
    /// When it was accepted, or came back.
    accepted_at: Timestamp,
    attempts: u32,
    /// How many attempts it had when it last came back.
    attempts_before: u32,
    ended: Ended,
    /// Since it came back last.
    calls: Vec<CallSeen>,
    /// The replay that has sent it.
    by: Option<ReplayId>,
    /// How often replays have sent it.
    times: u32,
    /// When it died last.
    died_at: Timestamp,
    /// It has failed a replay for good.
    is_poison: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    NotYet,
    Delivered,
    Dead,
    Skipped,
    Purged,
    Superseded,
}

/// One call of one delivery.
#[derive(Debug)]
struct CallSeen {
    id: CallId,
    attempt: u32,
    claim: Arc<Claim>,
    book: usize,
    started_at: Timestamp,
    end: CallEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallEnd {
    /// It runs.
    Running,
    /// Redrive went down, or away, before it knew.
    Unknown,
    At(Timestamp, Means),
}

impl Delivery {
    fn last_end(&self) -> Option<(&CallSeen, Timestamp, Means)> {
        self.calls.iter().rev().find_map(|call| match call.end {
            CallEnd::At(at, means) => Some((call, at, means)),
            CallEnd::Running | CallEnd::Unknown => None,
        })
    }
}

impl Checker {
    pub(super) fn new(books: &[Book], calls_max: u32) -> Self {
        let books: Vec<Arc<Spec>> = books.iter().map(|book| Arc::new(book.spec.clone())).collect();
        Self {
            breakers: Breakers::new(&books[0]),
            ailing: BTreeSet::new(),
            crashes: Vec::new(),
            fairness: Fairness::default(),
            book: 0,
            calls_max: calls_max as usize + if books.len() > 1 { books[0].takers.len() } else { 0 },
            books,
            deliveries: BTreeMap::new(),
            fresh: BTreeSet::new(),
            sessions: Sessions::default(),
            replays: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            holds: BTreeMap::new(),
            paused: BTreeSet::new(),
            pauses: Vec::new(),
            away: Vec::new(),
            away_since: None,
            violation: None,
            seen: Seen::default(),
        }
    }

    /// The first thing that was broken.
    pub(super) const fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    pub(super) fn broken(&mut self, rule: &'static str, how: String) {
        self.violation.get_or_insert(Violation { rule, how });
    }

    /// Since when Redrive has been away, if it is.
    pub(super) const fn away_since(&self) -> Option<Timestamp> {
        self.away_since
    }

    fn spec(&self) -> Arc<Spec> {
        Arc::clone(&self.books[self.book])
    }

    /// A delivery is durable.
    pub(super) fn accepted(
        &mut self,
        id: DeliveryId,
        queue: &Arc<QueueName>,
        event: &Event,
        lane: Option<Lane>,
        now: Timestamp,
    ) {
        let turn = id.seq().get();
        if let Some(lane) = lane {
            let is_dead = |id: &DeliveryId| self.deliveries[id].ended == Ended::Dead;
            self.sessions.join(lane, turn, id, is_dead);
        }
        self.add(id, queue, event, (lane, turn), now);
    }

    fn add(
        &mut self,
        id: DeliveryId,
        queue: &Arc<QueueName>,
        event: &Event,
        (lane, turn): (Option<Lane>, u64),
        now: Timestamp,
    ) {
        let delivery = Delivery {
            event_id: event.id.as_str().to_owned(),
            queue: Arc::clone(queue),
            event_type: event.event_type.as_str().to_owned(),
            lane,
            turn,
            accepted_at: now,
            attempts: 0,
            attempts_before: 0,
            ended: Ended::NotYet,
            calls: Vec::new(),
            by: None,
            times: 0,
            died_at: Timestamp::EPOCH,
            is_poison: false,
        };
        self.deliveries.insert(id, delivery);
        self.fresh.insert(id);
    }

    /// A client's event was acknowledged; so many deliveries of it are durable, if it is.
    pub(super) fn acknowledged(&mut self, event: &Event, durable: Option<usize>) {
        if durable.is_none() {
            self.broken("nothing acknowledged is lost", format!("{} is not in the store", event.id));
        }
        self.acknowledged.insert(event.id.as_str().to_owned());
    }

    /// A settlement is durable.
    pub(super) fn settled(&mut self, id: DeliveryId, attempts: u32) {
        let delivery = self.deliveries.get_mut(&id).expect("only what was accepted is settled");
        delivery.attempts = attempts;
        if delivery.calls.iter().all(|call| call.attempt <= attempts) {
            self.unwritten.remove(&id);
        }
    }

    /// An outcome is durable.
    pub(super) fn ended_for_good(&mut self, id: DeliveryId, outcome: Outcome<'_>, at: Timestamp) {
        let delivery = &self.deliveries[&id];
        if delivery.ended != Ended::NotYet {
            return self.broken("one outcome per delivery", format!("{id} ended twice"));
        }
        let last = delivery.last_end().map(|(_, _, means)| means);
        let ended = match outcome {
            Outcome::Delivered => {
                if last != Some(Means::Delivered) {
                    self.broken("delivered means delivered", format!("{id} ended well after {last:?}"));
                }
                self.seen.delivered += 1;
                Ended::Delivered
            }
            Outcome::Dead(info) => {
                if let Some(why_not) = self.dead_letter_is_early(delivery, info, at) {
                    let code = &info.code;
                    self.broken(
                        "dead letter only by the rule",
                        format!("{id} died at {at} of {code:?}: {why_not}"),
                    );
                }
                self.seen.dead += 1;
                Ended::Dead
            }
        };
        self.fresh.remove(&id);
        let info = match outcome {
            Outcome::Delivered => None,
            Outcome::Dead(info) => Some(info),
        };
        let holds = info.is_some_and(|info| self.holds_its_session(id, info.followers));
        let delivery = self.deliveries.get_mut(&id).expect("seen above");
        delivery.ended = ended;
        delivery.died_at = at;
        match delivery.lane {
            Some(lane) if holds => self.sessions.holds(lane, delivery.turn, id),
            Some(lane) => self.sessions.leave(lane, delivery.turn, id),
            None => {}
        }
        self.letter_ended(id, info);
    }

    /// Whether those behind a dead letter wait: where books differ, by what was written down.
    fn holds_its_session(&self, id: DeliveryId, followers: SessionFollowers) -> bool {
        let queue = &self.deliveries[&id].queue;
        let orders = self.books.iter().flat_map(|book| &book.takers).filter(|taker| taker.queue == *queue);
        let mut orders: Vec<Order> = orders.map(|taker| taker.order).collect();
        orders.dedup();
        match orders[..] {
            [order] => order == Order::Strict,
            _ => followers == SessionFollowers::Wait,
        }
    }

    /// A target is called.
    pub(super) fn started(&mut self, call: &TargetCall, now: Timestamp) {
        for row in &call.deliveries {
            self.seen.calls += 1;
            self.check_start(row, call, now);
        }
        let ids = call.deliveries.iter().map(|row| row.id).collect();
        self.in_flight.insert(call.id, ids);
        let in_flight = self.in_flight.values().map(Vec::len).sum::<usize>();
        if in_flight > self.calls_max {
            let how = format!("{in_flight} in flight, {} allowed", self.calls_max);
            self.broken("calls in flight are bounded", how);
        }
    }

    fn check_start(&mut self, row: &PendingDelivery, call: &TargetCall, now: Timestamp) {
        let (id, attempt) = (row.id, row.next_attempt().get());
        let spec = self.spec();
        let Some(delivery) = self.deliveries.get(&id) else {
            return self.broken("only what is durable starts", format!("{id} started"));
        };
        let Some(claim) = spec.claim(&delivery.queue, &delivery.event_type).map(Arc::clone) else {
            return self.broken("what no rule wants is held", format!("{id} of {} started", delivery.queue));
        };
        let service = &delivery.queue.service;
        let running = delivery.calls.iter().any(|earlier| earlier.end == CallEnd::Running);
        let how = format!("attempt {attempt} of {id} for {} at {now}", delivery.queue);
        let repeats = delivery.calls.iter().any(|earlier| earlier.attempt == attempt);
        let problem = if running {
            Some(("never two calls of one delivery at a time", how))
        } else if delivery.ended != Ended::NotYet {
            Some(("one outcome per delivery", format!("{how}, though it is {:?}", delivery.ended)))
        } else if attempt != delivery.attempts + 1 {
            let ended = delivery.attempts;
            Some(("only what was in flight is repeated", format!("{how}, though {ended} have ended")))
        } else if row.replaying.map(|replaying| replaying.replay) != delivery.by {
            let (named, by) = (row.replaying, delivery.by);
            Some(("a call names its replay", format!("{how}: {named:?}, and it was sent by {by:?}")))
        } else if let Some(earlier) = self.open_before(delivery, id) {
            Some(("order within a session", format!("{how}, though {earlier} has not ended")))
        } else if self.paused.contains(service) {
            Some(("nothing starts for a paused service", how))
        } else if self.away_since.is_some() {
            Some(("nothing starts while the store fails", how))
        } else {
            self.start_out_of_rule(delivery, attempt, &claim, now)
                .map(|(rule, why)| (rule, how + ", " + &why))
        };
        if let Some((rule, how)) = problem {
            self.broken(rule, how);
        }
        if let Some(how) = self.breakers.started(claim.dependency, call.id, now) {
            self.broken("an open breaker passes only probes", format!("{id}: {how}"));
        }
        self.seen.repeated += u64::from(repeats);
        self.fresh.remove(&id);
        self.fairness.started(&self.deliveries[&id].queue);
        let seen =
            CallSeen { id: call.id, attempt, book: self.book, started_at: now, end: CallEnd::Running, claim };
        self.deliveries.get_mut(&id).expect("seen above").calls.push(seen);
        self.check_dependency_room(id, now);
    }

    fn check_dependency_room(&mut self, id: DeliveryId, now: Timestamp) {
        let delivery = &self.deliveries[&id];
        let dependency = delivery.calls.last().expect("it has just started").claim.dependency;
        let limit = self.books.iter().map(|book| book.dependencies[dependency].in_flight).max();
        let limit = limit.expect("there are books") as usize;
        let same = |id: &&DeliveryId| {
            self.deliveries[*id].calls.last().is_some_and(|call| call.claim.dependency == dependency)
        };
        let others = self.in_flight.values().flatten().filter(same).count();
        if others >= limit {
            let how = format!("{} of {limit} calls on d{dependency} at {now}", others + 1);
            self.broken("calls in flight are bounded", how);
        }
        if let Some(until) = self.holds.get(&dependency).filter(|until| now < **until) {
            let how = format!("{id} at {now}, though d{dependency} asked to wait until {until}");
            self.broken("Retry-After holds the whole dependency", how);
        }
    }

    fn open_before(&self, delivery: &Delivery, id: DeliveryId) -> Option<DeliveryId> {
        self.sessions.head(delivery.lane?).filter(|head| *head != id)
    }

    /// Whether the rule allows that attempt now; if not, why not.
    fn start_out_of_rule(
        &self,
        delivery: &Delivery,
        attempt: u32,
        claim: &Claim,
        now: Timestamp,
    ) -> Option<(&'static str, String)> {
        let pauses = |call: &&CallSeen| match call.end {
            CallEnd::At(_, means) => means == Means::Fatal && call.claim.on_fatal == OnFatal::Pause,
            CallEnd::Running | CallEnd::Unknown => false,
        };
        let pauses = delivery.calls.iter().filter(pauses).count();
        let retries_max = self.retries_max(delivery);
        let first = delivery.attempts_before + 1;
        if (attempt - first) as usize > retries_max as usize + pauses {
            return Some(("attempts within the rule", format!("{retries_max} retries are allowed")));
        }
        // A first attempt that was cut short by a crash is not remembered: the last one of that number is.
        let first =
            delivery.calls.iter().rev().find(|call| call.attempt == first).filter(|_| attempt > first);
        if let (Some(deadline), Some(first)) = (claim.deadline, first) {
            let age = now.since(first.started_at).saturating_sub(self.excused(first.started_at, now));
            let silence = SILENCE_MAX * u32::try_from(self.away.len()).expect("few");
            if age > deadline + silence {
                return Some((
                    "time within the rule",
                    format!("{age:?} old, with a deadline of {deadline:?}"),
                ));
            }
        }
        let before = delivery.calls.iter().rev().find(|call| call.attempt + 1 == attempt)?;
        let CallEnd::At(ended_at, means) = before.end else { return None };
        let policies = &self.books[before.book].policies;
        let wait = match means {
            Means::Transient | Means::Unknown => policies[before.claim.transient].delay_min(),
            Means::RateLimited(asked) => {
                policies[before.claim.rate_limited].delay_min().max(asked.unwrap_or_default())
            }
            Means::Fatal if before.claim.on_fatal == OnFatal::Pause => Duration::ZERO,
            Means::Fatal | Means::Permanent | Means::Delivered => {
                return Some(("attempts within the rule", format!("the last one was {means:?}")));
            }
        };
        let waited = now.since(ended_at);
        (waited < wait).then(|| ("time within the rule", format!("{waited:?} after the last, not {wait:?}")))
    }

    /// The most retries that any book gives it.
    fn retries_max(&self, delivery: &Delivery) -> u32 {
        let of = |spec: &Arc<Spec>| {
            let claim = spec.claim(&delivery.queue, &delivery.event_type)?;
            Some(spec.policies[claim.transient].retries.max(spec.policies[claim.rate_limited].retries))
        };
        self.books.iter().filter_map(of).max().expect("the first book wants it")
    }

    fn policy<'a>(&'a self, call: &CallSeen, means: Means) -> Option<&'a Policy> {
        let policies = &self.books[call.book].policies;
        match means {
            Means::Transient | Means::Unknown => Some(&policies[call.claim.transient]),
            Means::RateLimited(_) => Some(&policies[call.claim.rate_limited]),
            Means::Delivered | Means::Permanent | Means::Fatal => None,
        }
    }

    /// A call is over.
    pub(super) fn ended(&mut self, call: CallId, means: Means, now: Timestamp) {
        for id in self.in_flight.remove(&call).unwrap_or_default() {
            let delivery = self.deliveries.get_mut(&id).expect("it started");
            let seen = delivery.calls.iter_mut().find(|seen| seen.id == call && seen.end == CallEnd::Running);
            let Some(seen) = seen else { continue };
            seen.end = CallEnd::At(now, means);
            self.unwritten.insert(id);
            let dependency = seen.claim.dependency;
            self.fairness.ended(&delivery.queue);
            self.breakers.ended(dependency, call, means, now);
            if means.is_failure() {
                self.ailing.insert(dependency);
            }
            if let Means::RateLimited(Some(wait)) = means {
                let until = self.holds.entry(dependency).or_insert(now);
                *until = (*until).max(now + wait);
            }
        }
    }

    /// The process is gone, and with it all that it knew of calls in flight.
    pub(super) fn went_down(&mut self, now: Timestamp) {
        for ids in std::mem::take(&mut self.in_flight).into_values() {
            for id in ids {
                let calls = &mut self.deliveries.get_mut(&id).expect("it started").calls;
                for call in calls.iter_mut().filter(|call| call.end == CallEnd::Running) {
                    call.end = CallEnd::Unknown;
                }
            }
        }
        // What ended and was not written down is as if it had not.
        for id in std::mem::take(&mut self.unwritten) {
            let delivery = self.deliveries.get_mut(&id).expect("it started");
            for call in delivery.calls.iter_mut().filter(|call| call.attempt > delivery.attempts) {
                call.end = CallEnd::Unknown;
            }
        }
        self.holds.clear();
        self.breakers.forget();
        self.fairness.went_down();
        self.away_since.get_or_insert(now);
    }

    /// It is back, and knows what is durable.
    pub(super) fn came_up<'a>(&mut self, now: Timestamp, paused: impl Iterator<Item = &'a ServiceName>) {
        self.paused = paused.cloned().collect();
        // A pause that was over before is not remembered: it may use up windows.
        self.pauses.retain(|(_, _, until)| until.is_none());
        self.store_is_back(now);
        self.replays_came_up();
        self.crashes.push(now);
    }

    /// The store has said that it takes nothing.
    pub(super) fn store_fails(&mut self, now: Timestamp) {
        self.away_since.get_or_insert(now);
        self.fairness.disturbed();
    }

    /// It does again.
    pub(super) fn store_is_back(&mut self, now: Timestamp) {
        if let Some(since) = self.away_since.take() {
            self.away.push((since, now));
        }
        self.fairness.disturbed();
    }

    /// A rule has paused its service, and that is durable.
    pub(super) fn paused_by_rule(&mut self, service: &ServiceName, now: Timestamp) {
        if self.paused.insert(service.clone()) {
            self.pauses.push((service.clone(), now, None));
        }
        self.fairness.disturbed();
    }

    /// An operator's wish is durable, and the engine is about to know.
    pub(super) fn commanded(&mut self, command: &OperatorCommand, now: Timestamp) {
        self.fairness.disturbed();
        match command {
            OperatorCommand::Pause(service) => self.paused_by_rule(service, now),
            OperatorCommand::Resume(service) => {
                self.paused.remove(service);
                let pauses =
                    self.pauses.iter_mut().filter(|(paused, _, until)| paused == service && until.is_none());
                pauses.for_each(|(_, _, until)| *until = Some(now));
            }
            OperatorCommand::Trip(name) => {
                let is_meant = |place: &usize| dependency_name(*place) == *name;
                self.ailing.extend((0..self.spec().dependencies.len()).find(is_meant));
                self.breakers.tripped(name.as_str(), now);
            }
            // A delivery that starts alone has its permit a while before its call begins.
            OperatorCommand::Reset(name) if self.is_cautious(now) => {
                self.breakers.reset_in_between(name.as_str());
            }
            OperatorCommand::Reset(name) => self.breakers.reset(name.as_str()),
        }
    }

    /// The book at that place is in force.
    pub(super) fn reads(&mut self, book: usize) {
        self.book = book;
        self.breakers.reread(&self.books[book]);
        self.fairness.disturbed();
    }

    /// Time that uses up nothing: Redrive was down or could not write.
    fn excused(&self, from: Timestamp, to: Timestamp) -> Duration {
        let overlap = |(start, end): &(Timestamp, Timestamp)| {
            to.min(*end).since(from.max(*start)).saturating_sub(NOTICED_WITHIN)
        };
        let lasting = self.away_since.map_or(Duration::ZERO, |since| to.since(from.max(since)));
        self.away.iter().map(overlap).sum::<Duration>() + lasting
    }

    /// All is healed and nothing happens any more.
    pub(super) fn finished(&mut self, still_open: &[String]) {
        // What waits behind a dead letter waits for people, who can see that.
        let is_held = |delivery: &Delivery| {
            let head = delivery.lane.and_then(|lane| self.sessions.head(lane));
            head.is_some_and(|head| self.deliveries[&head].ended == Ended::Dead)
        };
        let is_lost = |delivery: &Delivery| {
            delivery.ended == Ended::NotYet
                && self.acknowledged.contains(&delivery.event_id)
                && !is_held(delivery)
        };
        let lost = self.deliveries.iter().find(|(_, delivery)| is_lost(delivery));
        if let Some((id, delivery)) = lost {
            let how = format!("{id} of {} for {} has no outcome", delivery.event_id, delivery.queue);
            self.broken("nothing acknowledged is lost", how);
        }
        if let Some(how) = self.stuck_replay() {
            self.broken("every replay goes on", how);
        }
        if let Some(first) = still_open.first() {
            let how = format!("{} are open, such as {first}", still_open.len());
            self.broken("everything settles after faults heal", how);
        }
    }
}
