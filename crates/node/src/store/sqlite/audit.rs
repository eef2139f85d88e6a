//! The record of what was done with letters and at the doors: who asks later finds what, by whom and why.

use super::encode::nanos;
use super::fault::SqliteFault;
use super::sql::Sql;
use super::write::BatchWriter;
use crate::store::AUDIT_RECORDS_MAX;
use crate::store::access_store::AuditActor;

const INSERT: &str = "INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// An act to put on record.
pub(super) struct AuditAct<'a> {
    pub(super) verb: &'static str,
    pub(super) what: &'a str,
    pub(super) letters: u64,
    pub(super) note: Option<&'a str>,
}

impl BatchWriter<'_> {
    /// Puts an act on record, by who gave the order that is being carried out; gives the record's number.
    pub(super) fn record(&self, act: &AuditAct<'_>) -> Result<i64, SqliteFault> {
        self.record_by(act, &self.actor)
    }

    /// Puts an act on record; gives the record's number. The oldest goes when there are too many.
    pub(super) fn record_by(&self, act: &AuditAct<'_>, by: &AuditActor) -> Result<i64, SqliteFault> {
        let last = "SELECT number FROM audit ORDER BY number DESC LIMIT 1";
        let number = self.connection.find(last, [])?.unwrap_or(0) + 1;
        let AuditAct { verb, what, letters, note } = act;
        let values = (number, nanos(self.now), verb, what, letters.cast_signed(), note, by.name());
        self.connection.run(INSERT, values)?;
        let oldest = number - i64::try_from(AUDIT_RECORDS_MAX).expect("a small number");
        self.connection.run("DELETE FROM audit WHERE number <= ?1", [oldest])?;
        Ok(number)
    }

    /// Adds letters to an act on record; says whether it is still there.
    pub(super) fn add_to_record(&self, number: i64, letters: u64) -> Result<bool, SqliteFault> {
        let update = "UPDATE audit SET letters = letters + ?2 WHERE number = ?1";
        Ok(self.connection.change(update, (number, letters.cast_signed()))? == 1)
    }
}
