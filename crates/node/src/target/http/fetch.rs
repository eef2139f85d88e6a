//! Fetches a small document over HTTP: one request on its own connection, bounded in time and size.
//!
//! Invariant: only a complete response counts. Redirects are not followed, so nothing is fetched from another
//! address than the book's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;

use super::address::{HttpAddress, HttpOrigin, InvalidTargetAddress};
use super::answer::{self, BodyEnd, BodyLimits};
use super::connect;
use super::failure::CallFailure;
use super::limits::{CallLimits, CallPhase, timed_out};
use super::pool::Pool;
use redrive_core::book::model::Network;
use redrive_core::policy::answer::CallPart;

const USER_AGENT_VALUE: &str = concat!("redrive/", env!("CARGO_PKG_VERSION"));

pub(crate) struct FetchedDocument {
    address: HttpAddress,
    pool: Arc<Pool>,
    bounds: FetchBounds,
}

#[derive(Clone, Copy)]
pub(crate) struct FetchBounds {
    pub(crate) whole: Duration,
    pub(crate) bytes_max: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum HttpFetchError {
    #[error("{message}")]
    NoAnswer { message: String },
    #[error("response has status {0}")]
    Status(u16),
    #[error("response is larger than {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
}

pub(super) struct FetchRequest {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Complete, with any status.
pub(super) struct FetchAnswer {
    pub(super) status: StatusCode,
    pub(super) bytes: Vec<u8>,
}

pub(super) enum Unfetched {
    Call(CallFailure),
    TooLarge,
}

impl From<CallFailure> for Unfetched {
    fn from(failure: CallFailure) -> Self {
        Self::Call(failure)
    }
}

impl FetchedDocument {
    pub(crate) fn new(
        address: &str,
        pool: Arc<Pool>,
        bounds: FetchBounds,
    ) -> Result<Self, InvalidTargetAddress> {
        // Issuers are mostly internal, nothing secret is sent, and the response is parsed as keys or not at
        // all: so any address is allowed.
        Self::within(address, Network::Private, pool, bounds)
    }

    pub(super) fn within(
        address: &str,
        network: Network,
        pool: Arc<Pool>,
        bounds: FetchBounds,
    ) -> Result<Self, InvalidTargetAddress> {
        Ok(Self { address: HttpAddress::parse(address, network)?, pool, bounds })
    }

    pub(super) fn origin(&self) -> &HttpOrigin {
        &self.address.origin
    }

    pub(crate) async fn fetch(&self) -> Result<Vec<u8>, HttpFetchError> {
        let get = FetchRequest { method: Method::GET, headers: HeaderMap::new(), body: Bytes::new() };
        match self.ask(get, self.bounds.whole).await {
            Ok(FetchAnswer { status: StatusCode::OK, bytes }) => Ok(bytes),
            Ok(FetchAnswer { status, .. }) => Err(HttpFetchError::Status(status.as_u16())),
            Err(Unfetched::TooLarge) => Err(HttpFetchError::TooLarge { bytes_max: self.bounds.bytes_max }),
            Err(Unfetched::Call(failure)) => {
                Err(HttpFetchError::NoAnswer { message: failure.into_reply().message })
            }
        }
    }

    /// Within that time, if it is shorter than the document's own.
    pub(super) async fn ask(
        &self,
        request: FetchRequest,
        within: Duration,
    ) -> Result<FetchAnswer, Unfetched> {
        let (whole, bytes_max) = (self.bounds.whole.min(within), self.bounds.bytes_max);
        let limits = CallLimits::within(whole);
        let origin = &self.address.origin;
        let mut sender = connect::connect(origin, &self.pool, &limits).await?;
        let sent = sender.requests.send_request(self.request(request));
        let answer = limits.wait(CallPhase::Head, origin, sent).await?;
        let answer = answer.map_err(|error| CallFailure::http(origin, &error))?;
        let status = answer.status();
        let wanted = BodyLimits { kept_max: bytes_max, read_max: bytes_max, until: limits.whole_at };
        let body = answer::read(answer.into_body(), wanted).await;
        match body.end {
            BodyEnd::Whole => Ok(FetchAnswer { status, bytes: body.bytes }),
            BodyEnd::TooLong => Err(Unfetched::TooLarge),
            BodyEnd::TimedOut => Err(timed_out(CallPhase::Body, CallPart::Whole, whole, origin).into()),
            BodyEnd::Broken(error) => Err(CallFailure::http(origin, &error).into()),
        }
    }

    fn request(&self, request: FetchRequest) -> Request<Full<Bytes>> {
        let FetchRequest { method, mut headers, body } = request;
        headers.insert(HOST, self.address.host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if method != Method::GET {
            headers.insert(CONTENT_LENGTH, body.len().into());
        }
        if let Some(authorization) = &self.address.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(self.address.path.clone());
        *request.headers_mut() = headers;
        request
    }
}
