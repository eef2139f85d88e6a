//! Start and end of a run.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::engine::Absences;
use redrive_core::ids::{DependencyName, Seq, ServiceName};
use redrive_core::policy::breaker::BreakerRecord;
use redrive_core::time::Timestamp;
use rusqlite::Connection;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::encode::time;
use super::fault::{SqlFault, SqlResult};
use super::replay;
use super::sql::Sql;
use super::state::StoreState;
use crate::store::{BOOKS_RECOVERED_MAX, CRASHES_MAX, RecoveredState};

const ABSENCES: &str = "absences";
const CRASHES: &str = "crashes";
const OWED: &str = "owed";

pub(super) fn recover(
    connection: &Connection,
    state: &mut StoreState,
    now: Timestamp,
) -> SqlResult<RecoveredState> {
    let now = state.meta.alive_at.map_or(now, |last| last.max(now));
    let mut crashes: Vec<(Timestamp, u64)> = memo(connection, CRASHES)?.unwrap_or_default();
    if state.meta.running {
        crashes.push((now, state.meta.last.get()));
        crashes.drain(..crashes.len().saturating_sub(CRASHES_MAX));
        set_memo(connection, CRASHES, &crashes)?;
    }
    let mut absences = absences(connection)?;
    if let Some(alive_at) = state.meta.alive_at {
        absences.add(alive_at, now);
        set_absences(connection, &absences)?;
    }
    state.meta.running = true;
    state.meta.alive_at = Some(now);
    state.save(connection)?;
    Ok(RecoveredState {
        resumes_at: now,
        seed: state.meta.seed,
        queues: state.names.with_waiting(),
        paused: paused(connection)?,
        absences,
        breakers: breakers(connection, now)?,
        replays: replay::unfinished(connection)?,
        owed: owed(connection)?,
        books: books(connection)?,
        crashes: crashes.into_iter().map(|(at, seq)| (at, Seq::new(seq))).collect(),
    })
}

pub(super) fn close(connection: &Connection, state: &mut StoreState, now: Timestamp) -> SqlResult<()> {
    state.meta.running = false;
    state.meta.alive_at = state.meta.alive_at.max(Some(now));
    state.save(connection)
}

pub(super) fn absences(connection: &Connection) -> SqlResult<Absences> {
    Ok(memo(connection, ABSENCES)?.unwrap_or_else(Absences::new))
}

pub(super) fn set_absences(connection: &Connection, absences: &Absences) -> SqlResult<()> {
    set_memo(connection, ABSENCES, absences)
}

pub(super) fn owed(connection: &Connection) -> SqlResult<BTreeSet<DependencyName>> {
    let names: Vec<String> = memo(connection, OWED)?.unwrap_or_default();
    let unreadable = |_| SqlFault::unreadable("the list of pending automatic replays");
    names.iter().map(|name| DependencyName::new(name).map_err(unreadable)).collect()
}

pub(super) fn set_owed(connection: &Connection, owed: &BTreeSet<DependencyName>) -> SqlResult<()> {
    set_memo(connection, OWED, owed)
}

fn memo<T: DeserializeOwned>(connection: &Connection, name: &str) -> SqlResult<Option<T>> {
    let text: Option<String> = connection.find("SELECT value FROM memos WHERE name = ?1", [name])?;
    let parse = |text: String| serde_json::from_str(&text).map_err(|_| SqlFault::unreadable("a stored list"));
    text.map(parse).transpose()
}

fn set_memo(connection: &Connection, name: &str, value: &impl Serialize) -> SqlResult<()> {
    let text = serde_json::to_string(value).expect("lists of names, numbers and times are JSON");
    connection.run("INSERT OR REPLACE INTO memos VALUES (?1, ?2)", [name, &text])
}

fn paused(connection: &Connection) -> SqlResult<BTreeMap<ServiceName, Timestamp>> {
    let paused = connection.all("SELECT service, since FROM pauses", [], |row| {
        let name = ServiceName::new(super::rows::text(row, 0)?);
        Ok((name.map_err(|_| SqlFault::unreadable("the name of a paused service"))?, time(row.get(1)?)))
    })?;
    Ok(paused.into_iter().collect())
}

/// Drops records that are expired or unreadable.
fn breakers(connection: &Connection, now: Timestamp) -> SqlResult<Vec<BreakerRecord>> {
    let (mut breakers, mut dropped): (Vec<BreakerRecord>, Vec<String>) = (Vec::new(), Vec::new());
    connection.each("SELECT dependency, record FROM breakers", [], |row| {
        let record: Option<BreakerRecord> = serde_json::from_str(super::rows::text(row, 1)?).ok();
        match record.filter(|record| !record.is_expired(now)) {
            Some(record) => breakers.push(record),
            None => dropped.push(row.get(0)?),
        }
        Ok(())
    })?;
    for name in dropped {
        connection.run("DELETE FROM breakers WHERE dependency = ?1", [name])?;
    }
    Ok(breakers)
}

fn books(connection: &Connection) -> SqlResult<Vec<String>> {
    let select = "SELECT text FROM books WHERE text IS NOT NULL ORDER BY turn DESC LIMIT ?1";
    let limit = i64::try_from(BOOKS_RECOVERED_MAX).expect("a small number");
    let mut books = connection.all(select, [limit], |row| Ok(row.get(0)?))?;
    books.reverse();
    Ok(books)
}
