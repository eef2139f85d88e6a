//! Writes a batch, within a transaction: settlements, then submissions, then notes.
//!
//! An event that goes well costs two rows and one change of a row: itself, its delivery, and that it was
//! delivered, story and all. What a batch has in common is written once, at its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::breaker::Record;
use redrive_core::decide::History;
use redrive_core::engine::{Death, Next, QueueName, Settlement, Waiting};
use redrive_core::event::Event;
use redrive_core::idempotency;
use redrive_core::ids::{Seq, ServiceName};
use redrive_core::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::encode::{self, nanos, place, seq};
use super::fault::Fault;
use super::schema::state;
use super::state::State;
use super::{recover, rows};
use crate::store::admit::{self, Admitted, Backlog, Earlier, Fit, Ledger};
use crate::store::{Addressee, Batch, Note, Refusal, Settled, Submission, Submitted, Taken, Written, derive};

const FIND_EVENT: &str = "SELECT id, source, content, deliveries FROM events WHERE seq = ?1";
const INSERT_EVENT: &str = "INSERT INTO events VALUES (?1, ?2, ?3, NULL, ?4, 1, ?5, ?6, ?7, ?8, ?9)";
const INSERT_DELIVERY: &str = "INSERT INTO deliveries VALUES
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, NULL, ?9, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";
pub(super) const HEAD_OF_LANE: &str =
    "SELECT seq, queue FROM deliveries WHERE lane = ?1 AND state < 3 ORDER BY seq LIMIT 1";
/// Only what is at the head, and has had just so many attempts, is settled. (An update that returns these
/// itself would keep them in a table of its own meanwhile, which costs more than looking first.)
const FIND_HEAD: &str = "SELECT queue, lane, bytes FROM deliveries
    WHERE seq = ?1 AND content = ?2 AND attempts = ?3 AND state < 2";
const SETTLE_DELIVERED: &str = "UPDATE deliveries SET state = 3, attempts = ?2, due_at = NULL,
    written_at = ?3, start_recorded = 0, book = NULL, history = NULL, story = ?4 WHERE seq = ?1";
const SETTLE_OTHERWISE: &str = "UPDATE deliveries SET state = ?2, attempts = ?3, due_at = ?4,
    written_at = ?5, start_recorded = ?6, book = ?7, history = ?8, story = ?9 WHERE seq = ?1";
const INSERT_STORY: &str = "INSERT INTO attempts VALUES
    (?1, (SELECT coalesce(max(n), 0) + 1 FROM attempts WHERE delivery = ?1), ?2)";
pub(super) const RELEASE: &str =
    "UPDATE deliveries SET state = 0, due_at = NULL WHERE queue = ?1 AND state = 1 AND due_at = ?2";

/// Writes it.
pub(super) fn write(
    connection: &Connection,
    state: &mut State,
    batch: &Batch,
    now: Timestamp,
) -> Result<Written, Fault> {
    let mut work = Work::new(connection, state, now)?;
    let mut written = Written::default();
    for settlement in &batch.settlements {
        written.settled.push(work.settle(settlement)?);
    }
    for submission in &batch.submissions {
        written.submitted.push(work.submit(submission, &mut written.waiting)?);
    }
    for note in &batch.notes {
        work.note(note, &mut written.waiting)?;
    }
    work.finish()?;
    Ok(written)
}

/// A batch under way.
struct Work<'a> {
    connection: &'a Connection,
    state: &'a mut State,
    now: Timestamp,
    // Kept at hand, since finding a statement by its text costs as much as running some.
    find_event: CachedStatement<'a>,
    insert_event: CachedStatement<'a>,
    insert_delivery: CachedStatement<'a>,
    find_head: CachedStatement<'a>,
    settle_delivered: CachedStatement<'a>,
    /// What has ended and may be deleted some day.
    ended: Vec<Seq>,
    /// Stories told, by the book that they name.
    told: BTreeMap<u64, i64>,
}

impl Ledger for Work<'_> {
    type Error = Fault;

    fn find(&mut self, event: &Event) -> Result<Option<Earlier>, Fault> {
        let key = event.dedup_key();
        let hash = self.state.dedup.hash(key);
        for at in self.state.dedup.candidates(self.connection, hash)? {
            let mut rows = self.find_event.query([place(at)])?;
            // A run remembers events until all of them are gone.
            let Some(row) = rows.next()? else { continue };
            if rows::text(row, 0)? == key.event_id && rows::text(row, 1)? == key.source {
                let content = row.get::<_, i64>(2)?.cast_unsigned();
                return Ok(Some(Earlier { seq: at, content, deliveries: row.get(3)? }));
            }
        }
        Ok(None)
    }

    fn waiting(&self, service: &ServiceName) -> Backlog {
        self.state.names.waiting(service)
    }
}

impl<'a> Work<'a> {
    fn new(connection: &'a Connection, state: &'a mut State, now: Timestamp) -> Result<Self, Fault> {
        Ok(Self {
            connection,
            state,
            now,
            find_event: connection.prepare_cached(FIND_EVENT)?,
            insert_event: connection.prepare_cached(INSERT_EVENT)?,
            insert_delivery: connection.prepare_cached(INSERT_DELIVERY)?,
            find_head: connection.prepare_cached(FIND_HEAD)?,
            settle_delivered: connection.prepare_cached(SETTLE_DELIVERED)?,
            ended: Vec::new(),
            told: BTreeMap::new(),
        })
    }

    fn settle(&mut self, settlement: &Settlement) -> Result<Settled, Fault> {
        let Settlement { delivery, attempts_before, .. } = settlement;
        let seq = delivery.seq();
        let wanted = (place(seq), delivery.content().cast_signed(), attempts_before);
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let found: Option<(i64, Option<i64>, i64)> = self.find_head.query_row(wanted, read).optional()?;
        let Some((queue, lane, bytes)) = found else { return Ok(Settled::Stale) };
        self.update(settlement)?;
        if let Some(story) = &settlement.story {
            *self.told.entry(story.book).or_default() += 1;
        }
        if let Some(service) = &settlement.pause {
            self.pause(service, settlement.at)?;
        }
        let queue = self.state.names.index_of(queue)?;
        match &settlement.next {
            Next::Ready | Next::Due { .. } | Next::Starting => {
                if let Some(story) = &settlement.story {
                    let mut statement = self.connection.prepare_cached(INSERT_STORY)?;
                    statement.execute((place(seq), encode::story(story)))?;
                }
                return Ok(Settled::Written { promoted: None });
            }
            Next::Delivered => {
                self.state.names.counts(queue).delivered += 1;
                self.ended.push(seq);
            }
            Next::Dead(death) => {
                self.state.names.counts(queue).dead += 1;
                insert_death(self.connection, seq, death)?;
            }
        }
        let counts = self.state.names.counts(queue);
        counts.waiting -= 1;
        counts.waiting_bytes -= bytes.cast_unsigned();
        let promoted = lane.map(|lane| self.promote(lane)).transpose()?.flatten();
        Ok(Settled::Written { promoted: promoted.map(Box::new) })
    }

    /// Changes the row of a delivery.
    fn update(&mut self, settlement: &Settlement) -> Result<(), Fault> {
        let Settlement { delivery, attempts, next, history, book, at, .. } = settlement;
        let place = place(delivery.seq());
        let story = || settlement.story.as_deref().map(encode::story);
        let (code, due_at, started, last_story) = match next {
            Next::Delivered => {
                self.settle_delivered.execute((place, attempts, nanos(*at), story()))?;
                return Ok(());
            }
            Next::Ready => (state::READY, None, false, None),
            Next::Starting => (state::READY, None, true, None),
            Next::Due { at } => (state::DUE, Some(nanos(*at)), false, None),
            Next::Dead(_) => (state::DEAD, None, false, story()),
        };
        let (history, book) = (told_history(history), book.cast_signed());
        let values = (place, code, attempts, due_at, nanos(*at), started, book, history, last_story);
        self.connection.prepare_cached(SETTLE_OTHERWISE)?.execute(values)?;
        Ok(())
    }

    /// Makes the oldest of a session its head.
    fn promote(&mut self, lane: i64) -> Result<Option<Waiting>, Fault> {
        let mut statement = self.connection.prepare_cached(HEAD_OF_LANE)?;
        let found: Option<(i64, i64)> =
            statement.query_row([lane], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((head, queue)) = found else { return Ok(None) };
        self.run("UPDATE deliveries SET state = 0 WHERE seq = ?1", [head.into()])?;
        let queue = self.state.names.index_of(queue)?;
        self.state.names.counts(queue).behind -= 1;
        let name = &self.state.names.queue(queue).name;
        rows::waiting(self.connection, name, seq(head), &mut None).map(Some)
    }

    fn submit(
        &mut self,
        submission: &Submission,
        waiting: &mut Vec<Waiting>,
    ) -> Result<Result<Vec<Taken>, Refusal>, Fault> {
        let last = self.state.meta.last;
        let admitted = match admit::admit(self, submission, last)? {
            Ok(admitted) => admitted,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut taken = Vec::with_capacity(submission.events.len());
        for (Submitted { event, routes }, admitted) in submission.events.iter().zip(admitted) {
            let new = match admitted {
                Admitted::New(new) => new,
                Admitted::Known(known) => {
                    taken.push(known);
                    continue;
                }
            };
            taken.push(new.taken());
            self.state.meta.last = new.seq;
            self.state.meta.events += 1;
            let hash = self.state.dedup.hash(event.dedup_key());
            self.state.dedup.add(hash, new.seq);
            self.insert_event.execute((
                place(new.seq),
                nanos(self.now),
                new.content.cast_signed(),
                new.taken().deliveries,
                event.id.as_str(),
                event.source.as_str(),
                event.event_type.as_str(),
                encode::attributes(event),
                &event.data[..],
            ))?;
            if routes.is_empty() {
                self.state.meta.unrouted += 1;
                self.ended.push(new.seq);
            }
            for (addressee, fit) in routes.iter().zip(new.fits) {
                waiting.extend(self.add_delivery(new.seq, event, addressee, fit)?);
            }
        }
        Ok(Ok(taken))
    }

    /// Adds a delivery at the next place; says what may start now.
    fn add_delivery(
        &mut self,
        event_seq: Seq,
        event: &Arc<Event>,
        to: &Addressee,
        fit: Fit,
    ) -> Result<Option<Waiting>, Fault> {
        let seq = self.state.meta.last.next();
        self.state.meta.last = seq;
        let QueueName { service, channel } = &*to.queue;
        let id = idempotency::delivery_id(seq, event.dedup_key(), service, channel.as_ref());
        let lane = derive::lane(self.state.meta.seed, to, event).map(u64::cast_signed);
        let queue = self.state.names.queue_for(self.connection, &to.queue)?;
        let subscription = self.state.names.subscription(self.connection, &to.subscription)?;
        let bytes = event.data.len() as u64;
        let counts = self.state.names.counts(queue);
        let code = match (fit, lane) {
            (Fit::Overflows, _) => {
                counts.dead += 1;
                insert_death(self.connection, seq, &derive::overflow(to))?;
                state::DEAD
            }
            (Fit::Waits, lane) => {
                counts.waiting += 1;
                counts.waiting_bytes += bytes;
                match lane {
                    Some(lane) if self.connection.prepare_cached(HEAD_OF_LANE)?.exists([lane])? => {
                        counts.behind += 1;
                        state::BEHIND
                    }
                    Some(_) | None => state::READY,
                }
            }
        };
        let queue = self.state.names.queue(queue);
        self.insert_delivery.execute((
            place(seq),
            place(event_seq),
            queue.id,
            subscription,
            id.content().cast_signed(),
            bytes.cast_signed(),
            lane,
            code,
            nanos(self.now),
        ))?;
        let waiting = Waiting {
            id,
            queue: Arc::clone(&to.queue),
            event: Arc::clone(event),
            sequence: lane.map(|_| seq),
            replaying: None,
            attempts: 0,
            due_at: None,
            history: History::new(),
            book: None,
            written_at: self.now,
            start_recorded: false,
        };
        Ok((code == state::READY).then_some(waiting))
    }

    fn note(&mut self, note: &Note, waiting: &mut Vec<Waiting>) -> Result<(), Fault> {
        match note {
            Note::Pause(service) => self.pause(service, self.now),
            Note::Resume(service) => {
                self.run("DELETE FROM pauses WHERE service = ?1", [service.as_str().to_owned().into()])
            }
            Note::Breaker(record) => self.note_breaker(record),
            Note::Absence { from } => {
                let mut absences = recover::absences(self.connection)?;
                absences.add(*from, self.now);
                recover::set_absences(self.connection, &absences)
            }
            // Every batch is a sign of life.
            Note::Alive => Ok(()),
            Note::Book { hash, text } => {
                self.state.meta.books_turn += 1;
                let turn = self.state.meta.books_turn;
                let upsert = "INSERT INTO books VALUES (?1, ?2, 0, ?3)
                    ON CONFLICT (hash) DO UPDATE SET turn = excluded.turn, text = excluded.text";
                self.run(upsert, [hash.cast_signed().into(), turn.into(), text.to_string().into()])
            }
            Note::Release(queue) => match self.state.names.find(queue) {
                Some(queue) => self.run(RELEASE, [queue.id.into(), nanos(Timestamp::NEVER).into()]),
                None => Ok(()),
            },
            Note::Route { event, routes } => self.route(*event, routes, waiting),
        }
    }

    fn run<const N: usize>(&self, sql: &str, values: [Value; N]) -> Result<(), Fault> {
        self.connection.prepare_cached(sql)?.execute(rusqlite::params_from_iter(values))?;
        Ok(())
    }

    /// A service that is paused already has been so since before.
    fn pause(&self, service: &ServiceName, since: Timestamp) -> Result<(), Fault> {
        let insert = "INSERT OR IGNORE INTO pauses VALUES (?1, ?2)";
        self.run(insert, [service.as_str().to_owned().into(), nanos(since).into()])
    }

    fn note_breaker(&self, record: &Record) -> Result<(), Fault> {
        let name = record.service_name.as_str();
        let select = "SELECT record FROM breakers WHERE dependency = ?1";
        let mut statement = self.connection.prepare_cached(select)?;
        let stored: Option<String> = statement.query_row([name], |row| row.get(0)).optional()?;
        // A record that cannot be read guards nothing: the new one takes its place.
        let stored: Option<Record> = stored.and_then(|text| serde_json::from_str(&text).ok());
        if !record.replaces(stored.as_ref(), self.now) {
            return Ok(());
        }
        let text = serde_json::to_string(record).expect("a record has nothing that JSON has not");
        self.run("INSERT OR REPLACE INTO breakers VALUES (?1, ?2)", [name.to_owned().into(), text.into()])
    }

    fn route(&mut self, at: Seq, routes: &[Addressee], waiting: &mut Vec<Waiting>) -> Result<(), Fault> {
        let select = "SELECT id, source, type, attributes, data FROM events
            WHERE seq = ?1 AND deliveries = 0 AND whole = 1";
        let event = {
            let mut statement = self.connection.prepare_cached(select)?;
            let mut rows = statement.query([place(at)])?;
            match rows.next()? {
                Some(row) => Arc::new(rows::event(row)?),
                None => return Ok(()),
            }
        };
        if routes.is_empty() || !admit::all_fit(self, routes, &event) {
            return Ok(());
        }
        let update = "UPDATE events SET first_delivery = ?2, deliveries = ?3 WHERE seq = ?1";
        let first = place(self.state.meta.last.next());
        self.run(update, [place(at).into(), first.into(), admit::deliveries(routes.len()).into()])?;
        self.state.meta.unrouted -= 1;
        for addressee in routes {
            waiting.extend(self.add_delivery(at, &event, addressee, Fit::Waits)?);
        }
        Ok(())
    }

    /// Writes what the batch has in common.
    fn finish(self) -> Result<(), Fault> {
        let Self { connection, state, now, ended, told, .. } = self;
        if !ended.is_empty() {
            let mut statement = connection.prepare_cached("INSERT INTO ending VALUES (NULL, ?1, ?2)")?;
            statement.execute((nanos(now), encode::places(ended)))?;
        }
        count_stories(connection, &told)?;
        state.meta.alive_at = state.meta.alive_at.max(Some(now));
        state.save(connection)
    }
}

/// Adds to how many stories name which book.
pub(super) fn count_stories(connection: &Connection, told: &BTreeMap<u64, i64>) -> Result<(), Fault> {
    let upsert = "INSERT INTO books VALUES (?1, 0, ?2, NULL)
        ON CONFLICT (hash) DO UPDATE SET stories = stories + excluded.stories";
    for (book, count) in told {
        connection.prepare_cached(upsert)?.execute((book.cast_signed(), count))?;
    }
    Ok(())
}

fn insert_death(connection: &Connection, seq: Seq, death: &Death) -> Result<(), Fault> {
    let insert = "INSERT OR REPLACE INTO deaths VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection.prepare_cached(insert)?.execute((
        place(seq),
        death.category.as_str(),
        death.code.as_str(),
        death.failure_code.as_str(),
        death.tier.as_str(),
        &death.message,
        death.fingerprint.0.cast_signed(),
    ))?;
    Ok(())
}

/// None for a delivery that has been through nothing.
fn told_history(history: &History) -> Option<String> {
    let text = || serde_json::to_string(history).expect("a history has nothing that JSON has not");
    (*history != History::new()).then(text)
}
