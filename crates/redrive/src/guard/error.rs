//! Why a call did not succeed: what kind of failure it was, what the caller's own error was, when to come back.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use redrive_core::ids::DependencyName;
use redrive_core::policy::category::{Category, Code};
use redrive_core::policy::classify::Failure;
use redrive_core::text::show_duration;

/// A call that did not succeed.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallError<E> {
    /// What was called.
    pub dependency: DependencyName,
    /// What kind of failure it was.
    pub category: Category,
    /// Why the call ended, for machines: `MAX_RETRIES_EXCEEDED`, `CIRCUIT_BREAKER_OPEN`, or the failure's own
    /// code where that alone ended it.
    pub code: Code,
    /// Attempts that were made.
    pub attempts: u32,
    /// How long the whole call took.
    pub elapsed: Duration,
    /// What the last attempt failed of, if one failed.
    pub failure: Option<Box<Failure>>,
    /// What ended the call.
    pub cause: Cause<E>,
}

/// What ended a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause<E> {
    /// The last attempt failed of this, and the rule allows no other.
    Failed(E),
    /// The last attempt failed of this, and the rule takes that for a success: the dependency is well, nothing
    /// is tried again, and there is no value to return.
    Accepted(E),
    /// The last attempt returned a value that is a failure, and the rule allows no other.
    FaultFound,
    /// The last attempt had no answer in time, and the rule allows no other.
    TimedOut {
        /// How long it could take.
        limit: Duration,
    },
    /// The breaker is open.
    BreakerOpen {
        /// When it may let a call through.
        retry_after: Duration,
        /// What an attempt of this very call had failed of before.
        last: Option<E>,
    },
    /// The dependency has asked everybody to wait.
    AskedToWait {
        /// For how long.
        retry_after: Duration,
        /// What an attempt of this very call had failed of before.
        last: Option<E>,
    },
    /// The call's deadline has passed, or would have before another attempt.
    Deadline {
        /// What an attempt had failed of before.
        last: Option<E>,
    },
    /// Too many of the calls to the dependency are retries already.
    BudgetSpent {
        /// What the last attempt failed of.
        last: Option<E>,
    },
}

impl<E> CallError<E> {
    /// When it is worth trying again, where somebody has said so: an open breaker or the dependency itself.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.cause {
            Cause::BreakerOpen { retry_after, .. } | Cause::AskedToWait { retry_after, .. } => {
                Some(*retry_after)
            }
            Cause::Failed(_)
            | Cause::Accepted(_)
            | Cause::FaultFound
            | Cause::TimedOut { .. }
            | Cause::Deadline { .. }
            | Cause::BudgetSpent { .. } => self.failure.as_ref().and_then(|failure| failure.retry_after),
        }
    }

    /// The caller's own error of the last attempt that had one.
    #[must_use]
    pub fn last(&self) -> Option<&E> {
        match &self.cause {
            Cause::Failed(error) | Cause::Accepted(error) => Some(error),
            Cause::BreakerOpen { last, .. }
            | Cause::AskedToWait { last, .. }
            | Cause::Deadline { last }
            | Cause::BudgetSpent { last } => last.as_ref(),
            Cause::FaultFound | Cause::TimedOut { .. } => None,
        }
    }

    /// The same, to be kept.
    #[must_use]
    pub fn into_last(self) -> Option<E> {
        match self.cause {
            Cause::Failed(error) | Cause::Accepted(error) => Some(error),
            Cause::BreakerOpen { last, .. }
            | Cause::AskedToWait { last, .. }
            | Cause::Deadline { last }
            | Cause::BudgetSpent { last } => last,
            Cause::FaultFound | Cause::TimedOut { .. } => None,
        }
    }

    /// Whether the call ended without an attempt, so that nothing has happened.
    #[must_use]
    pub const fn is_untried(&self) -> bool {
        self.attempts == 0
    }
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dependency, category, code, attempts, elapsed, failure, cause } = self;
        let tries = if *attempts == 1 { "attempt" } else { "attempts" };
        let elapsed = show_duration(rounded(*elapsed));
        let in_all = format_args!("{attempts} {tries} in {elapsed}");
        match cause {
            Cause::Failed(_) | Cause::Accepted(_) | Cause::FaultFound | Cause::TimedOut { .. } => {
                write!(f, "{dependency}: {category} failure, {code} after {in_all}")?;
            }
            Cause::BreakerOpen { retry_after, .. } => {
                let wait = show_duration(rounded(*retry_after));
                write!(f, "{dependency}: circuit breaker open, try again in {wait}")?;
            }
            Cause::AskedToWait { retry_after, .. } => {
                let wait = show_duration(rounded(*retry_after));
                write!(f, "{dependency}: asked for patience, try again in {wait}")?;
            }
            Cause::Deadline { .. } => write!(f, "{dependency}: deadline exceeded after {in_all}")?,
            Cause::BudgetSpent { .. } => {
                write!(f, "{dependency}: too many retries already, so no other follows {in_all}")?;
            }
        }
        match (self.last(), cause, failure) {
            (Some(last), ..) => write!(f, "; last failure: {last}"),
            (None, Cause::TimedOut { limit }, _) => {
                write!(f, "; last failure: no answer within {}", show_duration(*limit))
            }
            (None, _, Some(failure)) if !failure.message.is_empty() => {
                write!(f, "; last failure: {}", failure.message)
            }
            (None, _, Some(failure)) => write!(f, "; last failure: {}", failure.code),
            (None, _, None) => Ok(()),
        }
    }
}

/// Nobody reads nanoseconds: as much as matters at that size.
fn rounded(span: Duration) -> Duration {
    let grain = match span.as_millis() {
        0 => return span,
        1..1_000 => 1,
        1_000..60_000 => 100,
        _ => 1_000,
    };
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis / grain * grain)
}

impl<E: Error + 'static> Error for CallError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.last().map(|last| last as _)
    }
}
