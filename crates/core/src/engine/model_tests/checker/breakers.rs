//! Breakers as the checker sees them: from how calls ended, by the simplest of all rules, failures in a row.
//!
//! A model is sure only of what every breaker with such settings must have seen. After a crash or a new
//! book it is unsure until enough successes in a row have closed any breaker there could be and nothing
//! is in flight that began before. Of a dependency that workers need it is never sure: they have their permit
//! before their start is on record, so when one begins does not show which state it was admitted in.

use std::collections::{BTreeMap, BTreeSet};

use super::super::books::{Breaker, Dependency, Spec, Trip, dependency_name};
use super::super::targets::Means;
use crate::engine::CallId;
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct Breakers {
    models: BTreeMap<usize, Model>,
    /// Calls in flight, by dependency.
    out: BTreeMap<usize, BTreeSet<CallId>>,
}

#[derive(Debug)]
struct Model {
    settings: Breaker,
    trip: u32,
    state: State,
    /// Calls in flight that started since the state last changed.
    counted: BTreeSet<CallId>,
}

#[derive(Debug)]
enum State {
    Unsure { successes: u32 },
    Closed { failures: u32 },
    Open { until: Timestamp },
    HalfOpen { successes: u32 },
}

/// Whether no call is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quiet {
    Yes,
    No,
}

impl Breakers {
    /// Breakers without a past.
    pub(super) fn new(spec: &Spec) -> Self {
        let mut breakers = Self { models: BTreeMap::new(), out: BTreeMap::new() };
        breakers.reread(spec);
        breakers.models.values_mut().for_each(|model| model.change(State::Closed { failures: 0 }));
        breakers
    }

    /// Another book is in force: there may be other breakers.
    pub(super) fn reread(&mut self, spec: &Spec) {
        let model = |(place, dependency): (usize, &Dependency)| {
            let settings = dependency.breaker.clone()?;
            let Trip::Consecutive(trip) = settings.trip else { return None };
            let state = State::Unsure { successes: 0 };
            Some((place, Model { settings, trip, state, counted: BTreeSet::new() }))
        };
        let is_seen = |(place, _): &(usize, &Dependency)| !spec.is_of_worker(*place);
        self.models = spec.dependencies.iter().enumerate().filter(is_seen).filter_map(model).collect();
    }

    /// Redrive went down.
    pub(super) fn forget(&mut self) {
        self.out.clear();
        self.models.values_mut().for_each(|model| model.change(State::Unsure { successes: 0 }));
    }

    /// A call starts; says what is wrong with that.
    pub(super) fn started(&mut self, dependency: usize, call: CallId, now: Timestamp) -> Option<String> {
        self.out.entry(dependency).or_default().insert(call);
        let model = self.models.get_mut(&dependency)?;
        if let State::Open { until } = model.state {
            if now < until {
                return Some(format!("called at {now}, though d{dependency} is open until {until}"));
            }
            model.change(State::HalfOpen { successes: 0 });
        }
        let probes = model.settings.probes as usize;
        if matches!(model.state, State::HalfOpen { .. }) && model.counted.len() >= probes {
            return Some(format!("more than {probes} probes of d{dependency} at {now}"));
        }
        model.counted.insert(call);
        None
    }

    pub(super) fn ended(&mut self, dependency: usize, call: CallId, means: Means, now: Timestamp) {
        let out = self.out.entry(dependency).or_default();
        out.remove(&call);
        if let Some(model) = self.models.get_mut(&dependency) {
            let counts = model.counted.remove(&call);
            model.ended(counts.then_some(means), means, now);
            model.become_sure(if out.is_empty() { Quiet::Yes } else { Quiet::No });
        }
    }

    pub(super) fn tripped(&mut self, name: &str, now: Timestamp) {
        if let Some(model) = self.find(name) {
            model.change(State::Open { until: now + model.settings.open });
        }
    }

    pub(super) fn reset(&mut self, name: &str) {
        if let Some(model) = self.find(name) {
            model.change(State::Closed { failures: 0 });
        }
    }

    /// Somebody has closed it while a call had its permit already and had not begun: whether that one counts
    /// cannot be seen.
    pub(super) fn reset_in_between(&mut self, name: &str) {
        if let Some(model) = self.find(name) {
            model.change(State::Unsure { successes: 0 });
        }
    }

    fn find(&mut self, name: &str) -> Option<&mut Model> {
        self.models
            .iter_mut()
            .find(|(place, _)| dependency_name(**place).as_str() == name)
            .map(|(_, model)| model)
    }
}

impl Model {
    fn change(&mut self, state: State) {
        self.state = state;
        self.counted.clear();
    }

    /// Whatever the breaker was, so many successes since the last failure have closed it; and if nothing is
    /// in flight, nothing is counted that began before.
    fn become_sure(&mut self, quiet: Quiet) {
        if let State::Unsure { successes } = self.state
            && successes >= self.settings.close_after
            && quiet == Quiet::Yes
        {
            self.change(State::Closed { failures: 0 });
        }
    }

    /// A call ended; `counted` is how, if it began in this state.
    fn ended(&mut self, counted: Option<Means>, any: Means, now: Timestamp) {
        let open = State::Open { until: now + self.settings.open };
        match &mut self.state {
            // Only calls that started after the last failure were let through by a breaker that is not open.
            State::Unsure { .. } if any.is_failure() => self.change(State::Unsure { successes: 0 }),
            State::Unsure { successes } => *successes += u32::from(counted == Some(Means::Delivered)),
            State::Closed { failures } => {
                if counted == Some(Means::Delivered) {
                    *failures = 0;
                } else if counted.is_some_and(Means::is_failure) {
                    *failures += 1;
                    if *failures >= self.trip {
                        self.change(open);
                    }
                }
            }
            State::Open { .. } => {}
            State::HalfOpen { successes } => match counted {
                Some(means) if means.is_failure() => self.change(open),
                Some(Means::Delivered | Means::Permanent) => {
                    *successes += 1;
                    if *successes >= self.settings.close_after {
                        self.change(State::Closed { failures: 0 });
                    }
                }
                Some(_) | None => {}
            },
        }
    }
}
