//! The store of one simulated node: core's store model plus what the simulation tracks per delivery. Writes are
//! durable at once.
//!
//! Invariant: ended deliveries are dropped, except dead letters that block their session, so memory follows what
//! waits.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::layers::EffectCount;
use redrive_core::engine::{PendingDelivery, QueueName, Settlement, SettlementResult};
use redrive_core::event::Event;
use redrive_core::hash::Map;
use redrive_core::ids::DeliveryId;
pub(super) use redrive_core::store_model::Lane;
use redrive_core::store_model::{Model, NewRow};
use redrive_core::time::Timestamp;

#[derive(Debug)]
pub(super) struct SimulatedStore {
    pub model: Model<SimulatedDelivery>,
    names: Vec<Arc<QueueName>>,
    places: Map<Arc<QueueName>, usize>,
}

#[derive(Clone, Debug)]
pub(super) struct SubmittedDelivery {
    pub queue: usize,
    pub dependency: usize,
    pub session: Option<u32>,
    pub event: Arc<Event>,
    /// Identifies the delivery independently of the book.
    pub content: u64,
    pub sent_at: Timestamp,
    pub is_poison: bool,
}

#[derive(Clone, Debug)]
pub(super) struct SimulatedDelivery {
    pub lane: Option<Lane>,
    pub queue: usize,
    pub dependency: usize,
    pub sent_at: Timestamp,
    pub is_poison: bool,
    /// Including calls cut off by a crash.
    pub calls: u32,
    pub taken: u32,
    /// For targets that call others; may be counted after the row is gone.
    pub taken_within: Option<EffectCount>,
}

#[derive(Debug)]
pub(super) struct SettleResult {
    pub fate: SettlementResult,
    pub promoted: Option<Box<PendingDelivery>>,
    pub ended: Option<SimulatedDelivery>,
}

impl SimulatedStore {
    pub(super) fn new(queues: &[Arc<QueueName>]) -> Self {
        let places = queues.iter().enumerate().map(|(place, name)| (Arc::clone(name), place));
        Self { model: Model::default(), names: queues.to_vec(), places: places.collect() }
    }

    /// Returns the delivery if it may start now.
    pub(super) fn accept(&mut self, new: SubmittedDelivery, now: Timestamp) -> Option<PendingDelivery> {
        let SubmittedDelivery { queue, dependency, session, event, content, sent_at, is_poison } = new;
        let lane = session.map(|session| Lane((queue as u64) << 32 | u64::from(session)));
        let extra = SimulatedDelivery {
            lane,
            queue,
            dependency,
            sent_at,
            is_poison,
            calls: 0,
            taken: 0,
            taken_within: None,
        };
        let id = DeliveryId::new(self.model.last().next(), content);
        self.model.add(NewRow { id, queue: Arc::clone(&self.names[queue]), event, lane, extra }, now)
    }

    pub(super) fn row(&mut self, id: DeliveryId) -> &mut SimulatedDelivery {
        self.model.extra(id.seq())
    }

    pub(super) fn calls_of_open(&self) -> impl Iterator<Item = u32> {
        self.model.rows().filter(|row| row.state.is_open()).map(|row| row.extra.calls)
    }

    pub(super) fn behind_dead(&self) -> u64 {
        self.model.held().map(|(lane, _)| self.model.behind(lane)).sum()
    }

    pub(super) fn place(&self, queue: &Arc<QueueName>) -> usize {
        self.places[queue]
    }

    pub(super) fn open_queues(&self) -> Vec<QueueName> {
        let open = self.model.queues().filter(|(_, open)| *open > 0);
        let open: BTreeSet<usize> = open.map(|(name, _)| self.place(name)).collect();
        open.into_iter().map(|place| (*self.names[place]).clone()).collect()
    }

    pub(super) fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> SettleResult {
        let seq = settlement.delivery.seq();
        let settled = self.model.settle(settlement, now);
        let row = self
            .model
            .row(seq)
            .filter(|row| settled.fate == SettlementResult::Written && !row.state.is_open());
        let ended = match row {
            Some(row) if row.state.holds() => Some(row.extra.clone()),
            Some(_) => self.model.forget(seq).map(|row| row.extra),
            None => None,
        };
        SettleResult { fate: settled.fate, promoted: settled.promoted, ended }
    }
}
