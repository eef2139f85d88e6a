//! Why a delivery waits: answered from the same state that decides what starts.

use std::collections::BTreeSet;

use super::dependency::EngineDependency;
use super::messages::QueueName;
use super::queue::{EngineQueue, LineStatus, QueuePresence};
use super::{Engine, QueuePlace, RunState};
use crate::ids::{ChannelName, DeliveryId, DependencyName, Seq};
use crate::policy::admission::Pressure;
use crate::policy::breaker::BreakerState;
use crate::policy::decide::HoldCause;
use crate::policy::rule::Rule;
use crate::text::Rate;
use crate::time::Timestamp;

/// A delivery that has not ended, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitQuery {
    pub id: DeliveryId,
    pub queue: QueueName,
    pub event_type: String,
    pub state: StoredState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredState {
    Ready,
    Due {
        /// [`Timestamp::NEVER`] where no rule matches it.
        at: Timestamp,
    },
    Behind,
}

/// What a delivery waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Wait {
    /// Nothing: its attempt is running.
    Running,
    /// Its attempt has ended, and the outcome is being written.
    Settling,
    StoreFailing {
        since: Timestamp,
    },
    Stopping,
    /// The rule book no longer has its service or channel.
    ServiceRemoved,
    /// No row of its service matches its event any more.
    RuleRemoved,
    Paused {
        since: Timestamp,
    },
    Session,
    RetryAfter {
        dependency: DependencyName,
        until: Timestamp,
    },
    BreakerOpen {
        dependency: DependencyName,
        /// When the first probe may start.
        until: Timestamp,
    },
    Probes {
        dependency: DependencyName,
    },
    Due {
        at: Timestamp,
    },
    /// It is a retry, and its dependency's retry budget is spent.
    RetryBudget {
        dependency: DependencyName,
        until: Timestamp,
    },
    /// Calls to its dependency ramp up, after a start or an outage.
    RampUp {
        dependency: DependencyName,
    },
    Rate {
        dependency: DependencyName,
        rate: Rate,
    },
    InFlight {
        dependency: DependencyName,
        most: u32,
    },
    Share,
    /// After a crash, a delivery that may be its cause runs alone.
    Alone,
    /// Only its turn.
    Turn,
}

impl Wait {
    /// Whether it lasts until something outside the queue changes.
    #[must_use]
    pub const fn is_hold(&self) -> bool {
        match self {
            Self::StoreFailing { .. }
            | Self::ServiceRemoved
            | Self::RuleRemoved
            | Self::Paused { .. }
            | Self::RetryAfter { .. }
            | Self::BreakerOpen { .. }
            | Self::Probes { .. } => true,
            Self::Running
            | Self::Settling
            | Self::Stopping
            | Self::Session
            | Self::Due { .. }
            | Self::RetryBudget { .. }
            | Self::RampUp { .. }
            | Self::Rate { .. }
            | Self::InFlight { .. }
            | Self::Share
            | Self::Alone
            | Self::Turn => false,
        }
    }

    const fn until(&self) -> Option<Timestamp> {
        if let Self::RetryAfter { until, .. } | Self::BreakerOpen { until, .. } = self {
            return Some(*until);
        }
        None
    }
}

impl Engine {
    #[must_use]
    pub fn waits(&self, asked: &[WaitQuery], now: Timestamp) -> Vec<Wait> {
        let running: BTreeSet<Seq> =
            self.calls.values().flat_map(|made| &made.call.deliveries).map(|row| row.id.seq()).collect();
        asked.iter().map(|one| self.wait_of(one, &running, now)).collect()
    }

    /// What holds every delivery of the rule, if anything does.
    #[must_use]
    pub fn hold_of(&self, queue: &QueueName, rule: &Rule, now: Timestamp) -> Option<Wait> {
        self.hold_of_queue(queue).or_else(|| self.hold_of_dependency(rule, now))
    }

    fn wait_of(&self, asked: &WaitQuery, running: &BTreeSet<Seq>, now: Timestamp) -> Wait {
        let seq = asked.id.seq();
        if running.contains(&seq) {
            return Wait::Running;
        }
        if self.settling.contains_key(&seq) {
            return Wait::Settling;
        }
        if let Some(held) = self.hold_of_queue(&asked.queue) {
            return held;
        }
        if self.running == RunState::Stopping {
            return Wait::Stopping;
        }
        if asked.state == StoredState::Behind {
            return Wait::Session;
        }
        let QueueName { service, channel } = &asked.queue;
        let channel = channel.as_ref().map(ChannelName::as_str);
        let Some(rule) = self.book.rule(service.as_str(), channel, &asked.event_type) else {
            return Wait::RuleRemoved;
        };
        let held = self.hold_of_dependency(rule, now);
        match asked.state {
            StoredState::Due { at } if now < at && at < Timestamp::NEVER => {
                // Of two waits, the one that ends last is the answer.
                let lasts = held.filter(|held| held.until().is_some_and(|until| until > at));
                lasts.unwrap_or(Wait::Due { at })
            }
            StoredState::Due { .. } | StoredState::Ready | StoredState::Behind => {
                held.unwrap_or_else(|| self.wait_in_line(asked, rule, now))
            }
        }
    }

    fn hold_of_queue(&self, name: &QueueName) -> Option<Wait> {
        let place = self.queue_places.get(name).copied();
        let presence =
            place.map_or_else(|| self.presence(name), |QueuePlace(place)| self.queues[place].presence);
        if presence == QueuePresence::Removed {
            return Some(Wait::ServiceRemoved);
        }
        let service = self.service_places.get(&name.service).map(|place| &self.services[place.0]);
        if let Some((since, None)) = service.and_then(|service| service.pauses.last()) {
            return Some(Wait::Paused { since: *since });
        }
        self.store_failing_since.map(|since| Wait::StoreFailing { since })
    }

    fn dependency_of(&self, rule: &Rule) -> Option<&EngineDependency> {
        self.dependency_places.get(&rule.dependency).map(|place| &self.dependencies[place.0])
    }

    fn hold_of_dependency(&self, rule: &Rule, now: Timestamp) -> Option<Wait> {
        let dependency = self.dependency_of(rule)?;
        let name = || dependency.name.clone();
        let opens_at = match dependency.control.breaker().state(now) {
            BreakerState::Open { until } if rule.breaker.is_some() => Some(until),
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } | BreakerState::Closed { .. } => None,
        };
        match dependency.control.barrier(rule, now) {
            // Of two reasons, the one that lasts longer is the answer.
            Some((HoldCause::AskedToWait, until)) => Some(match opens_at.filter(|at| *at > until) {
                Some(until) => Wait::BreakerOpen { dependency: name(), until },
                None => Wait::RetryAfter { dependency: name(), until },
            }),
            Some((HoldCause::BreakerOpen, until)) => Some(Wait::BreakerOpen { dependency: name(), until }),
            None => match dependency.control.breaker().state(now) {
                BreakerState::HalfOpen { .. } if rule.breaker.is_some() => {
                    Some(Wait::Probes { dependency: name() })
                }
                BreakerState::HalfOpen { .. } | BreakerState::Open { .. } | BreakerState::Closed { .. } => {
                    None
                }
            },
        }
    }

    /// What a delivery waits for that is not held. One on disk waits as its line does.
    fn wait_in_line(&self, asked: &WaitQuery, rule: &Rule, now: Timestamp) -> Wait {
        let seq = asked.id.seq();
        let is_suspect = self.caution.suspects(seq, now) && !self.is_quiet();
        if self.caution.alone.is_some() || is_suspect {
            return Wait::Alone;
        }
        let queue = self.queue_places.get(&asked.queue).map(|place| &self.queues[place.0]);
        let (Some(queue), Some(dependency)) = (queue, self.dependency_of(rule)) else { return Wait::Turn };
        let Some(line) =
            queue.lines.iter().find(|line| self.dependencies[line.dependency.0].name == dependency.name)
        else {
            return Wait::Turn;
        };
        let name = || dependency.name.clone();
        let over_budget = || {
            dependency.control.retries_from(now).map(|until| Wait::RetryBudget { dependency: name(), until })
        };
        if is_retry(queue, seq)
            && let Some(wait) = over_budget()
        {
            return wait;
        }
        match line.status {
            LineStatus::AwaitsShare => Wait::Share,
            LineStatus::AwaitsBudget => over_budget().unwrap_or(Wait::Turn),
            LineStatus::AwaitsDependency => match dependency.control.pressure(now) {
                Some(Pressure::RampUp) => Wait::RampUp { dependency: name() },
                Some(Pressure::Full { most }) => Wait::InFlight { dependency: name(), most },
                Some(Pressure::Paced { rate }) => Wait::Rate { dependency: name(), rate },
                None => Wait::Turn,
            },
            LineStatus::Idle | LineStatus::Runnable => Wait::Turn,
        }
    }
}

fn is_retry(queue: &EngineQueue, seq: Seq) -> bool {
    let mut ready = queue.lines.iter().flat_map(|line| &line.ready);
    ready.any(|ready| ready.waiting.id.seq() == seq && ready.waiting.is_retry())
}
