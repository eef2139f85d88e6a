//! A guard as a `tower` layer: `Retry(Breaker(Throttle(Timeout(call))))` around any client.
//!
//! ```
//! use redrive::tower::{FailedResult, GuardLayer};
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
//! let rate: Result<f64, CallError<FailedResult<f64, std::io::Error>>> = quotes.call("EUR").await;
//! assert_eq!(rate?, 1.25);
//! # Ok(()) }
//! ```
//!
//! A request is retried only if it can be copied ([`RequestPolicy`]). A response can count as a failure too, such as a
//! 503: pass a judge to [`GuardLayer::judged`], for example `redrive::http::hyper::judge` or
//! `redrive::http::reqwest::judge`. The last such response is in the error.
//!
//! Invariants: the inner service is called only when it is ready, for each attempt anew; and failing to become ready is
//! a failed attempt, which the breaker counts.

mod service;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;

use redrive_core::policy::answer::{TargetAnswer, TargetReply};
use tower_layer::Layer;

pub use self::service::GuardService;
use crate::guard::{Attempt, CallError, Classify, Guard};

/// Wraps services with a guard.
#[derive(Clone)]
pub struct GuardLayer<J = ByError, P = CloneRequests> {
    guard: Guard,
    judge: J,
    requests: P,
}

impl GuardLayer {
    /// For services with classifiable errors and cloneable requests; every response counts as success.
    #[must_use]
    pub fn new(guard: Guard) -> Self {
        Self { guard, judge: ByError, requests: CloneRequests }
    }
}

impl<J, P> GuardLayer<J, P> {
    /// Sets what judges results: a function that returns what it saw, or `None` for success. An error it does
    /// not judge is of category `unknown`.
    #[must_use]
    pub fn judged<K>(self, judge: K) -> GuardLayer<K, P> {
        GuardLayer { guard: self.guard, judge, requests: self.requests }
    }

    /// Sets what copies requests.
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

/// Judges a result in the terms of rule books. Implemented by functions from a result to what was seen.
pub trait Judge<Res, E> {
    /// What was seen of a result; `None` for success or where the error says it itself.
    fn look(&self, result: &Result<Res, E>) -> Option<TargetReply>;

    /// What an error says itself, if anything.
    fn of_error<'a>(&self, _error: &'a E) -> Option<TargetAnswer<'a>> {
        None
    }
}

impl<Res, E, F> Judge<Res, E> for F
where
    F: Fn(&Result<Res, E>) -> Option<TargetReply>,
{
    fn look(&self, result: &Result<Res, E>) -> Option<TargetReply> {
        self(result)
    }
}

/// Classifies errors by themselves and takes every response as success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByError;

impl<Res, E: Classify> Judge<Res, E> for ByError {
    fn look(&self, _result: &Result<Res, E>) -> Option<TargetReply> {
        None
    }

    fn of_error<'a>(&self, error: &'a E) -> Option<TargetAnswer<'a>> {
        Some(error.answer())
    }
}

/// Makes the requests of all attempts from the original one.
pub trait RequestPolicy<Req> {
    /// A copy, or `None` if the request cannot be copied; must be consistent per request.
    fn copy(&self, request: &Req) -> Option<Req>;

    /// Adds to the request of an attempt, such as its idempotency key.
    fn prepare(&self, _request: &mut Req, _attempt: &Attempt) {}
}

/// Clones requests and adds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneRequests;

impl<Req: Clone> RequestPolicy<Req> for CloneRequests {
    fn copy(&self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

/// Sends each request once, for those that cannot be copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOnce;

impl<Req> RequestPolicy<Req> for SendOnce {
    fn copy(&self, _request: &Req) -> Option<Req> {
        None
    }
}

/// A failed result: an error, or a response that counts as failure.
pub struct FailedResult<Res, E> {
    /// The result.
    pub result: Result<Res, E>,
    seen: Option<Box<TargetReply>>,
}

impl<Res, E> FailedResult<Res, E> {
    /// What was seen, if the judge said it.
    #[must_use]
    pub fn seen(&self) -> Option<&TargetReply> {
        self.seen.as_deref()
    }
}

impl<Res, E: fmt::Display> fmt::Display for FailedResult<Res, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.seen, &self.result) {
            (Some(seen), _) => f.write_str(&seen.message),
            (None, Err(error)) => write!(f, "{error}"),
            (None, Ok(_)) => f.write_str("response counts as failure"),
        }
    }
}

impl<Res, E: fmt::Debug> fmt::Debug for FailedResult<Res, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.result.as_ref().err();
        f.debug_struct("Fault").field("seen", &self.seen).field("error", &error).finish_non_exhaustive()
    }
}

impl<Res, E: Error + 'static> Error for FailedResult<Res, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.result.as_ref().err().map(|error| error as _)
    }
}

/// The error of a guarded service.
pub type ServiceError<Res, E> = CallError<FailedResult<Res, E>>;
