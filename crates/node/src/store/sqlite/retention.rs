//! Expires letters, and removes kinds, trends and replays that are over.
//!
//! Kinds are visited in turn, a few per step, oldest letters first. What expires is found before a transaction
//! begins, so that an idle store does not write.

use std::time::Duration;

use redrive_core::time::Timestamp;
use rusqlite::Connection;

use super::audit::AuditAct;
use super::encode::{nanos, time};
use super::fault::SqlResult;
use super::letters;
use super::select::{LetterRef, read_letter};
use super::sql::Sql;
use super::state::StoreState;
use super::write::BatchWriter;
use crate::store::letter::TREND_POINTS;
use crate::store::{REPLAYS_KEPT_MAX, RetentionRules};

const KINDS_PER_STEP: usize = 256;
const LETTERS_PER_STEP: usize = 512;
/// Letters examined per step, kept ones included.
const LETTERS_LOOKED_AT_MAX: usize = 2_048;
/// How long the letters of an ended replay are remembered.
const LETTERS_OF_REPLAYS_KEPT: Duration = Duration::from_hours(1);
const REPLAY_ROWS_PER_STEP: i64 = 2_048;
/// Interval of checks of replays.
const REPLAYS_EVERY: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

pub(super) const KINDS: &str = "SELECT id, queue, event_type FROM kinds WHERE id >= ?1 ORDER BY id LIMIT ?2";
/// An imported letter ages from its import.
pub(super) const OLDEST: &str = "SELECT l.number, l.delivery, l.kind, l.claim, l.died_at, d.state = -1,
        EXISTS (SELECT 1 FROM replays r WHERE r.id = l.claim AND r.state < 4),
        (SELECT received_at FROM events e WHERE e.seq = d.event)
    FROM letters l CROSS JOIN deliveries d ON d.seq = l.delivery
    WHERE l.kind = ?1 AND l.number > ?2 ORDER BY l.number LIMIT ?3";
pub(super) const TIRED: &str = "SELECT EXISTS (SELECT 1 FROM trend WHERE kind = ?1 AND span < ?2)
    OR NOT EXISTS (SELECT 1 FROM trend WHERE kind = ?1 AND span >= ?2)
        AND NOT EXISTS (SELECT 1 FROM letters WHERE kind = ?1)";
const FORGET_KIND: &str = "DELETE FROM kinds WHERE id = ?1 AND count = 0
    AND NOT EXISTS (SELECT 1 FROM trend WHERE kind = ?1)";
const ENDED_REPLAY: &str = "SELECT id FROM replays r
    WHERE state >= 4 AND sent = delivered + failed AND changed_at <= ?1
        AND (EXISTS (SELECT 1 FROM replay_letters WHERE replay = r.id)
            OR EXISTS (SELECT 1 FROM replay_lanes WHERE replay = r.id)) LIMIT 1";
const OLDEST_REPLAYS: &str = "SELECT id FROM replays WHERE state >= 4 AND sent = delivered + failed
    ORDER BY id LIMIT max((SELECT count(*) FROM replays) - ?1, 0)";
pub(super) const SAME_HOUR: &str = "SELECT number FROM audit
    WHERE act = 'retention' AND what = ?1 AND at >= ?2 AND at < ?3 ORDER BY at DESC LIMIT 1";

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetentionCursor {
    kind: i64,
    /// Last letter of that kind examined.
    after: i64,
    replays_at: Option<Timestamp>,
}

/// Found in one step.
#[derive(Debug, Default)]
pub(super) struct ExpiredItems {
    letters: Vec<LetterRef>,
    /// With old trend points, or empty.
    kinds: Vec<i64>,
    /// Ended long ago.
    ended_replay: Option<i64>,
    replays: Vec<i64>,
}

impl ExpiredItems {
    pub(super) fn is_empty(&self) -> bool {
        let Self { letters, kinds, ended_replay, replays } = self;
        letters.is_empty() && kinds.is_empty() && ended_replay.is_none() && replays.is_empty()
    }

    pub(super) fn may_be_more(&self) -> bool {
        !self.letters.is_empty() || self.ended_replay.is_some()
    }
}

pub(super) fn find_expired(
    connection: &Connection,
    state: &mut StoreState,
    keep: &RetentionRules,
    now: Timestamp,
) -> SqlResult<ExpiredItems> {
    let mut old = ExpiredItems::default();
    expired_kinds(connection, state, keep, now, &mut old)?;
    let is_time = state.round.replays_at.is_none_or(|at| now.since(at) >= REPLAYS_EVERY || now < at);
    if is_time {
        let before = nanos(now - LETTERS_OF_REPLAYS_KEPT);
        old.ended_replay = connection.find(ENDED_REPLAY, [before])?;
        let kept = i64::try_from(REPLAYS_KEPT_MAX).expect("a small number");
        old.replays = connection.all(OLDEST_REPLAYS, [kept], |row| Ok(row.get(0)?))?;
        state.round.replays_at = old.ended_replay.is_none().then_some(now);
    }
    Ok(old)
}

fn expired_kinds(
    connection: &Connection,
    state: &mut StoreState,
    keep: &RetentionRules,
    now: Timestamp,
    old: &mut ExpiredItems,
) -> SqlResult<()> {
    let limit = i64::try_from(KINDS_PER_STEP).expect("a small number");
    let first_shown = first_shown(now);
    let mut kinds = connection.prepare_cached(KINDS)?;
    let mut rows = kinds.query((state.round.kind, limit))?;
    let (mut seen, mut looked_at) = (0, 0);
    while let Some(row) = rows.next()? {
        seen += 1;
        let kind: i64 = row.get(0)?;
        let after = if kind == state.round.kind { state.round.after } else { i64::MIN };
        state.round.kind = kind;
        let queue = state.names.index_of(row.get(1)?)?;
        let kept = (keep.letters)(&state.names.queue(queue).name, super::rows::text(row, 2)?);
        if connection.get(TIRED, (kind, first_shown))? {
            old.kinds.push(kind);
        }
        let stopped_at = expired_letters(connection, (kind, after), now, kept, &mut looked_at, old)?;
        if let Some(number) = stopped_at {
            state.round.after = number;
            return Ok(());
        }
        state.round = RetentionCursor { kind: kind + 1, after: i64::MIN, ..state.round };
    }
    if seen < KINDS_PER_STEP {
        state.round = RetentionCursor { kind: 0, after: i64::MIN, ..state.round };
    }
    Ok(())
}

/// Returns where it stopped when the step is full.
fn expired_letters(
    connection: &Connection,
    (kind, after): (i64, i64),
    now: Timestamp,
    kept: Duration,
    looked_at: &mut usize,
    old: &mut ExpiredItems,
) -> SqlResult<Option<i64>> {
    let limit = i64::try_from(LETTERS_LOOKED_AT_MAX).expect("a small number");
    let mut statement = connection.prepare_cached(OLDEST)?;
    let mut rows = statement.query((kind, after, limit))?;
    while let Some(row) = rows.next()? {
        if time(row.get(4)?) + kept > now {
            return Ok(None);
        }
        let (is_holding, is_claimed): (bool, bool) = (row.get(5)?, row.get(6)?);
        let is_new = time(row.get(7)?) + kept > now;
        let letter = read_letter(row)?;
        *looked_at += 1;
        if !is_holding && !is_claimed && !is_new {
            old.letters.push(letter);
        }
        if old.letters.len() == LETTERS_PER_STEP || *looked_at == LETTERS_LOOKED_AT_MAX {
            return Ok(Some(letter.number));
        }
    }
    Ok(None)
}

fn first_shown(now: Timestamp) -> i64 {
    letters::span(now) + 1 - i64::try_from(TREND_POINTS).expect("a small number")
}

/// Deletes the expired items; returns the number of letters.
pub(super) fn forget(
    connection: &Connection,
    state: &mut StoreState,
    old: &ExpiredItems,
    now: Timestamp,
) -> SqlResult<u64> {
    if !old.letters.is_empty() {
        forget_letters(connection, state, old, now)?;
    }
    for kind in &old.kinds {
        connection.run("DELETE FROM trend WHERE kind = ?1 AND span < ?2", (kind, first_shown(now)))?;
        connection.run(FORGET_KIND, [kind])?;
    }
    if let Some(replay) = old.ended_replay {
        for (table, key) in [("replay_letters", "delivery"), ("replay_lanes", "lane")] {
            let delete = format!(
                "DELETE FROM {table} WHERE replay = ?1 AND {key} IN
                    (SELECT {key} FROM {table} WHERE replay = ?1 LIMIT ?2)"
            );
            connection.run(&delete, (replay, REPLAY_ROWS_PER_STEP))?;
        }
    }
    for replay in &old.replays {
        let delete = "DELETE FROM replays WHERE id = ?1
            AND NOT EXISTS (SELECT 1 FROM replay_letters WHERE replay = ?1)
            AND NOT EXISTS (SELECT 1 FROM replay_lanes WHERE replay = ?1)";
        connection.run(delete, [replay])?;
    }
    Ok(old.letters.len() as u64)
}

fn forget_letters(
    connection: &Connection,
    state: &mut StoreState,
    old: &ExpiredItems,
    now: Timestamp,
) -> SqlResult<()> {
    let mut letters = old.letters.clone();
    letters.sort_unstable_by_key(|letter| letter.number);
    let mut work = BatchWriter::new(connection, state, now)?;
    let mut by_queue: Vec<(String, u64)> = Vec::new();
    for letter in &letters {
        let queue = "SELECT queue FROM deliveries WHERE seq = ?1";
        let queue = connection.get(queue, [letter.delivery])?;
        let queue = work.state.names.queue(work.state.names.index_of(queue)?).name.to_string();
        match by_queue.iter_mut().find(|(name, _)| *name == queue) {
            Some((_, count)) => *count += 1,
            None => by_queue.push((queue, 1)),
        }
        let promoted = work.purge_letter(letter)?;
        assert!(promoted.is_none(), "an expired letter holds no session");
    }
    for (queue, letters) in &by_queue {
        work.record_retention(queue, *letters)?;
    }
    work.finish()
}

impl BatchWriter<'_> {
    /// One audit record per queue and hour.
    fn record_retention(&self, queue: &str, letters: u64) -> SqlResult<()> {
        let hour = i64::try_from(HOUR.as_nanos()).expect("a short time");
        let begun = nanos(self.now) / hour * hour;
        match self.connection.find(SAME_HOUR, (queue, begun, begun + hour))? {
            Some(number) => self.add_to_record(number, letters).map(drop),
            None => self.record(&AuditAct { verb: "retention", what: queue, letters, note: None }).map(drop),
        }
    }
}
