//! Answers questions from a connection of its own, which can only read. Each answer but a long list is of one
//! moment; no look at the file lasts for long, since the log cannot start anew meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive_core::engine::QueueName;
use redrive_core::event::Event;
use redrive_core::event::attribute::{CorrelationId, SessionKey};
use redrive_core::ids::{DeliveryId, IdPrefix, Receipt, Seq};
use redrive_core::replay::ReplayId;
use redrive_core::story::Story;
use redrive_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row};

use super::encode::{self, place, seq, time};
use super::fault::Fault;
use super::schema::{self, state};
use super::state::Meta;
use super::{dedup, names, rows};
use crate::store::letter::{
    AuditRecord, GroupView, HeldSession, KindView, LetterFilter, LetterKey, LetterNumber, LetterPage,
    LetterQuery, LetterView, ReplayView, Selection, Survey,
};
use crate::store::{
    Counts, DeliveryState, DeliveryView, EventKey, EventView, Filter, Reader, StateName, StoreError,
};

/// Places looked at for one short prefix; what is older is found by one digit more.
const PLACES_MAX: usize = 100_000;
/// Rows looked at in one go.
const ROWS_PER_LOOK: i64 = 10_000;

/// A pair of eyes.
pub(super) struct SqliteReader {
    connection: Connection,
    path: PathBuf,
}

/// Whether attempts are told.
#[derive(Clone, Copy)]
enum Stories {
    Told,
    Left,
}

const DELIVERY: &str = "SELECT e.id, e.source, e.type, e.attributes, x'',
        d.seq, d.content, d.queue, s.name, d.event, e.received_at, d.written_at, d.attempts, d.state, d.due_at,
        d.story, c.category, c.code, c.failure_code, c.tier, l.message, c.fingerprint
    FROM deliveries d CROSS JOIN events e ON e.seq = d.event
    LEFT JOIN subscriptions s ON s.id = d.subscription LEFT JOIN letters l ON l.delivery = d.seq LEFT JOIN kinds c ON c.id = l.kind
    WHERE d.seq = ?1";
const EVENT: &str = "SELECT id, source, type, attributes, data, received_at,
    coalesce(first_delivery, seq + 1), deliveries FROM events WHERE seq = ?1";

impl SqliteReader {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { connection: schema::open_to_read(path)?, path: path.to_owned() })
    }

    /// Asks within one look at the file.
    fn ask<T>(&self, question: impl FnOnce(&Look<'_>) -> Result<T, Fault>) -> Result<T, StoreError> {
        let answer = || {
            let transaction = self.connection.unchecked_transaction()?;
            let look = Look { connection: &transaction, queues: queue_names(&transaction)? };
            question(&look)
        };
        answer().map_err(|fault| fault.unchanged(&self.path))
    }
}

impl Reader for SqliteReader {
    fn events(&self, key: &EventKey) -> Result<Vec<EventView>, StoreError> {
        self.ask(|look| look.events(key))
    }

    fn deliveries(&self, prefix: &IdPrefix, rows_max: usize) -> Result<Vec<DeliveryView>, StoreError> {
        self.ask(|look| look.by_prefix(*prefix, rows_max))
    }

    fn list(&self, filter: &Filter) -> Result<Vec<DeliveryView>, StoreError> {
        let mut views = Vec::new();
        let mut before = filter.before;
        // A list that takes several looks goes backwards, so nothing is in it twice.
        while views.len() < filter.rows_max {
            let part = Filter { before, rows_max: filter.rows_max - views.len(), ..filter.clone() };
            let (mut found, next) = self.ask(|look| look.list(&part))?;
            views.append(&mut found);
            match next {
                Some(place) => before = Some(place),
                None => break,
            }
        }
        Ok(views)
    }

    fn unrouted(&self, after: Seq, rows_max: usize) -> Result<Vec<EventView>, StoreError> {
        self.ask(|look| look.unrouted(after, rows_max))
    }

    fn book(&self, hash: u64) -> Result<Option<String>, StoreError> {
        let select = "SELECT text FROM books WHERE hash = ?1 AND text IS NOT NULL";
        self.ask(|look| {
            let mut statement = look.connection.prepare_cached(select)?;
            Ok(statement.query_row([hash.cast_signed()], |row| row.get(0)).optional()?)
        })
    }

    fn counts(&self) -> Result<Counts, StoreError> {
        self.ask(|look| {
            let meta = Meta::load(look.connection)?;
            let queues = names::queues(look.connection)?.into_iter().map(|(_, name, counts)| (name, counts));
            Ok(Counts { queues: queues.collect(), unrouted: meta.unrouted, events: meta.events })
        })
    }

    fn letters(&self, _query: &LetterQuery) -> Result<LetterPage, StoreError> {
        unimplemented!()
    }

    fn letter(&self, _key: &LetterKey) -> Result<Option<LetterView>, StoreError> {
        unimplemented!()
    }

    fn export(
        &self,
        _selection: &Selection,
        _after: Option<LetterNumber>,
        _rows_max: usize,
    ) -> Result<LetterPage, StoreError> {
        unimplemented!()
    }

    fn kinds(&self, _filter: &LetterFilter) -> Result<Vec<KindView>, StoreError> {
        unimplemented!()
    }

    fn groups(
        &self,
        _filter: &LetterFilter,
        _now: Timestamp,
        _rows_max: usize,
    ) -> Result<Vec<GroupView>, StoreError> {
        unimplemented!()
    }

    fn survey(&self, _selection: &Selection) -> Result<Survey, StoreError> {
        unimplemented!()
    }

    fn replay(&self, _id: ReplayId) -> Result<Option<ReplayView>, StoreError> {
        unimplemented!()
    }

    fn replays(&self, _before: Option<ReplayId>, _rows_max: usize) -> Result<Vec<ReplayView>, StoreError> {
        unimplemented!()
    }

    fn held_sessions(&self, _rows_max: usize) -> Result<Vec<HeldSession>, StoreError> {
        unimplemented!()
    }

    fn audit(&self, _before: Option<u64>, _rows_max: usize) -> Result<Vec<AuditRecord>, StoreError> {
        unimplemented!()
    }
}

/// The names of queues, by their number.
fn queue_names(connection: &Connection) -> Result<BTreeMap<i64, QueueName>, Fault> {
    Ok(names::queues(connection)?.into_iter().map(|(id, name, _)| (id, name)).collect())
}

/// One look at the file.
struct Look<'a> {
    connection: &'a Connection,
    queues: BTreeMap<i64, QueueName>,
}

impl Look<'_> {
    fn events(&self, key: &EventKey) -> Result<Vec<EventView>, Fault> {
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

    fn event(&self, at: Seq) -> Result<Option<EventView>, Fault> {
        if i64::try_from(at.get()).is_err() {
            return Ok(None);
        }
        let mut statement = self.connection.prepare_cached(EVENT)?;
        let mut rows = statement.query([place(at)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let event: Event = rows::event(row)?;
        let (first, count): (i64, i64) = (row.get(6)?, row.get(7)?);
        let mut deliveries = Vec::new();
        for place in first..first + count {
            deliveries.extend(self.delivery(seq(place), Stories::Left)?);
        }
        Ok(Some(EventView {
            receipt: Receipt::of(at),
            event: Arc::new(event),
            received_at: time(row.get(5)?),
            unrouted: count == 0,
            deliveries,
        }))
    }

    fn by_prefix(&self, prefix: IdPrefix, rows_max: usize) -> Result<Vec<DeliveryView>, Fault> {
        let last = Meta::load(self.connection)?.last;
        let first = "SELECT coalesce(min(seq), 0) FROM deliveries";
        let first = seq(self.connection.prepare_cached(first)?.query_row([], |row| row.get(0))?);
        let mut found = Vec::new();
        for at in prefix.places(last).take_while(|at| *at >= first).take(PLACES_MAX) {
            if found.len() == rows_max {
                break;
            }
            found.extend(self.delivery(at, Stories::Told)?);
        }
        Ok(found)
    }

    /// A part of a list, and before which place to go on if it may not be all.
    fn list(&self, filter: &Filter) -> Result<(Vec<DeliveryView>, Option<Seq>), Fault> {
        let wanted =
            |name: &QueueName| filter.service.as_ref().is_none_or(|wanted| name.service.as_str() == wanted);
        let queues: Vec<i64> =
            self.queues.iter().filter(|(_, name)| wanted(name)).map(|(id, _)| *id).collect();
        // Anybody may ask for what comes before any id.
        let before = filter.before.map_or(i64::MAX, |seq| i64::try_from(seq.get()).unwrap_or(i64::MAX));
        if queues.is_empty() {
            return Ok((Vec::new(), None));
        }
        let rows_max = i64::try_from(filter.rows_max).unwrap_or(i64::MAX);
        let indexed = match filter.state {
            Some(StateName::Ready) => Some(LIST_READY),
            Some(StateName::Due) => Some(LIST_DUE),
            Some(StateName::Dead) => Some(LIST_DEAD),
            Some(StateName::Behind | StateName::Delivered | StateName::Closed) | None => None,
        };
        let (mut places, next) = match indexed {
            Some(select) => {
                let mut places = Vec::new();
                for queue in queues {
                    let mut statement = self.connection.prepare_cached(select)?;
                    let found = statement.query_map((queue, before, rows_max), |row| row.get::<_, i64>(0))?;
                    places.extend(found.collect::<Result<Vec<_>, _>>()?);
                }
                (places, None)
            }
            None => self.scan(&queues, filter.state.map(code), before, rows_max)?,
        };
        places.sort_unstable_by(|one, other| other.cmp(one));
        places.truncate(filter.rows_max);
        let mut views = Vec::with_capacity(places.len());
        for place in places {
            views.extend(self.delivery(seq(place), Stories::Left)?);
        }
        Ok((views, next.map(seq)))
    }

    /// Goes through deliveries backwards: most of them are what such a list asks for.
    fn scan(
        &self,
        queues: &[i64],
        state: Option<i64>,
        before: i64,
        rows_max: i64,
    ) -> Result<(Vec<i64>, Option<i64>), Fault> {
        let select = "SELECT seq, queue, state FROM deliveries WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
        let mut statement = self.connection.prepare_cached(select)?;
        let mut rows = statement.query((before, ROWS_PER_LOOK))?;
        let (mut places, mut seen, mut last) = (Vec::new(), 0, 0);
        while let Some(row) = rows.next()? {
            seen += 1;
            last = row.get(0)?;
            let fits = queues.contains(&row.get(1)?) && state.is_none_or(|state| row.get(2) == Ok(state));
            if fits {
                places.push(last);
            }
            if i64::try_from(places.len()).is_ok_and(|found| found == rows_max) {
                return Ok((places, None));
            }
        }
        Ok((places, (seen == ROWS_PER_LOOK).then_some(last)))
    }

    fn unrouted(&self, after: Seq, rows_max: usize) -> Result<Vec<EventView>, Fault> {
        let mut statement = self.connection.prepare_cached(UNROUTED)?;
        let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let found = statement.query_map((place(after), rows_max), |row| row.get::<_, i64>(0))?;
        let mut views = Vec::new();
        for place in found {
            views.extend(self.event(seq(place?))?);
        }
        Ok(views)
    }

    fn delivery(&self, at: Seq, stories: Stories) -> Result<Option<DeliveryView>, Fault> {
        let mut statement = self.connection.prepare_cached(DELIVERY)?;
        let mut rows = statement.query([place(at)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let event = rows::event(row)?;
        let queue = self.queues.get(&row.get(7)?).ok_or(Fault::unreadable("the name of a queue"))?;
        Ok(Some(DeliveryView {
            id: DeliveryId::new(seq(row.get(5)?), row.get::<_, i64>(6)?.cast_unsigned()),
            queue: queue.clone(),
            subscription: row.get(8)?,
            receipt: Receipt::of(seq(row.get(9)?)),
            event_id: event.id.to_string(),
            event_source: event.source.to_string(),
            event_type: event.event_type.to_string(),
            session: event.session.as_ref().map(SessionKey::to_string),
            correlation_id: event.correlation_id.as_ref().map(CorrelationId::to_string),
            accepted_at: time(row.get(10)?),
            written_at: time(row.get(11)?),
            attempts: row.get(12)?,
            state: state_of(row)?,
            replaying: None,
            replays: 0,
            supersedes: None,
            stories: match stories {
                Stories::Told => self.stories(at, row)?,
                Stories::Left => Vec::new(),
            },
        }))
    }

    fn stories(&self, at: Seq, delivery: &Row<'_>) -> Result<Vec<Story>, Fault> {
        let select = "SELECT story FROM attempts WHERE delivery = ?1 ORDER BY n";
        let mut statement = self.connection.prepare_cached(select)?;
        let mut rows = statement.query([place(at)])?;
        let mut stories = Vec::new();
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
            stories.push(encode::read_story(bytes)?);
        }
        let last = delivery.get_ref(15)?.as_blob_or_null().map_err(rusqlite::Error::from)?;
        stories.extend(last.map(encode::read_story).transpose()?);
        Ok(stories)
    }
}

pub(super) const LIST_READY: &str =
    "SELECT seq FROM deliveries WHERE queue = ?1 AND state = 0 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
pub(super) const LIST_DUE: &str =
    "SELECT seq FROM deliveries WHERE queue = ?1 AND state = 1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
pub(super) const LIST_DEAD: &str =
    "SELECT seq FROM deliveries WHERE queue = ?1 AND state = 4 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
pub(super) const UNROUTED: &str =
    "SELECT seq FROM events WHERE deliveries = 0 AND whole = 1 AND seq > ?1 ORDER BY seq LIMIT ?2";

const fn code(state: StateName) -> i64 {
    match state {
        StateName::Ready => state::READY,
        StateName::Due => state::DUE,
        StateName::Behind => state::BEHIND,
        StateName::Delivered => state::DELIVERED,
        StateName::Dead => state::DEAD,
        StateName::Closed => unimplemented!(),
    }
}

fn state_of(row: &Row<'_>) -> Result<DeliveryState, Fault> {
    let written_at = time(row.get(11)?);
    Ok(match row.get::<_, i64>(13)? {
        state::READY => DeliveryState::Ready,
        state::DUE => DeliveryState::Due { at: time(row.get(14)?) },
        state::BEHIND => DeliveryState::Behind,
        state::DELIVERED => DeliveryState::Delivered { at: written_at },
        state::DEAD | state::HOLDING => {
            DeliveryState::Dead { at: written_at, death: Box::new(rows::death(row, 16)?) }
        }
        _ => return Err(Fault::unreadable("a known state of a delivery")),
    })
}
