//! The `http` target: posts CloudEvents and says what came back, whatever that is.
//!
//! Every part of a call has its limit, and the whole has one, so a call ends whether the other side answers,
//! hangs, talks nonsense or never stops talking. Redirects are answers like any other: an event goes where
//! the book says and nowhere else. Only HTTP/1.1 is spoken.
//!
//! Invariants: one call is one request. It is sent a second time only if a kept connection turned out to be
//! closed before any of it was sent. Whoever drops the future of a call ends the call, and its connection.

mod address;
mod answer;
mod batch;
mod connect;
mod failure;
pub(crate) mod fetch;
mod guard;
mod limits;
mod pool;
mod request;
mod resolve;
mod sign;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use redrive_core::answer::{CallPart, Reply, Seen};
use redrive_core::book::model::Network;
use redrive_core::engine::{Call, Ending};
use redrive_core::time::Timestamp;
use tokio::time::{Instant, timeout};

use self::address::{Address, Security};
use self::answer::{Body, BodyEnd, Wanted};
use self::connect::Sender;
use self::failure::Failure;
use self::limits::{BATCH_ANSWER_MAX, DRAIN_TIME_MAX, Limits, Step, TURN_AROUND_MAX, timed_out};
use self::sign::{Signer, Unsigned};
use super::Target;
use crate::clock::wall_clock;

pub use self::address::InvalidAddress;
pub use self::pool::Pool;
pub use self::request::Form;
pub use self::sign::{InvalidSecret, Signing};
pub(crate) use self::sign::{check as check_secret, key as standard_key};

/// Posts events to one address.
pub struct HttpTarget {
    address: Address,
    form: Form,
    signing: Option<Signing>,
    idle_max: usize,
    place: String,
    pool: Arc<Pool>,
    /// The machine's clock: receivers compare it with theirs, and the node's own goes on when that is set.
    now: fn() -> Timestamp,
}

/// How events are posted.
pub struct HttpOptions {
    /// How they are laid out.
    pub form: Form,
    /// What calls are signed with; none signs nothing.
    pub signing: Option<Signing>,
    /// How many calls the dependency takes at once: so many connections are kept.
    pub permits: u32,
    /// What the name in the address may resolve to.
    pub network: Network,
    /// Whose target it is and where it stands, such as `service billing, line 6`: what is for the book to
    /// mend says so.
    pub place: String,
}

/// Why a target cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// Its address is none.
    #[error(transparent)]
    Address(#[from] InvalidAddress),
}

impl HttpTarget {
    /// A target that shares its connections with all others of the pool.
    pub fn new(address: &str, options: HttpOptions, pool: Arc<Pool>) -> Result<Self, InvalidTarget> {
        let HttpOptions { form, signing, permits, network, place } = options;
        let address = Address::parse(address, network)?;
        if address.origin.security == Security::Tls {
            // Reading the system's certificates is not for the first call to wait for.
            pool.tls();
        }
        let idle_max = usize::try_from(permits).unwrap_or(usize::MAX);
        Ok(Self { address, form, signing, idle_max, place, pool, now: wall_clock })
    }

    /// The same with another clock.
    #[cfg(test)]
    fn at(self, now: fn() -> Timestamp) -> Self {
        Self { now, ..self }
    }

    async fn exchange(&self, call: &Call) -> Result<Ending, Failure> {
        let limits = Limits::of(call);
        let signer = match self.signer(&limits).await {
            Ok(signer) => signer,
            Err(unsigned) => return Ok(Ending::Reply(not_made(&unsigned))),
        };
        let (sampler, now) = (self.pool.sampler(), (self.now)());
        let request = match request::make(&self.address, self.form, signer.as_deref(), call, sampler, now) {
            Ok(request) => request,
            Err(misfit) => return Ok(Ending::Reply(internal(misfit.to_string()))),
        };
        let (response, sender) = self.send(request, &limits).await?;
        let (head, body) = response.into_parts();
        let answers_batch = self.form == Form::Batch && head.status.is_success();
        let wanted = if answers_batch {
            Wanted { kept_max: BATCH_ANSWER_MAX, read_max: BATCH_ANSWER_MAX, until: limits.whole_at }
        } else if head.status.is_success() && call.rule.classify.is_empty() {
            // It says nothing that anybody would look at; it is read only to keep the connection.
            Wanted::usual(limits.whole_at.min(Instant::now() + DRAIN_TIME_MAX))
        } else {
            Wanted::usual(limits.whole_at)
        };
        let body = answer::read(body, wanted).await;
        if matches!(body.end, BodyEnd::Whole) {
            self.keep(sender).await;
        }
        if !answers_batch {
            return Ok(Ending::Reply(answer::reply(&head, &body.bytes)));
        }
        let failed = self.failed_in_batch(call, &body, &limits)?;
        if failed.is_empty() {
            return Ok(Ending::Reply(answer::reply(&head, &body.bytes)));
        }
        let reply = batch::item_failure(failed.len(), call.deliveries.len());
        Ok(Ending::Partly { reply, failed })
    }

    /// What this call is signed with; none if calls are not signed.
    async fn signer(&self, limits: &Limits) -> Result<Option<Arc<Signer>>, Unsigned> {
        let Some(signing) = &self.signing else { return Ok(None) };
        signing.signer(limits.whole).await.map(Some)
    }

    /// The head of the answer, and the connection that it came by.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        limits: &Limits,
    ) -> Result<(Response<Incoming>, Sender), Failure> {
        let origin = &self.address.origin;
        let request = match self.pool.take(origin) {
            None => request,
            Some(kept) => match self.send_by(kept, request, limits).await {
                Ok(answered) => return Ok(answered),
                Err(Unanswered::Failed(failure)) => return Err(failure),
                Err(Unanswered::NotSent(request)) => *request,
            },
        };
        let fresh = connect::connect(origin, &self.pool, limits).await;
        let fresh = fresh.map_err(|failure| failure.at(&self.place))?;
        self.send_by(fresh, request, limits).await.map_err(|unanswered| match unanswered {
            Unanswered::Failed(failure) => failure,
            Unanswered::NotSent(_) => Failure::closed_early(origin),
        })
    }

    /// The limit on the headers runs from when the connection has the request, so it holds for sending
    /// the request too.
    async fn send_by(
        &self,
        mut sender: Sender,
        request: Request<Full<Bytes>>,
        limits: &Limits,
    ) -> Result<(Response<Incoming>, Sender), Unanswered> {
        let origin = &self.address.origin;
        match limits.wait(Step::Head, origin, sender.try_send_request(request)).await {
            Ok(Ok(response)) => Ok((response, sender)),
            Ok(Err(mut error)) => Err(match error.take_message() {
                Some(request) => Unanswered::NotSent(Box::new(request)),
                None => Unanswered::Failed(Failure::http(origin, error.error())),
            }),
            Err(failure) => Err(Unanswered::Failed(failure)),
        }
    }

    /// Keeps a connection whose answer has ended, if it can carry another call soon.
    async fn keep(&self, mut sender: Sender) {
        // An answer may come before its request has gone out, and then there may be no end to that.
        if sender.is_ready() || matches!(timeout(TURN_AROUND_MAX, sender.ready()).await, Ok(Ok(()))) {
            self.pool.put(&self.address.origin, sender, self.idle_max);
        }
    }

    fn failed_in_batch(&self, call: &Call, body: &Body, limits: &Limits) -> Result<Vec<usize>, Failure> {
        let origin = &self.address.origin;
        let refuse = |why: &str| Failure::protocol(format!("the answer of {origin} is of no use: {why}"));
        match &body.end {
            BodyEnd::Whole => batch::failed(&body.bytes, &call.deliveries).map_err(|why| refuse(&why)),
            BodyEnd::TooLong => Err(refuse("it is too long")),
            BodyEnd::TimedOut => Err(timed_out(Step::Body, CallPart::Whole, limits.whole, origin)),
            BodyEnd::Broken(error) => Err(Failure::http(origin, error)),
        }
    }
}

/// Why a connection brought no answer.
enum Unanswered {
    /// Something went wrong, and the target may have the request.
    Failed(Failure),
    /// The connection was closed before any of the request was sent: here it is again.
    NotSent(Box<Request<Full<Bytes>>>),
}

impl Target for HttpTarget {
    fn call(&self, call: Arc<Call>) -> Pin<Box<dyn Future<Output = Ending> + Send + '_>> {
        Box::pin(async move {
            let ending = self.exchange(&call).await;
            ending.unwrap_or_else(|failure| Ending::Reply(failure.into_reply()))
        })
    }
}

/// The address and the form; secrets and credentials are left out.
impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget")
            .field("address", &self.address)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}

/// What keeps the secrets is away: that heals, and the target has nothing to do with it.
fn not_made(unsigned: &Unsigned) -> Reply {
    Reply { seen: Seen::SecretUnavailable, message: unsigned.to_string(), retry_after: None }
}

fn internal(message: String) -> Reply {
    Reply { seen: Seen::Internal, message, retry_after: None }
}

#[cfg(test)]
mod tests;
