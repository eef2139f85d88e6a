//! The rows of what is in progress and what was done.
//!
//! Invariants: only the row with the holder's token is changed for a holder; and a clock that was set back keeps
//! nobody out for longer than a lease, for a mark from later than now begins now.

use std::time::Duration;

use redrive_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use crate::once::{Begun, Held, Key, Token};

/// A mark whose lease has ended is kept for so long: its holder may come back and finish, if nobody else has
/// taken over.
const ENDED_MARKS_KEPT: Duration = Duration::from_hours(1);

/// The tokens that are left free for each millisecond; more than anybody gives.
const TOKENS_PER_MILLI: i64 = 1_000;

/// From when on something holds, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) from: Timestamp,
    pub(super) lasts: Duration,
}

impl Span {
    fn begins(self) -> i64 {
        millis(self.from)
    }

    /// A moment after it begins at least, or nothing would hold at all.
    fn ends(self) -> i64 {
        millis(self.from + self.lasts).max(self.begins() + i64::from(!self.lasts.is_zero()))
    }
}

/// A point in time as rows have it.
pub(super) fn millis(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis()).expect("nanoseconds in 64 bits are milliseconds in 63")
}

struct Row {
    since: i64,
    ends_at: i64,
    result: Option<Vec<u8>>,
}

fn row(connection: &Connection, key: &Key) -> Result<Option<Row>, rusqlite::Error> {
    let sql = "SELECT since, ends_at, result FROM once WHERE key = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let row = statement.query_row([key.as_str()], |row| {
        Ok(Row { since: row.get(0)?, ends_at: row.get(1)?, result: row.get(2)? })
    });
    row.optional()
}

/// What there is of a key, unless its work can be begun or its mark is from later than now.
pub(super) fn look(
    connection: &Connection,
    key: &Key,
    now: Timestamp,
) -> Result<Option<Begun>, rusqlite::Error> {
    let now = millis(now);
    Ok(match row(connection, key)? {
        Some(Row { ends_at, .. }) if ends_at <= now => None,
        Some(Row { result: Some(result), .. }) => Some(Begun::Done { result }),
        Some(Row { since, ends_at, result: None }) if since <= now => Some(in_progress(ends_at - now)),
        Some(Row { result: None, .. }) | None => None,
    })
}

/// Marks a key, or says what there is.
pub(super) fn begin(connection: &Connection, key: &Key, lease: Span) -> Result<Begun, rusqlite::Error> {
    if let Some(begun) = look(connection, key, lease.from)? {
        return Ok(begun);
    }
    let now = lease.begins();
    match row(connection, key)? {
        // It has not ended and is no result, so it is from later than now: the clock was set back.
        Some(Row { since, ends_at, .. }) if ends_at > now => {
            let left = ends_at - since;
            let sql = "UPDATE once SET since = ?2, ends_at = ?3 WHERE key = ?1";
            connection.prepare_cached(sql)?.execute(params![key.as_str(), now, now + left])?;
            Ok(in_progress(left))
        }
        Some(_) | None => mark(connection, key, lease),
    }
}

fn mark(connection: &Connection, key: &Key, lease: Span) -> Result<Begun, rusqlite::Error> {
    // Marks do not wait for the disk, so the last tokens may be lost with the machine: the next are higher all
    // the same, since it is later by then.
    let sql = "UPDATE tokens SET last = max(last + 1, ?1) RETURNING last";
    let since_1970 = lease.begins().saturating_mul(TOKENS_PER_MILLI);
    let token: i64 = connection.prepare_cached(sql)?.query_row([since_1970], |row| row.get(0))?;
    let sql = "INSERT INTO once (key, token, since, ends_at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (key) DO UPDATE SET token = ?2, since = ?3, ends_at = ?4, result = NULL";
    let marked = params![key.as_str(), token, lease.begins(), lease.ends()];
    connection.prepare_cached(sql)?.execute(marked)?;
    Ok(Begun::Yours(Token(token.cast_unsigned())))
}

fn in_progress(millis_left: i64) -> Begun {
    Begun::InProgress { lease_left: Duration::from_millis(millis_left.max(1).cast_unsigned()) }
}

pub(super) fn renew(
    connection: &Connection,
    key: &Key,
    token: Token,
    lease: Span,
) -> Result<Held, rusqlite::Error> {
    let sql = "UPDATE once SET since = ?3, ends_at = ?4 WHERE key = ?1 AND token = ?2 AND result IS NULL";
    let held = params![key.as_str(), token.0.cast_signed(), lease.begins(), lease.ends()];
    connection.prepare_cached(sql)?.execute(held).map(held_if_changed)
}

pub(super) fn finish(
    connection: &Connection,
    key: &Key,
    token: Token,
    result: &[u8],
    kept: Span,
) -> Result<Held, rusqlite::Error> {
    // Who heard nothing of a result that was written down may write it again.
    let sql = "UPDATE once SET since = ?3, ends_at = ?4, result = ?5
        WHERE key = ?1 AND token = ?2 AND (result IS NULL OR result = ?5)";
    let done = params![key.as_str(), token.0.cast_signed(), kept.begins(), kept.ends(), result];
    connection.prepare_cached(sql)?.execute(done).map(held_if_changed)
}

fn held_if_changed(rows: usize) -> Held {
    if rows > 0 { Held::Yes } else { Held::No }
}

pub(super) fn release(connection: &Connection, key: &Key, token: Token) -> Result<(), rusqlite::Error> {
    let sql = "DELETE FROM once WHERE key = ?1 AND token = ?2 AND result IS NULL";
    connection.prepare_cached(sql)?.execute(params![key.as_str(), token.0.cast_signed()]).map(drop)
}

pub(super) fn forget(connection: &Connection, key: &Key) -> Result<(), rusqlite::Error> {
    let sql = "DELETE FROM once WHERE key = ?1 AND result IS NOT NULL";
    connection.prepare_cached(sql)?.execute([key.as_str()]).map(drop)
}

/// Drops at most so many of the rows that have expired, and says how many that were.
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
