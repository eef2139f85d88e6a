//! The seven categories of failure and the machine-readable failure codes.
//!
//! Invariant: a code never changes its meaning once released; people alert on it.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The category of a failure, which decides what may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Category {
    /// A retry may help.
    Transient,
    /// The target asks us to wait.
    RateLimited,
    /// A retry cannot help.
    Permanent,
    /// The message itself is malformed.
    Invalid,
    /// Configuration or credentials are wrong.
    Fatal,
    /// The cause is unknown.
    Unknown,
    /// Redrive itself failed.
    Internal,
}

impl Category {
    /// In the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Transient,
        Self::RateLimited,
        Self::Permanent,
        Self::Invalid,
        Self::Fatal,
        Self::Unknown,
        Self::Internal,
    ];

    pub const WORDS: [&'static str; 7] =
        ["transient", "rate-limited", "permanent", "invalid", "fatal", "unknown", "internal"];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == word)
    }

    /// Whether such a failure counts against the dependency, unless a rule says otherwise.
    #[must_use]
    pub const fn counts_against_dependency(self) -> bool {
        match self {
            Self::Transient | Self::RateLimited | Self::Unknown => true,
            Self::Permanent | Self::Invalid | Self::Fatal | Self::Internal => false,
        }
    }

    /// One of the four words of dead-letter envelopes, for readers that know only those.
    #[must_use]
    pub const fn envelope_word(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::RateLimited => "rate-limited",
            Self::Permanent | Self::Invalid | Self::Fatal => "permanent",
            Self::Unknown | Self::Internal => "unknown",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A stable, machine-readable failure code, such as `NETWORK_TIMEOUT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FailureCode(Cow<'static, str>);

impl FailureCode {
    #[must_use]
    pub const fn of(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    #[must_use]
    pub fn reported(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

pub mod codes {
    /// No answer in time, whichever part of the call was slow.
    pub const NETWORK_TIMEOUT: &str = "NETWORK_TIMEOUT";
    pub const CONNECTION_REFUSED: &str = "CONNECTION_REFUSED";
    pub const CONNECTION_RESET: &str = "CONNECTION_RESET";
    pub const DNS_FAILURE: &str = "DNS_FAILURE";
    pub const TLS_FAILURE: &str = "TLS_FAILURE";
    pub const NETWORK_UNREACHABLE: &str = "NETWORK_UNREACHABLE";
    /// The name resolves to an address that the rule book does not allow.
    pub const ADDRESS_REFUSED: &str = "ADDRESS_REFUSED";
    pub const PROTOCOL_ERROR: &str = "PROTOCOL_ERROR";
    /// A connection failed for longer than the rule's `fatal_after`.
    pub const CONNECTION_FAILING: &str = "CONNECTION_FAILING";

    /// 429, quota or overload.
    pub const RATE_LIMITED: &str = "RATE_LIMITED";
    pub const BAD_REQUEST: &str = "BAD_REQUEST";
    pub const UNAUTHORIZED: &str = "UNAUTHORIZED";
    pub const FORBIDDEN: &str = "FORBIDDEN";
    pub const NOT_FOUND: &str = "NOT_FOUND";
    pub const REQUEST_TIMEOUT: &str = "REQUEST_TIMEOUT";
    pub const CONFLICT: &str = "CONFLICT";
    pub const GONE: &str = "GONE";
    pub const PAYLOAD_TOO_LARGE: &str = "PAYLOAD_TOO_LARGE";
    pub const UNPROCESSABLE: &str = "UNPROCESSABLE";
    pub const TOO_EARLY: &str = "TOO_EARLY";
    pub const CLIENT_ERROR: &str = "CLIENT_ERROR";
    /// Any 3xx: redirects are not followed.
    pub const REDIRECTED: &str = "REDIRECTED";
    pub const SERVER_ERROR: &str = "SERVER_ERROR";
    pub const NOT_IMPLEMENTED: &str = "NOT_IMPLEMENTED";
    pub const BAD_GATEWAY: &str = "BAD_GATEWAY";
    pub const SERVICE_UNAVAILABLE: &str = "SERVICE_UNAVAILABLE";
    pub const GATEWAY_TIMEOUT: &str = "GATEWAY_TIMEOUT";
    /// A status that HTTP does not define, or that answers no request.
    pub const UNEXPECTED_STATUS: &str = "UNEXPECTED_STATUS";

    /// A success by its status that is not what the target's `expect` says.
    pub const UNEXPECTED_RESPONSE: &str = "UNEXPECTED_RESPONSE";

    pub const PROCESS_CRASHED: &str = "PROCESS_CRASHED";
    pub const PROCESS_KILLED: &str = "PROCESS_KILLED";
    pub const OUT_OF_MEMORY: &str = "OUT_OF_MEMORY";
    pub const PROCESS_ERROR: &str = "PROCESS_ERROR";
    pub const SPAWN_FAILED: &str = "SPAWN_FAILED";
    pub const RUNTIME_UNAVAILABLE: &str = "RUNTIME_UNAVAILABLE";
    pub const TIME_LIMIT_EXCEEDED: &str = "TIME_LIMIT_EXCEEDED";

    pub const LEADER_ELECTION: &str = "LEADER_ELECTION";
    pub const BROKER_UNAVAILABLE: &str = "BROKER_UNAVAILABLE";
    pub const QUOTA_EXCEEDED: &str = "QUOTA_EXCEEDED";
    pub const STORE_THROTTLED: &str = "STORE_THROTTLED";
    pub const QUEUE_NOT_FOUND: &str = "QUEUE_NOT_FOUND";
    pub const MESSAGE_TOO_LARGE: &str = "MESSAGE_TOO_LARGE";
    /// The broker or the mail server rejects the message for good.
    pub const MESSAGE_REFUSED: &str = "MESSAGE_REFUSED";

    pub const DESERIALIZATION_FAILED: &str = "DESERIALIZATION_FAILED";
    pub const SCHEMA_VIOLATION: &str = "SCHEMA_VIOLATION";
    pub const SIGNATURE_INVALID: &str = "SIGNATURE_INVALID";
    pub const CONFIG_MISSING: &str = "CONFIG_MISSING";
    /// The signing secret is unavailable, so the call was not made.
    pub const SECRET_UNAVAILABLE: &str = "SECRET_UNAVAILABLE";
    pub const INTERNAL_ERROR: &str = "INTERNAL_ERROR";
    pub const UNKNOWN_ERROR: &str = "UNKNOWN_ERROR";
    /// The stored event fails its checksum.
    pub const DAMAGED: &str = "DAMAGED";
    pub const INTERRUPTED: &str = "INTERRUPTED";

    pub const CIRCUIT_BREAKER_OPEN: &str = "CIRCUIT_BREAKER_OPEN";
    pub const MAX_RETRIES_EXCEEDED: &str = "MAX_RETRIES_EXCEEDED";
    pub const RETRY_WINDOW_EXCEEDED: &str = "RETRY_WINDOW_EXCEEDED";
    pub const DEADLINE_EXCEEDED: &str = "DEADLINE_EXCEEDED";
    pub const RETRY_BUDGET_SPENT: &str = "RETRY_BUDGET_SPENT";
    pub const HOLD_EXPIRED: &str = "HOLD_EXPIRED";
    /// The service's backlog was full when the event arrived, and its rule dead-letters then. Of category
    /// `transient`, since a backlog drains by itself and a replay may find room.
    pub const BACKLOG_FULL: &str = "BACKLOG_FULL";
    pub const SESSION_FULL: &str = "SESSION_FULL";
    pub const RULE_REMOVED: &str = "RULE_REMOVED";
    /// The rule book no longer had the service, and an operator dead-lettered what waited for it.
    pub const SERVICE_REMOVED: &str = "SERVICE_REMOVED";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_has_a_word_that_leads_back_to_it() {
        for category in Category::ALL {
            assert_eq!(Category::from_word(category.as_str()), Some(category));
            let json = serde_json::to_string(&category).expect("a word");
            assert_eq!(json, format!("\"{category}\""));
        }
        assert_eq!(Category::from_word("fine"), None);
    }
}
