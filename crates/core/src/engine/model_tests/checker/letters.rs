//! What people do with dead letters: each is closed once, in one way, and nothing but a dead letter is.

use super::super::orders::Poison;
use super::{Checker, Delivery, Ended};
use crate::event::Event;
use crate::ids::DeliveryId;
use crate::time::Timestamp;

/// How a dead letter is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Closing {
    Skipped,
    Purged,
}

impl Checker {
    /// One too many behind a dead letter: it died when it came, and keeps its place.
    pub(in super::super) fn overflowed(&mut self, id: DeliveryId, now: Timestamp) {
        self.fresh.remove(&id);
        self.seen.dead += 1;
        let delivery = self.deliveries.get_mut(&id).expect("it was accepted right before");
        delivery.ended = Ended::Dead;
        delivery.died_at = now;
    }

    /// Somebody's wish to be done with it is durable.
    pub(in super::super) fn closed(&mut self, id: DeliveryId, closing: Closing) {
        let ended = match closing {
            Closing::Skipped => Ended::Skipped,
            Closing::Purged => Ended::Purged,
        };
        self.end_letter(id, ended);
        let delivery = &self.deliveries[&id];
        if let Some(lane) = delivery.lane {
            self.sessions.leave(lane, delivery.turn, id);
        }
    }

    /// Those behind it go on, and it stays dead.
    pub(in super::super) fn let_go(&mut self, id: DeliveryId) {
        let delivery = &self.deliveries[&id];
        if delivery.ended != Ended::Dead {
            let how = format!("{id} is let go, though it is {:?}", delivery.ended);
            self.broken("only a dead letter holds its session", how);
        }
        let delivery = &self.deliveries[&id];
        if let Some(lane) = delivery.lane {
            self.sessions.leave(lane, delivery.turn, id);
        }
        self.fairness.disturbed();
    }

    /// Another event takes its place, and that is durable.
    pub(in super::super) fn edited(
        &mut self,
        old: DeliveryId,
        new: DeliveryId,
        event: &Event,
        now: Timestamp,
    ) {
        self.end_letter(old, Ended::Superseded);
        let Delivery { queue, lane, turn, .. } = &self.deliveries[&old];
        let (queue, lane, turn) = (std::sync::Arc::clone(queue), *lane, *turn);
        if let Some(lane) = lane {
            let is_dead = |id: &DeliveryId| self.deliveries[id].ended == Ended::Dead;
            self.sessions.replace(lane, turn, (old, new), is_dead);
        }
        self.acknowledged.insert(event.id.as_str().to_owned());
        self.add(new, &queue, event, (lane, turn), now);
    }

    fn end_letter(&mut self, id: DeliveryId, ended: Ended) {
        let was = self.deliveries[&id].ended;
        if was != Ended::Dead {
            self.broken("one outcome per delivery", format!("{id} is {ended:?}, though it was {was:?}"));
        }
        if let Some(replay) = self.claimed_by(id) {
            let how = format!("{id} is {ended:?}, though it belongs to {replay}");
            self.broken("a letter belongs to one replay", how);
        }
        self.deliveries.get_mut(&id).expect("it was dead").ended = ended;
        self.seen.closed += 1;
        self.fairness.disturbed();
    }

    /// Whether a replay may send it: it never failed one of an operator's, or the replay is meant for such.
    pub(super) fn may_go_again(delivery: &Delivery, poison: Poison) -> bool {
        !delivery.is_poison || poison == Poison::Included
    }
}
