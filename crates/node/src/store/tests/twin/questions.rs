//! What the twin answers to a reader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redrive_core::engine::QueueName;
use redrive_core::event::attribute::{CorrelationId, SessionKey};
use redrive_core::ids::{IdPrefix, Receipt, Seq};
use redrive_core::store_model::{Lane, ModelRow, RowState};
use redrive_core::time::Timestamp;

use super::world::{Extra, Kept, World};
use crate::store::{
    DeliveryFilter, DeliveryPage, DeliveryView, EventKey, EventView, LetterClosure, Oldest, QueueCounts,
    SCANNED_MAX, StoreCounts,
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
        let rows = prefix.places(self.model.last()).filter_map(|place| self.model.row(place));
        rows.take(rows_max).map(|row| self.delivery_view(row, Stories::Told)).collect()
    }

    pub(super) fn list(&self, filter: &DeliveryFilter, stories: Stories) -> DeliveryPage {
        let before = filter.before.unwrap_or(self.model.last().next());
        let wanted = |row: &ModelRow<Extra>| {
            filter.takes_queue(&row.waiting.queue)
                && filter.state.is_none_or(|state| self.state(row).name() == state)
                && filter.takes_event(&self.events[&row.extra.event].event)
        };
        let mut listed = DeliveryPage::default();
        for (place, row) in self.rows_in_order().range(..before).rev() {
            listed.looked_at += 1;
            if wanted(row) {
                listed.deliveries.push(self.delivery_view(row, stories));
            }
            if listed.deliveries.len() == filter.rows_max || listed.looked_at == SCANNED_MAX {
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

    /// All deliveries by their places.
    fn rows_in_order(&self) -> BTreeMap<Seq, &ModelRow<Extra>> {
        self.model.rows().map(|row| (row.waiting.id.seq(), row)).collect()
    }

    pub(super) fn counts(&self) -> StoreCounts {
        let seen = self.model.queues().map(|(queue, _)| ((**queue).clone(), QueueCounts::default()));
        let whole = self.events.values().filter(|kept| kept.whole);
        let unrouted = self.events.values().filter(|kept| kept.is_unrouted());
        let mut counts = StoreCounts {
            queues: seen.collect(),
            unrouted: unrouted.count() as u64,
            events: whole.count() as u64,
        };
        let parked: BTreeSet<Lane> =
            self.model.rows().filter(|row| is_parked(row)).filter_map(|row| row.lane).collect();
        for row in self.model.rows() {
            let queue = counts.queues.get_mut(&*row.waiting.queue).expect("it was seen");
            queue.waiting += u64::from(row.state.is_open());
            queue.waiting_bytes += if row.state.is_open() { row.waiting.bytes() as u64 } else { 0 };
            let is_behind_parked = row.lane.is_some_and(|lane| parked.contains(&lane));
            match row.state {
                RowState::Ready => {}
                RowState::Due(_) => queue.without_rule += u64::from(is_parked(row)),
                RowState::Behind => {
                    queue.behind += 1;
                    queue.without_rule += u64::from(is_behind_parked);
                }
                RowState::Delivered => queue.delivered += 1,
                RowState::Dead(_) => queue.dead += 1,
                RowState::Closed => queue.closed += 1,
            }
        }
        counts
    }

    /// Goes through everything.
    pub(super) fn oldest(&self) -> BTreeMap<QueueName, Oldest> {
        let mut queues: BTreeMap<QueueName, Oldest> = BTreeMap::new();
        for row in self.rows_in_order().into_values().filter(|row| row.state.is_open()) {
            let oldest = queues.entry((*row.waiting.queue).clone()).or_default();
            oldest.waiting_since.get_or_insert(self.events[&row.extra.event].received_at);
        }
        for (_, letter) in self.model.letters() {
            let queue = &self.row(letter.delivery).waiting.queue;
            let oldest = queues.entry((**queue).clone()).or_default();
            let earliest = oldest.dead_since.map_or(letter.died_at, |since| since.min(letter.died_at));
            oldest.dead_since = Some(earliest);
        }
        queues
    }

    fn event_view(&self, seq: Seq, kept: &Kept) -> EventView {
        let rows = kept.deliveries().filter_map(|place| self.model.row(place));
        EventView {
            receipt: Receipt::of(seq),
            event: Arc::clone(&kept.event),
            received_at: kept.received_at,
            unrouted: kept.delivery_count == 0,
            deliveries: rows.map(|row| self.delivery_view(row, Stories::Left)).collect(),
        }
    }

    pub(super) fn delivery_view(&self, row: &ModelRow<Extra>, stories: Stories) -> DeliveryView {
        let ModelRow { waiting, extra, .. } = row;
        let kept = &self.events[&extra.event];
        let event = &kept.event;
        let is_superseded = matches!(extra.closed, Some(LetterClosure::Superseded { .. }));
        DeliveryView {
            id: waiting.id,
            queue: (*waiting.queue).clone(),
            subscription: extra.subscription.to_string(),
            receipt: Receipt::of(extra.event),
            event_id: event.id.to_string(),
            event_source: event.source.to_string(),
            event_type: event.event_type.to_string(),
            session: event.session.as_ref().map(SessionKey::to_string),
            correlation_id: event.correlation_id.as_ref().map(CorrelationId::to_string),
            accepted_at: kept.received_at,
            written_at: waiting.written_at,
            attempts: waiting.attempts,
            state: self.state(row),
            replaying: waiting.replaying.map(|replaying| replaying.replay),
            replays: row.replays,
            supersedes: extra.linked.filter(|_| !is_superseded).map(Receipt::of),
            stories: match stories {
                Stories::Told => extra.stories.clone(),
                Stories::Left => Vec::new(),
            },
        }
    }
}

/// Whether it waits for a rule.
fn is_parked(row: &ModelRow<Extra>) -> bool {
    row.state == RowState::Due(Timestamp::NEVER)
}
