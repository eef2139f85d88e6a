//! The same rules around any call of a program: `Retry(Breaker(Throttle(Timeout(call))))`.
//!
//! ```
//! use redrive::{Book, Classify};
//! use redrive::core::policy::answer::{Answer, TransportError, What};
//!
//! # #[derive(Debug)] struct Down;
//! # impl std::fmt::Display for Down { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("down") } }
//! # impl std::error::Error for Down {}
//! impl Classify for Down {
//!     fn answer(&self) -> Answer<'_> {
//!         Answer { what: What::Transport(TransportError::Refused), message: "down", retry_after: None }
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
//! A call waits for room and for the pace of its dependency, then makes attempts until one succeeds or the
//! rule says that it is enough. What follows on a failure is decided by [`redrive_core::policy::decide`], as it is for
//! deliveries: the same rule and the same past lead to the same verdict.
//!
//! Where a guard differs from a delivery, since somebody waits for its answer:
//! - an open breaker and a dependency that asked for patience end the call at once, as values that say when to
//!   come back; [`Guard::wait_when_open`] waits instead, for as long as the rule holds a delivery;
//! - a deadline, the rule's or [`Guard::deadline`], ends the call by then, whatever it is doing;
//! - a reaction `pause` has no service to pause: it ends the call.
//!
//! Invariants:
//! - no attempt without a permit of the breaker and a place among those in flight; both come back when the
//!   attempt ends, when its future is dropped and when it panics;
//! - a call that nobody waits for any more is no failure of the dependency;
//! - an attempt is judged by the book under which it began, the next by the newest.

mod attempt;
mod book;
mod call;
mod clock;
mod dependency;
mod error;
mod link;
mod queue;
#[cfg(test)]
mod tests;
mod word;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::policy::answer::Answer;
pub use redrive_core::policy::breaker::State as BreakerState;
use redrive_core::policy::rule::Rule;

pub use self::attempt::{Attempt, CallKey};
pub use self::book::{Book, BookError, UnknownGuard};
use self::book::{Seat, Terms};
pub use self::error::{CallError, Cause};
use crate::shared::SharedState;

/// Says what an error is, in the words that rule books are written in.
///
/// It tells what was seen; what that means is for the rule to say, whose `classify` rows look at code, status,
/// headers and message.
pub trait Classify {
    /// What was seen.
    fn answer(&self) -> Answer<'_>;
}

/// What stands around the calls to one dependency. Clones are cheap and share its state.
#[derive(Clone, Debug)]
pub struct Guard {
    seat: Arc<Seat>,
    deadline: Option<Duration>,
    when_held: WhenHeld,
    retries: Retries,
}

/// Whether a call is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retries {
    /// As the rule says.
    ByRule,
    /// Never: what is called for can be sent once only.
    Never,
}

/// What a call does that the breaker or the dependency's wish for patience keeps from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhenHeld {
    /// It ends, and says when to come back.
    FailFast,
    /// It waits within `hold_max` and the deadline, where the rule holds deliveries.
    Wait,
}

impl Guard {
    fn new(seat: Arc<Seat>) -> Self {
        Self { seat, deadline: None, when_held: WhenHeld::FailFast, retries: Retries::ByRule }
    }

    /// The same guard for calls that end within that time, whatever they wait for; the rule's own `deadline`
    /// holds where it is shorter. An attempt that it cuts short is no failure of the dependency, so one that is
    /// shorter than the rule's `timeout` keeps a dependency that hangs from opening its breaker.
    #[must_use]
    pub fn deadline(self, limit: Duration) -> Self {
        Self { deadline: Some(limit), ..self }
    }

    /// The same guard for calls that wait while the breaker is open or the dependency has asked for patience,
    /// within the rule's `hold_max` and the deadline. A rule that says `when_open: dead-letter` waits for no
    /// breaker.
    #[must_use]
    pub fn wait_when_open(self) -> Self {
        Self { when_held: WhenHeld::Wait, ..self }
    }

    /// The same guard for calls of one attempt, whatever the rule says: for what cannot be sent again, such as
    /// a body that is read as it goes.
    #[must_use]
    pub fn single_attempt(self) -> Self {
        Self { retries: Retries::Never, ..self }
    }

    /// Shares the breaker of this guard's dependency with other processes; see [`crate::shared`].
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, which the exchange runs on.
    #[must_use]
    pub fn shared(self, state: Arc<dyn SharedState>) -> Self {
        self.seat.share(state);
        self
    }

    /// The dependency that is called.
    #[must_use]
    pub fn dependency(&self) -> String {
        self.seat.terms().rule.dependency.to_string()
    }

    /// What the breaker of the dependency is now; one that the rule does not have is closed for good.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.seat.terms().dependency.breaker_state(self.seat.clock().now())
    }

    /// Attempts that are under way on the dependency, whoever makes them.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.seat.terms().dependency.in_flight()
    }

    /// Calls: makes attempts until one succeeds or the rule says that it is enough.
    pub async fn call<T, E, F, Fut>(&self, work: F) -> Result<T, CallError<E>>
    where
        E: Classify,
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.call_judged(by_its_error, work).await
    }

    /// The same for results that say nothing of themselves: `judge` tells what was seen, or none where there is
    /// nothing to complain of.
    ///
    /// It may find fault with a good result, such as an HTTP answer of 503. An error that it tells nothing of is
    /// of category `unknown`.
    pub async fn call_judged<T, E, J, F, Fut>(&self, judge: J, work: F) -> Result<T, CallError<E>>
    where
        J: for<'a> Fn(&'a Result<T, E>) -> Option<Answer<'a>>,
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        call::call(self, judge, work).await
    }

    fn terms(&self) -> Arc<Terms> {
        self.seat.terms()
    }

    /// How long a whole call may take by the guard and its rule.
    #[inline]
    fn time_limit(&self, rule: &Rule) -> Option<Duration> {
        match (self.deadline, rule.deadline) {
            (Some(own), Some(rules)) => Some(own.min(rules)),
            (own, rules) => own.or(rules),
        }
    }
}

fn by_its_error<T, E: Classify>(result: &Result<T, E>) -> Option<Answer<'_>> {
    result.as_ref().err().map(Classify::answer)
}
