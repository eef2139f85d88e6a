//! Takes what waits out of a queue that the rule book has no more, or what no row of it takes.

use std::sync::Arc;

use redrive_core::engine::{LoadRequest, LoadScope, PendingDelivery};
use redrive_core::ids::Seq;
use redrive_core::store_model::{Lane, RowState};
use redrive_core::time::Timestamp;

use super::world::World;
use crate::store::derive;
use crate::store::letter::{
    ReassignCommand, ReassignCursor, ReassignStep, Reassignment, STEP_BYTES_MAX, ScanCoverage,
};

/// What became of one.
#[expect(clippy::large_enum_variant, reason = "one lives at a time, on the stack")]
enum Taken {
    /// It is gone from the queue, and this one of its session is next.
    Gone(Option<PendingDelivery>),
    Unwanted,
    Busy,
    /// A row takes it.
    Wanted,
}

impl World {
    /// Does a step of it.
    pub(super) fn reassign(
        &mut self,
        order: &ReassignCommand,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) -> ReassignStep {
        let heads = self.heads(order);
        let mut whole = if heads.len() < order.rows_max { ScanCoverage::Yes } else { ScanCoverage::No };
        let (mut done, mut unwanted, mut busy, mut bytes) = (0, 0, 0, 0);
        let mut last = order.from();
        for head in heads {
            last = Some(head);
            let (mut seq, mut may_start) = (head.seq, None);
            loop {
                let before = waiting.len();
                match self.reassign_one(seq, order, now, waiting) {
                    Taken::Gone(next) => {
                        done += 1;
                        bytes += waiting[before..].iter().map(PendingDelivery::bytes).sum::<usize>();
                        bytes += next.as_ref().map_or(0, PendingDelivery::bytes);
                        let is_full = done >= order.rows_max as u64 || bytes >= STEP_BYTES_MAX;
                        match next {
                            Some(next) if !is_full => (seq, may_start) = (next.id.seq(), Some(next)),
                            next => {
                                self.announce_head(next, order, waiting);
                                break;
                            }
                        }
                    }
                    left @ (Taken::Unwanted | Taken::Busy | Taken::Wanted) => {
                        unwanted += u64::from(matches!(left, Taken::Unwanted));
                        busy += u64::from(matches!(left, Taken::Busy));
                        self.announce_head(may_start, order, waiting);
                        break;
                    }
                }
            }
            if done >= order.rows_max as u64 || bytes >= STEP_BYTES_MAX {
                whole = ScanCoverage::No;
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
    fn announce_head(
        &mut self,
        first: Option<PendingDelivery>,
        order: &ReassignCommand,
        waiting: &mut Vec<PendingDelivery>,
    ) {
        let Some(row) = first else { return };
        if order.scope.parks(&row) {
            self.model.put(row.id.seq(), RowState::Due(Timestamp::NEVER));
        } else {
            waiting.push(row);
        }
    }

    fn heads(&self, order: &ReassignCommand) -> Vec<ReassignCursor> {
        let ReassignCommand { queue, rows_max, .. } = order;
        let after = order.from();
        let wanted = match after {
            Some(ReassignCursor { due_at: Some(_), .. }) => LoadScope::Due { until: Timestamp::NEVER },
            Some(ReassignCursor { due_at: None, seq }) => LoadScope::Ready { after: seq },
            None => LoadScope::Ready { after: Seq::NONE },
        };
        let load =
            LoadRequest { queue: Arc::clone(queue), wanted, rows_max: u32::MAX, bytes_max: usize::MAX };
        let heads = self.model.load(&load).rows.into_iter();
        let heads = heads.map(|row| ReassignCursor { due_at: row.due_at, seq: row.id.seq() });
        heads.filter(|head| Some(*head) > after).take(*rows_max).collect()
    }

    fn reassign_one(
        &mut self,
        seq: Seq,
        order: &ReassignCommand,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) -> Taken {
        let row = self.row(seq);
        let replay = row.waiting.replaying.and_then(|sent| self.model.replays().get(&sent.replay));
        if order.running.contains(&seq) || replay.is_some_and(|replay| replay.job.state.is_open()) {
            return Taken::Busy;
        }
        let event = &row.waiting.event;
        if order.scope.leaves(event.event_type.as_str()) {
            return Taken::Wanted;
        }
        match &order.to {
            Reassignment::DeadLetters => {
                let death = derive::removed(&order.queue, &order.scope);
                let next = self.model.give_up(seq, &death, now);
                self.count_kinds();
                Taken::Gone(next)
            }
            Reassignment::Queue { to, takes } => {
                if !takes.iter().any(|pattern| pattern.matches(event.event_type.as_str())) {
                    return Taken::Unwanted;
                }
                let lane = derive::lane_in(self.seed, &to.queue, to.order, event).map(Lane);
                let (next, itself) = self.model.redirect(seq, &to.queue, lane, now);
                waiting.extend(itself);
                Taken::Gone(next)
            }
        }
    }
}
