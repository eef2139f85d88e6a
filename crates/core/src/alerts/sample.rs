//! What alerts are held against: everything as it stands at one moment.

use std::sync::Arc;

use super::incident::IncidentSample;
use crate::book::RuleBook;
use crate::engine::{DependencyView, QueueName};
use crate::figures::Figures;
use crate::policy::category::Category;
use crate::time::Timestamp;

/// Everything as it stands at one moment. What Redrive does to tell people of alerts is not part of it.
#[derive(Clone, Copy, Debug)]
pub struct AlertSample<'a> {
    /// When.
    pub at: Timestamp,
    /// The book that holds: it says which event types call which dependency.
    pub book: &'a RuleBook,
    /// What was counted since the process began.
    pub figures: &'a Figures,
    /// Dependencies with their breakers.
    pub dependencies: &'a [DependencyView],
    /// What waits and what is dead.
    pub queues: &'a [QueueSample],
    /// Dead letters by their kind; none if they were not looked up this time, and alerts that need them stay as
    /// they are. See [`SampleNeeds`].
    pub letters: Option<&'a [LetterSample]>,
    /// What was found that people are told of at once.
    pub troubles: &'a [IncidentSample],
    /// Sources that are read, as far as their lag is known.
    pub sources: &'a [SourceSample],
}

/// How far behind a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSample {
    /// Which.
    pub name: String,
    /// Messages upstream that are not acknowledged.
    pub lag: u64,
}

/// What waits and what is dead in one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSample {
    /// Which.
    pub name: Arc<QueueName>,
    /// Deliveries that are not finished.
    pub waiting: u64,
    /// Of these, the ones that no row of the rule book takes, and those behind them in their sessions.
    pub without_rule: u64,
    /// When the oldest of them was accepted.
    pub oldest_waiting_at: Option<Timestamp>,
    /// Dead letters.
    pub dead: u64,
    /// When the oldest of them died.
    pub oldest_dead_at: Option<Timestamp>,
}

/// Dead letters that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterSample {
    /// Where they died.
    pub queue: Arc<QueueName>,
    /// In which way.
    pub category: Category,
    /// The type of their events.
    pub event_type: Arc<str>,
    /// The failure group.
    pub fingerprint: Arc<str>,
    /// How many.
    pub count: u64,
    /// When the oldest of them died.
    pub oldest_at: Option<Timestamp>,
}

/// What a sample must have for the alerts of a book.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleNeeds {
    /// When the oldest that waits and the oldest that is dead came.
    pub oldest: bool,
    /// Dead letters by their kind.
    pub letters: bool,
}
