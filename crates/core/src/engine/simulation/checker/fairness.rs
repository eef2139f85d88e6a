//! Whether anybody starves: a service that is well and has something to do is being called, whatever others do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::targets::Means;
use super::Checker;
use crate::engine::QueueName;
use crate::limits;
use crate::time::Timestamp;

/// A calm service with something to do is called within this time.
const PATIENCE: Duration = Duration::from_millis(1_500);

#[derive(Debug, Default)]
pub(super) struct Fairness {
    queues: BTreeMap<Arc<QueueName>, Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    in_flight: u32,
    /// Something failed since the last disturbance: a breaker or a throttle may be at work.
    troubled: Trouble,
    /// Since when it has something to do and is not being called.
    waits_since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trouble {
    #[default]
    None,
    Some,
}

impl Fairness {
    pub(super) fn started(&mut self, queue: &Arc<QueueName>) {
        let queue = self.queues.entry(Arc::clone(queue)).or_default();
        queue.in_flight += 1;
        queue.waits_since = None;
    }

    pub(super) fn ended(&mut self, queue: &Arc<QueueName>, means: Means) {
        let queue = self.queues.entry(Arc::clone(queue)).or_default();
        queue.in_flight = queue.in_flight.saturating_sub(1);
        if means.is_failure() {
            queue.troubled = Trouble::Some;
        }
    }

    /// Something happened that may hold up anybody for a while.
    pub(super) fn disturbed(&mut self) {
        self.queues.values_mut().for_each(|queue| queue.waits_since = None);
    }

    pub(super) fn went_down(&mut self) {
        self.queues.clear();
    }
}

impl Checker {
    /// Looks whether anybody has waited for too long; every now and then.
    pub(in super::super) fn look_for_starving(&mut self, now: Timestamp) {
        if self.away_since.is_some() || self.is_cautious(now) {
            return self.fairness.disturbed();
        }
        let spec = self.spec();
        for taker in &spec.takers {
            let own: Vec<usize> = taker.claims.iter().map(|(_, claim)| claim.dependency).collect();
            let shared = spec
                .takers
                .iter()
                .filter(|other| other.queue != taker.queue)
                .any(|other| other.claims.iter().any(|(_, claim)| own.contains(&claim.dependency)));
            // What a breaker has seen holds on after a restart.
            let unsteady = own.iter().any(|place| {
                let dependency = &spec.dependencies[*place];
                let may_be_open = dependency.breaker.is_some() && self.ailing.contains(place);
                *place != own[0] || dependency.per_second.is_some() || may_be_open
            });
            let is_paused = self.paused.contains(&taker.queue.service);
            if shared || unsteady || is_paused {
                continue;
            }
            let has_work = self.has_work(&taker.queue);
            let queue = self.fairness.queues.entry(Arc::clone(&taker.queue)).or_default();
            if queue.in_flight > 0 || queue.troubled == Trouble::Some || !has_work {
                queue.waits_since = None;
                continue;
            }
            let since = *queue.waits_since.get_or_insert(now);
            if now.since(since) > PATIENCE {
                let how = format!("{} has waited since {since}, now {now}", taker.queue);
                return self.broken("no service starves", how);
            }
        }
    }

    /// After a few crashes close together deliveries may be started alone, one after the other.
    fn is_cautious(&self, now: Timestamp) -> bool {
        let third_last = self.crashes.iter().rev().nth(limits::CRASHES_MAX - 1);
        third_last.is_some_and(|at| now.since(*at) < limits::CRASHES_WITHIN * 3)
    }

    /// Whether something of the queue has never been called and nothing of its session stands before it.
    fn has_work(&self, queue: &QueueName) -> bool {
        self.fresh.iter().any(|id| {
            let delivery = &self.deliveries[id];
            *delivery.queue == *queue
                && self.books[self.book].claim(queue, &delivery.event_type).is_some()
                && self.open_before(delivery, *id).is_none()
        })
    }
}
