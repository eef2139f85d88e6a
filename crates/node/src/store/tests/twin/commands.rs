//! What people do with dead letters: skip, let go, purge, edit, import; and the record of it.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::PendingDelivery;
use redrive_core::ids::{DeliveryId, Receipt, Seq};
use redrive_core::store_model::{Lane, ModelRow};
use redrive_core::time::Timestamp;

use super::letters::Choice;
use super::world::{Extra, Kept, World};
use crate::store::access_store::AuditActor;
use crate::store::admit::AdmissionLedger;
use crate::store::letter::{
    AuditRecord, CommandRefusal, CommandRequest, EditCommand, ImportCounts, ImportedLetter, LetterCommand,
    LetterNumber, PurgeCommand, PurgeStep,
};
use crate::store::{LetterClosure, derive};

/// Numbers of imported letters keep within this of when they died.
const NUMBER_SPAN: Duration = Duration::from_millis(1);

impl World {
    pub(super) fn command(
        &mut self,
        given: &CommandRequest,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) {
        self.actor = given.by.clone();
        match &given.command {
            LetterCommand::Replay(new, answer) => answer.set(self.begin_replay(new, now)),
            LetterCommand::Change { replay, act, answer } => {
                answer.set(self.change_replay(*replay, *act, now));
            }
            LetterCommand::Skip { letter, note, answer } => {
                answer.set(self.skip(*letter, note.clone(), now, waiting));
            }
            LetterCommand::ReleaseSession { letter, answer } => {
                answer.set(self.release_session(*letter, now, waiting));
            }
            LetterCommand::Purge(purge, answer) => answer.set(Ok(self.purge(purge, now, waiting))),
            LetterCommand::Edit(edit, answer) => answer.set(self.edit(edit, now, waiting)),
            LetterCommand::Import(letters, answer) => answer.set(Ok(self.import(letters, now))),
            LetterCommand::Reassign(reassign, answer) => {
                answer.set(Ok(self.reassign(reassign, now, waiting)));
            }
        }
        self.actor = AuditActor::unknown();
    }

    /// Puts an act on record, by who gave the command; gives the record's number.
    pub(super) fn record(
        &mut self,
        act: &str,
        what: String,
        letters: u64,
        note: Option<String>,
        now: Timestamp,
    ) -> u64 {
        let number = self.audit.last_key_value().map_or(0, |(number, _)| *number) + 1;
        let by = self.actor.name().map(str::to_owned);
        let record = AuditRecord { number, at: now, act: act.to_owned(), what, letters, note, by };
        self.audit.insert(number, record);
        number
    }

    fn skip(
        &mut self,
        letter: DeliveryId,
        note: Option<String>,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) -> Result<u64, CommandRefusal> {
        self.free_letter(letter)?;
        let held = self.model.held_by(letter.seq()).map(|lane| (lane, self.model.behind(lane)));
        waiting.extend(self.close_letter(letter.seq(), LetterClosure::Skipped, now));
        self.record("skip", letter.to_string(), 1, note, now);
        Ok(held.map_or(0, |(lane, behind)| self.released(lane, behind)))
    }

    /// How many go on now that a letter holds its session no more; none if the next of it does.
    fn released(&self, lane: Lane, behind: u64) -> u64 {
        if self.model.holder(lane).is_some() { 0 } else { behind }
    }

    fn release_session(
        &mut self,
        letter: DeliveryId,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) -> Result<u64, CommandRefusal> {
        let seq = letter.seq();
        let row = self.model.row(seq).filter(|row| row.waiting.id == letter);
        row.ok_or(CommandRefusal::NoSuchLetter(letter))?;
        let held = self.model.held_by(seq).map(|lane| (lane, self.model.behind(lane)));
        let (lane, behind) = held.ok_or(CommandRefusal::HoldsNothing(letter))?;
        let let_go = self.model.let_go(seq, now);
        let (letters, promoted) = let_go.ok_or(CommandRefusal::HoldsNothing(letter))?;
        waiting.extend(promoted);
        self.record("let-go", letter.to_string(), letters.len() as u64, None, now);
        Ok(self.released(lane, behind))
    }

    /// Does all of it in one step.
    fn purge(
        &mut self,
        purge: &PurgeCommand,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) -> PurgeStep {
        let PurgeCommand { selection, what, note, .. } = purge;
        let (mut deleted, mut claimed) = (0, 0);
        for number in self.numbers() {
            match self.choice(selection, number) {
                Choice::Not | Choice::Poison => {}
                Choice::Claimed(_) => claimed += 1,
                Choice::Chosen => {
                    deleted += 1;
                    waiting.extend(self.purge_letter(number, now));
                }
            }
        }
        if deleted > 0 {
            self.record("purge", what.clone(), deleted, note.clone(), now);
        }
        PurgeStep { deleted, claimed, next: None }
    }

    fn edit(
        &mut self,
        edit: &EditCommand,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) -> Result<(Receipt, DeliveryId), CommandRefusal> {
        let EditCommand { letter, event, note } = edit;
        self.free_letter(*letter)?;
        let Ok(earlier) = self.find(event, derive::content_hash(event));
        if let Some(earlier) = earlier {
            return Err(CommandRefusal::EventExists(Receipt::of(earlier.seq)));
        }
        let event_seq = self.model.last().next();
        self.keep(event_seq, Kept::of_one(event, event_seq, now));
        let old = self.row(letter.seq());
        let old_event = old.extra.event;
        let mut new = self.new_row(event_seq, &old.waiting.queue, &old.extra.subscription, old.lane);
        new.extra.linked = Some(old_event);
        let id = new.id;
        waiting.extend(self.model.supersede(letter.seq(), new, now));
        let old = self.model.extra(letter.seq());
        old.linked = Some(event_seq);
        old.closed = Some(LetterClosure::Superseded { by: Receipt::of(event_seq) });
        self.ending.push_back((now, letter.seq()));
        self.count_kinds();
        self.record("edit", letter.to_string(), 1, note.clone(), now);
        Ok((Receipt::of(event_seq), id))
    }

    fn import(&mut self, letters: &[ImportedLetter], now: Timestamp) -> ImportCounts {
        let (mut new, mut known) = (0, 0);
        for letter in letters {
            if self.is_known(letter) {
                known += 1;
                continue;
            }
            new += 1;
            self.import_one(letter, now);
        }
        if new > 0 {
            self.record("import", "imported letters".to_owned(), new, None, now);
        }
        ImportCounts { new, known }
    }

    /// Whether it came before, or is one of our own that came back; what was purged is not known any more.
    fn is_known(&self, letter: &ImportedLetter) -> bool {
        let is_there = |row: &ModelRow<Extra>| row.extra.closed != Some(LetterClosure::Purged);
        let own = DeliveryId::parse(&letter.key);
        let own = own.and_then(|id| self.model.row(id.seq()).filter(|row| row.waiting.id == id));
        let key = derive::import_key(&letter.queue.service, &letter.key);
        let imported = self.imported.get(&key).and_then(|seq| self.model.row(*seq));
        own.is_some_and(is_there) || imported.is_some_and(is_there)
    }

    fn import_one(&mut self, letter: &ImportedLetter, now: Timestamp) {
        let ImportedLetter { key, queue, subscription, order, event, death, died_at, .. } = letter;
        let event_seq = self.model.last().next();
        // It is found by its id, and does not count when an event of that id is sent.
        self.keep(event_seq, Kept { imported: true, ..Kept::of_one(event, event_seq, now) });
        let lane = derive::lane_in(self.seed, queue, *order, event).map(Lane);
        let mut new = self.new_row(event_seq, queue, subscription, lane);
        new.extra.stories.clone_from(&letter.stories);
        for story in &letter.stories {
            self.books.entry(story.book).or_default().stories += 1;
        }
        let seq = new.id.seq();
        let number = self.imported_number(*died_at);
        self.model.import(new, (number, *died_at), death, letter.attempts, letter.replays);
        self.imported.insert(derive::import_key(&queue.service, key), seq);
        self.count_kinds();
    }

    /// The number of a letter that died elsewhere.
    fn imported_number(&self, at: Timestamp) -> LetterNumber {
        let millis = Timestamp::from_millis(at.as_millis());
        let numbers = millis.as_nanos()..(millis + NUMBER_SPAN).as_nanos();
        let latest = self.numbers().into_iter().rfind(|number| numbers.contains(&number.0));
        let after_latest = latest.map_or(0, |latest| latest.0 + 1);
        let mut number = LetterNumber(at.as_nanos().max(after_latest));
        while self.model.letter(number).is_some() {
            number.0 += 1;
        }
        number
    }
}

impl Kept {
    /// An event with one delivery, which has the next place.
    fn of_one(event: &Arc<redrive_core::event::Event>, seq: Seq, now: Timestamp) -> Self {
        Self {
            event: Arc::clone(event),
            received_at: now,
            content: derive::content_hash(event),
            first_delivery: seq.next(),
            delivery_count: 1,
            whole: true,
            imported: false,
        }
    }
}
