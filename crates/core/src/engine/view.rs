//! What can be seen of the engine from outside: for the page, for `redrive` commands, and for tests.

use std::sync::Arc;

use super::port::QueueName;
use super::queue::Presence;
use super::{Engine, QueuePlace};
use crate::breaker::State;
use crate::ids::DependencyName;
use crate::text::Rate;
use crate::time::Timestamp;

/// A queue as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueView {
    /// Its name.
    pub name: Arc<QueueName>,
    /// Deliveries in memory that may start.
    pub ready: u32,
    /// Deliveries in memory that wait for their time.
    pub due: u32,
    /// Deliveries that the engine knows, those in flight and being settled too.
    pub known: u32,
    /// Whether there may be more on disk.
    pub more_on_disk: bool,
    /// What keeps all of it from starting.
    pub held: Option<HeldQueue>,
}

/// What keeps a whole queue from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldQueue {
    /// Its service is paused.
    Paused {
        /// Since when.
        since: Timestamp,
    },
    /// The rule book does not know it any more.
    Removed,
}

/// A dependency as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct DependencyView {
    /// Its name.
    pub name: DependencyName,
    /// Its breaker.
    pub breaker: State,
    /// The failures that count towards the next trip; while it is not closed, those of the outage.
    pub failures: u32,
    /// Since when it has not been closed, through all its probes.
    pub not_closed_since: Option<Timestamp>,
    /// Calls in flight.
    pub in_flight: u32,
    /// The rate it is held to now, if any.
    pub rate: Option<Rate>,
    /// Until when it asked everybody to wait.
    pub held_until: Option<Timestamp>,
}

impl Engine {
    /// All queues.
    pub fn queue_views(&self) -> impl Iterator<Item = QueueView> {
        (0..self.queues.len()).map(|place| self.queue_view(QueuePlace(place)))
    }

    fn queue_view(&self, place: QueuePlace) -> QueueView {
        let queue = &self.queues[place.0];
        let (ready, due) = queue.in_memory();
        let service = &self.services[queue.service.0];
        let paused = service.pauses.last().filter(|(_, until)| until.is_none());
        let held = match (queue.presence, paused) {
            (Presence::Removed, _) => Some(HeldQueue::Removed),
            (Presence::Here { .. }, Some((since, _))) => Some(HeldQueue::Paused { since: *since }),
            (Presence::Here { .. }, None) => None,
        };
        QueueView {
            name: Arc::clone(&queue.name),
            ready,
            due: u32::try_from(due).unwrap_or(u32::MAX),
            known: queue.known,
            more_on_disk: queue.has_more_on_disk(),
            held,
        }
    }

    /// All dependencies that were met.
    pub fn dependency_views(&self, now: Timestamp) -> impl Iterator<Item = DependencyView> {
        self.dependencies.iter().map(move |dependency| DependencyView {
            name: dependency.name.clone(),
            breaker: dependency.breaker.state(now),
            failures: dependency.breaker.failures(now),
            not_closed_since: dependency.breaker.not_closed_since(),
            in_flight: dependency.throttle.in_flight(),
            rate: dependency.current_rate(now),
            held_until: dependency.throttle.hold_until().filter(|until| now < *until),
        })
    }
}
