//! What has happened to a delivery so far: all that the next verdict depends on besides the rule.
//!
//! The shell keeps it with the delivery and only ever replaces it by the result of one of its methods. Each
//! returns a new history, so a write that failed has changed nothing.
//!
//! Invariants:
//! - time in which Redrive was away uses up nothing: no window, no `hold_max`, no `fatal_after`, no deadline;
//! - time held uses up no window, and uses up `hold_max` only where the dependency caused it;
//! - a pause uses up neither, and a connection counts as failing again only from the next attempt;
//! - all other time uses up the deadline, a pause too: it says by when an attempt is still useful, which no
//!   operator can postpone;
//! - counts never go down and saturate.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::POLICIES_PER_RULE_MAX;
use crate::policy::backoff::nanos;
use crate::policy::category::Category;
use crate::policy::classify::ConnectionStatus;
use crate::policy::decide::{Decision, RetryNumbers, Verdict, VerdictBasis};
use crate::policy::rule::{PolicyIndex, Reactions};
use crate::time::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct History {
    /// Moved by each absence since, as is `connection_failing_since`.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_attempt_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failure_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_failing_since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<ActiveHold>,
    /// In holds that have ended.
    #[serde(skip_serializing_if = "is_zero")]
    held_nanos: u64,
    /// Time since the first failure that uses up no window.
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
    #[serde(skip_serializing_if = "PolicyCounts::is_empty")]
    retries_by_policy: PolicyCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    notified: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedOnRecord {
    pub age_nanos: u64,
    pub window_nanos: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ActiveHold {
    since: Timestamp,
    by: HoldOrigin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum HoldOrigin {
    /// A breaker or a wait that the target asked for: uses up `hold_max`.
    Others,
    /// An operator or a rule's `pause`, without a limit.
    Pause,
}

impl History {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From when the deadline runs: the start of the first attempt, moved by each absence since.
    #[must_use]
    pub const fn first_attempt_at(&self) -> Option<Timestamp> {
        self.first_attempt_at
    }

    #[must_use]
    pub const fn first_failure_at(&self) -> Option<Timestamp> {
        self.first_failure_at
    }

    /// Since when no connection was made, moved by each absence since; a pause resets it.
    #[must_use]
    pub const fn connection_failing_since(&self) -> Option<Timestamp> {
        self.connection_failing_since
    }

    pub(crate) const fn previous_delay_nanos(&self) -> Option<u64> {
        self.previous_delay_nanos
    }

    #[must_use]
    pub const fn retries_total(&self) -> u32 {
        self.retries_total
    }

    #[must_use]
    pub fn retries_by(&self, policy: PolicyIndex) -> u32 {
        self.retries_by_policy.0[usize::from(policy.0)]
    }

    /// Retries after a failure of that category, where the category had a limit of its own.
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

    #[must_use]
    pub fn held(&self, now: Timestamp) -> Duration {
        Duration::from_nanos(self.held_nanos(now))
    }

    pub(crate) fn held_nanos(&self, now: Timestamp) -> u64 {
        match self.hold {
            Some(ActiveHold { since, by: HoldOrigin::Others }) => {
                self.held_nanos.saturating_add(passed(since, now))
            }
            Some(ActiveHold { by: HoldOrigin::Pause, .. }) | None => self.held_nanos,
        }
    }

    pub(crate) fn window_used_nanos(&self, now: Timestamp) -> u64 {
        let since_failure = self.first_failure_at.map_or(0, |at| passed(at, now));
        let holding = self.hold.map_or(0, |hold| passed(hold.since, now));
        since_failure.saturating_sub(self.excused_nanos).saturating_sub(holding)
    }

    #[must_use]
    pub fn age_nanos(&self, now: Timestamp) -> u64 {
        self.first_attempt_at.map_or(0, |at| passed(at, now))
    }

    #[must_use]
    pub fn notified(&self) -> Option<&str> {
        self.notified.as_deref()
    }

    #[must_use]
    pub fn notified_as(self, id: Option<Box<str>>) -> Self {
        Self { notified: self.notified.or(id), ..self }
    }

    #[must_use]
    pub fn replayed(&self) -> Self {
        Self { notified: self.notified.clone(), ..Self::default() }
    }

    #[must_use]
    pub fn started(&self, at: Timestamp) -> Self {
        let released = self.released(at);
        Self { first_attempt_at: self.first_attempt_at.or(Some(at)), ..released }
    }

    #[must_use]
    pub fn after(&self, decision: &Decision, now: Timestamp) -> Self {
        match &decision.why {
            VerdictBasis::Delivered { .. } | VerdictBasis::Interrupted => self.clone(),
            VerdictBasis::Held(_) => self.holding(HoldOrigin::Others, now),
            VerdictBasis::Failed(ruling) => {
                let failed = Self {
                    first_failure_at: self.first_failure_at.or(Some(now)),
                    connection_failing_since: match ruling.connection {
                        ConnectionStatus::Failed => self.connection_failing_since.or(Some(now)),
                        ConnectionStatus::Made => None,
                        ConnectionStatus::NotTried => self.connection_failing_since,
                    },
                    ..self.released(now)
                };
                match decision.verdict {
                    Verdict::Retry { .. } if ruling.connection == ConnectionStatus::NotTried => {
                        failed.holding(HoldOrigin::Others, now)
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

    /// After it was held by its dependency since then, which was not recorded at the time.
    #[must_use]
    pub fn held_since(&self, since: Timestamp) -> Self {
        self.holding(HoldOrigin::Others, since)
    }

    #[must_use]
    pub fn paused(&self, at: Timestamp) -> Self {
        Self { connection_failing_since: None, ..self.holding(HoldOrigin::Pause, at) }
    }

    /// After a time in which Redrive was down or could not write, which uses up nothing.
    #[must_use]
    pub fn away(&self, span: Duration) -> Self {
        let mut next = self.clone();
        next.excuse(nanos(span));
        next.hold = self.hold.map(|hold| ActiveHold { since: hold.since + span, ..hold });
        next.first_attempt_at = self.first_attempt_at.map(|at| at + span);
        next.connection_failing_since = self.connection_failing_since.map(|since| since + span);
        next
    }

    /// After its service was paused for so long, from when it was last written until now.
    #[must_use]
    pub fn paused_for(&self, span: Duration) -> Self {
        let mut next = self.clone();
        next.excuse(nanos(span));
        next.hold = self.hold.map(|hold| ActiveHold { since: hold.since + span, ..hold });
        next.connection_failing_since = None;
        next
    }

    /// The same under a new rule book, which may list its policies in another order: a policy keeps its count
    /// by its name. Where the old book is unknown, only the total is kept.
    #[must_use]
    pub fn carried_over(&self, from: Option<&Reactions>, to: &Reactions) -> Self {
        let mut counts = PolicyCounts::default();
        let old_policies = from.map_or(&[][..], Reactions::policies);
        for (count, policy) in counts.0.iter_mut().zip(to.policies()) {
            let before = old_policies.iter().position(|old| old.name == policy.name);
            *count = before.map_or(0, |index| self.retries_by_policy.0[index]);
        }
        Self { retries_by_policy: counts, ..self.clone() }
    }

    /// The same adjusted to a record: what was excused there, an absence or a pause, is excused here.
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
        if numbers.is_held() { self.holding(HoldOrigin::Others, now) } else { self }
    }

    fn holding(&self, by: HoldOrigin, now: Timestamp) -> Self {
        if self.hold.is_some_and(|hold| hold.by == by) {
            return self.clone();
        }
        Self { hold: Some(ActiveHold { since: now, by }), ..self.released(now) }
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

pub(crate) fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

/// One for each policy of the rule; stored without trailing zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<u32>")]
struct PolicyCounts([u32; POLICIES_PER_RULE_MAX]);

impl PolicyCounts {
    fn used(&self) -> &[u32] {
        let length = self.0.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        &self.0[..length]
    }

    fn is_empty(&self) -> bool {
        self.used().is_empty()
    }
}

impl Serialize for PolicyCounts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.used())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{given} policies exceed the {POLICIES_PER_RULE_MAX} that a rule may have")]
struct TooManyPolicies {
    given: usize,
}

impl TryFrom<Vec<u32>> for PolicyCounts {
    type Error = TooManyPolicies;

    fn try_from(given: Vec<u32>) -> Result<Self, TooManyPolicies> {
        let mut counts = Self::default();
        let room = counts.0.get_mut(..given.len()).ok_or(TooManyPolicies { given: given.len() })?;
        room.copy_from_slice(&given);
        Ok(counts)
    }
}
