//! Errors between a command and a server, with what to do next.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use redrive_core::text::show_duration;
use rustls::{CertificateError, Error};
use serde_json::Value;

use crate::api::error::{ErrorBody, ErrorJson};
use crate::client::address::Address;
use crate::client::is_away;
use crate::terminal::{io_words, plain};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Not reachable; exit code 3.
    #[error("cannot connect to {address} ({reason}). Start it with `redrive serve`, or pass --server URL")]
    Unreachable { address: Address, reason: ConnectionError },
    /// Its certificate is not trusted; exit code 3.
    #[error("the server at {address} is not trusted: {why}")]
    Distrusted { address: Address, why: TlsTrustError },
    #[error("{0}")]
    Refused(Box<ServerRefusal>),
    /// Not a Redrive server, or another version.
    #[error(
        "the response from {address} is not from Redrive, or from another version: {why}\n  pass --server URL"
    )]
    Unreadable { address: Address, why: UnreadableResponse },
    /// An invalid request; exit code 2.
    #[error("invalid request: {0}")]
    Unaskable(#[from] http::Error),
}

/// It may quote the server, so it is printed without control characters.
#[derive(Debug)]
pub(crate) struct UnreadableResponse(pub serde_json::Error);

impl fmt::Display for UnreadableResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_eof() {
            return f.write_str("the response is empty or incomplete");
        }
        f.write_str(&plain(&self.0.to_string()))
    }
}

impl ClientError {
    pub(crate) fn refusal(&self) -> Option<&ServerRefusal> {
        if let Self::Refused(refusal) = self { Some(refusal) } else { None }
    }

    /// Whether the server is away and may come back.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Unreachable { .. }) || self.refusal().is_some_and(ServerRefusal::is_away)
    }
}

impl From<ServerRefusal> for ClientError {
    fn from(refusal: ServerRefusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("{}", io_words(.0))]
    Connect(std::io::Error),
    #[error("no connection within {}", show_duration(*.0))]
    NotConnected(Duration),
    #[error("the TLS handshake failed: {0}")]
    Handshake(std::io::Error),
    #[error("not trusted: {0}")]
    Distrust(TlsTrustError),
    #[error("{}", innermost(.0))]
    Http(hyper::Error),
    #[error("no response within {}", show_duration(*.0))]
    NoAnswer(Duration),
    #[error("the response is incomplete: {0}")]
    BrokeOff(Box<dyn std::error::Error + Send + Sync>),
    #[error("no data for {}", show_duration(*.0))]
    Silent(Duration),
    #[error("a line of the response has more than {0} bytes")]
    LineTooLong(usize),
}

impl ConnectionError {
    /// Distinguishes a closed connection from an untrusted certificate.
    pub(crate) fn of_handshake(error: std::io::Error) -> Self {
        match error.downcast() {
            Ok(error) => Self::Distrust(TlsTrustError::new(error)),
            Err(error) => Self::Handshake(error),
        }
    }

    /// Whether a retry may succeed.
    pub(crate) const fn is_transient(&self) -> bool {
        match self {
            Self::Connect(_) | Self::NotConnected(_) | Self::Handshake(_) | Self::Http(_) => true,
            Self::Distrust(_)
            | Self::NoAnswer(_)
            | Self::BrokeOff(_)
            | Self::Silent(_)
            | Self::LineTooLong(_) => false,
        }
    }
}

/// The innermost cause, which is the most specific.
fn innermost(error: &hyper::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Whether the message already has the detail; programs need both, people one.
fn is_in_message(error: &ErrorJson, detail: &str) -> bool {
    let text = |name| error.details.get(name).and_then(Value::as_str);
    let says_why = text("reason").is_some_and(|reason| error.message.contains(reason));
    let names_field = || text("field").is_some_and(|field| error.message.contains(&format!("`{field}`")));
    match detail {
        "reason" => says_why,
        "field" => says_why || names_field(),
        _ => false,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerRefusal {
    pub(crate) status: StatusCode,
    pub(crate) error: ErrorJson,
    pub(crate) correlation_id: Option<String>,
}

impl ServerRefusal {
    pub(crate) fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let error =
            serde_json::from_slice(body).map_or_else(|_| unexplained(status), |ErrorBody { error }| error);
        let id = headers.get("x-correlation-id").and_then(|value| value.to_str().ok());
        Self { status, error, correlation_id: id.map(ToOwned::to_owned) }
    }

    /// Whether a retry may succeed.
    fn is_away(&self) -> bool {
        is_away(self.status)
    }
}

/// A proxy in between answers in its own format, or without a body.
fn unexplained(status: StatusCode) -> ErrorJson {
    let reason = status.canonical_reason().unwrap_or("an unusual status");
    let doubt = if status.is_server_error() { "" } else { ": is it a Redrive server?" };
    ErrorJson {
        code: format!("HTTP_{}", status.as_u16()),
        message: format!("{reason}, without details{doubt}"),
        details: serde_json::Map::new(),
    }
}

/// Details that the message already has are left out:
///
/// ```text
/// `id` is missing  (VALIDATION_ERROR, 400)
///   correlation id  c-1
/// ```
impl fmt::Display for ServerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorJson { code, message, details } = &self.error;
        if self.is_away() {
            f.write_str("server unavailable, try again later: ")?;
        }
        write!(f, "{}  ({}, {})", plain(message), plain(code), self.status.as_u16())?;
        let mut line = |name: &str, value: &str| write!(f, "\n  {:14}  {}", plain(name), plain(value));
        for (name, value) in details.iter().filter(|(name, _)| !is_in_message(&self.error, name)) {
            match value {
                Value::String(text) => line(name, text)?,
                Value::Array(values) => {
                    let texts = values
                        .iter()
                        .map(|value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned));
                    line(name, &texts.collect::<Vec<_>>().join(", "))?;
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                    line(name, &value.to_string())?;
                }
            }
        }
        if let Some(id) = &self.correlation_id {
            line("correlation id", id)?;
        }
        match self.status {
            StatusCode::UNAUTHORIZED => f.write_str(
                "\n  pass a valid API key with REDRIVE_KEY or --key-file FILE",
            ),
            StatusCode::FORBIDDEN if details.contains_key("services") => f.write_str(
                "\n  pass one of these services with --service NAME, or use a key that is not bound to services",
            ),
            StatusCode::FORBIDDEN => f.write_str(
                "\n  use a key with one of these roles; an admin can create one with `redrive keys create`",
            ),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct TlsTrustError(Box<Error>);

impl TlsTrustError {
    pub(crate) fn new(error: Error) -> Self {
        Self(Box::new(error))
    }
}

/// The problem, and below it what to do.
impl fmt::Display for TlsTrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", redrive_node::tls::why(&self.0), remedy(&self.0))
    }
}

fn remedy(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "if you trust it, pass its CA certificate with --ca FILE or REDRIVE_CA"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "use a name of its certificate: --server URL",
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "renew its certificate, or check the clocks of both machines",
        Error::InvalidMessage(_) => "use http:// for a server without TLS: --server URL",
        _ => "no request was sent",
    }
}

#[cfg(test)]
mod tests {
    use rustls::InvalidMessage;

    use super::*;

    #[test]
    fn every_distrust_has_a_remedy() {
        #[rustfmt::skip]
        let cases = [
            (Error::InvalidCertificate(CertificateError::UnknownIssuer),   "its certificate is not signed by a trusted authority\n  if you trust it, pass its CA certificate with --ca FILE or REDRIVE_CA"),
            (Error::InvalidCertificate(CertificateError::NotValidForName), "its certificate is for another name\n  use a name of its certificate: --server URL"),
            (Error::InvalidCertificate(CertificateError::Expired),         "its certificate has expired\n  renew its certificate, or check the clocks of both machines"),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType),    "it does not speak TLS\n  use http:// for a server without TLS: --server URL"),
            (Error::DecryptError,                                          "cannot decrypt peer's message\n  no request was sent"),
        ];
        for (error, expected) in cases {
            assert_eq!(TlsTrustError::new(error).to_string(), expected);
        }
    }
}
