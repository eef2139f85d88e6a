//! Reads deliveries and events from rows.

use std::sync::Arc;

use redrive_core::engine::attempt_record::AttemptRecord;
use redrive_core::engine::{DeadLetterInfo, LoadRequest, LoadScope, LoadedPage, PendingDelivery, QueueName};
use redrive_core::event::Event;
use redrive_core::ids::{DeliveryId, Seq};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::letters::replay::{ReplayId, Replaying};
use redrive_core::policy::category::{Category, FailureCode};
use redrive_core::policy::decide::History;
use redrive_core::time::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::encode::{self, EventColumns, Integrity, nanos, place, seq, time};
use super::fault::{SqlFault, SqlResult};
use super::names::NameTable;
use super::schema::state;
use super::sql::Sql;
use super::write::BatchWriter;
use crate::store::derive;

pub(super) const READY_PAGE: &str =
    "SELECT seq, bytes FROM deliveries WHERE queue = ?1 AND state = 0 AND seq > ?2 ORDER BY seq LIMIT ?3";
pub(super) const DUE_PAGE: &str = "SELECT seq, bytes FROM deliveries
    WHERE queue = ?1 AND state = 1 AND due_at <= ?2 ORDER BY due_at, seq LIMIT ?3";
pub(super) const NEXT_DUE: &str =
    "SELECT due_at FROM deliveries WHERE queue = ?1 AND state = 1 AND due_at > ?2 ORDER BY due_at LIMIT 1";
pub(super) const WAITING: &str = "SELECT e.id, e.source, e.type, e.attributes, e.data,
        d.seq, d.content, CASE WHEN d.lane IS NULL THEN NULL ELSE coalesce(d.turn, d.seq) END, d.attempts, d.state, d.due_at, d.written_at, d.start_recorded,
        d.book, d.history, d.event, d.replay, d.replays, e.content
    FROM deliveries d CROSS JOIN events e ON e.seq = d.event WHERE d.seq = ?1";

pub(super) const DELIVERY: &str =
    "SELECT event, queue, subscription, lane, coalesce(turn, seq), state, bytes, replay, linked
    FROM deliveries WHERE seq = ?1";

#[derive(Clone, Copy)]
pub(super) struct DeliveryRow {
    pub(super) event: i64,
    pub(super) queue: i64,
    pub(super) subscription: i64,
    pub(super) lane: Option<i64>,
    /// Its place in the session.
    pub(super) turn: i64,
    pub(super) state: i64,
    pub(super) bytes: u64,
    pub(super) replay: Option<i64>,
    /// Replaces another delivery, or was replaced.
    pub(super) linked: Option<i64>,
}

impl BatchWriter<'_> {
    pub(super) fn delivery(&self, at: i64) -> SqlResult<DeliveryRow> {
        let found = self.connection.first(DELIVERY, [at], |row| {
            Ok(DeliveryRow {
                event: row.get(0)?,
                queue: row.get(1)?,
                subscription: row.get(2)?,
                lane: row.get(3)?,
                turn: row.get(4)?,
                state: row.get(5)?,
                bytes: row.get::<_, i64>(6)?.cast_unsigned(),
                replay: row.get(7)?,
                linked: row.get(8)?,
            })
        })?;
        found.ok_or(SqlFault::unreadable("a delivery"))
    }
}

pub(super) fn load(connection: &Connection, names: &NameTable, load: &LoadRequest) -> SqlResult<LoadedPage> {
    let LoadRequest { queue, wanted, rows_max, bytes_max } = load;
    let mut page = LoadedPage {
        queue: Arc::clone(queue),
        wanted: *wanted,
        rows: Vec::new(),
        more: false,
        next_due_at: None,
    };
    let Some(known) = names.find(queue) else { return Ok(page) };
    let (select, from) = match *wanted {
        LoadScope::Ready { after } => (READY_PAGE, place(after)),
        LoadScope::Due { until } => (DUE_PAGE, nanos(until)),
    };
    let mut statement = connection.prepare_cached(select)?;
    // One more row shows whether the page continues.
    let mut found = statement.query((known.id, from, i64::from(*rows_max) + 1))?;
    let mut last_event = None;
    let mut bytes = 0_usize;
    while let Some(row) = found.next()? {
        bytes = bytes.saturating_add(usize::try_from(row.get::<_, i64>(1)?).unwrap_or_default());
        if page.rows.len() == *rows_max as usize || !page.rows.is_empty() && bytes > *bytes_max {
            page.more = true;
            break;
        }
        page.rows.push(waiting(connection, &known.name, seq(row.get(0)?), &mut last_event)?);
    }
    if let LoadScope::Due { until } = *wanted {
        let next = connection.find(NEXT_DUE, (known.id, nanos(until)))?.map(time);
        page.next_due_at = next.filter(|at| *at != Timestamp::NEVER);
    }
    Ok(page)
}

/// `last_event` avoids reading the same event twice in a row.
pub(super) fn waiting(
    connection: &Connection,
    queue: &Arc<QueueName>,
    at: Seq,
    last_event: &mut Option<(Seq, Arc<Event>, Integrity)>,
) -> SqlResult<PendingDelivery> {
    let mut statement = connection.prepare_cached(WAITING)?;
    let mut rows = statement.query([place(at)])?;
    let row = rows.next()?.ok_or(SqlFault::unreadable("a delivery or its event"))?;
    let event_seq = seq(row.get(15)?);
    let (event, integrity) = match last_event {
        Some((seq, event, integrity)) if *seq == event_seq => (Arc::clone(event), *integrity),
        Some(_) | None => {
            let (event, integrity) = checked_event(row, 18)?;
            (Arc::new(event), integrity)
        }
    };
    *last_event = Some((event_seq, Arc::clone(&event), integrity));
    let is_due = row.get::<_, i64>(9)? == state::DUE;
    Ok(PendingDelivery {
        id: DeliveryId::new(seq(row.get(5)?), row.get::<_, i64>(6)?.cast_unsigned()),
        queue: Arc::clone(queue),
        event,
        sequence: row.get::<_, Option<i64>>(7)?.map(seq),
        replaying: replaying(row.get(16)?, row.get(17)?),
        attempts: row.get(8)?,
        due_at: row.get::<_, Option<i64>>(10)?.map(time).filter(|_| is_due),
        written_at: time(row.get(11)?),
        start_recorded: row.get(12)?,
        damaged: integrity == Integrity::Damaged,
        book: row.get::<_, Option<i64>>(13)?.map(i64::cast_unsigned),
        history: history(row.get_ref(14)?)?,
    })
}

fn replaying(replay: Option<i64>, replays: Option<u32>) -> Option<Replaying> {
    replay.map(|id| Replaying { replay: ReplayId(id.cast_unsigned()), times: replays.unwrap_or_default() })
}

/// From the first five columns; what can be read of a damaged one.
pub(super) fn event(row: &Row<'_>) -> SqlResult<Event> {
    Ok(read_event(row)?.0)
}

/// Like [`event`], checked against its own hash and the content hash in that column.
pub(super) fn checked_event(row: &Row<'_>, content: usize) -> SqlResult<(Event, Integrity)> {
    let (event, integrity) = read_event(row)?;
    let stored = row.get_ref(content)?.as_i64().ok();
    let is_same = stored == Some(derive::content_hash(&event).cast_signed());
    Ok((event, if is_same { integrity } else { Integrity::Damaged }))
}

fn read_event(row: &Row<'_>) -> SqlResult<(Event, Integrity)> {
    let columns = EventColumns {
        id: bytes(row, 0)?,
        source: bytes(row, 1)?,
        event_type: bytes(row, 2)?,
        attributes: bytes(row, 3)?,
        data: bytes(row, 4)?,
    };
    Ok(encode::event(&columns))
}

/// Null is empty.
fn bytes<'a>(row: &'a Row<'_>, column: usize) -> SqlResult<&'a [u8]> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => &[],
    })
}

pub(super) fn text<'a>(row: &'a Row<'_>, column: usize) -> SqlResult<&'a str> {
    Ok(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?)
}

pub(super) fn story(row: &Row<'_>, column: usize) -> SqlResult<AttemptRecord> {
    Ok(encode::read_story(row.get_ref(column)?.as_blob().map_err(rusqlite::Error::from)?)?)
}

fn history(value: ValueRef<'_>) -> SqlResult<History> {
    match value {
        ValueRef::Null => Ok(History::new()),
        value => {
            let text = value.as_str().map_err(rusqlite::Error::from)?;
            serde_json::from_str(text).map_err(|_| SqlFault::unreadable("the history of a delivery"))
        }
    }
}

pub(super) fn category(name: &str) -> SqlResult<Category> {
    Category::from_word(name).ok_or(SqlFault::unreadable("the category of a letter"))
}

pub(super) fn tier(name: &str) -> SqlResult<Tier> {
    let known = [Tier::Dead, Tier::Poison].into_iter().find(|known| known.as_str() == name);
    known.ok_or(SqlFault::unreadable("the tier of a letter"))
}

/// From six columns starting with `first`.
pub(super) fn death(row: &Row<'_>, first: usize) -> SqlResult<DeadLetterInfo> {
    Ok(DeadLetterInfo {
        category: category(text(row, first)?)?,
        code: FailureCode::reported(text(row, first + 1)?),
        failure_code: FailureCode::reported(text(row, first + 2)?),
        tier: tier(text(row, first + 3)?)?,
        message: row.get(first + 4)?,
        fingerprint: Fingerprint(row.get::<_, i64>(first + 5)?.cast_unsigned()),
        name: String::new(),
        consumer_group: String::new(),
        followers: redrive_core::engine::SessionFollowers::Continue,
    })
}
