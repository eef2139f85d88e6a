//! Dead letters of the model: how a delivery becomes one, and how it ceases to be one.
//!
//! Invariant: a delivery is dead if and only if it has a letter.

#[cfg(any(test, feature = "testing"))]
use super::{Holder, Lane, NewRow};
use super::{Model, RowState};
#[cfg(any(test, feature = "testing"))]
use crate::engine::PendingDelivery;
use crate::engine::{DeadLetterInfo, SessionFollowers};
use crate::ids::Seq;
use crate::letters::LetterNumber;
use crate::letters::replay::ReplayId;
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug)]
pub struct ModelLetter {
    pub delivery: Seq,
    pub died_at: Timestamp,
    /// The replay that will send it; valid only while that is open.
    pub claim: Option<ReplayId>,
}

impl<X> Model<X> {
    pub(super) fn dead_letter(&mut self, seq: Seq, info: &DeadLetterInfo, at: Timestamp) {
        let number = LetterNumber(at.as_nanos().max(self.last_letter.0 + 1));
        self.dead_letter_as(number, seq, info, at);
    }

    fn dead_letter_as(&mut self, number: LetterNumber, seq: Seq, info: &DeadLetterInfo, at: Timestamp) {
        let mut info = Box::new(info.clone());
        if self.get(seq).lane.is_none() {
            info.followers = SessionFollowers::Continue;
        }
        let letter = ModelLetter { delivery: seq, died_at: at, claim: None };
        assert!(self.letters.insert(number, letter).is_none(), "no two letters have one number");
        self.last_letter = self.last_letter.max(number);
        self.put(seq, RowState::Dead(info));
        self.get_mut(seq).letter = Some(number);
    }
}

/// What operators do with letters; not used by the simulator.
#[cfg(any(test, feature = "testing"))]
impl<X> Model<X> {
    pub fn letters(&self) -> impl Iterator<Item = (LetterNumber, &ModelLetter)> {
        self.letters.iter().map(|(number, letter)| (*number, letter))
    }

    #[must_use]
    pub fn letter(&self, number: LetterNumber) -> Option<&ModelLetter> {
        self.letters.get(&number)
    }

    #[must_use]
    pub const fn last_letter(&self) -> LetterNumber {
        self.last_letter
    }

    #[must_use]
    pub fn claimed_by(&self, letter: &ModelLetter) -> Option<ReplayId> {
        letter.claim.filter(|id| self.replays.get(id).is_some_and(|replay| replay.job.state.is_open()))
    }

    pub fn add_dead(&mut self, new: NewRow<X>, info: &DeadLetterInfo, now: Timestamp) {
        let seq = new.id.seq();
        self.add(new, now);
        self.dead_letter(seq, info, now);
        let promoted = self.move_on(seq, now);
        assert!(promoted.is_none(), "a delivery that was never waited for releases none");
    }

    /// Dead-letters an open delivery without an attempt; returns the next of its session.
    pub fn give_up(&mut self, seq: Seq, info: &DeadLetterInfo, now: Timestamp) -> Option<PendingDelivery> {
        let waiting = &mut self.get_mut(seq).waiting;
        waiting.written_at = now;
        waiting.start_recorded = false;
        self.leave_replay(seq, now);
        self.dead_letter(seq, info, now);
        self.move_on(seq, now)
    }

    /// Adds a letter of another store, which holds nothing here.
    pub fn import(
        &mut self,
        new: NewRow<X>,
        (number, died_at): (LetterNumber, Timestamp),
        info: &DeadLetterInfo,
        attempts: u32,
        replays: u32,
    ) {
        let seq = new.id.seq();
        self.add(new, died_at);
        let row = self.get_mut(seq);
        row.waiting.attempts = attempts;
        row.replays = replays;
        let info = DeadLetterInfo { followers: SessionFollowers::Continue, ..info.clone() };
        self.dead_letter_as(number, seq, &info, died_at);
    }

    /// A run begins: letter numbers continue from the latest that exists.
    pub fn begin_run(&mut self) {
        self.last_letter = self.letters.last_key_value().map_or(LetterNumber(0), |(number, _)| *number);
    }

    pub(super) fn remove_letter(&mut self, seq: Seq) {
        let number = self.get_mut(seq).letter.take().expect("a dead delivery has a letter");
        self.letters.remove(&number);
    }

    pub fn close(&mut self, seq: Seq, now: Timestamp) -> Option<PendingDelivery> {
        self.end_letter(seq, now);
        self.move_on(seq, now)
    }

    fn end_letter(&mut self, seq: Seq, now: Timestamp) {
        self.remove_letter(seq);
        self.put(seq, RowState::Closed);
        self.get_mut(seq).waiting.written_at = now;
    }

    /// Another delivery takes a letter's place, in its session and its turn; returned if it may start.
    pub fn supersede(&mut self, old: Seq, new: NewRow<X>, now: Timestamp) -> Option<PendingDelivery> {
        let turn = if new.lane.is_some() { self.get(old).turn } else { new.id.seq() };
        let held = self.held_by(old);
        let seq = new.id.seq();
        // The old one gives up its place first, then the new one takes it, and only then the session
        // continues.
        self.end_letter(old, now);
        let may_start = self.insert(new, turn, now);
        if let Some(lane) = held {
            let since = self.held[&lane].since;
            self.held.insert(lane, Holder { letter: seq, since });
        }
        may_start
    }

    /// Releases those behind a letter: the letter, and those right behind it that would hold the session
    /// next, hold it no more. Returns these and the delivery that may start; `None` if it holds no session.
    pub fn let_go(&mut self, seq: Seq, now: Timestamp) -> Option<(Vec<Seq>, Option<PendingDelivery>)> {
        let lane = self.held_by(seq).filter(|_| self.get(seq).state.holds())?;
        let turn = self.get(seq).turn;
        let from = self.lane(lane).filter(|(its_turn, _)| *its_turn >= turn).map(|(_, seq)| seq);
        let holding: Vec<Seq> = from.take_while(|seq| self.get(*seq).state.holds()).collect();
        for seq in &holding {
            let RowState::Dead(info) = &self.get(*seq).state else {
                unreachable!("only a dead letter holds its session")
            };
            let info = DeadLetterInfo { followers: SessionFollowers::Continue, ..(**info).clone() };
            self.put(*seq, RowState::Dead(Box::new(info)));
        }
        Some((holding, self.move_lane_on(lane, now)))
    }

    /// The session that a letter holds, dead or being replayed.
    #[must_use]
    pub fn held_by(&self, seq: Seq) -> Option<Lane> {
        let lane = self.get(seq).lane?;
        self.held.get(&lane).is_some_and(|holder| holder.letter == seq).then_some(lane)
    }
}
