//! How a store in memory forgets: what was delivered, then its id, then books that no story names.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use redrive_core::event::Event;
use redrive_core::ids::Seq;
use redrive_core::time::Timestamp;

use super::world::World;
use crate::store::{BOOKS_RECOVERED_MAX, Chores, DeliveryState, Keep};

/// How many places one step looks at.
const PLACES_PER_STEP: usize = 256;

impl World {
    pub(super) fn housekeep(&mut self, keep: &Keep, now: Timestamp) -> Chores {
        let mut chores = Chores::default();
        for _ in 0..PLACES_PER_STEP {
            let Some(&(at, place)) = self.ending.front() else { break };
            if at + keep.delivered > now {
                break;
            }
            self.ending.pop_front();
            chores.events_deleted += u64::from(self.delete_if_over(place, keep, now));
        }
        self.forget_ids(keep, now);
        self.forget_books();
        let more = |at: Option<Timestamp>, span| at.is_some_and(|at| at + span <= now);
        chores.more = more(self.ending.front().map(|(at, _)| *at), keep.delivered)
            || more(self.first_unchecked().map(|(_, received_at)| received_at), keep.ids);
        chores
    }

    /// Deletes the event of that place if nothing about it is of use any more.
    fn delete_if_over(&mut self, place: Seq, keep: &Keep, now: Timestamp) -> bool {
        let seq = self.rows.get(&place).map_or(place, |row| row.event);
        let Some(kept) = self.events.get(&seq).filter(|kept| kept.whole) else { return false };
        let over = |place: Seq| match &self.rows[&place] {
            row if row.written_at + keep.delivered > now => false,
            row => matches!(row.state, DeliveryState::Delivered { .. }),
        };
        if !kept.deliveries().all(over) {
            return false;
        }
        if kept.is_unrouted() {
            self.counts.unrouted -= 1;
        }
        self.counts.events -= 1;
        for place in kept.deliveries() {
            let row = self.rows.remove(&place).expect("an event that is kept whole has its deliveries");
            self.counts.queues.get_mut(&*row.queue).expect("counted when it was accepted").delivered -= 1;
            for story in &row.stories {
                self.books.entry(story.book).and_modify(|book| book.stories -= 1);
            }
        }
        // Ids up to there are not looked at again, even if they are to be kept for longer by now.
        if kept.received_at + keep.ids <= now || seq <= self.ids_checked {
            self.forget(seq);
        } else {
            let kept = self.events.get_mut(&seq).expect("it was there");
            kept.whole = false;
            kept.event = Arc::new(without_content(&kept.event));
        }
        true
    }

    fn forget_ids(&mut self, keep: &Keep, now: Timestamp) {
        for _ in 0..PLACES_PER_STEP {
            let Some((seq, received_at)) = self.first_unchecked() else { break };
            if received_at + keep.ids > now {
                break;
            }
            self.ids_checked = seq;
            if !self.events[&seq].whole {
                self.forget(seq);
            }
        }
    }

    /// The first event whose age has not been held against that of ids.
    fn first_unchecked(&self) -> Option<(Seq, Timestamp)> {
        let mut later = self.events.range(self.ids_checked.next()..);
        later.next().map(|(seq, kept)| (*seq, kept.received_at))
    }

    fn forget(&mut self, seq: Seq) {
        let kept = self.events.remove(&seq).expect("only what is known is forgotten");
        self.ids.remove(&(kept.event.source.clone(), kept.event.id.clone()));
    }

    fn forget_books(&mut self) {
        let newest = self.newest_books();
        self.books.retain(|hash, book| book.stories > 0 || newest.contains(hash));
    }

    /// The hashes of the latest books, the newest last.
    pub(super) fn newest_books(&self) -> Vec<u64> {
        let shown = self.books.iter().filter(|(_, book)| book.text.is_some());
        let by_turn: BTreeMap<u64, u64> = shown.map(|(hash, book)| (book.turn, *hash)).collect();
        let latest = by_turn.into_values().rev().take(BOOKS_RECOVERED_MAX);
        let mut latest: Vec<u64> = latest.collect();
        latest.reverse();
        latest
    }
}

/// What is left of an event when only its id is remembered.
fn without_content(event: &Event) -> Event {
    Event {
        id: event.id.clone(),
        source: event.source.clone(),
        event_type: event.event_type.clone(),
        subject: None,
        time: None,
        content_type: None,
        session: None,
        correlation_id: None,
        traceparent: None,
        extensions: BTreeMap::new(),
        data: Bytes::new(),
    }
}
