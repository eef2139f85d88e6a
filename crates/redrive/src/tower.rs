//! A guard as a layer of `tower`, around a client of anything: `Retry(Breaker(Throttle(Timeout(call))))`.
//!
//! ```
//! use redrive::tower::{Fault, GuardLayer};
//! use redrive::{Book, CallError};
//! use tower_layer::Layer;
//! use tower_service::Service;
//!
//! # #[derive(Clone)] struct Quotes;
//! # impl Service<&'static str> for Quotes {
//! #     type Response = f64;
//! #     type Error = std::io::Error;
//! #     type Future = std::future::Ready<Result<f64, std::io::Error>>;
//! #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
//! #         std::task::Poll::Ready(Ok(()))
//! #     }
//! #     fn call(&mut self, _: &'static str) -> Self::Future { std::future::ready(Ok(1.25)) }
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let book = Book::parse("version: 1\ndependencies:\n  bank: { kind: webhook, retry: aggressive }\n")?;
//! let mut quotes = GuardLayer::new(book.guard("bank")?).layer(Quotes);
//! std::future::poll_fn(|context| quotes.poll_ready(context)).await?;
//! let rate: Result<f64, CallError<Fault<f64, std::io::Error>>> = quotes.call("EUR").await;
//! assert_eq!(rate?, 1.25);
//! # Ok(()) }
//! ```
//!
//! A request is sent again only if it can be copied ([`RequestPolicy`]); one that cannot has one attempt. An
//! answer may be a failure too, such as one of 503: [`GuardLayer::judged`] takes what says so, for which there is
//! `redrive::http::hyper::judge` and `redrive::http::reqwest::judge`. The last such answer is in the error.
//!
//! Invariants: the inner service is called only when it has said that it is ready, for each attempt anew; and
//! that it could not get ready is a failure of an attempt, so the breaker hears of it.

mod service;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;

use redrive_core::policy::answer::{Answer, Reply};
use tower_layer::Layer;

pub use self::service::GuardService;
use crate::guard::{Attempt, CallError, Classify, Guard};

/// Puts a guard around services.
#[derive(Clone)]
pub struct GuardLayer<J = ByError, P = Cloned> {
    guard: Guard,
    judge: J,
    requests: P,
}

impl GuardLayer {
    /// For services whose errors say what they are, and whose requests can be cloned. Every answer is a success.
    #[must_use]
    pub fn new(guard: Guard) -> Self {
        Self { guard, judge: ByError, requests: Cloned }
    }
}

impl<J, P> GuardLayer<J, P> {
    /// The same with something else that says what a result is: a function of the result that gives what was
    /// seen, or none where there is nothing to complain of. An error of which it says nothing is of category
    /// `unknown`.
    #[must_use]
    pub fn judged<K>(self, judge: K) -> GuardLayer<K, P> {
        GuardLayer { guard: self.guard, judge, requests: self.requests }
    }

    /// The same with something else that copies requests.
    #[must_use]
    pub fn requests<Q>(self, requests: Q) -> GuardLayer<J, Q> {
        GuardLayer { guard: self.guard, judge: self.judge, requests }
    }
}

impl<S, J: Clone, P: Clone> Layer<S> for GuardLayer<J, P> {
    type Service = GuardService<S, J, P>;

    fn layer(&self, inner: S) -> Self::Service {
        GuardService::new(inner, self.guard.clone(), self.judge.clone(), self.requests.clone())
    }
}

impl<J, P> fmt::Debug for GuardLayer<J, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardLayer").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// Says what a result is, in the words of rule books. Functions of a result that give what was seen are judges.
pub trait Judge<Res, E> {
    /// What was seen of a result, or none where there is nothing to complain of or the error says it itself.
    fn look(&self, result: &Result<Res, E>) -> Option<Reply>;

    /// What an error says of itself, or none where that is nothing.
    fn of_error<'a>(&self, _error: &'a E) -> Option<Answer<'a>> {
        None
    }
}

impl<Res, E, F> Judge<Res, E> for F
where
    F: Fn(&Result<Res, E>) -> Option<Reply>,
{
    fn look(&self, result: &Result<Res, E>) -> Option<Reply> {
        self(result)
    }
}

/// Takes the error's word for what it is, and every answer for a success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByError;

impl<Res, E: Classify> Judge<Res, E> for ByError {
    fn look(&self, _result: &Result<Res, E>) -> Option<Reply> {
        None
    }

    fn of_error<'a>(&self, error: &'a E) -> Option<Answer<'a>> {
        Some(error.answer())
    }
}

/// Makes the requests of a call's attempts out of the one that came.
pub trait RequestPolicy<Req> {
    /// A copy to send, or none if it cannot be copied; it must say the same each time for the same request.
    fn copy(&self, request: &Req) -> Option<Req>;

    /// What to add to the request of an attempt, such as its idempotency key.
    fn prepare(&self, _request: &mut Req, _attempt: &Attempt) {}
}

/// Clones requests and adds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cloned;

impl<Req: Clone> RequestPolicy<Req> for Cloned {
    fn copy(&self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

/// Sends each request once, for those that cannot be copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentOnce;

impl<Req> RequestPolicy<Req> for SentOnce {
    fn copy(&self, _request: &Req) -> Option<Req> {
        None
    }
}

/// A result that is a failure: an error, or an answer that says so.
pub struct Fault<Res, E> {
    /// What came.
    pub result: Result<Res, E>,
    seen: Option<Box<Reply>>,
}

impl<Res, E> Fault<Res, E> {
    /// What was seen, where the judge has said it.
    #[must_use]
    pub fn seen(&self) -> Option<&Reply> {
        self.seen.as_deref()
    }
}

impl<Res, E: fmt::Display> fmt::Display for Fault<Res, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.seen, &self.result) {
            (Some(seen), _) => f.write_str(&seen.message),
            (None, Err(error)) => write!(f, "{error}"),
            (None, Ok(_)) => f.write_str("an answer that is a failure"),
        }
    }
}

impl<Res, E: fmt::Debug> fmt::Debug for Fault<Res, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.result.as_ref().err();
        f.debug_struct("Fault").field("seen", &self.seen).field("error", &error).finish_non_exhaustive()
    }
}

impl<Res, E: Error + 'static> Error for Fault<Res, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.result.as_ref().err().map(|error| error as _)
    }
}

/// Why a service behind a guard gave no answer.
pub type ServiceError<Res, E> = CallError<Fault<Res, E>>;
