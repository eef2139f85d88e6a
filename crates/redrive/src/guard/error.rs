//! Errors of guarded calls: category, cause, the caller's own error, and when to try again.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use redrive_core::ids::DependencyName;
use redrive_core::policy::category::{Category, FailureCode};
use redrive_core::policy::classify::Failure;
use redrive_core::text::show_duration;

/// A failed call.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallError<E> {
    /// The dependency.
    pub dependency: DependencyName,
    /// The category of the failure.
    pub category: Category,
    /// Why the call ended, for programs: `MAX_RETRIES_EXCEEDED`, `CIRCUIT_BREAKER_OPEN`, or the failure's own
    /// code.
    pub code: FailureCode,
    /// Attempts made.
    pub attempts: u32,
    /// Duration of the whole call.
    pub elapsed: Duration,
    /// The failure of the last attempt, if there was one.
    pub failure: Option<Box<Failure>>,
    /// What ended the call.
    pub cause: Cause<E>,
}

/// What ended a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause<E> {
    /// The last attempt failed, and the rule allows no other.
    Failed(E),
    /// The last attempt failed, and the rule accepts that as success: no retry, and no value to return.
    Accepted(E),
    /// The last attempt returned a value that counts as failure, and the rule allows no other.
    FaultFound,
    /// The last attempt timed out, and the rule allows no other.
    TimedOut {
        /// Its time limit.
        limit: Duration,
    },
    /// The breaker is open.
    BreakerOpen {
        /// When it may admit a call.
        retry_after: Duration,
        /// The error of an earlier attempt of this call.
        last: Option<E>,
    },
    /// The dependency asked callers to wait.
    AskedToWait {
        /// For how long.
        retry_after: Duration,
        /// The error of an earlier attempt of this call.
        last: Option<E>,
    },
    /// The deadline passed, or would pass before another attempt.
    Deadline {
        /// The error of an earlier attempt.
        last: Option<E>,
    },
    /// The retry budget of the dependency is spent.
    BudgetSpent {
        /// The error of the last attempt.
        last: Option<E>,
    },
}

impl<E> CallError<E> {
    /// When to try again, if the breaker or the dependency said so.
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

    /// The same, owned.
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

    /// Whether no attempt was made, so that nothing has happened.
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
                write!(f, "{dependency}: asked callers to wait, try again in {wait}")?;
            }
            Cause::Deadline { .. } => write!(f, "{dependency}: deadline exceeded after {in_all}")?,
            Cause::BudgetSpent { .. } => {
                write!(f, "{dependency}: retry budget spent after {in_all}")?;
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

/// Rounds to what matters at that size.
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
