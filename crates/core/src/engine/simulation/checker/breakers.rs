//! Breakers as the checker sees them: from how calls ended, by the simplest of all rules, failures in a row.
//!
//! A model is sure only of what every breaker with such settings must have seen. After a crash or a new
//! book it is unsure until enough successes in a row have closed any breaker there could be.

use std::collections::{BTreeMap, BTreeSet};

use super::super::books::{Breaker, Spec, Trip, dependency_name};
use super::super::targets::Means;
use crate::engine::CallId;
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct Breakers(BTreeMap<usize, Model>);

#[derive(Debug)]
struct Model {
    settings: Breaker,
    trip: u32,
    state: State,
    /// Calls that started since the state last changed.
    counted: BTreeSet<CallId>,
}

#[derive(Debug)]
enum State {
    Unsure { successes: u32 },
    Closed { failures: u32 },
    Open { until: Timestamp },
    HalfOpen { successes: u32 },
}

impl Breakers {
    /// Breakers without a past.
    pub(super) fn new(spec: &Spec) -> Self {
        Self::with(spec, || State::Closed { failures: 0 })
    }

    /// Breakers with a past that nobody saw.
    pub(super) fn unsure(spec: &Spec) -> Self {
        Self::with(spec, || State::Unsure { successes: 0 })
    }

    fn with(spec: &Spec, state: fn() -> State) -> Self {
        let model = |(place, dependency): (usize, &super::super::books::Dependency)| {
            let settings = dependency.breaker.clone()?;
            let Trip::Consecutive(trip) = settings.trip else { return None };
            Some((place, Model { settings, trip, state: state(), counted: BTreeSet::new() }))
        };
        Self(spec.dependencies.iter().enumerate().filter_map(model).collect())
    }

    pub(super) fn forget(&mut self) {
        self.0.values_mut().for_each(|model| model.change(State::Unsure { successes: 0 }));
    }

    /// A call starts; says what is wrong with that.
    pub(super) fn started(&mut self, dependency: usize, call: CallId, now: Timestamp) -> Option<String> {
        let model = self.0.get_mut(&dependency)?;
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
        if let Some(model) = self.0.get_mut(&dependency) {
            let counts = model.counted.remove(&call);
            model.ended(counts.then_some(means), means, now);
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

    fn find(&mut self, name: &str) -> Option<&mut Model> {
        self.0.iter_mut().find(|(place, _)| dependency_name(**place).as_str() == name).map(|(_, model)| model)
    }
}

impl Model {
    fn change(&mut self, state: State) {
        self.state = state;
        self.counted.clear();
    }

    /// A call ended; `counted` is how, if it began in this state.
    fn ended(&mut self, counted: Option<Means>, any: Means, now: Timestamp) {
        let open = State::Open { until: now + self.settings.open };
        match &mut self.state {
            State::Unsure { successes } => match counted {
                Some(Means::Delivered) => {
                    *successes += 1;
                    if *successes >= self.settings.close_after {
                        self.change(State::Closed { failures: 0 });
                    }
                }
                Some(_) | None => *successes = 0,
            },
            State::Closed { failures } => {
                // A success that began before may have reset the count, so here it does.
                if any == Means::Delivered {
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
