//! Fetches a small document over HTTP: one request on its own connection, bounded in time and size.
//!
//! Invariant: only a complete response with status 200 counts. Redirects are not followed, so nothing is
//! fetched from another address than the book's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;

use super::address::{HttpAddress, InvalidTargetAddress};
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

impl From<CallFailure> for HttpFetchError {
    fn from(failure: CallFailure) -> Self {
        Self::NoAnswer { message: failure.into_reply().message }
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
        Ok(Self { address: HttpAddress::parse(address, Network::Private)?, pool, bounds })
    }

    pub(crate) async fn fetch(&self) -> Result<Vec<u8>, HttpFetchError> {
        let FetchBounds { whole, bytes_max } = self.bounds;
        let limits = CallLimits::within(whole);
        let origin = &self.address.origin;
        let mut sender = connect::connect(origin, &self.pool, &limits).await?;
        let answer =
            limits.wait(CallPhase::Head, origin, sender.requests.send_request(self.request())).await?;
        let answer = answer.map_err(|error| CallFailure::http(origin, &error))?;
        if answer.status() != StatusCode::OK {
            return Err(HttpFetchError::Status(answer.status().as_u16()));
        }
        let wanted = BodyLimits { kept_max: bytes_max, read_max: bytes_max, until: limits.whole_at };
        let body = answer::read(answer.into_body(), wanted).await;
        match body.end {
            BodyEnd::Whole => Ok(body.bytes),
            BodyEnd::TooLong => Err(HttpFetchError::TooLarge { bytes_max }),
            BodyEnd::TimedOut => Err(timed_out(CallPhase::Body, CallPart::Whole, whole, origin).into()),
            BodyEnd::Broken(error) => Err(CallFailure::http(origin, &error).into()),
        }
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, self.address.host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if let Some(authorization) = &self.address.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = Method::GET;
        *request.uri_mut() = Uri::from(self.address.path.clone());
        *request.headers_mut() = headers;
        request
    }
}
