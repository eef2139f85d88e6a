//! Writes dead letters: the letter itself, that there is one more or less of its kind, and the trend.
//!
//! Invariants: a kind's count, and when its first and its latest letter died, are those of the letters that
//! are there; a letter that dies gets a larger number than all that died before.

use redrive_core::engine::{Death, QueueName};
use redrive_core::event::Event;
use redrive_core::event::attribute::{CorrelationId, SessionKey};
use redrive_core::ids::{ChannelName, ServiceName};
use redrive_core::letters::name_template;
use redrive_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::encode::{nanos, time};
use super::fault::Fault;
use super::write::Work;
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
/// What is left decides when the first and the latest died; of none, it does not matter.
pub(super) const UNCOUNT_KIND: &str = "UPDATE kinds SET count = count - 1,
    first_at = coalesce((SELECT died_at FROM letters WHERE kind = ?1 ORDER BY number LIMIT 1), first_at),
    last_at = coalesce((SELECT died_at FROM letters WHERE kind = ?1 ORDER BY number DESC LIMIT 1), last_at)
    WHERE id = ?1";
pub(super) const LATEST_BETWEEN: &str = "SELECT max(number) FROM letters WHERE number >= ?1 AND number < ?2";

/// The dead letters of the first format as they died: sorted by no more than their places, since they may be
/// many and their texts long.
pub(super) const OLD_LETTERS: &str = "SELECT d.written_at, d.seq FROM deaths c
    CROSS JOIN deliveries d ON d.seq = c.delivery WHERE d.state = 4 ORDER BY d.written_at, d.seq";
pub(super) const OLD_LETTER: &str =
    "SELECT e.id, e.source, e.type, e.attributes, x'', d.seq, d.queue, d.subscription, d.written_at,
        c.category, c.code, c.failure_code, c.tier, c.message, c.fingerprint
    FROM deliveries d CROSS JOIN deaths c ON c.delivery = d.seq CROSS JOIN events e ON e.seq = d.event
    WHERE d.seq = ?1";

/// A delivery that dies, with all that its letter is looked for by.
pub(super) struct Grave<'a> {
    pub(super) delivery: i64,
    pub(super) queue: i64,
    pub(super) subscription: i64,
    pub(super) event_type: &'a str,
    pub(super) session: Option<i64>,
    pub(super) correlation: Option<i64>,
    pub(super) death: &'a Death,
    pub(super) died_at: Timestamp,
}

/// Whose delivery dies.
#[derive(Clone, Copy)]
pub(super) struct Body {
    pub(super) delivery: i64,
    pub(super) queue: i64,
    pub(super) subscription: i64,
}

impl<'a> Grave<'a> {
    pub(super) fn new(seed: u64, body: Body, event: &'a Event, death: &'a Death, died_at: Timestamp) -> Self {
        let Body { delivery, queue, subscription } = body;
        let hash = |text| derive::text_hash(seed, text);
        Self {
            delivery,
            queue,
            subscription,
            event_type: event.event_type.as_str(),
            session: event.session.as_ref().map(SessionKey::as_str).map(hash),
            correlation: event.correlation_id.as_ref().map(CorrelationId::as_str).map(hash),
            death,
            died_at,
        }
    }
}

/// The number of a letter that dies now: the time, or a little more.
fn next_number(last: &mut i64, died_at: Timestamp) -> i64 {
    *last = nanos(died_at).max(*last + 1);
    *last
}

/// The number of the latest letter.
pub(super) fn last_number(connection: &Connection) -> Result<i64, Fault> {
    let select = "SELECT coalesce(max(number), 0) FROM letters";
    Ok(connection.prepare_cached(select)?.query_row([], |row| row.get(0))?)
}

/// Writes a letter.
fn insert(connection: &Connection, number: i64, grave: &Grave<'_>) -> Result<(), Fault> {
    let Grave { death, died_at, .. } = grave;
    let mut statement = connection.prepare_cached(COUNT_KIND)?;
    let counted = (
        death.fingerprint.0.cast_signed(),
        grave.queue,
        grave.subscription,
        grave.event_type,
        death.category.as_str(),
        death.code.as_str(),
        death.failure_code.as_str(),
        death.tier.as_str(),
        &death.name,
        &death.consumer_group,
        nanos(*died_at),
    );
    let kind: i64 = statement.query_row(counted, |row| row.get(0))?;
    let letter =
        (number, grave.delivery, kind, nanos(*died_at), grave.session, grave.correlation, &death.message);
    connection.prepare_cached(INSERT_LETTER)?.execute(letter)?;
    connection.prepare_cached(COUNT_DEATH)?.execute((kind, span(*died_at)))?;
    Ok(())
}

/// The span of a trend that a time is in.
pub(super) fn span(at: Timestamp) -> i64 {
    let span = u64::try_from(TREND_SPAN.as_nanos()).expect("a few minutes");
    (at.as_nanos() / span).cast_signed()
}

impl Work<'_> {
    /// Writes the letter of a delivery that dies.
    pub(super) fn bury(&mut self, grave: &Grave<'_>) -> Result<(), Fault> {
        let number = next_number(&mut self.state.last_letter, grave.died_at);
        insert(self.connection, number, grave)
    }

    /// Writes a letter that died elsewhere, at its place among the others.
    pub(super) fn bury_in_the_past(&mut self, grave: &Grave<'_>) -> Result<(), Fault> {
        let died_at = nanos(grave.died_at);
        let millisecond = died_at - died_at % 1_000_000;
        let mut latest = self.connection.prepare_cached(LATEST_BETWEEN)?;
        let latest: Option<i64> =
            latest.query_row([millisecond, millisecond + 1_000_000], |row| row.get(0))?;
        let mut number = latest.map_or(died_at, |latest| died_at.max(latest + 1));
        let mut taken = self.connection.prepare_cached("SELECT 1 FROM letters WHERE number = ?1")?;
        while taken.exists([number])? {
            number += 1;
        }
        self.state.last_letter = self.state.last_letter.max(number);
        insert(self.connection, number, grave)
    }

    /// Takes a letter away: it is tried again, or done with.
    pub(super) fn dig_up(&self, number: i64) -> Result<(), Fault> {
        let mut statement = self.connection.prepare_cached(DELETE_LETTER)?;
        let kind: i64 = statement.query_row([number], |row| row.get(0))?;
        self.connection.prepare_cached(UNCOUNT_KIND)?.execute([kind])?;
        Ok(())
    }
}

/// Brings letters over from the first format, which knew neither their names nor their kinds.
pub(super) fn carry_over(connection: &Connection) -> Result<(), Fault> {
    let seed: Option<i64> = connection.query_row("SELECT seed FROM meta", [], |row| row.get(0)).optional()?;
    let seed = seed.unwrap_or_default().cast_unsigned();
    let queues = names::queues(connection)?;
    let mut in_order = connection.prepare(OLD_LETTERS)?;
    let mut letters = in_order.query([])?;
    let mut last = 0;
    while let Some(letter) = letters.next()? {
        let mut statement = connection.prepare_cached(OLD_LETTER)?;
        let mut rows = statement.query([letter.get::<_, i64>(1)?])?;
        let row = rows.next()?.ok_or(Fault::unreadable("a dead letter of the first format"))?;
        let body = Body { delivery: row.get(5)?, queue: row.get(6)?, subscription: row.get(7)? };
        let queue = queues.iter().find(|(id, _, _)| *id == body.queue);
        let (_, QueueName { service, channel }, _) = queue.ok_or(Fault::unreadable("the name of a queue"))?;
        let death = old_death(row, service, channel.as_ref())?;
        let (event, died_at) = (rows::event(row)?, time(row.get(8)?));
        let number = next_number(&mut last, died_at);
        insert(connection, number, &Grave::new(seed, body, &event, &death, died_at))?;
    }
    drop(letters);
    drop(in_order);
    Ok(connection.execute_batch("DROP TABLE deaths")?)
}

fn old_death(
    row: &rusqlite::Row<'_>,
    service: &ServiceName,
    channel: Option<&ChannelName>,
) -> Result<Death, Fault> {
    let mut death = rows::death(row, 9)?;
    death.name = name_template::default_name(service, channel);
    death.consumer_group = service.to_string();
    Ok(death)
}
