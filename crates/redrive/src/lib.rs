//! Redrive as a library: the same rules around any call.
//!
//! Put a [`Guard`] around a call, and a rule book says what happens when it fails: what is tried again and when,
//! how long it may take, when to stop asking, and what the caller is told.
//!
//! ```
//! use redrive::core::policy::answer::{AnswerKind, TargetAnswer, TransportError};
//! use redrive::guard::BreakerState;
//! use redrive::{Book, Cause, Classify};
//!
//! /// Says what was seen; the book says what it means.
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
//!     println!("{error}"); // what was called, why it ended, after how many attempts, and your own error
//! }
//! assert!(matches!(bank.breaker(), BreakerState::Open { .. }));
//!
//! // From now on nobody is asked for half a minute, and the caller knows when to come back.
//! let error = bank.call(|_| async { Ok::<_, Down>(1.25) }).await.unwrap_err();
//! assert!(matches!(error.cause, Cause::BreakerOpen { retry_after, .. } if retry_after.as_secs() <= 30));
//! assert!(error.is_untried());
//! # Ok(()) }
//! ```
//!
//! | module | what for |
//! | --- | --- |
//! | [`guard`] | retries, breaker, throttle, timeout and deadline around a call, by a rule book that can change |
//! | [`shared`] | breakers that several processes share |
//! | [`stale`], [`cache`] | what was fetched serves on while it cannot be fetched anew |
//! | [`once`] | work that is done once for its key, whoever asks |
//! | [`transition`] | a status that changes only from one that is expected |
//!
//! Features add more: `embedded` one SQLite file that processes share, and the outbox; `process` programs that are
//! run with limits; `tower` a guard as a layer; `reqwest` and `hyper` what these clients report. The guide is `docs/library.md` in the repository, where `examples` has two programs.
//!
//! The deciding lives in [`core`]; this crate adds what touches the world.

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

/// The guides are compiled as they stand.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/library.md")]
    struct Library;
    #[doc = include_str!("../../../docs/coming-from.md")]
    struct ComingFrom;
}
