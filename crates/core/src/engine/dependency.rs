//! What stands in front of one dependency: its breaker, its throttle, and a gentle start after an outage.
//!
//! Breaker first, then throttle: a call that the throttle refuses gives its permit back unused. A retry beyond
//! the budget of retries waits, burns nothing and keeps nobody else waiting. Invariant:
//! no call without a [`Ticket`], and every ticket comes back by [`Dependency::back`] or
//! [`Dependency::unused`].

use std::collections::VecDeque;
use std::time::Duration;

use super::ramp::Ramp;
use super::{LinePlace, Waiting};
use crate::ids::{DependencyName, Seq};
use crate::policy::breaker::{Admission, Breaker, BreakerSettings, Observation, Permit, State, Transition};
use crate::policy::budget::{Budget, BudgetSettings};
use crate::policy::decide::HoldCause;
use crate::policy::rule::Rule;
use crate::policy::throttle::{Pass, Slot, Throttle, ThrottleSettings};
use crate::text::Rate;
use crate::time::Timestamp;

/// One dependency, for all that call it.
#[derive(Debug)]
pub(super) struct Dependency {
    pub name: DependencyName,
    pub breaker: Breaker,
    pub throttle: Throttle,
    pub settings: ThrottleSettings,
    pub budget: Budget,
    /// How many of the calls may be retries, if that is limited.
    pub budget_settings: Option<BudgetSettings>,
    /// Of the rule that met it last; none before one with a breaker did.
    pub breaker_settings: Option<BreakerSettings>,
    ramp: Ramp,
    /// How long after it is back twice as many calls may start as usual.
    pub ramp_doubles_after: Duration,
    /// The delivery whose failure opened the breaker: it probes last.
    pub opened_by: Option<Seq>,
    /// Lines that have something to send and may not.
    pub waiters: VecDeque<LinePlace>,
    /// Lines that have nothing to send but retries, while those are too many.
    pub retriers: VecDeque<LinePlace>,
    /// When the waiters are to ask again, whatever happens.
    pub asks_at: Option<Timestamp>,
}

/// The right to make one call.
#[derive(Debug)]
#[must_use = "a ticket is given back"]
pub(super) struct Ticket {
    permit: Option<Permit>,
    slot: Slot,
}

/// What is to be called, as far as that matters to who lets it through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asks {
    /// How long it takes at most.
    limit: Duration,
    is_retry: bool,
}

impl Asks {
    pub(super) fn of(row: &Waiting, rule: &Rule) -> Self {
        Self { limit: rule.timeouts.whole.limit(row.next_attempt()), is_retry: row.is_retry() }
    }
}

/// Whether a call may be made.
#[derive(Debug)]
pub(super) enum Gate {
    /// Yes.
    Open(Ticket),
    /// Not before then, for a reason that counts as being held.
    Held(HoldCause, Timestamp),
    /// Not before then, to keep the pace.
    Paced(Timestamp),
    /// Not before then, since it is a retry and there are too many of them.
    OverBudget(Timestamp),
    /// Not before another call ends.
    Busy,
}

/// What slows down calls that nothing holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pressure {
    /// They come back gradually.
    RampUp,
    /// So many are in flight, and no more may be.
    Full { most: u32 },
    /// They start at that rate at most.
    Paced { rate: Rate },
}

impl Dependency {
    pub(super) fn new(
        name: DependencyName,
        settings: ThrottleSettings,
        budget_settings: Option<BudgetSettings>,
        ramp_doubles_after: Duration,
    ) -> Self {
        Self {
            name,
            breaker: Breaker::new(),
            throttle: Throttle::new(),
            settings,
            budget: Budget::new(),
            budget_settings,
            breaker_settings: None,
            ramp: Ramp::new(),
            ramp_doubles_after,
            opened_by: None,
            waiters: VecDeque::new(),
            retriers: VecDeque::new(),
            asks_at: None,
        }
    }

    /// Lets it come back gently.
    pub(super) fn ramp_up(&mut self, now: Timestamp) {
        self.ramp.begin(self.ramp_doubles_after, now);
    }

    /// The rate that it is held to now, if any.
    pub(super) fn current_rate(&self, now: Timestamp) -> Option<Rate> {
        let throttled = self.throttle.current_rate(&self.settings, now);
        let ramp = self.ramp.rate(now).and_then(Rate::per_second);
        let lower =
            |one: Rate, other: Rate| if other.as_per_second() < one.as_per_second() { other } else { one };
        throttled.into_iter().chain(ramp).reduce(lower)
    }

    /// What slows down calls now, if anything does.
    pub(super) fn pressure(&self, now: Timestamp) -> Option<Pressure> {
        let in_flight = self.throttle.in_flight();
        let most = self.settings.in_flight.get();
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

    /// Asks to make a call; the breaker may have become half-open by that, whatever the answer.
    pub(super) fn admit(&mut self, rule: &Rule, asks: Asks, now: Timestamp) -> (Gate, Option<Transition>) {
        if let Some(until) = self.asked_to_wait(now) {
            return (Gate::Held(HoldCause::AskedToWait, until), None);
        }
        if self.ramp.is_full(self.throttle.in_flight()) {
            return (Gate::Busy, None);
        }
        if let Some(until) = self.ramp.waits_until(now) {
            return (Gate::Paced(until), None);
        }
        if let Some(until) = self.retries_from(now).filter(|_| asks.is_retry) {
            return (Gate::OverBudget(until), None);
        }
        let permit =
            match rule.breaker.as_ref().map(|named| self.breaker.admit(&named.settings, asks.limit, now)) {
                Some(Admission::WaitUntil(until)) => {
                    return (Gate::Held(HoldCause::BreakerOpen, until), None);
                }
                Some(Admission::Allowed(permit)) => Some(permit),
                None => None,
            };
        let transition = permit.as_ref().and_then(|permit| self.breaker.transition_by(permit));
        let gate = match self.throttle.admit(&self.settings, now) {
            Pass::Go(slot) => {
                self.count(asks, now);
                if rule.breaker.is_none() || matches!(self.breaker.state(now), State::Closed { .. }) {
                    self.ramp.count(now);
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

    /// From when on a retry may be made, if none may now.
    pub(super) fn retries_from(&self, now: Timestamp) -> Option<Timestamp> {
        self.budget.refuses_until(self.budget_settings.as_ref()?, now)
    }

    fn count(&mut self, asks: Asks, now: Timestamp) {
        if self.budget_settings.is_none() {
            return;
        }
        if asks.is_retry {
            self.budget.count_retry(now);
        } else {
            self.budget.count_calls(1, now);
        }
    }

    /// What keeps everybody with that rule from starting, and until when; nothing that a call's end can change.
    pub(super) fn barrier(&self, rule: &Rule, now: Timestamp) -> Option<(HoldCause, Timestamp)> {
        if let Some(until) = self.asked_to_wait(now) {
            return Some((HoldCause::AskedToWait, until));
        }
        match self.breaker.state(now) {
            State::Open { until } if rule.breaker.is_some() => Some((HoldCause::BreakerOpen, until)),
            State::Open { .. } | State::HalfOpen { .. } | State::Closed { .. } => None,
        }
    }

    fn asked_to_wait(&self, now: Timestamp) -> Option<Timestamp> {
        self.throttle.hold_until().filter(|until| now < *until)
    }

    /// A call is over, and says this about the dependency.
    pub(super) fn back(
        &mut self,
        ticket: Ticket,
        seen: Observation,
        rule: &Rule,
        now: Timestamp,
    ) -> Option<Transition> {
        self.throttle.release(ticket.slot);
        if seen == Observation::Success {
            self.ramp.succeeded(self.settings.in_flight.get());
        }
        let permit = ticket.permit?;
        let settings = &rule.breaker.as_ref().expect("the rule that got a permit has a breaker").settings;
        self.breaker.settle(permit, seen, settings, now)
    }

    /// A call was not made, or nobody waited for its end.
    pub(super) fn unused(&mut self, ticket: Ticket) {
        self.throttle.release(ticket.slot);
        self.give_up(ticket.permit);
    }

    fn give_up(&mut self, permit: Option<Permit>) {
        if let Some(permit) = permit {
            self.breaker.cancel(permit);
        }
    }
}
