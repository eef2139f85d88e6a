//! Applies state changes of a batch: pauses, breakers, absences, rule books, routing.

use std::sync::Arc;

use redrive_core::ids::{Seq, ServiceName};
use redrive_core::policy::breaker::BreakerRecord;
use redrive_core::time::Timestamp;

use super::encode::{Integrity, nanos, place};
use super::fault::SqlResult;
use super::sql::Sql;
use super::write::BatchWriter;
use super::{recover, rows};
use crate::store::admit::{self, BacklogFit, RoutePlan};
use crate::store::{Addressee, StateChange};

pub(super) const RELEASE: &str =
    "UPDATE deliveries SET state = 0, due_at = NULL WHERE queue = ?1 AND state = 1 AND due_at = ?2";

impl BatchWriter<'_> {
    pub(super) fn apply_change(&mut self, change: &StateChange) -> SqlResult<()> {
        match change {
            StateChange::Pause(service) => self.pause(service, self.now),
            StateChange::Resume(service) => {
                self.connection.run("DELETE FROM pauses WHERE service = ?1", [service.as_str()])
            }
            StateChange::Breaker(record) => self.save_breaker(record),
            StateChange::Absence { from } => {
                let mut absences = recover::absences(self.connection)?;
                absences.add(*from, self.now);
                recover::set_absences(self.connection, &absences)
            }
            // Every batch is a heartbeat.
            StateChange::Alive => Ok(()),
            StateChange::Book { hash, text } => {
                self.state.meta.books_turn += 1;
                let turn = self.state.meta.books_turn;
                let upsert = "INSERT INTO books VALUES (?1, ?2, 0, ?3)
                    ON CONFLICT (hash) DO UPDATE SET turn = excluded.turn, text = excluded.text";
                self.connection.run(upsert, (hash.cast_signed(), turn, text))
            }
            StateChange::Release(queue) => match self.state.names.find(queue) {
                Some(queue) => self.connection.run(RELEASE, [queue.id, nanos(Timestamp::NEVER)]),
                None => Ok(()),
            },
            StateChange::AutoReplayDue(dependency) => {
                let mut owed = recover::owed(self.connection)?;
                owed.insert(dependency.clone());
                recover::set_owed(self.connection, &owed)
            }
            StateChange::AutoReplayDone(dependency) => {
                let mut owed = recover::owed(self.connection)?;
                owed.remove(dependency);
                recover::set_owed(self.connection, &owed)
            }
            StateChange::Key(key) => self.save_key(key),
            StateChange::Refused(refused) => self.save_refused(refused),
            StateChange::Memo { name, value } => self.save_memo(name, value.as_deref()),
            StateChange::Audit(deed) => self.save_audit_entry(deed),
            StateChange::Route { event, routes } => self.route(*event, routes),
        }
    }

    /// Keeps the start of an existing pause.
    pub(super) fn pause(&self, service: &ServiceName, since: Timestamp) -> SqlResult<()> {
        self.connection.run("INSERT OR IGNORE INTO pauses VALUES (?1, ?2)", (service.as_str(), nanos(since)))
    }

    fn save_breaker(&self, record: &BreakerRecord) -> SqlResult<()> {
        let name = record.service_name.as_str();
        let select = "SELECT record FROM breakers WHERE dependency = ?1";
        let stored: Option<String> = self.connection.find(select, [name])?;
        // An unreadable record is replaced.
        let stored: Option<BreakerRecord> = stored.and_then(|text| serde_json::from_str(&text).ok());
        if !record.replaces(stored.as_ref(), self.now) {
            return Ok(());
        }
        let text = serde_json::to_string(record).expect("a record has nothing that JSON has not");
        self.connection.run("INSERT OR REPLACE INTO breakers VALUES (?1, ?2)", (name, text))
    }

    fn route(&mut self, at: Seq, routes: &[Addressee]) -> SqlResult<()> {
        let select = "SELECT id, source, type, attributes, data, content FROM events
            WHERE seq = ?1 AND deliveries = 0 AND whole = 1";
        let found = self.connection.first(select, [place(at)], |row| rows::checked_event(row, 5))?;
        let Some((event, integrity)) = found else { return Ok(()) };
        let event = Arc::new(event);
        // A key read from a damaged event may belong to another one: neither look it up nor store it.
        let routes: Vec<Addressee> = routes.iter().map(|route| keyless(route, integrity)).collect();
        let Some(RoutePlan { to, keys }) = admit::route(self, &routes, &event, self.now)? else {
            return Ok(());
        };
        let update = "UPDATE events SET first_delivery = ?2, deliveries = ?3 WHERE seq = ?1";
        let first = place(self.state.meta.last.next());
        self.connection.run(update, (place(at), first, admit::deliveries(to.len())))?;
        self.state.meta.unrouted -= 1;
        for addressee in to {
            let ready = self.add_delivery(at, (&event, integrity), addressee, BacklogFit::Waits)?;
            self.ready.extend(ready);
        }
        self.write_keys(at, &keys)
    }
}

fn keyless(addressee: &Addressee, integrity: Integrity) -> Addressee {
    let mut addressee = addressee.clone();
    if integrity == Integrity::Damaged {
        addressee.copies.key = None;
    }
    addressee
}
