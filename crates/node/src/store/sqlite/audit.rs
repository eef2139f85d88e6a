//! The audit log of commands and access changes.

use super::encode::nanos;
use super::fault::SqlResult;
use super::sql::Sql;
use super::write::BatchWriter;
use crate::store::AUDIT_RECORDS_MAX;
use crate::store::access_store::AuditActor;

const INSERT: &str = "INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

pub(super) struct AuditAct<'a> {
    pub(super) verb: &'static str,
    pub(super) what: &'a str,
    pub(super) letters: u64,
    pub(super) note: Option<&'a str>,
}

impl BatchWriter<'_> {
    /// Records an act of the current actor; returns the record's number.
    pub(super) fn record(&self, act: &AuditAct<'_>) -> SqlResult<i64> {
        self.record_by(act, &self.actor)
    }

    /// Also deletes the oldest record beyond the limit.
    pub(super) fn record_by(&self, act: &AuditAct<'_>, by: &AuditActor) -> SqlResult<i64> {
        let last = "SELECT number FROM audit ORDER BY number DESC LIMIT 1";
        let number = self.connection.find(last, [])?.unwrap_or(0) + 1;
        let AuditAct { verb, what, letters, note } = act;
        let values = (number, nanos(self.now), verb, what, letters.cast_signed(), note, by.name());
        self.connection.run(INSERT, values)?;
        let oldest = number - i64::try_from(AUDIT_RECORDS_MAX).expect("a small number");
        self.connection.run("DELETE FROM audit WHERE number <= ?1", [oldest])?;
        Ok(number)
    }

    /// Returns false if the record is gone.
    pub(super) fn add_to_record(&self, number: i64, letters: u64) -> SqlResult<bool> {
        let update = "UPDATE audit SET letters = letters + ?2 WHERE number = ?1";
        Ok(self.connection.change(update, (number, letters.cast_signed()))? == 1)
    }
}
