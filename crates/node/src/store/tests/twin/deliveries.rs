//! What comes in, and what becomes of it.

use std::sync::Arc;

use redrive_core::engine::{NextState, PendingDelivery, QueueName, Settlement, SettlementResult};
use redrive_core::event::idempotency;
use redrive_core::ids::Seq;
use redrive_core::store_model::{Lane, NewRow};
use redrive_core::time::Timestamp;

use super::world::{Extra, Kept, World};
use crate::store::admit::{self, BacklogFit, EventAdmission, NewEvent, NewKey};
use crate::store::{
    AcceptedEvent, Addressee, SettleResult, Submission, SubmissionRefusal, SubmittedEvent, derive,
};

impl World {
    pub(super) fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> SettleResult {
        let seq = settlement.delivery.seq();
        let settled = self.model.settle(settlement, now);
        if settled.fate == SettlementResult::Stale {
            return SettleResult::Stale;
        }
        if let Some(story) = &settlement.record {
            self.model.extra(seq).stories.push((**story).clone());
            self.books.entry(story.book).or_default().stories += 1;
        }
        if settlement.next == NextState::Delivered {
            self.ending.push_back((now, seq));
        }
        self.count_kinds();
        SettleResult::Written { promoted: settled.promoted }
    }

    pub(super) fn submit(
        &mut self,
        submission: &Submission,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) -> Result<Vec<AcceptedEvent>, SubmissionRefusal> {
        let Ok(admitted) = admit::admit(self, submission, self.model.last(), now);
        let mut taken = Vec::with_capacity(submission.events.len());
        for (submitted, admitted) in submission.events.iter().zip(admitted?) {
            match admitted {
                EventAdmission::Known(known) => taken.push(known),
                EventAdmission::New(new) => {
                    taken.push(new.taken(now));
                    self.add_event(submitted, &new, now, waiting);
                    self.write_keys(new.seq, new.keys);
                }
            }
        }
        Ok(taken)
    }

    fn add_event(
        &mut self,
        submitted: &SubmittedEvent,
        new: &NewEvent,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) {
        let SubmittedEvent { event, routes } = submitted;
        let kept = Kept {
            event: Arc::clone(event),
            received_at: now,
            content: new.content,
            first_delivery: new.seq.next(),
            delivery_count: new.taken(now).deliveries,
            whole: true,
            imported: false,
        };
        self.keep(new.seq, kept);
        if routes.is_empty() {
            self.ending.push_back((now, new.seq));
        }
        for (addressee, fit) in routes.iter().zip(&new.fits) {
            let Some(fit) = fit else { continue };
            waiting.extend(self.add_delivery(new.seq, addressee, *fit, now));
        }
    }

    /// Remembers what the deliveries of an event are known by.
    pub(super) fn write_keys(&mut self, event: Seq, keys: Vec<NewKey>) {
        self.keys.extend(keys.into_iter().map(|NewKey { key, until }| (key, (event, until))));
    }

    /// Keeps an event at the next place.
    pub(super) fn keep(&mut self, seq: Seq, kept: Kept) {
        assert_eq!(seq, self.model.skip_place(), "places are given without gaps");
        let id = (kept.event.source.clone(), kept.event.id.clone());
        self.ids.entry(id).or_default().insert(seq);
        self.events.insert(seq, kept);
    }

    /// Adds a delivery at the next place; says what may start now.
    pub(super) fn add_delivery(
        &mut self,
        event: Seq,
        to: &Addressee,
        fit: BacklogFit,
        now: Timestamp,
    ) -> Option<PendingDelivery> {
        let lane = derive::lane(self.seed, to, &self.events[&event].event).map(Lane);
        let is_crowded = lane.is_some_and(|lane| {
            self.model.holder(lane).is_some() && self.model.behind(lane) >= to.bound.per_session_max
        });
        let new = self.new_row(event, &to.queue, &to.subscription, lane);
        let death = match fit {
            BacklogFit::Overflows => derive::overflow(to),
            BacklogFit::Violates => derive::violation(to),
            BacklogFit::Waits if is_crowded => derive::session_overflow(to),
            BacklogFit::Waits => return self.model.add(new, now),
        };
        self.model.add_dead(new, &death, now);
        self.count_kinds();
        None
    }

    /// A delivery at the next place that nothing has happened to.
    pub(super) fn new_row(
        &self,
        event: Seq,
        queue: &Arc<QueueName>,
        subscription: &Arc<str>,
        lane: Option<Lane>,
    ) -> NewRow<Extra> {
        let QueueName { service, channel } = &**queue;
        let whole = &self.events[&event].event;
        let seq = self.model.last().next();
        let subscription = Arc::clone(subscription);
        NewRow {
            id: idempotency::delivery_id(seq, whole.dedup_key(), service, channel.as_ref()),
            queue: Arc::clone(queue),
            event: Arc::clone(whole),
            lane,
            extra: Extra { event, subscription, stories: Vec::new(), linked: None, closed: None },
        }
    }
}
