//! What people do with dead letters in a store in memory: skip, let go, purge, edit, import; and the record
//! of it.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use redrive_core::engine::{Death, Followers, Waiting};
use redrive_core::ids::{DeliveryId, Receipt, Seq};
use redrive_core::time::Timestamp;

use super::letters::Choice;
use super::world::{Held, Kept, Row, World};
use crate::store::admit::Ledger;
use crate::store::door::By;
use crate::store::letter::{
    AuditRecord, Edit, GivenCommand, ImportCounts, ImportedLetter, LET_GO_MAX, LetterCommand, LetterNumber,
    OrderRefusal, Purge, PurgeCursor, PurgeStep, STEP_BYTES_MAX,
};
use crate::store::{Closed, DeliveryState, derive};

impl World {
    pub(super) fn command(&mut self, given: &GivenCommand, now: Timestamp, waiting: &mut Vec<Waiting>) {
        self.acting = given.by.clone();
        match &given.command {
            LetterCommand::Replay(new, answer) => answer.set(self.begin_replay(new, now)),
            LetterCommand::Change { replay, act, answer } => {
                answer.set(self.change_replay(*replay, *act, now));
            }
            LetterCommand::Skip { letter, note, answer } => {
                answer.set(self.skip(*letter, note.clone(), now, waiting));
            }
            LetterCommand::LetGo { letter, answer } => answer.set(self.let_go(*letter, now, waiting)),
            LetterCommand::Purge(purge, answer) => answer.set(Ok(self.purge(purge, now, waiting))),
            LetterCommand::Edit(edit, answer) => answer.set(self.edit(edit, now, waiting)),
            LetterCommand::Import(letters, answer) => answer.set(Ok(self.import(letters, now))),
            LetterCommand::Reassign(reassign, answer) => {
                answer.set(Ok(self.reassign(reassign, now, waiting)));
            }
        }
        self.acting = By::nobody();
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
        let by = self.acting.name().map(str::to_owned);
        let record = AuditRecord { number, at: now, act: act.to_owned(), what, letters, note, by };
        self.audit.insert(number, record);
        number
    }

    fn skip(
        &mut self,
        letter: DeliveryId,
        note: Option<String>,
        now: Timestamp,
        waiting: &mut Vec<Waiting>,
    ) -> Result<u64, OrderRefusal> {
        let number = self.free_letter(letter)?;
        let held = self.held_by(letter.seq()).map(|lane| (lane, self.behind(lane)));
        let promoted = self.close_letter(number, Closed::Skipped, now);
        waiting.extend(promoted.map(|seq| self.waiting_at(seq)));
        self.record("skip", letter.to_string(), 1, note, now);
        Ok(held.map_or(0, |(lane, behind)| self.released(lane, behind)))
    }

    /// How many go on now that a letter holds its session no more; none if the next of it does.
    fn released(&self, lane: u64, behind: u64) -> u64 {
        if self.held.contains_key(&lane) { 0 } else { behind }
    }

    fn let_go(
        &mut self,
        letter: DeliveryId,
        now: Timestamp,
        waiting: &mut Vec<Waiting>,
    ) -> Result<u64, OrderRefusal> {
        let seq = letter.seq();
        let row = self.rows.get(&seq).filter(|row| row.id == letter);
        let row = row.ok_or(OrderRefusal::NoSuchLetter(letter))?;
        let turn = row.turn();
        let lane = self.held_by(seq).filter(|_| row.holds());
        let lane = lane.ok_or(OrderRefusal::HoldsNothing(letter))?;
        let behind = self.behind(lane);
        let from = self.lane(lane).filter(|(its_turn, _)| *its_turn >= turn).map(|(_, seq)| seq);
        let holding = from.take_while(|seq| self.rows[seq].holds());
        let holding: Vec<Seq> = holding.take(LET_GO_MAX).collect();
        for seq in &holding {
            let DeliveryState::Dead { at, death } = &self.rows[seq].state else {
                unreachable!("only a dead letter holds its session")
            };
            let death = Box::new(Death { followers: Followers::GoOn, ..(**death).clone() });
            self.change(*seq, DeliveryState::Dead { at: *at, death });
        }
        waiting.extend(self.move_on(lane, now).map(|seq| self.waiting_at(seq)));
        self.record("let-go", letter.to_string(), holding.len() as u64, None, now);
        Ok(self.released(lane, behind))
    }

    fn purge(&mut self, purge: &Purge, now: Timestamp, waiting: &mut Vec<Waiting>) -> PurgeStep {
        let Purge { selection, what, rows_max, after, note } = purge;
        let beyond = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.number));
        let until = Bound::Included(LetterNumber(selection.died_until.as_nanos()));
        let rest = self.letters.range((beyond, until)).map(|(number, _)| *number);
        let mut rest: VecDeque<LetterNumber> = rest.take(rows_max + 1).collect();
        let (mut deleted, mut claimed, mut bytes, mut last) = (0, 0, 0, None);
        for _ in 0..*rows_max {
            let Some(number) = rest.pop_front_if(|_| bytes < STEP_BYTES_MAX) else { break };
            last = Some(number);
            bytes += self.bytes_looked_through(selection, number);
            match self.choice(selection, number) {
                Choice::Not | Choice::Poison => {}
                Choice::Claimed(_) => claimed += 1,
                Choice::Chosen => {
                    deleted += 1;
                    let promoted = self.purge_letter(number, now).map(|seq| self.waiting_at(seq));
                    bytes += promoted.as_ref().map_or(0, Waiting::bytes);
                    waiting.extend(promoted);
                }
            }
        }
        let mut audit = after.map_or(0, |after| after.audit);
        match self.audit.get_mut(&audit) {
            Some(record) => record.letters += deleted,
            None if deleted > 0 => audit = self.record("purge", what.clone(), deleted, note.clone(), now),
            None => {}
        }
        let last = last.filter(|_| !rest.is_empty());
        PurgeStep { deleted, claimed, next: last.map(|number| PurgeCursor { number, audit }) }
    }

    fn edit(
        &mut self,
        edit: &Edit,
        now: Timestamp,
        waiting: &mut Vec<Waiting>,
    ) -> Result<(Receipt, DeliveryId), OrderRefusal> {
        let Edit { letter, event, note } = edit;
        let number = self.free_letter(*letter)?;
        let Ok(earlier) = self.find(event, derive::content_hash(event));
        if let Some(earlier) = earlier {
            return Err(OrderRefusal::EventExists(Receipt::of(earlier.seq)));
        }
        let old = letter.seq();
        let held = self.held_by(old);
        let event_seq = self.last.next();
        self.keep(event_seq, Kept::of_one(event, event_seq, now));
        let before = &self.rows[&old];
        let (lane, turn, old_event) = (before.lane, before.turn(), before.event);
        let mut row = self.new_row(event_seq, &before.queue, &before.subscription, now);
        row.lane = lane;
        row.turn = lane.map(|_| turn);
        row.linked = Some(old_event);
        let (id, new) = (row.id, row.id.seq());
        // The old one gives up its place first, then the new one takes it, and only then the session goes on.
        self.unbury(number);
        let closed =
            DeliveryState::Closed { at: now, how: Closed::Superseded { by: Receipt::of(event_seq) } };
        self.change(old, closed);
        self.ending.push_back((now, old));
        let before = self.rows.get_mut(&old).expect("it was there");
        before.written_at = now;
        before.linked = Some(event_seq);
        row.state = self.state_in(lane, turn);
        self.add_row(row);
        if let Some(lane) = held {
            let since = self.held[&lane].since;
            self.held.insert(lane, Held { letter: new, since });
        }
        waiting.extend(self.rows[&new].is_head().then(|| self.waiting_at(new)));
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
            self.record("import", "letters from elsewhere".to_owned(), new, None, now);
        }
        ImportCounts { new, known }
    }

    /// Whether it came before, or is one of our own that came back; what was purged is not known any more.
    fn is_known(&self, letter: &ImportedLetter) -> bool {
        let is_there = |row: &Row| !matches!(row.state, DeliveryState::Closed { how: Closed::Purged, .. });
        let own = DeliveryId::parse(&letter.key);
        let own = own.and_then(|id| self.rows.get(&id.seq()).filter(|row| row.id == id));
        let key = derive::import_key(&letter.queue.service, &letter.key);
        let imported = self.imported.get(&key).and_then(|seq| self.rows.get(seq));
        own.is_some_and(is_there) || imported.is_some_and(is_there)
    }

    fn import_one(&mut self, letter: &ImportedLetter, now: Timestamp) {
        let ImportedLetter { key, queue, subscription, order, event, death, .. } = letter;
        let event_seq = self.last.next();
        // It is found by its id, and does not count when an event of that id is sent.
        self.keep(event_seq, Kept { imported: true, ..Kept::of_one(event, event_seq, now) });
        let mut row = self.new_row(event_seq, queue, subscription, now);
        row.lane = derive::lane_in(self.seed, queue, *order, event);
        row.attempts = letter.attempts;
        row.replays = letter.replays;
        row.stories.clone_from(&letter.stories);
        row.written_at = letter.died_at;
        row.state = DeliveryState::Behind;
        for story in &letter.stories {
            self.books.entry(story.book).or_default().stories += 1;
        }
        let seq = row.id.seq();
        self.add_row(row);
        let death = Death { followers: Followers::GoOn, ..death.clone() };
        self.bury_imported(seq, &death, letter.died_at);
        self.imported.insert(derive::import_key(&queue.service, key), seq);
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
