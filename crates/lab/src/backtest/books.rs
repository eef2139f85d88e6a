//! The rule books of a record: which were active at a time, and whether another lets deliveries start at the same
//! time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::RecordedDelivery;
use redrive_core::book::model::DeliveryOrder;
use redrive_core::book::{RuleBook, WaitingLimits};
use redrive_core::engine::attempt_record::AttemptRecord;
use redrive_core::ids::ChannelName;
use redrive_core::limits;
use redrive_core::policy::budget::BudgetSettings;
use redrive_core::policy::rule::{NamedBreaker, Rule, WhenOpen};
use redrive_core::policy::throttle::ThrottleSettings;
use redrive_core::time::Timestamp;

/// Book hash of attempts that were imported with a dead letter.
pub(super) const FOREIGN: u64 = 0;

#[derive(Debug, Default)]
pub(super) struct Books(BTreeMap<u64, KnownBook>);

/// With the start of the first and last attempt it judged.
#[derive(Debug)]
struct KnownBook {
    book: Option<Arc<RuleBook>>,
    judged: Option<(Timestamp, Timestamp)>,
}

impl Books {
    pub(super) fn wanted(&self, stories: &[AttemptRecord]) -> Option<u64> {
        let is_full = self.0.len() >= limits::BACKTEST_BOOKS_MAX;
        let mut hashes = stories.iter().map(|story| story.book);
        hashes.find(|hash| !is_full && *hash != FOREIGN && !self.0.contains_key(hash))
    }

    pub(super) fn add(&mut self, hash: u64, book: Option<RuleBook>) {
        self.0.insert(hash, KnownBook { book: book.map(Arc::new), judged: None });
    }

    pub(super) fn judged(&mut self, story: &AttemptRecord) {
        let at = story.started_at;
        if let Some(known) = self.0.get_mut(&story.book) {
            let (first, last) = known.judged.unwrap_or((at, at));
            known.judged = Some((first.min(at), last.max(at)));
        }
    }

    pub(super) fn get(&self, hash: u64) -> Option<&RuleBook> {
        self.0.get(&hash)?.book.as_deref()
    }

    pub(super) fn rule_then(
        &self,
        recorded: &RecordedDelivery<'_>,
        story: &AttemptRecord,
    ) -> Option<&Arc<Rule>> {
        rule_of(self.get(story.book)?, recorded)
    }

    /// Books without a rule for the delivery cannot have been active.
    pub(super) fn all_start_alike(&self, recorded: &RecordedDelivery<'_>, new: &RuleBook) -> bool {
        let Some(by_new) = StartConditions::of(new, recorded) else { return false };
        let mut starts =
            self.around(recorded.accepted_at).filter_map(|book| StartConditions::of(book, recorded));
        starts.all(|then| then == by_new)
    }

    /// Books in use at that time, and those used directly before and after.
    fn around(&self, at: Timestamp) -> impl Iterator<Item = &RuleBook> {
        let spans = || self.0.values().filter_map(|known| Some((known.judged?, known.book.as_deref()?)));
        let before = spans().map(|((_, last), _)| last).filter(|last| *last < at).max();
        let after = spans().map(|((first, _), _)| first).filter(|first| *first > at).min();
        spans().filter_map(move |((first, last), book)| {
            let is_around = first <= at && at <= last;
            (is_around || Some(last) == before || Some(first) == after).then_some(book)
        })
    }
}

/// Everything in a book that affects when an untried delivery may start.
#[derive(Debug, PartialEq)]
struct StartConditions<'a> {
    breaker: &'a Option<NamedBreaker>,
    when_open: WhenOpen,
    hold_max: Duration,
    limits: CallLimits,
    ramp: Duration,
    waiting: Option<WaitingLimits>,
    order: Option<DeliveryOrder>,
}

impl<'a> StartConditions<'a> {
    fn of(book: &'a RuleBook, recorded: &RecordedDelivery<'_>) -> Option<Self> {
        let rule = rule_of(book, recorded)?;
        let service = recorded.queue.service.as_str();
        Some(Self {
            breaker: &rule.breaker,
            when_open: rule.when_open,
            hold_max: rule.hold_max,
            limits: CallLimits::of(book, rule),
            ramp: book.ramp(&rule.dependency),
            waiting: book.waiting(service),
            order: book.service(service).and_then(|service| Some(service.order.as_ref()?.value)),
        })
    }
}

#[derive(Debug, PartialEq)]
pub(super) struct CallLimits {
    throttle: ThrottleSettings,
    budget: Option<BudgetSettings>,
}

impl CallLimits {
    pub(super) fn of(book: &RuleBook, rule: &Rule) -> Self {
        Self { throttle: book.throttle(&rule.dependency), budget: book.retry_budget(&rule.dependency) }
    }
}

pub(super) fn rule_of<'a>(book: &'a RuleBook, recorded: &RecordedDelivery<'_>) -> Option<&'a Arc<Rule>> {
    let channel = recorded.queue.channel.as_ref().map(ChannelName::as_str);
    book.rule(recorded.queue.service.as_str(), channel, recorded.event_type)
}
