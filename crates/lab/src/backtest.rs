//! Holds the record of a store against another rule book: which deliveries would have ended otherwise, how much
//! load and time that would have saved or added, and what the record cannot tell.
//!
//! ```text
//!   first reading:  every attempt ──▶ how each dependency was over time
//!   second reading: every delivery ──▶ walked by the new rules ──▶ report
//! ```
//!
//! What is decided is decided by [`redrive_core::policy::decide`], with the store's own seed, so that jitter comes out as the
//! server would have drawn it. `docs/decisions/0012-what-a-backtest-can-tell.md` says what is taken for what.
//!
//! Invariants:
//! - the book that the record was made by changes nothing, and that is certain;
//! - the order in which deliveries are read changes nothing;
//! - memory is bounded by dependencies and steps of time, never by the number of deliveries;
//! - what nobody knows is said, and never counted among what would have changed.

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

use self::books::{Books, FOREIGN, CallLimits, rule_of};
use self::evidence::{AnswerEvidence, took};
pub use self::report::BacktestReport;
use self::sums::{ComparedDelivery, BacktestSums};
use self::timeline::Timeline;
use self::walk::{RuleWalk, WalkResult};
use crate::simulate::target_of;
use redrive_core::book::RuleBook;
use redrive_core::book::own_book::is_own;
use redrive_core::engine::QueueName;
use redrive_core::engine::story::{End, Story, Told};
use redrive_core::ids::{DeliveryId, DependencyName, Name, Seed, ServiceName};
use redrive_core::limits;
use redrive_core::policy::category::{Category, Code};
use redrive_core::policy::rule::Rule;
use redrive_core::time::Timestamp;

/// What to hold the record against.
#[derive(Clone, Debug)]
pub struct BacktestPlan<'a> {
    /// The new rules.
    pub book: &'a RuleBook,
    /// The store's own seed.
    pub seed: Seed,
    /// Only what was accepted from then on.
    pub since: Option<Timestamp>,
    /// Nothing that happened later is looked at.
    pub until: Timestamp,
}

/// A delivery as it is on record.
#[derive(Clone, Copy, Debug)]
pub struct RecordedDelivery<'a> {
    /// Which.
    pub id: DeliveryId,
    /// Whose it was when it was accepted.
    pub queue: &'a QueueName,
    /// The type of its event.
    pub event_type: &'a str,
    /// Whether others may wait behind it.
    pub order: SessionMembership,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// What it is.
    pub state: RecordedState,
    /// Whether it was sent again after it had died.
    pub replays: ReplayHistory,
    /// Its attempts, the first one first.
    pub stories: &'a [Story],
}

/// Whether others may wait behind a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionMembership {
    /// It belongs to no session.
    Alone,
    /// It belongs to one.
    InSession,
}

/// What a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedState {
    /// It has not ended.
    Waiting,
    /// It is delivered.
    Delivered,
    /// It is dead, or a person has done with its letter.
    Dead { at: Timestamp },
}

/// Whether a delivery was sent again after it had died, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayHistory {
    /// It was not.
    None,
    /// To whom it was sent before.
    Here(u32),
    /// At least once to somebody else, whose answers say nothing of whom it was sent to before.
    Elsewhere(u32),
}

/// How far an answer can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// The rules ask for the very attempts that are on record, or end before the last of them.
    Certain,
    /// What the dependency answered to others at about that time is on record.
    Likely,
    /// Nothing on record says what would have been answered.
    Unknown,
}

/// How a delivery ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It arrives.
    Delivered { at: Timestamp },
    /// It is given up.
    Dead {
        /// When.
        at: Timestamp,
        /// Why.
        code: Code,
        /// The code of its last failure, if it had one.
        failure: Option<Code>,
    },
    /// It waits still.
    Waiting,
    /// Its service is paused, and a person has to go on.
    Paused { at: Timestamp },
    /// Nobody wants it.
    NotSent,
}

/// Why something cannot be told from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BacktestDoubt {
    /// Nobody called at about that time.
    NothingNear,
    /// The answers at that time were mixed.
    Mixed,
    /// Only this message failed, and nobody knows what it would have met later.
    Message,
    /// A call ran into the time limit, and the new rules wait for longer.
    LongerTimeout,
    /// The new rules look at headers, which are not on record.
    Headers,
    /// The book that an answer was judged by is not known, and so only what was made of the answer.
    BookForgotten,
    /// The new book sends it elsewhere.
    Target,
    /// The new book has another breaker.
    Breaker,
    /// The new book holds it for longer or shorter, or otherwise, while a breaker is open.
    Holds,
    /// It shares a dependency with others that have another breaker, other holds or other limits.
    Shared,
    /// It was replayed by hand or by rule; only its first life is compared.
    Replayed,
    /// Others of its session may have waited behind it for a longer or a shorter time.
    Session,
    /// Its service would have paused itself before.
    Paused,
    /// It is older than what was delivered is kept.
    Retention,
    /// It died without an attempt.
    NeverTried,
    /// It waits, and nobody has tried it yet.
    NotYetTried,
    /// It died elsewhere, and came as a dead letter.
    Imported,
    /// The new book has other limits on calls.
    Limits,
    /// When those get their turn who have waited for a dependency.
    Ramp,
}

/// The first reading: how every dependency was over time.
#[derive(Debug)]
pub struct BacktestSurvey<'a> {
    plan: BacktestPlan<'a>,
    known: Knowledge,
    counts: EventCounts,
}

/// What was gathered for the second reading.
#[derive(Debug, Default)]
struct Knowledge {
    books: Books,
    timelines: BTreeMap<DependencyName, Timeline>,
    open: BTreeMap<String, Vec<(Timestamp, Timestamp)>>,
    /// When each service would have paused itself for the first time where it did not.
    paused: BTreeMap<ServiceName, Timestamp>,
    /// Dependencies, as the new book names them, that some delivery would have met by another breaker, by other
    /// holds or by other limits.
    guarded_otherwise: BTreeSet<DependencyName>,
    /// When something first failed there, and when it last did.
    failed: BTreeMap<DependencyName, (Timestamp, Timestamp)>,
    /// What dependencies of the record are called by the new book, and the other way round.
    renamed: BTreeSet<RenamedDependency>,
}

/// A dependency as it was called, and as the new book calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RenamedDependency {
    then: DependencyName,
    now: DependencyName,
}

/// How often events of each type came, by who took them.
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
    /// Nothing read yet.
    #[must_use]
    pub fn new(plan: BacktestPlan<'a>) -> Self {
        Self { plan, known: Knowledge::default(), counts: EventCounts::default() }
    }

    /// The hash of a book that an attempt was judged by and that nobody has handed over yet.
    #[must_use]
    pub fn wants_book(&self, recorded: &RecordedDelivery<'_>) -> Option<u64> {
        self.known.books.wanted(recorded.stories)
    }

    /// Hands over the book of that hash, or says that there is none.
    pub fn add_book(&mut self, hash: u64, book: Option<RuleBook>) {
        self.known.books.add(hash, book);
    }

    /// Says that a breaker was not closed for a while.
    pub fn add_open(&mut self, dependency: &str, from: Timestamp, until: Timestamp) {
        self.known.open.entry(dependency.to_owned()).or_default().push((from, until));
    }

    /// Says that an event of that type came and nobody wanted it.
    pub fn add_unrouted(&mut self, event_type: &str, received_at: Timestamp) {
        let unrouted = &mut self.counts.unrouted;
        let has_room = unrouted.len() < limits::BACKTEST_TYPES_MAX || unrouted.contains_key(event_type);
        if self.plan.covers(received_at) && has_room {
            *unrouted.entry(event_type.to_owned()).or_default() += 1;
        }
    }

    /// Reads a delivery for the first time.
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

    /// A service that pauses itself holds all that comes after: only the record itself can say when, since how
    /// dependencies were is not known before everything is read.
    fn look_for_pause(&mut self, recorded: &RecordedDelivery<'_>) {
        let Some(rule) = self.plan.rule(recorded).filter(|rule| rule.reactions.may_pause()) else { return };
        let life = self.plan.cut(recorded.first_life().stories());
        let walked = self.known.walked(&self.plan, recorded, rule, life, None);
        if let Finish::Paused { at } = walked.finish
            && !life.last().is_some_and(|story| story.verdict == Told::Paused)
        {
            let first = self.known.paused.entry(recorded.queue.service.clone()).or_insert(at);
            *first = at.min(*first);
        }
    }

    /// Everything was read once.
    #[must_use]
    pub fn weighing(self) -> Weighing<'a> {
        let Self { plan, mut known, counts } = self;
        for spans in known.open.values_mut() {
            spans.sort_unstable();
        }
        Weighing { plan, known, counts, sums: BacktestSums::default() }
    }
}

/// The second reading: every delivery by the new rules.
#[derive(Debug)]
pub struct Weighing<'a> {
    plan: BacktestPlan<'a>,
    known: Knowledge,
    counts: EventCounts,
    sums: BacktestSums,
}

impl Weighing<'_> {
    /// Reads a delivery for the second time.
    pub fn weigh(&mut self, recorded: &RecordedDelivery<'_>) {
        if !self.plan.covers(recorded.accepted_at) {
            return;
        }
        let life = recorded.first_life();
        let told = self.plan.cut(life.stories());
        let before = self.finish_on_record(recorded, life);
        let mut walked = match (life, self.plan.rule(recorded)) {
            (FirstLife::Foreign, _) => WalkResult::without_calls(before.clone(), Certainty::Certain),
            (FirstLife::Untold | FirstLife::Told(_), None) => {
                WalkResult::without_calls(Finish::NotSent, Certainty::Certain)
            }
            (FirstLife::Told(_), Some(rule)) if !told.is_empty() => {
                let timeline = self.known.timelines.get(&rule.dependency);
                self.known.walked(&self.plan, recorded, rule, told, timeline)
            }
            (FirstLife::Untold | FirstLife::Told(_), Some(_)) => {
                let is_alike = self.known.books.all_start_alike(recorded, self.plan.book);
                let certainty = if is_alike { Certainty::Certain } else { Certainty::Unknown };
                WalkResult::without_calls(before.clone(), certainty)
            }
        };
        self.add_doubts(recorded, &before, &mut walked);
        let paused_at = self.known.paused.get(&recorded.queue.service);
        if paused_at.is_some_and(|at| told.iter().any(|story| story.started_at > *at)) {
            walked.doubts.push(BacktestDoubt::Paused);
            walked.certainty = Certainty::Unknown;
        }
        self.sums.add(&ComparedDelivery {
            id: recorded.id,
            queue: recorded.queue,
            dependency: &self.known.dependency(&self.plan, recorded),
            accepted_at: recorded.accepted_at,
            before,
            calls_before: calls(told),
            walked,
        });
    }

    /// How it ended in its first life; what nobody tried is as the store says.
    fn finish_on_record(&self, recorded: &RecordedDelivery<'_>, life: FirstLife<'_>) -> Finish {
        let died = |at: Timestamp| Finish::Dead { at, code: Code::of(""), failure: None };
        let last = match life {
            FirstLife::Told(stories) => self.plan.cut(stories).last(),
            FirstLife::Untold | FirstLife::Foreign => return died(recorded.accepted_at),
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
            Told::Delivered => Finish::Delivered { at },
            Told::Dead { code, .. } => {
                let failure = life.iter().rev().find_map(|story| match &story.end {
                    End::Failed { code, .. } => Some(code.clone()),
                    End::Delivered { .. } | End::Held { .. } => None,
                });
                Finish::Dead { at, code: code.clone(), failure }
            }
            Told::Paused => Finish::Paused { at },
            Told::Retry { .. } | Told::Hold { .. } => Finish::Waiting,
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
            return walked.doubts.push(if is_dead { BacktestDoubt::NeverTried } else { BacktestDoubt::NotYetTried });
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

    /// What cannot be told since the new rules have another breaker, other holds or other limits, for it or for
    /// others that share its dependency.
    fn doubts_of_rules(
        &self,
        recorded: &RecordedDelivery<'_>,
        (book, then): (&RuleBook, &Rule),
        rule: &Rule,
    ) -> Vec<(BacktestDoubt, Certainty)> {
        let differs = self.known.differences(&self.plan, recorded).unwrap_or_default();
        let failed = self.known.failed.get(&self.known.dependency(&self.plan, recorded));
        let has_failed = has_failed(recorded.stories);
        // Where nothing ever failed no breaker opens, and nothing is held.
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

    /// All of it together.
    #[must_use]
    pub fn told(self) -> BacktestReport {
        let Self { plan, counts, sums, .. } = self;
        sums.told(&plan, &counts)
    }
}

impl<'a> BacktestPlan<'a> {
    fn covers(&self, accepted_at: Timestamp) -> bool {
        self.since.is_none_or(|since| accepted_at >= since) && accepted_at <= self.until
    }

    /// The attempts that had ended by then.
    fn cut<'b>(&self, stories: &'b [Story]) -> &'b [Story] {
        let ended = |story: &&Story| story.started_at + took(story) <= self.until;
        &stories[..stories.iter().take_while(ended).count()]
    }

    fn rule(&self, recorded: &RecordedDelivery<'_>) -> Option<&'a Arc<Rule>> {
        rule_of(self.book, recorded)
    }
}

impl Knowledge {
    /// Where a rule leads, by how the dependency was as far as that is known.
    fn walked(
        &self,
        plan: &BacktestPlan<'_>,
        recorded: &RecordedDelivery<'_>,
        rule: &Rule,
        life: &[Story],
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

    /// The rule that judged its first attempt, as far as it is known.
    fn first_rule(&self, recorded: &RecordedDelivery<'_>) -> Option<&Arc<Rule>> {
        self.books.rule_then(recorded, recorded.first_life().stories().first()?)
    }

    /// The dependency as the new book names it, or else as the old one did.
    fn dependency(&self, plan: &BacktestPlan<'_>, recorded: &RecordedDelivery<'_>) -> DependencyName {
        match plan.rule(recorded).or_else(|| self.first_rule(recorded)) {
            Some(rule) => rule.dependency.clone(),
            None => Name::like(&recorded.queue.service),
        }
    }

    /// When the breaker in front of it was not closed, whatever its dependency is called now.
    fn open_for(&self, recorded: &RecordedDelivery<'_>, rule: &Rule) -> &[(Timestamp, Timestamp)] {
        let then = self.first_rule(recorded).map_or(&rule.dependency, |then| &then.dependency);
        self.open.get(then.as_str()).map_or(&[], Vec::as_slice)
    }

    /// In what the new book stands between it and its dependency otherwise than the book that judged it first.
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

    /// Whether its dependency is one with others now, or is several.
    fn is_regrouped(&self, then: &Rule, now: &Rule) -> bool {
        let is_other =
            |renamed: &RenamedDependency| (renamed.then == then.dependency) != (renamed.now == now.dependency);
        self.renamed.iter().any(is_other)
    }
}

/// What is on record of a delivery until it first died: what came after was somebody's will.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FirstLife<'a> {
    /// Its attempts.
    Told(&'a [Story]),
    /// Nothing: it died without an attempt, and was replayed.
    Untold,
    /// It was not here.
    Foreign,
}

impl<'a> FirstLife<'a> {
    const fn stories(self) -> &'a [Story] {
        match self {
            Self::Told(stories) => stories,
            Self::Untold | Self::Foreign => &[],
        }
    }
}

impl<'a> RecordedDelivery<'a> {
    /// Whether its event came in and was routed: letters from elsewhere and notices of alerts were not, and no other
    /// book would have sent them to anybody else.
    fn was_routed(&self) -> bool {
        self.first_life() != FirstLife::Foreign && !is_own(self.queue.service.as_str())
    }

    fn first_life(&self) -> FirstLife<'a> {
        let is_death = |story: &Story| matches!(story.verdict, Told::Dead { .. });
        if self.stories.first().is_some_and(|story| story.book == FOREIGN) {
            return FirstLife::Foreign;
        }
        // Every replay follows a death; one that has no story had no attempt.
        let deaths = self.stories.iter().filter(|story| is_death(story)).count();
        match self.replays {
            ReplayHistory::Here(count) | ReplayHistory::Elsewhere(count) if deaths < count as usize => FirstLife::Untold,
            ReplayHistory::None | ReplayHistory::Here(_) | ReplayHistory::Elsewhere(_) => {
                let died = self.stories.iter().position(is_death);
                FirstLife::Told(died.map_or(self.stories, |place| &self.stories[..=place]))
            }
        }
    }
}

fn calls(stories: &[Story]) -> u32 {
    u32::try_from(stories.iter().filter(|story| story.is_attempt()).count()).unwrap_or(u32::MAX)
}

/// What differs between two books of what stands before a dependency.
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

const fn is_failure(story: &Story) -> bool {
    matches!(story.end, End::Failed { .. } | End::Held { .. })
}

fn was_turned_away(story: &Story) -> bool {
    matches!(story.end, End::Failed { category: Category::RateLimited, .. })
}

fn has_failed(stories: &[Story]) -> bool {
    stories.iter().any(is_failure)
}
