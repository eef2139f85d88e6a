//! Brings replays forward: how many letters may be sent now, and when a replay halts itself.
//!
//! A step is asked of the store, which sends letters and counts them in one transaction; the letters come
//! back as deliveries like any other. Only one step of a replay is under way at a time, and each names how
//! many letters had been sent before it, so that a step whose answer was lost is not taken twice. After the
//! store was away nobody knows what it has written: each replay is asked for as it is before anything else.
//!
//! A canary sends one letter, then ten, or as many as may be on their way at once if that is fewer, then the
//! rest, each wave only when all of the one before has arrived. A letter that fails in the first two waves
//! stops it; in the rest [`limits::REPLAY_FAILURES_IN_A_ROW`] do, if nothing arrives in between. It
//! goes on when an operator says so, with one letter again.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::port::{Advance, Death, Effect, Followers, Next, Settlement, Signal, Waiting};
use super::{Engine, Running, Timer};
use crate::book::model::Order;
use crate::book::{LetterRule, RuleBook};
use crate::engine::story::Told;
use crate::ids::ChannelName;
use crate::letters::envelope::Tier;
use crate::letters::name_template;
use crate::letters::replay::{Manner, Origin, ReplayId, ReplayJob, ReplayState, Replaying, Stop, Wave};
use crate::limits;
use crate::policy::category::codes;
use crate::time::Timestamp;

/// A rate is kept over this long: less often than that nobody is asked for a few letters.
const PACE_SPAN: Duration = Duration::from_millis(20);
/// What was not sent in time may be made up for, but no more than this.
const BURST_SPAN: Duration = Duration::from_millis(200);

/// Replays that are open, or whose letters are on their way.
#[derive(Debug, Default)]
pub(super) struct Replays(BTreeMap<ReplayId, Replay>);

#[derive(Debug)]
struct Replay {
    job: ReplayJob,
    step: Step,
    /// When the next letter may be sent, by the rate.
    next_at: Timestamp,
    timer_at: Option<Timestamp>,
    /// Letters that failed since the last one that arrived.
    failed_in_a_row: u32,
    tally: Trust,
}

/// Whether the tally is what the store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// It is.
    Known,
    /// The store may have written what nobody heard of: what it says next replaces the tally.
    Doubtful,
}

/// No replay has sent so many letters: a step that says so is answered with the replay as it is.
pub(super) const NEVER_SENT: u64 = u64::MAX;

/// Whether a step is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is not.
    None,
    /// It is.
    Asked,
    /// The last one found only letters that wait for others of their session.
    Blocked,
}

/// A replay that has halted or ended itself, and where it stands now.
pub(super) type Halt = (ReplayId, ReplayState);

/// What a replay wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Nothing,
    Step(Advance),
    WakeAt(Timestamp),
}

impl Replays {
    pub(super) fn new(jobs: Vec<ReplayJob>) -> Self {
        let mut replays = Self::default();
        for job in jobs {
            replays.learn(job, Timestamp::EPOCH);
        }
        replays
    }

    /// A replay has begun, or people have changed it.
    pub(super) fn learn(&mut self, job: ReplayJob, now: Timestamp) {
        let replay = self.0.entry(job.id).or_insert_with(|| Replay {
            job: job.clone(),
            step: Step::None,
            next_at: now,
            timer_at: None,
            failed_in_a_row: 0,
            tally: Trust::Known,
        });
        if replay.job.state != job.state {
            replay.failed_in_a_row = 0;
            replay.next_at = replay.next_at.max(now);
        }
        replay.job = job;
        if replay.step == Step::Blocked {
            replay.step = Step::None;
        }
        self.drop_ended();
    }

    /// A step is durable; says where the replay stands now if it has halted or
    /// ended itself.
    pub(super) fn advanced(&mut self, job: ReplayJob, sent: u32) -> Option<Halt> {
        let replay = self.0.get_mut(&job.id)?;
        let before = &replay.job;
        let has_moved = sent > 0 || before.state != job.state || before.tally != job.tally;
        let was_doubtful = std::mem::replace(&mut replay.tally, Trust::Known) == Trust::Doubtful;
        let may_go_on = has_moved || was_doubtful || job.state == ReplayState::Gathering;
        replay.step = if may_go_on { Step::None } else { Step::Blocked };
        // What an earlier step has sent, whose answer was lost, counts too.
        let sent = job.tally.sent.saturating_sub(before.tally.sent).max(u64::from(sent));
        // A person who pauses or ends it is told by another way.
        let by_itself = job.state == ReplayState::Done || job.state == job.origin.state_when_stopped();
        let halt = (by_itself && before.state != job.state).then_some((job.id, job.state));
        replay.job = job;
        if let Some(rate) = replay.job.pace.rate {
            let owed = Duration::from_secs_f64(sent as f64 / rate.as_per_second());
            replay.next_at = replay.next_at + owed;
        }
        self.drop_ended();
        halt
    }

    /// A letter has arrived, or has failed again; says where its replay stands now if that has halted or
    /// ended it.
    pub(super) fn settled(&mut self, row: &Waiting, settlement: &Settlement) -> Option<Halt> {
        let Replaying { replay, .. } = row.replaying?;
        let replay = self.0.get_mut(&replay)?;
        // What the store says next of a doubtful one has this in it.
        let counts = u64::from(replay.tally == Trust::Known);
        match &settlement.next {
            Next::Delivered => {
                replay.job.tally.delivered += counts;
                replay.failed_in_a_row = 0;
            }
            Next::Dead(_) => {
                replay.job.tally.failed += counts;
                replay.failed_in_a_row += 1;
            }
            Next::Ready | Next::Due { .. } | Next::Starting => return None,
        }
        let before = replay.job.state;
        if settlement.stop.is_some() && before == ReplayState::Running {
            replay.job.state = replay.job.origin.state_when_stopped();
        }
        if replay.job.state == ReplayState::Running && replay.job.tally.is_complete() {
            replay.job.state = ReplayState::Done;
        }
        if replay.step == Step::Blocked {
            replay.step = Step::None;
        }
        let halt = (replay.job.state != before).then_some((replay.job.id, replay.job.state));
        self.drop_ended();
        halt
    }

    /// Steps that were asked for may never be answered, though they were taken; and letters may have been
    /// settled that the engine was not told of.
    pub(super) fn store_healed(&mut self) {
        for replay in self.0.values_mut() {
            replay.step = Step::None;
            replay.tally = Trust::Doubtful;
        }
    }

    pub(super) fn rang(&mut self, id: ReplayId) {
        if let Some(replay) = self.0.get_mut(&id) {
            replay.timer_at = None;
        }
    }

    fn drop_ended(&mut self) {
        self.0.retain(|_, replay| replay.job.state.is_open() || replay.job.tally.in_flight() > 0);
    }

    /// Where a letter that fails again is kept, and whether its replay stops.
    fn judge(&self, row: &Waiting, death: &Death, rule: Option<&LetterRule>) -> Option<(Tier, Option<Stop>)> {
        let Replaying { replay: id, times } = row.replaying?;
        let stop = Stop { replay: id, fingerprint: death.fingerprint, delivery: row.id };
        let Some(replay) = self.0.get(&id) else { return Some((Tier::Poison, None)) };
        if death.code.as_str() == codes::RULE_REMOVED {
            // It was not tried, and the others would fare no better. One that was replayed before may be
            // poison already.
            let may_be_poison = replay.job.origin == Origin::Operator && times > 1;
            return Some((if may_be_poison { Tier::Poison } else { Tier::Dead }, Some(stop)));
        }
        let tier = match replay.job.origin {
            // Letters of several rules come back together, each as often as its own allows.
            Origin::Automatic { times_max }
                if times < rule.map_or(times_max, |rule| rule.reprocess_max.min(times_max)) =>
            {
                death.tier
            }
            Origin::Automatic { .. } | Origin::Operator => Tier::Poison,
        };
        let stops = replay.job.pace.manner == Manner::Canary
            && replay.job.state == ReplayState::Running
            && match replay.job.wave {
                Wave::None | Wave::First | Wave::Second => true,
                Wave::Rest => replay.failed_in_a_row + 1 >= limits::REPLAY_FAILURES_IN_A_ROW,
            };
        Some((tier, stops.then_some(stop)))
    }
}

impl Replay {
    fn wish(&self, now: Timestamp) -> Wish {
        if self.step != Step::None {
            return Wish::Nothing;
        }
        let (replay, wave) = (self.job.id, self.job.wave);
        if self.tally == Trust::Doubtful {
            return Wish::Step(Advance { replay, sent_before: NEVER_SENT, letters_max: 0, wave });
        }
        let step = |wave, letters_max| {
            Wish::Step(Advance { replay, sent_before: self.job.tally.sent, letters_max, wave })
        };
        match self.job.state {
            ReplayState::Gathering => return step(wave, 0),
            ReplayState::Running => {}
            ReplayState::Paused | ReplayState::Stopped | ReplayState::Cancelled | ReplayState::Done => {
                return Wish::Nothing;
            }
        }
        let in_flight = self.job.tally.in_flight();
        let (wave, room) = match (self.job.pace.manner, self.job.wave) {
            (Manner::Canary, wave @ (Wave::None | Wave::First | Wave::Second)) => {
                if in_flight > 0 {
                    return Wish::Nothing;
                }
                let (next, concurrency) = (wave.next(), self.job.pace.concurrency);
                (next, next.letters_max().map_or(concurrency, |letters| letters.min(concurrency)))
            }
            (Manner::Canary | Manner::Straight, _) => (Wave::Rest, self.room(in_flight)),
        };
        if room == 0 {
            return Wish::Nothing;
        }
        match self.allowed(now) {
            Ok(allowed) => step(wave, room.min(allowed).min(limits::REPLAY_STEP_MAX)),
            Err(at) => Wish::WakeAt(at),
        }
    }

    /// A step is under way. What could be made up for is settled by now, however long the step takes.
    fn asked(&mut self, now: Timestamp) {
        self.step = Step::Asked;
        self.next_at = self.next_at.max(now - BURST_SPAN);
    }

    /// Letters that may be sent beside those on their way; none until a good part has arrived, since every
    /// step costs a look.
    fn room(&self, in_flight: u64) -> u32 {
        let concurrency = self.job.pace.concurrency;
        let room = concurrency.saturating_sub(u32::try_from(in_flight).unwrap_or(u32::MAX));
        let worth_it = (concurrency / 4).clamp(1, limits::REPLAY_STEP_MAX);
        if room >= worth_it { room } else { 0 }
    }

    /// How many letters the rate allows now, or when it allows some.
    fn allowed(&self, now: Timestamp) -> Result<u32, Timestamp> {
        let Some(rate) = self.job.pace.rate else { return Ok(u32::MAX) };
        if now < self.next_at {
            return Err(self.next_at);
        }
        let per_second = rate.as_per_second();
        let saved = now.since(self.next_at.max(now - BURST_SPAN));
        let letters = 1.0 + saved.as_secs_f64() * per_second;
        // A quick replay does not ask for one letter at a time.
        if per_second * PACE_SPAN.as_secs_f64() > letters {
            let missing = PACE_SPAN.as_secs_f64() - letters / per_second;
            return Err(now + Duration::from_secs_f64(missing.max(0.001)));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 1, and where it is more than fits, the most that fits is meant"
        )]
        Ok(letters as u32)
    }
}

impl Engine {
    /// Asks for the next steps.
    pub(super) fn go_on_replaying(&mut self, now: Timestamp) {
        if self.replays.0.is_empty() || self.store_failing_since.is_some() || self.running != Running::Yes {
            return;
        }
        for (id, replay) in &mut self.replays.0 {
            let wake_at = match replay.wish(now) {
                Wish::Step(advance) => {
                    replay.asked(now);
                    self.effects.push_back(Effect::Advance(advance));
                    None
                }
                Wish::WakeAt(at) => Some(at),
                Wish::Nothing => None,
            };
            if wake_at != replay.timer_at {
                if let Some(set) = replay.timer_at {
                    self.timers.remove(&(set, Timer::Replay(*id)));
                }
                replay.timer_at = wake_at;
                self.timers.extend(wake_at.map(|at| (at, Timer::Replay(*id))));
            }
        }
    }

    pub(super) fn tell_replay(&mut self, halt: Option<Halt>) {
        let signal = halt.map(|(replay, state)| Signal::Replay { replay, state });
        self.effects.extend(signal.map(|signal| Effect::Signal(Box::new(signal))));
    }

    /// Adds to a death what the rule book says of its letter, and what a replay makes of it.
    pub(super) fn complete_letter(&self, row: &Waiting, settlement: &mut Settlement) {
        let Next::Dead(death) = &mut settlement.next else { return };
        let books = std::iter::once(&self.book).chain(self.older_books.iter().rev());
        let rule = books.into_iter().find_map(|book| letter_rule(book, row));
        if let Some(rule) = rule {
            death.name = rule.name(row.event.event_type.as_str());
            death.consumer_group.clone_from(&rule.consumer_group);
            if rule.order == Order::SessionStrict && row.sequence.is_some() {
                death.followers = Followers::Wait;
            }
        } else {
            death.name = name_template::default_name(&row.queue.service, row.queue.channel.as_ref());
            death.consumer_group = row.queue.service.to_string();
        }
        if let Some((tier, stop)) = self.replays.judge(row, death, rule) {
            death.tier = tier;
            settlement.stop = stop;
            if let Some(story) = &mut settlement.story
                && let Told::Dead { tier: told, .. } = &mut story.verdict
            {
                *told = tier;
            }
        }
    }
}

fn letter_rule<'a>(book: &'a RuleBook, row: &Waiting) -> Option<&'a LetterRule> {
    let channel = row.queue.channel.as_ref().map(ChannelName::as_str);
    book.letter_rule(row.queue.service.as_str(), channel, row.event.event_type.as_str())
}
