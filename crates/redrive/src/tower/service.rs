//! The service that the layer makes: each of its calls is a guarded call of the inner service.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use redrive_core::policy::answer::{TargetAnswer, TargetReply};
use tower_service::Service;

use super::{ByError, CloneRequests, FailedResult, Judge, RequestPolicy, ServiceError};
use crate::BoxFuture;
use crate::guard::{Attempt, Cause, Guard};

/// A service behind a guard.
#[derive(Clone)]
pub struct GuardService<S, J = ByError, P = CloneRequests> {
    inner: S,
    guard: Guard,
    judge: J,
    requests: P,
    readiness: InnerReadiness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InnerReadiness {
    /// For one call.
    Ready,
    /// Not ready, or failed to become ready: the call asks again.
    Unknown,
}

impl<S, J, P> GuardService<S, J, P> {
    pub(super) const fn new(inner: S, guard: Guard, judge: J, requests: P) -> Self {
        Self { inner, guard, judge, requests, readiness: InnerReadiness::Unknown }
    }

    /// The inner service.
    #[must_use]
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Removes the guard.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, J, P> fmt::Debug for GuardService<S, J, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardService").field("guard", &self.guard).finish_non_exhaustive()
    }
}

impl<S, Req, J, P> Service<Req> for GuardService<S, J, P>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
    Req: Send + 'static,
    J: Judge<S::Response, S::Error> + Clone + Send + Sync + 'static,
    P: RequestPolicy<Req> + Clone + Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = ServiceError<S::Response, S::Error>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    /// Waits for the inner service. If it fails to become ready, the call asks once more and reports it:
    /// there is no attempt yet that could fail.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map(|ready| {
            self.readiness = if ready.is_ok() { InnerReadiness::Ready } else { InnerReadiness::Unknown };
            Ok(())
        })
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let spare = self.inner.clone();
        let ready = match std::mem::replace(&mut self.readiness, InnerReadiness::Unknown) {
            // The polled service is ready; its clone need not be.
            InnerReadiness::Ready => Some(std::mem::replace(&mut self.inner, spare.clone())),
            InnerReadiness::Unknown => None,
        };
        let (judge, requests) = (self.judge.clone(), self.requests.clone());
        let first = requests.copy(&request);
        let guard = if first.is_some() { self.guard.clone() } else { self.guard.clone().single_attempt() };
        let (first, kept) = match first {
            Some(copy) => (copy, Some(request)),
            None => (request, None),
        };
        Box::pin(async move {
            let (mut ready, mut first) = (ready, Some(first));
            let judge = &judge;
            let work = move |attempt: Attempt| {
                let service =
                    ready.take().map_or_else(|| InnerService::Asked(spare.clone()), InnerService::Ready);
                let mut request = first.take().unwrap_or_else(|| {
                    let copy = kept.as_ref().and_then(|kept| requests.copy(kept));
                    copy.expect(
                        "what cannot be copied has one attempt, and what was copied once can be again",
                    )
                });
                requests.prepare(&mut request, &attempt);
                async move { judged(judge, service.call(request).await) }
            };
            match guard.call_judged(|result| answer_of(judge, result), work).await {
                Ok(response) => Ok(response),
                Err(mut error) => match error.cause {
                    // The rule accepts this response as success.
                    Cause::Accepted(FailedResult { result: Ok(response), .. }) => Ok(response),
                    cause => {
                        error.cause = cause;
                        Err(error)
                    }
                },
            }
        })
    }
}

enum InnerService<S> {
    Ready(S),
    /// Polled first.
    Asked(S),
}

impl<S> InnerService<S> {
    async fn call<Req>(self, request: Req) -> Result<S::Response, S::Error>
    where
        S: Service<Req>,
    {
        let mut service = match self {
            Self::Ready(service) => service,
            Self::Asked(mut service) => {
                poll_fn(|context| service.poll_ready(context)).await?;
                service
            }
        };
        service.call(request).await
    }
}

fn judged<Res, E>(judge: &impl Judge<Res, E>, result: Result<Res, E>) -> Result<Res, FailedResult<Res, E>> {
    match (judge.look(&result).map(Box::new), result) {
        (None, Ok(response)) => Ok(response),
        (seen, result) => Err(FailedResult { result, seen }),
    }
}

fn answer_of<'a, Res, E>(
    judge: &impl Judge<Res, E>,
    result: &'a Result<Res, FailedResult<Res, E>>,
) -> Option<TargetAnswer<'a>> {
    let fault = result.as_ref().err()?;
    let seen = fault.seen.as_deref().map(TargetReply::as_answer);
    seen.or_else(|| fault.result.as_ref().err().and_then(|error| judge.of_error(error)))
}
