//! Empties a queue that the rule book no longer has, or takes out what no row takes: into dead letters, or to
//! another queue.
//!
//! Invariants: deliveries leave a session head first, so order is kept; running and replayed ones stay.

use redrive_core::engine::PendingDelivery;
use redrive_core::event::Event;
use redrive_core::ids::Seq;
use redrive_core::letters::replay::ReplayId;
use redrive_core::time::Timestamp;

use super::audit::AuditAct;
use super::encode::{nanos, place, seq, time};
use super::fault::SqlResult;
use super::letters::NewLetter;
use super::rows::DeliveryRow;
use super::schema::state;
use super::settle::ReplayedOutcome;
use super::sql::Sql;
use super::write::BatchWriter;
use crate::store::derive;
use crate::store::letter::{
    ReassignCommand, ReassignCursor, ReassignScope, ReassignStep, Reassignment, Redirect, STEP_BYTES_MAX,
    ScanCoverage,
};

pub(super) const READY_HEADS: &str =
    "SELECT seq FROM deliveries WHERE queue = ?1 AND state = 0 AND seq > ?2 ORDER BY seq LIMIT ?3";
pub(super) const DUE_HEADS: &str = "SELECT due_at, seq FROM deliveries WHERE queue = ?1 AND state = 1
    AND due_at >= ?2 AND (due_at > ?2 OR seq > ?3) ORDER BY due_at, seq LIMIT ?4";
const DEAD_LETTER: &str =
    "UPDATE deliveries SET state = ?2, due_at = NULL, written_at = ?3, start_recorded = 0,
    replay = NULL WHERE seq = ?1";
const MOVE: &str = "UPDATE deliveries SET queue = ?2, lane = ?3, state = ?4, due_at = NULL, written_at = ?5,
    start_recorded = 0, book = NULL, history = NULL, replay = NULL WHERE seq = ?1";

const PARK: &str = "UPDATE deliveries SET state = 1, due_at = ?2 WHERE seq = ?1";

#[expect(clippy::large_enum_variant, reason = "one lives at a time, on the stack")]
enum ReassignOutcome {
    /// Left the queue; the next of its session is its head now.
    Gone(Option<PendingDelivery>),
    Unwanted,
    Busy,
    Wanted,
}

impl BatchWriter<'_> {
    pub(super) fn reassign(&mut self, order: &ReassignCommand) -> SqlResult<ReassignStep> {
        let Some(queue) = self.state.names.find(&order.queue).map(|queue| queue.id) else {
            let next = order.next(None, ScanCoverage::Yes);
            return Ok(ReassignStep { done: 0, unwanted: 0, busy: 0, next, audit: order.audit });
        };
        let heads = self.heads(queue, order)?;
        let mut whole = if heads.len() < order.rows_max { ScanCoverage::Yes } else { ScanCoverage::No };
        let (mut done, mut unwanted, mut busy, mut bytes) = (0, 0, 0, 0);
        let mut last = order.from();
        for head in heads {
            last = Some(head);
            let (mut delivery, mut may_start) = (place(head.seq), None);
            loop {
                let before = self.ready.len();
                match self.reassign_one(delivery, order)? {
                    ReassignOutcome::Gone(next) => {
                        done += 1;
                        bytes += self.ready[before..]
                            .iter()
                            .chain(&next)
                            .map(PendingDelivery::bytes)
                            .sum::<usize>();
                        let is_full = done >= order.rows_max as u64 || bytes >= STEP_BYTES_MAX;
                        match next {
                            Some(row) if !is_full => {
                                delivery = place(row.id.seq());
                                may_start = Some(row);
                            }
                            Some(_) | None => {
                                self.announce_head(next, order)?;
                                break;
                            }
                        }
                    }
                    left @ (ReassignOutcome::Unwanted | ReassignOutcome::Busy | ReassignOutcome::Wanted) => {
                        unwanted += u64::from(matches!(left, ReassignOutcome::Unwanted));
                        busy += u64::from(matches!(left, ReassignOutcome::Busy));
                        self.announce_head(may_start.take(), order)?;
                        break;
                    }
                }
            }
            if done >= order.rows_max as u64 || bytes >= STEP_BYTES_MAX {
                whole = ScanCoverage::No;
                break;
            }
        }
        let audit = self.record_reassigned(order, done)?;
        Ok(ReassignStep { done, unwanted, busy, next: order.next(last, whole), audit })
    }

    /// Hands the new head to the engine, or parks it if it has no rule.
    fn announce_head(&mut self, first: Option<PendingDelivery>, order: &ReassignCommand) -> SqlResult<()> {
        match first {
            Some(row) if order.scope.parks(&row) => {
                let values = (place(row.id.seq()), nanos(Timestamp::NEVER));
                self.connection.run(PARK, values)?;
            }
            Some(_) | None => self.ready.extend(first),
        }
        Ok(())
    }

    fn record_reassigned(&self, order: &ReassignCommand, done: u64) -> SqlResult<Option<u64>> {
        if done == 0 {
            return Ok(order.audit);
        }
        if let Some(audit) = order.audit
            && self.add_to_record(audit.cast_signed(), done)?
        {
            return Ok(Some(audit));
        }
        let (verb, what) = order.act();
        let act = AuditAct { verb, what: &what, letters: done, note: order.note.as_deref() };
        Ok(Some(self.record(&act)?.cast_unsigned()))
    }

    /// Heads of sessions, and deliveries without one.
    fn heads(&self, queue: i64, order: &ReassignCommand) -> SqlResult<Vec<ReassignCursor>> {
        let rows_max = i64::try_from(order.rows_max).unwrap_or(i64::MAX);
        let from = order.from();
        if let Some(ReassignCursor { due_at: Some(due_at), seq: after }) = from {
            let values = (queue, nanos(due_at), place(after), rows_max);
            return self.connection.all(DUE_HEADS, values, |row| {
                Ok(ReassignCursor { due_at: Some(time(row.get(0)?)), seq: seq(row.get(1)?) })
            });
        }
        let after = from.map_or(Seq::NONE, |after| after.seq);
        self.connection.all(READY_HEADS, (queue, place(after), rows_max), |row| {
            Ok(ReassignCursor { due_at: None, seq: seq(row.get(0)?) })
        })
    }

    fn reassign_one(&mut self, delivery: i64, order: &ReassignCommand) -> SqlResult<ReassignOutcome> {
        let found = self.delivery(delivery)?;
        if order.running.contains(&seq(delivery)) || self.is_replayed(&found)? {
            return Ok(ReassignOutcome::Busy);
        }
        let (event, subscription) = self.event_of(delivery)?;
        if order.scope.leaves(event.event_type.as_str()) {
            return Ok(ReassignOutcome::Wanted);
        }
        match &order.to {
            Reassignment::DeadLetters => {
                self.dead_letter_removed(delivery, subscription, &found, &event, &order.scope)?;
                self.leave_replay(delivery, &found)?;
            }
            Reassignment::Queue { to, takes } => {
                if !takes.iter().any(|pattern| pattern.matches(event.event_type.as_str())) {
                    return Ok(ReassignOutcome::Unwanted);
                }
                let moved = self.move_to(to, delivery, &found, &event)?;
                self.leave_replay(delivery, &found)?;
                // Advance the old session first, so that this delivery is not its next.
                let next = self.promote_after_end(found.lane, found.replay.or(found.linked))?;
                self.ready.extend(moved);
                return Ok(ReassignOutcome::Gone(next));
            }
        }
        Ok(ReassignOutcome::Gone(self.promote_after_end(found.lane, found.replay.or(found.linked))?))
    }

    fn is_replayed(&self, found: &DeliveryRow) -> SqlResult<bool> {
        let Some(replay) = found.replay else { return Ok(false) };
        let stored = self.stored(ReplayId(replay.cast_unsigned()))?;
        Ok(stored.is_some_and(|stored| stored.view.state.is_open()))
    }

    /// An ended replay no longer waits for it.
    fn leave_replay(&self, delivery: i64, found: &DeliveryRow) -> SqlResult<()> {
        match found.replay {
            Some(replay) => self.count_replayed(replay, delivery, found.lane, ReplayedOutcome::Failed),
            None => Ok(()),
        }
    }

    fn dead_letter_removed(
        &mut self,
        delivery: i64,
        subscription: i64,
        found: &DeliveryRow,
        event: &Event,
        scope: &ReassignScope,
    ) -> SqlResult<()> {
        let (queue, died_at) = (found.queue, self.now);
        let index = self.state.names.index_of(queue)?;
        let death = &derive::removed(&self.state.names.queue(index).name, scope);
        self.connection.run(DEAD_LETTER, (delivery, state::DEAD, nanos(died_at)))?;
        self.state.names.uncount_waiting(queue, found.bytes)?.dead += 1;
        self.add_letter(&NewLetter { delivery, queue, subscription, event, death, died_at })
    }

    fn move_to(
        &mut self,
        to: &Redirect,
        delivery: i64,
        found: &DeliveryRow,
        event: &Event,
    ) -> SqlResult<Option<PendingDelivery>> {
        let lane = derive::lane_in(self.state.meta.seed, &to.queue, to.order, event).map(u64::cast_signed);
        self.state.names.uncount_waiting(found.queue, found.bytes)?;
        let queue = self.state.names.queue_for(self.connection, &to.queue)?;
        let queue_id = self.state.names.queue(queue).id;
        let code = self.enter(queue, lane, found.turn, found.bytes)?;
        let values = (delivery, queue_id, lane, code, nanos(self.now));
        self.connection.run(MOVE, values)?;
        (code == state::READY).then(|| self.waiting(queue_id, delivery)).transpose()
    }
}
