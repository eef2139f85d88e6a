//! A step of a replay: its letters become deliveries again, the oldest first, one of each session at a time.
//!
//! Invariant: a step that was taken already, by how many letters had been sent before it, changes nothing.

use std::collections::BTreeMap;

use redrive_core::engine::{Advance, Waiting};
use redrive_core::replay::{ReplayJob, ReplayState};
use rusqlite::{OptionalExtension, Row};

use super::encode::{nanos, seq};
use super::fault::Fault;
use super::replay::Stored;
use super::replay_codec as codec;
use super::schema::state;
use super::write::Work;
use crate::store::REPLAY_WALK_MAX;
use crate::store::letter::Redirect;

pub(super) const LETTERS: &str = "SELECT delivery, lane, turn FROM replay_letters INDEXED BY replay_waiting
    WHERE replay = ?1 AND state = 0 AND turn >= ?2 ORDER BY turn LIMIT ?3";
pub(super) const CORPSE: &str =
    "SELECT l.number, l.claim, d.queue, d.lane, d.bytes, coalesce(d.turn, d.seq), d.story
    FROM letters l CROSS JOIN deliveries d ON d.seq = l.delivery WHERE l.delivery = ?1";
const SEND: &str = "UPDATE deliveries SET queue = ?2, lane = ?3, state = ?4, due_at = NULL, written_at = ?5,
    start_recorded = 0, book = NULL, history = NULL, story = NULL, replay = ?6, replays = coalesce(replays, 0) + 1
    WHERE seq = ?1";
/// A wave has begun when something of it was sent.
const STEPPED: &str = "UPDATE replays SET sent = sent + ?2, left_alone = left_alone + ?3,
    wave = CASE WHEN ?2 > 0 THEN ?4 ELSE wave END, first_waiting = ?5, changed_at = ?6 WHERE id = ?1";

/// What is known of a session that a replay sends letters of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneState {
    Free,
    /// A letter of it is on its way.
    Busy,
    /// One has failed: the rest of it stays dead.
    Failed,
}

/// A letter on the list of a replay.
#[derive(Clone, Copy)]
struct Listed {
    delivery: i64,
    lane: Option<i64>,
    turn: i64,
}

/// A dead letter's delivery.
struct Corpse {
    number: i64,
    claim: Option<i64>,
    queue: i64,
    lane: Option<i64>,
    bytes: u64,
    turn: i64,
    story: Option<Vec<u8>>,
}

/// What a step has done so far.
#[derive(Default)]
struct Step {
    sent: u32,
    left_alone: u32,
    /// The turn of the first letter that still waits.
    first_waiting: Option<i64>,
    lanes: BTreeMap<i64, LaneState>,
}

impl Work<'_> {
    /// Brings a replay forward; says how it stands and how many letters were sent.
    pub(super) fn advance(
        &mut self,
        advance: &Advance,
        waiting: &mut Vec<Waiting>,
    ) -> Result<Option<(ReplayJob, u32)>, Fault> {
        let Some(stored) = self.stored(advance.replay)? else { return Ok(None) };
        let sent = match stored.view.state {
            ReplayState::Gathering => {
                self.gather_more(&stored)?;
                0
            }
            ReplayState::Running if advance.fits(&stored.view.job()) => {
                self.send_some(&stored, advance, waiting)?
            }
            ReplayState::Running
            | ReplayState::Paused
            | ReplayState::Stopped
            | ReplayState::Cancelled
            | ReplayState::Done => 0,
        };
        self.end_if_complete(advance.replay.0.cast_signed())?;
        Ok(self.stored(advance.replay)?.map(|stored| (stored.view.job(), sent)))
    }

    fn send_some(
        &mut self,
        stored: &Stored,
        advance: &Advance,
        waiting: &mut Vec<Waiting>,
    ) -> Result<u32, Fault> {
        let replay = advance.replay.0.cast_signed();
        let letters: Vec<Listed> = {
            let limit = i64::try_from(REPLAY_WALK_MAX).expect("a small number");
            let mut statement = self.connection.prepare_cached(LETTERS)?;
            let read =
                |row: &Row<'_>| Ok(Listed { delivery: row.get(0)?, lane: row.get(1)?, turn: row.get(2)? });
            let found = statement.query_map((replay, stored.first_waiting, limit), read)?;
            found.collect::<Result<_, _>>()?
        };
        let beyond = letters.last().map_or(stored.first_waiting, |last| last.turn + 1);
        let mut step = Step::default();
        for letter in letters {
            if step.sent == advance.letters_max {
                step.first_waiting.get_or_insert(letter.turn);
                break;
            }
            self.send_or_pass(stored, &mut step, letter, waiting)?;
        }
        self.connection.prepare_cached(STEPPED)?.execute((
            replay,
            step.sent,
            step.left_alone,
            codec::wave(advance.wave),
            step.first_waiting.unwrap_or(beyond),
            nanos(self.now),
        ))?;
        Ok(step.sent)
    }

    fn send_or_pass(
        &mut self,
        stored: &Stored,
        step: &mut Step,
        Listed { delivery, lane, turn }: Listed,
        waiting: &mut Vec<Waiting>,
    ) -> Result<(), Fault> {
        let replay = stored.view.id.0.cast_signed();
        let corpse = self.corpse(delivery)?.filter(|corpse| corpse.claim == Some(replay));
        let lane_state = match lane {
            Some(lane) => self.lane_state(step, replay, lane)?,
            None => LaneState::Free,
        };
        let corpse = match corpse {
            Some(corpse) if lane_state != LaneState::Failed => corpse,
            left => return self.leave_alone(replay, delivery, step, left.as_ref()),
        };
        // The one that holds a session goes whoever else of it is on its way: that one waits for it.
        if lane_state == LaneState::Busy && self.held_by(corpse.lane, delivery)?.is_none() {
            step.first_waiting.get_or_insert(turn);
            return Ok(());
        }
        step.sent += 1;
        if let Some(lane) = lane {
            step.lanes.insert(lane, LaneState::Busy);
            let busy = "INSERT OR REPLACE INTO replay_lanes VALUES (?1, ?2, 0)";
            self.connection.prepare_cached(busy)?.execute([replay, lane])?;
        }
        self.mark(replay, delivery, 1)?;
        self.send(replay, stored.target.as_ref(), delivery, (corpse, lane), waiting)
    }

    /// A letter stays as it is, and free for others.
    fn leave_alone(
        &self,
        replay: i64,
        delivery: i64,
        step: &mut Step,
        corpse: Option<&Corpse>,
    ) -> Result<(), Fault> {
        step.left_alone += 1;
        if let Some(corpse) = corpse {
            let free = "UPDATE letters SET claim = NULL WHERE number = ?1";
            self.connection.prepare_cached(free)?.execute([corpse.number])?;
        }
        self.mark(replay, delivery, 4)
    }

    fn lane_state(&self, step: &mut Step, replay: i64, lane: i64) -> Result<LaneState, Fault> {
        if let Some(known) = step.lanes.get(&lane) {
            return Ok(*known);
        }
        let select = "SELECT failed FROM replay_lanes WHERE replay = ?1 AND lane = ?2";
        let mut statement = self.connection.prepare_cached(select)?;
        let failed: Option<bool> = statement.query_row([replay, lane], |row| row.get(0)).optional()?;
        let found = match failed {
            None => LaneState::Free,
            Some(false) => LaneState::Busy,
            Some(true) => LaneState::Failed,
        };
        step.lanes.insert(lane, found);
        Ok(found)
    }

    fn mark(&self, replay: i64, delivery: i64, letter: i64) -> Result<(), Fault> {
        let update = "UPDATE replay_letters SET state = ?3 WHERE replay = ?1 AND delivery = ?2";
        self.connection.prepare_cached(update)?.execute([replay, delivery, letter])?;
        Ok(())
    }

    fn corpse(&self, delivery: i64) -> Result<Option<Corpse>, Fault> {
        let read = |row: &Row<'_>| {
            Ok(Corpse {
                number: row.get(0)?,
                claim: row.get(1)?,
                queue: row.get(2)?,
                lane: row.get(3)?,
                bytes: row.get::<_, i64>(4)?.cast_unsigned(),
                turn: row.get(5)?,
                story: row.get(6)?,
            })
        };
        Ok(self.connection.prepare_cached(CORPSE)?.query_row([delivery], read).optional()?)
    }

    /// Makes a letter a delivery again, in that session; a session that it has left goes on.
    fn send(
        &mut self,
        replay: i64,
        to: Option<&Redirect>,
        delivery: i64,
        (corpse, lane): (Corpse, Option<i64>),
        waiting: &mut Vec<Waiting>,
    ) -> Result<(), Fault> {
        self.dig_up(corpse.number)?;
        if let Some(story) = &corpse.story {
            self.tell(seq(delivery), story)?;
        }
        let before = self.state.names.index_of(corpse.queue)?;
        self.state.names.counts(before).dead -= 1;
        let queue = match to {
            Some(to) => self.state.names.queue_for(self.connection, &to.queue)?,
            None => before,
        };
        let queue_id = self.state.names.queue(queue).id;
        // While it is dead it may be in the session itself, but it does not wait for itself.
        let code = self.state_in(lane, corpse.turn)?;
        let counts = self.state.names.counts(queue);
        counts.waiting += 1;
        counts.waiting_bytes += corpse.bytes;
        counts.behind += u64::from(code == state::BEHIND);
        let values = (delivery, queue_id, lane, code, nanos(self.now), replay);
        self.connection.prepare_cached(SEND)?.execute(values)?;
        if let Some(lane) = lane.filter(|_| code == state::BEHIND) {
            self.wait_behind(lane)?;
        }
        if let Some(left) = corpse.lane.filter(|before| lane != Some(*before)) {
            waiting.extend(self.move_on(left)?);
        }
        if code == state::READY {
            waiting.push(self.waiting(queue_id, delivery)?);
        }
        Ok(())
    }
}
