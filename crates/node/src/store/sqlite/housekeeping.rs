//! Housekeeping in small steps, one transaction each: seals hashes, deletes ended events, expires letters, ids and
//! keys, drops unused rule books.
//!
//! Nothing here searches: ended deliveries were listed when they ended, and ids are checked once each in sequence
//! order.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive_core::ids::Seq;
use redrive_core::time::Timestamp;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::dedup::DedupStep;
use super::encode::{self, nanos, place, seq, time};
use super::fault::SqlResult;
use super::retention::{self, ExpiredItems};
use super::schema::{state, whole};
use super::sql::Sql;
use super::state::StoreState;
use super::{rows, write};
use crate::store::{BOOKS_RECOVERED_MAX, HousekeepingStep, RetentionRules};

/// Minimum, where there are as many.
const PLACES_PER_STEP: usize = 512;
const KEYS_PER_STEP: i64 = 256;
/// Interval of checks of an expired key whose event is still kept.
const KEYS_LOOKED_AT_AGAIN: Duration = Duration::from_secs(600);

/// An idle store does not write.
pub(super) fn is_due(
    connection: &Connection,
    state: &StoreState,
    keep: &RetentionRules,
    now: Timestamp,
) -> SqlResult<bool> {
    let ended = "SELECT at FROM ending ORDER BY id LIMIT 1";
    let ended: Option<i64> = connection.find(ended, [])?;
    let received = "SELECT received_at FROM events WHERE seq > ?1 ORDER BY seq LIMIT 1";
    let received: Option<i64> = connection.find(received, [place(state.meta.ids_checked)])?;
    let is_past = |at: Option<i64>, span| at.is_some_and(|at| time(at) + span <= now);
    Ok(is_past(ended, keep.delivered)
        || is_past(received, keep.ids)
        || connection.has(KEYS_ENDING, (nanos(now), 1))?
        || state.dedup.has_work(state.meta.ids_checked)
        || state.dedup.droppable(connection, state.meta.ids_checked)?.is_some()
        || connection.has(UNNAMED_BOOKS, [books_kept()])?)
}

/// Pass the dedup step to [`super::dedup::Dedup::apply`] once durable.
pub(super) fn housekeep(
    connection: &Connection,
    state: &mut StoreState,
    keep: &RetentionRules,
    old: &ExpiredItems,
    now: Timestamp,
) -> SqlResult<(HousekeepingStep, Option<DedupStep>)> {
    let mut chores = HousekeepingStep::default();
    let mut cleaner = EventCleaner { connection, state, book_uses: BTreeMap::new(), keep, now };
    let (deleted, more_ended) = cleaner.delete_ended()?;
    chores.events_deleted = deleted;
    let more_ids = cleaner.forget_ids()?;
    let more_keys = forget_keys(connection, now)?;
    connection.run(&format!("DELETE FROM books WHERE hash IN ({UNNAMED_BOOKS})"), [books_kept()])?;
    chores.letters_deleted = retention::forget(connection, state, old, now)?;
    let step = state.dedup.step(connection, state.meta.ids_checked)?;
    chores.more = more_ended || more_ids || more_keys || old.may_be_more() || step.is_some();
    state.save(connection)?;
    Ok((chores, step))
}

struct EventCleaner<'a> {
    connection: &'a Connection,
    state: &'a mut StoreState,
    /// Deleted attempt records per rule book, as negative numbers.
    book_uses: BTreeMap<u64, i64>,
    keep: &'a RetentionRules,
    now: Timestamp,
}

impl EventCleaner<'_> {
    /// Returns how many events were deleted, and whether there may be more.
    fn delete_ended(&mut self) -> SqlResult<(u64, bool)> {
        let next = "SELECT id, at, places FROM ending ORDER BY id LIMIT 1";
        let (mut deleted, mut seen) = (0, 0);
        loop {
            let first: Option<(i64, i64, Vec<u8>)> =
                self.connection.first(next, [], |row| Ok(row.try_into()?))?;
            let over = first.filter(|(_, at, _)| time(*at) + self.keep.delivered <= self.now);
            let Some((id, _, places)) = over.as_ref().filter(|_| seen < PLACES_PER_STEP) else {
                write::count_book_uses(self.connection, &self.book_uses)?;
                return Ok((deleted, over.is_some()));
            };
            for place in encode::read_places(places)? {
                seen += 1;
                deleted += u64::from(self.delete(place)?);
            }
            self.connection.run("DELETE FROM ending WHERE id = ?1", [id])?;
        }
    }

    /// Deletes expired ids; returns whether there may be more.
    fn forget_ids(&mut self) -> SqlResult<bool> {
        let select = "SELECT seq, received_at, whole FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2";
        let limit = i64::try_from(PLACES_PER_STEP).expect("a small number");
        let mut old: Vec<(i64, bool)> = Vec::with_capacity(PLACES_PER_STEP);
        let mut statement = self.connection.prepare_cached(select)?;
        let mut rows = statement.query((place(self.state.meta.ids_checked), limit))?;
        while let Some(row) = rows.next()?
            && time(row.get(1)?) + self.keep.ids <= self.now
        {
            old.push((row.get(0)?, row.get(2)?));
        }
        for (place, whole) in &old {
            self.state.meta.ids_checked = seq(*place);
            if !whole {
                self.connection.run("DELETE FROM events WHERE seq = ?1", [place])?;
            }
        }
        Ok(old.len() == PLACES_PER_STEP)
    }

    /// Deletes the event of a sequence number, its own or a delivery's, if all its deliveries are past retention.
    fn delete(&mut self, at: Seq) -> SqlResult<bool> {
        let event_of = "SELECT event FROM deliveries WHERE seq = ?1";
        let event = self.connection.find(event_of, [place(at)])?.unwrap_or(place(at));
        let select = "SELECT received_at, coalesce(first_delivery, seq + 1), deliveries, whole FROM events
            WHERE seq = ?1 AND whole > 0";
        let found: Option<(i64, i64, i64, i64)> =
            self.connection.first(select, [event], |row| Ok(row.try_into()?))?;
        let Some((received_at, first, count, kept)) = found else { return Ok(false) };
        let deliveries = first..first + count;
        if !self.all_over(&deliveries)? {
            return Ok(false);
        }
        self.delete_deliveries(&deliveries)?;
        self.state.meta.events -= 1;
        self.state.meta.unrouted -= u64::from(count == 0);
        // Checked ids are not examined again, even if the retention was extended.
        let is_checked = seq(event) <= self.state.meta.ids_checked;
        let is_id_of_use = kept == whole::SENT && !is_checked && time(received_at) + self.keep.ids > self.now;
        let sql = if is_id_of_use {
            "UPDATE events SET whole = 0, attributes = x'', data = x'' WHERE seq = ?1"
        } else {
            "DELETE FROM events WHERE seq = ?1"
        };
        self.connection.run(sql, [event])?;
        Ok(true)
    }

    fn all_over(&self, places: &std::ops::Range<i64>) -> SqlResult<bool> {
        let select = "SELECT state, written_at FROM deliveries WHERE seq >= ?1 AND seq < ?2";
        let over = self.connection.all(select, (places.start, places.end), |row| {
            let has_ended =
                matches!(row.get(0)?, state::DELIVERED | state::SKIPPED | state::SUPERSEDED | state::PURGED);
            Ok(has_ended && time(row.get(1)?) + self.keep.delivered <= self.now)
        })?;
        Ok(over.into_iter().all(|is_over| is_over))
    }

    fn delete_deliveries(&mut self, places: &std::ops::Range<i64>) -> SqlResult<()> {
        let bounds = (places.start, places.end);
        let delete = "DELETE FROM deliveries WHERE seq >= ?1 AND seq < ?2 RETURNING queue, story, state,
            replays IS NOT NULL";
        let mut was_dead = false;
        self.connection.each(delete, bounds, |row| {
            let queue = self.state.names.index_of(row.get(0)?)?;
            let counts = self.state.names.counts(queue);
            let is_closed = row.get::<_, i64>(2)? != state::DELIVERED;
            counts.delivered -= u64::from(!is_closed);
            counts.closed -= u64::from(is_closed);
            was_dead |= is_closed || row.get(3)?;
            if row.get_ref(1)? != ValueRef::Null {
                *self.book_uses.entry(rows::story(row, 1)?.book).or_default() -= 1;
            }
            Ok(())
        })?;
        let delete = "DELETE FROM attempts WHERE delivery >= ?1 AND delivery < ?2 RETURNING story";
        self.connection.each(delete, bounds, |row| {
            *self.book_uses.entry(rows::story(row, 0)?.book).or_default() -= 1;
            Ok(())
        })?;
        // Only letters can be imported.
        if was_dead {
            self.connection.run("DELETE FROM imported WHERE delivery >= ?1 AND delivery < ?2", bounds)?;
        }
        Ok(())
    }
}

/// Expired keys, and those due for another check.
///
/// An expired key whose event is still kept stores the time of its next check as a negative number, which cannot
/// be mistaken for an expiry.
const KEYS_ENDING: &str =
    "SELECT key, event FROM delivery_keys WHERE until BETWEEN -?1 AND ?1 ORDER BY until LIMIT ?2";

fn forget_keys(connection: &Connection, now: Timestamp) -> SqlResult<bool> {
    let over: Vec<(Vec<u8>, i64)> =
        connection.all(KEYS_ENDING, (nanos(now), KEYS_PER_STEP), |row| Ok(row.try_into()?))?;
    for (key, event) in &over {
        if connection.has("SELECT 1 FROM events WHERE seq = ?1 AND whole > 0", [event])? {
            // Remembered exactly as long as the event is kept.
            let update = "UPDATE delivery_keys SET until = ?2 WHERE key = ?1";
            connection.run(update, (key, -nanos(now + KEYS_LOOKED_AT_AGAIN)))?;
        } else {
            connection.run("DELETE FROM delivery_keys WHERE key = ?1", [key])?;
        }
    }
    Ok(i64::try_from(over.len()).is_ok_and(|count| count == KEYS_PER_STEP))
}

/// Unused and not among the latest.
const UNNAMED_BOOKS: &str = "SELECT hash FROM books WHERE stories = 0 AND hash NOT IN
    (SELECT hash FROM books WHERE text IS NOT NULL ORDER BY turn DESC LIMIT ?1)";

fn books_kept() -> i64 {
    i64::try_from(BOOKS_RECOVERED_MAX).expect("a small number")
}
