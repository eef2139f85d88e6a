//! The `http` target: sends CloudEvents and reports the response.
//!
//! Every part of a call has a limit, and so has the whole, so a call ends whether the other side answers,
//! hangs, sends garbage or never stops. Redirects are not followed: an event goes only where the book says.
//! Over TLS a target may speak HTTP/2 (`shared.rs`); else calls are made in HTTP/1.1.
//!
//! Invariants: one call is one request, or two if the first was refused for a token that was then renewed; dropping a call's
//! future ends the call, and its connection unless others share it.

mod address;
mod answer;
mod auth;
mod batch;
mod connect;
mod expected;
mod failure;
pub(crate) mod fetch;
mod guard;
mod identity;
mod limits;
mod line;
mod oauth;
mod other_host;
mod pool;
pub mod preview;
mod request;
mod resolve;
mod secret_path;
mod shared;
mod sign;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::Full;
use redrive_core::book::cel::CelExpression;
use redrive_core::book::connectors;
use redrive_core::book::connectors::http::{HttpMethod, HttpSettings};
use redrive_core::book::model::Network;
use redrive_core::engine::{Ending, TargetCall};
use redrive_core::policy::answer::{CallPart, MalformedEvent, ReplyKind, TargetReply};
use redrive_core::time::Timestamp;
use tokio::time::Instant;

use self::answer::{BodyEnd, BodyLimits, ResponseBody};
use self::failure::CallFailure;
use self::limits::{BATCH_ANSWER_MAX, CallLimits, CallPhase, DRAIN_TIME_MAX, timed_out};
use self::sign::{Signer, Unsigned};
use super::Target;
use crate::connectors::{Driver, Make, settings};
use redrive::clock::wall_clock;
use redrive::http::answer::reply;

pub use self::address::InvalidTargetAddress;
pub use self::auth::Auth;
pub use self::identity::ClientTls;
pub(crate) use self::other_host::{HostLimits, OtherHost};
pub use self::pool::Pool;
pub use self::request::{NoRequest, RequestShape};
pub(super) use self::request::{place_in_trace, structured, trace_state};
pub use self::secret_path::SecretPath;
pub use self::sign::{InvalidSecret, Signing};
pub(crate) use self::sign::{check as check_secret, key as standard_key};
pub(crate) use self::wire::{Wire, WireOptions};
pub use redrive_core::book::connectors::http::HttpFormat;

pub struct HttpTarget {
    wire: Wire,
    shape: RequestShape,
    auth: Option<Auth>,
    secret_path: Option<SecretPath>,
    expect: Option<CelExpression>,
    /// On every call, beside those of the shape.
    headers: HeaderMap,
    signing: Option<Signing>,
    /// The machine's clock, like the receiver's; the node's own is not affected when that is set.
    now: fn() -> Timestamp,
}

pub struct HttpOptions {
    pub shape: RequestShape,
    pub auth: Option<Auth>,
    pub secret_path: Option<SecretPath>,
    pub expect: Option<CelExpression>,
    pub signing: Option<Signing>,
    /// Concurrent calls of the dependency, and so connections kept.
    pub permits: u32,
    /// What the host name may resolve to.
    pub network: Network,
    /// Such as `service billing, line 6`, for errors in the book.
    pub place: String,
}

pub(crate) const DRIVER: Driver = Driver {
    connector: &connectors::http::TARGET,
    make: Make::Target(|endpoint, site| {
        let HttpSettings { address, form, secret, method, request, secret_path, expect, auth, tls, network } =
            settings(endpoint);
        let options = HttpOptions {
            shape: RequestShape::new(*form, *method, request),
            auth: site.auth(auth.as_ref(), *network)?,
            expect: expect.clone(),
            secret_path: secret_path.as_ref().map(|name| SecretPath::new(site.secrets, name)),
            signing: site.signing(secret.as_ref())?,
            permits: site.permits,
            network: *network,
            place: site.place.clone(),
        };
        let target = HttpTarget::new(address, options, Arc::clone(site.pool))?;
        Ok(Arc::new(target.with_tls(site.tls(tls.as_ref())?)))
    }),
};

impl HttpTarget {
    /// Shares its connections with all targets of the pool.
    pub fn new(address: &str, options: HttpOptions, pool: Arc<Pool>) -> Result<Self, InvalidTargetAddress> {
        let HttpOptions { shape, auth, secret_path, expect, signing, permits, network, place } = options;
        let wire = Wire::new(address, WireOptions { permits, network, place }, pool)?;
        let headers = HeaderMap::new();
        Ok(Self { wire, shape, auth, secret_path, expect, headers, signing, now: wall_clock })
    }

    #[must_use]
    pub fn with_headers(self, headers: HeaderMap) -> Self {
        Self { headers, ..self }
    }

    #[must_use]
    pub fn with_tls(self, tls: Option<ClientTls>) -> Self {
        Self { wire: self.wire.with_tls(tls), ..self }
    }

    #[cfg(test)]
    fn at(self, now: fn() -> Timestamp) -> Self {
        Self { now, ..self }
    }

    async fn exchange(&self, call: &TargetCall) -> Result<Ending, CallFailure> {
        let limits = CallLimits::of(call);
        let signer = match self.signer(&limits).await {
            Ok(signer) => signer,
            Err(unsigned) => return Ok(Ending::Reply(not_made(&unsigned))),
        };
        let (sampler, now) = (self.wire.sampler(), (self.now)());
        let (address, deliveries) = (&self.wire.address, &call.deliveries);
        let made = request::make(address, &self.shape, signer.as_deref(), deliveries, sampler, now);
        let mut request = match made {
            Ok(request) => request.map(Full::new),
            Err(none) => return Ok(Ending::Reply(no_request(&none))),
        };
        request.headers_mut().extend(self.headers.clone());
        let Some(secret_path) = &self.secret_path else {
            return self.authorized(request, call, &limits).await;
        };
        let secret = match secret_path.append(&mut request, limits.whole).await {
            Ok(secret) => secret,
            Err(reply) => return Ok(Ending::Reply(reply)),
        };
        Ok(secret_path.hidden_in(self.authorized(request, call, &limits).await?, &secret))
    }

    async fn authorized(
        &self,
        mut request: Request<Full<Bytes>>,
        call: &TargetCall,
        limits: &CallLimits,
    ) -> Result<Ending, CallFailure> {
        let Some(auth) = &self.auth else { return self.send(request, call, limits).await };
        let mut credential = match auth.credential(limits.whole_at).await {
            Ok(credential) => credential,
            Err(reply) => return Ok(Ending::Reply(reply)),
        };
        request.headers_mut().insert(&credential.name, credential.value.clone());
        let again = auth.can_renew().then(|| request.clone());
        let mut ending = self.send(request, call, limits).await?;
        if let (Some(mut again), Ending::Reply(reply)) = (again, &ending)
            && let Some(newer) = auth.renewed(&credential, reply, limits.whole_at).await
        {
            again.headers_mut().insert(&newer.name, newer.value.clone());
            credential = newer;
            ending = self.send(again, call, limits).await?;
        }
        Ok(auth.hidden_in(ending, &credential))
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        call: &TargetCall,
        limits: &CallLimits,
    ) -> Result<Ending, CallFailure> {
        let (response, sender) = self.wire.send(request, limits).await?;
        let (head, body) = response.into_parts();
        let answers_batch = self.shape.form == HttpFormat::Batch && head.status.is_success();
        let wanted = if answers_batch {
            BodyLimits { kept_max: BATCH_ANSWER_MAX, read_max: BATCH_ANSWER_MAX, until: limits.whole_at }
        } else if head.status.is_success() && call.rule.classify.is_empty() {
            // No rule reads the body; it is drained only to keep the connection.
            BodyLimits::usual(limits.whole_at.min(Instant::now() + DRAIN_TIME_MAX))
        } else {
            BodyLimits::usual(limits.whole_at)
        };
        if let Some(expect) = self.expect.as_ref().filter(|_| head.status.is_success()) {
            let (reply, is_whole) = expected::examined(expect, &head, body, limits.whole_at).await;
            if is_whole {
                self.wire.keep(sender).await;
            }
            return Ok(Ending::Reply(reply));
        }
        let body = answer::read(body, wanted).await;
        if matches!(body.end, BodyEnd::Whole) {
            self.wire.keep(sender).await;
        }
        if !answers_batch {
            return Ok(Ending::Reply(reply(head.status, &head.headers, &body.bytes)));
        }
        let failed = self.failed_in_batch(call, &body, limits)?;
        if failed.is_empty() {
            return Ok(Ending::Reply(reply(head.status, &head.headers, &body.bytes)));
        }
        let reply = batch::item_failure(failed.len(), call.deliveries.len());
        Ok(Ending::Partly { reply, failed })
    }

    async fn signer(&self, limits: &CallLimits) -> Result<Option<Arc<Signer>>, Unsigned> {
        let Some(signing) = &self.signing else { return Ok(None) };
        signing.signer(limits.whole).await.map(Some)
    }

    fn failed_in_batch(
        &self,
        call: &TargetCall,
        body: &ResponseBody,
        limits: &CallLimits,
    ) -> Result<Vec<usize>, CallFailure> {
        let origin = self.wire.origin();
        let refuse = |why: &str| CallFailure::protocol(format!("response of {origin} is invalid: {why}"));
        match &body.end {
            BodyEnd::Whole => batch::failed(&body.bytes, &call.deliveries).map_err(|why| refuse(&why)),
            BodyEnd::TooLong => Err(refuse("it is too long")),
            BodyEnd::TimedOut => Err(timed_out(CallPhase::Body, CallPart::Whole, limits.whole, origin)),
            BodyEnd::Broken(error) => Err(CallFailure::http(origin, error)),
        }
    }
}

impl Target for HttpTarget {
    fn call(&self, call: Arc<TargetCall>) -> Pin<Box<dyn Future<Output = Ending> + Send + '_>> {
        Box::pin(async move {
            let ending = self.exchange(&call).await;
            ending.unwrap_or_else(|failure| Ending::Reply(failure.into_reply()))
        })
    }
}

/// Headers that the book states for every call.
pub(crate) fn fixed_headers(headers: &BTreeMap<String, String>) -> HeaderMap {
    let header = |(name, value): (&String, &String)| {
        let name = HeaderName::try_from(name).expect("the book has valid header names");
        (name, HeaderValue::try_from(value).expect("the book has valid header values"))
    };
    headers.iter().map(header).collect()
}

pub(crate) const fn method_of(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
        HttpMethod::Get => Method::GET,
    }
}

/// Without secrets and credentials.
impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget")
            .field("address", &self.wire)
            .field("form", &self.shape.form)
            .finish_non_exhaustive()
    }
}

/// The secret provider is unavailable, which is transient and not the target's fault.
fn not_made(unsigned: &Unsigned) -> TargetReply {
    TargetReply::new(ReplyKind::SecretUnavailable, unsigned.to_string())
}

fn no_request(none: &NoRequest) -> TargetReply {
    let seen = match none {
        NoRequest::Form { .. } | NoRequest::Filled(_) => ReplyKind::Internal,
        // The same event would never fit.
        NoRequest::Event(_) => ReplyKind::Malformed(MalformedEvent::ViolatesSchema),
    };
    TargetReply::new(seen, none.to_string())
}

#[cfg(test)]
mod tests;
