//! Takes what waits out of a queue that the rule book has no more, or what no row of it takes, in a store in memory.

use std::sync::Arc;

use redrive_core::engine::Waiting;
use redrive_core::ids::Seq;
use redrive_core::policy::decide::History;
use redrive_core::time::Timestamp;

use super::world::World;
use crate::store::letter::{
    Reassign, ReassignCursor, ReassignStep, Reassignment, Redirect, STEP_BYTES_MAX, Whole,
};
use crate::store::{DeliveryState, derive};

/// What became of one.
enum Taken {
    /// It is gone from the queue, and this one of its session is next.
    Gone(Option<Seq>),
    Unwanted,
    Busy,
    /// A row takes it.
    Wanted,
}

impl World {
    /// Does a step of it.
    pub(super) fn reassign(
        &mut self,
        order: &Reassign,
        now: Timestamp,
        waiting: &mut Vec<Waiting>,
    ) -> ReassignStep {
        let heads = self.heads(order);
        let mut whole = if heads.len() < order.rows_max { Whole::Yes } else { Whole::No };
        let (mut done, mut unwanted, mut busy, mut bytes) = (0, 0, 0, 0);
        let mut last = order.from();
        for head in heads {
            last = Some(head);
            let (mut seq, mut may_start) = (head.seq, None);
            loop {
                let before = waiting.len();
                match self.take_out(seq, order, now, waiting) {
                    Taken::Gone(next) => {
                        done += 1;
                        bytes += waiting[before..].iter().map(Waiting::bytes).sum::<usize>();
                        bytes += next.map_or(0, |next| self.waiting_at(next).bytes());
                        let is_full = done >= order.rows_max as u64 || bytes >= STEP_BYTES_MAX;
                        match next {
                            Some(next) if !is_full => (seq, may_start) = (next, Some(next)),
                            Some(_) | None => {
                                self.first_now(next, order, waiting);
                                break;
                            }
                        }
                    }
                    left @ (Taken::Unwanted | Taken::Busy | Taken::Wanted) => {
                        unwanted += u64::from(matches!(left, Taken::Unwanted));
                        busy += u64::from(matches!(left, Taken::Busy));
                        self.first_now(may_start, order, waiting);
                        break;
                    }
                }
            }
            if done >= order.rows_max as u64 || bytes >= STEP_BYTES_MAX {
                whole = Whole::No;
                break;
            }
        }
        let mut audit = order.audit;
        if done > 0 {
            if let Some(record) = audit.and_then(|number| self.audit.get_mut(&number)) {
                record.letters += done;
            } else {
                let (verb, what) = order.act();
                audit = Some(self.record(verb, what, done, order.note.clone(), now));
            }
        }
        ReassignStep { done, unwanted, busy, next: order.next(last, whole), audit }
    }

    /// The engine has not heard yet that it is the first of its session; without a rule it need not.
    fn first_now(&mut self, first: Option<Seq>, order: &Reassign, waiting: &mut Vec<Waiting>) {
        let Some(row) = first.map(|first| self.waiting_at(first)) else { return };
        if order.scope.parks(&row) {
            self.change(row.id.seq(), DeliveryState::Due { at: Timestamp::NEVER });
        } else {
            waiting.push(row);
        }
    }

    fn heads(&self, order: &Reassign) -> Vec<ReassignCursor> {
        let Reassign { queue, rows_max, .. } = order;
        let after = order.from();
        if let Some(ReassignCursor { due_at: Some(due_at), seq }) = after {
            let later =
                self.due.iter().filter(|(of, at, place)| of == queue && (*at, *place) > (due_at, seq));
            let head = |(_, at, seq): &(_, Timestamp, Seq)| ReassignCursor { due_at: Some(*at), seq: *seq };
            later.map(head).take(*rows_max).collect()
        } else {
            let after = after.map_or(Seq::NONE, |after| after.seq);
            let later = self.ready.iter().filter(|(of, place)| of == queue && *place > after);
            let head = |(_, seq): &(_, Seq)| ReassignCursor { due_at: None, seq: *seq };
            later.map(head).take(*rows_max).collect()
        }
    }

    fn take_out(&mut self, seq: Seq, order: &Reassign, now: Timestamp, waiting: &mut Vec<Waiting>) -> Taken {
        let row = &self.rows[&seq];
        let replay = row.replaying.and_then(|replaying| self.replays.get(&replaying.replay));
        if order.running.contains(&seq) || replay.is_some_and(|replay| replay.state.is_open()) {
            return Taken::Busy;
        }
        let event_type = self.events[&row.event].event.event_type.as_str();
        if order.scope.leaves(event_type) {
            return Taken::Wanted;
        }
        let lane = row.lane;
        match &order.to {
            Reassignment::DeadLetters => {
                let death = derive::removed(&order.queue, &order.scope);
                let row = self.rows.get_mut(&seq).expect("it was seen");
                row.written_at = now;
                row.start_recorded = false;
                self.leave_replay(seq, now);
                self.bury(seq, &death, now);
                Taken::Gone(lane.and_then(|lane| self.move_on(lane, now)))
            }
            Reassignment::Queue { to, takes } => {
                if !takes.iter().any(|pattern| pattern.matches(event_type)) {
                    return Taken::Unwanted;
                }
                self.move_to(to, seq, now);
                let next = lane.and_then(|lane| self.move_on(lane, now));
                waiting.extend(self.rows[&seq].is_head().then(|| self.waiting_at(seq)));
                Taken::Gone(next)
            }
        }
    }

    fn move_to(&mut self, to: &Redirect, seq: Seq, now: Timestamp) {
        self.unlist(seq);
        let event = &self.events[&self.rows[&seq].event].event;
        let lane = derive::lane_in(self.seed, &to.queue, to.order, event);
        let state = self.state_in(lane, self.rows[&seq].turn());
        let row = self.rows.get_mut(&seq).expect("it was seen");
        row.queue = Arc::clone(&to.queue);
        row.lane = lane;
        row.state = state;
        row.history = History::new();
        row.book = None;
        row.start_recorded = false;
        row.written_at = now;
        self.leave_replay(seq, now);
        self.list_again(seq);
    }
}
