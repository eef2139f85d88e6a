//! Asks for the packet of a key: over relays, or in the distributed table itself.
//!
//! Invariant: one lookup is one try at one place and reports what it saw. Whether there is another, and when, is
//! not decided here; the next try goes to the next place.

use std::time::Duration;

use pkarr::dht::{DhtClient, ResolveError};
use pkarr::errors::SignedPacketVerifyError;
use pkarr::{PKARR_INVALID_SIGNED_PACKET_SEQ, PublicKey, SignedPacket};
use redrive::clock::wall_clock;
use redrive::core::policy::answer::{AnswerKind, TargetAnswer};
use redrive::core::policy::retry_after;
use redrive::{BoxFuture, Classify};
use reqwest::{Response, StatusCode, Url, header};

use crate::code::ErrorCode;

/// A lookup under way.
pub type Looking<'a> = BoxFuture<'a, Result<SignedPacket, LookupError>>;

/// Where packets are looked up.
pub trait Lookup: Send + Sync {
    /// Asks once; `attempt` counts from 1.
    fn lookup<'a>(&'a self, key: &'a PublicKey, attempt: u32) -> Looking<'a>;
}

/// One try that brought no packet.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct LookupError {
    /// What it was.
    pub code: ErrorCode,
    /// What was seen.
    pub message: String,
    /// How long the relay asks us to wait.
    pub retry_after: Option<Duration>,
}

impl LookupError {
    /// That code, and what was seen.
    pub fn new(code: ErrorCode, seen: impl Into<String>) -> Self {
        Self { code, message: seen.into(), retry_after: None }
    }
}

/// The code is reported as it is: the rule book says what it means.
impl Classify for LookupError {
    fn answer(&self) -> TargetAnswer<'_> {
        let what = AnswerKind::Reported { code: self.code.as_str() };
        TargetAnswer { what, message: &self.message, retry_after: self.retry_after }
    }
}

/// A place to ask.
#[derive(Clone, Debug)]
pub enum Place {
    /// A relay, by its address.
    Relay(Url),
    /// The distributed table.
    Dht(DhtClient),
}

/// The relays and the table, asked in turn.
#[derive(Debug)]
pub struct Network {
    places: Vec<Place>,
    client: reqwest::Client,
}

impl Network {
    /// These places: the first try goes to the first, the next to the second, and round again.
    #[must_use]
    pub fn new(places: Vec<Place>) -> Self {
        assert!(!places.is_empty(), "there is somebody to ask");
        Self { places, client: reqwest::Client::new() }
    }
}

impl Lookup for Network {
    fn lookup<'a>(&'a self, key: &'a PublicKey, attempt: u32) -> Looking<'a> {
        let turn = attempt.saturating_sub(1) as usize % self.places.len();
        match &self.places[turn] {
            Place::Relay(relay) => Box::pin(ask_relay(&self.client, relay, key)),
            Place::Dht(dht) => Box::pin(ask_dht(dht, key)),
        }
    }
}

async fn ask_relay(
    client: &reqwest::Client,
    relay: &Url,
    key: &PublicKey,
) -> Result<SignedPacket, LookupError> {
    let url = relay
        .join(&key.to_z32())
        .map_err(|error| LookupError::new(ErrorCode::UnknownError, error.to_string()))?;
    let mut response = client.get(url).send().await.map_err(unreachable)?;
    if response.status() != StatusCode::OK {
        return Err(refused(&response));
    }
    let mut payload = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        payload.extend_from_slice(&chunk);
        if payload.len() as u64 > SignedPacket::MAX_BYTES {
            return Err(LookupError::new(ErrorCode::MalformedResponse, "the packet is too large"));
        }
    }
    SignedPacket::from_relay_payload(key, &payload.into()).map_err(|error| {
        let code = match error {
            SignedPacketVerifyError::SignatureError(_) => ErrorCode::SignatureInvalid,
            _ => ErrorCode::MalformedResponse,
        };
        LookupError::new(code, error.to_string())
    })
}

/// No answer, or only a part of it.
fn unreachable(error: reqwest::Error) -> LookupError {
    let code = match () {
        () if error.is_timeout() => ErrorCode::NetworkTimeout,
        () if error.is_connect() => ErrorCode::DhtUnavailable,
        () if error.is_request() || error.is_body() || error.is_decode() => ErrorCode::TemporaryFailure,
        () => ErrorCode::UnknownError,
    };
    // The address has the key in it, and keys do not belong into logs.
    LookupError::new(code, error.without_url().to_string())
}

/// An answer that brings no packet.
fn refused(response: &Response) -> LookupError {
    let header = |name: &str| response.headers().get(name)?.to_str().ok();
    let code = match response.status().as_u16() {
        404 if header(PKARR_INVALID_SIGNED_PACKET_SEQ).is_some() => ErrorCode::MalformedResponse,
        404 => ErrorCode::RecordNotFound,
        408 | 504 => ErrorCode::RelayTimeout,
        429 => ErrorCode::RateLimited,
        502 | 503 => ErrorCode::DhtUnavailable,
        500..=599 => ErrorCode::TemporaryFailure,
        _ => ErrorCode::UnknownError,
    };
    let retry_after =
        header(header::RETRY_AFTER.as_str()).and_then(|value| retry_after::parse(value, wall_clock()));
    LookupError { retry_after, ..LookupError::new(code, format!("the relay answered {}", response.status())) }
}

async fn ask_dht(dht: &DhtClient, key: &PublicKey) -> Result<SignedPacket, LookupError> {
    let outcome = dht.resolve(key, None).await.complete().await;
    outcome.most_recent.map_err(|error| {
        let code = match error {
            ResolveError::NotFound => ErrorCode::RecordNotFound,
            ResolveError::InvalidSignedPacket { .. } => ErrorCode::MalformedResponse,
            ResolveError::NoNodesQueried
            | ResolveError::NoNodesResponded
            | ResolveError::NoUsableResponses => ErrorCode::DhtUnavailable,
        };
        LookupError::new(code, error.to_string())
    })
}
