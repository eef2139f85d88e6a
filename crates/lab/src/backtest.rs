//! Compares recorded deliveries with another rule book: which would have ended differently, the change in load and
//! time, and what the record cannot show.
//!
//! ```text
//!   first pass:  every attempt ──▶ answers of each dependency over time
//!   second pass: every delivery ──▶ decided by the new rules ──▶ report
//! ```
//!
//! [`redrive_core::policy::decide`] decides, with the store's own seed, so jitter is as the server would have drawn
//! it. `docs/decisions/0012-backtest-from-records-with-stated-certainty.md` lists the assumptions.
//!
//! Invariants:
//! - the book that made the record changes nothing, with certainty;
//! - the order of reading changes nothing;
//! - memory is bounded by dependencies and time steps, not by deliveries;
//! - unknown outcomes are reported and never counted as changes.

mod books;
mod evidence;
pub mod report;
mod sums;
#[cfg(test)]
mod tests;
mod timeline;
mod walk;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use self::books::{Books, CallLimits, FOREIGN, rule_of};
use self::evidence::{AnswerEvidence, took};
pub use self::report::BacktestReport;
use self::sums::{BacktestSums, ComparedDelivery};
use self::timeline::Timeline;
use self::walk::{RuleWalk, WalkResult};
use crate::simulate::target_of;
use redrive_core::book::RuleBook;
use redrive_core::book::alert_rules::is_own;
use redrive_core::engine::QueueName;
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord, RecordedVerdict};
use redrive_core::ids::{DeliveryId, DependencyName, Name, Seed, ServiceName};
use redrive_core::limits;
use redrive_core::policy::category::{Category, FailureCode};
use redrive_core::policy::rule::Rule;
use redrive_core::time::Timestamp;

#[derive(Clone, Debug)]
pub struct BacktestPlan<'a> {
    pub book: &'a RuleBook,
    pub seed: Seed,
    pub since: Option<Timestamp>,
    pub until: Timestamp,
}

#[derive(Clone, Copy, Debug)]
pub struct RecordedDelivery<'a> {
    pub id: DeliveryId,
    pub queue: &'a QueueName,
    pub event_type: &'a str,
    pub order: SessionMembership,
    pub accepted_at: Timestamp,
    pub state: RecordedState,
    pub replays: ReplayHistory,
    pub stories: &'a [AttemptRecord],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionMembership {
    Alone,
    InSession,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedState {
    Waiting,
    Delivered,
    Dead { at: Timestamp },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayHistory {
    None,
    Here(u32),
    /// Answers from elsewhere say nothing about the original target.
    Elsewhere(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// The rules make the recorded attempts, or end before the last of them.
    Certain,
    /// Answers to other calls at about that time are on record.
    Likely,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    Delivered { at: Timestamp },
    Dead { at: Timestamp, code: FailureCode, failure: Option<FailureCode> },
    Waiting,
    Paused { at: Timestamp },
    NotSent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BacktestDoubt {
    NothingNear,
    Mixed,
    /// Only this message failed; later attempts of it are unknown.
    Message,
    LongerTimeout,
    Headers,
    /// Only the classification of the answer is known.
    BookForgotten,
    Target,
    Breaker,
    Holds,
    Shared,
    /// Only its first life is compared.
    Replayed,
    Session,
    Paused,
    Retention,
    NeverTried,
    NotYetTried,
    Imported,
    Limits,
    Ramp,
}

#[derive(Debug)]
pub struct BacktestSurvey<'a> {
    plan: BacktestPlan<'a>,
    known: Knowledge,
    counts: EventCounts,
}

#[derive(Debug, Default)]
struct Knowledge {
    books: Books,
    timelines: BTreeMap<DependencyName, Timeline>,
    open: BTreeMap<String, Vec<(Timestamp, Timestamp)>>,
    paused: BTreeMap<ServiceName, Timestamp>,
    /// By their name in the new book: some delivery has another breaker, other holds or other limits.
    guarded_otherwise: BTreeSet<DependencyName>,
    /// The first failure and the end of the last.
    failed: BTreeMap<DependencyName, (Timestamp, Timestamp)>,
    renamed: BTreeSet<RenamedDependency>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RenamedDependency {
    then: DependencyName,
    now: DependencyName,
}

#[derive(Debug, Default)]
struct EventCounts {
    by_type: BTreeMap<String, BTreeMap<QueueName, u64>>,
    unrouted: BTreeMap<String, u64>,
}

impl EventCounts {
    fn add(&mut self, recorded: &RecordedDelivery<'_>) {
        let has_room = self.by_type.len() < limits::BACKTEST_TYPES_MAX;
        if has_room || self.by_type.contains_key(recorded.event_type) {
            let queues = self.by_type.entry(recorded.event_type.to_owned()).or_default();
            *queues.entry(recorded.queue.clone()).or_default() += 1;
        }
    }
}

impl<'a> BacktestSurvey<'a> {
    #[must_use]
    pub fn new(plan: BacktestPlan<'a>) -> Self {
        Self { plan, known: Knowledge::default(), counts: EventCounts::default() }
    }

    #[must_use]
    pub fn wants_book(&self, recorded: &RecordedDelivery<'_>) -> Option<u64> {
        self.known.books.wanted(recorded.stories)
    }

    pub fn add_book(&mut self, hash: u64, book: Option<RuleBook>) {
        self.known.books.add(hash, book);
    }

    pub fn add_open(&mut self, dependency: &str, from: Timestamp, until: Timestamp) {
        self.known.open.entry(dependency.to_owned()).or_default().push((from, until));
    }

    pub fn add_unrouted(&mut self, event_type: &str, received_at: Timestamp) {
        let unrouted = &mut self.counts.unrouted;
        let has_room = unrouted.len() < limits::BACKTEST_TYPES_MAX || unrouted.contains_key(event_type);
        if self.plan.covers(received_at) && has_room {
            *unrouted.entry(event_type.to_owned()).or_default() += 1;
        }
    }

    pub fn look(&mut self, recorded: &RecordedDelivery<'_>) {
        if !self.plan.covers(recorded.accepted_at) {
            return;
        }
        if recorded.was_routed() {
            self.counts.add(recorded);
        }
        let stories = match recorded.replays {
            ReplayHistory::None | ReplayHistory::Here(_) => self.plan.cut(recorded.stories),
            ReplayHistory::Elsewhere(_) => self.plan.cut(recorded.first_life().stories()),
        };
        if stories.is_empty() {
            return;
        }
        let dependency = self.known.dependency(&self.plan, recorded);
        if let (Some(then), Some(now)) = (self.known.first_rule(recorded), self.plan.rule(recorded)) {
            let (then, now) = (then.dependency.clone(), now.dependency.clone());
            self.known.renamed.insert(RenamedDependency { then, now });
        }
        if self.known.differences(&self.plan, recorded).is_some_and(Differences::any) {
            self.known.guarded_otherwise.insert(dependency.clone());
        }
        for story in stories.iter().filter(|story| story.book != FOREIGN && is_failure(story)) {
            let at = story.started_at;
            let (first, last) = self.known.failed.entry(dependency.clone()).or_insert((at, at));
            (*first, *last) = ((*first).min(at), (*last).max(at + took(story)));
        }
        for story in stories.iter().filter(|story| story.book != FOREIGN) {
            self.known.books.judged(story);
            let then = self.known.books.rule_then(recorded, story);
            if let Some(evidence) = AnswerEvidence::of(story, then.map(|rule| &**rule)) {
                let timeline = self.known.timelines.entry(dependency.clone()).or_default();
                timeline.add(story.started_at, recorded.id, evidence, took(story));
            }
        }
        self.look_for_pause(recorded);
    }

    /// Only the record itself can show when a service would pause: answers over time are not known before the first
    /// pass ends.
    fn look_for_pause(&mut self, recorded: &RecordedDelivery<'_>) {
        let Some(rule) = self.plan.rule(recorded).filter(|rule| rule.reactions.may_pause()) else { return };
        let life = self.plan.cut(recorded.first_life().stories());
        let walked = self.known.walked(&self.plan, recorded, rule, life, None);
        if let Finish::Paused { at } = walked.finish
            && !life.last().is_some_and(|story| story.verdict == RecordedVerdict::Paused)
        {
            let first = self.known.paused.entry(recorded.queue.service.clone()).or_insert(at);
            *first = at.min(*first);
        }
    }

    #[must_use]
    pub fn weighing(self) -> Weighing<'a> {
        let Self { plan, mut known, counts } = self;
        for spans in known.open.values_mut() {
            spans.sort_unstable();
        }
        Weighing { plan, known, counts, sums: BacktestSums::default() }
    }
}

#[derive(Debug)]
pub struct Weighing<'a> {
    plan: BacktestPlan<'a>,
    known: Knowledge,
    counts: EventCounts,
    sums: BacktestSums,
}

impl Weighing<'_> {
    pub fn weigh(&mut self, recorded: &RecordedDelivery<'_>) {
        if !self.plan.covers(recorded.accepted_at) {
            return;
        }
        let life = recorded.first_life();
        let made = self.plan.cut(life.stories());
        let before = self.finish_on_record(recorded, life);
        let mut walked = match (life, self.plan.rule(recorded)) {
            (FirstLife::Foreign, _) => WalkResult::without_calls(before.clone(), Certainty::Certain),
            (FirstLife::Unrecorded | FirstLife::Recorded(_), None) => {
                WalkResult::without_calls(Finish::NotSent, Certainty::Certain)
            }
            (FirstLife::Recorded(_), Some(rule)) if !made.is_empty() => {
                let timeline = self.known.timelines.get(&rule.dependency);
                self.known.walked(&self.plan, recorded, rule, made, timeline)
            }
            (FirstLife::Unrecorded | FirstLife::Recorded(_), Some(_)) => {
                let is_alike = self.known.books.all_start_alike(recorded, self.plan.book);
                let certainty = if is_alike { Certainty::Certain } else { Certainty::Unknown };
                WalkResult::without_calls(before.clone(), certainty)
            }
        };
        self.add_doubts(recorded, &before, &mut walked);
        let paused_at = self.known.paused.get(&recorded.queue.service);
        if paused_at.is_some_and(|at| made.iter().any(|story| story.started_at > *at)) {
            walked.doubts.push(BacktestDoubt::Paused);
            walked.certainty = Certainty::Unknown;
        }
        self.sums.add(&ComparedDelivery {
            id: recorded.id,
            queue: recorded.queue,
            dependency: &self.known.dependency(&self.plan, recorded),
            accepted_at: recorded.accepted_at,
            before,
            calls_before: calls(made),
            walked,
        });
    }

    fn finish_on_record(&self, recorded: &RecordedDelivery<'_>, life: FirstLife<'_>) -> Finish {
        let died = |at: Timestamp| Finish::Dead { at, code: FailureCode::of(""), failure: None };
        let last = match life {
            FirstLife::Recorded(stories) => self.plan.cut(stories).last(),
            FirstLife::Unrecorded | FirstLife::Foreign => return died(recorded.accepted_at),
        };
        let Some(last) = last else {
            return match recorded.state {
                RecordedState::Dead { at } if at <= self.plan.until && recorded.stories.is_empty() => {
                    died(at)
                }
                RecordedState::Waiting | RecordedState::Delivered | RecordedState::Dead { .. } => {
                    Finish::Waiting
                }
            };
        };
        let life = life.stories();
        let at = last.started_at + took(last);
        match &last.verdict {
            RecordedVerdict::Delivered => Finish::Delivered { at },
            RecordedVerdict::Dead { code, .. } => {
                let failure = life.iter().rev().find_map(|story| match &story.end {
                    AttemptEnd::Failed { code, .. } => Some(code.clone()),
                    AttemptEnd::Delivered { .. } | AttemptEnd::Held { .. } => None,
                });
                Finish::Dead { at, code: code.clone(), failure }
            }
            RecordedVerdict::Paused => Finish::Paused { at },
            RecordedVerdict::Retry { .. } | RecordedVerdict::Hold { .. } => Finish::Waiting,
        }
    }

    fn add_doubts(&self, recorded: &RecordedDelivery<'_>, before: &Finish, walked: &mut WalkResult) {
        let life = recorded.first_life();
        if life == FirstLife::Foreign {
            return walked.doubts.push(BacktestDoubt::Imported);
        }
        if recorded.replays != ReplayHistory::None {
            walked.doubts.push(BacktestDoubt::Replayed);
        }
        let has_moved = *before != walked.finish;
        if has_moved && recorded.order == SessionMembership::InSession {
            walked.doubts.push(BacktestDoubt::Session);
        }
        if walked.finish == Finish::NotSent {
            return;
        }
        let Some(first) = self.plan.cut(life.stories()).first() else {
            let is_dead = matches!(before, Finish::Dead { .. });
            return walked.doubts.push(if is_dead {
                BacktestDoubt::NeverTried
            } else {
                BacktestDoubt::NotYetTried
            });
        };
        let Some(book) = self.known.books.get(first.book) else { return };
        if self.plan.until.since(recorded.accepted_at) > book.sections().keep_delivered().value {
            walked.doubts.push(BacktestDoubt::Retention);
        }
        let target = target_of(book, recorded.queue);
        if target.is_some() && target != target_of(self.plan.book, recorded.queue) {
            walked.doubts.push(BacktestDoubt::Target);
            walked.certainty = walked.certainty.max(Certainty::Likely);
        }
        if let (Some(then), Some(rule)) = (rule_of(book, recorded), self.plan.rule(recorded)) {
            let doubts = self.doubts_of_rules(recorded, (book, then), rule);
            for (doubt, certainty) in doubts {
                if !walked.doubts.contains(&doubt) {
                    walked.doubts.push(doubt);
                }
                walked.certainty = walked.certainty.max(certainty);
            }
        }
    }

    fn doubts_of_rules(
        &self,
        recorded: &RecordedDelivery<'_>,
        (book, then): (&RuleBook, &Rule),
        rule: &Rule,
    ) -> Vec<(BacktestDoubt, Certainty)> {
        let differs = self.known.differences(&self.plan, recorded).unwrap_or_default();
        let failed = self.known.failed.get(&self.known.dependency(&self.plan, recorded));
        let has_failed = has_failed(recorded.stories);
        // Without failures no breaker opens.
        let by_failing = if has_failed { Certainty::Unknown } else { Certainty::Likely };
        let mut doubts = Vec::new();
        if (differs.breaker || self.known.is_regrouped(then, rule)) && failed.is_some() {
            doubts.push((BacktestDoubt::Breaker, by_failing));
        }
        if differs.holds && failed.is_some() {
            doubts.push((BacktestDoubt::Holds, Certainty::Likely));
        }
        if differs.limits {
            let was_turned_away = recorded.stories.iter().any(was_turned_away);
            let certainty = if was_turned_away { Certainty::Unknown } else { Certainty::Likely };
            doubts.push((BacktestDoubt::Limits, certainty));
        }
        let was_there = |(first, last): &(Timestamp, Timestamp)| {
            let ended_at = recorded.stories.last().map(|story| story.started_at + took(story));
            recorded.accepted_at <= *last && ended_at.is_some_and(|at| at >= *first)
        };
        let is_shared = self.known.guarded_otherwise.contains(&self.known.dependency(&self.plan, recorded));
        if doubts.is_empty() && is_shared && failed.is_some_and(was_there) {
            doubts.push((BacktestDoubt::Shared, by_failing));
        }
        let has_other_ramp = book.ramp(&then.dependency) != self.plan.book.ramp(&rule.dependency);
        let was_away = !self.known.open_for(recorded, rule).is_empty();
        if has_other_ramp && was_away {
            doubts.push((BacktestDoubt::Ramp, Certainty::Likely));
        }
        doubts
    }

    #[must_use]
    pub fn report(self) -> BacktestReport {
        let Self { plan, counts, sums, .. } = self;
        sums.into_report(&plan, &counts)
    }
}

impl<'a> BacktestPlan<'a> {
    fn covers(&self, accepted_at: Timestamp) -> bool {
        self.since.is_none_or(|since| accepted_at >= since) && accepted_at <= self.until
    }

    fn cut<'b>(&self, stories: &'b [AttemptRecord]) -> &'b [AttemptRecord] {
        let ended = |story: &&AttemptRecord| story.started_at + took(story) <= self.until;
        &stories[..stories.iter().take_while(ended).count()]
    }

    fn rule(&self, recorded: &RecordedDelivery<'_>) -> Option<&'a Arc<Rule>> {
        rule_of(self.book, recorded)
    }
}

impl Knowledge {
    fn walked(
        &self,
        plan: &BacktestPlan<'_>,
        recorded: &RecordedDelivery<'_>,
        rule: &Rule,
        life: &[AttemptRecord],
        timeline: Option<&Timeline>,
    ) -> WalkResult {
        let stories = match recorded.replays {
            ReplayHistory::None | ReplayHistory::Here(_) => plan.cut(recorded.stories),
            ReplayHistory::Elsewhere(_) => life,
        };
        let then: Vec<Option<&Rule>> =
            stories.iter().map(|story| self.books.rule_then(recorded, story).map(|rule| &**rule)).collect();
        let open = self.open_for(recorded, rule);
        let walk = RuleWalk {
            delivery: recorded.id,
            seed: plan.seed,
            rule,
            then: &then,
            stories,
            life,
            timeline,
            open,
            until: plan.until,
            about_message: OnceCell::new(),
        };
        walk.walked()
    }

    fn first_rule(&self, recorded: &RecordedDelivery<'_>) -> Option<&Arc<Rule>> {
        self.books.rule_then(recorded, recorded.first_life().stories().first()?)
    }

    fn dependency(&self, plan: &BacktestPlan<'_>, recorded: &RecordedDelivery<'_>) -> DependencyName {
        match plan.rule(recorded).or_else(|| self.first_rule(recorded)) {
            Some(rule) => rule.dependency.clone(),
            None => Name::like(&recorded.queue.service),
        }
    }

    /// By its recorded dependency name.
    fn open_for(&self, recorded: &RecordedDelivery<'_>, rule: &Rule) -> &[(Timestamp, Timestamp)] {
        let then = self.first_rule(recorded).map_or(&rule.dependency, |then| &then.dependency);
        self.open.get(then.as_str()).map_or(&[], Vec::as_slice)
    }

    fn differences(&self, plan: &BacktestPlan<'_>, recorded: &RecordedDelivery<'_>) -> Option<Differences> {
        let first = recorded.first_life().stories().first()?;
        let book = self.books.get(first.book)?;
        let (then, now) = (rule_of(book, recorded)?, plan.rule(recorded)?);
        Some(Differences {
            breaker: then.breaker != now.breaker,
            holds: (then.hold_max, then.when_open) != (now.hold_max, now.when_open),
            limits: CallLimits::of(book, then) != CallLimits::of(plan.book, now),
        })
    }

    fn is_regrouped(&self, then: &Rule, now: &Rule) -> bool {
        let is_other = |renamed: &RenamedDependency| {
            (renamed.then == then.dependency) != (renamed.now == now.dependency)
        };
        self.renamed.iter().any(is_other)
    }
}

/// Attempts until the first death; later ones were replays.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FirstLife<'a> {
    Recorded(&'a [AttemptRecord]),
    Unrecorded,
    Foreign,
}

impl<'a> FirstLife<'a> {
    const fn stories(self) -> &'a [AttemptRecord] {
        match self {
            Self::Recorded(stories) => stories,
            Self::Unrecorded | Self::Foreign => &[],
        }
    }
}

impl<'a> RecordedDelivery<'a> {
    /// Imported letters and alert notifications were not routed, and no book would route them elsewhere.
    fn was_routed(&self) -> bool {
        self.first_life() != FirstLife::Foreign && !is_own(self.queue.service.as_str())
    }

    fn first_life(&self) -> FirstLife<'a> {
        let is_death = |story: &AttemptRecord| matches!(story.verdict, RecordedVerdict::Dead { .. });
        if self.stories.first().is_some_and(|story| story.book == FOREIGN) {
            return FirstLife::Foreign;
        }
        // Every replay follows a death; a death without a record had no attempt.
        let deaths = self.stories.iter().filter(|story| is_death(story)).count();
        match self.replays {
            ReplayHistory::Here(count) | ReplayHistory::Elsewhere(count) if deaths < count as usize => {
                FirstLife::Unrecorded
            }
            ReplayHistory::None | ReplayHistory::Here(_) | ReplayHistory::Elsewhere(_) => {
                let died = self.stories.iter().position(is_death);
                FirstLife::Recorded(died.map_or(self.stories, |place| &self.stories[..=place]))
            }
        }
    }
}

fn calls(stories: &[AttemptRecord]) -> u32 {
    u32::try_from(stories.iter().filter(|story| story.is_attempt()).count()).unwrap_or(u32::MAX)
}

#[derive(Clone, Copy, Debug, Default)]
struct Differences {
    breaker: bool,
    holds: bool,
    limits: bool,
}

impl Differences {
    const fn any(self) -> bool {
        self.breaker || self.holds || self.limits
    }
}

const fn is_failure(story: &AttemptRecord) -> bool {
    matches!(story.end, AttemptEnd::Failed { .. } | AttemptEnd::Held { .. })
}

fn was_turned_away(story: &AttemptRecord) -> bool {
    matches!(story.end, AttemptEnd::Failed { category: Category::RateLimited, .. })
}

fn has_failed(stories: &[AttemptRecord]) -> bool {
    stories.iter().any(is_failure)
}
