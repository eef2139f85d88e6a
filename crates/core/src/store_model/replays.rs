//! Replays of the model: which letters each has claimed, what it has sent and what became of that.
//!
//! Invariant: every letter of a replay is in exactly one stage, and the tally counts them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Lane, Model};
use crate::engine::{Advance, NextState, PendingDelivery, QueueName, Settlement};
use crate::ids::Seq;
use crate::letters::replay::{
    Listing, ReplayAct, ReplayId, ReplayJob, ReplayOrigin, ReplayPace, ReplayState, ReplayStop, ReplayTally,
    ReplayWave, Replaying,
};
use crate::time::Timestamp;

#[derive(Clone, Debug)]
pub struct ModelReplay {
    pub job: ReplayJob,
    pub listing: Listing,
    /// Where its letters go; `None` is where they came from.
    pub to: Option<Arc<QueueName>>,
    pub stop: Option<ReplayStop>,
    pub changed_at: Timestamp,
    letters: BTreeMap<(Seq, Seq), ReplayLetter>,
    /// Sessions with a letter in flight, or one that has failed.
    lanes: BTreeMap<Lane, LaneStage>,
}

#[derive(Clone, Copy, Debug)]
struct ReplayLetter {
    lane: Option<Lane>,
    stage: LetterStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LetterStage {
    Waiting,
    Sent,
    Delivered,
    Failed,
    LeftAlone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneStage {
    Busy,
    /// One has failed: the rest of the session stays dead.
    Failed,
}

impl ModelReplay {
    fn end_if_complete(&mut self) {
        if self.job.state == ReplayState::Running && self.job.tally.is_complete() {
            self.job.state = ReplayState::Done;
        }
    }

    #[cfg(test)]
    pub(crate) fn forget_failures(&mut self) {
        self.lanes.retain(|_, stage| *stage == LaneStage::Busy);
    }

    pub fn forget_letters(&mut self) {
        self.letters.clear();
        self.lanes.clear();
    }
}

impl<X> Model<X> {
    #[must_use]
    pub const fn replays(&self) -> &BTreeMap<ReplayId, ModelReplay> {
        &self.replays
    }

    pub const fn replays_mut(&mut self) -> &mut BTreeMap<ReplayId, ModelReplay> {
        &mut self.replays
    }

    /// Replays that are open, or have letters in flight.
    pub fn unfinished_replays(&self) -> impl Iterator<Item = &ReplayJob> {
        let jobs = self.replays.values().map(|replay| &replay.job);
        jobs.filter(|job| job.state.is_open() || job.tally.in_flight() > 0)
    }

    pub fn begin_replay(
        &mut self,
        pace: ReplayPace,
        origin: ReplayOrigin,
        to: Option<Arc<QueueName>>,
        now: Timestamp,
    ) -> ReplayId {
        let id = ReplayId(self.replays.last_key_value().map_or(0, |(id, _)| id.0) + 1);
        let (state, wave, tally) =
            (ReplayState::Gathering, ReplayWave::before_first(pace.manner), ReplayTally::default());
        let replay = ModelReplay {
            job: ReplayJob { id, state, pace, origin, wave, tally },
            listing: Listing::InPart,
            to,
            stop: None,
            changed_at: now,
            letters: BTreeMap::new(),
            lanes: BTreeMap::new(),
        };
        self.replays.insert(id, replay);
        id
    }

    pub fn claim(&mut self, id: ReplayId, seq: Seq, lane: Option<Lane>) {
        let row = self.rows.get(&seq).expect("a letter has a delivery");
        let letter = row.letter.and_then(|number| self.letters.get_mut(&number));
        letter.expect("only a letter is claimed").claim = Some(id);
        let replay = self.replays.get_mut(&id).expect("it has begun");
        replay.letters.insert((row.turn, seq), ReplayLetter { lane, stage: LetterStage::Waiting });
        replay.job.tally.total += 1;
    }

    pub fn listed(&mut self, id: ReplayId, listing: Listing, now: Timestamp) {
        let replay = self.replays.get_mut(&id).expect("it has begun");
        replay.listing = listing;
        replay.changed_at = now;
        if listing == Listing::Whole {
            replay.job.state = ReplayState::Running;
            replay.end_if_complete();
        }
    }

    pub fn change_replay(&mut self, id: ReplayId, act: ReplayAct, now: Timestamp) -> Option<&ModelReplay> {
        let replay = self.replays.get_mut(&id)?;
        (replay.job.state, replay.job.wave) = replay.job.after(act, replay.listing)?;
        replay.changed_at = now;
        if act == ReplayAct::Resume {
            replay.stop = None;
        }
        Some(replay)
    }

    /// Sends letters of a running replay, oldest first, one of each session at a time; returns the seqs of
    /// those sent. A step that was taken before changes nothing.
    pub fn advance(
        &mut self,
        advance: &Advance,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) -> Vec<Seq> {
        let Advance { replay: id, letters_max, wave, .. } = *advance;
        let Some(replay) = self.replays.get(&id) else { return Vec::new() };
        let mut sent = Vec::new();
        if replay.job.state == ReplayState::Running && advance.fits(&replay.job) {
            let waits = replay.letters.iter().filter(|(_, letter)| letter.stage == LetterStage::Waiting);
            for (key, letter) in waits.map(|(key, letter)| (*key, *letter)).collect::<Vec<_>>() {
                if sent.len() == letters_max as usize {
                    break;
                }
                sent.extend(self.send_or_leave(id, key, letter, now, waiting));
            }
            let replay = self.replays.get_mut(&id).expect("it is running");
            replay.changed_at = now;
            if !sent.is_empty() {
                replay.job.wave = wave;
            }
        }
        self.replays.get_mut(&id).expect("it was there").end_if_complete();
        sent
    }

    fn send_or_leave(
        &mut self,
        id: ReplayId,
        key: (Seq, Seq),
        letter: ReplayLetter,
        now: Timestamp,
        waiting: &mut Vec<PendingDelivery>,
    ) -> Option<Seq> {
        let replay = self.replays.get_mut(&id).expect("it is running");
        let lane = letter.lane.and_then(|lane| replay.lanes.get(&lane).copied());
        if lane == Some(LaneStage::Busy) {
            return None;
        }
        let (_, seq) = key;
        let number = self.rows.get(&seq).and_then(|row| row.letter);
        let claim = number.and_then(|number| self.letters.get_mut(&number)).map(|letter| &mut letter.claim);
        let claim = claim.filter(|claim| **claim == Some(id));
        let goes = claim.is_some() && lane.is_none();
        let stage = if goes { LetterStage::Sent } else { LetterStage::LeftAlone };
        replay.letters.insert(key, ReplayLetter { stage, ..letter });
        if !goes {
            replay.job.tally.left += 1;
            // Other replays may have it.
            claim.and_then(Option::take);
            return None;
        }
        replay.job.tally.sent += 1;
        replay.lanes.extend(letter.lane.map(|lane| (lane, LaneStage::Busy)));
        let to = replay.to.clone();
        let row = self.get_mut(seq);
        row.replays += 1;
        row.waiting.replaying = Some(Replaying { replay: id, times: row.replays });
        let history = row.waiting.history.replayed();
        self.remove_letter(seq);
        let left = self.move_to(seq, to.as_ref(), letter.lane, now, &history);
        waiting.extend(left.and_then(|lane| self.move_lane_on(lane, now)));
        waiting.extend(self.if_head(seq));
        Some(seq)
    }

    /// Counts a letter that was delivered, or has failed again; a replay may stop because of it.
    pub(super) fn answer_replay(&mut self, seq: Seq, settlement: &Settlement, now: Timestamp) {
        let is_delivered = settlement.next == NextState::Delivered;
        let stage = if is_delivered { LetterStage::Delivered } else { LetterStage::Failed };
        self.answer_letter(seq, stage, settlement.stop, now);
    }

    pub(super) fn leave_replay(&mut self, seq: Seq, now: Timestamp) {
        self.answer_letter(seq, LetterStage::Failed, None, now);
    }

    fn answer_letter(&mut self, seq: Seq, stage: LetterStage, stop: Option<ReplayStop>, now: Timestamp) {
        let row = self.get_mut(seq);
        let key = (row.turn, seq);
        let Some(Replaying { replay: id, .. }) = row.waiting.replaying.take() else { return };
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let letter = replay.letters.get_mut(&key).expect("letters are kept while they are on their way");
        letter.stage = stage;
        if stage == LetterStage::Delivered {
            replay.job.tally.delivered += 1;
            if let Some(lane) = letter.lane {
                replay.lanes.retain(|of, stage| *of != lane || *stage != LaneStage::Busy);
            }
        } else {
            replay.job.tally.failed += 1;
            replay.lanes.extend(letter.lane.map(|lane| (lane, LaneStage::Failed)));
        }
        replay.changed_at = now;
        if let Some(stop) = stop.filter(|stop| stop.replay == id)
            && replay.job.state == ReplayState::Running
        {
            replay.job.state = replay.job.origin.state_when_stopped();
            replay.stop = Some(stop);
        }
        replay.end_if_complete();
    }
}
