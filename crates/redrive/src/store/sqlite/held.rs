//! The order of sessions: who is next, and which session a dead letter holds.
//!
//! Invariants: a session has a row in `held` from when a dead letter of it comes to its turn until the next
//! of it goes on, even while that letter is replayed or another event takes its place; and while it has one,
//! only that letter may start. A session without such a letter costs no look at that table.

use redrive_core::engine::Waiting;
use redrive_core::time::Timestamp;
use rusqlite::OptionalExtension;

use super::encode::{nanos, seq};
use super::fault::Fault;
use super::rows;
use super::schema::state;
use super::write::Work;

pub(super) const HEAD_OF_LANE: &str =
    "SELECT seq, queue, state, state = -1 OR replay IS NOT NULL OR linked IS NOT NULL
    FROM deliveries WHERE lane = ?1 AND state < 3 ORDER BY coalesce(turn, seq) LIMIT 1";
pub(super) const COUNT_BEHIND: &str =
    "SELECT count(*) FROM deliveries WHERE lane = ?1 AND state < 3 AND state = 2";
pub(super) const OTHERS_OF_LANE: &str =
    "SELECT 1 FROM deliveries WHERE lane = ?1 AND state < 3 AND seq <> ?2 LIMIT 1";

/// The first of a session in its order.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) delivery: i64,
    pub(super) queue: i64,
    pub(super) state: i64,
    /// Whether its session may have a row in `held`: then it is dead, replayed, or there in place of another.
    pub(super) may_be_held: bool,
}

/// A session that a letter holds.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) letter: i64,
    pub(super) behind: u64,
}

impl Work<'_> {
    pub(super) fn head_of_lane(&self, lane: i64) -> Result<Option<Head>, Fault> {
        let mut statement = self.connection.prepare_cached(HEAD_OF_LANE)?;
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Head {
                delivery: row.get(0)?,
                queue: row.get(1)?,
                state: row.get(2)?,
                may_be_held: row.get(3)?,
            })
        };
        Ok(statement.query_row([lane], read).optional()?)
    }

    /// Whether anything of the session but that delivery has not ended.
    pub(super) fn has_others(&self, lane: i64, delivery: i64) -> Result<bool, Fault> {
        Ok(self.connection.prepare_cached(OTHERS_OF_LANE)?.exists([lane, delivery])?)
    }

    pub(super) fn held(&self, lane: i64) -> Result<Option<Held>, Fault> {
        let select = "SELECT letter, behind FROM held WHERE lane = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Held { letter: row.get(0)?, behind: row.get::<_, i64>(1)?.cast_unsigned() })
        };
        Ok(self.connection.prepare_cached(select)?.query_row([lane], read).optional()?)
    }

    /// What holds a session, if it is that delivery.
    pub(super) fn held_by(&self, lane: Option<i64>, delivery: i64) -> Result<Option<(i64, Held)>, Fault> {
        let Some(lane) = lane else { return Ok(None) };
        Ok(self.held(lane)?.filter(|held| held.letter == delivery).map(|held| (lane, held)))
    }

    /// A letter holds its session from now on, or goes on to hold it.
    pub(super) fn hold(&self, lane: i64, letter: i64, since: Timestamp) -> Result<(), Fault> {
        let update = "UPDATE held SET letter = ?2 WHERE lane = ?1";
        if self.connection.prepare_cached(update)?.execute([lane, letter])? == 0 {
            let insert = format!("INSERT INTO held VALUES (?1, ?2, ?3, ({COUNT_BEHIND}))");
            self.connection.prepare_cached(&insert)?.execute((lane, letter, nanos(since)))?;
        }
        Ok(())
    }

    /// One more waits behind whatever holds the session.
    pub(super) fn wait_behind(&self, lane: i64) -> Result<(), Fault> {
        let update = "UPDATE held SET behind = behind + 1 WHERE lane = ?1";
        self.connection.prepare_cached(update)?.execute([lane])?;
        Ok(())
    }

    /// Nothing holds the session any more, so it goes on.
    pub(super) fn release(&mut self, lane: i64) -> Result<Option<Waiting>, Fault> {
        self.connection.prepare_cached("DELETE FROM held WHERE lane = ?1")?.execute([lane])?;
        self.promote(lane)
    }

    /// Makes the first of a session that nothing holds its head; if that is dead, it holds the session.
    pub(super) fn promote(&mut self, lane: i64) -> Result<Option<Waiting>, Fault> {
        let Some(head) = self.head_of_lane(lane)? else { return Ok(None) };
        match head.state {
            state::HOLDING => {
                self.hold(lane, head.delivery, self.now)?;
                return Ok(None);
            }
            state::BEHIND => {}
            // It may start already.
            _ => return Ok(None),
        }
        let update = "UPDATE deliveries SET state = 0 WHERE seq = ?1";
        self.connection.prepare_cached(update)?.execute([head.delivery])?;
        let queue = self.state.names.index_of(head.queue)?;
        self.state.names.counts(queue).behind -= 1;
        let name = &self.state.names.queue(queue).name;
        rows::waiting(self.connection, name, seq(head.delivery), &mut None).map(Some)
    }
}
