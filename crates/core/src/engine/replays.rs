//! Advances replays: how many letters may be sent now, and when a replay stops by itself.
//!
//! The store sends letters and counts them in one transaction per step; the letters come back as deliveries
//! like any other. Only one step of a replay is in progress at a time, and each names how many letters had
//! been sent before it, so that a step whose answer was lost is not taken twice. After a failure of the store
//! each replay is first read again.
//!
//! A canary sends one letter, then ten (or the concurrency limit if that is lower), then the rest; a wave
//! starts when all of the one before has been delivered. A letter that fails in the first two waves stops the
//! replay; in the rest, [`limits::REPLAY_FAILURES_IN_A_ROW`] consecutive failures do. When resumed it begins
//! with one letter again.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::messages::{
    Advance, DeadLetterInfo, Effect, EngineActivity, NextState, PendingDelivery, SessionFollowers, Settlement,
};
use super::{Engine, RunState, Timer};
use crate::book::model::DeliveryOrder;
use crate::book::{LetterRule, RuleBook};
use crate::engine::attempt_record::RecordedVerdict;
use crate::ids::ChannelName;
use crate::letters::envelope::Tier;
use crate::letters::name_template;
use crate::letters::replay::{
    Manner, ReplayId, ReplayJob, ReplayOrigin, ReplayState, ReplayStop, ReplayWave, Replaying,
};
use crate::limits;
use crate::policy::category::codes;
use crate::time::Timestamp;

/// A fast replay asks for steps no more often than this.
const PACE_SPAN: Duration = Duration::from_millis(20);
/// Unused rate may be made up for, but no more than this.
const BURST_SPAN: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct ActiveReplays(BTreeMap<ReplayId, ActiveReplay>);

#[derive(Debug)]
struct ActiveReplay {
    job: ReplayJob,
    step: StepProgress,
    next_at: Timestamp,
    timer_at: Option<Timestamp>,
    failed_in_a_row: u32,
    tally: TallyTrust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TallyTrust {
    Known,
    /// The store may have written something we did not hear of: its next answer replaces the tally.
    Doubtful,
}

/// No replay has sent so many letters: the store answers such a step with the replay as it is.
pub(super) const NEVER_SENT: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepProgress {
    None,
    Asked,
    /// The last step found only letters that wait for others of their session.
    Blocked,
}

pub(super) type Halt = (ReplayId, ReplayState);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayNeed {
    Nothing,
    Step(Advance),
    WakeAt(Timestamp),
}

impl ActiveReplays {
    pub(super) fn new(jobs: Vec<ReplayJob>) -> Self {
        let mut replays = Self::default();
        for job in jobs {
            replays.learn(job, Timestamp::EPOCH);
        }
        replays
    }

    pub(super) fn learn(&mut self, job: ReplayJob, now: Timestamp) {
        let replay = self.0.entry(job.id).or_insert_with(|| ActiveReplay {
            job: job.clone(),
            step: StepProgress::None,
            next_at: now,
            timer_at: None,
            failed_in_a_row: 0,
            tally: TallyTrust::Known,
        });
        if replay.job.state != job.state {
            replay.failed_in_a_row = 0;
            replay.next_at = replay.next_at.max(now);
        }
        replay.job = job;
        if replay.step == StepProgress::Blocked {
            replay.step = StepProgress::None;
        }
        self.drop_ended();
    }

    /// A step is durable; returns the new state if the replay has stopped or ended by itself.
    pub(super) fn advanced(&mut self, job: ReplayJob, sent: u32) -> Option<Halt> {
        let replay = self.0.get_mut(&job.id)?;
        let before = &replay.job;
        let has_moved = sent > 0 || before.state != job.state || before.tally != job.tally;
        let was_doubtful = std::mem::replace(&mut replay.tally, TallyTrust::Known) == TallyTrust::Doubtful;
        let may_go_on = has_moved || was_doubtful || job.state == ReplayState::Gathering;
        replay.step = if may_go_on { StepProgress::None } else { StepProgress::Blocked };
        // Letters of an earlier step whose answer was lost count too.
        let sent = job.tally.sent.saturating_sub(before.tally.sent).max(u64::from(sent));
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

    /// A letter was delivered or has failed again; returns the new state if that has stopped or ended its
    /// replay.
    pub(super) fn settled(&mut self, row: &PendingDelivery, settlement: &Settlement) -> Option<Halt> {
        let Replaying { replay, .. } = row.replaying?;
        let replay = self.0.get_mut(&replay)?;
        // The store's next answer on a doubtful replay includes this one.
        let counts = u64::from(replay.tally == TallyTrust::Known);
        match &settlement.next {
            NextState::Delivered => {
                replay.job.tally.delivered += counts;
                replay.failed_in_a_row = 0;
            }
            NextState::Dead(_) => {
                replay.job.tally.failed += counts;
                replay.failed_in_a_row += 1;
            }
            NextState::Ready | NextState::Due { .. } | NextState::Starting => return None,
        }
        let before = replay.job.state;
        if settlement.stop.is_some() && before == ReplayState::Running {
            replay.job.state = replay.job.origin.state_when_stopped();
        }
        if replay.job.state == ReplayState::Running && replay.job.tally.is_complete() {
            replay.job.state = ReplayState::Done;
        }
        if replay.step == StepProgress::Blocked {
            replay.step = StepProgress::None;
        }
        let halt = (replay.job.state != before).then_some((replay.job.id, replay.job.state));
        self.drop_ended();
        halt
    }

    /// Requested steps may have been taken without an answer, and letters settled without a report.
    pub(super) fn store_healed(&mut self) {
        for replay in self.0.values_mut() {
            replay.step = StepProgress::None;
            replay.tally = TallyTrust::Doubtful;
        }
    }

    pub(super) fn timer_fired(&mut self, id: ReplayId) {
        if let Some(replay) = self.0.get_mut(&id) {
            replay.timer_at = None;
        }
    }

    fn drop_ended(&mut self) {
        self.0.retain(|_, replay| replay.job.state.is_open() || replay.job.tally.in_flight() > 0);
    }

    fn judge(
        &self,
        row: &PendingDelivery,
        info: &DeadLetterInfo,
        rule: Option<&LetterRule>,
    ) -> Option<(Tier, Option<ReplayStop>)> {
        let Replaying { replay: id, times } = row.replaying?;
        let stop = ReplayStop { replay: id, fingerprint: info.fingerprint, delivery: row.id };
        let Some(replay) = self.0.get(&id) else { return Some((Tier::Poison, None)) };
        if info.code.as_str() == codes::RULE_REMOVED {
            // It was not tried, and the others would fail alike. One that was replayed before may be poison
            // already.
            let may_be_poison = replay.job.origin == ReplayOrigin::Operator && times > 1;
            return Some((if may_be_poison { Tier::Poison } else { Tier::Dead }, Some(stop)));
        }
        let tier = match replay.job.origin {
            // Letters of several rules are replayed together, each as often as its own rule allows.
            ReplayOrigin::Automatic { times_max }
                if times < rule.map_or(times_max, |rule| rule.reprocess_max.min(times_max)) =>
            {
                info.tier
            }
            ReplayOrigin::Automatic { .. } | ReplayOrigin::Operator => Tier::Poison,
        };
        let stops = replay.job.pace.manner == Manner::Canary
            && replay.job.state == ReplayState::Running
            && match replay.job.wave {
                ReplayWave::None | ReplayWave::First | ReplayWave::Second => true,
                ReplayWave::Rest => replay.failed_in_a_row + 1 >= limits::REPLAY_FAILURES_IN_A_ROW,
            };
        Some((tier, stops.then_some(stop)))
    }
}

impl ActiveReplay {
    fn wish(&self, now: Timestamp) -> ReplayNeed {
        if self.step != StepProgress::None {
            return ReplayNeed::Nothing;
        }
        let (replay, wave) = (self.job.id, self.job.wave);
        if self.tally == TallyTrust::Doubtful {
            return ReplayNeed::Step(Advance { replay, sent_before: NEVER_SENT, letters_max: 0, wave });
        }
        let step = |wave, letters_max| {
            ReplayNeed::Step(Advance { replay, sent_before: self.job.tally.sent, letters_max, wave })
        };
        match self.job.state {
            ReplayState::Gathering => return step(wave, 0),
            ReplayState::Running => {}
            ReplayState::Paused | ReplayState::Stopped | ReplayState::Cancelled | ReplayState::Done => {
                return ReplayNeed::Nothing;
            }
        }
        let in_flight = self.job.tally.in_flight();
        let (wave, room) = match (self.job.pace.manner, self.job.wave) {
            (Manner::Canary, wave @ (ReplayWave::None | ReplayWave::First | ReplayWave::Second)) => {
                if in_flight > 0 {
                    return ReplayNeed::Nothing;
                }
                let (next, concurrency) = (wave.next(), self.job.pace.concurrency);
                (next, next.letters_max().map_or(concurrency, |letters| letters.min(concurrency)))
            }
            (Manner::Canary | Manner::Straight, _) => (ReplayWave::Rest, self.room(in_flight)),
        };
        if room == 0 {
            return ReplayNeed::Nothing;
        }
        match self.allowed(now) {
            Ok(allowed) => step(wave, room.min(allowed).min(limits::REPLAY_STEP_MAX)),
            Err(at) => ReplayNeed::WakeAt(at),
        }
    }

    /// Unused rate is forfeited now, however long the step takes.
    fn asked(&mut self, now: Timestamp) {
        self.step = StepProgress::Asked;
        self.next_at = self.next_at.max(now - BURST_SPAN);
    }

    /// Letters that may be sent beside those in flight; 0 until a good part has ended, since every step costs
    /// a query.
    fn room(&self, in_flight: u64) -> u32 {
        let concurrency = self.job.pace.concurrency;
        let room = concurrency.saturating_sub(u32::try_from(in_flight).unwrap_or(u32::MAX));
        let worth_it = (concurrency / 4).clamp(1, limits::REPLAY_STEP_MAX);
        if room >= worth_it { room } else { 0 }
    }

    fn allowed(&self, now: Timestamp) -> Result<u32, Timestamp> {
        let Some(rate) = self.job.pace.rate else { return Ok(u32::MAX) };
        if now < self.next_at {
            return Err(self.next_at);
        }
        let per_second = rate.as_per_second();
        let saved = now.since(self.next_at.max(now - BURST_SPAN));
        let letters = 1.0 + saved.as_secs_f64() * per_second;
        if per_second * PACE_SPAN.as_secs_f64() > letters {
            let missing = PACE_SPAN.as_secs_f64() - letters / per_second;
            return Err(now + Duration::from_secs_f64(missing.max(0.001)));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 1, and a cast saturates"
        )]
        Ok(letters as u32)
    }
}

impl Engine {
    pub(super) fn advance_replays(&mut self, now: Timestamp) {
        if self.replays.0.is_empty()
            || self.store_failing_since.is_some()
            || self.running != RunState::Running
        {
            return;
        }
        for (id, replay) in &mut self.replays.0 {
            let wake_at = match replay.wish(now) {
                ReplayNeed::Step(advance) => {
                    replay.asked(now);
                    self.effects.push_back(Effect::Advance(advance));
                    None
                }
                ReplayNeed::WakeAt(at) => Some(at),
                ReplayNeed::Nothing => None,
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

    pub(super) fn report_replay(&mut self, halt: Option<Halt>) {
        let activity = halt.map(|(replay, state)| EngineActivity::Replay { replay, state });
        self.effects.extend(activity.map(|activity| Effect::Activity(Box::new(activity))));
    }

    pub(super) fn complete_letter(&self, row: &PendingDelivery, settlement: &mut Settlement) {
        let NextState::Dead(info) = &mut settlement.next else { return };
        let books = std::iter::once(&self.book).chain(self.older_books.iter().rev());
        let rule = books.into_iter().find_map(|book| letter_rule(book, row));
        if let Some(rule) = rule {
            info.name = rule.name(row.event.event_type.as_str());
            info.consumer_group.clone_from(&rule.consumer_group);
            if rule.order == DeliveryOrder::SessionStrict && row.sequence.is_some() {
                info.followers = SessionFollowers::Wait;
            }
        } else {
            info.name = name_template::default_name(&row.queue.service, row.queue.channel.as_ref());
            info.consumer_group = row.queue.service.to_string();
        }
        if let Some((tier, stop)) = self.replays.judge(row, info, rule) {
            info.tier = tier;
            settlement.stop = stop;
            if let Some(record) = &mut settlement.record
                && let RecordedVerdict::Dead { tier: recorded, .. } = &mut record.verdict
            {
                *recorded = tier;
            }
        }
    }
}

fn letter_rule<'a>(book: &'a RuleBook, row: &PendingDelivery) -> Option<&'a LetterRule> {
    let channel = row.queue.channel.as_ref().map(ChannelName::as_str);
    book.letter_rule(row.queue.service.as_str(), channel, row.event.event_type.as_str())
}
