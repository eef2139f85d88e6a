//! Replays of a store in memory: letters are claimed when one begins, sent in steps, and counted as they
//! arrive or fail again.
//!
//! Invariant: every letter of a replay is in exactly one of its states, and the tally counts them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use redrive_core::engine::{Advance, Next, Settlement, Waiting};
use redrive_core::ids::Seq;
use redrive_core::letters::replay::{
    Manner, Origin, Pace, ReplayId, ReplayJob, ReplayState, Replaying, Stop, Tally, Wave,
};
use redrive_core::time::Timestamp;

use super::letters::Choice;
use super::world::World;
use crate::store::letter::{
    LetterNumber, NewReplay, OrderRefusal, Redirect, ReplayAct, ReplayView, STEP_BYTES_MAX, Selection,
};
use crate::store::{REPLAY_GATHER_MAX, REPLAY_WALK_MAX, derive};

/// A replay and what is known of its letters.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    pub(super) state: ReplayState,
    pub(super) selection: Selection,
    pub(super) what: String,
    pub(super) pace: Pace,
    pub(super) origin: Origin,
    pub(super) to: Option<Arc<Redirect>>,
    pub(super) note: Option<String>,
    pub(super) wave: Wave,
    pub(super) tally: Tally,
    pub(super) claimed_by_others: u64,
    pub(super) created_at: Timestamp,
    pub(super) changed_at: Timestamp,
    pub(super) stop: Option<Stop>,
    gathered: Gathered,
    /// By their place; forgotten some time after the end.
    pub(super) letters: BTreeMap<Seq, ReplayLetter>,
    /// Sessions of which a letter is on its way, or has failed.
    pub(super) lanes: BTreeMap<u64, LaneState>,
}

/// How far the letters of a replay have been listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathered {
    /// Up to that one; none is nothing.
    Until(Option<LetterNumber>),
    All,
}

/// A letter of a replay.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayLetter {
    /// The session in which it will go.
    lane: Option<u64>,
    /// What it had died of.
    state: LetterState,
}

/// What became of a letter of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LetterState {
    Waits,
    Sent,
    Delivered,
    Failed,
    LeftAlone,
}

/// What is known of a session that a replay sends letters of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneState {
    /// A letter of it is on its way.
    Busy,
    /// One has failed: the rest of it stays dead.
    Failed,
}

/// What a step of listing found beside letters to claim.
#[derive(Debug, Default)]
struct Passed {
    claimed: BTreeMap<ReplayId, u64>,
    poison: u64,
}

impl Replay {
    pub(super) fn view(&self, id: ReplayId) -> ReplayView {
        ReplayView {
            id,
            state: self.state,
            what: self.what.clone(),
            service: self.selection.filter.service.clone(),
            pace: self.pace,
            origin: self.origin,
            to: self.to.as_ref().map(|to| (*to.queue).clone()),
            note: self.note.clone(),
            wave: self.wave,
            tally: self.tally,
            claimed_by_others: self.claimed_by_others,
            created_at: self.created_at,
            changed_at: self.changed_at,
            stop: self.stop,
        }
    }

    fn end_if_complete(&mut self) {
        if self.state == ReplayState::Running && self.tally.is_complete() {
            self.state = ReplayState::Done;
        }
    }
}

impl World {
    /// Replays that are open, or whose letters are on their way.
    pub(super) fn unfinished_replays(&self) -> Vec<ReplayJob> {
        let unfinished =
            self.replays.iter().filter(|(_, replay)| replay.state.is_open() || replay.tally.in_flight() > 0);
        unfinished.map(|(id, replay)| replay.view(*id).job()).collect()
    }

    /// Begins a replay: claims the first letters of it.
    pub(super) fn begin_replay(
        &mut self,
        new: &NewReplay,
        now: Timestamp,
    ) -> Result<ReplayView, OrderRefusal> {
        let NewReplay { selection, what, pace, origin, to, note } = new.clone();
        for letter in selection.letters.iter().flatten() {
            self.free_letter(*letter)?;
        }
        let id = ReplayId(self.replays.last_key_value().map_or(0, |(id, _)| id.0) + 1);
        let replay = Replay {
            state: ReplayState::Gathering,
            selection,
            what: what.clone(),
            pace,
            origin,
            to,
            note: note.clone(),
            wave: match pace.manner {
                Manner::Straight => Wave::Rest,
                Manner::Canary => Wave::None,
            },
            tally: Tally::default(),
            claimed_by_others: 0,
            created_at: now,
            changed_at: now,
            stop: None,
            gathered: Gathered::Until(None),
            letters: BTreeMap::new(),
            lanes: BTreeMap::new(),
        };
        self.replays.insert(id, replay);
        let Passed { claimed, poison } = self.gather(id, now);
        let replay = &self.replays[&id];
        if replay.tally.total == 0 && replay.gathered == Gathered::All {
            self.replays.remove(&id);
            return Err(OrderRefusal::NothingMatches { claimed, poison });
        }
        let view = replay.view(id);
        self.record("replay", what, view.tally.total, note, now);
        Ok(view)
    }

    /// Looks at some more letters, and claims those that are meant.
    fn gather(&mut self, id: ReplayId, now: Timestamp) -> Passed {
        let replay = &self.replays[&id];
        let (selection, to) = (replay.selection.clone(), replay.to.clone());
        let after = match replay.gathered {
            Gathered::Until(None) => Bound::Unbounded,
            Gathered::Until(Some(number)) => Bound::Excluded(number),
            Gathered::All => unreachable!("only a replay that gathers looks for letters"),
        };
        let until = Bound::Included(LetterNumber(selection.died_until.as_nanos()));
        let rest = self.letters.range((after, until)).map(|(number, _)| *number);
        let mut looked_at: Vec<LetterNumber> = rest.take(REPLAY_GATHER_MAX + 1).collect();
        let mut bytes = 0;
        let enough = looked_at.iter().position(|number| {
            let is_enough = bytes >= STEP_BYTES_MAX;
            bytes += self.bytes_looked_through(&selection, *number);
            is_enough
        });
        let count = enough.unwrap_or(REPLAY_GATHER_MAX).min(REPLAY_GATHER_MAX);
        let is_all = looked_at.len() <= count;
        looked_at.truncate(count);
        let mut passed = Passed::default();
        let mut claimed = BTreeMap::new();
        for number in &looked_at {
            match self.choice(&selection, *number) {
                Choice::Not => {}
                Choice::Poison => passed.poison += 1,
                Choice::Claimed(by) => *passed.claimed.entry(by).or_default() += 1,
                Choice::Chosen => {
                    let letter = self.letters.get_mut(number).expect("it was there");
                    letter.claim = Some(id);
                    let delivery = letter.delivery;
                    let lane = self.lane_at(delivery, to.as_deref());
                    claimed.insert(delivery, ReplayLetter { lane, state: LetterState::Waits });
                }
            }
        }
        let replay = self.replays.get_mut(&id).expect("it was there");
        replay.tally.total += claimed.len() as u64;
        replay.letters.extend(claimed);
        replay.claimed_by_others += passed.claimed.values().sum::<u64>();
        replay.changed_at = now;
        replay.gathered = if is_all { Gathered::All } else { Gathered::Until(looked_at.last().copied()) };
        if is_all {
            replay.state = ReplayState::Running;
        }
        passed
    }

    /// The session that a letter goes in.
    fn lane_at(&self, delivery: Seq, to: Option<&Redirect>) -> Option<u64> {
        let row = &self.rows[&delivery];
        match to {
            Some(to) => derive::lane_in(self.seed, &to.queue, to.order, &self.events[&row.event].event),
            None => row.lane,
        }
    }

    pub(super) fn change_replay(
        &mut self,
        id: ReplayId,
        act: ReplayAct,
        now: Timestamp,
    ) -> Result<ReplayView, OrderRefusal> {
        let replay = self.replays.get_mut(&id).ok_or(OrderRefusal::NoSuchReplay(id))?;
        let (word, next) = match (act, replay.state) {
            (ReplayAct::Pause, ReplayState::Gathering | ReplayState::Running) => {
                ("replay-pause", ReplayState::Paused)
            }
            (ReplayAct::Resume, ReplayState::Paused | ReplayState::Stopped) => {
                let next = match replay.gathered {
                    Gathered::All => ReplayState::Running,
                    Gathered::Until(_) => ReplayState::Gathering,
                };
                ("replay-resume", next)
            }
            (ReplayAct::Cancel, state) if state.is_open() => ("replay-cancel", ReplayState::Cancelled),
            (_, state) => return Err(OrderRefusal::NotPossible { replay: id, state }),
        };
        replay.state = next;
        replay.changed_at = now;
        if act == ReplayAct::Resume {
            replay.stop = None;
            if replay.pace.manner == Manner::Canary {
                replay.wave = Wave::None;
            }
        }
        let view = replay.view(id);
        self.record(word, view.what.clone(), view.tally.total, None, now);
        Ok(view)
    }

    /// Brings a replay forward by a step; says how it stands and how many letters were sent.
    pub(super) fn advance(
        &mut self,
        advance: &Advance,
        now: Timestamp,
        waiting: &mut Vec<Waiting>,
    ) -> Option<(ReplayJob, u32)> {
        let Advance { replay: id, letters_max, wave, .. } = *advance;
        let replay = self.replays.get(&id)?;
        let sent = match replay.state {
            ReplayState::Gathering => {
                self.gather(id, now);
                0
            }
            ReplayState::Running if advance.fits(&replay.view(id).job()) => {
                let sent = self.send_some(id, letters_max, now, waiting);
                let replay = self.replays.get_mut(&id).expect("it was there");
                if sent > 0 {
                    replay.wave = wave;
                }
                replay.changed_at = now;
                sent
            }
            ReplayState::Running
            | ReplayState::Paused
            | ReplayState::Stopped
            | ReplayState::Cancelled
            | ReplayState::Done => 0,
        };
        let replay = self.replays.get_mut(&id).expect("it was there");
        replay.end_if_complete();
        Some((replay.view(id).job(), sent))
    }

    /// Sends letters, the oldest first, one of each session at a time.
    fn send_some(
        &mut self,
        id: ReplayId,
        letters_max: u32,
        now: Timestamp,
        waiting: &mut Vec<Waiting>,
    ) -> u32 {
        let waits = |(_, letter): &(&Seq, &ReplayLetter)| letter.state == LetterState::Waits;
        let rest = self.replays[&id].letters.iter().filter(waits);
        let mut rest: Vec<(Seq, ReplayLetter)> = rest.map(|(seq, letter)| (*seq, *letter)).collect();
        // What took the place of another has that one's turn.
        rest.sort_by_key(|(seq, _)| self.rows[seq].turn());
        let (mut sent, mut walked, mut bytes) = (0, 0, 0);
        for (seq, letter) in rest {
            if sent == letters_max || walked == REPLAY_WALK_MAX || bytes >= STEP_BYTES_MAX {
                break;
            }
            let lane = letter.lane.and_then(|lane| self.replays[&id].lanes.get(&lane).copied());
            if lane == Some(LaneState::Busy) {
                continue;
            }
            walked += 1;
            let number = self.letter_number(seq);
            let is_ours = number.is_some_and(|number| self.letters[&number].claim == Some(id));
            let next = if is_ours && lane.is_none() { LetterState::Sent } else { LetterState::LeftAlone };
            let replay = self.replays.get_mut(&id).expect("it was there");
            replay.letters.insert(seq, ReplayLetter { state: next, ..letter });
            if next == LetterState::LeftAlone {
                replay.tally.left += 1;
                // Others may have it.
                if let Some(letter) = number.filter(|_| is_ours).and_then(|n| self.letters.get_mut(&n)) {
                    letter.claim = None;
                }
                continue;
            }
            replay.tally.sent += 1;
            replay.lanes.extend(letter.lane.map(|lane| (lane, LaneState::Busy)));
            sent += 1;
            let number = number.expect("it is ours");
            let before = waiting.len();
            waiting.extend(self.send(id, number, now).map(|seq| self.waiting_at(seq)));
            waiting.extend(self.rows[&seq].is_head().then(|| self.waiting_at(seq)));
            bytes += waiting[before..].iter().map(Waiting::bytes).sum::<usize>();
        }
        sent
    }

    /// Makes a letter a delivery again; says who else may start, since it has left a session that it held.
    fn send(&mut self, id: ReplayId, number: LetterNumber, now: Timestamp) -> Option<Seq> {
        let seq = self.unbury(number);
        self.unlist(seq);
        let to = self.replays[&id].to.clone();
        let lane = self.lane_at(seq, to.as_deref());
        let left = self.rows[&seq].lane.filter(|before| lane != Some(*before));
        let state = self.state_in(lane, self.rows[&seq].turn());
        let row = self.rows.get_mut(&seq).expect("a letter has a delivery");
        row.lane = lane;
        row.state = state;
        row.history = row.history.replayed();
        row.book = None;
        row.start_recorded = false;
        row.written_at = now;
        row.replays += 1;
        row.replaying = Some(Replaying { replay: id, times: row.replays });
        if let Some(to) = to {
            row.queue = Arc::clone(&to.queue);
        }
        self.list_again(seq);
        left.and_then(|lane| self.move_on(lane, now))
    }

    /// Counts a letter that has arrived, or has failed again.
    pub(super) fn answer_replay(&mut self, settlement: &Settlement, now: Timestamp) {
        let is_delivered = settlement.next == Next::Delivered;
        let became = if is_delivered { LetterState::Delivered } else { LetterState::Failed };
        self.answer_letter(settlement.delivery.seq(), became, settlement.stop, now);
    }

    /// Counts a letter that a replay does not wait for any more.
    pub(super) fn leave_replay(&mut self, seq: Seq, now: Timestamp) {
        self.answer_letter(seq, LetterState::Failed, None, now);
    }

    fn answer_letter(&mut self, seq: Seq, became: LetterState, stop: Option<Stop>, now: Timestamp) {
        let row = self.rows.get_mut(&seq).expect("it was settled");
        if let Some(Replaying { replay: id, .. }) = row.replaying.take()
            && let Some(replay) = self.replays.get_mut(&id)
        {
            let letter = replay.letters.get_mut(&seq).expect("letters are kept while they are on their way");
            let lane = letter.lane.filter(|lane| replay.lanes.get(lane) == Some(&LaneState::Busy));
            letter.state = became;
            if became == LetterState::Delivered {
                replay.tally.delivered += 1;
                lane.and_then(|lane| replay.lanes.remove(&lane));
            } else {
                replay.tally.failed += 1;
                replay.lanes.extend(letter.lane.map(|lane| (lane, LaneState::Failed)));
            }
            replay.changed_at = now;
            if let Some(stop) = stop.filter(|stop| stop.replay == id)
                && replay.state == ReplayState::Running
            {
                replay.state = replay.origin.state_when_stopped();
                replay.stop = Some(stop);
            }
            replay.end_if_complete();
        }
    }
}
