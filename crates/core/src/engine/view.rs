//! Views of the engine's state for the page, the commands and the tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::messages::{PendingDelivery, QueueName};
use super::queue::QueuePresence;
use super::wait::Wait;
use super::{Engine, QueuePlace};
use crate::book::model::EventRow;
use crate::ids::{DependencyName, Seq};
use crate::policy::breaker::BreakerState;
use crate::policy::rule::Rule;
use crate::text::Rate;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub struct QueueView {
    pub name: Arc<QueueName>,
    pub ready: u32,
    pub due: u32,
    /// Deliveries that the engine knows, including those in flight and being settled.
    pub known: u32,
    pub more_on_disk: bool,
    /// What holds the whole queue, whatever its rows need.
    pub held: Option<HeldQueue>,
    /// The event rows of the rule book for this queue, in no order; empty if it was removed.
    pub rows: Vec<RowView>,
}

/// A queue that the rule book no longer has. The engine keeps nothing else of it in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedQueue {
    pub running: BTreeSet<Seq>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RowView {
    pub pattern: String,
    pub hold: Option<Wait>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldQueue {
    Paused { since: Timestamp },
    Removed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DependencyView {
    pub name: DependencyName,
    pub breaker: BreakerState,
    /// Towards the next trip; while it is not closed, those of the outage.
    pub failures: u32,
    /// Since when it has not been closed, through all its probes.
    pub not_closed_since: Option<Timestamp>,
    pub in_flight: u32,
    pub rate: Option<Rate>,
    pub held_until: Option<Timestamp>,
}

impl Engine {
    pub fn queue_views(&self, now: Timestamp) -> impl Iterator<Item = QueueView> {
        (0..self.queues.len()).map(move |place| self.queue_view(QueuePlace(place), now))
    }

    fn queue_view(&self, place: QueuePlace, now: Timestamp) -> QueueView {
        let queue = &self.queues[place.0];
        let (ready, due) = queue.in_memory();
        let service = &self.services[queue.service.0];
        let paused = service.pauses.last().filter(|(_, until)| until.is_none());
        let held = match (queue.presence, paused) {
            (QueuePresence::Removed, _) => Some(HeldQueue::Removed),
            (QueuePresence::Here { .. }, Some((since, _))) => Some(HeldQueue::Paused { since: *since }),
            (QueuePresence::Here { .. }, None) => None,
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

    #[must_use]
    pub fn removed_queue(&self, name: &QueueName) -> Option<RemovedQueue> {
        if self.presence(name) != QueuePresence::Removed {
            return None;
        }
        let of_it = |row: &PendingDelivery| *row.queue == *name;
        let calls = self.calls.values().flat_map(|made| &made.call.deliveries);
        let settling = self.settling.values().map(|settling| &settling.waiting);
        let running = calls.chain(settling).filter(|row| of_it(row)).map(|row| row.id.seq()).collect();
        Some(RemovedQueue { running })
    }

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
