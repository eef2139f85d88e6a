//! Replays of the model: which letters each has claimed, what it has sent and what became of that.
//!
//! Invariant: every letter of a replay is in exactly one of its stages, and the tally counts them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Lane, Model};
use crate::engine::{Advance, Next, QueueName, Settlement, Waiting};
use crate::ids::Seq;
use crate::letters::replay::{
    Listing, Origin, Pace, ReplayAct, ReplayId, ReplayJob, ReplayState, Replaying, Stop, Tally, Wave,
};
use crate::time::Timestamp;

/// A replay and what is known of its letters.
#[derive(Clone, Debug)]
pub struct Replay {
    /// As the engine knows it.
    pub job: ReplayJob,
    /// Whether its letters are all claimed.
    pub listing: Listing,
    /// Where its letters go, if not where they came from.
    pub to: Option<Arc<QueueName>>,
    /// Why it has stopped by itself.
    pub stop: Option<Stop>,
    /// When something last became of it.
    pub changed_at: Timestamp,
    /// In the order of their sessions.
    letters: BTreeMap<(Seq, Seq), ReplayLetter>,
    /// Sessions of which a letter is on its way, or has failed.
    lanes: BTreeMap<Lane, LaneStage>,
}

#[derive(Clone, Copy, Debug)]
struct ReplayLetter {
    /// The session in which it will go.
    lane: Option<Lane>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sent,
    Delivered,
    Failed,
    LeftAlone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneStage {
    /// A letter of it is on its way.
    Busy,
    /// One has failed: the rest of it stays dead.
    Failed,
}

impl Replay {
    fn end_if_complete(&mut self) {
        if self.job.state == ReplayState::Running && self.job.tally.is_complete() {
            self.job.state = ReplayState::Done;
        }
    }

    /// Forgets which sessions have failed, so that the rest of them is sent after all.
    #[cfg(test)]
    pub(crate) fn forget_failures(&mut self) {
        self.lanes.retain(|_, stage| *stage == LaneStage::Busy);
    }

    /// Forgets what became of each letter.
    pub fn forget_letters(&mut self) {
        self.letters.clear();
        self.lanes.clear();
    }
}

impl<X> Model<X> {
    /// All replays, by their ids.
    #[must_use]
    pub const fn replays(&self) -> &BTreeMap<ReplayId, Replay> {
        &self.replays
    }

    /// The same, to change or forget what the model does not decide.
    pub const fn replays_mut(&mut self) -> &mut BTreeMap<ReplayId, Replay> {
        &mut self.replays
    }

    /// Replays that are open, or whose letters are on their way.
    pub fn unfinished_replays(&self) -> impl Iterator<Item = &ReplayJob> {
        let jobs = self.replays.values().map(|replay| &replay.job);
        jobs.filter(|job| job.state.is_open() || job.tally.in_flight() > 0)
    }

    /// Begins a replay, which has no letters yet.
    pub fn begin_replay(
        &mut self,
        pace: Pace,
        origin: Origin,
        to: Option<Arc<QueueName>>,
        now: Timestamp,
    ) -> ReplayId {
        let id = ReplayId(self.replays.last_key_value().map_or(0, |(id, _)| id.0) + 1);
        let (state, wave, tally) =
            (ReplayState::Gathering, Wave::before_first(pace.manner), Tally::default());
        let replay = Replay {
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

    /// A letter is the replay's from now on, and will go in that session.
    pub fn claim(&mut self, id: ReplayId, seq: Seq, lane: Option<Lane>) {
        let row = self.rows.get(&seq).expect("a letter has a delivery");
        let letter = row.letter.and_then(|number| self.letters.get_mut(&number));
        letter.expect("only a letter is claimed").claim = Some(id);
        let replay = self.replays.get_mut(&id).expect("it has begun");
        replay.letters.insert((row.turn, seq), ReplayLetter { lane, stage: Stage::Waiting });
        replay.job.tally.total += 1;
    }

    /// A step of listing the letters of a replay is over.
    pub fn listed(&mut self, id: ReplayId, listing: Listing, now: Timestamp) {
        let replay = self.replays.get_mut(&id).expect("it has begun");
        replay.listing = listing;
        replay.changed_at = now;
        if listing == Listing::Whole {
            replay.job.state = ReplayState::Running;
            replay.end_if_complete();
        }
    }

    /// Halts a replay, lets it go on, or ends it; none if that is not possible.
    pub fn change_replay(&mut self, id: ReplayId, act: ReplayAct, now: Timestamp) -> Option<&Replay> {
        let replay = self.replays.get_mut(&id)?;
        (replay.job.state, replay.job.wave) = replay.job.after(act, replay.listing)?;
        replay.changed_at = now;
        if act == ReplayAct::Resume {
            replay.stop = None;
        }
        Some(replay)
    }

    /// Sends letters of a replay that is running, the oldest first, one of each session at a time; gives the
    /// places of those that were sent. A step that was taken before changes nothing.
    pub fn advance(&mut self, advance: &Advance, now: Timestamp, waiting: &mut Vec<Waiting>) -> Vec<Seq> {
        let Advance { replay: id, letters_max, wave, .. } = *advance;
        let Some(replay) = self.replays.get(&id) else { return Vec::new() };
        let mut sent = Vec::new();
        if replay.job.state == ReplayState::Running && advance.fits(&replay.job) {
            let waits = replay.letters.iter().filter(|(_, letter)| letter.stage == Stage::Waiting);
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
        waiting: &mut Vec<Waiting>,
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
        let stage = if goes { Stage::Sent } else { Stage::LeftAlone };
        replay.letters.insert(key, ReplayLetter { stage, ..letter });
        if !goes {
            replay.job.tally.left += 1;
            // Others may have it.
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

    /// Counts a letter that has arrived, or has failed again; a replay may stop because of it.
    pub(super) fn answer_replay(&mut self, seq: Seq, settlement: &Settlement, now: Timestamp) {
        let is_delivered = settlement.next == Next::Delivered;
        let stage = if is_delivered { Stage::Delivered } else { Stage::Failed };
        self.answer_letter(seq, stage, settlement.stop, now);
    }

    /// Counts a letter that its replay does not wait for any more.
    pub(super) fn leave_replay(&mut self, seq: Seq, now: Timestamp) {
        self.answer_letter(seq, Stage::Failed, None, now);
    }

    fn answer_letter(&mut self, seq: Seq, stage: Stage, stop: Option<Stop>, now: Timestamp) {
        let row = self.get_mut(seq);
        let key = (row.turn, seq);
        let Some(Replaying { replay: id, .. }) = row.waiting.replaying.take() else { return };
        let Some(replay) = self.replays.get_mut(&id) else { return };
        let letter = replay.letters.get_mut(&key).expect("letters are kept while they are on their way");
        letter.stage = stage;
        if stage == Stage::Delivered {
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
