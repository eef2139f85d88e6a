//! A way to one address: requests go out and answers come back, over connections that all targets share.
//!
//! Invariants: a request is sent at most twice, and a second time only if a kept connection was closed before
//! anything of an answer came. Where the rule retries no lost connection, a request that may have been written
//! whole is sent once. Whoever drops the future of an exchange ends it, and its connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use redrive_core::book::model::Network;
use redrive_core::engine::Call;
use redrive_core::policy::answer::Reply;
use redrive_core::trace::Sampler;
use tokio::time::{Instant, timeout};

use super::address::{Address, InvalidAddress, Origin, Security};
use super::answer::{self, BodyEnd, Wanted};
use super::connect::{self, Sender};
use super::failure::Failure;
use super::limits::{DRAIN_TIME_MAX, Limits, Reuse, Step, TURN_AROUND_MAX};
use super::pool::Pool;
use super::request::USER_AGENT_VALUE;
use redrive::http::answer::reply;

/// A way to one address.
pub(crate) struct Wire {
    pub(super) address: Address,
    idle_max: usize,
    place: String,
    pool: Arc<Pool>,
}

/// How one comes by a [`Wire`].
pub(crate) struct WireOptions {
    /// How many calls are made at once: so many connections are kept.
    pub(crate) permits: u32,
    /// What the name in the address may resolve to.
    pub(crate) network: Network,
    /// Whose it is and where it stands in the book: what is for the book to mend says so.
    pub(crate) place: String,
}

impl Wire {
    pub(crate) fn new(address: &str, options: WireOptions, pool: Arc<Pool>) -> Result<Self, InvalidAddress> {
        let WireOptions { permits, network, place } = options;
        let address = Address::parse(address, network)?;
        if address.origin.security == Security::Tls {
            // Reading the system's certificates is not for the first call to wait for.
            pool.tls();
        }
        let idle_max = usize::try_from(permits).unwrap_or(usize::MAX);
        Ok(Self { address, idle_max, place, pool })
    }

    /// Which traces are told of; none if nobody is told of any.
    pub(super) fn sampler(&self) -> Option<Sampler> {
        self.pool.sampler()
    }

    /// Posts a body with those headers within the limits of a call, and says what came back.
    pub(crate) async fn post(&self, call: &Call, headers: HeaderMap, body: Bytes) -> Reply {
        let limits = Limits::of(call);
        match self.exchange(self.request(headers, body), &limits).await {
            Ok(reply) => reply,
            Err(failure) => failure.into_reply(),
        }
    }

    /// The same within a time of its own.
    pub(crate) async fn post_within(&self, whole: Duration, headers: HeaderMap, body: Bytes) -> Reply {
        let exchanged = self.exchange(self.request(headers, body), &Limits::within(whole)).await;
        exchanged.unwrap_or_else(Failure::into_reply)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, limits: &Limits) -> Result<Reply, Failure> {
        let (response, sender) = self.send(request, limits).await?;
        let (head, body) = response.into_parts();
        let drained_by = limits.whole_at.min(Instant::now() + DRAIN_TIME_MAX);
        let until = if head.status.is_success() { drained_by } else { limits.whole_at };
        let body = answer::read(body, Wanted::usual(until)).await;
        if matches!(body.end, BodyEnd::Whole) {
            self.keep(sender).await;
        }
        Ok(reply(head.status, &head.headers, &body.bytes))
    }

    fn request(&self, mut headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
        headers.insert(HOST, self.address.host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE));
        if let Some(authorization) = &self.address.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        headers.insert(CONTENT_LENGTH, body.len().into());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from(self.address.path.clone());
        *request.headers_mut() = headers;
        request
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.address.origin
    }

    /// The head of the answer, and the connection that it came by.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        limits: &Limits,
    ) -> Result<(Response<Incoming>, Sender), Failure> {
        let origin = self.origin();
        let request = match self.pool.take(origin, limits.reuse) {
            None => request,
            Some(kept) => {
                let copy = request.clone();
                match self.send_by(kept, request, limits).await {
                    Ok(answered) => return Ok(answered),
                    Err(Unanswered::NotSent(request)) => *request,
                    Err(Unanswered::Lost { failure, sent }) => match (limits.reuse, sent) {
                        (Reuse::Any, _) | (Reuse::JustUsed, Sent::InPart) => copy,
                        (Reuse::JustUsed, Sent::PerhapsWhole) | (Reuse::None, _) => return Err(failure),
                    },
                    Err(Unanswered::Failed(failure)) => return Err(failure),
                }
            }
        };
        let fresh = connect::connect(origin, &self.pool, limits).await;
        let fresh = fresh.map_err(|failure| failure.at(&self.place))?;
        self.send_by(fresh, request, limits).await.map_err(|unanswered| match unanswered {
            Unanswered::Failed(failure) | Unanswered::Lost { failure, .. } => failure,
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
        let origin = self.origin();
        let (start, body_bytes) = (sender.line.passed(), request.body().size_hint().lower());
        sender.called_at = Instant::now();
        match limits.wait(Step::Head, origin, sender.requests.try_send_request(request)).await {
            Ok(Ok(response)) => Ok((response, sender)),
            Ok(Err(mut error)) => Err(if let Some(request) = error.take_message() {
                Unanswered::NotSent(Box::new(request))
            } else {
                let failure = Failure::http(origin, error.error());
                let passed = sender.line.since(start);
                if failure.lost_connection() && passed.read == 0 {
                    Unanswered::Lost { failure, sent: Sent::of(passed.written, body_bytes) }
                } else {
                    Unanswered::Failed(failure)
                }
            }),
            Err(failure) => Err(Unanswered::Failed(failure)),
        }
    }

    /// Keeps a connection whose answer has ended, if it can carry another call soon.
    pub(super) async fn keep(&self, mut sender: Sender) {
        // An answer may come before its request has gone out, and then there may be no end to that.
        let requests = &mut sender.requests;
        if requests.is_ready() || matches!(timeout(TURN_AROUND_MAX, requests.ready()).await, Ok(Ok(()))) {
            self.pool.put(&self.address.origin, sender, self.idle_max);
        }
    }
}

/// The address; credentials are left out.
impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Why a connection brought no answer.
enum Unanswered {
    /// Something went wrong, and the target may have the request.
    Failed(Failure),
    /// The connection was closed, and nothing of an answer had come.
    Lost { failure: Failure, sent: Sent },
    /// The connection was closed before any of the request was sent: here it is again.
    NotSent(Box<Request<Full<Bytes>>>),
}

/// How much of a request was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// Not all of it, so nothing can have acted on it.
    InPart,
    /// All of it, as far as anybody can tell.
    PerhapsWhole,
}

impl Sent {
    /// A request is longer than its body: there is a head too.
    const fn of(written: u64, body_bytes: u64) -> Self {
        if written <= body_bytes { Self::InPart } else { Self::PerhapsWhole }
    }
}
