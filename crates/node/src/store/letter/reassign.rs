//! Emptying a queue that the rule book no longer has, or that lacks a row for some of its deliveries.

use std::collections::BTreeSet;
use std::sync::Arc;

use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::{PendingDelivery, QueueName};
use redrive_core::ids::Seq;
use redrive_core::time::Timestamp;

use super::Redirect;

/// One step, oldest delivery first, each session in its order.
#[derive(Clone, Debug)]
pub struct ReassignCommand {
    pub queue: Arc<QueueName>,
    pub scope: ReassignScope,
    pub to: Reassignment,
    /// Deliveries per step.
    pub rows_max: usize,
    /// Deliveries with a running attempt, to be skipped.
    pub running: BTreeSet<Seq>,
    pub after: Option<ReassignCursor>,
    /// Audit record of the earlier steps.
    pub audit: Option<u64>,
    pub note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassignStep {
    pub done: u64,
    /// Left, because the other queue does not take their events.
    pub unwanted: u64,
    /// Left, because an attempt is running or an open replay sends them.
    pub busy: u64,
    /// `None` when all were examined.
    pub next: Option<ReassignCursor>,
    pub audit: Option<u64>,
}

/// Which deliveries are moved.
#[derive(Clone, Debug)]
pub enum ReassignScope {
    /// The rule book no longer has the queue.
    All,
    /// Those that no row takes.
    WithoutRule { rows: Vec<EventPattern> },
}

impl ReassignScope {
    /// Whether a row takes the event type.
    pub(in crate::store) fn leaves(&self, event_type: &str) -> bool {
        match self {
            Self::All => false,
            Self::WithoutRule { rows } => rows.iter().any(|row| row.matches(event_type)),
        }
    }

    /// Whether the new head of a session waits for a rule as well.
    pub(in crate::store) fn parks(&self, row: &PendingDelivery) -> bool {
        match self {
            Self::All => false,
            Self::WithoutRule { .. } => {
                row.replaying.is_none() && !self.leaves(row.event.event_type.as_str())
            }
        }
    }
}

#[derive(Clone, Debug)]
pub enum Reassignment {
    /// They hold no session: its order ended with the service.
    DeadLetters,
    /// Those whose event types the other queue takes.
    Queue { to: Redirect, takes: Vec<EventPattern> },
}

impl ReassignCommand {
    /// Verb and object of the audit record.
    pub(in crate::store) fn act(&self) -> (&'static str, String) {
        match &self.to {
            Reassignment::DeadLetters => ("dead-letter", self.queue.to_string()),
            Reassignment::Queue { to, .. } => ("move", format!("{} to {}", self.queue, to.queue)),
        }
    }

    /// Start of this step; `None` for the very first.
    pub(in crate::store) fn from(&self) -> Option<ReassignCursor> {
        let never = Some(Timestamp::NEVER);
        match self.scope {
            ReassignScope::All => self.after,
            ReassignScope::WithoutRule { .. } => {
                let after = self.after.filter(|after| after.due_at == never);
                Some(after.unwrap_or(ReassignCursor { due_at: never, seq: Seq::NONE }))
            }
        }
    }

    /// Start of the next step.
    pub(in crate::store) fn next(
        &self,
        last: Option<ReassignCursor>,
        whole: ScanCoverage,
    ) -> Option<ReassignCursor> {
        match (whole, last.or(self.from())) {
            (ScanCoverage::No, last) => last,
            (ScanCoverage::Yes, Some(ReassignCursor { due_at: Some(_), .. })) => None,
            (ScanCoverage::Yes, Some(ReassignCursor { due_at: None, .. }) | None) => {
                Some(ReassignCursor { due_at: Some(Timestamp::EPOCH), seq: Seq::NONE })
            }
        }
    }
}

/// Whether a step examined its page completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum ScanCoverage {
    Yes,
    No,
}

/// Last delivery examined: first the ready ones by number, then the due ones by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReassignCursor {
    /// `None` among the ready ones.
    pub due_at: Option<Timestamp>,
    pub seq: Seq,
}
