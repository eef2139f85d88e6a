//! Sends requests to one address over the shared pool.
//!
//! Invariants: a request is sent at most twice, and a second time only if an idle connection closed before
//! any response, or HTTP/2 says that nothing was done with it. Where the rule retries no lost connection, a request that may have been written completely
//! is sent once. Dropping the future ends the exchange, and its connection unless others share it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use redrive_core::book::model::Network;
use redrive_core::engine::TargetCall;
use redrive_core::policy::answer::TargetReply;
use redrive_core::trace::Sampler;
use tokio::time::{Instant, timeout};

use super::address::{ConnectionSecurity, HttpAddress, HttpOrigin, InvalidTargetAddress};
use super::answer::{self, BodyEnd, BodyLimits};
use super::connect::{Connection, ConnectionSender};
use super::failure::{CallFailure, StreamEnd};
use super::identity::{ClientTls, Route};
use super::limits::{BATCH_ANSWER_MAX, CallLimits, CallPhase, DRAIN_TIME_MAX, Reuse, TURN_AROUND_MAX};
use super::pool::Pool;
use super::request::USER_AGENT_VALUE;
use super::shared::{self, SharedConnection};
use redrive::http::answer::reply;

pub(crate) struct Wire {
    pub(super) address: HttpAddress,
    route: Arc<Route>,
    tls: Option<ClientTls>,
    idle_max: usize,
    place: String,
    pool: Arc<Pool>,
}

pub(crate) struct WireOptions {
    pub(crate) permits: u32,
    pub(crate) network: Network,
    pub(crate) place: String,
}

impl Wire {
    pub(crate) fn new(
        address: &str,
        options: WireOptions,
        pool: Arc<Pool>,
    ) -> Result<Self, InvalidTargetAddress> {
        let WireOptions { permits, network, place } = options;
        let address = HttpAddress::parse(address, network)?;
        let config = match address.origin.security {
            ConnectionSecurity::Plain => None,
            // The first call need not wait for reading the system's certificates.
            ConnectionSecurity::Tls => Some(Arc::clone(&pool.tls().http2)),
        };
        let route = Arc::new(Route { origin: Arc::clone(&address.origin), config });
        let idle_max = usize::try_from(permits).unwrap_or(usize::MAX);
        Ok(Self { address, route, tls: None, idle_max, place, pool })
    }

    pub(super) fn with_tls(self, tls: Option<ClientTls>) -> Self {
        Self { tls, ..self }
    }

    /// None if traces are not exported.
    pub(super) fn sampler(&self) -> Option<Sampler> {
        self.pool.sampler()
    }

    pub(crate) async fn post(&self, call: &TargetCall, headers: HeaderMap, body: Bytes) -> TargetReply {
        let exchanged = self.exchange(self.request(headers, body), &CallLimits::of(call)).await;
        exchanged.unwrap_or_else(CallFailure::into_reply)
    }

    pub(crate) async fn send_within(
        &self,
        whole: Duration,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> TargetReply {
        let mut request = self.request(headers, body);
        *request.method_mut() = method;
        let exchanged = self.exchange(request, &CallLimits::within(whole)).await;
        exchanged.unwrap_or_else(CallFailure::into_reply)
    }

    /// The body of a complete response with status 200 to a GET of the address with something behind its path.
    pub(crate) async fn get(&self, behind: &str, headers: HeaderMap, whole: Duration) -> Option<Vec<u8>> {
        let limits = CallLimits::within(whole);
        let mut request = self.request(headers, Bytes::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = format!("{}{behind}", self.address.path.path()).parse().ok()?;
        let (response, sender) = self.send(request, &limits).await.ok()?;
        let (head, body) = response.into_parts();
        let wanted =
            BodyLimits { kept_max: BATCH_ANSWER_MAX, read_max: BATCH_ANSWER_MAX, until: limits.whole_at };
        let body = answer::read(body, wanted).await;
        if !matches!(body.end, BodyEnd::Whole) {
            return None;
        }
        self.keep(sender).await;
        (head.status == StatusCode::OK).then_some(body.bytes)
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        limits: &CallLimits,
    ) -> Result<TargetReply, CallFailure> {
        let (response, sender) = self.send(request, limits).await?;
        let (head, body) = response.into_parts();
        let drained_by = limits.whole_at.min(Instant::now() + DRAIN_TIME_MAX);
        let until = if head.status.is_success() { drained_by } else { limits.whole_at };
        let body = answer::read(body, BodyLimits::usual(until)).await;
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

    pub(super) fn origin(&self) -> &HttpOrigin {
        &self.address.origin
    }

    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        limits: &CallLimits,
    ) -> Result<(Response<Incoming>, Connection), CallFailure> {
        let route = match &self.tls {
            None => Arc::clone(&self.route),
            Some(tls) => {
                let left = limits.whole_at.saturating_duration_since(Instant::now());
                Box::pin(tls.route(self.origin(), self.pool.roots(), left)).await?
            }
        };
        let origin = &route.origin;
        let shared = route.config.as_ref().and_then(|_| self.pool.shared().take(origin, limits.reuse));
        let kept = match shared {
            Some(shared) => Some(Connection::Shared(shared)),
            None => self.pool.take(origin, limits.reuse).map(Connection::Alone),
        };
        let request = match kept {
            None => request,
            Some(kept) => {
                let copy = request.clone();
                match self.send_by(kept, request, limits).await {
                    Ok(answered) => return Ok(answered),
                    Err(Unanswered::NotSent { request, .. }) => *request,
                    Err(Unanswered::Unprocessed(_)) => copy,
                    Err(Unanswered::Lost { failure, sent }) => match (limits.reuse, sent) {
                        (Reuse::Any, _) | (Reuse::JustUsed, SentPart::InPart) => copy,
                        (Reuse::JustUsed, SentPart::PerhapsWhole) | (Reuse::None, _) => return Err(failure),
                    },
                    Err(Unanswered::Failed(failure)) => return Err(failure),
                }
            }
        };
        // Rare, and large: most calls find a connection.
        let fresh = Box::pin(shared::fresh(&self.pool, &route, limits)).await;
        let fresh = fresh.map_err(|failure| failure.at(&self.place))?;
        self.send_by(fresh, request, limits).await.map_err(|unanswered| match unanswered {
            Unanswered::Failed(failure)
            | Unanswered::Unprocessed(failure)
            | Unanswered::NotSent { failure, .. }
            | Unanswered::Lost { failure, .. } => failure,
        })
    }

    /// The header limit starts when the connection has the request, so it includes sending it.
    async fn send_by(
        &self,
        connection: Connection,
        request: Request<Full<Bytes>>,
        limits: &CallLimits,
    ) -> Result<(Response<Incoming>, Connection), Unanswered> {
        match connection {
            Connection::Shared(shared) => self.send_shared(shared, request, limits).await,
            Connection::Alone(sender) => self.send_alone(sender, request, limits).await,
        }
    }

    async fn send_shared(
        &self,
        shared: Arc<SharedConnection>,
        request: Request<Full<Bytes>>,
        limits: &CallLimits,
    ) -> Result<(Response<Incoming>, Connection), Unanswered> {
        let origin = shared.origin();
        let sent = shared.send(request, &self.address.host);
        let mut error = match limits.wait(CallPhase::Head, origin, sent).await {
            Ok(Ok(response)) => {
                shared.answered();
                return Ok((response, Connection::Shared(shared)));
            }
            Ok(Err(error)) => error,
            Err(failure) => {
                // Perhaps the connection is dead, which further calls should not have to find out.
                self.pool.shared().forget(&shared);
                return Err(Unanswered::Failed(failure));
            }
        };
        let end = match error.take_message() {
            // It was not sent.
            Some(_) => StreamEnd::Unprocessed,
            None => StreamEnd::of(error.error()),
        };
        if end != StreamEnd::Reset {
            self.pool.shared().forget(&shared);
        }
        let failure = match shared.line.tls_error() {
            Some(error) => CallFailure::broken_tls(origin, error),
            None => CallFailure::http(origin, error.error()),
        };
        Err(match end {
            StreamEnd::Unprocessed => Unanswered::Unprocessed(failure),
            StreamEnd::Lost if failure.lost_connection() => {
                Unanswered::Lost { failure, sent: SentPart::PerhapsWhole }
            }
            StreamEnd::Reset | StreamEnd::Lost => Unanswered::Failed(failure),
        })
    }

    async fn send_alone(
        &self,
        mut sender: ConnectionSender,
        request: Request<Full<Bytes>>,
        limits: &CallLimits,
    ) -> Result<(Response<Incoming>, Connection), Unanswered> {
        let origin = &Arc::clone(&sender.origin);
        let (start, body_bytes) = (sender.line.passed(), request.body().size_hint().lower());
        sender.called_at = Instant::now();
        match limits.wait(CallPhase::Head, origin, sender.requests.try_send_request(request)).await {
            Ok(Ok(response)) => Ok((response, Connection::Alone(sender))),
            Ok(Err(mut error)) => Err(if let Some(request) = error.take_message() {
                // A refused certificate may be reported before the request is sent.
                let refused = sender.line.tls_error().map(|error| CallFailure::broken_tls(origin, error));
                let failure = refused.unwrap_or_else(|| CallFailure::closed_early(origin));
                Unanswered::NotSent { request: Box::new(request), failure }
            } else {
                let failure = match sender.line.tls_error() {
                    Some(error) => CallFailure::broken_tls(origin, error),
                    None => CallFailure::http(origin, error.error()),
                };
                let passed = sender.line.since(start);
                if failure.lost_connection() && passed.read == 0 {
                    Unanswered::Lost { failure, sent: SentPart::of(passed.written, body_bytes) }
                } else {
                    Unanswered::Failed(failure)
                }
            }),
            Err(failure) => Err(Unanswered::Failed(failure)),
        }
    }

    /// Returns a connection to the pool if it can be reused soon.
    pub(super) async fn keep(&self, connection: Connection) {
        let mut sender = match connection {
            Connection::Alone(sender) => sender,
            Connection::Shared(shared) => return shared.answered(),
        };
        // A response may precede the end of its request, which may never come.
        let requests = &mut sender.requests;
        if requests.is_ready() || matches!(timeout(TURN_AROUND_MAX, requests.ready()).await, Ok(Ok(()))) {
            self.pool.put(&Arc::clone(&sender.origin), sender, self.idle_max);
        }
    }
}

/// Without credentials.
impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

enum Unanswered {
    /// The target may have received the request.
    Failed(CallFailure),
    /// Over HTTP/2: the target has not acted on it.
    Unprocessed(CallFailure),
    Lost {
        failure: CallFailure,
        sent: SentPart,
    },
    /// Closed before any of the request was sent.
    NotSent {
        request: Box<Request<Full<Bytes>>>,
        failure: CallFailure,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentPart {
    /// Nothing can have acted on it.
    InPart,
    /// As far as can be known.
    PerhapsWhole,
}

impl SentPart {
    /// A request is longer than its body.
    const fn of(written: u64, body_bytes: u64) -> Self {
        if written <= body_bytes { Self::InPart } else { Self::PerhapsWhole }
    }
}
