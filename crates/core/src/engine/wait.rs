//! Why a delivery waits: answered from the same state that decides what starts.

use std::collections::BTreeSet;

use super::dependency::Dependency;
use super::port::QueueName;
use super::queue::{LineStatus, Presence, Queue};
use super::{Engine, QueuePlace, Running};
use crate::ids::{ChannelName, DeliveryId, DependencyName, Seq};
use crate::policy::admission::Pressure;
use crate::policy::breaker::State;
use crate::policy::decide::HoldCause;
use crate::policy::rule::Rule;
use crate::text::Rate;
use crate::time::Timestamp;

/// A delivery that has not ended, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its id.
    pub id: DeliveryId,
    /// Where it waits.
    pub queue: QueueName,
    /// The type of its event.
    pub event_type: String,
    /// Its state in the store.
    pub stands: Stands,
}

/// The state of a delivery in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// It may start.
    Ready,
    /// It may start then.
    Due {
        /// [`Timestamp::NEVER`] where no rule wants it.
        at: Timestamp,
    },
    /// Another of its session comes first.
    Behind,
}

/// What a delivery waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Wait {
    /// Nothing: its attempt is running.
    Running,
    /// Its attempt has ended, and the outcome is being written.
    Settling,
    /// The store takes no writes.
    StoreFailing {
        /// Since then.
        since: Timestamp,
    },
    /// The server is shutting down.
    Stopping,
    /// The rule book has its service or channel no more.
    ServiceRemoved,
    /// No row of its service wants such an event any more.
    RuleRemoved,
    /// Its service is paused.
    Paused {
        /// Since then.
        since: Timestamp,
    },
    /// Another of its session comes first.
    Session,
    /// Its dependency asked callers to wait.
    RetryAfter {
        /// Which.
        dependency: DependencyName,
        /// Until then.
        until: Timestamp,
    },
    /// The breaker of its dependency is open.
    BreakerOpen {
        /// Which.
        dependency: DependencyName,
        /// The first probe may go then.
        until: Timestamp,
    },
    /// The breaker of its dependency is half-open.
    Probes {
        /// Which.
        dependency: DependencyName,
    },
    /// Its next attempt is not due.
    Due {
        /// Before then.
        at: Timestamp,
    },
    /// It is a retry, and its dependency's budget of retries is used up.
    RetryBudget {
        /// Which.
        dependency: DependencyName,
        /// Until then.
        until: Timestamp,
    },
    /// Calls to its dependency come back gradually, after a start or an outage.
    RampUp {
        /// Which.
        dependency: DependencyName,
    },
    /// The rate of calls to its dependency.
    Rate {
        /// Which.
        dependency: DependencyName,
        /// The rate now.
        rate: Rate,
    },
    /// Its dependency has as many calls in flight as it may have.
    InFlight {
        /// Which.
        dependency: DependencyName,
        /// So many.
        most: u32,
    },
    /// Its service has as many calls in flight as its share allows.
    Share,
    /// After a crash, a delivery that may be its cause is tried alone.
    Alone,
    /// Nothing but its turn.
    Turn,
}

impl Wait {
    /// Whether it keeps the delivery from starting until something outside the queue changes.
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

    /// Until when a hold lasts, where that is known.
    const fn until(&self) -> Option<Timestamp> {
        if let Self::RetryAfter { until, .. } | Self::BreakerOpen { until, .. } = self {
            return Some(*until);
        }
        None
    }
}

impl Engine {
    /// What each of these deliveries waits for.
    #[must_use]
    pub fn waits(&self, asked: &[Asked], now: Timestamp) -> Vec<Wait> {
        let running: BTreeSet<Seq> =
            self.calls.values().flat_map(|made| &made.call.deliveries).map(|row| row.id.seq()).collect();
        asked.iter().map(|one| self.wait_of(one, &running, now)).collect()
    }

    /// What keeps everything from starting that the rule is for, if anything does.
    #[must_use]
    pub fn hold_of(&self, queue: &QueueName, rule: &Rule, now: Timestamp) -> Option<Wait> {
        self.hold_of_queue(queue).or_else(|| self.hold_of_dependency(rule, now))
    }

    fn wait_of(&self, asked: &Asked, running: &BTreeSet<Seq>, now: Timestamp) -> Wait {
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
        if self.running == Running::Stopping {
            return Wait::Stopping;
        }
        if asked.stands == Stands::Behind {
            return Wait::Session;
        }
        let QueueName { service, channel } = &asked.queue;
        let channel = channel.as_ref().map(ChannelName::as_str);
        let Some(rule) = self.book.rule(service.as_str(), channel, &asked.event_type) else {
            return Wait::RuleRemoved;
        };
        let held = self.hold_of_dependency(rule, now);
        match asked.stands {
            Stands::Due { at } if now < at && at < Timestamp::NEVER => {
                // Of two waits, the one that ends last is the answer.
                let lasts = held.filter(|held| held.until().is_some_and(|until| until > at));
                lasts.unwrap_or(Wait::Due { at })
            }
            Stands::Due { .. } | Stands::Ready | Stands::Behind => {
                held.unwrap_or_else(|| self.wait_in_line(asked, rule, now))
            }
        }
    }

    fn hold_of_queue(&self, name: &QueueName) -> Option<Wait> {
        let place = self.queue_places.get(name).copied();
        let presence =
            place.map_or_else(|| self.presence(name), |QueuePlace(place)| self.queues[place].presence);
        if presence == Presence::Removed {
            return Some(Wait::ServiceRemoved);
        }
        let service = self.service_places.get(&name.service).map(|place| &self.services[place.0]);
        if let Some((since, None)) = service.and_then(|service| service.pauses.last()) {
            return Some(Wait::Paused { since: *since });
        }
        self.store_failing_since.map(|since| Wait::StoreFailing { since })
    }

    fn dependency_of(&self, rule: &Rule) -> Option<&Dependency> {
        self.dependency_places.get(&rule.dependency).map(|place| &self.dependencies[place.0])
    }

    fn hold_of_dependency(&self, rule: &Rule, now: Timestamp) -> Option<Wait> {
        let dependency = self.dependency_of(rule)?;
        let name = || dependency.name.clone();
        let opens_at = match dependency.control.breaker().state(now) {
            State::Open { until } if rule.breaker.is_some() => Some(until),
            State::Open { .. } | State::HalfOpen { .. } | State::Closed { .. } => None,
        };
        match dependency.control.barrier(rule, now) {
            // Of two reasons the one that lasts longer says when it goes on.
            Some((HoldCause::AskedToWait, until)) => Some(match opens_at.filter(|at| *at > until) {
                Some(until) => Wait::BreakerOpen { dependency: name(), until },
                None => Wait::RetryAfter { dependency: name(), until },
            }),
            Some((HoldCause::BreakerOpen, until)) => Some(Wait::BreakerOpen { dependency: name(), until }),
            None => match dependency.control.breaker().state(now) {
                State::HalfOpen { .. } if rule.breaker.is_some() => Some(Wait::Probes { dependency: name() }),
                State::HalfOpen { .. } | State::Open { .. } | State::Closed { .. } => None,
            },
        }
    }

    /// What it waits for that nothing holds. One that is on disk waits as the line does that it belongs to.
    fn wait_in_line(&self, asked: &Asked, rule: &Rule, now: Timestamp) -> Wait {
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

/// Whether it is in memory, and its next attempt is a retry.
fn is_retry(queue: &Queue, seq: Seq) -> bool {
    let mut ready = queue.lines.iter().flat_map(|line| &line.ready);
    ready.any(|ready| ready.waiting.id.seq() == seq && ready.waiting.is_retry())
}
