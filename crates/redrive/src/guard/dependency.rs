//! What stands in front of one dependency: its breaker, its throttle, and those who wait for room.
//!
//! All guards of a book that call the same dependency share one. The deciding is the core's; here is who may ask
//! it when, and who is woken by the answer.
//!
//! Invariants:
//! - whoever gets a [`Pass`] gives it back: [`Ticket`] does so however the call ends;
//! - whoever waits for room is woken when there is some, in the order in which they came;
//! - every change of the breaker is logged and told to whoever shares it.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redrive_core::ids::DependencyName;
use redrive_core::policy::breaker::{
    Admission, Adopted, Breaker, BreakerSettings, Generation, Observation, OnSuccess, Permit, Phase, Record,
    State as BreakerState, Transition, Trip,
};
use redrive_core::policy::budget::{Budget, BudgetSettings};
use redrive_core::policy::classify::Failure;
use redrive_core::policy::decide::HoldCause;
use redrive_core::policy::rule::Rule;
use redrive_core::policy::throttle::{self, Throttle, ThrottleSettings};
use redrive_core::time::Timestamp;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore};

use super::book::Terms;
use super::link::Link;
use super::word::{
    Closed, Epoch, Flow, Gatekeeper, Gathered, IN_FLIGHT_MAX, Stamp, Standing, Successes, Wants,
};

/// One dependency, for all guards of a book that call it.
#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) name: DependencyName,
    gate: Gatekeeper,
    in_flight_max: AtomicU32,
    /// From then on, in nanoseconds, the word's counts belong to another part of some window, and a success is
    /// to be noted.
    asks_from: AtomicU64,
    state: Mutex<State>,
    /// Held by the one whose turn it is to wait for room; the others queue for it.
    pub(super) turn: Semaphore,
    /// Told when there is room, to whoever's turn it is.
    room: Notify,
    /// Told whenever a breaker or a probe may let through who could not pass before.
    changed: Notify,
    /// To those that share the breaker, if anybody does.
    pub(super) link: OnceLock<Arc<Link>>,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    throttle: Throttle,
    budget: Budget,
    limits: Limits,
    /// Of the rule that was made last and has a breaker; none if no rule has.
    breaker_settings: Option<BreakerSettings>,
    /// Trips of rules that there are or were; a stamp is a place among them.
    trips: Vec<Trip>,
    /// By which of them was settled last.
    trip: Option<Trip>,
    /// When a success was last noted.
    noted_at: Timestamp,
    /// Changes with the breaker's generation.
    epoch: Epoch,
    generation: Generation,
    /// Calls that wait for room or for the pace.
    waiting: u32,
}

/// What the book says of the dependency as a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    pub(super) throttle: ThrottleSettings,
    pub(super) budget: BudgetSettings,
}

/// The right to make one attempt.
#[derive(Debug)]
#[must_use = "a pass is given back"]
pub(super) struct Pass(Kind);

impl Pass {
    /// Whether nobody was asked for it.
    #[cfg(test)]
    pub(super) const fn is_quick(&self) -> bool {
        matches!(self.0, Kind::Quick(_))
    }
}

#[derive(Debug)]
enum Kind {
    /// Given by the word, in that epoch.
    Quick(Epoch),
    /// Given by breaker and throttle.
    Asked(Option<Permit>),
}

/// Whether an attempt may be made.
#[derive(Debug)]
pub(super) enum Gate {
    /// Yes.
    Open(Pass),
    /// Not before then, for a reason that counts as being held.
    Held(HoldCause, Timestamp),
    /// Not before then, to keep the pace.
    Paced(Timestamp),
    /// Not before others are done.
    Busy,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// One who has just come, and does not overtake those who wait.
    Newcomer,
    /// The one whose turn it is.
    First,
}

/// How long what the breaker knows of its last success may be old: noting each would be a write for each call.
const SUCCESS_NOTED_EVERY: Duration = Duration::from_millis(100);

impl Dependency {
    pub(super) fn new(name: DependencyName, limits: Limits) -> Self {
        Self {
            name,
            gate: Gatekeeper::new(),
            in_flight_max: AtomicU32::new(0),
            asks_from: AtomicU64::new(0),
            state: Mutex::new(State {
                breaker: Breaker::new(),
                throttle: Throttle::new(),
                budget: Budget::new(),
                limits,
                breaker_settings: None,
                trips: Vec::new(),
                trip: None,
                noted_at: Timestamp::EPOCH,
                epoch: Epoch::default(),
                generation: Breaker::new().generation(),
                waiting: 0,
            }),
            turn: Semaphore::new(1),
            room: Notify::new(),
            changed: Notify::new(),
            link: OnceLock::new(),
        }
    }

    /// From now on these limits hold; says what calls by that rule ask for.
    pub(super) fn follow(&self, limits: Limits, rule: &Rule) -> Wants {
        let mut state = self.lock();
        state.limits = limits;
        if let Some(named) = &rule.breaker {
            state.breaker_settings = Some(named.settings.clone());
        }
        let wants = match rule.breaker.as_ref().map(|named| named.settings.trip()) {
            Some(trip) => Wants::Breaker(state.stamp(trip)),
            None => Wants::NoBreaker,
        };
        drop(state);
        self.room.notify_one();
        wants
    }

    /// Lets an attempt in that need not ask.
    #[inline]
    pub(super) fn start(&self, wants: Wants, now: Timestamp) -> Option<Pass> {
        if now.as_nanos() >= self.asks_from.load(Ordering::Relaxed) {
            return None;
        }
        let epoch = self.gate.start(wants, self.in_flight_max.load(Ordering::Relaxed))?;
        Some(Pass(Kind::Quick(epoch)))
    }

    /// An attempt has ended well.
    #[inline]
    pub(super) fn end_well(&self, pass: Pass, wants: Wants, rule: &Rule, now: Timestamp) {
        let successes = match rule.breaker.as_ref().map(|named| named.settings.trip()) {
            Some(Trip::FailureRate { .. }) => Successes::Counted,
            Some(Trip::Consecutive(_) | Trip::Failures { .. }) | None => Successes::Ignored,
        };
        if let Kind::Quick(epoch) = pass.0
            && now.as_nanos() < self.asks_from.load(Ordering::Relaxed)
            && self.gate.end_well(wants, epoch, successes).is_ok()
        {
            return;
        }
        self.settle(pass, Observation::Success, rule, now);
    }

    /// Asks to make an attempt that takes at most `limit`.
    pub(super) fn admit(&self, rule: &Rule, limit: Duration, asker: Asker, now: Timestamp) -> Gate {
        let (gate, transition) = self.lock().admit(rule, limit, asker, now);
        if let Some(transition) = transition {
            self.tell(transition);
        }
        gate
    }

    /// A call has begun: what its retries are a share of.
    pub(super) fn count_call(&self, now: Timestamp) {
        self.lock().budget.count_calls(1, now);
    }

    /// Whether one more retry may be made; if so, it is counted.
    pub(super) fn grant_retry(&self, now: Timestamp) -> bool {
        let mut state = self.lock();
        let settings = state.limits.budget;
        let granted = state.budget.refuses_until(&settings, now).is_none();
        if granted {
            state.budget.count_retry(now);
        }
        granted
    }

    /// An attempt is over, and says this about the dependency.
    pub(super) fn settle(&self, pass: Pass, seen: Observation, rule: &Rule, now: Timestamp) {
        let mut state = self.lock();
        let permit = state.leave(pass);
        let probed = permit.as_ref().is_some_and(Permit::is_probe);
        let settings = rule.breaker.as_ref().map(|named| &named.settings);
        let transition = permit.zip(settings).and_then(|(permit, settings)| {
            state.trip = Some(settings.trip());
            if seen == Observation::Success {
                state.noted_at = now;
            }
            state.breaker.settle(permit, seen, settings, now)
        });
        self.wake_next(&state);
        drop(state);
        if probed || transition.is_some() {
            self.changed.notify_waiters();
        }
        if let Some(transition) = transition {
            self.tell(transition);
        }
    }

    /// An attempt was not made, or nobody waited for its end.
    pub(super) fn unused(&self, pass: Pass) {
        let mut state = self.lock();
        let permit = state.leave(pass);
        let probed = permit.as_ref().is_some_and(Permit::is_probe);
        state.give_up(permit);
        self.wake_next(&state);
        drop(state);
        if probed {
            self.changed.notify_waiters();
        }
    }

    /// The dependency asked for fewer calls.
    pub(super) fn throttled(&self, failure: &Failure, now: Timestamp) {
        let mut state = self.lock();
        let limits = state.limits.throttle;
        state.throttle.throttled(&limits, failure.retry_after, now);
    }

    /// Waits for room, or for the pace, until dropped.
    pub(super) fn wait(&self) -> Waiting<'_> {
        self.lock().waiting += 1;
        Waiting { dependency: self }
    }

    /// There is room again, perhaps.
    pub(super) fn room(&self) -> Notified<'_> {
        self.room.notified()
    }

    /// The breaker has changed, or a probe is back.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub(super) fn breaker_state(&self, now: Timestamp) -> BreakerState {
        self.lock().breaker.state(now)
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.lock().throttle.in_flight()
    }

    /// Whether the next call would be the first to try an open breaker anew.
    pub(super) fn is_to_be_probed(&self, now: Timestamp) -> bool {
        let record = self.lock().breaker.record(&self.name, now);
        record.state == Phase::Open && record.open_until.is_some_and(|until| until <= now)
    }

    /// What others are to be told, if they do not know it; else takes over what they have told.
    pub(super) fn meet(&self, stored: Option<&Record>, now: Timestamp) -> Option<Record> {
        let mut state = self.lock();
        let settings = state.breaker_settings.clone()?;
        let ours = state.breaker.record(&self.name, now);
        let known = stored.filter(|stored| !stored.is_expired(now));
        if is_news(&ours, known) {
            return Some(ours);
        }
        if let Adopted::Taken(transition) = state.breaker.adopt(known?, &settings, now) {
            self.wake_next(&state);
            drop(state);
            self.changed.notify_waiters();
            log(&self.name, transition, "shared");
        }
        None
    }

    fn wake_next(&self, state: &State) {
        if state.waiting > 0 {
            self.room.notify_one();
        }
    }

    fn tell(&self, transition: Transition) {
        log(&self.name, transition, "own");
        if let Some(link) = self.link.get() {
            link.wake();
        }
    }

    /// What is behind the word, for tests that hold it against the same without one.
    #[cfg(test)]
    pub(super) fn seen(&self) -> (Breaker, Throttle, Budget) {
        let state = self.lock();
        (state.breaker.clone(), state.throttle.clone(), state.budget.clone())
    }

    /// The state, for one alone: nobody passes by the word meanwhile, and all that did is known.
    fn lock(&self) -> Inside<'_> {
        // Nothing panics while it is held but a bug, and the state is whole between any two steps.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let gathered = self.gate.take();
        // Whatever is counted alike until then falls into the newest part of every window.
        let asks_from = Timestamp::from_nanos(self.asks_from.load(Ordering::Relaxed));
        state.learn(gathered, asks_from - Duration::from_nanos(1));
        Inside { dependency: self, state }
    }
}

/// The state of a dependency while nobody else changes it.
struct Inside<'a> {
    dependency: &'a Dependency,
    state: MutexGuard<'a, State>,
}

impl Deref for Inside<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Inside<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let (standing, asks_from) = self.state.standing();
        let in_flight_max = self.state.limits.throttle.in_flight.get().min(IN_FLIGHT_MAX);
        self.dependency.in_flight_max.store(in_flight_max, Ordering::Relaxed);
        self.dependency.asks_from.store(asks_from.as_nanos(), Ordering::Relaxed);
        self.dependency.gate.publish(standing);
    }
}

impl State {
    fn stamp(&mut self, trip: Trip) -> Stamp {
        let place = self.trips.iter().position(|known| *known == trip).unwrap_or_else(|| {
            self.trips.push(trip);
            self.trips.len() - 1
        });
        Stamp::of(place)
    }

    /// Counts what has passed by the word.
    fn learn(&mut self, gathered: Gathered, at: Timestamp) {
        let Gathered { in_flight, let_in, successes } = gathered;
        self.throttle.take_stock(let_in, in_flight, at);
        self.budget.count_calls(let_in, at);
        if let Some(trip) = self.trip {
            self.breaker.count_successes(successes, trip, at);
        }
    }

    /// How it stands, and until when what the word counts is counted alike.
    fn standing(&mut self) -> (Standing, Timestamp) {
        if self.generation != self.breaker.generation() {
            self.generation = self.breaker.generation();
            self.epoch = self.epoch.next();
        }
        let flows_until = self.throttle.flows_until(&self.limits.throttle).filter(|_| self.waiting == 0);
        let mut alike_until = flows_until.min(self.budget.counts_alike_until()).unwrap_or_default();
        let stamp = match self.trip.map(|trip| (trip, self.breaker.on_success(trip))) {
            Some((trip, OnSuccess::Nothing)) => self.stamp(trip),
            Some((trip, OnSuccess::Counts { alike_until: until })) => {
                alike_until = alike_until.min(until);
                self.stamp(trip)
            }
            Some((_, OnSuccess::Changes)) | None => Stamp::NONE,
        };
        if stamp != Stamp::NONE {
            alike_until = alike_until.min(self.noted_at + SUCCESS_NOTED_EVERY);
        }
        let is_closed = self.breaker.closed_permit().is_some();
        let standing = Standing {
            in_flight: self.throttle.in_flight(),
            flow: if flows_until.is_some() { Flow::Free } else { Flow::Limited },
            breaker: if is_closed { Closed::Yes { epoch: self.epoch, stamp } } else { Closed::No },
        };
        (standing, alike_until)
    }

    /// Breaker first, then throttle; the breaker may have become half-open by that, whatever the answer.
    fn admit(
        &mut self,
        rule: &Rule,
        limit: Duration,
        asker: Asker,
        now: Timestamp,
    ) -> (Gate, Option<Transition>) {
        if let Some(until) = self.throttle.hold_until().filter(|until| now < *until) {
            return (Gate::Held(HoldCause::AskedToWait, until), None);
        }
        let admission = rule.breaker.as_ref().map(|named| self.breaker.admit(&named.settings, limit, now));
        let permit = match admission {
            Some(Admission::WaitUntil(until)) => return (Gate::Held(HoldCause::BreakerOpen, until), None),
            Some(Admission::Allowed(permit)) => Some(permit),
            None => None,
        };
        let transition = permit.as_ref().and_then(|permit| self.breaker.transition_by(permit));
        let pass = if asker == Asker::Newcomer && self.waiting > 0 {
            throttle::Pass::Full
        } else {
            self.throttle.admit(&self.limits.throttle, now)
        };
        let gate = match pass {
            // The slot is counted by number: `leave` gives it back.
            throttle::Pass::Go(_slot) => Gate::Open(Pass(Kind::Asked(permit))),
            throttle::Pass::Full => {
                self.give_up(permit);
                Gate::Busy
            }
            throttle::Pass::WaitUntil(until) => {
                self.give_up(permit);
                Gate::Paced(until)
            }
        };
        (gate, transition)
    }

    /// Takes a place back, and says which permit the breaker gave for it, if that still means anything to it.
    fn leave(&mut self, pass: Pass) -> Option<Permit> {
        let in_flight = self.throttle.in_flight();
        assert!(in_flight > 0, "a pass comes back to the dependency that gave it");
        self.throttle.take_stock(0, in_flight - 1, Timestamp::EPOCH);
        match pass.0 {
            Kind::Quick(epoch) if epoch == self.epoch => self.breaker.closed_permit(),
            Kind::Quick(_) => None,
            Kind::Asked(permit) => permit,
        }
    }

    fn give_up(&mut self, permit: Option<Permit>) {
        if let Some(permit) = permit {
            self.breaker.cancel(permit);
        }
    }
}

/// Whether nobody knows of it yet: a breaker that has never changed is no news.
fn is_news(ours: &Record, stored: Option<&Record>) -> bool {
    let key = |record: &Record| (record.generation, record.state, record.opened_at);
    match stored {
        Some(stored) => key(ours) > key(stored),
        None => ours.generation > Breaker::new().generation(),
    }
}

fn log(dependency: &DependencyName, transition: Transition, origin: &'static str) {
    let Transition { from, to, generation, failures, .. } = transition;
    let generation = generation.0;
    match to {
        Phase::Open => {
            tracing::warn!(%dependency, ?from, generation, failures, origin, "circuit breaker opened");
        }
        Phase::HalfOpen => {
            tracing::info!(%dependency, ?from, generation, failures, origin, "circuit breaker half-open");
        }
        Phase::Closed => {
            tracing::info!(%dependency, ?from, generation, failures, origin, "circuit breaker closed");
        }
    }
}

/// One who waits for room. Newcomers line up behind.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    dependency: &'a Dependency,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.dependency.lock().waiting -= 1;
    }
}

/// A pass that comes back by itself, unused, if nobody settles it.
#[derive(Debug)]
#[must_use = "dropped at once, it is given back unused"]
pub(super) struct Ticket<T: Deref<Target = Terms>> {
    terms: T,
    pass: Option<Pass>,
}

impl<T: Deref<Target = Terms>> Ticket<T> {
    #[inline]
    pub(super) const fn new(terms: T, pass: Pass) -> Self {
        Self { terms, pass: Some(pass) }
    }

    pub(super) const fn terms(&self) -> &T {
        &self.terms
    }

    /// The attempt has ended well.
    #[inline]
    pub(super) fn end_well(mut self, now: Timestamp) {
        if let Some(pass) = self.pass.take() {
            let Terms { rule, dependency, wants } = &*self.terms;
            dependency.end_well(pass, *wants, rule, now);
        }
    }

    /// The attempt is over, and says this about the dependency.
    pub(super) fn settle(mut self, seen: Observation, now: Timestamp) {
        if let Some(pass) = self.pass.take() {
            self.terms.dependency.settle(pass, seen, &self.terms.rule, now);
        }
    }

    /// The same for one who keeps the terms for longer.
    pub(super) fn keep<U: Deref<Target = Terms>>(mut self, terms: impl FnOnce() -> U) -> Ticket<U> {
        let pass = self.pass.take();
        Ticket { terms: terms(), pass }
    }
}

impl<T: Deref<Target = Terms>> Drop for Ticket<T> {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.terms.dependency.unused(pass);
        }
    }
}
