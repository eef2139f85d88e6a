//! The rules of a book around any call of a program: `Retry(Breaker(Throttle(Timeout(call))))`.
//!
//! ```
//! use redrive::{Book, Classify};
//! use redrive::core::policy::answer::{AnswerKind, TargetAnswer, TransportError};
//!
//! # #[derive(Debug)] struct Down;
//! # impl std::fmt::Display for Down { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("down") } }
//! # impl std::error::Error for Down {}
//! impl Classify for Down {
//!     fn answer(&self) -> TargetAnswer<'_> {
//!         TargetAnswer { what: AnswerKind::Transport(TransportError::Refused), message: "down", retry_after: None }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let book = Book::parse("version: 1\ndependencies:\n  ntfy: { kind: ntfy, retry: aggressive }\n").unwrap();
//! let ntfy = book.guard("ntfy").unwrap();
//!
//! let sent = ntfy.call(|attempt| async move {
//!     // The first attempt fails, the second does not.
//!     if attempt.number() == 1 { Err(Down) } else { Ok("sent") }
//! });
//! assert_eq!(sent.await.unwrap(), "sent");
//! # }
//! ```
//!
//! A call waits for room and for the rate of its dependency, then makes attempts until one succeeds or the rule ends it.
//! [`redrive_core::policy::decide`] decides what follows a failure, as for deliveries.
//!
//! A guard differs from a delivery because a caller waits for the result:
//! - an open breaker or a `Retry-After` ends the call at once with the time to try again; [`Guard::wait_when_open`] waits
//!   instead, as long as the rule holds a delivery;
//! - a deadline, the rule's or [`Guard::deadline`], ends the call in time, whatever it is doing;
//! - a reaction `pause` has no service to pause: it ends the call.
//!
//! Invariants:
//! - no attempt without a permit of the breaker and a place in flight; both are returned when the attempt ends, panics
//!   or is dropped;
//! - a call whose caller went away is not a failure of the dependency;
//! - an attempt is judged by the book under which it started, the next by the newest.

mod attempt;
mod book;
mod call;
mod clock;
mod dependency;
mod error;
mod fast_path;
mod link;
mod queue;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::policy::answer::TargetAnswer;
pub use redrive_core::policy::breaker::BreakerState;
use redrive_core::policy::rule::Rule;

pub use self::attempt::{Attempt, CallKey};
pub use self::book::{Book, BookError, UnknownGuard};
use self::book::{GuardSlot, Terms};
pub use self::error::{CallError, Cause};
use crate::shared::SharedState;

/// Describes an error in the terms of rule books.
///
/// It reports what was seen; the rule decides what it means, by `classify` rows on code, status, headers and
/// message.
pub trait Classify {
    /// What was seen.
    fn answer(&self) -> TargetAnswer<'_>;
}

/// Guards the calls to one dependency. Clones are cheap and share its state.
#[derive(Clone, Debug)]
pub struct Guard {
    seat: Arc<GuardSlot>,
    deadline: Option<Duration>,
    when_held: WhenHeld,
    retries: Retries,
}

/// Whether failed calls are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retries {
    /// As the rule says.
    ByRule,
    /// Never: the request can be sent once only.
    Never,
}

/// What a call does while the breaker is open or the dependency asked callers to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhenHeld {
    /// Fail and report when to try again.
    FailFast,
    /// Wait within `hold_max` and the deadline, where the rule holds deliveries.
    Wait,
}

impl Guard {
    fn new(seat: Arc<GuardSlot>) -> Self {
        Self { seat, deadline: None, when_held: WhenHeld::FailFast, retries: Retries::ByRule }
    }

    /// Limits whole calls to `deadline`; the rule's own `deadline` applies if it is shorter. A cut-off
    /// attempt does not count as a failure, so a deadline below the rule's `timeout` keeps a hanging
    /// dependency from opening its breaker.
    #[must_use]
    pub fn deadline(self, limit: Duration) -> Self {
        Self { deadline: Some(limit), ..self }
    }

    /// Makes calls wait while the breaker is open or the dependency asked callers to wait, within the rule's
    /// `hold_max` and the deadline. A rule with `when_open: dead-letter` does not wait for the breaker.
    #[must_use]
    pub fn wait_when_open(self) -> Self {
        Self { when_held: WhenHeld::Wait, ..self }
    }

    /// Makes one attempt per call, whatever the rule says, for requests that cannot be sent again, such as
    /// streaming bodies.
    #[must_use]
    pub fn single_attempt(self) -> Self {
        Self { retries: Retries::Never, ..self }
    }

    /// Shares the dependency's breaker with other processes; see [`crate::shared`].
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn shared(self, state: Arc<dyn SharedState>) -> Self {
        self.seat.share(state);
        self
    }

    /// The dependency.
    #[must_use]
    pub fn dependency(&self) -> String {
        self.seat.terms().rule.dependency.to_string()
    }

    /// The state of the breaker; without a breaker it is always closed.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.seat.terms().dependency.breaker_state(self.seat.clock().now())
    }

    /// Attempts in flight to the dependency, from all guards.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.seat.terms().dependency.in_flight()
    }

    /// Makes attempts until one succeeds or the rule ends the call.
    pub async fn call<T, E, F, Fut>(&self, work: F) -> Result<T, CallError<E>>
    where
        E: Classify,
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.call_judged(by_its_error, work).await
    }

    /// The same for results that cannot classify themselves: `judge` returns what was seen, or `None` for
    /// success.
    ///
    /// It may reject a good result, such as a 503 response. An error that it does not judge is of category
    /// `unknown`.
    pub async fn call_judged<T, E, J, F, Fut>(&self, judge: J, work: F) -> Result<T, CallError<E>>
    where
        J: for<'a> Fn(&'a Result<T, E>) -> Option<TargetAnswer<'a>>,
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        call::call(self, judge, work).await
    }

    fn terms(&self) -> Arc<Terms> {
        self.seat.terms()
    }

    /// The time limit of a whole call by guard and rule.
    #[inline]
    fn time_limit(&self, rule: &Rule) -> Option<Duration> {
        match (self.deadline, rule.deadline) {
            (Some(own), Some(rules)) => Some(own.min(rules)),
            (own, rules) => own.or(rules),
        }
    }
}

fn by_its_error<T, E: Classify>(result: &Result<T, E>) -> Option<TargetAnswer<'_>> {
    result.as_ref().err().map(Classify::answer)
}
