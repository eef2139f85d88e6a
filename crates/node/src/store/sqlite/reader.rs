//! Answers queries from a read-only connection. Each answer is one snapshot, except long lists; snapshots are
//! short, because the write-ahead log cannot restart meanwhile.

mod access_store;
mod delivery;
mod find;
mod groups;
mod kinds;
mod letters;
pub(super) mod list;
pub(super) mod oldest;
mod replays;
mod survey;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive_core::engine::QueueName;
use redrive_core::ids::{IdPrefix, Receipt, Seq};
use redrive_core::letters::replay::ReplayId;
use redrive_core::time::Timestamp;
use rusqlite::Connection;

use self::delivery::Depth;
pub(super) use self::find::select_letters;
use super::encode::{place, seq, time};
use super::fault::{SqlFault, SqlResult};
use super::schema;
use super::sql::Sql;
use super::state::Meta;
use super::{access_store as writes, dedup, disk, names, rows};
use crate::store::access_store::{KeyRecord, RefusedBody};
use crate::store::letter::{
    AuditRecord, GroupView, HeldCursor, HeldPage, HeldSession, KindView, LetterFilter, LetterKey,
    LetterNumber, LetterPage, LetterQuery, LetterView, ReplayView, Selection, SelectionSurvey,
};
use crate::store::{
    DeliveryFilter, DeliveryPage, DeliveryView, EventKey, EventView, Oldest, StoreCounts, StoreError,
    StoreReader,
};

/// Sequence numbers examined for a short prefix; older ones need one more digit.
const PLACES_MAX: usize = 100_000;
/// Rows examined per snapshot.
const ROWS_PER_LOOK: i64 = 10_000;

pub(super) struct SqliteReader {
    connection: Connection,
    path: PathBuf,
}

const EVENT: &str = "SELECT id, source, type, attributes, data, received_at,
    coalesce(first_delivery, seq + 1), deliveries FROM events WHERE seq = ?1";

impl SqliteReader {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { connection: schema::open_to_read(path)?, path: path.to_owned() })
    }

    fn listed(&self, filter: &DeliveryFilter, depth: Depth) -> Result<DeliveryPage, StoreError> {
        let mut listed = DeliveryPage::default();
        let mut part = filter.clone();
        let looked_at_max = list::looked_at_max(filter);
        // Goes backwards, so several snapshots list nothing twice.
        loop {
            let mut found = self.read(|look| look.list(&part, looked_at_max - listed.looked_at, depth))?;
            listed.deliveries.append(&mut found.deliveries);
            listed.looked_at += found.looked_at;
            listed.next = found.next;
            let is_enough = listed.deliveries.len() >= filter.rows_max || listed.looked_at >= looked_at_max;
            if is_enough || listed.next.is_none() {
                return Ok(listed);
            }
            part.before = listed.next;
            part.rows_max = filter.rows_max - listed.deliveries.len();
        }
    }

    /// Runs a query in one snapshot.
    fn read<T>(&self, question: impl FnOnce(&ReadView<'_>) -> SqlResult<T>) -> Result<T, StoreError> {
        let transaction = self.connection.unchecked_transaction()?;
        Ok(question(&ReadView::new(&transaction)?)?)
    }
}

impl StoreReader for SqliteReader {
    fn events(&self, key: &EventKey) -> Result<Vec<EventView>, StoreError> {
        self.read(|look| look.events(key))
    }

    fn deliveries(&self, prefix: &IdPrefix, rows_max: usize) -> Result<Vec<DeliveryView>, StoreError> {
        self.read(|look| look.by_prefix(*prefix, rows_max))
    }

    fn list(&self, filter: &DeliveryFilter) -> Result<DeliveryPage, StoreError> {
        self.listed(filter, Depth::Line)
    }

    fn deliveries_with_attempts(&self, filter: &DeliveryFilter) -> Result<DeliveryPage, StoreError> {
        self.listed(filter, Depth::Attempts)
    }

    fn unrouted(&self, after: Seq, rows_max: usize) -> Result<Vec<EventView>, StoreError> {
        self.read(|look| look.unrouted(after, rows_max))
    }

    fn book(&self, hash: u64) -> Result<Option<String>, StoreError> {
        let select = "SELECT text FROM books WHERE hash = ?1 AND text IS NOT NULL";
        self.read(|look| look.connection.find(select, [hash.cast_signed()]))
    }

    fn counts(&self) -> Result<StoreCounts, StoreError> {
        self.read(|look| {
            let meta = Meta::load(look.connection)?;
            let mut queues = BTreeMap::new();
            for (id, name, mut counts) in names::queues(look.connection)? {
                if counts.waiting > 0 {
                    counts.without_rule = names::without_rule(look.connection, id, &counts)?;
                }
                queues.insert(name, counts);
            }
            Ok(StoreCounts { queues, unrouted: meta.unrouted, events: meta.events })
        })
    }

    fn oldest(&self) -> Result<BTreeMap<QueueName, Oldest>, StoreError> {
        self.read(oldest::oldest)
    }

    fn letters(&self, query: &LetterQuery) -> Result<LetterPage, StoreError> {
        self.read(|look| look.letters(query))
    }

    fn letter(&self, key: &LetterKey) -> Result<Option<LetterView>, StoreError> {
        self.read(|look| look.letter(key))
    }

    fn imported_letters(&self, key: &str) -> Result<Vec<LetterView>, StoreError> {
        self.read(|look| look.imported_letters(key))
    }

    fn export(
        &self,
        selection: &Selection,
        after: Option<LetterNumber>,
        rows_max: usize,
    ) -> Result<LetterPage, StoreError> {
        letters::export(self, selection, after, rows_max)
    }

    fn kinds(&self, filter: &LetterFilter) -> Result<Vec<KindView>, StoreError> {
        self.read(|look| look.kinds(filter))
    }

    fn groups(
        &self,
        filter: &LetterFilter,
        now: Timestamp,
        rows_max: usize,
    ) -> Result<Vec<GroupView>, StoreError> {
        groups::groups(self, filter, now, rows_max)
    }

    fn survey(&self, selection: &Selection) -> Result<SelectionSurvey, StoreError> {
        survey::survey(self, selection)
    }

    fn replay(&self, id: ReplayId) -> Result<Option<ReplayView>, StoreError> {
        self.read(|look| look.replay(id))
    }

    fn replays(&self, before: Option<ReplayId>, rows_max: usize) -> Result<Vec<ReplayView>, StoreError> {
        self.read(|look| look.replays(before, rows_max))
    }

    fn held_sessions(&self, rows_max: usize) -> Result<Vec<HeldSession>, StoreError> {
        replays::held_sessions(self, rows_max)
    }

    fn held_page(&self, after: Option<HeldCursor>, rows_max: usize) -> Result<HeldPage, StoreError> {
        replays::held_page(self, after, rows_max)
    }

    fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.read(|look| access_store::keys(look.connection))
    }

    fn refused(&self, before: Option<u64>, rows_max: usize) -> Result<Vec<RefusedBody>, StoreError> {
        let values = (self::before(before), limit(rows_max));
        self.read(|look| look.connection.all(access_store::REFUSED, values, access_store::refused))
    }

    fn refused_body(&self, number: u64) -> Result<Option<RefusedBody>, StoreError> {
        let number = before(Some(number));
        self.read(|look| look.connection.first(access_store::REFUSED_BODY, [number], access_store::refused))
    }

    fn memo(&self, name: &str) -> Result<Option<String>, StoreError> {
        let select = "SELECT value FROM memos WHERE name = ?1";
        self.read(|look| look.connection.find(select, [writes::memo_name(name)]))
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        disk::bytes(&self.path)
    }

    fn seed(&self) -> Result<u64, StoreError> {
        self.read(|look| Ok(Meta::load(look.connection)?.seed))
    }

    fn last_place(&self) -> Result<Seq, StoreError> {
        self.read(|look| Ok(Meta::load(look.connection)?.last))
    }

    fn events_after(
        &self,
        after: Seq,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<EventView>, StoreError> {
        access_store::events_after(self, after, rows_max, bytes_max)
    }

    fn audit(&self, before: Option<u64>, rows_max: usize) -> Result<Vec<AuditRecord>, StoreError> {
        self.read(|look| look.audit(before, rows_max))
    }
}

/// One read transaction.
struct ReadView<'a> {
    connection: &'a Connection,
    queues: BTreeMap<i64, QueueName>,
    letters: u64,
}

impl<'a> ReadView<'a> {
    fn new(connection: &'a Connection) -> SqlResult<Self> {
        let mut look = Self { connection, queues: BTreeMap::new(), letters: 0 };
        for (id, name, counts) in names::queues(connection)? {
            look.queues.insert(id, name);
            look.letters += counts.dead;
        }
        Ok(look)
    }

    fn queue(&self, id: i64) -> SqlResult<&QueueName> {
        self.queues.get(&id).ok_or(SqlFault::unreadable("the name of a queue"))
    }

    fn events(&self, key: &EventKey) -> SqlResult<Vec<EventView>> {
        match key {
            EventKey::Receipt(receipt) => Ok(self.event(receipt.seq())?.into_iter().collect()),
            EventKey::Id(id) => {
                let seed = Meta::load(self.connection)?.seed;
                let mut views = Vec::new();
                for at in dedup::places_of_id(self.connection, seed, id)? {
                    views.extend(self.event(at)?.filter(|view| view.event.id.as_str() == id));
                }
                Ok(views)
            }
        }
    }

    fn event(&self, at: Seq) -> SqlResult<Option<EventView>> {
        if i64::try_from(at.get()).is_err() {
            return Ok(None);
        }
        self.connection.first(EVENT, [place(at)], |row| {
            let (first, count): (i64, i64) = (row.get(6)?, row.get(7)?);
            let mut deliveries = Vec::new();
            for place in first..first + count {
                deliveries.extend(self.delivery(seq(place), Depth::Line)?);
            }
            Ok(EventView {
                receipt: Receipt::of(at),
                event: Arc::new(rows::event(row)?),
                received_at: time(row.get(5)?),
                unrouted: count == 0,
                deliveries,
            })
        })
    }

    fn by_prefix(&self, prefix: IdPrefix, rows_max: usize) -> SqlResult<Vec<DeliveryView>> {
        let last = Meta::load(self.connection)?.last;
        let first = seq(self.connection.get("SELECT coalesce(min(seq), 0) FROM deliveries", [])?);
        let mut found = Vec::new();
        for at in prefix.places(last).take_while(|at| *at >= first).take(PLACES_MAX) {
            if found.len() == rows_max {
                break;
            }
            found.extend(self.delivery(at, Depth::Attempts)?);
        }
        Ok(found)
    }

    fn unrouted(&self, after: Seq, rows_max: usize) -> SqlResult<Vec<EventView>> {
        let found =
            self.connection.all(UNROUTED, (place(after), limit(rows_max)), |row| Ok(seq(row.get(0)?)))?;
        let (mut views, mut bytes) = (Vec::new(), 0);
        for at in found {
            let view = self.event(at)?;
            bytes += view.as_ref().map_or(0, |view| view.event.data.len());
            views.extend(view);
            if bytes >= UNROUTED_BYTES {
                break;
            }
        }
        Ok(views)
    }
}

fn limit(rows_max: usize) -> i64 {
    i64::try_from(rows_max).unwrap_or(i64::MAX)
}

/// `None` starts with the latest.
fn before(number: Option<u64>) -> i64 {
    number.map_or(i64::MAX, |number| i64::try_from(number).unwrap_or(i64::MAX))
}

/// Data bytes after which a page ends.
const UNROUTED_BYTES: usize = 16 * 1024 * 1024;

pub(super) const UNROUTED: &str =
    "SELECT seq FROM events WHERE deliveries = 0 AND whole = 1 AND seq > ?1 ORDER BY seq LIMIT ?2";
