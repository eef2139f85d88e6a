//! Shows replays, sessions that are held, and what is on record.

use std::collections::BinaryHeap;

use redrive_core::event::attribute::SessionKey;
use redrive_core::ids::DeliveryId;
use redrive_core::letters::replay::ReplayId;
use rusqlite::Row;

use super::{Look, SqliteReader};
use crate::store::StoreError;
use crate::store::letter::{AuditRecord, HeldCursor, HeldPage, HeldSession, ReplayView};
use crate::store::sqlite::encode::{seq, time};
use crate::store::sqlite::fault::Fault;
use crate::store::sqlite::replay::{VIEW, view};
use crate::store::sqlite::rows;

/// Held sessions that are read in one look.
const HELD_PER_LOOK: i64 = 50_000;
/// Held sessions that are shown in one look.
const SHOWN_PER_LOOK: usize = 1_000;

pub(super) const AUDIT: &str = "SELECT number, at, act, what, letters, note, done_by FROM audit WHERE number < ?1 ORDER BY number DESC LIMIT ?2";
pub(super) const HELD: &str =
    "SELECT lane, letter, since, behind FROM held WHERE lane > ?1 ORDER BY lane LIMIT ?2";
/// What is shown of a letter that holds its session, dead or on its way.
pub(super) const HOLDER: &str = "SELECT e.id, e.source, e.type, e.attributes, x'', d.seq, d.content, d.queue
    FROM deliveries d CROSS JOIN events e ON e.seq = d.event WHERE d.seq = ?1";

impl Look<'_> {
    pub(super) fn replay(&self, id: ReplayId) -> Result<Option<ReplayView>, Fault> {
        let found = self.replays(Some(ReplayId(id.0.saturating_add(1))), 1)?;
        Ok(found.into_iter().find(|replay| replay.id == id))
    }

    pub(super) fn replays(
        &self,
        before: Option<ReplayId>,
        rows_max: usize,
    ) -> Result<Vec<ReplayView>, Fault> {
        let before = before.map_or(i64::MAX, |id| i64::try_from(id.0).unwrap_or(i64::MAX));
        let mut statement = self.connection.prepare_cached(&replays_before())?;
        let mut rows = statement.query((before, limit(rows_max)))?;
        let mut replays = Vec::new();
        while let Some(row) = rows.next()? {
            replays.push(view(row)?);
        }
        Ok(replays)
    }

    pub(super) fn audit(&self, before: Option<u64>, rows_max: usize) -> Result<Vec<AuditRecord>, Fault> {
        let before = before.map_or(i64::MAX, |number| i64::try_from(number).unwrap_or(i64::MAX));
        let mut statement = self.connection.prepare_cached(AUDIT)?;
        let records = statement.query_map((before, limit(rows_max)), |row| {
            Ok(AuditRecord {
                number: row.get::<_, i64>(0)?.cast_unsigned(),
                at: time(row.get(1)?),
                act: row.get(2)?,
                what: row.get(3)?,
                letters: row.get::<_, i64>(4)?.cast_unsigned(),
                note: row.get(5)?,
                by: row.get(6)?,
            })
        })?;
        Ok(records.collect::<Result<_, _>>()?)
    }

    fn held_session(&self, held: &Held) -> Result<Option<HeldSession>, Fault> {
        let mut statement = self.connection.prepare_cached(HOLDER)?;
        let mut rows = statement.query([held.letter])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let event = rows::event(row)?;
        Ok(Some(HeldSession {
            queue: self.queue(row.get(7)?)?.clone(),
            session: event.session.as_ref().map_or("", SessionKey::as_str).to_owned(),
            letter: DeliveryId::new(seq(row.get(5)?), row.get::<_, i64>(6)?.cast_unsigned()),
            event_type: event.event_type.to_string(),
            since: time(held.since),
            behind: held.behind.cast_unsigned(),
        }))
    }
}

fn limit(rows_max: usize) -> i64 {
    i64::try_from(rows_max).unwrap_or(i64::MAX)
}

/// Replays before one, the latest first.
pub(super) fn replays_before() -> String {
    format!("{VIEW} WHERE id < ?1 ORDER BY id DESC LIMIT ?2")
}

/// A row of held sessions; those held for longer come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    since: i64,
    lane: i64,
    pub(super) letter: i64,
    behind: i64,
}

impl Held {
    fn read(row: &Row<'_>) -> Result<Self, Fault> {
        Ok(Self { lane: row.get(0)?, letter: row.get(1)?, since: row.get(2)?, behind: row.get(3)? })
    }
}

/// Shows all held sessions, in several looks.
pub(super) fn each_held(reader: &SqliteReader, mut show: impl FnMut(Held)) -> Result<(), StoreError> {
    let mut after = Some(i64::MIN);
    while let Some(from) = after {
        let mut seen = 0;
        reader.ask(|look| {
            let mut statement = look.connection.prepare_cached(HELD)?;
            let mut rows = statement.query((from, HELD_PER_LOOK))?;
            while let Some(row) = rows.next()? {
                let held = Held::read(row)?;
                (seen, after) = (seen + 1, Some(held.lane));
                show(held);
            }
            Ok(())
        })?;
        after = after.filter(|_| seen == HELD_PER_LOOK);
    }
    Ok(())
}

/// There is no index by age, since sessions are held and let go all the time and asked for now and then: all
/// rows are gone through, and the oldest are kept.
pub(super) fn held_sessions(reader: &SqliteReader, rows_max: usize) -> Result<Vec<HeldSession>, StoreError> {
    let mut oldest: BinaryHeap<Held> = BinaryHeap::new();
    each_held(reader, |held| {
        oldest.push(held);
        if oldest.len() > rows_max {
            oldest.pop();
        }
    })?;
    let oldest = oldest.into_sorted_vec();
    let mut sessions = Vec::with_capacity(oldest.len());
    for part in oldest.chunks(SHOWN_PER_LOOK) {
        reader.ask(|look| {
            for held in part {
                sessions.extend(look.held_session(held)?);
            }
            Ok(())
        })?;
    }
    Ok(sessions)
}

pub(super) fn held_page(
    reader: &SqliteReader,
    after: Option<HeldCursor>,
    rows_max: usize,
) -> Result<HeldPage, StoreError> {
    reader.ask(|look| {
        let mut statement = look.connection.prepare_cached(HELD)?;
        let from = after.map_or(i64::MIN, |HeldCursor(lane)| lane);
        let mut rows = statement.query((from, limit(rows_max)))?;
        let (mut page, mut seen) = (HeldPage::default(), 0);
        while let Some(row) = rows.next()? {
            let held = Held::read(row)?;
            seen += 1;
            page.next = (seen == rows_max).then_some(HeldCursor(held.lane));
            page.sessions.extend(look.held_session(&held)?);
        }
        Ok(page)
    })
}
