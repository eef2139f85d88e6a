//! What can go wrong between a command and a server, in words that say what to do.

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

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Nobody answers there; the exit code is 3.
    #[error(
        "nothing answers at {address}: {reason}\n  System unavailable, try again later, start a server with `redrive serve`, or name another with --server URL"
    )]
    Unreachable { address: Address, reason: ConnectionError },
    /// Somebody answers there who may not be who was meant; the exit code is 3.
    #[error("the server at {address} is not trusted: {why}")]
    Distrusted { address: Address, why: TlsTrustError },
    /// The server said no.
    #[error("{0}")]
    Refused(Box<ServerRefusal>),
    /// Something answered that is no such server, or a newer one.
    #[error(
        "what answers at {address} is no Redrive, or another version of it: {why}\n  name the server with --server URL"
    )]
    Unreadable { address: Address, why: UnreadableResponse },
    /// No request can say that; the exit code is 2.
    #[error("this cannot be asked of a server: {0}")]
    Unaskable(#[from] http::Error),
}

/// Why an answer cannot be read; it may quote what the server said, and a terminal must not obey that.
#[derive(Debug)]
pub(crate) struct UnreadableResponse(pub serde_json::Error);

impl fmt::Display for UnreadableResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_eof() {
            return f.write_str("its answer is empty, or broke off");
        }
        f.write_str(&plain(&self.0.to_string()))
    }
}

impl ClientError {
    /// The server's refusal, if it is one.
    pub(crate) fn refusal(&self) -> Option<&ServerRefusal> {
        if let Self::Refused(refusal) = self { Some(refusal) } else { None }
    }

    /// Whether the server is away, and may come back.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Unreachable { .. }) || self.refusal().is_some_and(ServerRefusal::is_away)
    }
}

impl From<ServerRefusal> for ClientError {
    fn from(refusal: ServerRefusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// Why there is no answer, or no more of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("{}", io_words(.0))]
    Connect(std::io::Error),
    #[error("no connection within {}", show_duration(*.0))]
    NotConnected(Duration),
    #[error("the TLS handshake failed: {0}")]
    Handshake(std::io::Error),
    #[error("it is not trusted: {0}")]
    Distrust(TlsTrustError),
    #[error("{}", innermost(.0))]
    Http(hyper::Error),
    #[error("no answer within {}", show_duration(*.0))]
    NoAnswer(Duration),
    #[error("the answer broke off: {0}")]
    BrokeOff(Box<dyn std::error::Error + Send + Sync>),
    #[error("nothing came for {}", show_duration(*.0))]
    Silent(Duration),
    #[error("a line of the answer has more than {0} bytes")]
    LineTooLong(usize),
}

impl ConnectionError {
    /// What came of a handshake: whether somebody hung up, or showed what cannot be believed.
    pub(crate) fn of_handshake(error: std::io::Error) -> Self {
        match error.downcast() {
            Ok(error) => Self::Distrust(TlsTrustError::new(error)),
            Err(error) => Self::Handshake(error),
        }
    }

    /// Whether it may go better in a moment.
    pub(crate) const fn may_heal(&self) -> bool {
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

/// The cause of it all says more than that there was one.
fn innermost(error: &hyper::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Whether a message says already what a detail says; programs need both, people one.
fn is_said(error: &ErrorJson, detail: &str) -> bool {
    let text = |name| error.details.get(name).and_then(Value::as_str);
    let says_why = text("reason").is_some_and(|reason| error.message.contains(reason));
    let names_field = || text("field").is_some_and(|field| error.message.contains(&format!("`{field}`")));
    match detail {
        "reason" => says_why,
        "field" => says_why || names_field(),
        _ => false,
    }
}

/// What the server says when it says no.
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

    /// Whether it may go better later.
    fn is_away(&self) -> bool {
        is_away(self.status)
    }
}

/// What stands between us and the server answers in words of its own, or in none.
fn unexplained(status: StatusCode) -> ErrorJson {
    let reason = status.canonical_reason().unwrap_or("an unusual status");
    let doubt = if status.is_server_error() { "" } else { ": is it a Redrive that answers there?" };
    ErrorJson {
        code: format!("HTTP_{}", status.as_u16()),
        message: format!("{reason}, without a word on why{doubt}"),
        details: serde_json::Map::new(),
    }
}

/// What the message says already is not said again below it:
///
/// ```text
/// `id` is missing  (VALIDATION_ERROR, 400)
///   correlation id  c-1
/// ```
impl fmt::Display for ServerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorJson { code, message, details } = &self.error;
        if self.is_away() {
            f.write_str("System unavailable, try again later: ")?;
        }
        write!(f, "{}  ({}, {})", plain(message), plain(code), self.status.as_u16())?;
        let mut line = |name: &str, value: &str| write!(f, "\n  {:14}  {}", plain(name), plain(value));
        for (name, value) in details.iter().filter(|(name, _)| !is_said(&self.error, name)) {
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
                "\n  show a key that is good: put it in REDRIVE_KEY, or name its file with --key-file FILE",
            ),
            StatusCode::FORBIDDEN if details.contains_key("services") => f.write_str(
                "\n  name one of these services with --service NAME, or use a key that is not bound to them",
            ),
            StatusCode::FORBIDDEN => f.write_str(
                "\n  use a key that may do this: `redrive keys create` makes one, with an admin's key",
            ),
            _ => Ok(()),
        }
    }
}

/// What was wrong with what a server showed.
#[derive(Debug)]
pub(crate) struct TlsTrustError(Box<Error>);

impl TlsTrustError {
    pub(crate) fn new(error: Error) -> Self {
        Self(Box::new(error))
    }
}

/// What is wrong, and below it what to do.
impl fmt::Display for TlsTrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", redrive_node::tls::why(&self.0), remedy(&self.0))
    }
}

fn remedy(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "name the certificate that vouches for it with --ca FILE or REDRIVE_CA, if you know it to be right"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "reach it by a name that its certificate is for: --server URL",
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "renew its certificate, and look at the clocks of both machines",
        Error::InvalidMessage(_) => "a server without TLS is reached by http://: --server URL",
        _ => "nothing was sent to it",
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
            (Error::InvalidCertificate(CertificateError::UnknownIssuer),   "its certificate is not signed by a trusted authority\n  name the certificate that vouches for it with --ca FILE or REDRIVE_CA, if you know it to be right"),
            (Error::InvalidCertificate(CertificateError::NotValidForName), "its certificate is for another name\n  reach it by a name that its certificate is for: --server URL"),
            (Error::InvalidCertificate(CertificateError::Expired),         "its certificate has expired\n  renew its certificate, and look at the clocks of both machines"),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType),    "it does not speak TLS\n  a server without TLS is reached by http://: --server URL"),
            (Error::DecryptError,                                          "cannot decrypt peer's message\n  nothing was sent to it"),
        ];
        for (error, expected) in cases {
            assert_eq!(TlsTrustError::new(error).to_string(), expected);
        }
    }
}
