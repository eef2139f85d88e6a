//! Holds the record of a store against another rule book: which deliveries would have ended otherwise, how much
//! load and time that would have saved or added, and what the record cannot tell.
//!
//! ```text
//!   first reading:  every attempt ──▶ how each dependency was over time
//!   second reading: every delivery ──▶ walked by the new rules ──▶ report
//! ```
//!
//! What is decided is decided by [`crate::decide`], with the store's own seed, so that jitter comes out as the
//! server would have drawn it. `docs/decisions/0012-what-a-backtest-can-tell.md` says what is taken for what.
//!
//! Invariants:
//! - the book that the record was made by changes nothing, and that is certain;
//! - the order in which deliveries are read changes nothing;
//! - memory is bounded by dependencies and steps of time, never by the number of deliveries;
//! - what nobody knows is said, and never counted among what would have changed.

mod evidence;
pub mod report;
mod sums;
#[cfg(test)]
mod tests;
mod timeline;
mod walk;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use self::evidence::{Evidence, took};
pub use self::report::Report;
use self::sums::{Compared, Sums};
use self::timeline::Timeline;
use self::walk::{Walk, Walked};
use crate::book::RuleBook;
use crate::category::Code;
use crate::engine::QueueName;
use crate::ids::{ChannelName, DeliveryId, DependencyName, Name, Seed};
use crate::limits;
use crate::rule::Rule;
use crate::story::{End, Story, Told};
use crate::time::Timestamp;

/// What to hold the record against.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
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
pub struct Recorded<'a> {
    /// Which.
    pub id: DeliveryId,
    /// Whose.
    pub queue: &'a QueueName,
    /// The type of its event.
    pub event_type: &'a str,
    /// Whether others may wait behind it.
    pub order: Ordered,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// What it is.
    pub state: RecordedState,
    /// Its attempts, the first one first.
    pub stories: &'a [Story],
}

/// Whether others may wait behind a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
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
    Dead {
        /// When it died.
        at: Timestamp,
    },
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
    Delivered {
        /// When.
        at: Timestamp,
    },
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
    Paused {
        /// When.
        at: Timestamp,
    },
    /// Nobody wants it.
    NotSent,
}

/// Why something cannot be told from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
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
    /// It was replayed by hand or by rule; only its first life is compared.
    Replayed,
    /// Others of its session may have waited behind it for a longer or a shorter time.
    Session,
    /// It is older than what was delivered is kept.
    Retention,
    /// It died without an attempt.
    NeverTried,
}

/// The first reading: how every dependency was over time.
#[derive(Debug)]
pub struct Survey<'a> {
    plan: Plan<'a>,
    known: Knowledge,
    counts: Seen,
}

/// What was gathered for the second reading.
#[derive(Debug, Default)]
struct Knowledge {
    books: BTreeMap<u64, Option<Arc<RuleBook>>>,
    timelines: BTreeMap<DependencyName, Timeline>,
    open: BTreeMap<String, Vec<(Timestamp, Timestamp)>>,
}

/// How often events of each type came, by who took them.
#[derive(Debug, Default)]
struct Seen {
    by_type: BTreeMap<String, BTreeMap<QueueName, u64>>,
    unrouted: BTreeMap<String, u64>,
}

impl<'a> Survey<'a> {
    /// Nothing read yet.
    #[must_use]
    pub fn new(plan: Plan<'a>) -> Self {
        Self { plan, known: Knowledge::default(), counts: Seen::default() }
    }

    /// The hash of a book that an attempt was judged by and that nobody has handed over yet.
    #[must_use]
    pub fn wants_book(&self, recorded: &Recorded<'_>) -> Option<u64> {
        let is_full = self.known.books.len() >= limits::BACKTEST_BOOKS_MAX;
        let mut hashes = recorded.stories.iter().map(|story| story.book);
        hashes.find(|hash| !is_full && !self.known.books.contains_key(hash))
    }

    /// Hands over the book of that hash, or says that there is none.
    pub fn add_book(&mut self, hash: u64, book: Option<RuleBook>) {
        self.known.books.insert(hash, book.map(Arc::new));
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
    pub fn look(&mut self, recorded: &Recorded<'_>) {
        if !self.plan.covers(recorded.accepted_at) {
            return;
        }
        let types = &mut self.counts.by_type;
        if types.len() < limits::BACKTEST_TYPES_MAX || types.contains_key(recorded.event_type) {
            let queues = types.entry(recorded.event_type.to_owned()).or_default();
            *queues.entry(recorded.queue.clone()).or_default() += 1;
        }
        let stories = self.plan.cut(recorded.stories);
        if stories.is_empty() {
            return;
        }
        let dependency = self.known.dependency(&self.plan, recorded);
        for story in stories {
            let then = self.known.rule_then(recorded, story);
            if let Some(evidence) = Evidence::of(story, then.map(|rule| &**rule)) {
                let timeline = self.known.timelines.entry(dependency.clone()).or_default();
                timeline.add(story.started_at, recorded.id, evidence, took(story));
            }
        }
    }

    /// Everything was read once.
    #[must_use]
    pub fn weighing(self) -> Weighing<'a> {
        let Self { plan, mut known, counts } = self;
        for spans in known.open.values_mut() {
            spans.sort_unstable();
        }
        Weighing { plan, known, counts, sums: Sums::default() }
    }
}

/// The second reading: every delivery by the new rules.
#[derive(Debug)]
pub struct Weighing<'a> {
    plan: Plan<'a>,
    known: Knowledge,
    counts: Seen,
    sums: Sums,
}

impl Weighing<'_> {
    /// Reads a delivery for the second time.
    pub fn weigh(&mut self, recorded: &Recorded<'_>) {
        if !self.plan.covers(recorded.accepted_at) {
            return;
        }
        let stories = self.plan.cut(recorded.stories);
        let life = first_life(stories);
        let before = self.finish_on_record(recorded, life);
        let calls_before = calls(life);
        let mut walked = match self.plan.rule(recorded) {
            None => Walked {
                finish: Finish::NotSent,
                certainty: Certainty::Certain,
                calls: 0,
                guessed: 0,
                doubts: Vec::new(),
            },
            Some(rule) if !stories.is_empty() => self.walked(recorded, rule, stories, life),
            Some(_) => Walked {
                finish: before.clone(),
                certainty: Certainty::Certain,
                calls: 0,
                guessed: 0,
                doubts: Vec::new(),
            },
        };
        if life.len() < stories.len() {
            walked.doubts.push(Doubt::Replayed);
        }
        self.add_doubts(recorded, &before, &mut walked);
        self.sums.add(&Compared {
            id: recorded.id,
            queue: recorded.queue,
            dependency: &self.known.dependency(&self.plan, recorded),
            accepted_at: recorded.accepted_at,
            before,
            calls_before,
            walked,
        });
    }

    fn walked(&self, recorded: &Recorded<'_>, rule: &Rule, stories: &[Story], life: &[Story]) -> Walked {
        let then: Vec<Option<&Rule>> =
            stories.iter().map(|story| self.known.rule_then(recorded, story).map(|rule| &**rule)).collect();
        let open = self.known.open.get(rule.dependency.as_str());
        let walk = Walk {
            delivery: recorded.id,
            seed: self.plan.seed,
            rule,
            then: &then,
            stories,
            life,
            timeline: self.known.timelines.get(&rule.dependency),
            open: open.map_or(&[], Vec::as_slice),
            until: self.plan.until,
            about_message: OnceCell::new(),
        };
        walk.walked()
    }

    /// How it ended in its first life; what nobody tried is as the store says.
    fn finish_on_record(&self, recorded: &Recorded<'_>, life: &[Story]) -> Finish {
        let Some(last) = life.last() else {
            return match recorded.state {
                RecordedState::Dead { at } if at <= self.plan.until => {
                    Finish::Dead { at, code: Code::of(""), failure: None }
                }
                RecordedState::Waiting | RecordedState::Delivered | RecordedState::Dead { .. } => {
                    Finish::Waiting
                }
            };
        };
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

    fn add_doubts(&self, recorded: &Recorded<'_>, before: &Finish, walked: &mut Walked) {
        let has_moved = *before != walked.finish;
        if has_moved && recorded.order == Ordered::InSession {
            walked.doubts.push(Doubt::Session);
        }
        let Some(first) = recorded.stories.first() else {
            if matches!(before, Finish::Dead { .. }) {
                walked.doubts.push(Doubt::NeverTried);
            }
            return;
        };
        let Some(book) = self.known.book(first.book) else { return };
        if self.plan.until.since(recorded.accepted_at) > book.sections().keep_delivered().value {
            walked.doubts.push(Doubt::Retention);
        }
        let Some(rule) = self.plan.rule(recorded) else { return };
        if let Some(then) = rule_of(book, recorded)
            && then.breaker != rule.breaker
            && has_failed(recorded.stories)
        {
            walked.doubts.push(Doubt::Breaker);
        }
        if target_of(book, recorded.queue) != target_of(self.plan.book, recorded.queue) {
            walked.doubts.push(Doubt::Target);
        }
    }

    /// All of it together.
    #[must_use]
    pub fn told(self) -> Report {
        let Self { plan, counts, sums, .. } = self;
        sums.told(&plan, &counts)
    }
}

impl<'a> Plan<'a> {
    fn covers(&self, accepted_at: Timestamp) -> bool {
        self.since.is_none_or(|since| accepted_at >= since) && accepted_at <= self.until
    }

    /// The attempts that had ended by then.
    fn cut<'b>(&self, stories: &'b [Story]) -> &'b [Story] {
        let ended = |story: &&Story| story.started_at + took(story) <= self.until;
        &stories[..stories.iter().take_while(ended).count()]
    }

    fn rule(&self, recorded: &Recorded<'_>) -> Option<&'a Arc<Rule>> {
        rule_of(self.book, recorded)
    }
}

impl Knowledge {
    fn book(&self, hash: u64) -> Option<&RuleBook> {
        self.books.get(&hash)?.as_deref()
    }

    fn rule_then(&self, recorded: &Recorded<'_>, story: &Story) -> Option<&Arc<Rule>> {
        rule_of(self.book(story.book)?, recorded)
    }

    /// The dependency as the new book names it, or else as the old one did.
    fn dependency(&self, plan: &Plan<'_>, recorded: &Recorded<'_>) -> DependencyName {
        let now = plan.rule(recorded);
        let then = || recorded.stories.first().and_then(|story| self.rule_then(recorded, story));
        match now.or_else(then) {
            Some(rule) => rule.dependency.clone(),
            None => Name::like(&recorded.queue.service),
        }
    }
}

fn rule_of<'a>(book: &'a RuleBook, recorded: &Recorded<'_>) -> Option<&'a Arc<Rule>> {
    let channel = recorded.queue.channel.as_ref().map(ChannelName::as_str);
    book.rule(recorded.queue.service.as_str(), channel, recorded.event_type)
}

fn target_of<'a>(book: &'a RuleBook, queue: &QueueName) -> Option<&'a crate::book::model::TargetKind> {
    let service = book.service(queue.service.as_str())?;
    let channel = queue.channel.as_ref();
    let channel = channel.and_then(|name| service.channels.iter().find(|channel| channel.name == *name));
    let target = channel.and_then(|channel| channel.target.as_ref()).unwrap_or(&service.target);
    Some(&target.kind)
}

/// Until it first died: what came after was somebody's will.
fn first_life(stories: &[Story]) -> &[Story] {
    let died = stories.iter().position(|story| matches!(story.verdict, Told::Dead { .. }));
    died.map_or(stories, |place| &stories[..=place])
}

fn calls(stories: &[Story]) -> u32 {
    u32::try_from(stories.iter().filter(|story| story.is_attempt()).count()).unwrap_or(u32::MAX)
}

fn has_failed(stories: &[Story]) -> bool {
    stories.iter().any(|story| matches!(story.end, End::Failed { .. } | End::Held { .. }))
}
