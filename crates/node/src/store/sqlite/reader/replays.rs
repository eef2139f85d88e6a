//! Reads replays, held sessions and the audit log.

use std::collections::BinaryHeap;

use redrive_core::event::attribute::SessionKey;
use redrive_core::ids::DeliveryId;
use redrive_core::letters::replay::ReplayId;

use super::{ReadView, SqliteReader, limit};
use crate::store::StoreError;
use crate::store::letter::{AuditRecord, HeldCursor, HeldPage, HeldSession, ReplayView};
use crate::store::sqlite::encode::{seq, time};
use crate::store::sqlite::fault::SqlResult;
use crate::store::sqlite::replay::{VIEW, view};
use crate::store::sqlite::rows;
use crate::store::sqlite::sql::Sql;

const HELD_PER_LOOK: usize = 50_000;
const SHOWN_PER_LOOK: usize = 1_000;

pub(super) const AUDIT: &str = "SELECT number, at, act, what, letters, note, done_by FROM audit WHERE number < ?1 ORDER BY number DESC LIMIT ?2";
pub(super) const HELD: &str =
    "SELECT lane, letter, since, behind FROM held WHERE lane > ?1 ORDER BY lane LIMIT ?2";
/// The letter that holds a session, dead or being replayed.
pub(super) const HOLDER: &str = "SELECT e.id, e.source, e.type, e.attributes, x'', d.seq, d.content, d.queue
    FROM deliveries d CROSS JOIN events e ON e.seq = d.event WHERE d.seq = ?1";

impl ReadView<'_> {
    pub(super) fn replay(&self, id: ReplayId) -> SqlResult<Option<ReplayView>> {
        let found = self.replays(Some(ReplayId(id.0.saturating_add(1))), 1)?;
        Ok(found.into_iter().find(|replay| replay.id == id))
    }

    pub(super) fn replays(&self, before: Option<ReplayId>, rows_max: usize) -> SqlResult<Vec<ReplayView>> {
        let values = (super::before(before.map(|id| id.0)), limit(rows_max));
        self.connection.all(&replays_before(), values, view)
    }

    pub(super) fn audit(&self, before: Option<u64>, rows_max: usize) -> SqlResult<Vec<AuditRecord>> {
        self.connection.all(AUDIT, (super::before(before), limit(rows_max)), |row| {
            Ok(AuditRecord {
                number: row.get::<_, i64>(0)?.cast_unsigned(),
                at: time(row.get(1)?),
                act: row.get(2)?,
                what: row.get(3)?,
                letters: row.get::<_, i64>(4)?.cast_unsigned(),
                note: row.get(5)?,
                by: row.get(6)?,
            })
        })
    }

    fn held_session(&self, held: &HeldRow) -> SqlResult<Option<HeldSession>> {
        self.connection.first(HOLDER, [held.letter], |row| {
            let event = rows::event(row)?;
            Ok(HeldSession {
                queue: self.queue(row.get(7)?)?.clone(),
                session: event.session.as_ref().map_or("", SessionKey::as_str).to_owned(),
                letter: DeliveryId::new(seq(row.get(5)?), row.get::<_, i64>(6)?.cast_unsigned()),
                event_type: event.event_type.to_string(),
                since: time(held.since),
                behind: held.behind.cast_unsigned(),
            })
        })
    }

    fn held_after(&self, lane: i64, rows_max: i64) -> SqlResult<Vec<HeldRow>> {
        self.connection.all(HELD, (lane, rows_max), |row| {
            let (lane, letter, since, behind) = row.try_into()?;
            Ok(HeldRow { since, lane, letter, behind })
        })
    }
}

pub(super) fn replays_before() -> String {
    format!("{VIEW} WHERE id < ?1 ORDER BY id DESC LIMIT ?2")
}

/// Ordered by `since`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HeldRow {
    since: i64,
    lane: i64,
    pub(super) letter: i64,
    behind: i64,
}

pub(super) fn each_held(reader: &SqliteReader, mut show: impl FnMut(HeldRow)) -> Result<(), StoreError> {
    let mut after = Some(i64::MIN);
    while let Some(from) = after {
        let held = reader.read(|look| look.held_after(from, limit(HELD_PER_LOOK)))?;
        after = held.last().filter(|_| held.len() == HELD_PER_LOOK).map(|held| held.lane);
        held.into_iter().for_each(&mut show);
    }
    Ok(())
}

/// Scans all rows and keeps the oldest: sessions are held and released often and listed rarely, so there is no
/// index by age.
pub(super) fn held_sessions(reader: &SqliteReader, rows_max: usize) -> Result<Vec<HeldSession>, StoreError> {
    let mut oldest: BinaryHeap<HeldRow> = BinaryHeap::new();
    each_held(reader, |held| {
        oldest.push(held);
        if oldest.len() > rows_max {
            oldest.pop();
        }
    })?;
    let oldest = oldest.into_sorted_vec();
    let mut sessions = Vec::with_capacity(oldest.len());
    for part in oldest.chunks(SHOWN_PER_LOOK) {
        reader.read(|look| {
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
    reader.read(|look| {
        let found = look.held_after(after.map_or(i64::MIN, |HeldCursor(lane)| lane), limit(rows_max))?;
        let last = found.last().filter(|_| found.len() == rows_max);
        let mut page = HeldPage { sessions: Vec::new(), next: last.map(|held| HeldCursor(held.lane)) };
        for held in &found {
            page.sessions.extend(look.held_session(held)?);
        }
        Ok(page)
    })
}
