//! The seven kinds of failure and the codes that name them for machines.
//!
//! Invariant: a code never changes its meaning once released; people alert on it.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What kind of failure it was, and so what may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Category {
    /// Heals by itself.
    Transient,
    /// The other side asks us to wait.
    RateLimited,
    /// Retrying cannot help.
    Permanent,
    /// The message itself is bad.
    Invalid,
    /// Configuration or credentials are wrong.
    Fatal,
    /// Nobody knows.
    Unknown,
    /// Redrive's own fault.
    Internal,
}

impl Category {
    /// All seven, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Transient,
        Self::RateLimited,
        Self::Permanent,
        Self::Invalid,
        Self::Fatal,
        Self::Unknown,
        Self::Internal,
    ];

    /// The words for them, in the same order.
    pub const WORDS: [&'static str; 7] =
        ["transient", "rate-limited", "permanent", "invalid", "fatal", "unknown", "internal"];

    /// The word for it in rule books, logs and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    /// The category of that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == word)
    }

    /// Whether such a failure says that the dependency is unwell, unless a rule says otherwise.
    #[must_use]
    pub const fn counts_against_dependency(self) -> bool {
        match self {
            Self::Transient | Self::RateLimited | Self::Unknown => true,
            Self::Permanent | Self::Invalid | Self::Fatal | Self::Internal => false,
        }
    }

    /// One of the four words that dead-letter envelopes have for it, for readers that know only those.
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

/// The stable name of a failure for machines, such as `NETWORK_TIMEOUT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Code(Cow<'static, str>);

impl Code {
    /// A code of Redrive's own; the constants in [`codes`] are the ones in use.
    #[must_use]
    pub const fn of(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// A code that somebody else's program or server reported.
    #[must_use]
    pub fn reported(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }

    /// The code as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The codes that Redrive itself gives.
pub mod codes {
    /// No answer in time, whichever part of the call was slow.
    pub const NETWORK_TIMEOUT: &str = "NETWORK_TIMEOUT";
    /// Nobody listens there.
    pub const CONNECTION_REFUSED: &str = "CONNECTION_REFUSED";
    /// The connection broke off.
    pub const CONNECTION_RESET: &str = "CONNECTION_RESET";
    /// The name could not be resolved.
    pub const DNS_FAILURE: &str = "DNS_FAILURE";
    /// The TLS handshake failed.
    pub const TLS_FAILURE: &str = "TLS_FAILURE";
    /// No way to that network.
    pub const NETWORK_UNREACHABLE: &str = "NETWORK_UNREACHABLE";
    /// The name leads to an address that the book gives no leave to call.
    pub const ADDRESS_REFUSED: &str = "ADDRESS_REFUSED";
    /// The answer was not the protocol we speak.
    pub const PROTOCOL_ERROR: &str = "PROTOCOL_ERROR";
    /// A connection failed for longer than the rule's `fatal_after`.
    pub const CONNECTION_FAILING: &str = "CONNECTION_FAILING";

    /// 429, quota or overload.
    pub const RATE_LIMITED: &str = "RATE_LIMITED";
    /// 400.
    pub const BAD_REQUEST: &str = "BAD_REQUEST";
    /// 401.
    pub const UNAUTHORIZED: &str = "UNAUTHORIZED";
    /// 403.
    pub const FORBIDDEN: &str = "FORBIDDEN";
    /// 404.
    pub const NOT_FOUND: &str = "NOT_FOUND";
    /// 408.
    pub const REQUEST_TIMEOUT: &str = "REQUEST_TIMEOUT";
    /// 409.
    pub const CONFLICT: &str = "CONFLICT";
    /// 410.
    pub const GONE: &str = "GONE";
    /// 413.
    pub const PAYLOAD_TOO_LARGE: &str = "PAYLOAD_TOO_LARGE";
    /// 422.
    pub const UNPROCESSABLE: &str = "UNPROCESSABLE";
    /// 425.
    pub const TOO_EARLY: &str = "TOO_EARLY";
    /// Any other 4xx.
    pub const CLIENT_ERROR: &str = "CLIENT_ERROR";
    /// Any 3xx: redirects are not followed.
    pub const REDIRECTED: &str = "REDIRECTED";
    /// 500.
    pub const SERVER_ERROR: &str = "SERVER_ERROR";
    /// 501.
    pub const NOT_IMPLEMENTED: &str = "NOT_IMPLEMENTED";
    /// 502.
    pub const BAD_GATEWAY: &str = "BAD_GATEWAY";
    /// 503.
    pub const SERVICE_UNAVAILABLE: &str = "SERVICE_UNAVAILABLE";
    /// 504.
    pub const GATEWAY_TIMEOUT: &str = "GATEWAY_TIMEOUT";
    /// A status that HTTP does not have, or that answers no request.
    pub const UNEXPECTED_STATUS: &str = "UNEXPECTED_STATUS";

    /// A process ended with a status other than 0.
    pub const PROCESS_CRASHED: &str = "PROCESS_CRASHED";
    /// A process was ended by a signal.
    pub const PROCESS_KILLED: &str = "PROCESS_KILLED";
    /// A process was ended for the memory it took.
    pub const OUT_OF_MEMORY: &str = "OUT_OF_MEMORY";
    /// A process reported its own error on standard output.
    pub const PROCESS_ERROR: &str = "PROCESS_ERROR";
    /// A process could not be started within its limit.
    pub const SPAWN_FAILED: &str = "SPAWN_FAILED";
    /// A process ran past its time limit.
    pub const TIME_LIMIT_EXCEEDED: &str = "TIME_LIMIT_EXCEEDED";

    /// A broker is choosing a leader.
    pub const LEADER_ELECTION: &str = "LEADER_ELECTION";
    /// A broker does not answer or is shutting down.
    pub const BROKER_UNAVAILABLE: &str = "BROKER_UNAVAILABLE";
    /// A broker's quota is used up.
    pub const QUOTA_EXCEEDED: &str = "QUOTA_EXCEEDED";
    /// A store asks for fewer writes.
    pub const STORE_THROTTLED: &str = "STORE_THROTTLED";
    /// The queue, topic or stream does not exist.
    pub const QUEUE_NOT_FOUND: &str = "QUEUE_NOT_FOUND";
    /// The broker does not take a message of that size.
    pub const MESSAGE_TOO_LARGE: &str = "MESSAGE_TOO_LARGE";
    /// The broker or the mail server does not take the message, now or later.
    pub const MESSAGE_REFUSED: &str = "MESSAGE_REFUSED";

    /// The message does not parse.
    pub const DESERIALIZATION_FAILED: &str = "DESERIALIZATION_FAILED";
    /// The message violates its schema.
    pub const SCHEMA_VIOLATION: &str = "SCHEMA_VIOLATION";
    /// A signature does not fit.
    pub const SIGNATURE_INVALID: &str = "SIGNATURE_INVALID";
    /// Something the configuration should name is missing.
    pub const CONFIG_MISSING: &str = "CONFIG_MISSING";
    /// The secret that a call should be signed with cannot be had, so the call was not made.
    pub const SECRET_UNAVAILABLE: &str = "SECRET_UNAVAILABLE";
    /// Redrive's own fault.
    pub const INTERNAL_ERROR: &str = "INTERNAL_ERROR";
    /// Anything else.
    pub const UNKNOWN_ERROR: &str = "UNKNOWN_ERROR";
    /// The stored event does not read as it was stored: bits on the disk have changed.
    pub const DAMAGED: &str = "DAMAGED";
    /// The attempt was under way when Redrive stopped.
    pub const INTERRUPTED: &str = "INTERRUPTED";

    /// The breaker is open and the delivery could not be held any longer.
    pub const CIRCUIT_BREAKER_OPEN: &str = "CIRCUIT_BREAKER_OPEN";
    /// The last retry failed.
    pub const MAX_RETRIES_EXCEEDED: &str = "MAX_RETRIES_EXCEEDED";
    /// The next retry would start after the policy's window.
    pub const RETRY_WINDOW_EXCEEDED: &str = "RETRY_WINDOW_EXCEEDED";
    /// The next retry would start after the rule's deadline.
    pub const DEADLINE_EXCEEDED: &str = "DEADLINE_EXCEEDED";
    /// Too many of the calls to the dependency are retries already.
    pub const RETRY_BUDGET_SPENT: &str = "RETRY_BUDGET_SPENT";
    /// The other side asked for more patience than `hold_max` has.
    pub const HOLD_EXPIRED: &str = "HOLD_EXPIRED";
    /// Too much was waiting for the service when the event came, and its rule says to dead-letter then. Of
    /// category `transient`, since a backlog drains by itself and a replay may well find room.
    pub const BACKLOG_FULL: &str = "BACKLOG_FULL";
    /// Too many wait behind a dead letter that holds their session.
    pub const SESSION_FULL: &str = "SESSION_FULL";
    /// The rule book has nobody who wants such an event any more.
    pub const RULE_REMOVED: &str = "RULE_REMOVED";
    /// The rule book had the service no more, and an operator ended what waited for it.
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
