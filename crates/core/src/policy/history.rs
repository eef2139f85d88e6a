//! What a delivery has been through so far: all that the next verdict depends on besides the rule.
//!
//! The shell keeps it with the delivery and only ever replaces it by what one of its methods returns.
//! Each returns a new history, so a write that failed has changed nothing.
//!
//! Invariants:
//! - time in which Redrive was away uses up nothing: no window, no `hold_max`, no `fatal_after`, no deadline;
//! - time held uses up no window, and only where others made us wait does it use up `hold_max`;
//! - a pause uses up neither, and a connection is only said to fail on from when it is tried again;
//! - all else uses up the deadline, a pause too: it says by when an attempt is of use to anybody, and
//!   that no operator can put off;
//! - counts never go down and stop at the end of their range.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::POLICIES_PER_RULE_MAX;
use crate::policy::backoff::nanos;
use crate::policy::category::Category;
use crate::policy::classify::Connection;
use crate::policy::decide::{Decision, RetryNumbers, Verdict, Why};
use crate::policy::rule::{PolicyIndex, Reactions};
use crate::time::Timestamp;

/// The past of a delivery, since it was accepted or replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct History {
    /// Later by each absence since, as is `connection_failing_since`.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_attempt_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failure_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_failing_since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<Hold>,
    /// In holds that have ended.
    #[serde(skip_serializing_if = "is_zero")]
    held_nanos: u64,
    /// Since the first failure, what uses up no window.
    #[serde(skip_serializing_if = "is_zero")]
    excused_nanos: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_delay_nanos: Option<u64>,
    #[serde(skip_serializing_if = "is_zero")]
    retries_total: u32,
    #[serde(skip_serializing_if = "is_zero")]
    retries_unknown: u32,
    #[serde(skip_serializing_if = "is_zero")]
    retries_internal: u32,
    #[serde(skip_serializing_if = "Counts::is_empty")]
    retries_by_policy: Counts,
    /// The id of the notification that the target has told, whatever else it said.
    #[serde(skip_serializing_if = "Option::is_none")]
    notified: Option<Box<str>>,
}

/// What a record says was used up by some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedOnRecord {
    /// Of the deadline.
    pub age_nanos: u64,
    /// Of the window.
    pub window_nanos: u64,
}

/// A hold that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Hold {
    since: Timestamp,
    by: HeldBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum HeldBy {
    /// A breaker or the other side's wish: it uses up `hold_max`.
    Others,
    /// An operator or a rule's `pause`, which may last as long as it likes.
    Pause,
}

impl History {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From when the deadline runs: the start of the first attempt, later by each absence since.
    #[must_use]
    pub const fn first_attempt_at(&self) -> Option<Timestamp> {
        self.first_attempt_at
    }

    /// When the first attempt to fail had failed.
    #[must_use]
    pub const fn first_failure_at(&self) -> Option<Timestamp> {
        self.first_failure_at
    }

    /// Since when no connection has come about, later by each absence since; a pause starts it anew.
    #[must_use]
    pub const fn connection_failing_since(&self) -> Option<Timestamp> {
        self.connection_failing_since
    }

    pub(crate) const fn previous_delay_nanos(&self) -> Option<u64> {
        self.previous_delay_nanos
    }

    /// How many retries there were.
    #[must_use]
    pub const fn retries_total(&self) -> u32 {
        self.retries_total
    }

    /// How many of them were by that policy of the rule.
    #[must_use]
    pub fn retries_by(&self, policy: PolicyIndex) -> u32 {
        self.retries_by_policy.0[usize::from(policy.0)]
    }

    /// How many of them followed a failure of that category, where the category had a limit of its own.
    #[must_use]
    pub const fn retries_for(&self, category: Category) -> u32 {
        match category {
            Category::Unknown => self.retries_unknown,
            Category::Internal => self.retries_internal,
            Category::Transient
            | Category::RateLimited
            | Category::Permanent
            | Category::Invalid
            | Category::Fatal => 0,
        }
    }

    /// How much of `hold_max` is used up.
    #[must_use]
    pub fn held(&self, now: Timestamp) -> Duration {
        Duration::from_nanos(self.held_nanos(now))
    }

    pub(crate) fn held_nanos(&self, now: Timestamp) -> u64 {
        match self.hold {
            Some(Hold { since, by: HeldBy::Others }) => self.held_nanos.saturating_add(passed(since, now)),
            Some(Hold { by: HeldBy::Pause, .. }) | None => self.held_nanos,
        }
    }

    pub(crate) fn window_used_nanos(&self, now: Timestamp) -> u64 {
        let since_failure = self.first_failure_at.map_or(0, |at| passed(at, now));
        let holding = self.hold.map_or(0, |hold| passed(hold.since, now));
        since_failure.saturating_sub(self.excused_nanos).saturating_sub(holding)
    }

    /// Since the first attempt started, whatever happened meanwhile but our own absence.
    #[must_use]
    pub fn age_nanos(&self, now: Timestamp) -> u64 {
        self.first_attempt_at.map_or(0, |at| passed(at, now))
    }

    /// The id of the notification that the target has told.
    #[must_use]
    pub fn notified(&self) -> Option<&str> {
        self.notified.as_deref()
    }

    /// After the target has told the id of a notification; the first one counts.
    #[must_use]
    pub fn notified_as(self, id: Option<Box<str>>) -> Self {
        Self { notified: self.notified.or(id), ..self }
    }

    /// What is left of it when the delivery is replayed.
    #[must_use]
    pub fn replayed(&self) -> Self {
        Self { notified: self.notified.clone(), ..Self::default() }
    }

    /// After an attempt has started, which ends any hold.
    #[must_use]
    pub fn started(&self, at: Timestamp) -> Self {
        let released = self.released(at);
        Self { first_attempt_at: self.first_attempt_at.or(Some(at)), ..released }
    }

    /// After a verdict.
    #[must_use]
    pub fn after(&self, decision: &Decision, now: Timestamp) -> Self {
        match &decision.why {
            Why::Delivered { .. } | Why::Interrupted => self.clone(),
            Why::Held(_) => self.holding(HeldBy::Others, now),
            Why::Failed(ruling) => {
                let failed = Self {
                    first_failure_at: self.first_failure_at.or(Some(now)),
                    connection_failing_since: match ruling.connection {
                        Connection::Failed => self.connection_failing_since.or(Some(now)),
                        Connection::Made => None,
                        Connection::NotTried => self.connection_failing_since,
                    },
                    ..self.released(now)
                };
                match decision.verdict {
                    Verdict::Retry { .. } if ruling.connection == Connection::NotTried => {
                        failed.holding(HeldBy::Others, now)
                    }
                    Verdict::Retry { .. } => match &ruling.retry {
                        Some(numbers) => failed.retrying(numbers, ruling.category, now),
                        None => failed,
                    },
                    Verdict::Pause => failed.paused(now),
                    Verdict::Deliver | Verdict::Hold { .. } | Verdict::DeadLetter { .. } => failed,
                }
            }
        }
    }

    /// After others have made it wait since then, though nobody noted it at the time.
    #[must_use]
    pub fn held_since(&self, since: Timestamp) -> Self {
        self.holding(HeldBy::Others, since)
    }

    /// After its service was paused.
    #[must_use]
    pub fn paused(&self, at: Timestamp) -> Self {
        Self { connection_failing_since: None, ..self.holding(HeldBy::Pause, at) }
    }

    /// After a time in which Redrive was down or could not write, which uses up nothing.
    #[must_use]
    pub fn away(&self, span: Duration) -> Self {
        let mut next = self.clone();
        next.excuse(nanos(span));
        next.hold = self.hold.map(|hold| Hold { since: hold.since + span, ..hold });
        next.first_attempt_at = self.first_attempt_at.map(|at| at + span);
        next.connection_failing_since = self.connection_failing_since.map(|since| since + span);
        next
    }

    /// After its service was paused for so long, from when it was last written until now.
    #[must_use]
    pub fn paused_for(&self, span: Duration) -> Self {
        let mut next = self.clone();
        next.excuse(nanos(span));
        next.hold = self.hold.map(|hold| Hold { since: hold.since + span, ..hold });
        next.connection_failing_since = None;
        next
    }

    /// The same under a new rule book, whose policies may stand in another order: a policy keeps its
    /// count by its name. Where the old book is not known any more, only the count in all is kept.
    #[must_use]
    pub fn carried_over(&self, from: Option<&Reactions>, to: &Reactions) -> Self {
        let mut counts = Counts::default();
        let old_policies = from.map_or(&[][..], Reactions::policies);
        for (count, policy) in counts.0.iter_mut().zip(to.policies()) {
            let before = old_policies.iter().position(|old| old.name == policy.name);
            *count = before.map_or(0, |index| self.retries_by_policy.0[index]);
        }
        Self { retries_by_policy: counts, ..self.clone() }
    }

    /// The same as it is on record by then: what was excused there is excused here, an absence or a pause.
    #[must_use]
    pub fn reconciled(&self, record: UsedOnRecord, now: Timestamp) -> Self {
        let away = self.age_nanos(now).saturating_sub(record.age_nanos);
        let present = if away == 0 { self.clone() } else { self.away(Duration::from_nanos(away)) };
        let paused = present.window_used_nanos(now).saturating_sub(record.window_nanos);
        if paused == 0 { present } else { present.paused_for(Duration::from_nanos(paused)) }
    }

    fn retrying(mut self, numbers: &RetryNumbers, category: Category, now: Timestamp) -> Self {
        self.retries_total = self.retries_total.saturating_add(1);
        let by_policy = &mut self.retries_by_policy.0[usize::from(numbers.policy.0)];
        *by_policy = by_policy.saturating_add(1);
        if let Some(tally) = numbers.by_category {
            match category {
                Category::Unknown => self.retries_unknown = tally.number,
                Category::Internal => self.retries_internal = tally.number,
                Category::Transient
                | Category::RateLimited
                | Category::Permanent
                | Category::Invalid
                | Category::Fatal => {}
            }
        }
        self.previous_delay_nanos = Some(nanos(numbers.backoff()));
        if numbers.is_held() { self.holding(HeldBy::Others, now) } else { self }
    }

    fn holding(&self, by: HeldBy, now: Timestamp) -> Self {
        if self.hold.is_some_and(|hold| hold.by == by) {
            return self.clone();
        }
        Self { hold: Some(Hold { since: now, by }), ..self.released(now) }
    }

    fn released(&self, at: Timestamp) -> Self {
        let mut next = self.clone();
        if let Some(hold) = self.hold {
            next.held_nanos = self.held_nanos(at);
            next.excuse(passed(hold.since, at));
            next.hold = None;
        }
        next
    }

    /// Before the first failure no window runs.
    fn excuse(&mut self, nanos: u64) {
        if self.first_failure_at.is_some() {
            self.excused_nanos = self.excused_nanos.saturating_add(nanos);
        }
    }
}

fn passed(since: Timestamp, now: Timestamp) -> u64 {
    now.as_nanos().saturating_sub(since.as_nanos())
}

fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

/// One for each policy of the rule; stored without the zeros at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<u32>")]
struct Counts([u32; POLICIES_PER_RULE_MAX]);

impl Counts {
    fn used(&self) -> &[u32] {
        let length = self.0.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        &self.0[..length]
    }

    fn is_empty(&self) -> bool {
        self.used().is_empty()
    }
}

impl Serialize for Counts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.used())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{given} policies are more than the {POLICIES_PER_RULE_MAX} a rule may have")]
struct TooManyPolicies {
    given: usize,
}

impl TryFrom<Vec<u32>> for Counts {
    type Error = TooManyPolicies;

    fn try_from(given: Vec<u32>) -> Result<Self, TooManyPolicies> {
        let mut counts = Self::default();
        let room = counts.0.get_mut(..given.len()).ok_or(TooManyPolicies { given: given.len() })?;
        room.copy_from_slice(&given);
        Ok(counts)
    }
}
