//! Rows of work in progress and results.
//!
//! Invariants: a holder changes only the row with its token; and a clock that was set back blocks a key for
//! one lease at most, because a lease from the future is restarted.

use std::time::Duration;

use redrive_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use crate::once::{FencingToken, KeyState, OnceKey, Ownership};

/// An expired lease is kept for this long: its holder may still finish if no other caller took over.
const ENDED_MARKS_KEPT: Duration = Duration::from_hours(1);

/// Tokens reserved per millisecond, more than can be issued.
const TOKENS_PER_MILLI: i64 = 1_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseSpan {
    pub(super) from: Timestamp,
    pub(super) lasts: Duration,
}

impl LeaseSpan {
    fn begins(self) -> i64 {
        millis(self.from)
    }

    /// At least a millisecond after its start, unless it lasts no time.
    fn ends(self) -> i64 {
        millis(self.from + self.lasts).max(self.begins() + i64::from(!self.lasts.is_zero()))
    }
}

pub(super) fn millis(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis()).expect("nanoseconds in 64 bits are milliseconds in 63")
}

struct LeaseRow {
    since: i64,
    ends_at: i64,
    result: Option<Vec<u8>>,
}

fn row(connection: &Connection, key: &OnceKey) -> Result<Option<LeaseRow>, rusqlite::Error> {
    let sql = "SELECT since, ends_at, result FROM once WHERE key = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let row = statement.query_row([key.as_str()], |row| {
        Ok(LeaseRow { since: row.get(0)?, ends_at: row.get(1)?, result: row.get(2)? })
    });
    row.optional()
}

/// The state of a key; `None` if it is free or its lease is from the future.
pub(super) fn look(
    connection: &Connection,
    key: &OnceKey,
    now: Timestamp,
) -> Result<Option<KeyState>, rusqlite::Error> {
    let now = millis(now);
    Ok(match row(connection, key)? {
        Some(LeaseRow { ends_at, .. }) if ends_at <= now => None,
        Some(LeaseRow { result: Some(result), .. }) => Some(KeyState::Done { result }),
        Some(LeaseRow { since, ends_at, result: None }) if since <= now => Some(in_progress(ends_at - now)),
        Some(LeaseRow { result: None, .. }) | None => None,
    })
}

/// Takes a key or returns its state.
pub(super) fn begin(
    connection: &Connection,
    key: &OnceKey,
    lease: LeaseSpan,
) -> Result<KeyState, rusqlite::Error> {
    if let Some(begun) = look(connection, key, lease.from)? {
        return Ok(begun);
    }
    let now = lease.begins();
    match row(connection, key)? {
        // Neither ended nor done, so it is from the future: the clock was set back.
        Some(LeaseRow { since, ends_at, .. }) if ends_at > now => {
            let left = ends_at - since;
            let sql = "UPDATE once SET since = ?2, ends_at = ?3 WHERE key = ?1";
            connection.prepare_cached(sql)?.execute(params![key.as_str(), now, now + left])?;
            Ok(in_progress(left))
        }
        Some(_) | None => mark(connection, key, lease),
    }
}

fn mark(connection: &Connection, key: &OnceKey, lease: LeaseSpan) -> Result<KeyState, rusqlite::Error> {
    // Leases are not synced, so the latest tokens may be lost with the machine; basing them on the time keeps
    // them increasing.
    let sql = "UPDATE tokens SET last = max(last + 1, ?1) RETURNING last";
    let since_1970 = lease.begins().saturating_mul(TOKENS_PER_MILLI);
    let token: i64 = connection.prepare_cached(sql)?.query_row([since_1970], |row| row.get(0))?;
    let sql = "INSERT INTO once (key, token, since, ends_at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (key) DO UPDATE SET token = ?2, since = ?3, ends_at = ?4, result = NULL";
    let marked = params![key.as_str(), token, lease.begins(), lease.ends()];
    connection.prepare_cached(sql)?.execute(marked)?;
    Ok(KeyState::Yours(FencingToken(token.cast_unsigned())))
}

fn in_progress(millis_left: i64) -> KeyState {
    KeyState::InProgress { lease_left: Duration::from_millis(millis_left.max(1).cast_unsigned()) }
}

pub(super) fn renew(
    connection: &Connection,
    key: &OnceKey,
    token: FencingToken,
    lease: LeaseSpan,
) -> Result<Ownership, rusqlite::Error> {
    let sql = "UPDATE once SET since = ?3, ends_at = ?4 WHERE key = ?1 AND token = ?2 AND result IS NULL";
    let held = params![key.as_str(), token.0.cast_signed(), lease.begins(), lease.ends()];
    connection.prepare_cached(sql)?.execute(held).map(held_if_changed)
}

pub(super) fn finish(
    connection: &Connection,
    key: &OnceKey,
    token: FencingToken,
    result: &[u8],
    kept: LeaseSpan,
) -> Result<Ownership, rusqlite::Error> {
    // A holder that did not receive the confirmation may record its result again.
    let sql = "UPDATE once SET since = ?3, ends_at = ?4, result = ?5
        WHERE key = ?1 AND token = ?2 AND (result IS NULL OR result = ?5)";
    let done = params![key.as_str(), token.0.cast_signed(), kept.begins(), kept.ends(), result];
    connection.prepare_cached(sql)?.execute(done).map(held_if_changed)
}

fn held_if_changed(rows: usize) -> Ownership {
    if rows > 0 { Ownership::Yes } else { Ownership::No }
}

pub(super) fn release(
    connection: &Connection,
    key: &OnceKey,
    token: FencingToken,
) -> Result<(), rusqlite::Error> {
    let sql = "DELETE FROM once WHERE key = ?1 AND token = ?2 AND result IS NULL";
    connection.prepare_cached(sql)?.execute(params![key.as_str(), token.0.cast_signed()]).map(drop)
}

pub(super) fn forget(connection: &Connection, key: &OnceKey) -> Result<(), rusqlite::Error> {
    let sql = "DELETE FROM once WHERE key = ?1 AND result IS NOT NULL";
    connection.prepare_cached(sql)?.execute([key.as_str()]).map(drop)
}

/// Deletes at most `rows_max` expired rows and returns how many.
pub(super) fn sweep(
    connection: &Connection,
    rows_max: usize,
    now: Timestamp,
) -> Result<usize, rusqlite::Error> {
    let sql = "DELETE FROM once WHERE rowid IN (SELECT rowid FROM once
        WHERE ends_at <= ?1 AND (result IS NOT NULL OR ends_at <= ?2) LIMIT ?3)";
    let (ended, long_ended) = (millis(now), millis(now - ENDED_MARKS_KEPT));
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    connection.prepare_cached(sql)?.execute(params![ended, long_ended, rows_max])
}
