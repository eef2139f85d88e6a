//! What may go wrong, each with a stable name for machines and a sentence for people.

use std::fmt;

use redrive::core::policy::category::codes;
use serde::{Serialize, Serializer};

/// Why a contact is not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorCode {
    /// Nothing came in time.
    NetworkTimeout,
    /// The relay, or the table behind it, is away.
    DhtUnavailable,
    /// The relay itself waited too long.
    RelayTimeout,
    /// The relay asks for fewer requests.
    RateLimited,
    /// Something broke that heals by itself.
    TemporaryFailure,
    /// The key has no valid form.
    InvalidPublicKey,
    /// The address has no valid form.
    InvalidNip05,
    /// Nothing is published under that key, or it does not name the address.
    RecordNotFound,
    /// What is published was not signed by that key.
    SignatureInvalid,
    /// What came is no packet.
    MalformedResponse,
    /// The relays were down a moment ago: nobody was asked.
    CircuitBreakerOpen,
    /// The last retry failed too.
    MaxRetriesExceeded,
    /// Anything else.
    UnknownError,
}

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// May go well another time.
    Transient,
    /// Goes wrong every time.
    Permanent,
    /// Nothing the relays said: this service itself stopped asking.
    System,
}

impl ErrorCode {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 13] = [
        Self::NetworkTimeout,
        Self::DhtUnavailable,
        Self::RelayTimeout,
        Self::RateLimited,
        Self::TemporaryFailure,
        Self::InvalidPublicKey,
        Self::InvalidNip05,
        Self::RecordNotFound,
        Self::SignatureInvalid,
        Self::MalformedResponse,
        Self::CircuitBreakerOpen,
        Self::MaxRetriesExceeded,
        Self::UnknownError,
    ];

    /// The code of that name; what has none is [`Self::UnknownError`].
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|code| code.as_str() == name).unwrap_or(Self::UnknownError)
    }

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NetworkTimeout => codes::NETWORK_TIMEOUT,
            Self::DhtUnavailable => "DHT_UNAVAILABLE",
            Self::RelayTimeout => "RELAY_TIMEOUT",
            Self::RateLimited => codes::RATE_LIMITED,
            Self::TemporaryFailure => "TEMPORARY_FAILURE",
            Self::InvalidPublicKey => "INVALID_PUBLIC_KEY",
            Self::InvalidNip05 => "INVALID_NIP05",
            Self::RecordNotFound => "RECORD_NOT_FOUND",
            Self::SignatureInvalid => codes::SIGNATURE_INVALID,
            Self::MalformedResponse => "MALFORMED_RESPONSE",
            Self::CircuitBreakerOpen => codes::CIRCUIT_BREAKER_OPEN,
            Self::MaxRetriesExceeded => codes::MAX_RETRIES_EXCEEDED,
            Self::UnknownError => codes::UNKNOWN_ERROR,
        }
    }

    /// A sentence for people; it names nobody.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::NetworkTimeout => "Network timeout during PKARR verification",
            Self::DhtUnavailable => "DHT relay unavailable",
            Self::RelayTimeout => "Relay response timeout",
            Self::RateLimited => "Rate limited by DHT relay",
            Self::TemporaryFailure => "Unknown temporary failure",
            Self::InvalidPublicKey => "Invalid public key format",
            Self::InvalidNip05 => "Invalid NIP-05 identifier",
            Self::RecordNotFound => "PKARR record not found",
            Self::SignatureInvalid => "Invalid PKARR signature",
            Self::MalformedResponse => "Malformed DHT response",
            Self::CircuitBreakerOpen => "Circuit breaker is open, request rejected",
            Self::MaxRetriesExceeded => "Max retry attempts exceeded",
            Self::UnknownError => "Unclassified error",
        }
    }

    /// What kind of error it is.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::NetworkTimeout
            | Self::DhtUnavailable
            | Self::RelayTimeout
            | Self::RateLimited
            | Self::TemporaryFailure
            | Self::UnknownError => Kind::Transient,
            Self::InvalidPublicKey
            | Self::InvalidNip05
            | Self::RecordNotFound
            | Self::SignatureInvalid
            | Self::MalformedResponse => Kind::Permanent,
            Self::CircuitBreakerOpen | Self::MaxRetriesExceeded => Kind::System,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
