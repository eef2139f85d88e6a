//! The input of an evaluation: the system's state at one moment.

use std::sync::Arc;

use super::incident::IncidentSample;
use crate::book::RuleBook;
use crate::engine::{DependencyView, QueueName};
use crate::figures::Figures;
use crate::policy::category::Category;
use crate::time::Timestamp;

/// Excludes the deliveries of notices themselves.
#[derive(Clone, Copy, Debug)]
pub struct AlertSample<'a> {
    pub at: Timestamp,
    /// The current book, which maps event types to dependencies.
    pub book: &'a RuleBook,
    /// Counted since the process started.
    pub figures: &'a Figures,
    pub dependencies: &'a [DependencyView],
    pub queues: &'a [QueueSample],
    /// Dead letters by kind; `None` if not looked up this time, which leaves alerts that need them unchanged.
    /// See [`SampleNeeds`].
    pub letters: Option<&'a [LetterSample]>,
    pub incidents: &'a [IncidentSample],
    pub sources: &'a [SourceSample],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSample {
    pub name: String,
    /// Unacknowledged messages upstream.
    pub lag: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSample {
    pub name: Arc<QueueName>,
    pub waiting: u64,
    /// Waiting deliveries that match no row of the book, and those behind them in their sessions.
    pub without_rule: u64,
    pub oldest_waiting_at: Option<Timestamp>,
    pub dead: u64,
    pub oldest_dead_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterSample {
    pub queue: Arc<QueueName>,
    pub category: Category,
    pub event_type: Arc<str>,
    pub fingerprint: Arc<str>,
    pub count: u64,
    pub oldest_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleNeeds {
    /// Times of the oldest waiting delivery and the oldest dead letter.
    pub oldest: bool,
    pub letters: bool,
}
