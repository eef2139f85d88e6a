//! What else a batch has to remember: pauses, breakers, absences, books, and events that found who wants them.

use std::sync::Arc;

use redrive_core::engine::Waiting;
use redrive_core::ids::{Seq, ServiceName};
use redrive_core::policy::breaker::Record;
use redrive_core::time::Timestamp;
use rusqlite::OptionalExtension;
use rusqlite::types::Value;

use super::encode::{Integrity, nanos, place};
use super::fault::Fault;
use super::write::Work;
use super::{recover, rows};
use crate::store::admit::{self, Fit, Routed};
use crate::store::{Addressee, Note};

pub(super) const RELEASE: &str =
    "UPDATE deliveries SET state = 0, due_at = NULL WHERE queue = ?1 AND state = 1 AND due_at = ?2";

impl Work<'_> {
    pub(super) fn note(&mut self, note: &Note, waiting: &mut Vec<Waiting>) -> Result<(), Fault> {
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
            Note::Owe(dependency) => {
                let mut owed = recover::owed(self.connection)?;
                owed.insert(dependency.clone());
                recover::set_owed(self.connection, &owed)
            }
            Note::Paid(dependency) => {
                let mut owed = recover::owed(self.connection)?;
                owed.remove(dependency);
                recover::set_owed(self.connection, &owed)
            }
            Note::Key(key) => self.keep_key(key),
            Note::Refused(refused) => self.keep_refused(refused),
            Note::Memo { name, value } => self.keep_memo(name, value.as_deref()),
            Note::Deed(deed) => self.keep_deed(deed),
            Note::Route { event, routes } => self.route(*event, routes, waiting),
        }
    }

    pub(super) fn run<const N: usize>(&self, sql: &str, values: [Value; N]) -> Result<(), Fault> {
        self.connection.prepare_cached(sql)?.execute(rusqlite::params_from_iter(values))?;
        Ok(())
    }

    /// A service that is paused already has been so since before.
    pub(super) fn pause(&self, service: &ServiceName, since: Timestamp) -> Result<(), Fault> {
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
        let select = "SELECT id, source, type, attributes, data, content FROM events
            WHERE seq = ?1 AND deliveries = 0 AND whole = 1";
        let (event, integrity) = {
            let mut statement = self.connection.prepare_cached(select)?;
            let mut rows = statement.query([place(at)])?;
            match rows.next()? {
                Some(row) => rows::checked_event(row, 5)?,
                None => return Ok(()),
            }
        };
        let event = Arc::new(event);
        // A key that was read from damage may be the one of another event: it is neither looked up nor kept.
        let routes: Vec<Addressee> = routes.iter().map(|route| keyless(route, integrity)).collect();
        let Some(Routed { to, keys }) = admit::route(self, &routes, &event, self.now)? else { return Ok(()) };
        let update = "UPDATE events SET first_delivery = ?2, deliveries = ?3 WHERE seq = ?1";
        let first = place(self.state.meta.last.next());
        self.run(update, [place(at).into(), first.into(), admit::deliveries(to.len()).into()])?;
        self.state.meta.unrouted -= 1;
        for addressee in to {
            waiting.extend(self.add_delivery(at, (&event, integrity), addressee, Fit::Waits)?);
        }
        self.keep_keys(at, &keys)
    }
}

/// The addressee, without a key of its own where the event is damaged.
fn keyless(addressee: &Addressee, integrity: Integrity) -> Addressee {
    let mut addressee = addressee.clone();
    if integrity == Integrity::Damaged {
        addressee.copies.key = None;
    }
    addressee
}
