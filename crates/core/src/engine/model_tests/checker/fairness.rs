//! Whether any service starves: one that is healthy and has something to do is being called, whatever others do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::books::{Spec, Taker};
use super::Checker;
use crate::engine::QueueName;
use crate::ids::ServiceName;
use crate::limits;
use crate::time::Timestamp;

/// A calm service with something to do is called within this time.
const PATIENCE: Duration = Duration::from_millis(1_000);

/// Who is being called, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// Calls in flight.
    in_flight: BTreeMap<ServiceName, u32>,
    /// Since when a queue has had something to do without a call to its service.
    waits_since: BTreeMap<Arc<QueueName>, Timestamp>,
}

impl Fairness {
    pub(super) fn started(&mut self, queue: &QueueName) {
        *self.in_flight.entry(queue.service.clone()).or_default() += 1;
        self.waits_since.retain(|waiting, _| waiting.service != queue.service);
    }

    pub(super) fn ended(&mut self, queue: &QueueName) {
        let in_flight = self.in_flight.get_mut(&queue.service);
        *in_flight.expect("it started") -= 1;
    }

    /// Something happened that may delay every queue.
    pub(super) fn disturbed(&mut self) {
        self.waits_since.clear();
    }

    pub(super) fn went_down(&mut self) {
        *self = Self::default();
    }
}

impl Checker {
    /// Checks now and then whether a queue has waited for too long.
    pub(in super::super) fn look_for_starving(&mut self, now: Timestamp) {
        if self.away_since.is_some() || self.is_cautious(now) {
            return self.fairness.disturbed();
        }
        let spec = self.spec();
        for taker in &spec.takers {
            let queue = &taker.queue;
            let is_called = self.fairness.in_flight.get(&queue.service).is_some_and(|count| *count > 0);
            if is_called || !self.is_calm(taker, &spec) || !self.has_work(queue) {
                self.fairness.waits_since.remove(queue);
                continue;
            }
            let since = *self.fairness.waits_since.entry(Arc::clone(queue)).or_insert(now);
            if now.since(since) > PATIENCE {
                return self
                    .broken("no service starves", format!("{queue} has waited since {since}, now {now}"));
            }
        }
    }

    /// Whether nothing but others could keep it from being called: it is not paused, and its dependency is its
    /// own, has no rate to keep and has never failed, so that no breaker and no throttle is at work.
    fn is_calm(&self, taker: &Taker, spec: &Spec) -> bool {
        let needs =
            |taker: &Taker, place: usize| taker.claims.iter().any(|(_, claim)| claim.dependency == place);
        let own = taker.claims[0].1.dependency;
        let shared = spec.takers.iter().any(|other| other.queue != taker.queue && needs(other, own));
        let several = taker.claims.iter().any(|(_, claim)| claim.dependency != own);
        let paced = spec.dependencies[own].per_second.is_some() || self.ailing.contains(&own);
        // A call that began by an earlier book may have taken its room.
        let crowded = self
            .in_flight
            .values()
            .flatten()
            .any(|id| self.deliveries[id].calls.last().is_some_and(|call| call.claim.dependency == own));
        !shared && !several && !paced && !crowded && !self.paused.contains(&taker.queue.service)
    }

    /// After a few crashes close together deliveries may be started alone, one after the other.
    pub(super) fn is_cautious(&self, now: Timestamp) -> bool {
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
