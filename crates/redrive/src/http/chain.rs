//! Finds the cause of an error in its chain: clients wrap errors of the system and of hyper.

use std::error::Error;
use std::io::{self, ErrorKind};

use redrive_core::policy::answer::{CallPart, TransportError};

use super::{causes, transport};

/// The error and its causes as one line.
pub(super) fn told(error: &(dyn Error + 'static)) -> String {
    let mut told: Vec<String> = Vec::new();
    for cause in causes(error).map(ToString::to_string) {
        // Some errors repeat the text of their cause.
        if !told.iter().any(|before| before.contains(&cause)) {
            told.push(cause);
        }
    }
    told.join(": ")
}

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

/// An error after the connection was made.
pub(super) fn of_call(error: &(dyn Error + 'static)) -> TransportError {
    let of_cause = |cause: &(dyn Error + 'static)| {
        cause
            .downcast_ref::<hyper::Error>()
            .map(of_hyper)
            .or_else(|| cause.downcast_ref::<io::Error>().and_then(transport))
    };
    causes(error).find_map(of_cause).unwrap_or(TransportError::Protocol)
}

/// An error while connecting. Errors that come neither from the system nor from name resolution are handshake
/// errors; TLS libraries report them as invalid data.
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

/// Whether the client does not support the address's scheme, which only the program or its book can fix.
pub(super) fn is_of_scheme(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| cause.to_string().contains("scheme is not http"))
}
