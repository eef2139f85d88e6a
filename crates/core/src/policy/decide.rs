//! The one place that rules on what follows when an attempt has ended.
//!
//! Invariants:
//! - a pure function of rule, history, outcome and moment, without an allocation: the live engine, the
//!   simulator and `redrive why` get the same verdict from the same facts;
//! - never more retries than the policy and the rule in all allow, and none that would start after the
//!   window or the deadline; a handful for a category that the book states no policy for;
//! - a wait that the other side asked for is time held: it uses up `hold_max` and no window;
//! - an attempt that may not start is held as long as `hold_max` allows, and never dies before that;
//! - a delivery that waits behind an open breaker, a pause or our own shutdown burns no retry;
//! - a verdict carries every number it was made of, over in [`Why`].

use std::fmt;
use std::time::Duration;

use crate::ids::{Attempt, DeliveryId, Seed};
use crate::letters::envelope::Tier;
use crate::limits;
use crate::policy::backoff::nanos;
use crate::policy::breaker::{CallEnd, Observation};
use crate::policy::category::{Category, codes};
use crate::policy::classify::{Connection, Failure, Outcome};
pub use crate::policy::history::History;
use crate::policy::rule::{FailureMatch, PolicyIndex, Reaction, Rule, Sourced, WhenOpen};
use crate::position::Position;
use crate::time::Timestamp;

/// Which attempt is ruled on, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Now.
    pub now: Timestamp,
    /// What makes this run's jitter differ from another's.
    pub seed: Seed,
    /// The delivery.
    pub delivery: DeliveryId,
    /// Its attempt that ended, or that could not start.
    pub attempt: Attempt,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// It ran and came to this.
    Outcome(Outcome),
    /// It did not start, since the breaker is open.
    BreakerOpen {
        /// When the breaker may let it through.
        until: Timestamp,
    },
    /// It did not start, since the dependency asked all of us to wait.
    AskedToWait {
        /// Until when.
        until: Timestamp,
    },
    /// It was cut short by our own shutdown.
    Interrupted,
}

/// What follows, why, and who is to be told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// What becomes of the delivery.
    pub verdict: Verdict,
    /// The numbers behind it.
    pub why: Why,
    /// What to tell the breaker.
    pub observation: Observation,
    /// The whole dependency waits until then.
    pub hold_dependency_until: Option<Timestamp>,
    /// What to alert at once.
    pub alert: Option<AlertKind>,
}

/// What becomes of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is delivered.
    Deliver,
    /// It is tried again.
    Retry {
        /// When; a fixed time, whatever the rule book says later.
        due_at: Timestamp,
    },
    /// It waits without burning a retry.
    Hold {
        /// Until when; then it asks again.
        until: Timestamp,
    },
    /// It has failed for good.
    DeadLetter {
        /// Why.
        reason: DeathReason,
        /// Among which dead letters it is kept.
        tier: Tier,
    },
    /// Its service is paused, and it goes back to its place.
    Pause,
}

/// Why a delivery has failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeathReason {
    /// Its last failure allows no retry.
    Refused,
    /// A connection failed for longer than `fatal_after`.
    ConnectionFailing,
    /// Its retries are used up.
    RetriesExceeded,
    /// The next retry would start after the window.
    WindowExceeded,
    /// The next attempt would start after the deadline.
    DeadlineExceeded,
    /// The other side asks for more patience than `hold_max` has.
    HoldExpired,
    /// The breaker is open and it cannot be held.
    BreakerOpen,
}

impl DeathReason {
    /// The stable name of it for machines; none where it is the failure's own.
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

/// What is alerted as soon as it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertKind {
    /// Credentials are refused.
    Security,
    /// Something is configured wrongly.
    Configuration,
    /// Retries ran out, and the policy wants that known.
    Exhausted,
    /// Redrive itself failed.
    Internal,
}

/// The numbers behind a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// The target has the event.
    Delivered {
        /// The row of `classify` that says so, if one does.
        matched: Option<Position>,
    },
    /// The attempt failed.
    Failed(Ruling),
    /// The attempt did not start.
    Held(Holding),
    /// The attempt was cut short by our own shutdown.
    Interrupted,
}

/// How a failure was ruled on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ruling {
    /// What the failure is taken for.
    pub category: Category,
    /// The row of `classify` that says so, if one does.
    pub matched: Option<Position>,
    /// How long the connection has failed, if that is longer than `fatal_after` and made it fatal.
    pub connection_failing_for: Option<Duration>,
    /// Whether the connection was the trouble.
    pub connection: Connection,
    /// What the rule says of it, and where.
    pub reaction: Sourced<Reaction>,
    /// The retry that was weighed, if the rule allows one.
    pub retry: Option<RetryNumbers>,
}

/// All that decides on a retry: it is made if nothing is exceeded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryNumbers {
    /// By which policy.
    pub policy: PolicyIndex,
    /// The retries by this policy, this one included.
    pub by_policy: Tally,
    /// The retries in all, this one included.
    pub in_total: Tally,
    /// The retries that this category gets where the book states no policy for it, this one included.
    pub by_category: Option<Tally>,
    /// Of the policy's window, when the retry starts.
    pub window: Spent,
    /// Of the rule's `hold_max`, when the retry starts.
    pub held: Spent,
    /// Of the rule's deadline, when the retry starts.
    pub deadline: Spent,
    backoff_nanos: u64,
    /// 0 if nobody asks.
    retry_after_nanos: u64,
}

impl RetryNumbers {
    /// The policy's delay, with its jitter.
    #[must_use]
    pub const fn backoff(&self) -> Duration {
        Duration::from_nanos(self.backoff_nanos)
    }

    /// How long the other side asks us to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        (self.retry_after_nanos > 0).then_some(Duration::from_nanos(self.retry_after_nanos))
    }

    /// From now until the retry: the longer of both.
    #[must_use]
    pub fn wait(&self) -> Duration {
        Duration::from_nanos(self.wait_nanos())
    }

    fn wait_nanos(&self) -> u64 {
        self.backoff_nanos.max(self.retry_after_nanos)
    }

    /// Whether the wait is the other side's wish, and so time held.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.retry_after_nanos > self.backoff_nanos
    }

    fn death(&self, connection: Connection) -> Option<DeathReason> {
        // What was not tried burns no retry, so it cannot lack one either.
        let may_run_out = connection != Connection::NotTried;
        let retries_exceeded = self.by_policy.is_exceeded()
            || self.in_total.is_exceeded()
            || self.by_category.is_some_and(Tally::is_exceeded);
        if may_run_out && retries_exceeded {
            Some(DeathReason::RetriesExceeded)
        } else if self.deadline.is_exceeded() {
            Some(DeathReason::DeadlineExceeded)
        } else if self.window.is_exceeded() {
            Some(DeathReason::WindowExceeded)
        } else if self.is_held() && self.held.is_exceeded() {
            Some(DeathReason::HoldExpired)
        } else {
            None
        }
    }
}

/// A number of retries and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The number, from 1.
    pub number: u32,
    /// The most there may be.
    pub max: u32,
}

impl Tally {
    const fn next_after(done: u32, max: u32) -> Self {
        Self { number: done.saturating_add(1), max }
    }

    const fn is_exceeded(self) -> bool {
        self.number > self.max
    }
}

/// A time and how long it may be.
///
/// In nanoseconds inside, since a verdict copies many of them; 584 years are no limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    used: u64,
    limit: u64,
}

impl Spent {
    /// So much of so much; no limit if none is given.
    #[must_use]
    pub fn of(used: Duration, limit: Option<Duration>) -> Self {
        Self { used: nanos(used), limit: limit.map_or(u64::MAX, nanos) }
    }

    /// How much is used.
    #[must_use]
    pub const fn used(self) -> Duration {
        Duration::from_nanos(self.used)
    }

    /// How much there is; none is no limit.
    #[must_use]
    pub fn limit(self) -> Option<Duration> {
        (self.limit < u64::MAX).then_some(Duration::from_nanos(self.limit))
    }

    const fn is_exceeded(self) -> bool {
        self.used > self.limit
    }
}

impl fmt::Debug for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit() {
            Some(limit) => write!(f, "{:?} of {limit:?}", self.used()),
            None => write!(f, "{:?}", self.used()),
        }
    }
}

/// Why an attempt did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Who stands in the way.
    pub cause: HoldCause,
    /// Of the rule's `hold_max`, by the time it may go on.
    pub held: Spent,
    /// Of the rule's deadline, by then.
    pub deadline: Spent,
}

/// Who stands in the way of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldCause {
    /// The breaker is open.
    BreakerOpen,
    /// The dependency asked all of us to wait.
    AskedToWait,
}

/// Rules on an attempt that ended or could not start.
#[must_use]
#[inline]
pub fn decide(rule: &Rule, history: &History, ended: &Ended, at: &Moment) -> Decision {
    match ended {
        Ended::Outcome(Outcome::Delivered { matched }) => Decision {
            verdict: Verdict::Deliver,
            why: Why::Delivered { matched: *matched },
            observation: Observation::Success,
            hold_dependency_until: None,
            alert: None,
        },
        Ended::Outcome(Outcome::Failed(failure)) => rule_on_failure(rule, history, failure, at),
        Ended::BreakerOpen { until } => hold(rule, history, HoldCause::BreakerOpen, *until, at.now),
        Ended::AskedToWait { until } => hold(rule, history, HoldCause::AskedToWait, *until, at.now),
        Ended::Interrupted => Decision {
            verdict: Verdict::Retry { due_at: at.now },
            why: Why::Interrupted,
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
        (_, Some(numbers)) => match numbers.death(failure.connection) {
            Some(reason) => Verdict::DeadLetter { reason, tier },
            None => Verdict::Retry { due_at: later(at.now, numbers.wait_nanos()) },
        },
        (_, None) if connection_failing_for.is_some() => {
            Verdict::DeadLetter { reason: DeathReason::ConnectionFailing, tier }
        }
        (_, None) => Verdict::DeadLetter { reason: DeathReason::Refused, tier },
    };
    Decision {
        verdict,
        why: Why::Failed(Ruling {
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

/// How long the connection has failed, if that is longer than the rule bears with.
fn connection_failing_for(
    rule: &Rule,
    history: &History,
    failure: &Failure,
    now: Timestamp,
) -> Option<Duration> {
    let limit = rule.fatal_after?;
    let may_heal = matches!(failure.category, Category::Transient | Category::Unknown);
    if failure.connection != Connection::Failed || !may_heal {
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
    by_category: Option<Tally>,
    at: &Moment,
) -> RetryNumbers {
    let backoff = &rule.reactions.policies()[usize::from(policy.0)].backoff;
    let done = history.retries_by(policy);
    let draw = at.seed.draw(at.delivery, at.attempt);
    let backoff_nanos = match failure.connection {
        Connection::Made | Connection::Failed => {
            backoff.delay_nanos(done, draw, history.previous_delay_nanos())
        }
        // Nobody needs to be spared who was not called: the wait is time held, and no more.
        Connection::NotTried => 0,
    };
    let retry_after_nanos = failure.retry_after.map_or(0, nanos);
    let wait = backoff_nanos.max(retry_after_nanos);
    let (waited, held) = if wait > backoff_nanos { (0, wait) } else { (wait, 0) };
    let limit = |span: Option<Duration>| span.map_or(u64::MAX, nanos);
    RetryNumbers {
        policy,
        by_policy: Tally::next_after(done, backoff.retries()),
        in_total: Tally::next_after(history.retries_total(), rule.reactions.retries_total_max()),
        by_category,
        window: Spent {
            used: history.window_used_nanos(at.now).saturating_add(waited),
            limit: limit(backoff.window()),
        },
        held: Spent { used: history.held_nanos(at.now).saturating_add(held), limit: nanos(rule.hold_max) },
        deadline: Spent { used: history.age_nanos(at.now).saturating_add(wait), limit: limit(rule.deadline) },
        backoff_nanos,
        retry_after_nanos,
    }
}

/// What nobody understands and what is our own fault is tried a few times, unless the book says more.
fn category_tally(history: &History, category: Category) -> Option<Tally> {
    let max = match category {
        Category::Unknown => limits::UNKNOWN_RETRIES_MAX,
        Category::Internal => limits::INTERNAL_ATTEMPTS_MAX - 1,
        Category::Transient
        | Category::RateLimited
        | Category::Permanent
        | Category::Invalid
        | Category::Fatal => return None,
    };
    Some(Tally::next_after(history.retries_for(category), max))
}

/// Holds until then, or for what is left of `hold_max` or the deadline if that is less: what stands in
/// the way may be gone sooner than it says, and only who asks when nothing is left ends as a dead letter.
fn hold(rule: &Rule, history: &History, cause: HoldCause, until: Timestamp, now: Timestamp) -> Decision {
    let held_so_far = history.held(now);
    let left = rule.hold_max.saturating_sub(held_so_far);
    let must_wait = until > now;
    // The deadline runs from the first attempt on.
    let left_of_deadline = match (rule.deadline, history.first_attempt_at()) {
        (Some(deadline), Some(first)) => deadline.saturating_sub(now.since(first)),
        (None, _) | (_, None) => Duration::MAX,
    };
    let until = until.clamp(now, now + left.min(left_of_deadline));
    let first_attempt_at = history.first_attempt_at().unwrap_or(until);
    let held = Spent::of(held_so_far.saturating_add(until.since(now)), Some(rule.hold_max));
    let deadline = Spent::of(until.since(first_attempt_at), rule.deadline);
    let expired = match cause {
        HoldCause::BreakerOpen => DeathReason::BreakerOpen,
        HoldCause::AskedToWait => DeathReason::HoldExpired,
    };
    let may_not_wait = cause == HoldCause::BreakerOpen && rule.when_open == WhenOpen::DeadLetter;
    let death = if may_not_wait || must_wait && left.is_zero() {
        Some(expired)
    } else {
        (must_wait && left_of_deadline.is_zero()).then_some(DeathReason::DeadlineExceeded)
    };
    Decision {
        verdict: death
            .map_or(Verdict::Hold { until }, |reason| Verdict::DeadLetter { reason, tier: Tier::Dead }),
        why: Why::Held(Holding { cause, held, deadline }),
        observation: Observation::Silent,
        hold_dependency_until: None,
        alert: None,
    }
}

/// By what the failure itself was: a connection that failed for so long that it became a matter of
/// configuration is still one that failed. What the breaker ignores or counts comes first.
fn observation(rule: &Rule, failure: &Failure, verdict: Verdict) -> Observation {
    let failed = || match verdict {
        Verdict::Retry { .. } | Verdict::Hold { .. } | Verdict::Pause => {
            Observation::Failure(CallEnd::WillRetry)
        }
        Verdict::Deliver | Verdict::DeadLetter { .. } => Observation::Failure(CallEnd::Final),
    };
    if failure.connection == Connection::NotTried {
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

/// Whether the rule's breaker counts such a failure, or would if there were one.
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
            // A wait that nobody could grant is no lack of retries.
            let Verdict::DeadLetter {
                reason: DeathReason::RetriesExceeded | DeathReason::WindowExceeded,
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
