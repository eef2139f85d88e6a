//! What replays may send: only letters that were dead when they began, each by one replay, at its pace, in
//! the order of sessions, and nothing once they are halted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::books::{Reprocess, Taker};
use super::super::orders::{Choice, NewReplay, Poison, ReplayAct};
use super::super::store::Lane;
use super::{CallEnd, Checker, Delivery, Ended};
use crate::engine::{DeadLetterInfo, NextState};
use crate::ids::DeliveryId;
use crate::letters::envelope::Tier;
use crate::letters::replay::{Manner, ReplayId, ReplayOrigin, ReplayPace, ReplayState};
use crate::policy::category::codes;
use crate::time::Timestamp;

/// A step is durable this much after it was asked for, at most, as long as the store is well.
const STEP_TAKES_MAX: Duration = Duration::from_millis(400);
/// What a replay may make up for that it did not send in time.
const BURST_SPAN: Duration = Duration::from_millis(200);

/// A replay, as those who began it know it.
#[derive(Debug)]
pub(super) struct ReplaySeen {
    pace: ReplayPace,
    origin: ReplayOrigin,
    poison: Poison,
    state: ReplayState,
    listed: Listed,
    /// It may choose what had died by then.
    began_at: Timestamp,
    choice: Choice,
    /// What was dead then, was chosen, and belonged to no replay.
    free: BTreeMap<DeliveryId, Timestamp>,
    letters: BTreeMap<DeliveryId, Stage>,
    failed: BTreeSet<Lane>,
    /// Counts how often it has begun, or begun anew.
    round: u32,
    /// Steps in which something was sent, since then.
    steps: u32,
    /// When letters were sent since Redrive came up.
    sent_at: Vec<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    InPart,
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sent { round: u32, step: u32 },
    Over,
}

impl ReplaySeen {
    fn in_flight(&self) -> usize {
        self.letters.values().filter(|stage| matches!(stage, Stage::Sent { .. })).count()
    }

    fn sends(&self) -> bool {
        match self.state {
            ReplayState::Running => true,
            ReplayState::Gathering
            | ReplayState::Paused
            | ReplayState::Stopped
            | ReplayState::Cancelled
            | ReplayState::Done => false,
        }
    }

    /// What is wrong with a step of so many letters now, by its pace.
    fn out_of_pace(&self, count: usize, now: Timestamp) -> Option<(&'static str, String)> {
        let in_flight = self.in_flight();
        let canary = self.pace.manner == Manner::Canary;
        if canary && self.steps <= 2 && in_flight > 0 {
            let how = format!("{count} more, though {in_flight} are on their way after {} steps", self.steps);
            return Some(("a canary waits for each wave", how));
        }
        let most = match self.steps {
            0 if canary => 1,
            1 if canary => 10,
            _ => usize::MAX,
        };
        if count > most {
            return Some(("a canary begins with a few", format!("{count} in step {}", self.steps)));
        }
        let concurrency = self.pace.concurrency as usize;
        if in_flight + count > concurrency {
            let how = format!("{} of {concurrency}", in_flight + count);
            return Some(("letters on their way are bounded", how));
        }
        let rate = self.pace.rate?.as_per_second();
        let all = self.sent_at.len() + count;
        let too_many = |(index, at): (usize, &Timestamp)| {
            let span = now.since(*at) + STEP_TAKES_MAX + BURST_SPAN;
            (all - index) as f64 > span.as_secs_f64() * rate + 2.0
        };
        let index = self.sent_at.iter().enumerate().position(too_many)?;
        let how = format!("{} since {}, now {now}, at {rate}/s", all - index, self.sent_at[index]);
        Some(("a replay keeps its rate", how))
    }
}

impl Checker {
    /// A replay is about to be written down.
    pub(in super::super) fn replay_begins(&mut self, id: ReplayId, new: &NewReplay, now: Timestamp) {
        let is_free = |(id, delivery): &(&DeliveryId, &Delivery)| {
            let is_meant = matches!(&new.choice, Choice::Service(name) if *name == delivery.queue.service);
            is_meant
                && delivery.ended == Ended::Dead
                && Self::may_go_again(delivery, new.poison)
                && !self.replays.values().any(|replay| replay.letters.get(*id) == Some(&Stage::Waiting))
        };
        let free = self.deliveries.iter().filter(is_free).map(|(id, seen)| (*id, seen.died_at)).collect();
        let replay = ReplaySeen {
            pace: new.pace,
            origin: new.origin,
            poison: new.poison,
            state: ReplayState::Gathering,
            listed: Listed::InPart,
            began_at: now,
            choice: new.choice.clone(),
            free,
            letters: BTreeMap::new(),
            failed: BTreeSet::new(),
            round: 0,
            steps: 0,
            sent_at: Vec::new(),
        };
        self.replays.insert(id, replay);
        self.seen.replays += 1;
    }

    /// It found nothing, and never was.
    pub(in super::super) fn replay_refused(&mut self, id: ReplayId) {
        self.seen.replays -= 1;
        self.replays.remove(&id);
    }

    /// The letter is the replay's from now on.
    pub(in super::super) fn claimed(&mut self, id: ReplayId, letter: DeliveryId) {
        if let Some(other) = self.claimed_by(letter) {
            let how = format!("{letter} is claimed by {id}, though it belongs to {other}");
            self.broken("a letter belongs to one replay", how);
        }
        let delivery = &self.deliveries[&letter];
        let replay = self.replays.get_mut(&id).expect("it began");
        let is_meant = match &replay.choice {
            Choice::Service(service) => delivery.queue.service == *service,
            Choice::Book { times_max, .. } => {
                let ours = |taker: &&Taker| taker.queue == delivery.queue;
                let mut takers = self.books.iter().flat_map(|book| &book.takers).filter(ours);
                delivery.times < *times_max && takers.any(|taker| taker.reprocess != Reprocess::Manual)
            }
        };
        let is_dead = delivery.ended == Ended::Dead && delivery.died_at <= replay.began_at;
        replay.letters.insert(letter, Stage::Waiting);
        if !is_meant || !is_dead {
            let how = format!("{id} has chosen {letter}, which was not among its letters when it began");
            self.broken("a replay is frozen when it begins", how);
        }
    }

    /// All its letters are listed: those that belonged to no replay when it began, unless another has
    /// taken care of them since.
    pub(in super::super) fn replay_gathered(&mut self, id: ReplayId) {
        let replay = &self.replays[&id];
        let is_forgotten = |(letter, died_at): &(&DeliveryId, &Timestamp)| {
            let delivery = &self.deliveries[*letter];
            let waits = |replay: &ReplaySeen| replay.letters.get(*letter) == Some(&Stage::Waiting);
            let is_chosen = self.replays.values().any(waits);
            delivery.ended == Ended::Dead && delivery.died_at == **died_at && !is_chosen
        };
        if let Some((letter, _)) = replay.free.iter().find(is_forgotten) {
            self.broken("a replay leaves no letter out", format!("{id} has not chosen {letter}"));
        }
        let replay = self.replays.get_mut(&id).expect("it began");
        replay.listed = Listed::Whole;
        replay.state = ReplayState::Running;
    }

    /// The open replay that has the letter and may still send it.
    pub(super) fn claimed_by(&self, letter: DeliveryId) -> Option<ReplayId> {
        let has = |replay: &ReplaySeen| {
            let waits = replay.letters.get(&letter) == Some(&Stage::Waiting);
            replay.state.is_open() && waits && !self.is_left(replay, letter)
        };
        self.replays.iter().find(|(_, replay)| has(replay)).map(|(id, _)| *id)
    }

    /// Somebody's wish is durable.
    pub(in super::super) fn replay_changed(&mut self, id: ReplayId, act: ReplayAct) {
        let replay = self.replays.get_mut(&id).expect("it began");
        replay.state = match act {
            ReplayAct::Pause => ReplayState::Paused,
            ReplayAct::Cancel => ReplayState::Cancelled,
            ReplayAct::Resume => {
                replay.round += 1;
                replay.steps = 0;
                match replay.listed {
                    Listed::InPart => ReplayState::Gathering,
                    Listed::Whole => ReplayState::Running,
                }
            }
        };
    }

    /// It has halted itself because of what one of its letters came to.
    pub(in super::super) fn replay_stopped(&mut self, id: ReplayId, because: &NextState) {
        let replay = self.replays.get_mut(&id).expect("it began");
        self.seen.stopped += 1;
        let is_unwanted =
            matches!(because, NextState::Dead(info) if info.code.as_str() == codes::RULE_REMOVED);
        if replay.pace.manner == Manner::Straight && !is_unwanted {
            return self.broken("only a canary stops by itself", format!("{id} has"));
        }
        replay.state = replay.origin.state_when_stopped();
    }

    /// Every letter is answered for.
    pub(in super::super) fn replay_done(&mut self, id: ReplayId) {
        let replay = &self.replays[&id];
        let is_due = |(letter, stage): &(&DeliveryId, &Stage)| match stage {
            Stage::Waiting => !self.is_left(replay, **letter),
            Stage::Sent { .. } => true,
            Stage::Over => false,
        };
        if let Some((letter, stage)) = replay.letters.iter().find(is_due) {
            let how = format!("{id} is done, though {letter} is {stage:?}");
            self.broken("a replay leaves no letter out", how);
        }
        self.replays.get_mut(&id).expect("it began").state = ReplayState::Done;
    }

    /// Whether the letter stays as it is, since one of its session has failed.
    fn is_left(&self, replay: &ReplaySeen, letter: DeliveryId) -> bool {
        let lane = self.deliveries[&letter].lane.as_ref();
        lane.is_some_and(|lane| replay.failed.contains(lane))
    }

    /// Letters are deliveries again, and that is durable.
    pub(in super::super) fn sent(&mut self, id: ReplayId, letters: &[DeliveryId], now: Timestamp) {
        let replay = self.replays.get(&id).expect("it began");
        if !replay.sends() {
            let how = format!("{id} sends {letters:?} at {now}, though it is {}", replay.state);
            return self.broken("a replay that is halted sends nothing", how);
        }
        if let Some((rule, how)) = replay.out_of_pace(letters.len(), now) {
            return self.broken(rule, format!("{id}: {how}"));
        }
        for letter in letters {
            self.letter_sent(id, *letter, now);
        }
        let replay = self.replays.get_mut(&id).expect("seen above");
        replay.steps += 1;
        replay.sent_at.extend(letters.iter().map(|_| now));
        self.fairness.disturbed();
    }

    fn letter_sent(&mut self, id: ReplayId, letter: DeliveryId, now: Timestamp) {
        let (replay, delivery) = (&self.replays[&id], &self.deliveries[&letter]);
        let same_lane = |(other, _): &(&DeliveryId, &Stage)| {
            delivery.lane.is_some() && self.deliveries[*other].lane == delivery.lane && **other != letter
        };
        let mut others = replay.letters.iter().filter(same_lane);
        let is_before = |other: &DeliveryId| self.deliveries[other].turn < delivery.turn;
        let overtaken = others.find(|(other, stage)| match stage {
            Stage::Waiting => is_before(other) && self.deliveries[*other].ended == Ended::Dead,
            Stage::Sent { .. } => true,
            Stage::Over => false,
        });
        let has_failed = delivery.lane.as_ref().is_some_and(|lane| replay.failed.contains(lane));
        let problem = if replay.letters.get(&letter) != Some(&Stage::Waiting) {
            Some(("a replay sends each letter once", "it is not among those that wait".to_owned()))
        } else if delivery.ended != Ended::Dead {
            Some(("one outcome per delivery", format!("it is {:?}", delivery.ended)))
        } else if delivery.calls.iter().any(|call| call.end == CallEnd::Running) {
            Some(("never two calls of one delivery at a time", "a call of it runs".to_owned()))
        } else if !Self::may_go_again(delivery, replay.poison) {
            Some(("poison needs a word", "it has failed a replay".to_owned()))
        } else if has_failed {
            Some(("a failure leaves the rest of its session", "one of its session has failed".to_owned()))
        } else {
            overtaken.map(|(other, _)| ("a replay keeps order", format!("{other} has not ended")))
        };
        let (round, step) = (replay.round, replay.steps);
        if let Some((rule, how)) = problem {
            return self.broken(rule, format!("{id} sends {letter} at {now}, though {how}"));
        }
        let replay = self.replays.get_mut(&id).expect("seen above");
        replay.letters.insert(letter, Stage::Sent { round, step });
        self.seen.sent += 1;
        let delivery = self.deliveries.get_mut(&letter).expect("seen above");
        delivery.come_back(id, now);
        if let (Some(lane), turn) = (delivery.lane, delivery.turn) {
            let is_dead = |id: &DeliveryId| self.deliveries[id].ended == Ended::Dead;
            self.sessions.join(lane, turn, letter, is_dead);
        }
    }

    /// A letter on its way has ended again.
    pub(super) fn letter_ended(&mut self, letter: DeliveryId, info: Option<&DeadLetterInfo>) {
        let delivery = self.deliveries.get_mut(&letter).expect("it has ended");
        delivery.is_poison |= info.is_some_and(|info| info.tier == Tier::Poison);
        let Some(id) = delivery.by.take() else { return };
        let replay = self.replays.get_mut(&id).expect("it has sent this one");
        let stage = replay.letters.insert(letter, Stage::Over);
        let Some(info) = info else { return };
        replay.failed.extend(delivery.lane);
        if info.code.as_str() == codes::RULE_REMOVED {
            // Nobody has tried it, and nothing more of the replay is tried.
            if replay.state == ReplayState::Running {
                replay.state = replay.origin.state_when_stopped();
            }
            return;
        }
        let is_poison = match replay.origin {
            ReplayOrigin::Operator => true,
            ReplayOrigin::Automatic { times_max } => delivery.times >= times_max,
        };
        delivery.is_poison |= is_poison;
        // The first two waves of a canary stop at any failure.
        if let Some(Stage::Sent { round, step }) = stage
            && round == replay.round
            && step < 2
            && replay.pace.manner == Manner::Canary
            && replay.state == ReplayState::Running
        {
            replay.state = replay.origin.state_when_stopped();
        }
        if is_poison && info.tier != Tier::Poison {
            self.broken("what fails a replay is poison", format!("{letter} is {:?}", info.tier));
        }
    }

    /// Redrive is up again, and knows nothing of what was sent just before.
    pub(super) fn replays_came_up(&mut self) {
        self.replays.values_mut().for_each(|replay| replay.sent_at.clear());
    }

    /// A replay that should go on and does not.
    pub(super) fn stuck_replay(&self) -> Option<String> {
        let is_stuck = |replay: &ReplaySeen| {
            replay.state == ReplayState::Gathering || replay.sends() && replay.in_flight() == 0
        };
        let stuck = self.replays.iter().find(|(_, replay)| is_stuck(replay));
        stuck.map(|(id, replay)| format!("{id} of {:?} is {}", replay.origin, replay.state))
    }
}

impl Delivery {
    /// It was dead, and is tried again: with all its retries, and what was before does not count.
    fn come_back(&mut self, replay: ReplayId, now: Timestamp) {
        self.ended = Ended::NotYet;
        self.by = Some(replay);
        self.times += 1;
        self.attempts_before = self.attempts;
        self.accepted_at = now;
        self.calls.clear();
    }
}
