//! Reasons why no response came.
//!
//! Invariant: a message contains host and port, and never a credential.

use std::error::Error;
use std::io::{self, ErrorKind};

use redrive_core::policy::answer::{BrokerError, CallPart, ReplyKind, TargetReply, TransportError};

use super::address::HttpOrigin;
use super::guard::RefusedAddress;
use crate::tls;
use redrive::http::causes;
use redrive::http::transport;

#[derive(Debug)]
pub(super) struct CallFailure {
    seen: ReplyKind,
    message: String,
}

impl CallFailure {
    pub(super) fn timeout(part: CallPart, message: String) -> Self {
        Self::transport(TransportError::Timeout(part), message)
    }

    pub(super) fn dns(origin: &HttpOrigin, why: &str) -> Self {
        let message = format!("DNS lookup of {} failed: {why}", origin.host);
        Self::transport(TransportError::Dns, message)
    }

    /// Says what to change; [`CallFailure::at`] says where.
    pub(super) fn no_leave(origin: &HttpOrigin, refused: RefusedAddress) -> Self {
        let RefusedAddress { address, what } = refused;
        let message = format!(
            "{origin} resolves to {address}, {what}: write `network: private` beside its address to allow it"
        );
        Self::transport(TransportError::AddressRefused, message)
    }

    /// Adds the place in the rule book, if that is where the fix belongs.
    pub(super) fn at(mut self, place: &str) -> Self {
        if self.is_of_the_book() {
            self.message = format!("{place}: {}", self.message);
        }
        self
    }

    pub(super) fn tls(origin: &HttpOrigin, error: &io::Error) -> Self {
        let why = match rustls_error(error) {
            Some(error) => return Self::broken_tls(origin, error),
            None if error.kind() == ErrorKind::UnexpectedEof => {
                "connection closed during the handshake".to_owned()
            }
            None => error.to_string(),
        };
        Self::transport(TransportError::Tls, format!("TLS with {origin} failed: {why}"))
    }

    pub(super) fn broken_tls(origin: &HttpOrigin, error: &rustls::Error) -> Self {
        if tls::is_refused_client(error) {
            let is_missing =
                matches!(error, rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired));
            let why = if is_missing {
                "it requires a client certificate"
            } else {
                "it refused our client certificate"
            };
            let message = format!("TLS with {origin} failed: {why}: {}", tls::why(error));
            return Self { seen: ReplyKind::Broker(BrokerError::Unauthorized), message };
        }
        Self::transport(TransportError::Tls, format!("TLS with {origin} failed: {}", tls::why(error)))
    }

    pub(super) fn closed_early(origin: &HttpOrigin) -> Self {
        let message = format!("{origin} closed the connection before the response was complete");
        Self::transport(TransportError::ClosedEarly, message)
    }

    pub(super) fn protocol(message: String) -> Self {
        Self::transport(TransportError::Protocol, message)
    }

    const fn transport(error: TransportError, message: String) -> Self {
        Self { seen: ReplyKind::Transport(error), message }
    }

    pub(super) fn connecting(origin: &HttpOrigin, error: &io::Error) -> Self {
        match error.kind() {
            // The system's timeout was shorter than ours.
            ErrorKind::TimedOut => Self::timeout(CallPart::Connect, format!("no connection to {origin}")),
            _ => Self::io(origin, error),
        }
    }

    pub(super) fn io(origin: &HttpOrigin, error: &io::Error) -> Self {
        if rustls_error(error).is_some() {
            return Self::tls(origin, error);
        }
        let failure = Self::transport;
        match transport(error) {
            Some(TransportError::Refused) => {
                failure(TransportError::Refused, format!("{origin} refused the connection"))
            }
            // The system's own timeout; our limits are reported elsewhere.
            Some(TransportError::Reset | TransportError::Timeout(_)) => {
                failure(TransportError::Reset, format!("{origin} reset the connection"))
            }
            Some(TransportError::ClosedEarly) => Self::closed_early(origin),
            Some(TransportError::Protocol) => Self::not_http(origin, error),
            None if error.kind() == ErrorKind::InvalidInput => Self::not_http(origin, error),
            // No route, no address or too many open files: transient.
            Some(_) | None => {
                failure(TransportError::Unreachable, format!("{origin} is unreachable: {error}"))
            }
        }
    }

    pub(super) fn http(origin: &HttpOrigin, error: &hyper::Error) -> Self {
        if error.is_parse() {
            return Self::not_http(origin, error);
        }
        if let Some(error) = http2_error(error)
            && error.get_io().is_none()
        {
            let reason = error.reason().map_or_else(|| error.to_string(), |reason| reason.to_string());
            let message = format!("{origin} ended the HTTP/2 stream: {reason}");
            let is_ours = !error.is_remote() && !error.is_reset();
            return Self::transport(
                if is_ours { TransportError::Protocol } else { TransportError::Reset },
                message,
            );
        }
        let io = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>());
        match io {
            Some(io) => Self::io(origin, io),
            None if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => {
                Self::closed_early(origin)
            }
            None => Self::not_http(origin, error),
        }
    }

    fn not_http(origin: &HttpOrigin, error: &dyn Error) -> Self {
        Self::protocol(format!("response of {origin} is not HTTP: {error}"))
    }

    pub(super) fn is_of_the_book(&self) -> bool {
        self.seen == ReplyKind::Transport(TransportError::AddressRefused)
    }

    pub(super) const fn lost_connection(&self) -> bool {
        matches!(self.seen, ReplyKind::Transport(TransportError::Reset | TransportError::ClosedEarly))
    }

    pub(super) fn into_reply(self) -> TargetReply {
        TargetReply::new(self.seen, self.message)
    }
}

/// A call that was not made.
impl From<TargetReply> for CallFailure {
    fn from(reply: TargetReply) -> Self {
        Self { seen: reply.seen, message: reply.message }
    }
}

/// What HTTP/2 says about a request that got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The other side has not acted on it.
    Unprocessed,
    /// It may have, and the connection stays open.
    Reset,
    /// The connection is lost.
    Lost,
}

impl StreamEnd {
    pub(super) fn of(error: &hyper::Error) -> Self {
        match http2_error(error) {
            Some(error) if error.is_go_away() && error.is_remote() => Self::Unprocessed,
            Some(error) if error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM) => {
                Self::Unprocessed
            }
            Some(error) if error.is_reset() => Self::Reset,
            Some(_) | None => Self::Lost,
        }
    }
}

fn http2_error(error: &hyper::Error) -> Option<&h2::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
}
