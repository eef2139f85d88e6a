//! Settles deliveries: stores results, promotes the next of the session, updates the replay.

use redrive_core::engine::{DeadLetterInfo, NextState, PendingDelivery, SessionFollowers, Settlement};
use redrive_core::event::Event;
use redrive_core::ids::Seq;
use redrive_core::policy::decide::History;
use rusqlite::OptionalExtension;

use super::encode::{self, nanos, place};
use super::fault::{SqlFault, SqlResult};
use super::letters::NewLetter;
use super::rows;
use super::schema::state;
use super::sql::Sql;
use super::write::BatchWriter;
use crate::store::SettleResult;

/// Matches only a head with that attempt count. (UPDATE … RETURNING would buffer rows in a temporary table, which
/// costs more than a lookup.)
pub(super) const FIND_HEAD: &str = "SELECT queue, lane, bytes, replay, linked FROM deliveries
    WHERE seq = ?1 AND content = ?2 AND attempts = ?3 AND state >= 0 AND state < 2";
pub(super) const SETTLE_DELIVERED: &str = "UPDATE deliveries SET state = 3, attempts = ?2, due_at = NULL,
    written_at = ?3, start_recorded = 0, book = NULL, history = NULL, story = ?4, replay = NULL WHERE seq = ?1";
const SETTLE_DEAD: &str = "UPDATE deliveries SET state = ?2, attempts = ?3, due_at = NULL, written_at = ?4,
    start_recorded = 0, book = ?5, history = ?6, story = ?7, replay = NULL WHERE seq = ?1";
const SETTLE_OTHERWISE: &str = "UPDATE deliveries SET state = ?2, attempts = ?3, due_at = ?4,
    written_at = ?5, start_recorded = ?6, book = ?7, history = ?8, story = NULL WHERE seq = ?1";
const INSERT_STORY: &str = "INSERT INTO attempts VALUES
    (?1, (SELECT coalesce(max(n), 0) + 1 FROM attempts WHERE delivery = ?1), ?2)";
pub(super) const DYING: &str = "SELECT e.id, e.source, e.type, e.attributes, x'', d.subscription
    FROM deliveries d CROSS JOIN events e ON e.seq = d.event WHERE d.seq = ?1";

struct HeadRow {
    queue: i64,
    lane: Option<i64>,
    bytes: i64,
    replay: Option<i64>,
    linked: Option<i64>,
}

#[derive(Clone, Copy)]
pub(super) enum ReplayedOutcome {
    Delivered,
    Failed,
}

impl BatchWriter<'_> {
    pub(super) fn settle(&mut self, settlement: &Settlement) -> SqlResult<SettleResult> {
        let Settlement { delivery, attempts_before, .. } = settlement;
        let seq = delivery.seq();
        let wanted = (place(seq), delivery.content().cast_signed(), attempts_before);
        let read = |row: &rusqlite::Row<'_>| {
            let (queue, lane, bytes) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(HeadRow { queue, lane, bytes, replay: row.get(3)?, linked: row.get(4)? })
        };
        let Some(found) = self.find_head.query_row(wanted, read).optional()? else {
            return Ok(SettleResult::Stale);
        };
        if let Some(story) = &settlement.record {
            *self.book_uses.entry(story.book).or_default() += 1;
        }
        if let Some(service) = &settlement.pause {
            self.pause(service, settlement.at)?;
        }
        let promoted = match &settlement.next {
            NextState::Ready => self.mark_waiting(settlement, (state::READY, None), 0)?,
            NextState::Starting => self.mark_waiting(settlement, (state::READY, None), 1)?,
            NextState::Due { at } => self.mark_waiting(settlement, (state::DUE, Some(nanos(*at))), 0)?,
            NextState::Delivered => self.mark_delivered(settlement, &found)?,
            NextState::Dead(death) => self.mark_dead(settlement, death, &found)?,
        };
        Ok(SettleResult::Written { promoted: promoted.map(Box::new) })
    }

    fn mark_waiting(
        &self,
        settlement: &Settlement,
        (code, due_at): (i64, Option<i64>),
        starts: u32,
    ) -> SqlResult<Option<PendingDelivery>> {
        let Settlement { delivery, attempts, history, book, at, .. } = settlement;
        let place = place(delivery.seq());
        let (history, book) = (stored_history(history), book.cast_signed());
        let values = (place, code, attempts, due_at, nanos(*at), starts, book, history);
        self.connection.run(SETTLE_OTHERWISE, values)?;
        if let Some(story) = &settlement.record {
            self.append_attempt(delivery.seq(), &encode::story(story))?;
        }
        Ok(None)
    }

    pub(super) fn append_attempt(&self, delivery: Seq, story: &[u8]) -> SqlResult<()> {
        self.connection.run(INSERT_STORY, (place(delivery), story))
    }

    fn mark_delivered(
        &mut self,
        settlement: &Settlement,
        found: &HeadRow,
    ) -> SqlResult<Option<PendingDelivery>> {
        let Settlement { delivery, attempts, at, .. } = settlement;
        let place = place(delivery.seq());
        let story = settlement.record.as_deref().map(encode::story);
        self.settle_delivered.execute((place, attempts, nanos(*at), story))?;
        self.state.names.uncount_waiting(found.queue, found.bytes.cast_unsigned())?.delivered += 1;
        self.ended.push(delivery.seq());
        if let Some(replay) = found.replay {
            self.count_replayed(replay, place, found.lane, ReplayedOutcome::Delivered)?;
        }
        self.promote_after_end(found.lane, found.replay.or(found.linked))
    }

    fn mark_dead(
        &mut self,
        settlement: &Settlement,
        death: &DeadLetterInfo,
        found: &HeadRow,
    ) -> SqlResult<Option<PendingDelivery>> {
        let Settlement { delivery, attempts, history, book, at, stop, .. } = settlement;
        let place = place(delivery.seq());
        let story = settlement.record.as_deref().map(encode::story);
        let (history, book) = (stored_history(history), book.cast_signed());
        let code = match (death.followers, found.lane) {
            (SessionFollowers::Wait, Some(_)) => state::HOLDING,
            (SessionFollowers::Wait, None) | (SessionFollowers::Continue, _) => state::DEAD,
        };
        let values = (place, code, attempts, nanos(*at), book, history, story);
        self.connection.run(SETTLE_DEAD, values)?;
        self.state.names.uncount_waiting(found.queue, found.bytes.cast_unsigned())?.dead += 1;
        let (event, subscription) = self.event_of(place)?;
        let (delivery, queue, event, died_at) = (place, found.queue, &event, *at);
        self.add_letter(&NewLetter { delivery, queue, subscription, event, death, died_at })?;
        if let Some(replay) = found.replay {
            if let Some(stop) = stop.filter(|stop| stop.replay.0.cast_signed() == replay) {
                self.stop(&stop)?;
            }
            self.count_replayed(replay, place, found.lane, ReplayedOutcome::Failed)?;
        }
        self.promote_after_end(found.lane, found.replay.or(found.linked))
    }

    /// Without its data.
    pub(super) fn event_of(&self, delivery: i64) -> SqlResult<(Event, i64)> {
        let found = self.connection.first(DYING, [delivery], |row| Ok((rows::event(row)?, row.get(5)?)))?;
        found.ok_or(SqlFault::unreadable("the event of a delivery"))
    }

    /// Promotes the next of the session; `returned` is the replay or linked event of the ended delivery.
    pub(super) fn promote_after_end(
        &mut self,
        lane: Option<i64>,
        returned: Option<i64>,
    ) -> SqlResult<Option<PendingDelivery>> {
        match lane {
            // Neither dead before nor replacing a letter: nothing can hold its session.
            Some(lane) if returned.is_none() => self.promote(lane),
            Some(lane) => self.advance_lane(lane),
            None => Ok(None),
        }
    }
}

fn stored_history(history: &History) -> Option<String> {
    let text = || serde_json::to_string(history).expect("a history has nothing that JSON has not");
    (*history != History::new()).then(text)
}
