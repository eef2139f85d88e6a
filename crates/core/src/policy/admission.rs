//! Admission to one dependency: hold, breaker, throttle, retry budget and ramp-up, composed once for the engine and
//! for the guards of a program.
//!
//! A call is made if all of them allow it. Those that only look are asked first: a hold that the dependency asked
//! for, the breaker, the ramp-up after an outage, the retry budget. Then the breaker gives a permit and the throttle
//! a slot; a call that the throttle refuses gives its permit back unused. A retry beyond the budget waits, and keeps
//! no first attempt waiting.
//!
//! Invariants:
//! - no call without a [`Ticket`], and every ticket comes back by [`AdmissionControl::back`] or
//!   [`AdmissionControl::unused`];
//! - whenever the breaker closes, calls ramp up;
//! - a call that was let in by [`AdmissionControl::flows_until`] and counted by [`AdmissionControl::take_stock`]
//!   leaves everything as if it had been admitted.

mod ramp;

use std::time::Duration;

use self::ramp::Ramp;
use crate::ids::DependencyName;
use crate::policy::breaker::{
    Admission, Adopted, Breaker, BreakerSettings, Observation, OnSuccess, Permit, Phase, Record, State,
    Transition, Trip,
};
use crate::policy::budget::{Budget, BudgetSettings};
use crate::policy::decide::HoldCause;
use crate::policy::rule::Rule;
use crate::policy::throttle::{Pass, Slot, Throttle, ThrottleSettings};
use crate::text::Rate;
use crate::time::Timestamp;

/// What the rule book says of a dependency as a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionSettings {
    /// Calls in flight and calls a second.
    pub throttle: ThrottleSettings,
    /// How many of the calls may be retries, if that is limited.
    pub budget: Option<BudgetSettings>,
    /// The time after an outage until calls may start at twice the usual rate; zero is no pace.
    pub ramp: Duration,
}

/// Decides which calls to one dependency may start.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionControl {
    breaker: Breaker,
    throttle: Throttle,
    budget: Budget,
    ramp: Ramp,
    settings: AdmissionSettings,
    /// Of the rule with a breaker that was met last.
    breaker_settings: Option<BreakerSettings>,
}

/// The right to make one call.
#[derive(Debug)]
#[must_use = "a ticket is given back"]
pub struct Ticket {
    permit: Option<Permit>,
    slot: Slot,
}

impl Ticket {
    /// The ticket of a call that was let in without asking; it has a permit if the breaker has stayed as it was.
    pub const fn of_free_call(permit: Option<Permit>) -> Self {
        Self { permit, slot: Slot::of_free_call() }
    }

    /// Whether the call is a probe of a half-open breaker.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::is_probe)
    }
}

/// A call that wants to start.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The longest time that it takes.
    pub limit: Duration,
    /// How it counts in the retry budget.
    pub claim: BudgetClaim,
}

/// How a call counts in the retry budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetClaim {
    /// A first attempt: retries are a share of these.
    First,
    /// A retry that waits until the budget allows it.
    Retry,
    /// A retry that [`AdmissionControl::grant_retry`] has counted already.
    Granted,
}

/// Whether a call may start.
#[derive(Debug)]
pub enum Gate {
    /// Yes.
    Open(Ticket),
    /// Not before then: the breaker is open, or the dependency asked to wait.
    Held(HoldCause, Timestamp),
    /// Not before then, to keep the pace.
    Paced(Timestamp),
    /// Not before then: too many calls are retries.
    OverBudget(Timestamp),
    /// Not before another call ends.
    Busy,
}

/// What slows down calls that nothing holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pressure {
    /// The ramp-up after an outage.
    RampUp,
    /// The limit of calls in flight.
    Full {
        /// The limit.
        most: u32,
    },
    /// The rate limit.
    Paced {
        /// The rate.
        rate: Rate,
    },
}

impl AdmissionControl {
    /// A dependency that nothing is known about: its breaker is closed and nothing ramps up.
    #[must_use]
    pub fn new(settings: AdmissionSettings) -> Self {
        Self {
            breaker: Breaker::new(),
            throttle: Throttle::new(),
            budget: Budget::new(),
            ramp: Ramp::new(),
            settings,
            breaker_settings: None,
        }
    }

    /// Asks to make a call; the breaker may become half-open by that, whatever the answer.
    pub fn admit(&mut self, rule: &Rule, request: Request, now: Timestamp) -> (Gate, Option<Transition>) {
        if let Some((cause, until)) = self.held(rule, now) {
            return (Gate::Held(cause, until), None);
        }
        if self.ramp.is_full(self.throttle.in_flight()) {
            return (Gate::Busy, None);
        }
        if let Some(until) = self.ramp.waits_until(now) {
            return (Gate::Paced(until), None);
        }
        if request.claim == BudgetClaim::Retry
            && let Some(until) = self.retries_from(now)
        {
            return (Gate::OverBudget(until), None);
        }
        let breaker = rule.breaker.as_ref();
        let permit = match breaker.map(|named| self.breaker.admit(&named.settings, request.limit, now)) {
            Some(Admission::WaitUntil(until)) => return (Gate::Held(HoldCause::BreakerOpen, until), None),
            Some(Admission::Allowed(permit)) => Some(permit),
            None => None,
        };
        let transition = permit.as_ref().and_then(|permit| self.breaker.transition_by(permit));
        let gate = match self.throttle.admit(&self.settings.throttle, now) {
            Pass::Go(slot) => {
                self.count(request.claim, now);
                if rule.breaker.is_none() || self.breaker.is_closed() {
                    self.ramp.count(1, now);
                }
                Gate::Open(Ticket { permit, slot })
            }
            Pass::Full => {
                self.give_up(permit);
                Gate::Busy
            }
            Pass::WaitUntil(until) => {
                self.give_up(permit);
                Gate::Paced(until)
            }
        };
        (gate, transition)
    }

    /// What holds every call by that rule, and until when; a probe that ends may let one through sooner.
    #[must_use]
    pub fn held(&self, rule: &Rule, now: Timestamp) -> Option<(HoldCause, Timestamp)> {
        if let Some(until) = self.asked_to_wait(now) {
            return Some((HoldCause::AskedToWait, until));
        }
        let until = self.breaker.refuses_until(&rule.breaker.as_ref()?.settings, now)?;
        Some((HoldCause::BreakerOpen, until))
    }

    /// What keeps every call by that rule from starting, and until when; nothing that the end of a call can change.
    #[must_use]
    pub fn barrier(&self, rule: &Rule, now: Timestamp) -> Option<(HoldCause, Timestamp)> {
        if let Some(until) = self.asked_to_wait(now) {
            return Some((HoldCause::AskedToWait, until));
        }
        match self.breaker.state(now) {
            State::Open { until } if rule.breaker.is_some() => Some((HoldCause::BreakerOpen, until)),
            State::Open { .. } | State::HalfOpen { .. } | State::Closed { .. } => None,
        }
    }

    /// Until when the dependency asked to wait, if that is not over.
    #[must_use]
    pub fn asked_to_wait(&self, now: Timestamp) -> Option<Timestamp> {
        self.throttle.hold_until().filter(|until| now < *until)
    }

    /// From when on a retry may be made, if none may now.
    #[must_use]
    pub fn retries_from(&self, now: Timestamp) -> Option<Timestamp> {
        self.budget.refuses_until(self.settings.budget.as_ref()?, now)
    }

    /// Counts a retry at once if the budget allows one.
    pub fn grant_retry(&mut self, now: Timestamp) -> bool {
        let is_granted = self.retries_from(now).is_none();
        if is_granted {
            self.count(BudgetClaim::Retry, now);
        }
        is_granted
    }

    fn count(&mut self, claim: BudgetClaim, now: Timestamp) {
        if self.settings.budget.is_none() {
            return;
        }
        match claim {
            BudgetClaim::First => self.budget.count_calls(1, now),
            BudgetClaim::Retry => self.budget.count_retry(now),
            BudgetClaim::Granted => {}
        }
    }

    /// A call by that rule is over, and says this about the dependency.
    pub fn back(
        &mut self,
        ticket: Ticket,
        seen: Observation,
        rule: &Rule,
        now: Timestamp,
    ) -> Option<Transition> {
        self.throttle.release(ticket.slot);
        if seen == Observation::Success {
            self.ramp.succeeded(self.settings.throttle.in_flight.get());
        }
        let (permit, named) = ticket.permit.zip(rule.breaker.as_ref())?;
        let transition = self.breaker.settle(permit, seen, &named.settings, now)?;
        Some(self.changed(transition))
    }

    /// A call was not made, or its end was not waited for.
    pub fn unused(&mut self, ticket: Ticket) {
        self.throttle.release(ticket.slot);
        self.give_up(ticket.permit);
    }

    fn give_up(&mut self, permit: Option<Permit>) {
        if let Some(permit) = permit {
            self.breaker.cancel(permit);
        }
    }

    /// The dependency asked for fewer calls; returns until when it asked for none at all.
    pub fn throttled(&mut self, retry_after: Option<Duration>, now: Timestamp) -> Option<Timestamp> {
        self.throttle.throttled(&self.settings.throttle, retry_after, now);
        self.throttle.hold_until().filter(|_| retry_after.is_some())
    }

    /// Lets calls ramp up: at first few in flight, and at the usual rate if that is known.
    pub fn ramp_up(&mut self, now: Timestamp) {
        self.ramp.begin(self.settings.ramp, now);
    }

    /// Opens the breaker on an operator's word; none if no rule has one.
    pub fn trip_by_hand(&mut self, now: Timestamp) -> Option<Transition> {
        Some(self.breaker.trip_by_hand(self.breaker_settings.as_ref()?, now))
    }

    /// Closes the breaker on an operator's word; none if no rule has one.
    pub fn reset_by_hand(&mut self, now: Timestamp) -> Option<Transition> {
        self.breaker_settings.as_ref()?;
        let transition = self.breaker.reset_by_hand(now);
        Some(self.changed(transition))
    }

    /// Takes over a newer state of the breaker; the change, if that is one.
    pub fn adopt(&mut self, record: &Record, now: Timestamp) -> Option<Transition> {
        match self.breaker.adopt(record, self.breaker_settings.as_ref()?, now) {
            Adopted::Taken(transition) => Some(self.changed(transition)),
            Adopted::CaughtUp | Adopted::Kept => None,
        }
    }

    fn changed(&mut self, transition: Transition) -> Transition {
        if transition.to == Phase::Closed {
            self.ramp_up(transition.at);
        }
        transition
    }

    /// From now on these settings hold.
    pub fn set(&mut self, settings: AdmissionSettings) {
        self.settings = settings;
    }

    /// A rule with such a breaker is in use; returns whether it is the first one with any.
    pub fn set_breaker(&mut self, settings: &BreakerSettings) -> bool {
        if self.breaker_settings.as_ref() == Some(settings) {
            return false;
        }
        self.breaker_settings.replace(settings.clone()).is_none()
    }

    /// Whether a rule with a breaker is in use.
    #[must_use]
    pub fn has_breaker(&self) -> bool {
        self.breaker_settings.is_some()
    }

    /// The breaker, to look at.
    #[must_use]
    pub const fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// The breaker's state, to be kept or shared.
    #[must_use]
    pub fn record(&self, name: &DependencyName, now: Timestamp) -> Record {
        self.breaker.record(name, now)
    }

    /// Calls that were admitted and are not over.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.throttle.in_flight()
    }

    /// The most calls that may be in flight.
    #[must_use]
    pub const fn in_flight_max(&self) -> u32 {
        self.settings.throttle.in_flight.get()
    }

    /// The rate that calls are held to now, if any.
    #[must_use]
    pub fn current_rate(&self, now: Timestamp) -> Option<Rate> {
        let throttled = self.throttle.current_rate(&self.settings.throttle, now);
        let ramp = self.ramp.rate(now).and_then(Rate::per_second);
        let lower =
            |one: Rate, other: Rate| if other.as_per_second() < one.as_per_second() { other } else { one };
        throttled.into_iter().chain(ramp).reduce(lower)
    }

    /// What slows down calls now, if anything does.
    #[must_use]
    pub fn pressure(&self, now: Timestamp) -> Option<Pressure> {
        let in_flight = self.throttle.in_flight();
        let most = self.in_flight_max();
        if in_flight >= most {
            return Some(Pressure::Full { most });
        }
        if self.ramp.is_full(in_flight) {
            return Some(Pressure::RampUp);
        }
        let rate = self.current_rate(now)?;
        let ramp = self.ramp.rate(now).and_then(Rate::per_second);
        Some(if ramp == Some(rate) { Pressure::RampUp } else { Pressure::Paced { rate } })
    }

    /// Until when calls may be let in without asking, as long as no more than [`Self::in_flight_max`] are out and a
    /// rule with a breaker finds it closed: until then nothing else limits them, and they are counted alike. None if
    /// something limits them.
    ///
    /// A caller that admits calls by that reports them by [`Self::take_stock`] before it asks anything else.
    #[must_use]
    pub fn flows_until(&self) -> Option<Timestamp> {
        let throttle = self.throttle.flows_until(&self.settings.throttle)?;
        let ramp = self.ramp.flows_until()?;
        let budget = match self.settings.budget {
            Some(_) => self.budget.counts_alike_until()?,
            None => Timestamp::NEVER,
        };
        Some(throttle.min(ramp).min(budget))
    }

    /// Counts first attempts that were let in without asking, the last of them at that time; so many calls are in
    /// flight in all by now.
    pub fn take_stock(&mut self, let_in: u32, in_flight: u32, last_at: Timestamp) {
        self.throttle.take_stock(let_in, in_flight, last_at);
        if let_in > 0 {
            self.budget.count_calls(let_in, last_at);
            self.ramp.count(let_in, last_at);
        }
    }

    /// What the success of a call does to the breaker that was let in without asking.
    #[must_use]
    pub fn on_success(&self, trip: Trip) -> OnSuccess {
        self.breaker.on_success(trip)
    }

    /// Counts successes of calls that were let in without asking: together those that [`OnSuccess::Counts`], the
    /// last of all at that time.
    pub fn count_successes(&mut self, count: u32, trip: Trip, last_at: Timestamp) {
        self.breaker.count_successes(count, trip, last_at);
    }
}
