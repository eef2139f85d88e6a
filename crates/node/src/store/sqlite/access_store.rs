//! Writes API keys, refused bodies and memos.

use super::audit::AuditAct;
use super::encode::nanos;
use super::fault::SqlResult;
use super::sql::Sql;
use super::write::BatchWriter;
use crate::store::access_store::{
    AuditEntry, KEYS_MAX, KeyRecord, REFUSED_BYTES_MAX, REFUSED_MAX, RefusedBody,
};

/// Separates memos from the store's own lists in the same table.
const MEMO_PREFIX: &str = "memo:";

const UPDATE_KEY: &str = "UPDATE keys SET record = ?2 WHERE id = ?1";
const COUNT_KEYS: &str = "SELECT count(*) FROM keys";
const INSERT_KEY: &str = "INSERT INTO keys (id, record) VALUES (?1, ?2)";
const LAST_REFUSED: &str = "SELECT number FROM refused ORDER BY number DESC LIMIT 1";
const INSERT_REFUSED: &str = "INSERT INTO refused VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
/// Reads sizes from an index, not the bodies.
pub(super) const REFUSED_SIZES: &str =
    "SELECT number, kept_bytes FROM refused INDEXED BY refused_sizes ORDER BY number DESC";

pub(super) fn memo_name(name: &str) -> String {
    format!("{MEMO_PREFIX}{name}")
}

impl BatchWriter<'_> {
    /// Replaces the key with the same id; ignores a new one beyond the limit.
    pub(super) fn save_key(&self, key: &KeyRecord) -> SqlResult<()> {
        let record = serde_json::to_string(key).expect("a key has nothing that JSON has not");
        let is_known = self.connection.change(UPDATE_KEY, (&key.id, &record))? > 0;
        if is_known || self.connection.get::<u32>(COUNT_KEYS, [])? as usize >= KEYS_MAX {
            return Ok(());
        }
        self.connection.run(INSERT_KEY, (&key.id, &record))
    }

    /// Deletes the oldest bodies beyond the limits.
    pub(super) fn save_refused(&self, refused: &RefusedBody) -> SqlResult<()> {
        let number = self.connection.find(LAST_REFUSED, [])?.unwrap_or(0_i64) + 1;
        let refused = refused.as_kept(number.cast_unsigned(), self.now);
        let headers = serde_json::to_string(&refused.headers).expect("pairs of texts are JSON");
        let (bytes, kept) = (refused.body_bytes.cast_signed(), (refused.kept_bytes() as u64).cast_signed());
        let (source, reason, body) = (&refused.source, &refused.reason, &refused.body[..]);
        let values = (number, nanos(refused.at), source, reason, headers, bytes, kept, body);
        self.connection.run(INSERT_REFUSED, values)?;
        let Some(upto) = self.refused_too_many()? else { return Ok(()) };
        self.connection.run("DELETE FROM refused WHERE number <= ?1", [upto])
    }

    /// The newest refused body that must be deleted.
    fn refused_too_many(&self) -> SqlResult<Option<i64>> {
        let mut statement = self.connection.prepare_cached(REFUSED_SIZES)?;
        let mut rows = statement.query([])?;
        let (mut count, mut bytes) = (0, 0);
        while let Some(row) = rows.next()? {
            count += 1;
            bytes += usize::try_from(row.get::<_, i64>(1)?).unwrap_or_default();
            if count > REFUSED_MAX || bytes > REFUSED_BYTES_MAX {
                return Ok(Some(row.get(0)?));
            }
        }
        Ok(None)
    }

    pub(super) fn save_memo(&self, name: &str, value: Option<&str>) -> SqlResult<()> {
        let name = memo_name(name);
        match value {
            Some(value) => {
                self.connection.run("INSERT OR REPLACE INTO memos VALUES (?1, ?2)", [&*name, value])
            }
            None => self.connection.run("DELETE FROM memos WHERE name = ?1", [name]),
        }
    }

    pub(super) fn save_audit_entry(&self, deed: &AuditEntry) -> SqlResult<()> {
        let AuditEntry { act, what, by, note } = deed;
        self.record_by(&AuditAct { verb: act, what, letters: 0, note: note.as_deref() }, by)?;
        Ok(())
    }
}
