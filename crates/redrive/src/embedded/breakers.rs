//! Rows of the breakers' records.
//!
//! Invariant: a record is compared and written in one transaction, so no update is lost. An unreadable row
//! counts as missing and is overwritten.

use redrive_core::ids::DependencyName;
use redrive_core::policy::breaker::BreakerRecord;
use redrive_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::leases::millis;
use crate::shared::{Swap, is_same};

pub(super) fn load(
    connection: &Connection,
    dependency: &DependencyName,
) -> Result<Option<BreakerRecord>, rusqlite::Error> {
    let sql = "SELECT record FROM breakers WHERE dependency = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let found: Option<String> = statement.query_row([dependency.as_str()], |row| row.get(0)).optional()?;
    Ok(found.and_then(|text| match serde_json::from_str(&text) {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::warn!(%dependency, %error, "shared breaker record is unreadable");
            None
        }
    }))
}

pub(super) fn swap(
    connection: &Connection,
    expected: Option<&BreakerRecord>,
    record: &BreakerRecord,
) -> Result<Swap, rusqlite::Error> {
    if !is_same(load(connection, &record.service_name)?.as_ref(), expected) {
        return Ok(Swap::Beaten);
    }
    let text = serde_json::to_string(record).expect("names, numbers and times can always be written");
    let sql = "INSERT INTO breakers VALUES (?1, ?2, ?3)
        ON CONFLICT (dependency) DO UPDATE SET record = ?2, expires_at = ?3";
    let written = params![record.service_name.as_str(), text, millis(record.expires_at)];
    connection.prepare_cached(sql)?.execute(written)?;
    Ok(Swap::Written)
}

/// Deletes at most `rows_max` expired records and returns how many.
pub(super) fn sweep(
    connection: &Connection,
    rows_max: usize,
    now: Timestamp,
) -> Result<usize, rusqlite::Error> {
    let sql = "DELETE FROM breakers WHERE rowid IN
        (SELECT rowid FROM breakers WHERE expires_at <= ?1 LIMIT ?2)";
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    connection.prepare_cached(sql)?.execute(params![millis(now), rows_max])
}
