//! The engine: decides which call starts when, and what follows from its outcome. Inputs in, effects out; no
//! IO, no clock.
//!
//! A shell feeds it [`Input`]s, each with the time, and carries out the [`Effect`]s that
//! [`Engine::next_effect`] returns. The live server, the simulator and the tests are three such shells.
//!
//! Its state is small, and all of it can be lost: after a crash a new engine loads from the store, which
//! knows the head of each session, due times and histories.
//!
//! The path of a delivery: it enters the window of its queue (`queue.rs`), in the line of the dependency it
//! needs. Lines take turns, one call at a time, so none starves; a line that may not send waits for a share
//! of the calls (`share.rs`) or for its dependency (`dependency.rs`).
//! [`decide`](crate::policy::decide::decide) rules on the outcome, which becomes a [`Settlement`]
//! (`settle.rs`). Only when that is durable is the delivery released and the next of its session admitted.
//!
//! Invariants:
//! - a delivery is in memory at most once: `known` has it from when it enters until it is settled;
//! - in flight means started and not durably settled, and never exceeds the bound;
//! - nothing starts while the store fails, after [`Input::Stop`], or for a service that is paused or removed;
//! - the same inputs give the same effects, in the same order.

mod absence;
pub mod attempt_record;
mod dependency;
mod dispatch;
mod messages;
#[cfg(test)]
mod model_tests;
mod paging;
mod queue;
mod replays;
mod settle;
mod share;
#[cfg(test)]
mod tests;
mod view;
mod wait;
pub mod worker;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use self::absence::Absences;
use self::dependency::EngineDependency;
pub use self::messages::{
    Advance, CallId, CompletedCall, DeadLetterInfo, Effect, Ending, EngineActivity, EngineBounds, Input,
    LoadRequest, LoadScope, LoadedPage, NextState, OperatorCommand, PendingDelivery, QueueName,
    SessionFollowers, Settlement, SettlementResult, Setup, TargetCall,
};
use self::queue::{EngineQueue, PushAt, QueuePresence, ReadyDelivery, Starts};
use self::replays::ActiveReplays;
use self::share::CallShares;
pub use self::view::{DependencyView, HeldQueue, QueueView, RemovedQueue, RowView};
pub use self::wait::{StoredState, Wait, WaitQuery};
use crate::book::RuleBook;
use crate::hash::Map;
use crate::ids::{ChannelName, DependencyName, Seed, Seq, ServiceName};
use crate::letters::replay::ReplayId;
use crate::limits;
use crate::policy::admission::CallTicket;
use crate::policy::breaker::BreakerRecord;
use crate::policy::decide::History;
use crate::policy::rule::Rule;
use crate::time::Timestamp;

#[derive(Debug)]
pub struct Engine {
    seed: Seed,
    bounds: EngineBounds,
    book: Arc<RuleBook>,
    older_books: VecDeque<Arc<RuleBook>>,
    absences: Absences,
    store_failing_since: Option<Timestamp>,
    running: RunState,
    services: Vec<ServiceState>,
    service_places: Map<ServiceName, ServicePlace>,
    queues: Vec<EngineQueue>,
    queue_places: Map<Arc<QueueName>, QueuePlace>,
    dependencies: Vec<EngineDependency>,
    dependency_places: Map<DependencyName, DependencyPlace>,
    /// Breaker states of the last run, until a rule attaches to them.
    remembered_breakers: Vec<BreakerRecord>,
    shares: CallShares,
    share_waiters: VecDeque<LinePlace>,
    runnable: VecDeque<LinePlace>,
    calls: BTreeMap<CallId, InFlight>,
    last_call: CallId,
    settling: BTreeMap<Seq, Settling>,
    known: Map<Seq, usize>,
    caution: Caution,
    replays: ActiveReplays,
    timers: BTreeSet<(Timestamp, Timer)>,
    asked_to_wake_at: Option<Timestamp>,
    effects: VecDeque<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunState {
    Running,
    Stopping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ServicePlace(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct QueuePlace(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct DependencyPlace(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LinePlace {
    queue: QueuePlace,
    line: usize,
}

#[derive(Debug)]
struct ServiceState {
    /// From when to when it was paused, oldest first; the last may be open-ended. At most
    /// [`limits::PAUSES_MAX`].
    pauses: Vec<(Timestamp, Option<Timestamp>)>,
}

impl ServiceState {
    fn is_paused(&self) -> bool {
        self.pauses.last().is_some_and(|(_, until)| until.is_none())
    }

    fn pause(&mut self, now: Timestamp) {
        if !self.is_paused() {
            self.pauses.push((now, None));
            if self.pauses.len() > limits::PAUSES_MAX {
                self.pauses.remove(0);
            }
        }
    }

    fn paused_within(&self, from: Timestamp, to: Timestamp, absences: &Absences) -> Duration {
        let paused = |(start, end): &(Timestamp, Option<Timestamp>)| {
            let (start, end) = (from.max(*start), end.map_or(to, |end| to.min(end)));
            end.since(start).saturating_sub(absences.within(start, end))
        };
        self.pauses.iter().map(paused).sum()
    }
}

#[derive(Debug)]
struct InFlight {
    call: Arc<TargetCall>,
    queue: QueuePlace,
    dependency: DependencyPlace,
    ticket: CallTicket,
    /// Calls of the dependency in flight when it began, itself included.
    beside: u32,
    starts: Starts,
}

#[derive(Debug)]
struct Settling {
    settlement: Arc<Settlement>,
    waiting: PendingDelivery,
    queue: QueuePlace,
    stage: SettlingStage,
}

#[derive(Debug)]
enum SettlingStage {
    /// The call has ended; it counts as in flight until this is durable.
    Over {
        dependency: DependencyPlace,
        beside: u32,
    },
    NotMade,
    ToBeMade(Box<PendingStart>),
}

#[derive(Debug)]
struct PendingStart {
    ready: ReadyDelivery,
    dependency: DependencyPlace,
    ticket: CallTicket,
    isolation: Isolation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isolation {
    /// Redrive may crash because of it.
    Alone,
    /// Its share of the calls is taken already.
    Shared,
}

/// Care after repeated crashes: one of the waiting deliveries may cause them.
#[derive(Debug, Default)]
struct Caution {
    suspects: Option<(Seq, Timestamp)>,
    alone: Option<Seq>,
}

impl Caution {
    fn suspects(&self, seq: Seq, now: Timestamp) -> bool {
        self.suspects.is_some_and(|(last, until)| seq <= last && now < until)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Queue(QueuePlace),
    Dependency(DependencyPlace),
    Replay(ReplayId),
}

impl Engine {
    /// Begins with a look into the store for everything that waits.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let now = setup.now;
        let mut engine = Self {
            seed: setup.seed,
            bounds: setup.bounds,
            book: setup.book,
            older_books: setup.older_books.into(),
            absences: setup.absences,
            store_failing_since: None,
            running: RunState::Running,
            services: Vec::new(),
            service_places: Map::default(),
            queues: Vec::new(),
            queue_places: Map::default(),
            dependencies: Vec::new(),
            dependency_places: Map::default(),
            remembered_breakers: setup.breakers,
            shares: CallShares::new(),
            share_waiters: VecDeque::new(),
            runnable: VecDeque::new(),
            calls: BTreeMap::new(),
            last_call: CallId(0),
            settling: BTreeMap::new(),
            known: Map::default(),
            caution: Caution {
                suspects: setup.suspects_until.map(|last| (last, now + limits::CRASHES_WITHIN)),
                alone: None,
            },
            replays: ActiveReplays::new(setup.replays),
            timers: BTreeSet::new(),
            asked_to_wake_at: None,
            effects: VecDeque::new(),
        };
        for (service, since) in setup.paused {
            let place = engine.service(&service);
            engine.services[place.0].pause(since);
        }
        engine.open_queues();
        engine.restore_breakers(now);
        let is_same_book = engine.older_books.back().is_some_and(|book| book.hash() == engine.book.hash());
        for name in setup.queues {
            let place = engine.queue(&Arc::new(name));
            engine.queues[place.0].explore();
            // A new rule book may have a rule for deliveries that were parked without one.
            if !is_same_book {
                let name = Arc::clone(&engine.queues[place.0].name);
                engine.effects.push_back(Effect::Release(name));
            }
            engine.look_for_more(place, now);
        }
        engine.finish(now);
        engine
    }

    /// Time must not go back.
    pub fn handle(&mut self, input: Input, now: Timestamp) {
        self.fire_timers(now);
        match input {
            Input::Accepted(rows) => rows.into_iter().for_each(|row| self.arrive(row, now)),
            Input::Loaded(page) => self.loaded(&page, now),
            Input::Ended { call, ending } => self.ended(call, &ending, now),
            Input::Settled { delivery, fate, promoted } => {
                self.settled(delivery, fate, now);
                if let Some(row) = promoted {
                    self.arrive(*row, now);
                }
            }
            Input::Replay(job) => self.replays.learn(job, now),
            Input::Advanced { job, sent } => {
                let ended = self.replays.advanced(job, sent);
                self.report_replay(ended);
            }
            Input::Released(name) => {
                let place = self.queue(&name);
                self.queues[place.0].left_on_disk();
                self.look_for_more(place, now);
            }
            Input::StoreFailing => self.store_failing_since = self.store_failing_since.or(Some(now)),
            Input::StoreHealed => self.store_healed(now),
            Input::Tick => {}
            Input::Operator(command) => self.apply_command(command, now),
            Input::Book(book) => self.change_book(book, now),
            Input::Stop => self.running = RunState::Stopping,
        }
        self.finish(now);
    }

    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.calls.is_empty() && self.settling.is_empty()
    }

    pub fn calls(&self) -> impl Iterator<Item = CallId> {
        self.calls.keys().copied()
    }

    fn finish(&mut self, now: Timestamp) {
        self.dispatch(now);
        self.advance_replays(now);
        let next = self.timers.first().map(|(at, _)| *at);
        if next.is_some() && next != self.asked_to_wake_at {
            self.effects.extend(next.map(Effect::WakeAt));
        }
        self.asked_to_wake_at = next;
    }

    fn fire_timers(&mut self, now: Timestamp) {
        while let Some(&(at, timer)) = self.timers.first()
            && at <= now
        {
            self.timers.remove(&(at, timer));
            match timer {
                Timer::Queue(place) => {
                    self.queues[place.0].timer_at = None;
                    self.make_due_ready(place, now);
                    self.look_for_more(place, now);
                }
                Timer::Dependency(place) => {
                    self.dependencies[place.0].asks_at = None;
                    self.wake_all(place);
                }
                Timer::Replay(id) => self.replays.timer_fired(id),
            }
        }
    }

    fn set_dependency_timer(&mut self, place: DependencyPlace, at: Timestamp) {
        let asks_at = &mut self.dependencies[place.0].asks_at;
        if asks_at.is_none_or(|set| at < set) {
            if let Some(set) = asks_at.replace(at) {
                self.timers.remove(&(set, Timer::Dependency(place)));
            }
            self.timers.insert((at, Timer::Dependency(place)));
        }
    }

    fn apply_command(&mut self, command: OperatorCommand, now: Timestamp) {
        match command {
            OperatorCommand::Pause(name) => {
                let place = self.service(&name);
                self.services[place.0].pause(now);
            }
            OperatorCommand::Resume(name) => {
                let place = self.service(&name);
                if let Some((_, until @ None)) = self.services[place.0].pauses.last_mut() {
                    *until = Some(now);
                }
                self.wake_service(place, now);
            }
            OperatorCommand::Trip(name) => self.override_breaker(&name, now, BreakerOverride::Trip),
            OperatorCommand::Reset(name) => self.override_breaker(&name, now, BreakerOverride::Reset),
        }
    }

    fn override_breaker(&mut self, name: &DependencyName, now: Timestamp, turn: BreakerOverride) {
        let place = self.dependency(name, now);
        if let Some(rule) = self.rule_with_breaker(name) {
            self.attach_breaker(place, &rule, now);
        }
        let control = &mut self.dependencies[place.0].control;
        let transition = match turn {
            BreakerOverride::Trip => control.trip_by_hand(now),
            BreakerOverride::Reset => control.reset_by_hand(now),
        };
        if let Some(transition) = transition {
            self.breaker_changed(place, transition, None, now);
        }
    }

    /// A rule with a breaker for the dependency: perhaps no delivery has attached one yet.
    fn rule_with_breaker(&self, name: &DependencyName) -> Option<Rule> {
        let sections = self.book.sections();
        let rules =
            sections.rows().map(|(service, channel, row)| sections.resolve(service, channel, row).rule);
        rules.into_iter().find(|rule| rule.dependency == *name && rule.breaker.is_some())
    }

    /// Restores the breakers of the last run at once, so that views show them.
    fn restore_breakers(&mut self, now: Timestamp) {
        let names: Vec<_> =
            self.remembered_breakers.iter().map(|record| record.service_name.clone()).collect();
        for name in names {
            if let Some(rule) = self.rule_with_breaker(&name) {
                let place = self.dependency(&name, now);
                self.attach_breaker(place, &rule, now);
            }
        }
    }

    fn store_healed(&mut self, now: Timestamp) {
        if let Some(since) = self.store_failing_since.take() {
            self.absences.add(since, now);
        }
        self.replays.store_healed();
        for place in (0..self.queues.len()).map(QueuePlace) {
            self.queues[place.0].explore();
            self.look_for_more(place, now);
            self.wake_lines(place);
        }
    }

    fn change_book(&mut self, book: Arc<RuleBook>, now: Timestamp) {
        let older = std::mem::replace(&mut self.book, book);
        if older.hash() == self.book.hash() {
            return;
        }
        self.older_books.push_back(older);
        while self.older_books.len() > limits::OLDER_BOOKS_MAX {
            self.older_books.pop_front();
        }
        self.open_queues();
        for place in 0..self.dependencies.len() {
            let dependency = &mut self.dependencies[place];
            dependency.control.set(self.book.admission(&dependency.name));
            dependency.waiters.clear();
            dependency.retriers.clear();
        }
        self.runnable.clear();
        self.share_waiters.clear();
        self.divide_shares();
        for place in (0..self.queues.len()).map(QueuePlace) {
            let presence = self.presence(&self.queues[place.0].name);
            let queue = &mut self.queues[place.0];
            queue.presence = presence;
            let name = Arc::clone(&queue.name);
            let due = queue.take_all_due();
            for ready in queue.take_all() {
                self.line_up(place, ready.waiting, PushAt::Back, now);
            }
            for (due_at, row) in due {
                // Without a rule it is parked now, not when it is due.
                match self.rule(&row) {
                    Some(_) => self.wait_for(place, due_at, row, now),
                    None => self.line_up(place, row, PushAt::Back, now),
                }
            }
            self.effects.push_back(Effect::Release(name));
            self.look_for_more(place, now);
        }
    }

    fn service(&mut self, name: &ServiceName) -> ServicePlace {
        if let Some(place) = self.service_places.get(name) {
            return *place;
        }
        let place = ServicePlace(self.services.len());
        self.services.push(ServiceState { pauses: Vec::new() });
        self.service_places.insert(name.clone(), place);
        self.divide_shares();
        place
    }

    fn divide_shares(&mut self) {
        self.shares.divide(self.bounds.calls, self.services.len());
    }

    /// Gives every queue of the book its place, and so its share, before anything arrives.
    fn open_queues(&mut self) {
        for (service, channel) in Arc::clone(&self.book).queues() {
            self.queue(&Arc::new(QueueName { service: service.clone(), channel: channel.cloned() }));
        }
    }

    fn queue(&mut self, name: &Arc<QueueName>) -> QueuePlace {
        if let Some(place) = self.queue_places.get(name) {
            return *place;
        }
        let service = self.service(&name.service);
        let place = QueuePlace(self.queues.len());
        self.queues.push(EngineQueue::empty(Arc::clone(name), service, self.presence(name)));
        self.queue_places.insert(Arc::clone(name), place);
        place
    }

    fn presence(&self, name: &QueueName) -> QueuePresence {
        let channel = name.channel.as_ref().map(ChannelName::as_str);
        match self.book.batch_max(name.service.as_str(), channel) {
            Some(batch_max) => {
                let worker = self.book.worker(name.service.as_str(), channel);
                let starts = if worker.is_some() { Starts::OnRecord } else { Starts::AtOnce };
                QueuePresence::Here { batch_max, starts }
            }
            None => QueuePresence::Removed,
        }
    }

    fn dependency(&mut self, name: &DependencyName, now: Timestamp) -> DependencyPlace {
        if let Some(place) = self.dependency_places.get(name) {
            return *place;
        }
        let place = DependencyPlace(self.dependencies.len());
        self.dependencies.push(EngineDependency::new(name.clone(), self.book.admission(name), now));
        self.dependency_places.insert(name.clone(), place);
        place
    }

    fn rule(&self, row: &PendingDelivery) -> Option<&Arc<Rule>> {
        rule_of(&self.book, row)
    }

    fn history_of(&self, row: &PendingDelivery, rule: &Rule, now: Timestamp) -> History {
        let history = self.history_by_now(row, now);
        match row.book {
            Some(hash) if hash != self.book.hash() => {
                let older = self.older_books.iter().find(|book| book.hash() == hash);
                let then = older.and_then(|book| rule_of(book, row));
                history.carried_over(then.map(|rule| &rule.reactions), &rule.reactions)
            }
            Some(_) | None => history,
        }
    }

    /// The history by its own book, less the time that Redrive was away and the service paused since it was
    /// written.
    fn history_by_now(&self, row: &PendingDelivery, now: Timestamp) -> History {
        let away = self.away_within(row.written_at, now);
        let paused = self.paused_within(row, row.written_at, now);
        match (away.is_zero(), paused.is_zero()) {
            (true, true) => row.history.clone(),
            (false, true) => row.history.away(away),
            (_, false) => row.history.away(away).paused_for(paused),
        }
    }

    fn away_within(&self, from: Timestamp, now: Timestamp) -> Duration {
        let lasting = self.store_failing_since.map_or(Duration::ZERO, |since| now.since(since.max(from)));
        self.absences.within(from, now) + lasting
    }

    fn paused_within(&self, row: &PendingDelivery, from: Timestamp, now: Timestamp) -> Duration {
        let service = &self.services[self.queues[self.queue_places[&row.queue].0].service.0];
        service.paused_within(from, now, &self.absences)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerOverride {
    Trip,
    Reset,
}

fn rule_of<'a>(book: &'a RuleBook, row: &PendingDelivery) -> Option<&'a Arc<Rule>> {
    let channel = row.queue.channel.as_ref().map(ChannelName::as_str);
    book.rule(row.queue.service.as_str(), channel, row.event.event_type.as_str())
}
