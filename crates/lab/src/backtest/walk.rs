//! Follows one delivery through its record under another rule.
//!
//! While the rule makes the recorded attempts, their answers are known. The first retry at another time leaves the
//! record; from then on the answers are those that the dependency gave at about that time, with a certainty.

use std::cell::OnceCell;
use std::time::Duration;

use super::evidence::{AnswerEvidence, JudgedAnswer, Sureness, took};
use super::timeline::{Answers, GoodAnswer, NearAnswers, Timeline};
use super::{BacktestDoubt, Certainty, Finish};
use redrive_core::engine::attempt_record::{
    AttemptEnd, AttemptRecord, HoldReason, RecordedRetry, RecordedVerdict,
};
use redrive_core::ids::{Attempt, DeliveryId, Seed};
use redrive_core::limits;
use redrive_core::policy::backoff::nanos;
use redrive_core::policy::category::{Category, FailureCode, codes};
use redrive_core::policy::classify::Outcome;
use redrive_core::policy::decide::{AttemptResult, Decision, History, Moment, Verdict, decide};
use redrive_core::policy::history::UsedOnRecord;
use redrive_core::policy::rule::{Rule, WhenOpen};
use redrive_core::time::Timestamp;

/// The share of one class of answers from which it counts as the answer.
const SHARE_LIKELY: f64 = 2.0 / 3.0;
/// An own attempt this close stands for another.
const OWN_NEAR: Duration = Duration::from_secs(1);

pub(super) struct RuleWalk<'a> {
    pub delivery: DeliveryId,
    pub seed: Seed,
    pub rule: &'a Rule,
    pub then: &'a [Option<&'a Rule>],
    pub stories: &'a [AttemptRecord],
    pub life: &'a [AttemptRecord],
    pub timeline: Option<&'a Timeline>,
    pub open: &'a [(Timestamp, Timestamp)],
    pub until: Timestamp,
    pub about_message: OnceCell<bool>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct WalkResult {
    pub finish: Finish,
    pub certainty: Certainty,
    pub calls: u32,
    pub guessed: u32,
    pub doubts: Vec<BacktestDoubt>,
}

impl WalkResult {
    pub(super) const fn without_calls(finish: Finish, certainty: Certainty) -> Self {
        Self { finish, certainty, calls: 0, guessed: 0, doubts: Vec::new() }
    }
}

struct WalkState {
    history: History,
    attempt: Attempt,
    calls: u32,
    guessed: u32,
    certainty: Certainty,
    doubts: Vec<BacktestDoubt>,
    failure: Option<FailureCode>,
}

struct KnownAnswer<'a> {
    evidence: Option<&'a AnswerEvidence>,
    own: Option<usize>,
    took: Duration,
    certainty: Certainty,
    doubt: Option<BacktestDoubt>,
}

enum WalkStep {
    Over(Finish),
    Again(Timestamp),
    Paused(Timestamp),
}

impl RuleWalk<'_> {
    pub(super) fn walked(&self) -> WalkResult {
        let mut step = WalkState {
            history: History::new(),
            attempt: Attempt::FIRST,
            calls: 0,
            guessed: 0,
            certainty: Certainty::Certain,
            doubts: Vec::new(),
            failure: None,
        };
        let finish = self.on_record(&mut step);
        let WalkState { calls, guessed, certainty, mut doubts, .. } = step;
        doubts.sort_unstable();
        doubts.dedup();
        WalkResult { finish, certainty, calls, guessed, doubts }
    }

    fn on_record(&self, step: &mut WalkState) -> Finish {
        for (place, story) in self.life.iter().enumerate() {
            let is_last = place + 1 == self.life.len();
            step.attempt = story.attempt;
            if let AttemptEnd::Held { by } = story.end {
                match (&story.verdict, is_last) {
                    (RecordedVerdict::Dead { code, .. }, _) => return self.held(step, story, by, code),
                    (_, true) => return self.off_record(step, story.started_at),
                    (_, false) => continue,
                }
            }
            if let Some(finish) = self.hold_expired(step, story, self.then[place]) {
                return finish;
            }
            let onward = self.attempted(step, place);
            match (onward, &story.verdict) {
                (WalkStep::Over(finish), _) => return finish,
                (WalkStep::Again(due_at), RecordedVerdict::Retry { due_at: then }) if due_at == *then => {}
                (WalkStep::Again(due_at), _) => {
                    step.attempt = story.attempt.next();
                    return self.off_record(step, due_at);
                }
                (WalkStep::Paused(_), RecordedVerdict::Paused) if !is_last => {}
                (WalkStep::Paused(at), _) => return Finish::Paused { at },
            }
        }
        Finish::Waiting
    }

    fn attempted(&self, step: &mut WalkState, place: usize) -> WalkStep {
        let (story, then) = (&self.life[place], self.then[place]);
        let evidence = AnswerEvidence::of(story, then).expect("it was made");
        let started_at = story.started_at;
        let held_before =
            Duration::from_nanos(story.held_nanos).saturating_sub(step.history.held(started_at));
        if !held_before.is_zero() {
            step.history = step.history.held_since(started_at - held_before);
        }
        step.history = step.history.started(started_at);
        let waited_for = then.map(|then| then.timeouts.whole.limit(story.attempt));
        let judged = evidence.judged(self.rule, story.attempt, took(story), waited_for);
        let now = started_at + judged.took;
        if let Some(weighed) = &story.retry {
            step.history = step.history.reconciled(used_before(weighed), now);
        }
        self.settle(step, judged, now)
    }

    fn settle(&self, step: &mut WalkState, judged: JudgedAnswer, now: Timestamp) -> WalkStep {
        step.calls += 1;
        match judged.sureness {
            Sureness::Sure => {}
            Sureness::HeadersUnknown => step.doubt(BacktestDoubt::Headers, Certainty::Likely),
            Sureness::MightHaveCome => step.doubt(BacktestDoubt::LongerTimeout, Certainty::Unknown),
            Sureness::OnlyJudged => step.doubt(BacktestDoubt::BookForgotten, Certainty::Likely),
        }
        if let Outcome::Failed(failure) = &judged.outcome {
            step.failure = Some(failure.code.clone());
        }
        let decision = self.decided(step, &AttemptResult::Outcome(judged.outcome), now);
        match decision.verdict {
            Verdict::Deliver => WalkStep::Over(Finish::Delivered { at: now }),
            Verdict::Retry { due_at } | Verdict::Hold { until: due_at } => WalkStep::Again(due_at),
            Verdict::DeadLetter { reason, .. } => {
                let failure = step.failure.clone().expect("only failures become dead letters");
                WalkStep::Over(Finish::Dead {
                    at: now,
                    code: reason.code().map_or_else(|| failure.clone(), FailureCode::of),
                    failure: Some(failure),
                })
            }
            Verdict::Pause => WalkStep::Paused(now),
        }
    }

    fn decided(&self, step: &mut WalkState, ended: &AttemptResult, now: Timestamp) -> Decision {
        let moment = Moment { now, seed: self.seed, delivery: self.delivery, attempt: step.attempt };
        let decision = decide(self.rule, &step.history, ended, &moment);
        step.history = step.history.after(&decision, now);
        decision
    }

    fn hold_expired(&self, step: &WalkState, story: &AttemptRecord, then: Option<&Rule>) -> Option<Finish> {
        let held = Duration::from_nanos(story.held_nanos);
        let is_shorter = then.is_some_and(|then| self.rule.hold_max < then.hold_max);
        if !is_shorter || held <= self.rule.hold_max || held <= step.history.held(story.started_at) {
            return None;
        }
        let code = match self.rule.breaker {
            Some(_) => codes::CIRCUIT_BREAKER_OPEN,
            None => codes::HOLD_EXPIRED,
        };
        let at = story.started_at - held.saturating_sub(self.rule.hold_max);
        Some(Finish::Dead { at, code: FailureCode::of(code), failure: step.failure.clone() })
    }

    fn held(
        &self,
        step: &mut WalkState,
        story: &AttemptRecord,
        by: HoldReason,
        code: &FailureCode,
    ) -> Finish {
        let at = story.started_at;
        let as_recorded = Finish::Dead { at, code: code.clone(), failure: step.failure.clone() };
        let is_late =
            || self.rule.deadline.is_some_and(|deadline| step.history.age_nanos(at) >= nanos(deadline));
        if code.as_str() == codes::DEADLINE_EXCEEDED {
            return if is_late() { as_recorded } else { self.off_record(step, at) };
        }
        let held = Duration::from_nanos(story.held_nanos);
        match by {
            HoldReason::Deadline | HoldReason::RuleRemoved | HoldReason::Notified | HoldReason::Damage => {
                self.off_record(step, at)
            }
            HoldReason::Breaker if self.rule.breaker.is_none() => self.off_record(step, at - held),
            HoldReason::Breaker if self.rule.when_open == WhenOpen::DeadLetter => as_recorded,
            HoldReason::Breaker | HoldReason::RetryAfter => match self.rule.hold_max.saturating_sub(held) {
                Duration::ZERO => as_recorded,
                left => self.held_on(step, at, left, code),
            },
        }
    }

    fn held_on(&self, step: &mut WalkState, from: Timestamp, left: Duration, code: &FailureCode) -> Finish {
        let last = from + left;
        let limit = self.rule.timeouts.whole.limit(Attempt::FIRST);
        let kind = |evidence: &AnswerEvidence| {
            let judged = evidence.judged(self.rule, Attempt::FIRST, Duration::ZERO, None);
            matches!(judged.outcome, Outcome::Delivered { .. })
        };
        let good = GoodAnswer { kind: &kind, within: limit, share: SHARE_LIKELY };
        if let Some(at) = self.timeline.and_then(|timeline| timeline.first_good(from..=last, &good)) {
            step.doubt(BacktestDoubt::Ramp, Certainty::Likely);
            step.history = step.history.held_since(from);
            return self.off_record(step, at);
        }
        step.doubt(BacktestDoubt::NothingNear, Certainty::Unknown);
        if last > self.until {
            return Finish::Waiting;
        }
        Finish::Dead { at: last, code: code.clone(), failure: step.failure.clone() }
    }

    fn off_record(&self, step: &mut WalkState, due_at: Timestamp) -> Finish {
        let mut due_at = due_at;
        while step.calls < limits::BACKTEST_CALLS_MAX {
            match self.behind_breaker(step, due_at) {
                WalkStep::Again(at) => due_at = at,
                WalkStep::Over(finish) => return finish,
                WalkStep::Paused(_) => unreachable!("a breaker never pauses"),
            }
            // A call that would start at the end has not ended by then.
            if due_at >= self.until {
                return Finish::Waiting;
            }
            match self.tried(step, due_at) {
                WalkStep::Over(finish) => return finish,
                WalkStep::Again(at) => due_at = at,
                WalkStep::Paused(at) => return Finish::Paused { at },
            }
            step.attempt = step.attempt.next();
        }
        Finish::Waiting
    }

    /// By the recorded states of the breaker.
    fn behind_breaker(&self, step: &mut WalkState, due_at: Timestamp) -> WalkStep {
        let mut at = due_at;
        while self.rule.breaker.is_some()
            && let Some((_, until)) = self.open.iter().find(|(from, until)| *from <= at && at < *until)
        {
            step.doubt(BacktestDoubt::Ramp, Certainty::Likely);
            match self.decided(step, &AttemptResult::BreakerOpen { until: *until }, at).verdict {
                Verdict::Hold { until } if until > at => at = until,
                Verdict::DeadLetter { reason, .. } => {
                    let code =
                        FailureCode::of(reason.code().expect("what did not start has a reason of its own"));
                    return WalkStep::Over(Finish::Dead { at, code, failure: step.failure.clone() });
                }
                Verdict::Hold { .. } | Verdict::Deliver | Verdict::Retry { .. } | Verdict::Pause => break,
            }
        }
        WalkStep::Again(at)
    }

    fn tried(&self, step: &mut WalkState, at: Timestamp) -> WalkStep {
        let known = self.known_at(at);
        step.trust(known.certainty);
        step.doubts.extend(known.doubt);
        if known.certainty == Certainty::Unknown {
            step.guessed += 1;
        }
        step.history = step.history.started(at);
        let own = known.own.and_then(|place| self.own(place));
        let evidence = own.as_ref().or(known.evidence).cloned().unwrap_or(AnswerEvidence::Taken);
        let judged = evidence.judged(self.rule, step.attempt, known.took, None);
        let now = at + judged.took;
        self.settle(step, judged, now)
    }

    fn known_at(&self, at: Timestamp) -> KnownAnswer<'_> {
        if let Some((place, _)) = self.nearest_own(at).filter(|(_, distance)| *distance <= OWN_NEAR) {
            return self.own_again(place, Certainty::Likely, None);
        }
        if self.is_about_message()
            && let Some((place, _)) = self.last_own()
        {
            return self.own_again(place, Certainty::Unknown, Some(BacktestDoubt::Message));
        }
        let Some(timeline) = self.timeline else { return self.unknown_answer(None) };
        if let Some(here) = timeline.at(at) {
            return self.by_majority(&here);
        }
        let (before, after) = (timeline.before(at), timeline.after(at));
        let is_nearer = |one: &NearAnswers<'_>, other: &Option<NearAnswers<'_>>| {
            other.as_ref().is_none_or(|other| one.distance <= other.distance)
        };
        let nearest = match &before {
            Some(before) if is_nearer(before, &after) => Some(before),
            Some(_) | None => after.as_ref(),
        };
        let Some(nearest) = nearest else { return self.unknown_answer(None) };
        if nearest.distance <= limits::BACKTEST_NEAR {
            return self.by_majority(nearest);
        }
        if let (Some(before), Some(after)) = (&before, &after) {
            let class =
                |around: &NearAnswers<'_>| self.class_of(&around.most_frequent(|a| self.class_of(a)).0);
            let is_between = before.distance + after.distance <= limits::BACKTEST_BETWEEN;
            if is_between && class(before) == class(after) {
                return self.by_majority(before);
            }
        }
        self.unknown_answer(Some(before.as_ref().unwrap_or(nearest)))
    }

    fn by_majority<'b>(&'b self, around: &NearAnswers<'b>) -> KnownAnswer<'b> {
        let (most, share) = around.most_frequent(|answers| self.class_of(answers));
        let (certainty, doubt) = if share >= SHARE_LIKELY {
            (Certainty::Likely, None)
        } else {
            (Certainty::Unknown, Some(BacktestDoubt::Mixed))
        };
        KnownAnswer { evidence: Some(most.evidence), own: None, took: most.took, certainty, doubt }
    }

    /// Continues with the last known answer.
    fn unknown_answer<'b>(&'b self, last: Option<&NearAnswers<'b>>) -> KnownAnswer<'b> {
        let (certainty, doubt) = (Certainty::Unknown, Some(BacktestDoubt::NothingNear));
        match last {
            Some(around) => KnownAnswer { certainty, doubt, ..self.by_majority(around) },
            None => KnownAnswer { evidence: None, own: None, took: Duration::ZERO, certainty, doubt },
        }
    }

    fn own_again(&self, place: usize, certainty: Certainty, doubt: Option<BacktestDoubt>) -> KnownAnswer<'_> {
        KnownAnswer { evidence: None, own: Some(place), took: took(&self.stories[place]), certainty, doubt }
    }

    fn own(&self, place: usize) -> Option<AnswerEvidence> {
        AnswerEvidence::of(&self.stories[place], self.then[place])
    }

    fn nearest_own(&self, at: Timestamp) -> Option<(usize, Duration)> {
        let made = self.stories.iter().enumerate().filter(|(_, story)| story.is_attempt());
        let distance = |story: &AttemptRecord| story.started_at.since(at).max(at.since(story.started_at));
        made.map(|(place, story)| (place, distance(story))).min_by_key(|(_, distance)| *distance)
    }

    fn last_own(&self) -> Option<(usize, &AttemptRecord)> {
        self.life.iter().enumerate().rfind(|(_, story)| story.is_attempt())
    }

    /// `None` is a success.
    fn class_of(&self, answers: &Answers<'_>) -> Option<Category> {
        match answers.evidence.judged(self.rule, Attempt::FIRST, answers.took, None).outcome {
            Outcome::Delivered { .. } => None,
            Outcome::Failed(failure) => Some(failure.category),
        }
    }

    fn is_well(&self, around: &NearAnswers<'_>) -> bool {
        let (most, share) = around.most_frequent(|answers| self.class_of(answers));
        self.class_of(&most).is_none() && share >= SHARE_LIKELY
    }

    /// Whether only this message failed; then answers to others say nothing about it.
    fn is_about_message(&self) -> bool {
        *self.about_message.get_or_init(|| {
            let was_delivered =
                self.stories.iter().any(|story| matches!(story.end, AttemptEnd::Delivered { .. }));
            let Some((place, last)) = self.last_own().filter(|_| !was_delivered) else { return false };
            let Some(evidence) = self.own(place) else { return false };
            let around = self.timeline.and_then(|timeline| timeline.at(last.started_at));
            let Some(around) = around else { return false };
            let kind = evidence.kind();
            let step = self.timeline.map_or(Duration::ZERO, Timeline::step);
            let of_own = self.stories.iter().filter(|story| {
                let apart =
                    story.started_at.since(last.started_at).max(last.started_at.since(story.started_at));
                story.is_attempt() && apart <= step
            });
            let others_failed_too = around.count_of(&kind) > of_own.count() as u64;
            if matches!(evidence.usual_category(), Some(Category::Permanent | Category::Invalid)) {
                return !others_failed_too;
            }
            self.is_well(&around)
        })
    }
}

impl WalkState {
    fn trust(&mut self, certainty: Certainty) {
        self.certainty = self.certainty.max(certainty);
    }

    fn doubt(&mut self, doubt: BacktestDoubt, certainty: Certainty) {
        self.doubts.push(doubt);
        self.trust(certainty);
    }
}

fn used_before(weighed: &RecordedRetry) -> UsedOnRecord {
    let asked = weighed.retry_after_nanos.unwrap_or(0);
    let wait = weighed.backoff_nanos.max(asked);
    let waited = if asked > weighed.backoff_nanos { 0 } else { wait };
    UsedOnRecord {
        age_nanos: weighed.deadline.used_nanos.saturating_sub(wait),
        window_nanos: weighed.window.used_nanos.saturating_sub(waited),
    }
}
