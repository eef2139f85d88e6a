//! A way to one address: requests go out and answers come back, over connections that all targets share.
//!
//! Invariants: a request is sent a second time only if a kept connection turned out to be closed before any of
//! it was sent. Whoever drops the future of an exchange ends it, and its connection.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use redrive_core::answer::Reply;
use redrive_core::book::model::Network;
use redrive_core::engine::Call;
use redrive_core::trace::Sampler;
use tokio::time::{Instant, timeout};

use super::address::{Address, InvalidAddress, Origin, Security};
use super::answer::{self, BodyEnd, Wanted};
use super::connect::{self, Sender};
use super::failure::Failure;
use super::limits::{DRAIN_TIME_MAX, Limits, Step, TURN_AROUND_MAX};
use super::pool::Pool;
use super::request::USER_AGENT_VALUE;
use crate::http::answer::reply;

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
        let origin = self.origin();
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
    pub(super) async fn keep(&self, mut sender: Sender) {
        // An answer may come before its request has gone out, and then there may be no end to that.
        if sender.is_ready() || matches!(timeout(TURN_AROUND_MAX, sender.ready()).await, Ok(Ok(()))) {
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
    /// The connection was closed before any of the request was sent: here it is again.
    NotSent(Box<Request<Full<Bytes>>>),
}
