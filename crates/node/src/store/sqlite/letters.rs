//! Writes dead letters, the counters of their kinds, and the trend.
//!
//! Invariants: a kind's count, first and last death match its letters; a new letter has a larger number than all
//! before it.

use redrive_core::engine::{DeadLetterInfo, QueueName};
use redrive_core::event::Event;
use redrive_core::event::attribute::{CorrelationId, SessionKey};
use redrive_core::letters::name_template;
use redrive_core::time::Timestamp;
use rusqlite::Connection;

use super::encode::{nanos, time};
use super::fault::{SqlFault, SqlResult};
use super::sql::Sql;
use super::write::BatchWriter;
use super::{names, rows};
use crate::store::derive;
use crate::store::letter::TREND_SPAN;

const COUNT_KIND: &str = "INSERT INTO kinds VALUES (NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 1, ?11, ?11)
    ON CONFLICT (fingerprint, queue, subscription, event_type, category, code, failure_code, tier, name, consumer_group)
    DO UPDATE SET first_at = CASE count WHEN 0 THEN excluded.first_at ELSE min(first_at, excluded.first_at) END,
        last_at = CASE count WHEN 0 THEN excluded.last_at ELSE max(last_at, excluded.last_at) END,
        count = count + 1
    RETURNING id";
const INSERT_LETTER: &str = "INSERT INTO letters VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7)";
const COUNT_DEATH: &str =
    "INSERT INTO trend VALUES (?1, ?2, 1) ON CONFLICT (kind, span) DO UPDATE SET deaths = deaths + 1";
const DELETE_LETTER: &str = "DELETE FROM letters WHERE number = ?1 RETURNING kind";
pub(super) const UNCOUNT_KIND: &str = "UPDATE kinds SET count = count - 1,
    first_at = coalesce((SELECT died_at FROM letters WHERE kind = ?1 ORDER BY number LIMIT 1), first_at),
    last_at = coalesce((SELECT died_at FROM letters WHERE kind = ?1 ORDER BY number DESC LIMIT 1), last_at)
    WHERE id = ?1";
pub(super) const LATEST_BETWEEN: &str = "SELECT max(number) FROM letters WHERE number >= ?1 AND number < ?2";

/// Letters of the first format in order of death. Sorts only keys: letters may be many and long.
pub(super) const OLD_LETTERS: &str = "SELECT d.written_at, d.seq FROM deaths c
    CROSS JOIN deliveries d ON d.seq = c.delivery WHERE d.state = 4 ORDER BY d.written_at, d.seq";
pub(super) const OLD_LETTER: &str =
    "SELECT e.id, e.source, e.type, e.attributes, x'', d.seq, d.queue, d.subscription, d.written_at,
        c.category, c.code, c.failure_code, c.tier, c.message, c.fingerprint
    FROM deliveries d CROSS JOIN deaths c ON c.delivery = d.seq CROSS JOIN events e ON e.seq = d.event
    WHERE d.seq = ?1";

/// A delivery that becomes a dead letter.
#[derive(Clone, Copy)]
pub(super) struct NewLetter<'a> {
    pub(super) delivery: i64,
    pub(super) queue: i64,
    pub(super) subscription: i64,
    pub(super) event: &'a Event,
    pub(super) death: &'a DeadLetterInfo,
    pub(super) died_at: Timestamp,
}

/// Time of death in nanoseconds, or the next free number.
fn next_number(last: &mut i64, died_at: Timestamp) -> i64 {
    *last = nanos(died_at).max(*last + 1);
    *last
}

pub(super) fn last_number(connection: &Connection) -> SqlResult<i64> {
    connection.get("SELECT coalesce(max(number), 0) FROM letters", [])
}

/// `seed` keys the hashes of session and correlation id.
fn insert(connection: &Connection, seed: u64, number: i64, new: &NewLetter<'_>) -> SqlResult<()> {
    let NewLetter { delivery, queue, subscription, event, death, died_at } = *new;
    let counted = (
        death.fingerprint.0.cast_signed(),
        queue,
        subscription,
        event.event_type.as_str(),
        death.category.as_str(),
        death.code.as_str(),
        death.failure_code.as_str(),
        death.tier.as_str(),
        &death.name,
        &death.consumer_group,
        nanos(died_at),
    );
    let kind: i64 = connection.get(COUNT_KIND, counted)?;
    let hash = |text| derive::text_hash(seed, text);
    let session = event.session.as_ref().map(SessionKey::as_str).map(hash);
    let correlation = event.correlation_id.as_ref().map(CorrelationId::as_str).map(hash);
    let letter = (number, delivery, kind, nanos(died_at), session, correlation, &death.message);
    connection.run(INSERT_LETTER, letter)?;
    connection.run(COUNT_DEATH, (kind, span(died_at)))
}

pub(super) fn span(at: Timestamp) -> i64 {
    let span = u64::try_from(TREND_SPAN.as_nanos()).expect("a few minutes");
    (at.as_nanos() / span).cast_signed()
}

impl BatchWriter<'_> {
    pub(super) fn add_letter(&mut self, new: &NewLetter<'_>) -> SqlResult<()> {
        let number = next_number(&mut self.state.last_letter, new.died_at);
        insert(self.connection, self.state.meta.seed, number, new)
    }

    /// Inserts an imported letter at its place in time.
    pub(super) fn add_imported_letter(&mut self, new: &NewLetter<'_>) -> SqlResult<()> {
        let at = nanos(new.died_at);
        let millisecond = at - at % 1_000_000;
        let latest: Option<i64> =
            self.connection.get(LATEST_BETWEEN, [millisecond, millisecond + 1_000_000])?;
        let mut number = latest.map_or(at, |latest| at.max(latest + 1));
        let mut taken = self.connection.prepare_cached("SELECT 1 FROM letters WHERE number = ?1")?;
        while taken.exists([number])? {
            number += 1;
        }
        self.state.last_letter = self.state.last_letter.max(number);
        insert(self.connection, self.state.meta.seed, number, new)
    }

    /// For a letter that is replayed or closed.
    pub(super) fn remove_letter(&self, number: i64) -> SqlResult<()> {
        let kind: i64 = self.connection.get(DELETE_LETTER, [number])?;
        self.connection.run(UNCOUNT_KIND, [kind])
    }
}

/// Migrates letters of the first format, which had no names and kinds.
pub(super) fn migrate_letters(connection: &Connection) -> SqlResult<()> {
    let seed: Option<i64> = connection.find("SELECT seed FROM meta", [])?;
    let seed = seed.unwrap_or_default().cast_unsigned();
    let queues = names::queues(connection)?;
    let mut in_order = connection.prepare(OLD_LETTERS)?;
    let mut letters = in_order.query([])?;
    let mut last = 0;
    while let Some(letter) = letters.next()? {
        let mut statement = connection.prepare_cached(OLD_LETTER)?;
        let mut rows = statement.query([letter.get::<_, i64>(1)?])?;
        let row = rows.next()?.ok_or(SqlFault::unreadable("a dead letter of the first format"))?;
        let queue: i64 = row.get(6)?;
        let name = queues.iter().find(|(id, _, _)| *id == queue).map(|(_, name, _)| name);
        let QueueName { service, channel } = name.ok_or(SqlFault::unreadable("the name of a queue"))?;
        let death = DeadLetterInfo {
            name: name_template::default_name(service, channel.as_ref()),
            consumer_group: service.to_string(),
            ..rows::death(row, 9)?
        };
        let (event, died_at) = (rows::event(row)?, time(row.get(8)?));
        let (delivery, subscription) = (row.get(5)?, row.get(7)?);
        let new = NewLetter { delivery, queue, subscription, event: &event, death: &death, died_at };
        insert(connection, seed, next_number(&mut last, died_at), &new)?;
    }
    drop(letters);
    drop(in_order);
    Ok(connection.execute_batch("DROP TABLE deaths")?)
}
