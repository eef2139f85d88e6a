//! Errors of the network and of HTTP clients, in the terms of rule books.
//!
//! A guard takes `std::io::Error` as it is. With the feature `reqwest` it also takes `reqwest::Error`, and
//! `http::reqwest::check` turns an unsuccessful response into an error with what rules look at: status,
//! headers, `Retry-After` and the beginning of the body. The feature `hyper` does the same for hyper and
//! hyper-util.
//!
//! Invariant: errors are told apart by type, by text only where a library leaves no other way: unresolvable
//! names and unsupported schemes.

#[cfg(feature = "http")]
pub mod answer;
#[cfg(any(feature = "reqwest", feature = "hyper"))]
mod chain;
#[cfg(any(feature = "reqwest", feature = "hyper"))]
mod error;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "reqwest")]
pub mod reqwest;
#[cfg(all(test, feature = "hyper", feature = "reqwest", feature = "tower"))]
mod tests;

#[cfg(feature = "http")]
use std::error::Error;
use std::io::{self, ErrorKind};

use redrive_core::policy::answer::{AnswerKind, CallPart, TargetAnswer, TransportError};
use redrive_core::policy::category::codes;

#[cfg(any(feature = "reqwest", feature = "hyper"))]
pub use self::error::HttpError;
use crate::guard::Classify;

impl Classify for io::Error {
    fn answer(&self) -> TargetAnswer<'_> {
        let (what, message) = match transport(self) {
            Some(error) => (AnswerKind::Transport(error), in_words(error)),
            None => (AnswerKind::Reported { code: codes::UNKNOWN_ERROR }, "an input or output error"),
        };
        TargetAnswer { what, message, retry_after: None }
    }
}

/// The error and its causes, outermost first.
#[cfg(feature = "http")]
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// The transport error of an IO error; `None` if it does not concern a connection.
#[must_use]
pub fn transport(error: &io::Error) -> Option<TransportError> {
    match error.kind() {
        // A socket with its own time limit returns `WouldBlock`.
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Some(TransportError::Timeout(CallPart::Whole)),
        ErrorKind::ConnectionRefused => Some(TransportError::Refused),
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::NotConnected => Some(TransportError::Reset),
        ErrorKind::UnexpectedEof => Some(TransportError::ClosedEarly),
        ErrorKind::InvalidData => Some(TransportError::Protocol),
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrNotAvailable => Some(TransportError::Unreachable),
        _ if is_of_names(error) => Some(TransportError::Dns),
        _ => None,
    }
}

/// The standard library has no kind for an unresolvable name; this is its text.
fn is_of_names(error: &io::Error) -> bool {
    error.raw_os_error().is_none() && error.to_string().contains("failed to lookup address information")
}

/// For people, and for rules that match the message.
pub(crate) const fn in_words(error: TransportError) -> &'static str {
    match error {
        TransportError::Timeout(CallPart::Connect) => "no connection in time",
        TransportError::Timeout(CallPart::Tls) => "no TLS handshake in time",
        TransportError::Timeout(CallPart::Headers | CallPart::Whole) => "no answer in time",
        TransportError::Refused => "the connection was refused",
        TransportError::Reset => "the connection was reset",
        TransportError::Dns => "the name could not be resolved",
        TransportError::Tls => "the TLS handshake failed",
        TransportError::Unreachable => "there is no way to that address",
        TransportError::AddressRefused => "the address must not be called",
        TransportError::ClosedEarly => "the connection was closed before the answer was whole",
        TransportError::Protocol => "the answer is not the protocol that was expected",
    }
}
