//! What a store in memory answers to a reader.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::engine::QueueName;
use redrive_core::event::attribute::{CorrelationId, SessionKey};
use redrive_core::ids::{IdPrefix, Receipt, Seq};
use redrive_core::time::Timestamp;

use super::world::{Kept, Row, World};
use crate::store::{
    Counts, DeliveryState, DeliveryView, EventKey, EventView, Filter, LOOKED_AT_MAX, Listed, Oldest,
};

/// Whether attempts are told.
#[derive(Clone, Copy)]
pub(super) enum Stories {
    Told,
    Left,
}

impl World {
    pub(super) fn events(&self, key: &EventKey) -> Vec<EventView> {
        match key {
            EventKey::Receipt(receipt) => {
                let seq = receipt.seq();
                self.events.get(&seq).map(|kept| self.event_view(seq, kept)).into_iter().collect()
            }
            EventKey::Id(id) => {
                let has_it = |(_, kept): &(&Seq, &Kept)| kept.event.id.as_str() == id;
                let found = self.events.iter().filter(has_it);
                found.map(|(seq, kept)| self.event_view(*seq, kept)).collect()
            }
        }
    }

    pub(super) fn deliveries(&self, prefix: IdPrefix, rows_max: usize) -> Vec<DeliveryView> {
        let rows = prefix.places(self.last).filter_map(|place| self.rows.get(&place));
        rows.take(rows_max).map(|row| self.delivery_view(row, Stories::Told)).collect()
    }

    pub(super) fn list(&self, filter: &Filter, stories: Stories) -> Listed {
        let before = filter.before.unwrap_or(self.last.next());
        let wanted = |row: &Row| {
            filter.takes_queue(&row.queue)
                && filter.state.is_none_or(|state| row.state.name() == state)
                && filter.takes_event(&self.events[&row.event].event)
        };
        let mut listed = Listed::default();
        for (place, row) in self.rows.range(..before).rev() {
            listed.looked_at += 1;
            if wanted(row) {
                listed.deliveries.push(self.delivery_view(row, stories));
            }
            if listed.deliveries.len() == filter.rows_max || listed.looked_at == LOOKED_AT_MAX {
                listed.next = Some(*place);
                break;
            }
        }
        listed
    }

    pub(super) fn unrouted(&self, after: Seq, rows_max: usize) -> Vec<EventView> {
        let later = self.events.range(after.next()..);
        let unrouted = later.filter(|(_, kept)| kept.is_unrouted());
        unrouted.take(rows_max).map(|(seq, kept)| self.event_view(*seq, kept)).collect()
    }

    pub(super) fn book(&self, hash: u64) -> Option<String> {
        self.books.get(&hash)?.text.as_deref().map(str::to_owned)
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        for (queue, _, seq) in self.due.iter().filter(|(_, at, _)| *at == Timestamp::NEVER) {
            let lane = self.rows[seq].open_lane().and_then(|lane| self.lanes.get(&lane));
            let is_behind = |(_, seq): &&(_, Seq)| self.rows[seq].state == DeliveryState::Behind;
            let behind = lane.map_or(0, |lane| lane.iter().filter(is_behind).count());
            counts.queues.get_mut(&**queue).expect("it is counted").without_rule += 1 + behind as u64;
        }
        counts
    }

    /// Goes through everything: a store in memory is small.
    pub(super) fn oldest(&self) -> BTreeMap<QueueName, Oldest> {
        let mut queues: BTreeMap<QueueName, Oldest> = BTreeMap::new();
        let waits = |row: &&Row| row.is_head() || row.state == DeliveryState::Behind;
        for row in self.rows.values().filter(waits) {
            let oldest = queues.entry((*row.queue).clone()).or_default();
            oldest.waiting_since.get_or_insert(self.events[&row.event].received_at);
        }
        for letter in self.letters.values() {
            let oldest = queues.entry((*self.rows[&letter.delivery].queue).clone()).or_default();
            let earliest = oldest.dead_since.map_or(letter.died_at, |since| since.min(letter.died_at));
            oldest.dead_since = Some(earliest);
        }
        queues
    }

    fn event_view(&self, seq: Seq, kept: &Kept) -> EventView {
        let rows = kept.deliveries().filter_map(|place| self.rows.get(&place));
        EventView {
            receipt: Receipt::of(seq),
            event: Arc::clone(&kept.event),
            received_at: kept.received_at,
            unrouted: kept.delivery_count == 0,
            deliveries: rows.map(|row| self.delivery_view(row, Stories::Left)).collect(),
        }
    }

    pub(super) fn delivery_view(&self, row: &Row, stories: Stories) -> DeliveryView {
        let kept = &self.events[&row.event];
        let event = &kept.event;
        DeliveryView {
            id: row.id,
            queue: (*row.queue).clone(),
            subscription: row.subscription.to_string(),
            receipt: Receipt::of(row.event),
            event_id: event.id.to_string(),
            event_source: event.source.to_string(),
            event_type: event.event_type.to_string(),
            session: event.session.as_ref().map(SessionKey::to_string),
            correlation_id: event.correlation_id.as_ref().map(CorrelationId::to_string),
            accepted_at: kept.received_at,
            written_at: row.written_at,
            attempts: row.attempts,
            state: row.state.clone(),
            replaying: row.replaying.map(|replaying| replaying.replay),
            replays: row.replays,
            supersedes: row.linked.filter(|_| !row.is_superseded()).map(Receipt::of),
            stories: match stories {
                Stories::Told => row.stories.clone(),
                Stories::Left => Vec::new(),
            },
        }
    }
}
