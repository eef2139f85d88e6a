//! What stands in front of one dependency: its breaker, its throttle, and those who wait for room.
//!
//! All guards of a book that call the same dependency share one. The deciding is the core's; here is who may ask
//! it when, and who is woken by the answer.
//!
//! Invariants:
//! - whoever gets a [`Pass`] gives it back: [`Ticket`] does so however the call ends;
//! - whoever waits for room is woken when there is some, in the order in which they came;
//! - every change of the breaker is logged and told to whoever shares it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redrive_core::breaker::{
    Admission, Adopted, Breaker, BreakerSettings, Observation, Permit, Phase, Record, State as BreakerState,
    Transition,
};
use redrive_core::classify::Failure;
use redrive_core::decide::HoldCause;
use redrive_core::ids::DependencyName;
use redrive_core::rule::Rule;
use redrive_core::throttle::{self, Slot, Throttle, ThrottleSettings};
use redrive_core::time::Timestamp;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore};

use super::link::Link;

/// One dependency, for all guards of a book that call it.
#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) name: DependencyName,
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
    limits: ThrottleSettings,
    /// Of the rule that was made last; none if that has no breaker.
    breaker_settings: Option<BreakerSettings>,
    /// Calls that wait for room or for the pace.
    waiting: u32,
}

/// The right to make one attempt.
#[derive(Debug)]
#[must_use = "a pass is given back"]
pub(super) struct Pass {
    permit: Option<Permit>,
    slot: Slot,
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

impl Dependency {
    pub(super) fn new(name: DependencyName, limits: ThrottleSettings) -> Self {
        Self {
            name,
            state: Mutex::new(State {
                breaker: Breaker::new(),
                throttle: Throttle::new(),
                limits,
                breaker_settings: None,
                waiting: 0,
            }),
            turn: Semaphore::new(1),
            room: Notify::new(),
            changed: Notify::new(),
            link: OnceLock::new(),
        }
    }

    /// From now on these limits hold.
    pub(super) fn follow(&self, limits: ThrottleSettings, rule: &Rule) {
        let mut state = self.lock();
        state.limits = limits;
        state.breaker_settings = rule.breaker.as_ref().map(|named| named.settings.clone());
        drop(state);
        self.room.notify_one();
    }

    /// Asks to make an attempt that takes at most `limit`.
    pub(super) fn admit(&self, rule: &Rule, limit: Duration, asker: Asker, now: Timestamp) -> Gate {
        let mut state = self.lock();
        if let Some(until) = state.throttle.hold_until().filter(|until| now < *until) {
            return Gate::Held(HoldCause::AskedToWait, until);
        }
        let admission = rule.breaker.as_ref().map(|named| state.breaker.admit(&named.settings, limit, now));
        let permit = match admission {
            Some(Admission::WaitUntil(until)) => return Gate::Held(HoldCause::BreakerOpen, until),
            Some(Admission::Allowed(permit)) => Some(permit),
            None => None,
        };
        if let Some(transition) = permit.as_ref().and_then(|permit| state.breaker.transition_by(permit)) {
            self.tell(transition);
        }
        let limits = state.limits;
        let pass = if asker == Asker::Newcomer && state.waiting > 0 {
            throttle::Pass::Full
        } else {
            state.throttle.admit(&limits, now)
        };
        match pass {
            throttle::Pass::Go(slot) => Gate::Open(Pass { permit, slot }),
            throttle::Pass::Full => {
                state.give_up(permit);
                Gate::Busy
            }
            throttle::Pass::WaitUntil(until) => {
                state.give_up(permit);
                Gate::Paced(until)
            }
        }
    }

    /// An attempt is over, and says this about the dependency.
    fn settle(&self, pass: Pass, seen: Observation, rule: &Rule, now: Timestamp) {
        let Pass { permit, slot } = pass;
        let mut state = self.lock();
        state.throttle.release(slot);
        let probed = permit.as_ref().is_some_and(Permit::is_probe);
        let settings = rule.breaker.as_ref().map(|named| &named.settings);
        let transition = permit
            .zip(settings)
            .and_then(|(permit, settings)| state.breaker.settle(permit, seen, settings, now));
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
    fn unused(&self, pass: Pass) {
        let Pass { permit, slot } = pass;
        let mut state = self.lock();
        state.throttle.release(slot);
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
        let limits = state.limits;
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

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held but a bug, and the state is whole between any two steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

impl State {
    fn give_up(&mut self, permit: Option<Permit>) {
        if let Some(permit) = permit {
            self.breaker.cancel(permit);
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
pub(super) struct Ticket {
    dependency: Arc<Dependency>,
    pass: Option<Pass>,
}

impl Ticket {
    pub(super) fn new(dependency: &Arc<Dependency>, pass: Pass) -> Self {
        Self { dependency: Arc::clone(dependency), pass: Some(pass) }
    }

    /// The attempt is over, and says this about the dependency.
    pub(super) fn settle(mut self, seen: Observation, rule: &Rule, now: Timestamp) {
        if let Some(pass) = self.pass.take() {
            self.dependency.settle(pass, seen, rule, now);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.dependency.unused(pass);
        }
    }
}
