//! Purges letters: content is deleted, and the fact is kept until retention ends.

use redrive_core::engine::PendingDelivery;

use super::audit::AuditAct;
use super::fault::SqlResult;
use super::reader::select_letters;
use super::replay;
use super::rows;
use super::schema::state;
use super::select::LetterRef;
use super::sql::Sql;
use super::write::BatchWriter;
use crate::store::letter::{LetterNumber, PurgeCommand, PurgeCursor, PurgeStep, STEP_BYTES_MAX};

pub(super) const ALL_PURGED: &str = "SELECT NOT EXISTS (SELECT 1 FROM events e CROSS JOIN deliveries d
        ON d.seq >= coalesce(e.first_delivery, e.seq + 1)
        AND d.seq < coalesce(e.first_delivery, e.seq + 1) + e.deliveries
    WHERE e.seq = ?1 AND d.state <> 7)";

impl BatchWriter<'_> {
    pub(super) fn purge(&mut self, purge: &PurgeCommand) -> SqlResult<PurgeStep> {
        let PurgeCommand { selection, what, rows_max, after, note } = purge;
        let beyond = after.map_or(i64::MIN, |after| after.number.0.cast_signed());
        let looked = select_letters(self.connection, selection, beyond, *rows_max)?;
        let open = replay::open(self.connection)?;
        let (mut deleted, mut claimed) = (0, 0);
        let (mut upto, mut bytes) = (looked.upto, 0);
        let mut found = looked.found.into_iter().peekable();
        while let Some(letter) = found.next() {
            if letter.claim.is_some_and(|claim| open.contains(&claim)) {
                claimed += 1;
                continue;
            }
            deleted += 1;
            let promoted = self.purge_letter(&letter)?;
            bytes += promoted.as_ref().map_or(0, PendingDelivery::bytes);
            self.ready.extend(promoted);
            if bytes >= STEP_BYTES_MAX && found.peek().is_some() {
                upto = Some(letter.number);
                break;
            }
        }
        let mut audit = after.map_or(0, |after| after.audit.cast_signed());
        if deleted > 0 && !self.add_to_record(audit, deleted)? {
            audit =
                self.record(&AuditAct { verb: "purge", what, letters: deleted, note: note.as_deref() })?;
        }
        let next = upto.map(|number| PurgeCursor {
            number: LetterNumber(number.cast_unsigned()),
            audit: audit.cast_unsigned(),
        });
        Ok(PurgeStep { deleted, claimed, next })
    }

    /// Releases the session that it held.
    pub(super) fn purge_letter(&mut self, letter: &LetterRef) -> SqlResult<Option<PendingDelivery>> {
        self.forget_attempts(letter.delivery)?;
        let promoted = self.close(letter, state::PURGED)?;
        let event = "SELECT event FROM deliveries WHERE seq = ?1";
        let event: i64 = self.connection.get(event, [letter.delivery])?;
        if self.connection.get(ALL_PURGED, [event])? {
            self.connection.run("UPDATE events SET data = x'' WHERE seq = ?1", [event])?;
        }
        Ok(promoted)
    }

    fn forget_attempts(&mut self, delivery: i64) -> SqlResult<()> {
        let last = "SELECT story FROM deliveries WHERE seq = ?1 AND story IS NOT NULL";
        let delete = "DELETE FROM attempts WHERE delivery = ?1 RETURNING story";
        for sql in [last, delete] {
            self.connection.each(sql, [delivery], |row| {
                *self.book_uses.entry(rows::story(row, 0)?.book).or_default() -= 1;
                Ok(())
            })?;
        }
        let update = "UPDATE deliveries SET story = NULL, history = NULL, book = NULL WHERE seq = ?1";
        self.connection.run(update, [delivery])
    }
}
