//! Writes a batch within a transaction.
//!
//! A delivered event costs two inserts and one update: event, delivery, and its result with the attempt record.
//! What the batch has in common is written once at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::engine::{DeadLetterInfo, PendingDelivery, QueueName, SessionFollowers};
use redrive_core::event::Event;
use redrive_core::event::copy_rule::RememberedKeys;
use redrive_core::event::idempotency;
use redrive_core::ids::{DeliveryId, Seq, ServiceName};
use redrive_core::policy::decide::History;
use redrive_core::time::Timestamp;
use rusqlite::{CachedStatement, Connection, Row};

use super::encode::{self, Integrity, nanos, place, seq, time};
use super::fault::{SqlFault, SqlResult};
use super::letters::NewLetter;
use super::names::QueueIndex;
use super::schema::{state, whole};
use super::sql::Sql;
use super::state::StoreState;
use super::{rows, settle};
use crate::store::access_store::AuditActor;
use crate::store::admit::{self, AdmissionLedger, Backlog, BacklogFit, EarlierEvent, EventAdmission, NewKey};
use crate::store::letter::CommandRequest;
use crate::store::{
    AcceptedEvent, Addressee, BatchResult, Submission, SubmissionRefusal, SubmittedEvent, WriteBatch, derive,
};

const FIND_EVENT: &str = "SELECT id, source, content, deliveries, received_at, whole FROM events
    WHERE seq = ?1";
const INSERT_EVENT: &str = "INSERT INTO events VALUES (?1, ?2, ?3, NULL, ?4, ?10, ?5, ?6, ?7, ?8, ?9)";
const INSERT_DELIVERY: &str = "INSERT INTO deliveries VALUES
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, NULL, ?10, 0, NULL, NULL, ?11, NULL, ?12, ?13, ?14)";

pub(super) fn write(
    connection: &Connection,
    state: &mut StoreState,
    batch: &WriteBatch,
    now: Timestamp,
) -> SqlResult<BatchResult> {
    let mut work = BatchWriter::new(connection, state, now)?;
    let mut written = BatchResult::default();
    for settlement in &batch.settlements {
        written.settled.push(work.settle(settlement)?);
    }
    for submission in &batch.submissions {
        written.submitted.push(work.submit(submission)?);
    }
    for change in &batch.changes {
        work.apply_change(change)?;
    }
    for CommandRequest { command, by } in &batch.commands {
        work.actor = by.clone();
        work.command(command)?;
    }
    work.actor = AuditActor::unknown();
    for advance in &batch.advances {
        written.advanced.push(work.advance(advance)?);
    }
    // Every batch is a heartbeat; housekeeping is not.
    work.state.meta.alive_at = work.state.meta.alive_at.max(Some(now));
    written.waiting = std::mem::take(&mut work.ready);
    work.finish()?;
    Ok(written)
}

pub(super) struct NewDelivery {
    pub(super) event: Seq,
    pub(super) queue: QueueIndex,
    pub(super) subscription: i64,
    pub(super) lane: Option<i64>,
    /// One of [`state`].
    pub(super) state: i64,
    pub(super) written_at: Timestamp,
    pub(super) attempts: u32,
    /// Of the last attempt.
    pub(super) story: Option<Vec<u8>>,
    pub(super) replays: Option<u32>,
    /// Its place in the session, if not its own number.
    pub(super) turn: Option<i64>,
    /// The event whose letter it replaces.
    pub(super) linked: Option<i64>,
}

impl NewDelivery {
    pub(super) const fn new(
        event: Seq,
        queue: QueueIndex,
        subscription: i64,
        lane: Option<i64>,
        state: i64,
        written_at: Timestamp,
    ) -> Self {
        let (attempts, story, replays, turn, linked) = (0, None, None, None, None);
        Self { event, queue, subscription, lane, state, written_at, attempts, story, replays, turn, linked }
    }
}

pub(super) struct BatchWriter<'a> {
    pub(super) connection: &'a Connection,
    pub(super) state: &'a mut StoreState,
    pub(super) now: Timestamp,
    pub(super) actor: AuditActor,
    // Prepared up front: finding a statement by its text costs as much as running it.
    find_event: CachedStatement<'a>,
    insert_event: CachedStatement<'a>,
    insert_delivery: CachedStatement<'a>,
    pub(super) find_head: CachedStatement<'a>,
    pub(super) settle_delivered: CachedStatement<'a>,
    /// Deliveries that may start now.
    pub(super) ready: Vec<PendingDelivery>,
    /// To be deleted after retention.
    pub(super) ended: Vec<Seq>,
    /// How many more or fewer attempt records name each rule book.
    pub(super) book_uses: BTreeMap<u64, i64>,
}

impl AdmissionLedger for BatchWriter<'_> {
    type Error = SqlFault;

    fn find(&mut self, event: &Event, content: u64) -> SqlResult<Option<EarlierEvent>> {
        let key = event.dedup_key();
        let hash = self.state.dedup.hash(key);
        let mut found: Option<EarlierEvent> = None;
        for at in self.state.dedup.candidates(self.connection, hash)? {
            let mut rows = self.find_event.query([place(at)])?;
            // A run outlives some of its events.
            let Some(row) = rows.next()? else { continue };
            // Imported events do not make sent ones duplicates.
            let was_sent = row.get::<_, i64>(5)? != whole::IMPORTED;
            if was_sent && rows::text(row, 0)? == key.event_id && rows::text(row, 1)? == key.source {
                let earlier = earlier(at, row)?;
                found = Some(found.map_or(earlier, |found| found.beside(earlier, content)));
            }
        }
        Ok(found)
    }

    fn find_key(&mut self, key: &[u8], now: Timestamp) -> SqlResult<Option<EarlierEvent>> {
        let select = "SELECT event, until FROM delivery_keys WHERE key = ?1";
        let found = self.connection.first(select, [key], |row| Ok((seq(row.get(0)?), time(row.get(1)?))))?;
        let Some((at, until)) = found else { return Ok(None) };
        let mut rows = self.find_event.query([place(at)])?;
        let found = rows.next()?.map(|row| earlier(at, row)).transpose()?;
        let is_kept = found.is_some_and(|earlier| earlier.remembered.kept);
        if !is_kept && until <= now {
            return Ok(None);
        }
        // Only the key may be left.
        let remembered = RememberedKeys { last_at: now, kept: false };
        let gone = EarlierEvent { seq: at, content: 0, deliveries: 1, accepted_at: now, remembered };
        Ok(Some(found.unwrap_or(gone)))
    }

    fn waiting(&self, service: &ServiceName) -> Backlog {
        self.state.names.waiting(service)
    }
}

impl<'a> BatchWriter<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        state: &'a mut StoreState,
        now: Timestamp,
    ) -> SqlResult<Self> {
        Ok(Self {
            connection,
            state,
            now,
            actor: AuditActor::unknown(),
            find_event: connection.prepare_cached(FIND_EVENT)?,
            insert_event: connection.prepare_cached(INSERT_EVENT)?,
            insert_delivery: connection.prepare_cached(INSERT_DELIVERY)?,
            find_head: connection.prepare_cached(settle::FIND_HEAD)?,
            settle_delivered: connection.prepare_cached(settle::SETTLE_DELIVERED)?,
            ready: Vec::new(),
            ended: Vec::new(),
            book_uses: BTreeMap::new(),
        })
    }

    fn submit(
        &mut self,
        submission: &Submission,
    ) -> SqlResult<Result<Vec<AcceptedEvent>, SubmissionRefusal>> {
        let last = self.state.meta.last;
        let admitted = match admit::admit(self, submission, last, self.now)? {
            Ok(admitted) => admitted,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut taken = Vec::with_capacity(submission.events.len());
        for (SubmittedEvent { event, routes }, admitted) in submission.events.iter().zip(admitted) {
            let new = match admitted {
                EventAdmission::New(new) => new,
                EventAdmission::Known(known) => {
                    taken.push(known);
                    continue;
                }
            };
            let now_taken = new.taken(self.now);
            taken.push(now_taken);
            self.write_event(event, new.content, now_taken.deliveries, whole::SENT)?;
            if routes.is_empty() {
                self.state.meta.unrouted += 1;
                self.ended.push(new.seq);
            }
            for (addressee, fit) in routes.iter().zip(new.fits) {
                let Some(fit) = fit else { continue };
                let ready = self.add_delivery(new.seq, (event, Integrity::Intact), addressee, fit)?;
                self.ready.extend(ready);
            }
            self.write_keys(new.seq, &new.keys)?;
        }
        Ok(Ok(taken))
    }

    /// Assigns the next sequence number; `whole` is one of [`whole`].
    pub(super) fn write_event(
        &mut self,
        event: &Event,
        content: u64,
        deliveries: u32,
        whole: i64,
    ) -> SqlResult<Seq> {
        let seq = self.state.meta.last.next();
        let hash = self.state.dedup.hash(event.dedup_key());
        self.state.dedup.add(hash, seq);
        self.state.meta.last = seq;
        self.state.meta.events += 1;
        self.insert_event.execute((
            place(seq),
            nanos(self.now),
            content.cast_signed(),
            deliveries,
            event.id.as_str(),
            event.source.as_str(),
            event.event_type.as_str(),
            encode::attributes(event),
            &event.data[..],
            whole,
        ))?;
        Ok(seq)
    }

    pub(super) fn insert_delivery(&mut self, event: &Event, new: &NewDelivery) -> SqlResult<DeliveryId> {
        let seq = self.state.meta.last.next();
        self.state.meta.last = seq;
        let queue = self.state.names.queue(new.queue);
        let QueueName { service, channel } = &*queue.name;
        let id = idempotency::delivery_id(seq, event.dedup_key(), service, channel.as_ref());
        self.insert_delivery.execute((
            place(seq),
            place(new.event),
            queue.id,
            new.subscription,
            id.content().cast_signed(),
            (event.data.len() as u64).cast_signed(),
            new.lane,
            new.state,
            new.attempts,
            nanos(new.written_at),
            &new.story,
            new.replays,
            new.turn,
            new.linked,
        ))?;
        Ok(id)
    }

    pub(super) fn write_keys(&mut self, event: Seq, keys: &[NewKey]) -> SqlResult<()> {
        for NewKey { key, until } in keys {
            let insert = "INSERT OR REPLACE INTO delivery_keys VALUES (?1, ?2, ?3)";
            self.connection.run(insert, (key, place(event), nanos(*until)))?;
        }
        Ok(())
    }

    /// Returns the delivery if it may start now.
    pub(super) fn add_delivery(
        &mut self,
        event_seq: Seq,
        (event, integrity): (&Arc<Event>, Integrity),
        to: &Addressee,
        fit: BacklogFit,
    ) -> SqlResult<Option<PendingDelivery>> {
        let lane = derive::lane(self.state.meta.seed, to, event).map(u64::cast_signed);
        let queue = self.state.names.queue_for(self.connection, &to.queue)?;
        let subscription = self.state.names.subscription(self.connection, &to.subscription)?;
        let (code, death) = self.place(lane, to, fit)?;
        let new = NewDelivery::new(event_seq, queue, subscription, lane, code, self.now);
        let id = self.insert_delivery(event, &new)?;
        if let Some(death) = &death {
            self.state.names.counts(queue).dead += 1;
            let (delivery, died_at) = (place(id.seq()), self.now);
            let queue = self.state.names.queue(queue).id;
            self.add_letter(&NewLetter { delivery, queue, subscription, event, death, died_at })?;
        } else {
            self.state.names.count_waiting(queue, event.data.len() as u64, code);
        }
        let waiting = PendingDelivery {
            id,
            queue: Arc::clone(&to.queue),
            event: Arc::clone(event),
            sequence: lane.map(|_| id.seq()),
            replaying: None,
            attempts: 0,
            due_at: None,
            history: History::new(),
            book: None,
            written_at: self.now,
            start_recorded: false,
            damaged: integrity == Integrity::Damaged,
        };
        Ok((code == state::READY).then_some(waiting))
    }

    /// State of a new delivery in its session, and why it is dead if it is.
    fn place(
        &mut self,
        lane: Option<i64>,
        to: &Addressee,
        fit: BacklogFit,
    ) -> SqlResult<(i64, Option<DeadLetterInfo>)> {
        let head = lane.map(|lane| self.head_of_lane(lane)).transpose()?.flatten();
        let death = match (fit, lane, head) {
            (BacklogFit::Waits, None, _) | (BacklogFit::Waits, Some(_), None) => {
                return Ok((state::READY, None));
            }
            (BacklogFit::Waits, Some(lane), Some(head)) => {
                let holder = if head.may_be_held { self.held(lane)? } else { None };
                if holder.is_none_or(|held| held.behind < to.bound.per_session_max) {
                    if holder.is_some() {
                        self.wait_behind(lane)?;
                    }
                    return Ok((state::BEHIND, None));
                }
                derive::session_overflow(to)
            }
            (BacklogFit::Overflows, _, _) => derive::overflow(to),
            (BacklogFit::Violates, _, _) => derive::violation(to),
        };
        match (death.followers, lane) {
            (SessionFollowers::Continue, _) | (SessionFollowers::Wait, None) => {
                Ok((state::DEAD, Some(death)))
            }
            (SessionFollowers::Wait, Some(lane)) => {
                // Behind others it holds nothing yet.
                if head.is_none() {
                    self.hold(lane, place(self.state.meta.last.next()))?;
                }
                Ok((state::HOLDING, Some(death)))
            }
        }
    }

    pub(super) fn finish(self) -> SqlResult<()> {
        let Self { connection, state, now, ended, book_uses, .. } = self;
        if !ended.is_empty() {
            connection
                .run("INSERT INTO ending VALUES (NULL, ?1, ?2)", (nanos(now), encode::places(ended)))?;
        }
        count_book_uses(connection, &book_uses)?;
        state.save(connection)
    }
}

/// From a row of [`FIND_EVENT`].
fn earlier(at: Seq, row: &Row<'_>) -> SqlResult<EarlierEvent> {
    let accepted_at = time(row.get(4)?);
    Ok(EarlierEvent {
        seq: at,
        content: row.get::<_, i64>(2)?.cast_unsigned(),
        deliveries: row.get(3)?,
        accepted_at,
        remembered: RememberedKeys { last_at: accepted_at, kept: row.get::<_, i64>(5)? != whole::ID_ALONE },
    })
}

/// Updates how many attempt records name each rule book.
pub(super) fn count_book_uses(connection: &Connection, book_uses: &BTreeMap<u64, i64>) -> SqlResult<()> {
    let upsert = "INSERT INTO books VALUES (?1, 0, ?2, NULL)
        ON CONFLICT (hash) DO UPDATE SET stories = stories + excluded.stories";
    for (book, count) in book_uses {
        connection.run(upsert, (book.cast_signed(), count))?;
    }
    Ok(())
}
