//! What a store is asked to take out of a queue that the rule book has no more, or has without a row for all.

use std::collections::BTreeSet;
use std::sync::Arc;

use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::{QueueName, Waiting};
use redrive_core::ids::Seq;
use redrive_core::time::Timestamp;

use super::Redirect;

/// A step of taking what waits out of a queue, the oldest first and each session in its order.
#[derive(Clone, Debug)]
pub struct ReassignCommand {
    /// The queue, which the rule book has no more, or has without a row for all that waits.
    pub queue: Arc<QueueName>,
    /// Which of its deliveries.
    pub scope: ReassignScope,
    /// What becomes of its deliveries.
    pub to: Reassignment,
    /// The most that are taken in this step.
    pub rows_max: usize,
    /// Deliveries to leave alone: their attempts are running.
    pub running: BTreeSet<Seq>,
    /// Where the step before ended.
    pub after: Option<ReassignCursor>,
    /// The record of the steps before.
    pub audit: Option<u64>,
    /// Why.
    pub note: Option<String>,
}

/// What a step of taking what waits out of a queue did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassignStep {
    /// Deliveries taken in this step.
    pub done: u64,
    /// Those left that the other queue takes no events of.
    pub unwanted: u64,
    /// Those left whose attempts are running, or that an open replay sends.
    pub busy: u64,
    /// To go on with; none when all have been looked at.
    pub next: Option<ReassignCursor>,
    /// The record of it.
    pub audit: Option<u64>,
}

/// Which deliveries of a queue are taken out.
#[derive(Clone, Debug)]
pub enum ReassignScope {
    /// All: the rule book has the queue no more.
    All,
    /// Those that no row of the queue takes.
    WithoutRule {
        /// The events that its rows take.
        rows: Vec<EventPattern>,
    },
}

impl ReassignScope {
    /// Whether an event of that type stays in the queue, where a row takes it.
    pub(in crate::store) fn leaves(&self, event_type: &str) -> bool {
        match self {
            Self::All => false,
            Self::WithoutRule { rows } => rows.iter().any(|row| row.matches(event_type)),
        }
    }

    /// Whether the next of a session waits for a rule as those before it did.
    pub(in crate::store) fn parks(&self, row: &Waiting) -> bool {
        match self {
            Self::All => false,
            Self::WithoutRule { .. } => {
                row.replaying.is_none() && !self.leaves(row.event.event_type.as_str())
            }
        }
    }
}

/// What becomes of deliveries that wait for a queue that is gone.
#[derive(Clone, Debug)]
pub enum Reassignment {
    /// They become dead letters, which hold nothing: the order of its sessions is gone with the service.
    DeadLetters,
    /// They wait for another queue, as far as it takes their events.
    Queue {
        /// Which.
        to: Redirect,
        /// The events that it takes.
        takes: Vec<EventPattern>,
    },
}

impl ReassignCommand {
    /// The verb and the object for the record.
    pub(in crate::store) fn act(&self) -> (&'static str, String) {
        match &self.to {
            Reassignment::DeadLetters => ("dead-letter", self.queue.to_string()),
            Reassignment::Queue { to, .. } => ("move", format!("{} to {}", self.queue, to.queue)),
        }
    }

    /// Where this step begins; none at the first of all.
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

    /// Where the next step begins, after one that looked at all of its page or not.
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

/// Whether a step looked at all that there is of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum ScanCoverage {
    Yes,
    No,
}

/// The last delivery that a step looked at: first those that may start by their number, then those that are due
/// by their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReassignCursor {
    /// When it is due; none among those that may start.
    pub due_at: Option<Timestamp>,
    /// Its number.
    pub seq: Seq,
}
