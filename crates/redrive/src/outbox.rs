//! The id of an event, written inside the consumer's own SQLite transaction (the `outbox` pattern).
//!
//! A consumer that writes to a database of its own needs no other store to know what it has done: the id goes
//! into the same transaction as what the event has changed, so either both are there or neither is, whenever
//! the process ends.
//!
//! ```
//! use redrive::outbox::{self, Seen};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut database = rusqlite::Connection::open_in_memory()?;
//! # database.execute_batch("CREATE TABLE balance (cents INTEGER); INSERT INTO balance VALUES (0)")?;
//! outbox::create_tables(&database)?;
//! for _ in 0..2 {
//!     let transaction = database.transaction()?;
//!     match outbox::first_time(&transaction, "payment-7")? {
//!         Seen::First => transaction.execute("UPDATE balance SET cents = cents + 500", [])?,
//!         Seen::Before => 0,
//!     };
//!     transaction.commit()?;
//! }
//! let cents: i64 = database.query_row("SELECT cents FROM balance", [], |row| row.get(0))?;
//! assert_eq!(cents, 500);
//! # Ok(()) }
//! ```
//!
//! The other way round it is the same: an event that a change brings about is written in the transaction of that
//! change ([`send_later`]), and a [`Relay`] hands it over afterwards.
//!
//! Invariants: nothing is written but in the caller's transaction, which the caller commits; an id is known
//! until [`forget_older`] drops it, and that is asked for by the caller.

mod relay;

use std::time::Duration;

use redrive_core::event::idempotency::DedupKey;
use redrive_core::time::Timestamp;
use rusqlite::{Connection, Transaction, params};

pub use self::relay::{Outgoing, Passed, Relay, RelayError, send_later};
use crate::clock::wall_clock;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS redrive_seen (
    source   TEXT NOT NULL,
    event_id TEXT NOT NULL,
    -- Milliseconds since 1970.
    seen_at  INTEGER NOT NULL,
    PRIMARY KEY (source, event_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS redrive_seen_at ON redrive_seen (seen_at);

-- Events to be sent, in the order in which their transactions were committed; a place is never given twice.
CREATE TABLE IF NOT EXISTS redrive_outgoing (
    place    INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL,
    payload  BLOB NOT NULL
) STRICT;

-- The one relay that sends them, until its lease ends: milliseconds since 1970.
CREATE TABLE IF NOT EXISTS redrive_relay (
    id            INTEGER PRIMARY KEY CHECK (id = 1),
    holder        INTEGER NOT NULL,
    since         INTEGER NOT NULL,
    lease_ends_at INTEGER NOT NULL
) STRICT;
INSERT OR IGNORE INTO redrive_relay VALUES (1, 0, 0, 0);
";

/// Whether an event was handled before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was not: handle it in this transaction.
    First,
    /// It was: what it changed is there already.
    Before,
}

/// Makes the tables that ids and events are kept in, unless they are there.
pub fn create_tables(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute_batch(TABLES)
}

/// Writes down that the event of that id is handled in this transaction, and says whether it was before. Two
/// who handle it at once do so one after the other: the second waits for the first's transaction to end.
pub fn first_time(transaction: &Transaction<'_>, event_id: &str) -> Result<Seen, rusqlite::Error> {
    first_time_from(transaction, DedupKey { source: "", event_id })
}

/// The same where ids are only told apart by where they come from; and where several consumers share a
/// database, each with its own name as the source.
pub fn first_time_from(transaction: &Transaction<'_>, event: DedupKey<'_>) -> Result<Seen, rusqlite::Error> {
    let sql = "INSERT INTO redrive_seen VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    let DedupKey { source, event_id } = event;
    let written =
        transaction.prepare_cached(sql)?.execute(params![source, event_id, millis(wall_clock())])?;
    Ok(if written > 0 { Seen::First } else { Seen::Before })
}

/// Drops ids that were seen longer ago than that, the oldest first and at most so many, and says how many that
/// were. What is dropped would be handled again: keep ids for longer than anybody sends an event again.
pub fn forget_older(
    connection: &Connection,
    than: Duration,
    rows_max: u32,
) -> Result<usize, rusqlite::Error> {
    let sql = "DELETE FROM redrive_seen WHERE (source, event_id) IN
        (SELECT source, event_id FROM redrive_seen WHERE seen_at < ?1 ORDER BY seen_at LIMIT ?2)";
    connection.prepare_cached(sql)?.execute(params![millis(wall_clock() - than), rows_max])
}

fn millis(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis()).expect("nanoseconds in 64 bits are milliseconds in 63")
}

#[cfg(test)]
mod tests;
