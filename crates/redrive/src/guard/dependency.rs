//! One dependency of a book: admission of calls, and the queue of calls that wait for room.
//!
//! All guards of a book for one dependency share it. [`AdmissionControl`] decides, as in the engine.
//!
//! Invariants:
//! - every [`CallPass`] is returned, by [`CallTicket`], however the call ends;
//! - calls that wait for room are woken in order of arrival;
//! - every state change of the breaker is logged and published to other processes.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redrive_core::ids::DependencyName;
use redrive_core::policy::admission::{
    self, AdmissionControl, AdmissionGate, AdmissionSettings, CallRequest,
};
use redrive_core::policy::breaker::{
    Breaker, BreakerPhase, BreakerRecord, BreakerState, Observation, OnSuccess, Transition, Trip,
};
use redrive_core::policy::rule::Rule;
use redrive_core::time::Timestamp;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore};

use super::book::Terms;
use super::fast_path::{
    BreakerClosed, Epoch, FastPath, FastPathCounts, FastPathState, FlowLimit, IN_FLIGHT_MAX, RuleNeeds,
    Successes, TripStamp,
};
use super::link::Link;

#[derive(Debug)]
pub(super) struct GuardedDependency {
    pub(super) name: DependencyName,
    gate: FastPath,
    in_flight_max: AtomicU32,
    /// Nanoseconds: from then on the word's counts belong to another window bucket.
    asks_from: AtomicU64,
    /// Nanoseconds: the latest start on the fast path.
    last_start: AtomicU64,
    /// Nanoseconds: the latest success on the fast path under a rule with a breaker; 0 if none.
    last_success: AtomicU64,
    state: Mutex<DependencyState>,
    /// Held by the caller at the head of the queue.
    pub(super) turn: Semaphore,
    /// Notifies the head of the queue.
    room: Notify,
    /// Notified when the breaker or a probe may admit calls again.
    changed: Notify,
    /// Publishes the breaker to other processes.
    pub(super) link: OnceLock<Arc<Link>>,
}

#[derive(Debug)]
struct DependencyState {
    control: AdmissionControl,
    /// Trip settings of current and former rules; a stamp is an index.
    trips: Vec<Trip>,
    /// The one used by the latest result.
    trip: Option<Trip>,
    waiting: u32,
}

/// The right to make one attempt.
#[derive(Debug)]
#[must_use = "a pass is given back"]
pub(super) struct CallPass(PassKind);

impl CallPass {
    pub(super) const fn asked(ticket: admission::CallTicket) -> Self {
        Self(PassKind::Asked(ticket))
    }

    /// Whether the fast path gave it.
    #[cfg(test)]
    pub(super) const fn is_quick(&self) -> bool {
        matches!(self.0, PassKind::Quick(_))
    }
}

#[derive(Debug)]
enum PassKind {
    /// From the fast path, in that epoch.
    Quick(Epoch),
    /// From the admission control.
    Asked(admission::CallTicket),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// Just arrived: must not overtake callers in the queue.
    Newcomer,
    /// The head of the queue.
    First,
}

impl GuardedDependency {
    pub(super) fn new(name: DependencyName, settings: AdmissionSettings) -> Self {
        Self {
            name,
            gate: FastPath::new(),
            in_flight_max: AtomicU32::new(0),
            asks_from: AtomicU64::new(0),
            last_start: AtomicU64::new(0),
            last_success: AtomicU64::new(0),
            state: Mutex::new(DependencyState {
                control: AdmissionControl::new(settings),
                trips: Vec::new(),
                trip: None,
                waiting: 0,
            }),
            turn: Semaphore::new(1),
            room: Notify::new(),
            changed: Notify::new(),
            link: OnceLock::new(),
        }
    }

    /// Applies new settings and returns what the rule asks of the fast path.
    pub(super) fn follow(&self, settings: AdmissionSettings, rule: &Rule) -> RuleNeeds {
        let mut state = self.lock();
        state.control.set(settings);
        if let Some(named) = &rule.breaker {
            state.control.set_breaker(&named.settings);
        }
        let wants = match rule.breaker.as_ref().map(|named| named.settings.trip()) {
            Some(trip) => {
                let successes = match trip {
                    Trip::FailureRate { .. } => Successes::Counted,
                    Trip::Consecutive(_) | Trip::Failures { .. } => Successes::Ignored,
                };
                RuleNeeds::Breaker { stamp: state.stamp(trip), successes }
            }
            None => RuleNeeds::NoBreaker,
        };
        drop(state);
        self.room.notify_one();
        wants
    }

    /// Admits an attempt on the fast path.
    #[inline]
    pub(super) fn start(&self, wants: RuleNeeds, now: Timestamp) -> Option<CallPass> {
        let nanos = now.as_nanos();
        if nanos >= self.asks_from.load(Ordering::Relaxed) {
            return None;
        }
        let epoch = self.gate.start(wants, self.in_flight_max.load(Ordering::Relaxed))?;
        self.last_start.store(nanos, Ordering::Relaxed);
        Some(CallPass(PassKind::Quick(epoch)))
    }

    #[inline]
    pub(super) fn end_well(&self, pass: CallPass, wants: RuleNeeds, rule: &Rule, now: Timestamp) {
        let nanos = now.as_nanos();
        if let PassKind::Quick(epoch) = pass.0
            && nanos < self.asks_from.load(Ordering::Relaxed)
            && self.gate.end_well(wants, epoch).is_ok()
        {
            if let RuleNeeds::Breaker { .. } = wants {
                self.last_success.store(nanos, Ordering::Relaxed);
            }
            return;
        }
        self.settle(pass, Observation::Success, rule, now);
    }

    pub(super) fn admit(
        &self,
        rule: &Rule,
        request: CallRequest,
        asker: Asker,
        now: Timestamp,
    ) -> AdmissionGate {
        let (gate, transition) = self.lock().admit(rule, request, asker, now);
        if let Some(transition) = transition {
            self.publish(transition);
        }
        gate
    }

    /// Takes one retry from the budget.
    pub(super) fn grant_retry(&self, now: Timestamp) -> bool {
        self.lock().control.grant_retry(now)
    }

    pub(super) fn settle(&self, pass: CallPass, seen: Observation, rule: &Rule, now: Timestamp) {
        let mut state = self.lock();
        let ticket = state.ticket(pass);
        let is_probe = ticket.is_probe();
        if let Some(named) = &rule.breaker {
            state.trip = Some(named.settings.trip());
        }
        let transition = state.control.back(ticket, seen, rule, now);
        self.wake_next(&state);
        drop(state);
        if is_probe || transition.is_some() {
            self.changed.notify_waiters();
        }
        if let Some(transition) = transition {
            self.publish(transition);
        }
    }

    /// The attempt was not made, or its caller went away.
    pub(super) fn unused(&self, pass: CallPass) {
        let mut state = self.lock();
        let ticket = state.ticket(pass);
        let is_probe = ticket.is_probe();
        state.control.unused(ticket);
        self.wake_next(&state);
        drop(state);
        if is_probe {
            self.changed.notify_waiters();
        }
    }

    pub(super) fn throttled(&self, retry_after: Option<Duration>, now: Timestamp) {
        self.lock().control.throttled(retry_after, now);
    }

    /// Counts as waiting for room until dropped.
    pub(super) fn wait(&self) -> WaitingCaller<'_> {
        self.lock().waiting += 1;
        WaitingCaller { dependency: self }
    }

    pub(super) fn room(&self) -> Notified<'_> {
        self.room.notified()
    }

    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub(super) fn breaker_state(&self, now: Timestamp) -> BreakerState {
        self.lock().control.breaker().state(now)
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.lock().control.in_flight()
    }

    /// Whether the next call would be the first probe of an open breaker.
    pub(super) fn is_to_be_probed(&self, now: Timestamp) -> bool {
        let record = self.lock().control.record(&self.name, now);
        record.state == BreakerPhase::Open && record.open_until.is_some_and(|until| until <= now)
    }

    /// Takes over a newer stored record, or returns ours to be published.
    pub(super) fn meet(&self, stored: Option<&BreakerRecord>, now: Timestamp) -> Option<BreakerRecord> {
        let mut state = self.lock();
        let ours = state.control.has_breaker().then(|| state.control.record(&self.name, now))?;
        let known = stored.filter(|stored| !stored.is_expired(now));
        if is_news(&ours, known) {
            return Some(ours);
        }
        if let Some(transition) = state.control.adopt(known?, now) {
            self.wake_next(&state);
            drop(state);
            self.changed.notify_waiters();
            log(&self.name, transition, "shared");
        }
        None
    }

    fn wake_next(&self, state: &DependencyState) {
        if state.waiting > 0 {
            self.room.notify_one();
        }
    }

    fn publish(&self, transition: Transition) {
        log(&self.name, transition, "own");
        if let Some(link) = self.link.get() {
            link.wake();
        }
    }

    /// For tests that compare both paths.
    #[cfg(test)]
    pub(super) fn control(&self) -> AdmissionControl {
        self.lock().control.clone()
    }

    /// Locks the state and closes the fast path, with its counts taken in.
    fn lock(&self) -> LockedState<'_> {
        // A panic under the lock is a bug, and the state is whole between two steps.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let gathered = self.gate.take();
        let time = |at: &AtomicU64| Timestamp::from_nanos(at.load(Ordering::Relaxed));
        state.learn(gathered, time(&self.last_start), time(&self.last_success));
        LockedState { dependency: self, state }
    }
}

/// The locked state.
struct LockedState<'a> {
    dependency: &'a GuardedDependency,
    state: MutexGuard<'a, DependencyState>,
}

impl Deref for LockedState<'_> {
    type Target = DependencyState;

    fn deref(&self) -> &DependencyState {
        &self.state
    }
}

impl DerefMut for LockedState<'_> {
    fn deref_mut(&mut self) -> &mut DependencyState {
        &mut self.state
    }
}

impl Drop for LockedState<'_> {
    fn drop(&mut self) {
        let (standing, asks_from) = self.state.standing();
        let in_flight_max = self.state.control.in_flight_max().min(IN_FLIGHT_MAX);
        self.dependency.in_flight_max.store(in_flight_max, Ordering::Relaxed);
        self.dependency.asks_from.store(asks_from.as_nanos(), Ordering::Relaxed);
        self.dependency.gate.publish(standing);
    }
}

impl DependencyState {
    fn stamp(&mut self, trip: Trip) -> TripStamp {
        let place = self.trips.iter().position(|known| *known == trip).unwrap_or_else(|| {
            self.trips.push(trip);
            self.trips.len() - 1
        });
        TripStamp::of(place)
    }

    /// Takes in the counts of the fast path.
    fn learn(&mut self, gathered: FastPathCounts, last_start: Timestamp, last_success: Timestamp) {
        let FastPathCounts { in_flight, let_in, successes } = gathered;
        self.control.take_stock(let_in, in_flight, last_start);
        if let Some(trip) = self.trip.filter(|_| last_success > Timestamp::EPOCH) {
            self.control.count_successes(successes, trip, last_success);
        }
    }

    /// What to publish to the fast path, and until when its counts belong to the same bucket.
    fn standing(&mut self) -> (FastPathState, Timestamp) {
        let flows_until = self.control.flows_until().filter(|_| self.waiting == 0);
        let mut alike_until = flows_until.unwrap_or_default();
        let stamp = match self.trip.map(|trip| (trip, self.control.on_success(trip))) {
            Some((trip, OnSuccess::Nothing)) => self.stamp(trip),
            Some((trip, OnSuccess::Counts { alike_until: until })) => {
                alike_until = alike_until.min(until);
                self.stamp(trip)
            }
            Some((_, OnSuccess::Changes)) | None => TripStamp::NONE,
        };
        let is_closed = self.control.breaker().is_closed();
        let standing = FastPathState {
            in_flight: self.control.in_flight(),
            flow: if flows_until.is_some() { FlowLimit::Free } else { FlowLimit::Limited },
            breaker: if is_closed {
                BreakerClosed::Yes { epoch: self.epoch(), stamp }
            } else {
                BreakerClosed::No
            },
        };
        (standing, alike_until)
    }

    fn epoch(&self) -> Epoch {
        Epoch::of(self.control.breaker().generation())
    }

    /// May turn the breaker half-open.
    fn admit(
        &mut self,
        rule: &Rule,
        request: CallRequest,
        asker: Asker,
        now: Timestamp,
    ) -> (AdmissionGate, Option<Transition>) {
        if asker == Asker::Newcomer && self.waiting > 0 {
            let gate = match self.control.held(rule, now) {
                Some((cause, until)) => AdmissionGate::Held(cause, until),
                None => AdmissionGate::Busy,
            };
            return (gate, None);
        }
        self.control.admit(rule, request, now)
    }

    /// The ticket of a pass; it has a permit if the breaker still knows its generation.
    fn ticket(&self, pass: CallPass) -> admission::CallTicket {
        match pass.0 {
            PassKind::Quick(epoch) => {
                let permit = self.control.breaker().closed_permit().filter(|_| epoch == self.epoch());
                admission::CallTicket::of_free_call(permit)
            }
            PassKind::Asked(ticket) => ticket,
        }
    }
}

/// A breaker that never changed has nothing to publish.
fn is_news(ours: &BreakerRecord, stored: Option<&BreakerRecord>) -> bool {
    let key = |record: &BreakerRecord| (record.generation, record.state, record.opened_at);
    match stored {
        Some(stored) => key(ours) > key(stored),
        None => ours.generation > Breaker::new().generation(),
    }
}

fn log(dependency: &DependencyName, transition: Transition, origin: &'static str) {
    let Transition { from, to, generation, failures, .. } = transition;
    let generation = generation.0;
    match to {
        BreakerPhase::Open => {
            tracing::warn!(%dependency, ?from, generation, failures, origin, "circuit breaker opened");
        }
        BreakerPhase::HalfOpen => {
            tracing::info!(%dependency, ?from, generation, failures, origin, "circuit breaker half-open");
        }
        BreakerPhase::Closed => {
            tracing::info!(%dependency, ?from, generation, failures, origin, "circuit breaker closed");
        }
    }
}

/// A caller that waits for room; newcomers queue behind it.
#[derive(Debug)]
pub(super) struct WaitingCaller<'a> {
    dependency: &'a GuardedDependency,
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.dependency.lock().waiting -= 1;
    }
}

/// A pass that is returned unused unless it is settled.
#[derive(Debug)]
#[must_use = "dropped at once, it is given back unused"]
pub(super) struct CallTicket<T: Deref<Target = Terms>> {
    terms: T,
    pass: Option<CallPass>,
}

impl<T: Deref<Target = Terms>> CallTicket<T> {
    #[inline]
    pub(super) const fn new(terms: T, pass: CallPass) -> Self {
        Self { terms, pass: Some(pass) }
    }

    pub(super) const fn terms(&self) -> &T {
        &self.terms
    }

    #[inline]
    pub(super) fn end_well(mut self, now: Timestamp) {
        if let Some(pass) = self.pass.take() {
            let Terms { rule, dependency, wants } = &*self.terms;
            dependency.end_well(pass, *wants, rule, now);
        }
    }

    pub(super) fn settle(mut self, seen: Observation, now: Timestamp) {
        if let Some(pass) = self.pass.take() {
            self.terms.dependency.settle(pass, seen, &self.terms.rule, now);
        }
    }

    /// The same pass with other terms.
    pub(super) fn keep<U: Deref<Target = Terms>>(mut self, terms: impl FnOnce() -> U) -> CallTicket<U> {
        let pass = self.pass.take();
        CallTicket { terms: terms(), pass }
    }
}

impl<T: Deref<Target = Terms>> Drop for CallTicket<T> {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.terms.dependency.unused(pass);
        }
    }
}
