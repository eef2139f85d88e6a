//! Dead letters of the model: how a delivery becomes one, and how it ceases to be one.
//!
//! Invariant: a delivery is dead if and only if it has a letter.

#[cfg(any(test, feature = "testing"))]
use super::{Holder, Lane, NewRow};
use super::{Model, State};
#[cfg(any(test, feature = "testing"))]
use crate::engine::Waiting;
use crate::engine::{Death, Followers};
use crate::ids::Seq;
use crate::letters::LetterNumber;
use crate::letters::replay::ReplayId;
use crate::time::Timestamp;

/// What is known of a letter beside its delivery.
#[derive(Clone, Copy, Debug)]
pub struct Letter {
    /// Its delivery.
    pub delivery: Seq,
    /// When it died.
    pub died_at: Timestamp,
    /// The replay that wants to send it; it means something only while that is open.
    pub claim: Option<ReplayId>,
}

impl<X> Model<X> {
    pub(super) fn die(&mut self, seq: Seq, death: &Death, at: Timestamp) {
        let number = LetterNumber(at.as_nanos().max(self.last_letter.0 + 1));
        self.die_as(number, seq, death, at);
    }

    fn die_as(&mut self, number: LetterNumber, seq: Seq, death: &Death, at: Timestamp) {
        let mut death = Box::new(death.clone());
        if self.get(seq).lane.is_none() {
            death.followers = Followers::GoOn;
        }
        let letter = Letter { delivery: seq, died_at: at, claim: None };
        assert!(self.letters.insert(number, letter).is_none(), "no two letters have one number");
        self.last_letter = self.last_letter.max(number);
        self.put(seq, State::Dead(death));
        self.get_mut(seq).letter = Some(number);
    }
}

/// What people do with letters; the simulator has none of it.
#[cfg(any(test, feature = "testing"))]
impl<X> Model<X> {
    /// All letters, the oldest first.
    pub fn letters(&self) -> impl Iterator<Item = (LetterNumber, &Letter)> {
        self.letters.iter().map(|(number, letter)| (*number, letter))
    }

    /// A letter.
    #[must_use]
    pub fn letter(&self, number: LetterNumber) -> Option<&Letter> {
        self.letters.get(&number)
    }

    /// The number of the latest letter that there was.
    #[must_use]
    pub const fn last_letter(&self) -> LetterNumber {
        self.last_letter
    }

    /// The open replay that has claimed a letter.
    #[must_use]
    pub fn claimed_by(&self, letter: &Letter) -> Option<ReplayId> {
        letter.claim.filter(|id| self.replays.get(id).is_some_and(|replay| replay.job.state.is_open()))
    }

    /// Adds a delivery that is dead at once.
    pub fn add_dead(&mut self, new: NewRow<X>, death: &Death, now: Timestamp) {
        let seq = new.id.seq();
        self.add(new, now);
        self.die(seq, death, now);
        let promoted = self.move_on(seq, now);
        assert!(promoted.is_none(), "a delivery that was never waited for releases none");
    }

    /// Makes a delivery that has not ended a letter, without an attempt; gives the next of its session.
    pub fn give_up(&mut self, seq: Seq, death: &Death, now: Timestamp) -> Option<Waiting> {
        let waiting = &mut self.get_mut(seq).waiting;
        waiting.written_at = now;
        waiting.start_recorded = false;
        self.leave_replay(seq, now);
        self.die(seq, death, now);
        self.move_on(seq, now)
    }

    /// Adds a letter that died elsewhere, and holds nothing here.
    pub fn import(
        &mut self,
        new: NewRow<X>,
        (number, died_at): (LetterNumber, Timestamp),
        death: &Death,
        attempts: u32,
        replays: u32,
    ) {
        let seq = new.id.seq();
        self.add(new, died_at);
        let row = self.get_mut(seq);
        row.waiting.attempts = attempts;
        row.replays = replays;
        let death = Death { followers: Followers::GoOn, ..death.clone() };
        self.die_as(number, seq, &death, died_at);
    }

    /// A run begins: numbers of letters go on from the latest that is there.
    pub fn begin_run(&mut self) {
        self.last_letter = self.letters.last_key_value().map_or(LetterNumber(0), |(number, _)| *number);
    }

    /// A delivery is no letter any more; its state is left to the caller.
    pub(super) fn remove_letter(&mut self, seq: Seq) {
        let number = self.get_mut(seq).letter.take().expect("a dead delivery has a letter");
        self.letters.remove(&number);
    }

    /// Skips or purges a letter; gives the next of its session.
    pub fn close(&mut self, seq: Seq, now: Timestamp) -> Option<Waiting> {
        self.end_letter(seq, now);
        self.move_on(seq, now)
    }

    fn end_letter(&mut self, seq: Seq, now: Timestamp) {
        self.remove_letter(seq);
        self.put(seq, State::Closed);
        self.get_mut(seq).waiting.written_at = now;
    }

    /// Another delivery takes a letter's place, in its session and its turn; gives it back if it may start.
    pub fn supersede(&mut self, old: Seq, new: NewRow<X>, now: Timestamp) -> Option<Waiting> {
        let turn = if new.lane.is_some() { self.get(old).turn } else { new.id.seq() };
        let held = self.held_by(old);
        let seq = new.id.seq();
        // The old one gives up its place first, then the new one takes it, and only then the session goes on.
        self.end_letter(old, now);
        let may_start = self.insert(new, turn, now);
        if let Some(lane) = held {
            let since = self.held[&lane].since;
            self.held.insert(lane, Holder { letter: seq, since });
        }
        may_start
    }

    /// Lets those behind a letter go on: the letter, and those right behind it that would hold the session next,
    /// hold it no more. Gives these and the delivery that may start; nothing if it holds no session.
    pub fn let_go(&mut self, seq: Seq, now: Timestamp) -> Option<(Vec<Seq>, Option<Waiting>)> {
        let lane = self.held_by(seq).filter(|_| self.get(seq).state.holds())?;
        let turn = self.get(seq).turn;
        let from = self.lane(lane).filter(|(its_turn, _)| *its_turn >= turn).map(|(_, seq)| seq);
        let holding: Vec<Seq> = from.take_while(|seq| self.get(*seq).state.holds()).collect();
        for seq in &holding {
            let State::Dead(death) = &self.get(*seq).state else {
                unreachable!("only a dead letter holds its session")
            };
            let death = Death { followers: Followers::GoOn, ..(**death).clone() };
            self.put(*seq, State::Dead(Box::new(death)));
        }
        Some((holding, self.move_lane_on(lane, now)))
    }

    /// The session that a letter holds, if it is the one that does, dead or being replayed.
    #[must_use]
    pub fn held_by(&self, seq: Seq) -> Option<Lane> {
        let lane = self.get(seq).lane?;
        self.held.get(&lane).is_some_and(|holder| holder.letter == seq).then_some(lane)
    }
}
