//! Admission to one dependency: hold, breaker, throttle, retry budget and ramp-up, composed once for the
//! engine and for the guards of a program.
//!
//! A call is made if all of them allow it. Checks without side effects come first: the hold that the
//! dependency asked for, breaker, ramp-up, retry budget. Then the breaker gives a permit and the throttle a
//! slot; a call that the throttle refuses returns its permit unused. A retry beyond the budget blocks no
//! first attempt.
//!
//! Invariants:
//! - no call without a [`CallTicket`], and every ticket is returned by [`AdmissionControl::back`] or
//!   [`AdmissionControl::unused`];
//! - whenever the breaker closes, calls ramp up;
//! - a call admitted by [`AdmissionControl::flows_until`] and counted by [`AdmissionControl::take_stock`]
//!   leaves the same state as one admitted by [`AdmissionControl::admit`].

mod ramp;

use std::time::Duration;

use self::ramp::Ramp;
use crate::ids::DependencyName;
use crate::policy::breaker::{
    Admission, Adoption, Breaker, BreakerPhase, BreakerRecord, BreakerSettings, BreakerState, Observation,
    OnSuccess, Permit, Transition, Trip,
};
use crate::policy::budget::{Budget, BudgetSettings};
use crate::policy::decide::HoldCause;
use crate::policy::rule::Rule;
use crate::policy::throttle::{Slot, Throttle, ThrottlePass, ThrottleSettings};
use crate::text::Rate;
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionSettings {
    pub throttle: ThrottleSettings,
    pub budget: Option<BudgetSettings>,
    /// The time after an outage until calls may start at twice the usual rate; zero is no pace.
    pub ramp: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionControl {
    breaker: Breaker,
    throttle: Throttle,
    budget: Budget,
    ramp: Ramp,
    settings: AdmissionSettings,
    /// Of the last rule with a breaker that was attached.
    breaker_settings: Option<BreakerSettings>,
}

#[derive(Debug)]
#[must_use = "a ticket is given back"]
pub struct CallTicket {
    permit: Option<Permit>,
    slot: Slot,
}

impl CallTicket {
    /// The ticket of a call that was admitted without [`AdmissionControl::admit`]; it has a permit if the
    /// breaker has not changed since.
    pub const fn of_free_call(permit: Option<Permit>) -> Self {
        Self { permit, slot: Slot::of_free_call() }
    }

    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::is_probe)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct CallRequest {
    pub limit: Duration,
    pub claim: BudgetClaim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetClaim {
    First,
    Retry,
    Granted,
}

#[derive(Debug)]
pub enum AdmissionGate {
    Open(CallTicket),
    Held(HoldCause, Timestamp),
    Paced(Timestamp),
    OverBudget(Timestamp),
    Busy,
}

/// What slows down calls that nothing holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pressure {
    RampUp,
    Full { most: u32 },
    Paced { rate: Rate },
}

impl AdmissionControl {
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

    /// Asks to make a call; that may make the breaker half-open, whatever the answer.
    pub fn admit(
        &mut self,
        rule: &Rule,
        request: CallRequest,
        now: Timestamp,
    ) -> (AdmissionGate, Option<Transition>) {
        if let Some((cause, until)) = self.held(rule, now) {
            return (AdmissionGate::Held(cause, until), None);
        }
        if self.ramp.is_full(self.throttle.in_flight()) {
            return (AdmissionGate::Busy, None);
        }
        if let Some(until) = self.ramp.waits_until(now) {
            return (AdmissionGate::Paced(until), None);
        }
        if request.claim == BudgetClaim::Retry
            && let Some(until) = self.retries_from(now)
        {
            return (AdmissionGate::OverBudget(until), None);
        }
        let breaker = rule.breaker.as_ref();
        let permit = match breaker.map(|named| self.breaker.admit(&named.settings, request.limit, now)) {
            Some(Admission::WaitUntil(until)) => {
                return (AdmissionGate::Held(HoldCause::BreakerOpen, until), None);
            }
            Some(Admission::Allowed(permit)) => Some(permit),
            None => None,
        };
        let transition = permit.as_ref().and_then(|permit| self.breaker.transition_by(permit));
        let gate = match self.throttle.admit(&self.settings.throttle, now) {
            ThrottlePass::Go(slot) => {
                self.count(request.claim, now);
                if rule.breaker.is_none() || self.breaker.is_closed() {
                    self.ramp.count(1, now);
                }
                AdmissionGate::Open(CallTicket { permit, slot })
            }
            ThrottlePass::Full => {
                self.give_up(permit);
                AdmissionGate::Busy
            }
            ThrottlePass::WaitUntil(until) => {
                self.give_up(permit);
                AdmissionGate::Paced(until)
            }
        };
        (gate, transition)
    }

    /// What holds every call by that rule, and until when; the end of a probe may admit one sooner.
    #[must_use]
    pub fn held(&self, rule: &Rule, now: Timestamp) -> Option<(HoldCause, Timestamp)> {
        if let Some(until) = self.asked_to_wait(now) {
            return Some((HoldCause::AskedToWait, until));
        }
        let until = self.breaker.refuses_until(&rule.breaker.as_ref()?.settings, now)?;
        Some((HoldCause::BreakerOpen, until))
    }

    /// Like [`Self::held`], without what the end of a call can change.
    #[must_use]
    pub fn barrier(&self, rule: &Rule, now: Timestamp) -> Option<(HoldCause, Timestamp)> {
        if let Some(until) = self.asked_to_wait(now) {
            return Some((HoldCause::AskedToWait, until));
        }
        match self.breaker.state(now) {
            BreakerState::Open { until } if rule.breaker.is_some() => Some((HoldCause::BreakerOpen, until)),
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } | BreakerState::Closed { .. } => None,
        }
    }

    #[must_use]
    pub fn asked_to_wait(&self, now: Timestamp) -> Option<Timestamp> {
        self.throttle.hold_until().filter(|until| now < *until)
    }

    #[must_use]
    pub fn retries_from(&self, now: Timestamp) -> Option<Timestamp> {
        self.budget.refuses_until(self.settings.budget.as_ref()?, now)
    }

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

    pub fn back(
        &mut self,
        ticket: CallTicket,
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

    pub fn unused(&mut self, ticket: CallTicket) {
        self.throttle.release(ticket.slot);
        self.give_up(ticket.permit);
    }

    fn give_up(&mut self, permit: Option<Permit>) {
        if let Some(permit) = permit {
            self.breaker.cancel(permit);
        }
    }

    pub fn throttled(&mut self, retry_after: Option<Duration>, now: Timestamp) -> Option<Timestamp> {
        self.throttle.throttled(&self.settings.throttle, retry_after, now);
        self.throttle.hold_until().filter(|_| retry_after.is_some())
    }

    /// Begins a ramp-up: few calls in flight at first, and at the usual rate if that is known.
    pub fn ramp_up(&mut self, now: Timestamp) {
        self.ramp.begin(self.settings.ramp, now);
    }

    pub fn trip_by_hand(&mut self, now: Timestamp) -> Option<Transition> {
        Some(self.breaker.trip_by_hand(self.breaker_settings.as_ref()?, now))
    }

    pub fn reset_by_hand(&mut self, now: Timestamp) -> Option<Transition> {
        self.breaker_settings.as_ref()?;
        let transition = self.breaker.reset_by_hand(now);
        Some(self.changed(transition))
    }

    pub fn adopt(&mut self, record: &BreakerRecord, now: Timestamp) -> Option<Transition> {
        match self.breaker.adopt(record, self.breaker_settings.as_ref()?, now) {
            Adoption::Taken(transition) => Some(self.changed(transition)),
            Adoption::CaughtUp | Adoption::Kept => None,
        }
    }

    fn changed(&mut self, transition: Transition) -> Transition {
        if transition.to == BreakerPhase::Closed {
            self.ramp_up(transition.at);
        }
        transition
    }

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

    #[must_use]
    pub fn has_breaker(&self) -> bool {
        self.breaker_settings.is_some()
    }

    #[must_use]
    pub const fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    #[must_use]
    pub fn record(&self, name: &DependencyName, now: Timestamp) -> BreakerRecord {
        self.breaker.record(name, now)
    }

    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.throttle.in_flight()
    }

    #[must_use]
    pub const fn in_flight_max(&self) -> u32 {
        self.settings.throttle.in_flight.get()
    }

    #[must_use]
    pub fn current_rate(&self, now: Timestamp) -> Option<Rate> {
        let throttled = self.throttle.current_rate(&self.settings.throttle, now);
        let ramp = self.ramp.rate(now).and_then(Rate::per_second);
        let lower =
            |one: Rate, other: Rate| if other.as_per_second() < one.as_per_second() { other } else { one };
        throttled.into_iter().chain(ramp).reduce(lower)
    }

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

    /// Until when calls may be admitted without [`Self::admit`], as long as at most [`Self::in_flight_max`]
    /// are in flight and a rule with a breaker finds it closed: until then nothing else limits them, and they
    /// are counted alike. `None` if something limits them.
    ///
    /// A caller that uses this must report the calls by [`Self::take_stock`] before any other question.
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

    /// Counts first attempts that were admitted by [`Self::flows_until`], the last of them at `last_at`;
    /// `in_flight` is the current total.
    pub fn take_stock(&mut self, let_in: u32, in_flight: u32, last_at: Timestamp) {
        self.throttle.take_stock(let_in, in_flight, last_at);
        if let_in > 0 {
            self.budget.count_calls(let_in, last_at);
            self.ramp.count(let_in, last_at);
        }
    }

    #[must_use]
    pub fn on_success(&self, trip: Trip) -> OnSuccess {
        self.breaker.on_success(trip)
    }

    /// Counts successes of calls admitted by [`Self::flows_until`]: `count` of those with
    /// [`OnSuccess::Counts`], the last at `last_at`.
    pub fn count_successes(&mut self, count: u32, trip: Trip, last_at: Timestamp) {
        self.breaker.count_successes(count, trip, last_at);
    }
}
