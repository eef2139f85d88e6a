//! Event ids recorded in the consumer's own SQLite transaction (the `outbox` pattern).
//!
//! A consumer with its own database needs no other store for deduplication: the id is written in the same transaction
//! as the event's changes, so either both are there or neither.
//!
//! ```
//! use redrive::outbox::{self, Occurrence};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut database = rusqlite::Connection::open_in_memory()?;
//! # database.execute_batch("CREATE TABLE balance (cents INTEGER); INSERT INTO balance VALUES (0)")?;
//! outbox::create_tables(&database)?;
//! for _ in 0..2 {
//!     let transaction = database.transaction()?;
//!     match outbox::first_time(&transaction, "payment-7")? {
//!         Occurrence::First => transaction.execute("UPDATE balance SET cents = cents + 500", [])?,
//!         Occurrence::Before => 0,
//!     };
//!     transaction.commit()?;
//! }
//! let cents: i64 = database.query_row("SELECT cents FROM balance", [], |row| row.get(0))?;
//! assert_eq!(cents, 500);
//! # Ok(()) }
//! ```
//!
//! In the other direction, an event caused by a change is written in the transaction of that change ([`send_later`]),
//! and a [`Relay`] sends it afterwards.
//!
//! Invariants: everything is written in the caller's transaction, which the caller commits; an id is kept until the
//! caller drops it with [`forget_older`].

mod relay;

use std::time::Duration;

use redrive_core::event::idempotency::DedupKey;
use redrive_core::time::Timestamp;
use rusqlite::{Connection, Transaction, params};

pub use self::relay::{Outgoing, Relay, RelayError, RelayPass, send_later};
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
pub enum Occurrence {
    /// No: handle it in this transaction.
    First,
    /// Yes: its changes are already in the database.
    Before,
}

/// Creates the tables unless they exist.
pub fn create_tables(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute_batch(TABLES)
}

/// Records that the event is handled in this transaction, and returns whether it was before. A concurrent
/// transaction with the same event waits for this one to end.
pub fn first_time(transaction: &Transaction<'_>, event_id: &str) -> Result<Occurrence, rusqlite::Error> {
    first_time_from(transaction, DedupKey { source: "", event_id })
}

/// The same for ids that are unique per source only, and for several consumers in one database, each with its
/// own name as the source.
pub fn first_time_from(
    transaction: &Transaction<'_>,
    event: DedupKey<'_>,
) -> Result<Occurrence, rusqlite::Error> {
    let sql = "INSERT INTO redrive_seen VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    let DedupKey { source, event_id } = event;
    let written =
        transaction.prepare_cached(sql)?.execute(params![source, event_id, millis(wall_clock())])?;
    Ok(if written > 0 { Occurrence::First } else { Occurrence::Before })
}

/// Forgets ids older than `age`, the oldest first and at most `ids_max`, and returns how many. A forgotten
/// event would be handled again: keep ids longer than any sender repeats an event.
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
