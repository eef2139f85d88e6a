//! Runs commands on dead letters. Each succeeds whole or is refused without a change.

use redrive_core::engine::PendingDelivery;
use redrive_core::ids::{DeliveryId, Receipt};

use super::audit::AuditAct;
use super::encode::{nanos, place, seq};
use super::fault::SqlResult;
use super::rows::DeliveryRow;
use super::schema::{state, whole};
use super::select::{self, LetterRef};
use super::session_order::HeldLane;
use super::sql::Sql;
use super::write::{BatchWriter, NewDelivery};
use crate::store::admit::AdmissionLedger;
use crate::store::derive;
use crate::store::letter::{CommandRefusal, EditCommand, LetterCommand};

const CLOSE: &str =
    "UPDATE deliveries SET state = ?2, written_at = ?3, linked = coalesce(?4, linked) WHERE seq = ?1";

/// A refusal is no fault: the batch goes on.
pub(super) type CommandResult<T> = SqlResult<Result<T, CommandRefusal>>;

impl BatchWriter<'_> {
    pub(super) fn command(&mut self, command: &LetterCommand) -> SqlResult<()> {
        match command {
            LetterCommand::Replay(new, answer) => answer.set(self.begin_replay(new)?),
            LetterCommand::Change { replay, act, answer } => answer.set(self.change_replay(*replay, *act)?),
            LetterCommand::Skip { letter, note, answer } => {
                answer.set(self.skip(*letter, note.as_deref())?);
            }
            LetterCommand::ReleaseSession { letter, answer } => answer.set(self.release_session(*letter)?),
            LetterCommand::Purge(purge, answer) => answer.set(Ok(self.purge(purge)?)),
            LetterCommand::Edit(edit, answer) => answer.set(self.edit(edit)?),
            LetterCommand::Import(letters, answer) => answer.set(Ok(self.import(letters)?)),
            LetterCommand::Reassign(reassign, answer) => answer.set(Ok(self.reassign(reassign)?)),
        }
        Ok(())
    }

    fn skip(&mut self, id: DeliveryId, note: Option<&str>) -> CommandResult<u64> {
        let letter = match self.free_letter(id)? {
            Ok(letter) => letter,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let held = self.held_by(self.delivery(letter.delivery)?.lane, letter.delivery)?;
        let ready = self.close(&letter, state::SKIPPED)?;
        self.ready.extend(ready);
        let behind = held.map_or(Ok(0), |(lane, held)| self.released(lane, held))?;
        self.record(&AuditAct { verb: "skip", what: &id.to_string(), letters: 1, note })?;
        Ok(Ok(behind))
    }

    /// Closes a letter and releases the session that it held.
    pub(super) fn close(&mut self, letter: &LetterRef, code: i64) -> SqlResult<Option<PendingDelivery>> {
        let before = self.delivery(letter.delivery)?;
        self.close_in_place(letter, before, code, None)?;
        match before.lane.filter(|_| before.state == state::HOLDING) {
            Some(lane) => self.advance_lane(lane),
            None => Ok(None),
        }
    }

    fn close_in_place(
        &mut self,
        letter: &LetterRef,
        before: DeliveryRow,
        code: i64,
        linked: Option<i64>,
    ) -> SqlResult<()> {
        self.remove_letter(letter.number)?;
        self.connection.run(CLOSE, (letter.delivery, code, nanos(self.now), linked))?;
        let queue = self.state.names.index_of(before.queue)?;
        let counts = self.state.names.counts(queue);
        counts.dead -= 1;
        counts.closed += 1;
        self.ended.push(seq(letter.delivery));
        Ok(())
    }

    fn release_session(&mut self, id: DeliveryId) -> CommandResult<u64> {
        let Some(letter) = select::find(self.connection, id)? else {
            let is_known = select::is_delivery(self.connection, id)?;
            let refusal =
                if is_known { CommandRefusal::HoldsNothing(id) } else { CommandRefusal::NoSuchLetter(id) };
            return Ok(Err(refusal));
        };
        let DeliveryRow { lane, turn, .. } = self.delivery(letter.delivery)?;
        let Some((lane, held)) = self.held_by(lane, letter.delivery)? else {
            return Ok(Err(CommandRefusal::HoldsNothing(id)));
        };
        let letters = self.holding_from(lane, turn)?;
        for letter in &letters {
            self.connection.run("UPDATE deliveries SET state = ?2 WHERE seq = ?1", [*letter, state::DEAD])?;
        }
        let ready = self.advance_lane(lane)?;
        self.ready.extend(ready);
        let letters = letters.len() as u64;
        self.record(&AuditAct { verb: "let-go", what: &id.to_string(), letters, note: None })?;
        Ok(Ok(self.released(lane, held)?))
    }

    /// Deliveries released; 0 if the next letter of the session holds it too.
    fn released(&self, lane: i64, before: HeldLane) -> SqlResult<u64> {
        Ok(if self.held(lane)?.is_some() { 0 } else { before.behind })
    }

    fn edit(&mut self, edit: &EditCommand) -> CommandResult<(Receipt, DeliveryId)> {
        let letter = match self.free_letter(edit.letter)? {
            Ok(letter) => letter,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // The copied attributes would pass as intact.
        if let Some(id) = self.damaged(letter.delivery)? {
            return Ok(Err(CommandRefusal::Damaged(id)));
        }
        let content = derive::content_hash(&edit.event);
        if let Some(earlier) = self.find(&edit.event, content)? {
            return Ok(Err(CommandRefusal::EventExists(Receipt::of(earlier.seq))));
        }
        let before = self.delivery(letter.delivery)?;
        let event = self.write_event(&edit.event, content, 1, whole::SENT)?;
        let held = self.held_by(before.lane, letter.delivery)?;
        // Order matters: the old delivery leaves its turn, the new one takes it, then the session advances.
        self.close_in_place(&letter, before, state::SUPERSEDED, Some(place(event)))?;
        let queue = self.state.names.index_of(before.queue)?;
        let code = self.enter(queue, before.lane, before.turn, edit.event.data.len() as u64)?;
        let new = NewDelivery {
            turn: before.lane.map(|_| before.turn),
            linked: Some(before.event),
            ..NewDelivery::new(event, queue, before.subscription, before.lane, code, self.now)
        };
        let id = self.insert_delivery(&edit.event, &new)?;
        if let Some((lane, _)) = held {
            self.connection.run("UPDATE held SET letter = ?2 WHERE lane = ?1", [lane, place(id.seq())])?;
        }
        if code == state::READY {
            let ready = self.waiting(before.queue, place(id.seq()))?;
            self.ready.push(ready);
        }
        let what = edit.letter.to_string();
        self.record(&AuditAct { verb: "edit", what: &what, letters: 1, note: edit.note.as_deref() })?;
        Ok(Ok((Receipt::of(event), id)))
    }
}
