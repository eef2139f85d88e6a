//! Session order: which delivery is next, and which session a dead letter holds.
//!
//! Invariants: in a session, exactly one delivery may start, or the first is a dead letter that holds the rest.
//! That letter has a row in `held` from its turn until the next delivery continues, even while it is replayed or
//! replaced. Sessions without a dead letter never read that table.

use redrive_core::engine::PendingDelivery;

use super::encode::{nanos, seq};
use super::fault::SqlResult;
use super::names::QueueIndex;
use super::rows;
use super::schema::state;
use super::sql::Sql;
use super::write::BatchWriter;
use crate::store::letter::RELEASED_LETTERS_MAX;

pub(super) const HEAD_OF_LANE: &str =
    "SELECT seq, queue, state, state = -1 OR replay IS NOT NULL OR linked IS NOT NULL
    FROM deliveries WHERE lane = ?1 AND state < 3 ORDER BY coalesce(turn, seq) LIMIT 1";
/// Counting stops there when a letter starts to hold a longer session.
const COUNTED_MAX: u32 = 100_000;
pub(super) const COUNT_BEHIND: &str = "SELECT coalesce(sum(state = 2), 0) FROM
    (SELECT state FROM deliveries WHERE lane = ?1 AND state < 3 ORDER BY coalesce(turn, seq) LIMIT ?2)";
/// Whether the first delivery that did not come back may start. A ready one was first when it became ready; only
/// replayed or replacing ones can get before it, and those wait. So it suffices to look at one.
pub(super) const HAS_HEAD: &str = "SELECT state IN (0, 1) FROM deliveries WHERE lane = ?1 AND state < 3
    AND (state <> 2 OR replay IS NULL AND linked IS NULL) ORDER BY coalesce(turn, seq) LIMIT 1";
pub(super) const HAS_EARLIER: &str =
    "SELECT 1 FROM deliveries WHERE lane = ?1 AND state < 3 AND coalesce(turn, seq) < ?2 LIMIT 1";

pub(super) const FROM_TURN: &str = "SELECT seq, state FROM deliveries
    WHERE lane = ?1 AND state < 3 AND coalesce(turn, seq) >= ?2 ORDER BY coalesce(turn, seq) LIMIT ?3";

#[derive(Clone, Copy)]
pub(super) struct LaneHead {
    pub(super) delivery: i64,
    pub(super) queue: i64,
    pub(super) state: i64,
    /// Dead, replayed or replacing another: its session may have a row in `held`.
    pub(super) may_be_held: bool,
}

#[derive(Clone, Copy)]
pub(super) struct HeldLane {
    pub(super) letter: i64,
    pub(super) behind: u64,
}

impl BatchWriter<'_> {
    pub(super) fn head_of_lane(&self, lane: i64) -> SqlResult<Option<LaneHead>> {
        self.connection.first(HEAD_OF_LANE, [lane], |row| {
            let (delivery, queue, state, may_be_held) = row.try_into()?;
            Ok(LaneHead { delivery, queue, state, may_be_held })
        })
    }

    /// Waits for a delivery that may start, and for earlier ones.
    fn state_in(&self, lane: Option<i64>, turn: i64) -> SqlResult<i64> {
        let Some(lane) = lane else { return Ok(state::READY) };
        let waits = self.connection.has(HAS_EARLIER, [lane, turn])? || self.has_head(lane)?;
        Ok(if waits { state::BEHIND } else { state::READY })
    }

    /// Counts a delivery into a queue; returns its state there.
    pub(super) fn enter(
        &mut self,
        queue: QueueIndex,
        lane: Option<i64>,
        turn: i64,
        bytes: u64,
    ) -> SqlResult<i64> {
        let code = self.state_in(lane, turn)?;
        self.state.names.count_waiting(queue, bytes, code);
        if let Some(lane) = lane.filter(|_| code == state::BEHIND) {
            self.wait_behind(lane)?;
        }
        Ok(code)
    }

    /// Consecutive letters that hold the session, from that turn on.
    pub(super) fn holding_from(&self, lane: i64, turn: i64) -> SqlResult<Vec<i64>> {
        let limit = i64::try_from(RELEASED_LETTERS_MAX).expect("a small number");
        let from_turn: Vec<(i64, i64)> =
            self.connection.all(FROM_TURN, [lane, turn, limit], |row| Ok(row.try_into()?))?;
        let holding = from_turn.into_iter().take_while(|(_, code)| *code == state::HOLDING);
        Ok(holding.map(|(letter, _)| letter).collect())
    }

    pub(super) fn held(&self, lane: i64) -> SqlResult<Option<HeldLane>> {
        self.connection.first("SELECT letter, behind FROM held WHERE lane = ?1", [lane], |row| {
            Ok(HeldLane { letter: row.get(0)?, behind: row.get::<_, i64>(1)?.cast_unsigned() })
        })
    }

    pub(super) fn held_by(&self, lane: Option<i64>, delivery: i64) -> SqlResult<Option<(i64, HeldLane)>> {
        let Some(lane) = lane else { return Ok(None) };
        Ok(self.held(lane)?.filter(|held| held.letter == delivery).map(|held| (lane, held)))
    }

    pub(super) fn hold(&self, lane: i64, letter: i64) -> SqlResult<()> {
        let since = nanos(self.now);
        match self.held(lane)? {
            Some(held) if held.letter == letter => {}
            Some(_) => {
                let update = "UPDATE held SET letter = ?2, since = ?3 WHERE lane = ?1";
                self.connection.run(update, (lane, letter, since))?;
            }
            None => {
                let behind: i64 = self.connection.get(COUNT_BEHIND, (lane, COUNTED_MAX))?;
                let insert = "INSERT INTO held VALUES (?1, ?2, ?3, ?4)";
                self.connection.run(insert, (lane, letter, since, behind))?;
            }
        }
        Ok(())
    }

    pub(super) fn wait_behind(&self, lane: i64) -> SqlResult<()> {
        self.connection.run("UPDATE held SET behind = behind + 1 WHERE lane = ?1", [lane])
    }

    /// Promotes the first of a session that has no head and no holder; a dead letter becomes its holder.
    pub(super) fn promote(&mut self, lane: i64) -> SqlResult<Option<PendingDelivery>> {
        let Some(head) = self.head_of_lane(lane)? else { return Ok(None) };
        if head.state == state::HOLDING {
            self.hold(lane, head.delivery)?;
            return Ok(None);
        }
        assert!(head.state == state::BEHIND, "whatever might start has just ended");
        self.make_ready(head).map(Some)
    }

    /// Like [`Self::promote`], for a session in any state.
    pub(super) fn advance_lane(&mut self, lane: i64) -> SqlResult<Option<PendingDelivery>> {
        let holder = self.held(lane)?;
        let head = self.head_of_lane(lane)?;
        let has_head = head.is_some() && self.has_head(lane)?;
        let Some(head) = head.filter(|_| !has_head) else {
            if let Some(held) = holder
                && !self.is_open(lane, held.letter)?
            {
                self.forget_held(lane)?;
            }
            return Ok(None);
        };
        if head.state == state::HOLDING {
            // Those behind stay the same.
            self.hold(lane, head.delivery)?;
            return Ok(None);
        }
        match holder {
            // It still holds the session while in flight, and is not behind itself.
            Some(known) if known.letter == head.delivery => {
                self.connection.run("UPDATE held SET behind = max(behind - 1, 0) WHERE lane = ?1", [lane])?;
            }
            Some(_) => self.forget_held(lane)?,
            None => {}
        }
        self.make_ready(head).map(Some)
    }

    fn has_head(&self, lane: i64) -> SqlResult<bool> {
        Ok(self.connection.find(HAS_HEAD, [lane])?.unwrap_or(false))
    }

    fn is_open(&self, lane: i64, delivery: i64) -> SqlResult<bool> {
        let select = "SELECT 1 FROM deliveries WHERE seq = ?1 AND lane = ?2 AND state < 3";
        self.connection.has(select, [delivery, lane])
    }

    fn forget_held(&self, lane: i64) -> SqlResult<()> {
        self.connection.run("DELETE FROM held WHERE lane = ?1", [lane])
    }

    fn make_ready(&mut self, head: LaneHead) -> SqlResult<PendingDelivery> {
        self.connection.run("UPDATE deliveries SET state = 0 WHERE seq = ?1", [head.delivery])?;
        let queue = self.state.names.index_of(head.queue)?;
        self.state.names.counts(queue).behind -= 1;
        self.waiting(head.queue, head.delivery)
    }

    pub(super) fn waiting(&self, queue: i64, delivery: i64) -> SqlResult<PendingDelivery> {
        let name = &self.state.names.queue(self.state.names.index_of(queue)?).name;
        rows::waiting(self.connection, name, seq(delivery), &mut None)
    }
}
