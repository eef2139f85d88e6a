//! Sends letters of a replay: they become deliveries again, oldest first, one per session at a time.
//!
//! Invariants: a repeated step, recognised by the number of letters sent before it, changes nothing. A letter
//! behind another of its session is not examined until that one has a result, so a step costs only what it sends
//! and skips.

use redrive_core::engine::{Advance, PendingDelivery};
use redrive_core::letters::replay::{ReplayJob, ReplayState};

use super::codec;
use super::{StoredReplay, letter_state};
use crate::store::REPLAY_WALK_MAX;
use crate::store::letter::{Redirect, STEP_BYTES_MAX};
use crate::store::sqlite::encode::{nanos, seq};
use crate::store::sqlite::fault::SqlResult;
use crate::store::sqlite::schema::state;
use crate::store::sqlite::sql::Sql;
use crate::store::sqlite::write::BatchWriter;

pub(in crate::store::sqlite) const NEXT: &str =
    "SELECT delivery, lane FROM replay_letters INDEXED BY replay_next
    WHERE replay = ?1 AND state = 0 ORDER BY turn LIMIT 1";
/// If the replay has claimed it.
pub(in crate::store::sqlite) const CLAIMED: &str =
    "SELECT number FROM letters WHERE delivery = ?1 AND claim = ?2";
const SEND: &str = r#"UPDATE deliveries SET queue = ?2, lane = ?3, state = ?4, due_at = NULL, written_at = ?5,
    start_recorded = 0, book = NULL, story = NULL,
    -- What the target has notified outlives a replay.
    history = CASE WHEN history LIKE '%"notified"%'
        THEN json_object('notified', json_extract(history, '$.notified')) END,
    replay = ?6, replays = coalesce(replays, 0) + 1
    WHERE seq = ?1"#;
/// A wave begins with its first sent letter.
const STEPPED: &str = "UPDATE replays SET sent = sent + ?2, left_alone = left_alone + ?3,
    wave = CASE WHEN ?2 > 0 THEN ?4 ELSE wave END, changed_at = ?5 WHERE id = ?1";

#[derive(Default)]
struct SendStep {
    sent: u32,
    left_alone: u32,
}

impl BatchWriter<'_> {
    /// Returns the replay and how many letters were sent.
    pub(in crate::store::sqlite) fn advance(
        &mut self,
        advance: &Advance,
    ) -> SqlResult<Option<(ReplayJob, u32)>> {
        let Some(stored) = self.stored(advance.replay)? else { return Ok(None) };
        let sent = match stored.view.state {
            ReplayState::Gathering => {
                self.gather_more(&stored)?;
                0
            }
            ReplayState::Running if advance.fits(&stored.view.job()) => self.send_some(&stored, advance)?,
            ReplayState::Running
            | ReplayState::Paused
            | ReplayState::Stopped
            | ReplayState::Cancelled
            | ReplayState::Done => 0,
        };
        self.end_if_complete(advance.replay.0.cast_signed())?;
        Ok(self.stored(advance.replay)?.map(|stored| (stored.view.job(), sent)))
    }

    fn send_some(&mut self, stored: &StoredReplay, advance: &Advance) -> SqlResult<u32> {
        let replay = advance.replay.0.cast_signed();
        let mut step = SendStep::default();
        let mut bytes = 0;
        for _ in 0..REPLAY_WALK_MAX {
            if step.sent == advance.letters_max || bytes >= STEP_BYTES_MAX {
                break;
            }
            let next = self.connection.first(NEXT, [replay], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let Some((delivery, lane)) = next else { break };
            let before = self.ready.len();
            self.send_or_leave(stored, &mut step, (delivery, lane))?;
            bytes += self.ready[before..].iter().map(PendingDelivery::bytes).sum::<usize>();
        }
        let wave = codec::wave(advance.wave);
        let values = (replay, step.sent, step.left_alone, wave, nanos(self.now));
        self.connection.run(STEPPED, values)?;
        Ok(step.sent)
    }

    fn send_or_leave(
        &mut self,
        stored: &StoredReplay,
        step: &mut SendStep,
        (delivery, lane): (i64, Option<i64>),
    ) -> SqlResult<()> {
        let replay = stored.view.id.0.cast_signed();
        let failed = "SELECT 1 FROM replay_lanes WHERE replay = ?1 AND lane = ?2";
        let letter = if self.connection.has(failed, (replay, lane))? {
            None
        } else {
            self.connection.find(CLAIMED, [delivery, replay])?
        };
        let Some(letter) = letter else {
            step.left_alone += 1;
            return self.leave_alone(replay, delivery, lane);
        };
        step.sent += 1;
        self.mark(replay, delivery, letter_state::SENT)?;
        self.remove_letter(letter)?;
        self.send(replay, stored.target.as_ref(), delivery, lane)
    }

    /// Skips a letter and frees it for other replays.
    fn leave_alone(&self, replay: i64, delivery: i64, lane: Option<i64>) -> SqlResult<()> {
        let free = "UPDATE letters SET claim = NULL WHERE delivery = ?1 AND claim = ?2";
        self.connection.run(free, [delivery, replay])?;
        self.mark(replay, delivery, letter_state::LEFT_ALONE)?;
        self.next_of_lane(replay, lane)
    }

    /// If the letter leaves its session, that session advances.
    fn send(
        &mut self,
        replay: i64,
        to: Option<&Redirect>,
        delivery: i64,
        lane: Option<i64>,
    ) -> SqlResult<()> {
        let last = "SELECT story FROM deliveries WHERE seq = ?1 AND story IS NOT NULL";
        if let Some(story) = self.connection.find::<Vec<u8>>(last, [delivery])? {
            self.append_attempt(seq(delivery), &story)?;
        }
        let dead = self.delivery(delivery)?;
        let before = self.state.names.index_of(dead.queue)?;
        self.state.names.counts(before).dead -= 1;
        let queue = match to {
            Some(to) => self.state.names.queue_for(self.connection, &to.queue)?,
            None => before,
        };
        let queue_id = self.state.names.queue(queue).id;
        // A dead letter in the session does not wait for itself.
        let code = self.enter(queue, lane, dead.turn, dead.bytes)?;
        self.connection.run(SEND, (delivery, queue_id, lane, code, nanos(self.now), replay))?;
        if let Some(left) = dead.lane.filter(|before| lane != Some(*before)) {
            let ready = self.advance_lane(left)?;
            self.ready.extend(ready);
        }
        if code == state::READY {
            let ready = self.waiting(queue_id, delivery)?;
            self.ready.push(ready);
        }
        Ok(())
    }
}
