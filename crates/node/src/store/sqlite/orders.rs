//! Carries out what people want done with dead letters; each command is done whole, or refused and nothing of it.

use redrive_core::engine::{QueueName, Waiting};
use redrive_core::event::idempotency;
use redrive_core::ids::{DeliveryId, Receipt, Seq};
use rusqlite::Row;

use super::audit::Act;
use super::encode::{nanos, place, seq};
use super::fault::Fault;
use super::held::Held;
use super::schema::{state, whole};
use super::select::{self, Letter};
use super::write::{Keeping, Work};
use crate::store::admit::Ledger;
use crate::store::derive;
use crate::store::letter::{Edit, LetterCommand, OrderRefusal};

const CLOSE: &str =
    "UPDATE deliveries SET state = ?2, written_at = ?3, linked = coalesce(?4, linked) WHERE seq = ?1";
const INSERT_IN_PLACE: &str = "INSERT INTO deliveries VALUES
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, NULL, ?9, 0, NULL, NULL, NULL, NULL, NULL, ?10, ?11)";

/// A dead letter's place.
#[derive(Clone, Copy)]
struct Place {
    event: i64,
    queue: i64,
    subscription: i64,
    lane: Option<i64>,
    turn: i64,
    state: i64,
}

impl Work<'_> {
    pub(super) fn command(
        &mut self,
        command: &LetterCommand,
        waiting: &mut Vec<Waiting>,
    ) -> Result<(), Fault> {
        match command {
            LetterCommand::Replay(new, answer) => answer.set(self.begin_replay(new)?),
            LetterCommand::Change { replay, act, answer } => answer.set(self.change_replay(*replay, *act)?),
            LetterCommand::Skip { letter, note, answer } => {
                answer.set(self.skip(*letter, note.as_deref(), waiting)?);
            }
            LetterCommand::LetGo { letter, answer } => answer.set(self.let_go(*letter, waiting)?),
            LetterCommand::Purge(purge, answer) => answer.set(Ok(self.purge(purge, waiting)?)),
            LetterCommand::Edit(edit, answer) => answer.set(self.edit(edit, waiting)?),
            LetterCommand::Import(letters, answer) => answer.set(Ok(self.import(letters)?)),
            LetterCommand::Reassign(reassign, answer) => answer.set(Ok(self.reassign(reassign, waiting)?)),
        }
        Ok(())
    }

    fn skip(
        &mut self,
        id: DeliveryId,
        note: Option<&str>,
        waiting: &mut Vec<Waiting>,
    ) -> Result<Result<u64, OrderRefusal>, Fault> {
        let letter = match self.free_letter(id)? {
            Ok(letter) => letter,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let lane = self.place_of(letter.delivery)?.lane;
        let held = self.held_by(lane, letter.delivery)?;
        waiting.extend(self.close(&letter, state::SKIPPED)?);
        let behind = held.map_or(Ok(0), |(lane, held)| self.released(lane, held))?;
        self.record(&Act { verb: "skip", what: &id.to_string(), letters: 1, note })?;
        Ok(Ok(behind))
    }

    /// Does with a letter for good; those that it held go on.
    pub(super) fn close(&mut self, letter: &Letter, code: i64) -> Result<Option<Waiting>, Fault> {
        let before = self.place_of(letter.delivery)?;
        self.close_in_place(letter, before, code, None)?;
        match before.lane.filter(|_| before.state == state::HOLDING) {
            Some(lane) => self.move_on(lane),
            None => Ok(None),
        }
    }

    fn close_in_place(
        &mut self,
        letter: &Letter,
        before: Place,
        code: i64,
        linked: Option<i64>,
    ) -> Result<(), Fault> {
        self.dig_up(letter.number)?;
        let values = (letter.delivery, code, nanos(self.now), linked);
        self.connection.prepare_cached(CLOSE)?.execute(values)?;
        let queue = self.state.names.index_of(before.queue)?;
        let counts = self.state.names.counts(queue);
        counts.dead -= 1;
        counts.closed += 1;
        self.ended.push(seq(letter.delivery));
        Ok(())
    }

    fn place_of(&self, delivery: i64) -> Result<Place, Fault> {
        let select = "SELECT event, queue, subscription, lane, coalesce(turn, seq), state FROM deliveries
            WHERE seq = ?1";
        let read = |row: &Row<'_>| {
            Ok(Place {
                event: row.get(0)?,
                queue: row.get(1)?,
                subscription: row.get(2)?,
                lane: row.get(3)?,
                turn: row.get(4)?,
                state: row.get(5)?,
            })
        };
        Ok(self.connection.prepare_cached(select)?.query_row([delivery], read)?)
    }

    fn let_go(
        &mut self,
        id: DeliveryId,
        waiting: &mut Vec<Waiting>,
    ) -> Result<Result<u64, OrderRefusal>, Fault> {
        let Some(letter) = select::find(self.connection, id)? else {
            let select = "SELECT 1 FROM deliveries WHERE seq = ?1 AND content = ?2";
            let key = (id.seq().get().cast_signed(), id.content().cast_signed());
            let is_known = self.connection.prepare_cached(select)?.exists(key)?;
            let refusal =
                if is_known { OrderRefusal::HoldsNothing(id) } else { OrderRefusal::NoSuchLetter(id) };
            return Ok(Err(refusal));
        };
        let Place { lane, turn, .. } = self.place_of(letter.delivery)?;
        let Some((lane, held)) = self.held_by(lane, letter.delivery)? else {
            return Ok(Err(OrderRefusal::HoldsNothing(id)));
        };
        let letters = self.holding_from(lane, turn)?;
        for letter in &letters {
            let update = "UPDATE deliveries SET state = ?2 WHERE seq = ?1";
            self.connection.prepare_cached(update)?.execute([*letter, state::DEAD])?;
        }
        waiting.extend(self.move_on(lane)?);
        let letters = letters.len() as u64;
        self.record(&Act { verb: "let-go", what: &id.to_string(), letters, note: None })?;
        Ok(Ok(self.released(lane, held)?))
    }

    /// How many go on now that a letter holds its session no more; none if the next of it does.
    fn released(&self, lane: i64, before: Held) -> Result<u64, Fault> {
        Ok(if self.held(lane)?.is_some() { 0 } else { before.behind })
    }

    fn edit(
        &mut self,
        edit: &Edit,
        waiting: &mut Vec<Waiting>,
    ) -> Result<Result<(Receipt, DeliveryId), OrderRefusal>, Fault> {
        let letter = match self.free_letter(edit.letter)? {
            Ok(letter) => letter,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // What it takes over from the old event would count as intact.
        if let Some(id) = self.damaged(letter.delivery)? {
            return Ok(Err(OrderRefusal::Damaged(id)));
        }
        let content = derive::content_hash(&edit.event);
        if let Some(earlier) = self.find(&edit.event, content)? {
            return Ok(Err(OrderRefusal::EventExists(Receipt::of(earlier.seq))));
        }
        let before = self.place_of(letter.delivery)?;
        let event_seq = self.state.meta.last.next();
        let hash = self.state.dedup.hash(edit.event.dedup_key());
        self.state.dedup.add(hash, event_seq);
        let keeping = Keeping { seq: event_seq, content, deliveries: 1, whole: whole::SENT };
        self.keep_event(&keeping, &edit.event)?;
        let new = event_seq.next();
        self.state.meta.last = new;
        let held = self.held_by(before.lane, letter.delivery)?;
        // The old one gives up its place first, then the new one takes it, and only then the session goes on.
        self.close_in_place(&letter, before, state::SUPERSEDED, Some(place(event_seq)))?;
        let (id, code) = self.take_place(edit, event_seq, new, before)?;
        if let Some((lane, _)) = held {
            let update = "UPDATE held SET letter = ?2 WHERE lane = ?1";
            self.connection.prepare_cached(update)?.execute([lane, place(new)])?;
        }
        if code == state::READY {
            waiting.push(self.waiting(before.queue, place(new))?);
        }
        let what = edit.letter.to_string();
        self.record(&Act { verb: "edit", what: &what, letters: 1, note: edit.note.as_deref() })?;
        Ok(Ok((Receipt::of(event_seq), id)))
    }

    /// Writes a delivery in the place of a dead letter; gives its id and state.
    fn take_place(
        &mut self,
        edit: &Edit,
        event_seq: Seq,
        new: Seq,
        before: Place,
    ) -> Result<(DeliveryId, i64), Fault> {
        let code = self.state_in(before.lane, before.turn)?;
        let queue = self.state.names.index_of(before.queue)?;
        let bytes = edit.event.data.len() as u64;
        let counts = self.state.names.counts(queue);
        counts.waiting += 1;
        counts.waiting_bytes += bytes;
        counts.behind += u64::from(code == state::BEHIND);
        let QueueName { service, channel } = &*self.state.names.queue(queue).name;
        let id = idempotency::delivery_id(new, edit.event.dedup_key(), service, channel.as_ref());
        self.connection.prepare_cached(INSERT_IN_PLACE)?.execute((
            place(new),
            place(event_seq),
            before.queue,
            before.subscription,
            id.content().cast_signed(),
            bytes.cast_signed(),
            before.lane,
            code,
            nanos(self.now),
            before.lane.map(|_| before.turn),
            before.event,
        ))?;
        if let Some(lane) = before.lane.filter(|_| code == state::BEHIND) {
            self.wait_behind(lane)?;
        }
        Ok((id, code))
    }
}
