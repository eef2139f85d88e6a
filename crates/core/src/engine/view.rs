//! What can be seen of the engine from outside: for the page, for `redrive` commands, and for tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::port::{QueueName, Waiting};
use super::queue::Presence;
use super::wait::Wait;
use super::{Engine, QueuePlace};
use crate::book::model::EventRow;
use crate::ids::{DependencyName, Seq};
use crate::policy::breaker::State;
use crate::policy::rule::Rule;
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
    /// What keeps all of it from starting, whatever its rows need.
    pub held: Option<HeldQueue>,
    /// What holds the rows of the rule book that send deliveries here; in no order, and none if it is removed.
    pub rows: Vec<RowView>,
}

/// A queue that the rule book has no more. The engine keeps nothing else of it in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedQueue {
    /// Its deliveries whose attempts are running or being recorded.
    pub running: BTreeSet<Seq>,
}

/// A row of the rule book as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct RowView {
    /// The event type, or a pattern.
    pub pattern: String,
    /// What keeps all of its deliveries from starting, if anything does.
    pub hold: Option<Wait>,
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
    pub fn queue_views(&self, now: Timestamp) -> impl Iterator<Item = QueueView> {
        (0..self.queues.len()).map(move |place| self.queue_view(QueuePlace(place), now))
    }

    fn queue_view(&self, place: QueuePlace, now: Timestamp) -> QueueView {
        let queue = &self.queues[place.0];
        let (ready, due) = queue.in_memory();
        let service = &self.services[queue.service.0];
        let paused = service.pauses.last().filter(|(_, until)| until.is_none());
        let held = match (queue.presence, paused) {
            (Presence::Removed, _) => Some(HeldQueue::Removed),
            (Presence::Here { .. }, Some((since, _))) => Some(HeldQueue::Paused { since: *since }),
            (Presence::Here { .. }, None) => None,
        };
        let rules = self.book.rules_of(queue.name.service.as_str());
        let rows = rules.filter(|(channel, _, _)| *channel == queue.name.channel.as_ref());
        let row = |(_, row, rule): (_, &EventRow, &Rule)| RowView {
            pattern: row.pattern.value.to_string(),
            hold: self.hold_of(&queue.name, rule, now),
        };
        QueueView {
            name: Arc::clone(&queue.name),
            ready,
            due: u32::try_from(due).unwrap_or(u32::MAX),
            known: queue.known,
            more_on_disk: queue.has_more_on_disk(),
            held,
            rows: rows.map(row).collect(),
        }
    }

    /// What the engine has of a queue that the rule book has no more; none if the book has it.
    #[must_use]
    pub fn removed_queue(&self, name: &QueueName) -> Option<RemovedQueue> {
        if self.presence(name) != Presence::Removed {
            return None;
        }
        let of_it = |row: &Waiting| *row.queue == *name;
        let calls = self.calls.values().flat_map(|made| &made.call.deliveries);
        let settling = self.settling.values().map(|settling| &settling.waiting);
        let running = calls.chain(settling).filter(|row| of_it(row)).map(|row| row.id.seq()).collect();
        Some(RemovedQueue { running })
    }

    /// All dependencies that were met.
    pub fn dependency_views(&self, now: Timestamp) -> impl Iterator<Item = DependencyView> {
        self.dependencies.iter().map(move |dependency| DependencyView {
            name: dependency.name.clone(),
            breaker: dependency.control.breaker().state(now),
            failures: dependency.control.breaker().failures(now),
            not_closed_since: dependency.control.breaker().not_closed_since(),
            in_flight: dependency.control.in_flight(),
            rate: dependency.control.current_rate(now),
            held_until: dependency.control.asked_to_wait(now),
        })
    }
}
