//! Replays as the store has them: which letters each has claimed, what it has sent and what came of that.

use std::collections::{BTreeMap, BTreeSet};

use super::super::checker::Checker;
use super::super::orders::{Choice, NewReplay, Ordered, Poison, ReplayAct};
use super::{Lane, Row, State, Store};
use crate::engine::simulation::sabotage::Sabotage;
use crate::engine::{Advance, Next, Settlement, Waiting};
use crate::ids::Seq;
use crate::letters::envelope::Tier;
use crate::letters::replay::{Manner, ReplayId, ReplayJob, ReplayState, Replaying, Tally, Wave};
use crate::time::Timestamp;

/// Letters that one step of listing looks at: few, so that it takes several.
const GATHER_STEP: usize = 3;
/// Letters that one step of sending looks at.
const WALK_MAX: usize = 20;

/// One replay.
#[derive(Debug)]
pub(super) struct Replay {
    pub job: ReplayJob,
    choice: Choice,
    poison: Poison,
    /// The number of the last letter that it may choose.
    until: u64,
    /// The number of the last letter that it has looked at.
    looked_at: u64,
    listing: Listing,
    /// In the order of their sessions.
    letters: BTreeMap<(Seq, Seq), Stage>,
    busy: BTreeSet<Lane>,
    failed: BTreeSet<Lane>,
}

/// Whether all its letters are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    GoesOn,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sent,
    Delivered,
    Failed,
    LeftAlone,
}

/// Whether a letter may be sent now.
enum Fit {
    Goes,
    Later,
    Never,
}

impl Replay {
    /// Whether it should go on by itself, and has nothing under way.
    pub(super) fn is_unfinished(&self) -> bool {
        match self.job.state {
            ReplayState::Gathering => true,
            ReplayState::Running => self.job.tally.in_flight() == 0,
            ReplayState::Paused | ReplayState::Stopped | ReplayState::Cancelled | ReplayState::Done => false,
        }
    }

    fn end_if_complete(&mut self, checker: &mut Checker) {
        if self.job.state == ReplayState::Running && self.job.tally.is_complete() {
            self.job.state = ReplayState::Done;
            checker.replay_done(self.job.id);
        }
    }
}

impl Store {
    /// Replays that are open, or whose letters are on their way.
    pub(in super::super) fn replays_to_go_on_with(&self) -> Vec<ReplayJob> {
        let jobs = self.replays.values().map(|replay| &replay.job);
        jobs.filter(|job| job.state.is_open() || job.tally.in_flight() > 0).cloned().collect()
    }

    /// All that there ever were.
    pub(in super::super) fn replay_ids(&self) -> Vec<ReplayId> {
        self.replays.keys().copied().collect()
    }

    pub(super) fn begin(&mut self, new: &NewReplay, now: Timestamp, checker: &mut Checker) -> Ordered {
        let id = ReplayId(self.replays.len() as u64 + 1);
        let wave = match new.pace.manner {
            Manner::Canary => Wave::None,
            Manner::Straight => Wave::Rest,
        };
        let job = ReplayJob {
            id,
            state: ReplayState::Gathering,
            pace: new.pace,
            origin: new.origin,
            wave,
            tally: Tally::default(),
        };
        let replay = Replay {
            job,
            choice: new.choice.clone(),
            poison: new.poison,
            until: now.as_nanos().max(self.last_letter),
            looked_at: 0,
            listing: Listing::GoesOn,
            letters: BTreeMap::new(),
            busy: BTreeSet::new(),
            failed: BTreeSet::new(),
        };
        self.replays.insert(id, replay);
        checker.replay_begins(id, new, now);
        self.gather(id, checker);
        let replay = &self.replays[&id];
        if replay.listing == Listing::Done && replay.letters.is_empty() {
            self.replays.remove(&id);
            checker.replay_refused(id);
            return Ordered::Refused;
        }
        Ordered::Replay(replay.job.clone())
    }

    /// Lists a few more letters.
    fn gather(&mut self, id: ReplayId, checker: &mut Checker) {
        let replay = &self.replays[&id];
        let found: Vec<(u64, Seq)> = if replay.looked_at < replay.until {
            let range = self.letters.range(replay.looked_at + 1..=replay.until);
            range.take(GATHER_STEP).map(|(number, seq)| (*number, *seq)).collect()
        } else {
            Vec::new()
        };
        let is_free = |row: &Row| {
            let letter = row.letter.as_ref().expect("it is among the letters");
            let is_meant = letter.tier == Tier::Dead || replay.poison == Poison::Included;
            let is_taken = self.is_claimed(letter) && self.sabotage != Some(Sabotage::IgnoresClaims);
            is_meant && !is_taken && Self::is_chosen(row, letter, &replay.choice)
        };
        let chosen: Vec<Seq> =
            found.iter().map(|(_, seq)| *seq).filter(|seq| is_free(&self.rows[seq])).collect();
        let replay = self.replays.get_mut(&id).expect("seen above");
        for seq in chosen {
            let row = self.rows.get_mut(&seq).expect("it is among the letters");
            row.letter.as_mut().expect("it is dead").claim = Some(id);
            replay.letters.insert((row.turn, seq), Stage::Waiting);
            replay.job.tally.total += 1;
            checker.claimed(id, row.id);
        }
        match found.last() {
            Some((last, _)) if found.len() == GATHER_STEP => replay.looked_at = *last,
            Some(_) | None => {
                replay.listing = Listing::Done;
                replay.job.state = ReplayState::Running;
                checker.replay_gathered(id);
            }
        }
    }

    pub(super) fn change(&mut self, id: ReplayId, act: ReplayAct, checker: &mut Checker) -> Ordered {
        let Some(replay) = self.replays.get_mut(&id) else { return Ordered::Refused };
        let state = replay.job.state;
        replay.job.state = match (act, state) {
            (ReplayAct::Pause, ReplayState::Gathering | ReplayState::Running) => ReplayState::Paused,
            (ReplayAct::Resume, ReplayState::Paused | ReplayState::Stopped) => {
                if replay.job.pace.manner == Manner::Canary {
                    replay.job.wave = Wave::None;
                }
                match replay.listing {
                    Listing::GoesOn => ReplayState::Gathering,
                    Listing::Done => ReplayState::Running,
                }
            }
            (ReplayAct::Cancel, state) if state.is_open() => ReplayState::Cancelled,
            (ReplayAct::Pause | ReplayAct::Resume | ReplayAct::Cancel, _) => return Ordered::Refused,
        };
        checker.replay_changed(id, act);
        Ordered::Replay(replay.job.clone())
    }

    /// Takes a step; a step that was taken before, or of a wave whose turn it is not, changes nothing.
    pub(in super::super) fn advance(
        &mut self,
        advance: &Advance,
        now: Timestamp,
        may_start: &mut Vec<Waiting>,
        checker: &mut Checker,
    ) -> Option<(ReplayJob, u32)> {
        let id = advance.replay;
        let job = &self.replays.get(&id)?.job;
        let goes_on = match job.state {
            ReplayState::Gathering => {
                self.gather(id, checker);
                false
            }
            ReplayState::Running => true,
            ReplayState::Paused | ReplayState::Stopped => {
                self.sabotage == Some(Sabotage::ReplaysThroughPause)
            }
            ReplayState::Cancelled | ReplayState::Done => false,
        };
        let job = &self.replays[&id].job;
        let is_next = advance.sent_before == job.tally.sent || self.sabotage == Some(Sabotage::RepeatsSteps);
        let is_its_wave = advance.wave == job.wave
            || advance.wave == job.wave.next()
            || self.sabotage == Some(Sabotage::SkipsWaves);
        let mut sent = Vec::new();
        if goes_on && is_next && is_its_wave {
            sent = self.send_some(advance, now);
        }
        if !sent.is_empty() {
            let ids: Vec<_> = sent.iter().map(|seq| self.rows[seq].id).collect();
            checker.sent(id, &ids, now);
        }
        let heads = sent.iter().filter(|seq| self.rows[seq].state == State::Ready);
        may_start.extend(heads.map(|seq| self.waiting(*seq)));
        let replay = self.replays.get_mut(&id).expect("seen above");
        replay.end_if_complete(checker);
        Some((replay.job.clone(), u32::try_from(sent.len()).expect("a few")))
    }

    fn send_some(&mut self, advance: &Advance, now: Timestamp) -> Vec<Seq> {
        let id = advance.replay;
        let letters = &self.replays[&id].letters;
        let waiting = letters.iter().filter(|(_, stage)| **stage == Stage::Waiting);
        let walked: Vec<(Seq, Seq)> = waiting.map(|(key, _)| *key).take(WALK_MAX).collect();
        let mut sent = Vec::new();
        for key in walked {
            if sent.len() == advance.letters_max as usize {
                break;
            }
            let (_, seq) = key;
            let fit = self.fit(id, seq);
            let replay = self.replays.get_mut(&id).expect("seen above");
            match fit {
                Fit::Goes => {
                    replay.letters.insert(key, Stage::Sent);
                    replay.busy.extend(self.rows[&seq].lane.clone());
                    replay.job.tally.sent += 1;
                    replay.job.wave = advance.wave;
                    self.send(id, seq, now);
                    sent.push(seq);
                }
                Fit::Later => {}
                Fit::Never => {
                    replay.letters.insert(key, Stage::LeftAlone);
                    replay.job.tally.left += 1;
                    // Others may have it.
                    let letter = self.rows.get_mut(&seq).and_then(|row| row.letter.as_mut());
                    if let Some(letter) = letter.filter(|letter| letter.claim == Some(id)) {
                        letter.claim = None;
                    }
                }
            }
        }
        sent
    }

    fn fit(&self, id: ReplayId, seq: Seq) -> Fit {
        let (replay, row) = (&self.replays[&id], &self.rows[&seq]);
        let is_ours = row.letter.as_ref().is_some_and(|letter| letter.claim == Some(id));
        let goes_on = self.sabotage == Some(Sabotage::GoesOnInFailedSession);
        match &row.lane {
            _ if !is_ours => Fit::Never,
            Some(lane) if replay.failed.contains(lane) && !goes_on => Fit::Never,
            Some(lane) if replay.busy.contains(lane) => Fit::Later,
            Some(_) | None => Fit::Goes,
        }
    }

    /// A letter is a delivery again, with a fresh history.
    fn send(&mut self, id: ReplayId, seq: Seq, now: Timestamp) {
        self.remove_letter(seq);
        let row = self.rows.get_mut(&seq).expect("it was a letter");
        row.replays += 1;
        row.replaying = Some(Replaying { replay: id, times: row.replays });
        row.history = row.history.replayed();
        row.book = None;
        row.start_recorded = false;
        row.written_at = now;
        let state = match row.lane.clone() {
            None => State::Ready,
            Some(lane) => {
                let members = self.lanes.entry(lane.clone()).or_default();
                members.insert((row.turn, seq));
                let is_alone = members.len() == 1;
                let overtakes = self.sabotage == Some(Sabotage::OvertakesHead);
                let holds = self.held.get(&lane) == Some(&seq);
                if is_alone || holds || overtakes { State::Ready } else { State::Behind }
            }
        };
        self.put(seq, state);
    }

    /// A letter on its way has arrived or failed; a replay may halt because of it.
    pub(super) fn settle_replay(&mut self, seq: Seq, settlement: &Settlement, checker: &mut Checker) {
        let row = self.rows.get_mut(&seq).expect("it is being settled");
        let Some(Replaying { replay: id, .. }) = row.replaying.take() else { return };
        let replay = self.replays.get_mut(&id).expect("it has sent this one");
        let stage = if settlement.next == Next::Delivered {
            replay.job.tally.delivered += 1;
            Stage::Delivered
        } else {
            replay.job.tally.failed += 1;
            replay.failed.extend(row.lane.clone());
            Stage::Failed
        };
        replay.letters.insert((row.turn, seq), stage);
        if let Some(lane) = &row.lane {
            replay.busy.remove(lane);
        }
        if settlement.stop.is_some_and(|stop| stop.replay == id) && replay.job.state == ReplayState::Running {
            replay.job.state = replay.job.origin.state_when_stopped();
            checker.replay_stopped(id, &settlement.next);
        }
        replay.end_if_complete(checker);
    }
}
