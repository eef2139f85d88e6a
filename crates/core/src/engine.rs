//! The engine: decides what starts when, and what follows. Inputs in, effects out, nothing else.
//!
//! A shell feeds it [`Input`]s, each with the time, and carries out the [`Effect`]s that
//! [`Engine::next_effect`] hands over. The live server, the simulator and the tests are three such shells
//! around this same code.
//!
//! What it holds is small, and all of it can be lost: the store knows which delivery stands at the head of
//! its session, when each is due and what it has been through. After a crash a new engine looks there.
//!
//! How a delivery goes through: it enters the window of its queue (`queue.rs`), in the line of the
//! dependency it needs. Lines get their turn one after the other, one call at a time, so nobody starves; a
//! line that may not send waits for a share of the calls (`share.rs`) or for its dependency
//! (`dependency.rs`) and is woken when that changes. An outcome is ruled on by [`decide`](crate::policy::decide::decide), becomes a
//! [`Settlement`] (`settle.rs`), and only when that is durable is the delivery let go of and its session's
//! next let in.
//!
//! Invariants:
//! - a delivery is in memory once at most: `known` has it from when it enters until it is settled;
//! - in flight means started and not durably settled, and that many are never more than the bound;
//! - nothing starts while the store fails, after [`Input::Stop`], or for a service that is paused or gone;
//! - the same inputs give the same effects, in the same order.

mod absence;
mod dependency;
mod dispatch;
mod paging;
mod port;
mod queue;
mod replays;
mod settle;
mod share;
#[cfg(test)]
mod simulation;
pub mod story;
#[cfg(test)]
mod tests;
mod view;
mod wait;
pub mod worker;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use self::absence::Absences;
use self::dependency::Dependency;
pub use self::port::{
    Advance, Bounds, Call, CallId, Command, Death, Effect, Ending, Fate, Followers, Input, Load, Made, Next,
    Page, QueueName, Settlement, Setup, Signal, Waiting, Wanted,
};
use self::queue::{Presence, PushAt, Queue, Ready, Starts};
use self::replays::Replays;
use self::share::Shares;
pub use self::view::{DependencyView, HeldQueue, QueueView, RemovedQueue, RowView};
pub use self::wait::{Asked, Stands, Wait};
use crate::book::RuleBook;
use crate::hash::Map;
use crate::ids::{ChannelName, DependencyName, Seed, Seq, ServiceName};
use crate::letters::replay::ReplayId;
use crate::limits;
use crate::policy::admission::Ticket;
use crate::policy::breaker::Record;
use crate::policy::decide::History;
use crate::policy::rule::Rule;
use crate::time::Timestamp;

/// Decides what starts when, and what follows.
#[derive(Debug)]
pub struct Engine {
    seed: Seed,
    bounds: Bounds,
    book: Arc<RuleBook>,
    older_books: VecDeque<Arc<RuleBook>>,
    absences: Absences,
    /// Since when the store has taken no writes.
    store_failing_since: Option<Timestamp>,
    running: Running,
    services: Vec<Service>,
    service_places: Map<ServiceName, ServicePlace>,
    queues: Vec<Queue>,
    queue_places: Map<Arc<QueueName>, QueuePlace>,
    dependencies: Vec<Dependency>,
    dependency_places: Map<DependencyName, DependencyPlace>,
    /// What breakers were when the last run ended, until they are met.
    remembered_breakers: Vec<Record>,
    shares: Shares,
    share_waiters: VecDeque<LinePlace>,
    runnable: VecDeque<LinePlace>,
    calls: BTreeMap<CallId, InFlight>,
    last_call: CallId,
    settling: BTreeMap<Seq, Settling>,
    /// With the bytes of each payload.
    known: Map<Seq, usize>,
    caution: Caution,
    replays: Replays,
    timers: BTreeSet<(Timestamp, Timer)>,
    asked_to_wake_at: Option<Timestamp>,
    effects: VecDeque<Effect>,
}

/// Whether anything may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    Yes,
    Stopping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ServicePlace(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct QueuePlace(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct DependencyPlace(usize);

/// A line of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LinePlace {
    queue: QueuePlace,
    line: usize,
}

#[derive(Debug)]
struct Service {
    /// From when to when it was paused, the oldest first; the last may go on.
    pauses: Vec<(Timestamp, Option<Timestamp>)>,
}

impl Service {
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

    /// How much of that time it was paused; what Redrive was away of it counts as that.
    fn paused_within(&self, from: Timestamp, to: Timestamp, absences: &Absences) -> Duration {
        let paused = |(start, end): &(Timestamp, Option<Timestamp>)| {
            let (start, end) = (from.max(*start), end.map_or(to, |end| to.min(end)));
            end.since(start).saturating_sub(absences.within(start, end))
        };
        self.pauses.iter().map(paused).sum()
    }
}

/// A call that is being made.
#[derive(Debug)]
struct InFlight {
    call: Arc<Call>,
    queue: QueuePlace,
    dependency: DependencyPlace,
    ticket: Ticket,
    /// How many calls the dependency had in flight when it began, itself included.
    beside: u32,
    /// Whether its start is on record.
    starts: Starts,
}

/// A settlement on its way to the store.
#[derive(Debug)]
struct Settling {
    settlement: Arc<Settlement>,
    waiting: Waiting,
    queue: QueuePlace,
    stage: Stage,
}

/// What the settlement is about.
#[derive(Debug)]
enum Stage {
    /// A call is over; until now it counted as in flight.
    Over { dependency: DependencyPlace, beside: u32 },
    /// No call was made.
    NotMade,
    /// The call begins when its start is on record.
    ToBeMade(Box<Start>),
}

/// A delivery that is about to start, and its right to.
#[derive(Debug)]
struct Start {
    ready: Ready,
    dependency: DependencyPlace,
    ticket: Ticket,
    company: Company,
}

/// Who may run beside a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    /// Nobody: Redrive may go down with it.
    Nobody,
    /// Others; its part of the calls is taken already.
    Others,
}

/// Redrive may have gone down because of one delivery.
#[derive(Debug, Default)]
struct Caution {
    /// Deliveries up to there are suspects, until then.
    suspects: Option<(Seq, Timestamp)>,
    /// The one that is being tried alone.
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
    /// An engine that looks for everything that waits in the store.
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
            running: Running::Yes,
            services: Vec::new(),
            service_places: Map::default(),
            queues: Vec::new(),
            queue_places: Map::default(),
            dependencies: Vec::new(),
            dependency_places: Map::default(),
            remembered_breakers: setup.breakers,
            shares: Shares::new(),
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
            replays: Replays::new(setup.replays),
            timers: BTreeSet::new(),
            asked_to_wake_at: None,
            effects: VecDeque::new(),
        };
        for (service, since) in setup.paused {
            let place = engine.service(&service);
            engine.services[place.0].pause(since);
        }
        engine.open_queues();
        engine.meet_remembered(now);
        let is_same_book = engine.older_books.back().is_some_and(|book| book.hash() == engine.book.hash());
        for name in setup.queues {
            let place = engine.queue(&Arc::new(name));
            engine.queues[place.0].explore();
            // Deliveries that were put aside for want of a rule may have one by a new book.
            if !is_same_book {
                let name = Arc::clone(&engine.queues[place.0].name);
                engine.effects.push_back(Effect::Release(name));
            }
            engine.look_for_more(place, now);
        }
        engine.finish(now);
        engine
    }

    /// Takes in what happened; time never goes back.
    pub fn handle(&mut self, input: Input, now: Timestamp) {
        self.ring(now);
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
                self.tell_replay(ended);
            }
            Input::Released(name) => {
                let place = self.queue(&name);
                self.queues[place.0].left_on_disk();
                self.look_for_more(place, now);
            }
            Input::StoreFailing => self.store_failing_since = self.store_failing_since.or(Some(now)),
            Input::StoreHealed => self.store_healed(now),
            Input::Tick => {}
            Input::Operator(command) => self.obey(command, now),
            Input::Book(book) => self.change_book(book, now),
            Input::Stop => self.running = Running::Stopping,
        }
        self.finish(now);
    }

    /// The next thing to do, in order.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Whether no call is being made and nothing waits to be settled.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.calls.is_empty() && self.settling.is_empty()
    }

    /// The calls that are being made.
    pub fn calls(&self) -> impl Iterator<Item = CallId> {
        self.calls.keys().copied()
    }

    fn finish(&mut self, now: Timestamp) {
        self.dispatch(now);
        self.go_on_replaying(now);
        let next = self.timers.first().map(|(at, _)| *at);
        if next.is_some() && next != self.asked_to_wake_at {
            self.effects.extend(next.map(Effect::WakeAt));
        }
        self.asked_to_wake_at = next;
    }

    /// What was to happen by now happens.
    fn ring(&mut self, now: Timestamp) {
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
                Timer::Replay(id) => self.replays.rang(id),
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

    fn obey(&mut self, command: Command, now: Timestamp) {
        match command {
            Command::Pause(name) => {
                let place = self.service(&name);
                self.services[place.0].pause(now);
            }
            Command::Resume(name) => {
                let place = self.service(&name);
                if let Some((_, until @ None)) = self.services[place.0].pauses.last_mut() {
                    *until = Some(now);
                }
                self.wake_service(place, now);
            }
            Command::Trip(name) => self.turn_breaker(&name, now, Turn::Trip),
            Command::Reset(name) => self.turn_breaker(&name, now, Turn::Reset),
        }
    }

    fn turn_breaker(&mut self, name: &DependencyName, now: Timestamp, turn: Turn) {
        let place = self.dependency(name, now);
        if let Some(rule) = self.rule_with_breaker(name) {
            self.meet_breaker(place, &rule, now);
        }
        let control = &mut self.dependencies[place.0].control;
        let transition = match turn {
            Turn::Trip => control.trip_by_hand(now),
            Turn::Reset => control.reset_by_hand(now),
        };
        if let Some(transition) = transition {
            self.breaker_changed(place, transition, None, now);
        }
    }

    /// A rule of the book that guards the dependency by a breaker: perhaps no delivery has brought one yet.
    fn rule_with_breaker(&self, name: &DependencyName) -> Option<Rule> {
        let sections = self.book.sections();
        let rules =
            sections.rows().map(|(service, channel, row)| sections.resolve(service, channel, row).rule);
        rules.into_iter().find(|rule| rule.dependency == *name && rule.breaker.is_some())
    }

    /// Breakers are as the last run left them from the start, so that whoever looks sees it.
    fn meet_remembered(&mut self, now: Timestamp) {
        let names: Vec<_> =
            self.remembered_breakers.iter().map(|record| record.service_name.clone()).collect();
        for name in names {
            if let Some(rule) = self.rule_with_breaker(&name) {
                let place = self.dependency(&name, now);
                self.meet_breaker(place, &rule, now);
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
                // Without a rule it is put aside now, and not when its time has come.
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
        self.services.push(Service { pauses: Vec::new() });
        self.service_places.insert(name.clone(), place);
        self.divide_shares();
        place
    }

    fn divide_shares(&mut self) {
        self.shares.divide(self.bounds.calls, self.services.len());
    }

    /// Every queue of the book has its place, and so its share, before anything arrives.
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
        self.queues.push(Queue::empty(Arc::clone(name), service, self.presence(name)));
        self.queue_places.insert(Arc::clone(name), place);
        place
    }

    fn presence(&self, name: &QueueName) -> Presence {
        let channel = name.channel.as_ref().map(ChannelName::as_str);
        match self.book.batch_max(name.service.as_str(), channel) {
            Some(batch_max) => {
                let worker = self.book.worker(name.service.as_str(), channel);
                let starts = if worker.is_some() { Starts::OnRecord } else { Starts::AtOnce };
                Presence::Here { batch_max, starts }
            }
            None => Presence::Removed,
        }
    }

    fn dependency(&mut self, name: &DependencyName, now: Timestamp) -> DependencyPlace {
        if let Some(place) = self.dependency_places.get(name) {
            return *place;
        }
        let place = DependencyPlace(self.dependencies.len());
        self.dependencies.push(Dependency::new(name.clone(), self.book.admission(name), now));
        self.dependency_places.insert(name.clone(), place);
        place
    }

    fn rule(&self, row: &Waiting) -> Option<&Arc<Rule>> {
        rule_of(&self.book, row)
    }

    /// What a delivery has been through, told in the counts of the current book.
    fn history_of(&self, row: &Waiting, rule: &Rule, now: Timestamp) -> History {
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

    /// The same in the counts of the book that it has: less what Redrive was away and its service paused
    /// since it was written.
    fn history_by_now(&self, row: &Waiting, now: Timestamp) -> History {
        let away = self.away_within(row.written_at, now);
        let paused = self.paused_within(row, row.written_at, now);
        match (away.is_zero(), paused.is_zero()) {
            (true, true) => row.history.clone(),
            (false, true) => row.history.away(away),
            (_, false) => row.history.away(away).paused_for(paused),
        }
    }

    /// How much of the time until now Redrive was down or could not write.
    fn away_within(&self, from: Timestamp, now: Timestamp) -> Duration {
        let lasting = self.store_failing_since.map_or(Duration::ZERO, |since| now.since(since.max(from)));
        self.absences.within(from, now) + lasting
    }

    fn paused_within(&self, row: &Waiting, from: Timestamp, now: Timestamp) -> Duration {
        let service = &self.services[self.queues[self.queue_places[&row.queue].0].service.0];
        service.paused_within(from, now, &self.absences)
    }
}

/// What an operator does to a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Trip,
    Reset,
}

fn rule_of<'a>(book: &'a RuleBook, row: &Waiting) -> Option<&'a Arc<Rule>> {
    let channel = row.queue.channel.as_ref().map(ChannelName::as_str);
    book.rule(row.queue.service.as_str(), channel, row.event.event_type.as_str())
}
