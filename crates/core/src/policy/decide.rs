//! The one place that decides what follows an attempt.
//!
//! Invariants:
//! - a pure function of rule, history, outcome and moment, without an allocation: the live engine, the
//!   simulator and `redrive why` get the same verdict from the same facts;
//! - never more retries than the policy and the rule in all allow, and none that would start after the window
//!   or the deadline; a handful for a category that the book states no policy for;
//! - a wait that the target asked for is time held: it counts towards `hold_max` and not towards the window;
//! - an attempt that may not start is held as long as `hold_max` allows, and is not dead-lettered before
//!   that;
//! - a delivery that waits behind an open breaker, a pause or our own shutdown uses no retry;
//! - a verdict carries every number it was made of, in [`VerdictBasis`].

use std::fmt;
use std::time::Duration;

use crate::book::problem::Position;
use crate::ids::{Attempt, DeliveryId, Seed};
use crate::letters::envelope::Tier;
use crate::limits;
use crate::policy::backoff::nanos;
use crate::policy::breaker::{CallEnd, Observation};
use crate::policy::category::{Category, codes};
use crate::policy::classify::{ConnectionStatus, Failure, Outcome};
pub use crate::policy::history::History;
use crate::policy::rule::{FailureMatch, PolicyIndex, Reaction, Rule, Sourced, WhenOpen};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub now: Timestamp,
    pub seed: Seed,
    pub delivery: DeliveryId,
    /// The attempt that ended, or that could not start.
    pub attempt: Attempt,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AttemptResult {
    Outcome(Outcome),
    BreakerOpen { until: Timestamp },
    AskedToWait { until: Timestamp },
    Interrupted,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    pub verdict: Verdict,
    pub why: VerdictBasis,
    pub observation: Observation,
    pub hold_dependency_until: Option<Timestamp>,
    pub alert: Option<AlertKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Deliver,
    Retry {
        /// Fixed, whatever a later rule book says.
        due_at: Timestamp,
    },
    /// It waits without using a retry.
    Hold {
        until: Timestamp,
    },
    DeadLetter {
        reason: DeadLetterReason,
        tier: Tier,
    },
    Pause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterReason {
    /// Its last failure allows no retry.
    Refused,
    ConnectionFailing,
    RetriesExceeded,
    WindowExceeded,
    DeadlineExceeded,
    HoldExpired,
    BreakerOpen,
}

impl DeadLetterReason {
    /// `None` where it is the failure's own code.
    #[must_use]
    pub const fn code(self) -> Option<&'static str> {
        match self {
            Self::Refused => None,
            Self::ConnectionFailing => Some(codes::CONNECTION_FAILING),
            Self::RetriesExceeded => Some(codes::MAX_RETRIES_EXCEEDED),
            Self::WindowExceeded => Some(codes::RETRY_WINDOW_EXCEEDED),
            Self::DeadlineExceeded => Some(codes::DEADLINE_EXCEEDED),
            Self::HoldExpired => Some(codes::HOLD_EXPIRED),
            Self::BreakerOpen => Some(codes::CIRCUIT_BREAKER_OPEN),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertKind {
    Security,
    Configuration,
    Exhausted,
    Internal,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VerdictBasis {
    Delivered { matched: Option<Position> },
    Failed(Ruling),
    Held(Holding),
    Interrupted,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ruling {
    pub category: Category,
    pub matched: Option<Position>,
    /// How long the connection has failed, if that exceeds `fatal_after` and made it fatal.
    pub connection_failing_for: Option<Duration>,
    pub connection: ConnectionStatus,
    pub reaction: Sourced<Reaction>,
    pub retry: Option<RetryNumbers>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryNumbers {
    pub policy: PolicyIndex,
    /// Each count includes this retry.
    pub by_policy: RetryCount,
    pub in_total: RetryCount,
    /// Where the book states no policy for the category.
    pub by_category: Option<RetryCount>,
    /// Each time is that when the retry starts.
    pub window: SpentTime,
    pub held: SpentTime,
    pub deadline: SpentTime,
    backoff_nanos: u64,
    retry_after_nanos: u64,
}

impl RetryNumbers {
    #[must_use]
    pub const fn backoff(&self) -> Duration {
        Duration::from_nanos(self.backoff_nanos)
    }

    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        (self.retry_after_nanos > 0).then_some(Duration::from_nanos(self.retry_after_nanos))
    }

    #[must_use]
    pub fn wait(&self) -> Duration {
        Duration::from_nanos(self.wait_nanos())
    }

    fn wait_nanos(&self) -> u64 {
        self.backoff_nanos.max(self.retry_after_nanos)
    }

    /// Whether the target asked for the wait, which makes it time held.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.retry_after_nanos > self.backoff_nanos
    }

    fn dead_letter_reason(&self, connection: ConnectionStatus) -> Option<DeadLetterReason> {
        // What was not tried uses no retry, so it cannot run out of them.
        let may_run_out = connection != ConnectionStatus::NotTried;
        let retries_exceeded = self.by_policy.is_exceeded()
            || self.in_total.is_exceeded()
            || self.by_category.is_some_and(RetryCount::is_exceeded);
        if may_run_out && retries_exceeded {
            Some(DeadLetterReason::RetriesExceeded)
        } else if self.deadline.is_exceeded() {
            Some(DeadLetterReason::DeadlineExceeded)
        } else if self.window.is_exceeded() {
            Some(DeadLetterReason::WindowExceeded)
        } else if self.is_held() && self.held.is_exceeded() {
            Some(DeadLetterReason::HoldExpired)
        } else {
            None
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryCount {
    /// From 1.
    pub number: u32,
    pub max: u32,
}

impl RetryCount {
    const fn next_after(done: u32, max: u32) -> Self {
        Self { number: done.saturating_add(1), max }
    }

    const fn is_exceeded(self) -> bool {
        self.number > self.max
    }
}

/// A time used, and its limit.
///
/// In nanoseconds inside, since a verdict copies many of them; 584 years are no limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpentTime {
    used: u64,
    limit: u64,
}

impl SpentTime {
    #[must_use]
    pub fn of(used: Duration, limit: Option<Duration>) -> Self {
        Self { used: nanos(used), limit: limit.map_or(u64::MAX, nanos) }
    }

    #[must_use]
    pub const fn used(self) -> Duration {
        Duration::from_nanos(self.used)
    }

    #[must_use]
    pub fn limit(self) -> Option<Duration> {
        (self.limit < u64::MAX).then_some(Duration::from_nanos(self.limit))
    }

    const fn is_exceeded(self) -> bool {
        self.used > self.limit
    }
}

impl fmt::Debug for SpentTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit() {
            Some(limit) => write!(f, "{:?} of {limit:?}", self.used()),
            None => write!(f, "{:?}", self.used()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    pub cause: HoldCause,
    pub held: SpentTime,
    pub deadline: SpentTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldCause {
    BreakerOpen,
    AskedToWait,
}

#[must_use]
#[inline]
pub fn decide(rule: &Rule, history: &History, ended: &AttemptResult, at: &Moment) -> Decision {
    match ended {
        AttemptResult::Outcome(Outcome::Delivered { matched }) => Decision {
            verdict: Verdict::Deliver,
            why: VerdictBasis::Delivered { matched: *matched },
            observation: Observation::Success,
            hold_dependency_until: None,
            alert: None,
        },
        AttemptResult::Outcome(Outcome::Failed(failure)) => rule_on_failure(rule, history, failure, at),
        AttemptResult::BreakerOpen { until } => hold(rule, history, HoldCause::BreakerOpen, *until, at.now),
        AttemptResult::AskedToWait { until } => hold(rule, history, HoldCause::AskedToWait, *until, at.now),
        AttemptResult::Interrupted => Decision {
            verdict: Verdict::Retry { due_at: at.now },
            why: VerdictBasis::Interrupted,
            observation: Observation::Silent,
            hold_dependency_until: None,
            alert: None,
        },
    }
}

fn rule_on_failure(rule: &Rule, history: &History, failure: &Failure, at: &Moment) -> Decision {
    let connection_failing_for = connection_failing_for(rule, history, failure, at.now);
    let category = if connection_failing_for.is_some() { Category::Fatal } else { failure.category };
    let reaction = rule.reactions.to(category, failure.status);
    let tier = if category == Category::Invalid { Tier::Poison } else { Tier::Dead };
    let by_category = match reaction.value {
        Reaction::RetryCautiously(_) => category_tally(history, category),
        Reaction::Retry(_) | Reaction::DeadLetter | Reaction::Pause => None,
    };
    let policy = reaction.value.policy();
    let retry = policy.map(|policy| weigh_retry(rule, history, failure, policy, by_category, at));
    let verdict = match (reaction.value, &retry) {
        (Reaction::Pause, _) => Verdict::Pause,
        (_, Some(numbers)) => match numbers.dead_letter_reason(failure.connection) {
            Some(reason) => Verdict::DeadLetter { reason, tier },
            None => Verdict::Retry { due_at: later(at.now, numbers.wait_nanos()) },
        },
        (_, None) if connection_failing_for.is_some() => {
            Verdict::DeadLetter { reason: DeadLetterReason::ConnectionFailing, tier }
        }
        (_, None) => Verdict::DeadLetter { reason: DeadLetterReason::Refused, tier },
    };
    Decision {
        verdict,
        why: VerdictBasis::Failed(Ruling {
            category,
            matched: failure.matched,
            connection_failing_for,
            connection: failure.connection,
            reaction: *reaction,
            retry,
        }),
        observation: observation(rule, failure, verdict),
        hold_dependency_until: hold_dependency_until(failure, at.now),
        alert: alert(rule, failure, category, verdict, reaction.value),
    }
}

fn hold_dependency_until(failure: &Failure, now: Timestamp) -> Option<Timestamp> {
    let asked = failure.retry_after.filter(|_| failure.category == Category::RateLimited);
    asked.map(|wait| now + wait)
}

fn later(now: Timestamp, nanos: u64) -> Timestamp {
    Timestamp::from_nanos(now.as_nanos().saturating_add(nanos))
}

fn connection_failing_for(
    rule: &Rule,
    history: &History,
    failure: &Failure,
    now: Timestamp,
) -> Option<Duration> {
    let limit = rule.fatal_after?;
    let may_heal = matches!(failure.category, Category::Transient | Category::Unknown);
    if failure.connection != ConnectionStatus::Failed || !may_heal {
        return None;
    }
    let failing_for = now.since(history.connection_failing_since()?);
    (failing_for > limit).then_some(failing_for)
}

#[inline]
fn weigh_retry(
    rule: &Rule,
    history: &History,
    failure: &Failure,
    policy: PolicyIndex,
    by_category: Option<RetryCount>,
    at: &Moment,
) -> RetryNumbers {
    let backoff = &rule.reactions.policies()[usize::from(policy.0)].backoff;
    let done = history.retries_by(policy);
    let draw = at.seed.draw(at.delivery, at.attempt);
    let backoff_nanos = match failure.connection {
        ConnectionStatus::Made | ConnectionStatus::Failed => {
            backoff.delay_nanos(done, draw, history.previous_delay_nanos())
        }
        // The target was not called, so it needs no backoff: the wait is time held only.
        ConnectionStatus::NotTried => 0,
    };
    let retry_after_nanos = failure.retry_after.map_or(0, nanos);
    let wait = backoff_nanos.max(retry_after_nanos);
    let (waited, held) = if wait > backoff_nanos { (0, wait) } else { (wait, 0) };
    let limit = |span: Option<Duration>| span.map_or(u64::MAX, nanos);
    RetryNumbers {
        policy,
        by_policy: RetryCount::next_after(done, backoff.retries()),
        in_total: RetryCount::next_after(history.retries_total(), rule.reactions.retries_total_max()),
        by_category,
        window: SpentTime {
            used: history.window_used_nanos(at.now).saturating_add(waited),
            limit: limit(backoff.window()),
        },
        held: SpentTime {
            used: history.held_nanos(at.now).saturating_add(held),
            limit: nanos(rule.hold_max),
        },
        deadline: SpentTime {
            used: history.age_nanos(at.now).saturating_add(wait),
            limit: limit(rule.deadline),
        },
        backoff_nanos,
        retry_after_nanos,
    }
}

/// Unknown failures and our own are retried a few times, unless the book allows more.
fn category_tally(history: &History, category: Category) -> Option<RetryCount> {
    let max = match category {
        Category::Unknown => limits::UNKNOWN_RETRIES_MAX,
        Category::Internal => limits::INTERNAL_ATTEMPTS_MAX - 1,
        Category::Transient
        | Category::RateLimited
        | Category::Permanent
        | Category::Invalid
        | Category::Fatal => return None,
    };
    Some(RetryCount::next_after(history.retries_for(category), max))
}

/// Holds until then, or for what is left of `hold_max` or the deadline if that is less: the obstacle may be
/// gone sooner than announced, and only a delivery that asks when nothing is left becomes a dead letter.
fn hold(rule: &Rule, history: &History, cause: HoldCause, until: Timestamp, now: Timestamp) -> Decision {
    let held_so_far = history.held(now);
    let left = rule.hold_max.saturating_sub(held_so_far);
    let must_wait = until > now;
    let left_of_deadline = match (rule.deadline, history.first_attempt_at()) {
        (Some(deadline), Some(first)) => deadline.saturating_sub(now.since(first)),
        (None, _) | (_, None) => Duration::MAX,
    };
    let until = until.clamp(now, now + left.min(left_of_deadline));
    let first_attempt_at = history.first_attempt_at().unwrap_or(until);
    let held = SpentTime::of(held_so_far.saturating_add(until.since(now)), Some(rule.hold_max));
    let deadline = SpentTime::of(until.since(first_attempt_at), rule.deadline);
    let expired = match cause {
        HoldCause::BreakerOpen => DeadLetterReason::BreakerOpen,
        HoldCause::AskedToWait => DeadLetterReason::HoldExpired,
    };
    let may_not_wait = cause == HoldCause::BreakerOpen && rule.when_open == WhenOpen::DeadLetter;
    let dead_letter = if may_not_wait || must_wait && left.is_zero() {
        Some(expired)
    } else {
        (must_wait && left_of_deadline.is_zero()).then_some(DeadLetterReason::DeadlineExceeded)
    };
    Decision {
        verdict: dead_letter
            .map_or(Verdict::Hold { until }, |reason| Verdict::DeadLetter { reason, tier: Tier::Dead }),
        why: VerdictBasis::Held(Holding { cause, held, deadline }),
        observation: Observation::Silent,
        hold_dependency_until: None,
        alert: None,
    }
}

/// By what the failure itself was: a connection failure that became a configuration error still counts as
/// one. What the breaker ignores or counts comes first.
fn observation(rule: &Rule, failure: &Failure, verdict: Verdict) -> Observation {
    let failed = || match verdict {
        Verdict::Retry { .. } | Verdict::Hold { .. } | Verdict::Pause => {
            Observation::Failure(CallEnd::WillRetry)
        }
        Verdict::Deliver | Verdict::DeadLetter { .. } => Observation::Failure(CallEnd::Final),
    };
    if failure.connection == ConnectionStatus::NotTried {
        return Observation::Silent;
    }
    if let Some(breaker) = &rule.breaker {
        let is_among =
            |kinds: &[FailureMatch]| kinds.iter().any(|kind| kind.matches(failure.category, failure.status));
        if is_among(&breaker.ignores) {
            return Observation::Silent;
        }
        if is_among(&breaker.counts) {
            return failed();
        }
    }
    match failure.category {
        Category::Transient | Category::RateLimited | Category::Unknown => failed(),
        Category::Permanent | Category::Invalid => Observation::Answered,
        Category::Fatal | Category::Internal => Observation::Silent,
    }
}

#[must_use]
pub fn is_counted_by_breakers(rule: &Rule, failure: &Failure) -> bool {
    matches!(observation(rule, failure, Verdict::Pause), Observation::Failure(_))
}

fn alert(
    rule: &Rule,
    failure: &Failure,
    category: Category,
    verdict: Verdict,
    reaction: Reaction,
) -> Option<AlertKind> {
    match category {
        Category::Fatal if is_about_credentials(failure) => Some(AlertKind::Security),
        Category::Fatal => Some(AlertKind::Configuration),
        Category::Internal => Some(AlertKind::Internal),
        Category::Transient
        | Category::RateLimited
        | Category::Permanent
        | Category::Invalid
        | Category::Unknown => {
            // A hold that could not be granted is no lack of retries.
            let Verdict::DeadLetter {
                reason: DeadLetterReason::RetriesExceeded | DeadLetterReason::WindowExceeded,
                ..
            } = verdict
            else {
                return None;
            };
            let policy = &rule.reactions.policies()[usize::from(reaction.policy()?.0)];
            policy.alert_on_exhaustion.then_some(AlertKind::Exhausted)
        }
    }
}

fn is_about_credentials(failure: &Failure) -> bool {
    matches!(failure.status, Some(401 | 403))
        || [codes::UNAUTHORIZED, codes::FORBIDDEN].contains(&failure.code.as_str())
}

#[cfg(test)]
mod tests;
