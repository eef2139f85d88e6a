//! How deliveries move in a store in memory: accepted, settled, one after the other within their session.
//!
//! Invariant: of each session with anything in it, exactly one delivery may start, or none may, the first
//! is a dead letter that holds the rest, and it is on record as the one that does.

use std::collections::BTreeSet;
use std::sync::Arc;

use redrive_core::engine::{Next, QueueName, Settlement, Waiting};
use redrive_core::event::idempotency;
use redrive_core::ids::Seq;
use redrive_core::policy::decide::History;
use redrive_core::time::Timestamp;

use super::world::{Held, Kept, Row, World};
use crate::store::admit::{self, Admitted, Fit, New, NewKey};
use crate::store::{
    Addressee, DeliveryState, QueueCounts, Refusal, Settled, Submission, Submitted, Taken, derive,
};

impl World {
    pub(super) fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> Settled {
        let seq = settlement.delivery.seq();
        let Some(row) = self.rows.get_mut(&seq) else { return Settled::Stale };
        let fits = row.id == settlement.delivery && row.attempts == settlement.attempts_before;
        if !fits || !row.is_head() {
            return Settled::Stale;
        }
        row.attempts = settlement.attempts;
        row.history = settlement.history.clone();
        row.book = Some(settlement.book);
        row.written_at = settlement.at;
        row.start_recorded = settlement.next == Next::Starting;
        if let Some(story) = &settlement.story {
            row.stories.push((**story).clone());
            self.books.entry(story.book).or_default().stories += 1;
        }
        if let Some(service) = &settlement.pause {
            self.paused.entry(service.clone()).or_insert(settlement.at);
        }
        let at = settlement.at;
        match &settlement.next {
            Next::Ready | Next::Starting => {
                self.change(seq, DeliveryState::Ready);
                return Settled::Written { promoted: None };
            }
            Next::Due { at } => {
                self.change(seq, DeliveryState::Due { at: *at });
                return Settled::Written { promoted: None };
            }
            Next::Delivered => {
                self.change(seq, DeliveryState::Delivered { at });
                self.ending.push_back((now, seq));
            }
            Next::Dead(death) => self.bury(seq, death, at),
        }
        self.answer_replay(settlement, now);
        let promoted = self.rows[&seq].lane.and_then(|lane| self.move_on(lane, now));
        Settled::Written { promoted: promoted.map(|seq| Box::new(self.waiting_at(seq))) }
    }

    /// Lets the first of a session start if none of it may; if that one is a dead letter, it holds the rest.
    pub(super) fn move_on(&mut self, lane: u64, now: Timestamp) -> Option<Seq> {
        let places: Vec<Seq> = self.lane(lane).map(|(_, seq)| seq).collect();
        // Whoever held it may have left it.
        if self.held.get(&lane).is_some_and(|held| !places.contains(&held.letter)) {
            self.held.remove(&lane);
        }
        let first = *places.first()?;
        if places.iter().any(|place| self.rows[place].is_head()) {
            return None;
        }
        let holder = self.held.get(&lane).map(|held| held.letter);
        if self.rows[&first].holds() {
            if holder != Some(first) {
                self.held.insert(lane, Held { letter: first, since: now });
            }
            return None;
        }
        if holder != Some(first) {
            self.held.remove(&lane);
        }
        self.change(first, DeliveryState::Ready);
        Some(first)
    }

    /// Those of a session that have not ended or that hold it, by their turn.
    pub(super) fn lane(&self, lane: u64) -> impl Iterator<Item = (Seq, Seq)> {
        self.lanes.get(&lane).into_iter().flatten().copied()
    }

    /// The session that a letter holds, if it is the one that does, dead or being replayed.
    pub(super) fn held_by(&self, seq: Seq) -> Option<u64> {
        let lane = self.rows[&seq].lane?;
        self.held.get(&lane).is_some_and(|held| held.letter == seq).then_some(lane)
    }

    /// How many of a session wait behind another.
    pub(super) fn behind(&self, lane: u64) -> u64 {
        let is_behind = |(_, seq): &(Seq, Seq)| self.rows[seq].state == DeliveryState::Behind;
        self.lane(lane).filter(is_behind).count() as u64
    }

    /// What a delivery is that comes into its session in that turn: it waits for one that may start, and for
    /// those before it.
    pub(super) fn state_in(&self, lane: Option<u64>, turn: Seq) -> DeliveryState {
        let mut others = lane.into_iter().flat_map(|lane| self.lane(lane));
        let waits = others.any(|(before, seq)| before < turn || self.rows[&seq].is_head());
        if waits { DeliveryState::Behind } else { DeliveryState::Ready }
    }

    /// Gives a delivery another state, and changes what follows from states.
    pub(super) fn change(&mut self, seq: Seq, next: DeliveryState) {
        self.unlist(seq);
        self.rows.get_mut(&seq).expect("whoever changes it has seen it").state = next;
        self.list_again(seq);
    }

    /// Takes a delivery out of all that follows from its state, queue and session.
    pub(super) fn unlist(&mut self, seq: Seq) {
        let row = &self.rows[&seq];
        match row.state {
            DeliveryState::Ready => self.ready.remove(&(Arc::clone(&row.queue), seq)),
            DeliveryState::Due { at } => self.due.remove(&(Arc::clone(&row.queue), at, seq)),
            DeliveryState::Behind
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Closed { .. } => false,
        };
        let counted = self.counted(row);
        let counts = self.counts.queues.get_mut(&*row.queue).expect("counted when it was listed");
        counts.waiting -= counted.waiting;
        counts.waiting_bytes -= counted.waiting_bytes;
        counts.behind -= counted.behind;
        counts.delivered -= counted.delivered;
        counts.dead -= counted.dead;
        counts.closed -= counted.closed;
        let Some(lane) = row.open_lane() else { return };
        let members = self.lanes.get_mut(&lane).expect("it has its place there");
        members.remove(&(row.turn(), seq));
        if members.is_empty() {
            self.lanes.remove(&lane);
        }
    }

    /// The opposite.
    pub(super) fn list_again(&mut self, seq: Seq) {
        let row = &self.rows[&seq];
        match row.state {
            DeliveryState::Ready => self.ready.insert((Arc::clone(&row.queue), seq)),
            DeliveryState::Due { at } => self.due.insert((Arc::clone(&row.queue), at, seq)),
            DeliveryState::Behind
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Closed { .. } => false,
        };
        let counted = self.counted(row);
        let counts = self.counts.queues.entry((*row.queue).clone()).or_default();
        counts.waiting += counted.waiting;
        counts.waiting_bytes += counted.waiting_bytes;
        counts.behind += counted.behind;
        counts.delivered += counted.delivered;
        counts.dead += counted.dead;
        counts.closed += counted.closed;
        if let Some(lane) = row.open_lane() {
            let members: &mut BTreeSet<_> = self.lanes.entry(lane).or_default();
            members.insert((row.turn(), seq));
        }
    }

    /// What a delivery adds to the counts of its queue.
    fn counted(&self, row: &Row) -> QueueCounts {
        let none = QueueCounts::default();
        let waiting_bytes = self.events[&row.event].event.data.len() as u64;
        match row.state {
            DeliveryState::Ready | DeliveryState::Due { .. } => {
                QueueCounts { waiting: 1, waiting_bytes, ..none }
            }
            DeliveryState::Behind => QueueCounts { waiting: 1, waiting_bytes, behind: 1, ..none },
            DeliveryState::Delivered { .. } => QueueCounts { delivered: 1, ..none },
            DeliveryState::Dead { .. } => QueueCounts { dead: 1, ..none },
            DeliveryState::Closed { .. } => QueueCounts { closed: 1, ..none },
        }
    }

    pub(super) fn submit(
        &mut self,
        submission: &Submission,
        now: Timestamp,
        waiting: &mut Vec<Waiting>,
    ) -> Result<Vec<Taken>, Refusal> {
        let Ok(admitted) = admit::admit(self, submission, self.last, now);
        let mut taken = Vec::with_capacity(submission.events.len());
        for (submitted, admitted) in submission.events.iter().zip(admitted?) {
            match admitted {
                Admitted::Known(known) => taken.push(known),
                Admitted::New(new) => {
                    taken.push(new.taken(now));
                    self.add_event(submitted, &new, now, waiting);
                    self.keep_keys(new.seq, new.keys);
                }
            }
        }
        Ok(taken)
    }

    fn add_event(&mut self, submitted: &Submitted, new: &New, now: Timestamp, waiting: &mut Vec<Waiting>) {
        let Submitted { event, routes } = submitted;
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
            self.counts.unrouted += 1;
            self.ending.push_back((now, new.seq));
        }
        for (addressee, fit) in routes.iter().zip(&new.fits) {
            let Some(fit) = fit else { continue };
            waiting.extend(self.add_delivery(new.seq, addressee, *fit, now));
        }
    }

    /// Remembers what the deliveries of an event are known by.
    pub(super) fn keep_keys(&mut self, event: Seq, keys: Vec<NewKey>) {
        self.keys.extend(keys.into_iter().map(|NewKey { key, until }| (key, (event, until))));
    }

    /// Keeps an event at the next place.
    pub(super) fn keep(&mut self, seq: Seq, kept: Kept) {
        assert_eq!(seq, self.last.next(), "places are given without gaps");
        self.last = seq;
        self.counts.events += 1;
        let id = (kept.event.source.clone(), kept.event.id.clone());
        self.ids.entry(id).or_default().insert(seq);
        self.events.insert(seq, kept);
    }

    /// Adds a delivery at the next place; says what may start now.
    pub(super) fn add_delivery(
        &mut self,
        event: Seq,
        to: &Addressee,
        fit: Fit,
        now: Timestamp,
    ) -> Option<Waiting> {
        let seq = self.last.next();
        let lane = derive::lane(self.seed, to, &self.events[&event].event);
        let is_crowded = lane.is_some_and(|lane| {
            self.held.contains_key(&lane) && self.behind(lane) >= to.bound.per_session_max
        });
        let death = match fit {
            Fit::Overflows => Some(derive::overflow(to)),
            Fit::Waits if is_crowded => Some(derive::session_overflow(to)),
            Fit::Waits => None,
        };
        let state = self.state_in(lane, seq);
        let mut row = self.new_row(event, &to.queue, &to.subscription, now);
        row.lane = lane;
        row.state = state;
        self.add_row(row);
        let Some(death) = death else {
            return self.rows[&seq].is_head().then(|| self.waiting_at(seq));
        };
        self.bury(seq, &death, now);
        let promoted = lane.and_then(|lane| self.move_on(lane, now));
        assert!(promoted.is_none(), "what was never waited for lets nobody go on");
        None
    }

    /// A delivery at the next place that nothing has happened to.
    pub(super) fn new_row(
        &self,
        event: Seq,
        queue: &Arc<QueueName>,
        subscription: &Arc<str>,
        now: Timestamp,
    ) -> Row {
        let QueueName { service, channel } = &**queue;
        let key = self.events[&event].event.dedup_key();
        Row {
            id: idempotency::delivery_id(self.last.next(), key, service, channel.as_ref()),
            event,
            queue: Arc::clone(queue),
            subscription: Arc::clone(subscription),
            lane: None,
            state: DeliveryState::Ready,
            attempts: 0,
            history: History::new(),
            book: None,
            written_at: now,
            start_recorded: false,
            stories: Vec::new(),
            turn: None,
            replaying: None,
            replays: 0,
            linked: None,
        }
    }

    pub(super) fn add_row(&mut self, row: Row) {
        let seq = row.id.seq();
        assert_eq!(seq, self.last.next(), "places are given without gaps");
        self.last = seq;
        self.rows.insert(seq, row);
        self.list_again(seq);
    }
}
