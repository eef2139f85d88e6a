//! Redrive as a library: the rules of a book around any call.
//!
//! Put a [`Guard`] around a call, and a rule book decides what happens when it fails: retries, timeouts, circuit
//! breaker, and the error that the caller gets.
//!
//! ```
//! use redrive::core::policy::answer::{AnswerKind, TargetAnswer, TransportError};
//! use redrive::guard::BreakerState;
//! use redrive::{Book, Cause, Classify};
//!
//! /// Reports what was seen; the book decides what it means.
//! #[derive(Debug, thiserror::Error)]
//! #[error("the bank does not answer")]
//! struct Down;
//!
//! impl Classify for Down {
//!     fn answer(&self) -> TargetAnswer<'_> {
//!         TargetAnswer { what: AnswerKind::Transport(TransportError::Refused), message: "", retry_after: None }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let book = Book::parse("
//! version: 1
//! retry_policies:
//!   quick: { initial: 50ms, max: 1s, retries: 2, jitter: full }
//! breakers:
//!   bank: { trip: { consecutive: 5 }, open: 30s }
//! dependencies:
//!   bank: { kind: invoke, retry: quick, timeout: 2s, breaker: bank }
//! ")?;
//! let bank = book.guard("bank")?;
//!
//! // The first attempt fails, the second brings an answer.
//! let rate = bank.call(|attempt| async move { if attempt.is_retry() { Ok(1.25) } else { Err(Down) } }).await?;
//! assert_eq!(rate, 1.25);
//!
//! // Five failures in a row open the breaker: three attempts here, two there.
//! for _ in 0..2 {
//!     let error = bank.call(|_| async { Err::<f64, _>(Down) }).await.unwrap_err();
//!     println!("{error}"); // dependency, cause, attempts, and your own error
//! }
//! assert!(matches!(bank.breaker(), BreakerState::Open { .. }));
//!
//! // For half a minute no call is made, and callers learn when to try again.
//! let error = bank.call(|_| async { Ok::<_, Down>(1.25) }).await.unwrap_err();
//! assert!(matches!(error.cause, Cause::BreakerOpen { retry_after, .. } if retry_after.as_secs() <= 30));
//! assert!(error.is_untried());
//! # Ok(()) }
//! ```
//!
//! | module | purpose |
//! | --- | --- |
//! | [`guard`] | retries, breaker, throttle, timeout and deadline around a call, by a rule book that can be reloaded |
//! | [`shared`] | breakers shared by several processes |
//! | [`stale`], [`cache`] | caches that keep serving during an outage |
//! | [`once`] | work done once per key |
//! | [`transition`] | state changes only from allowed states |
//!
//! Features: `embedded` adds one SQLite file shared by processes, and the outbox; `process` runs programs with limits;
//! `tower` makes a guard a layer; `reqwest` and `hyper` classify the errors of these clients. The guide is
//! `docs/library.md` in the repository; `examples` has two programs.
//!
//! Decisions are made in [`core`]; this crate adds IO.

#![warn(missing_docs)]

pub mod cache;
pub mod clock;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod guard;
pub mod http;
pub mod load;
pub mod once;
#[cfg(feature = "embedded")]
pub mod outbox;
#[cfg(feature = "embedded")]
#[doc(hidden)]
pub mod private;
#[cfg(all(unix, feature = "process"))]
pub mod process;
pub mod shared;
pub mod stale;
#[cfg(feature = "tower")]
pub mod tower;
pub mod transition;

pub use guard::{Attempt, Book, CallError, Cause, Classify, Guard};
pub use redrive_core as core;

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The guides are doc tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/library.md")]
    struct Library;
    #[doc = include_str!("../../../docs/coming-from.md")]
    struct ComingFrom;
}
