//! What went wrong, found among the causes of an error: clients wrap what the system or hyper told them.

use std::error::Error;
use std::io::{self, ErrorKind};

use redrive_core::policy::answer::{CallPart, TransportError};

use super::{causes, transport};

/// The error and all its causes as one line of text, for people.
pub(super) fn told(error: &(dyn Error + 'static)) -> String {
    let mut told: Vec<String> = Vec::new();
    for cause in causes(error).map(ToString::to_string) {
        // Some tell their cause's words as their own.
        if !told.iter().any(|before| before.contains(&cause)) {
            told.push(cause);
        }
    }
    told.join(": ")
}

/// What an error of hyper means: by what it is, and else by what the system said.
pub(super) fn of_hyper(error: &hyper::Error) -> TransportError {
    if error.is_parse() {
        return TransportError::Protocol;
    }
    if error.is_timeout() {
        return TransportError::Timeout(CallPart::Headers);
    }
    let io = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>());
    if let Some(error) = io.and_then(transport) {
        return error;
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        TransportError::ClosedEarly
    } else {
        TransportError::Protocol
    }
}

/// What an error means that came after the connection was made.
pub(super) fn of_call(error: &(dyn Error + 'static)) -> TransportError {
    let of_cause = |cause: &(dyn Error + 'static)| {
        cause
            .downcast_ref::<hyper::Error>()
            .map(of_hyper)
            .or_else(|| cause.downcast_ref::<io::Error>().and_then(transport))
    };
    causes(error).find_map(of_cause).unwrap_or(TransportError::Protocol)
}

/// What an error means that came while the connection was made. What is neither of the system nor of names is
/// of the handshake, for nothing else happens there; libraries for TLS hand it over as data that is invalid.
pub(super) fn of_connecting(error: &(dyn Error + 'static)) -> TransportError {
    if causes(error).any(|cause| cause.to_string() == "dns error") {
        return TransportError::Dns;
    }
    let io = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    let of_system = |error: &io::Error| match error.kind() {
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof => Some(TransportError::Tls),
        ErrorKind::TimedOut => Some(TransportError::Timeout(CallPart::Connect)),
        _ => transport(error),
    };
    io.filter_map(of_system).last().unwrap_or(TransportError::Tls)
}

/// Whether the address has a scheme that the client does not speak: only the book or the program can mend that.
pub(super) fn is_of_scheme(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| cause.to_string().contains("scheme is not http"))
}
