//! What an answer means: delivered, or a failure of one of the seven categories.
//!
//! Invariants:
//! - every answer has a meaning; what nobody thought of is `unknown`;
//! - a rule's own rows come first, the first that fits wins, and its position is kept, so that a
//!   verdict can name its line;
//! - a success stays one unless a row names its status: a pattern meant for failures must not turn a
//!   delivered event into one that is sent again.

use std::time::Duration;

use crate::answer::{Answer, BrokerError, CallPart, Exit, Malformed, TransportError, What};
use crate::category::{Category, Code, codes};
use crate::limits;
use crate::position::Position;
use crate::rule::{Matcher, Meaning, Override};

/// What an attempt came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The target has the event.
    Delivered {
        /// The row of `classify` that says so, if one does.
        matched: Option<Position>,
    },
    /// It has not, as far as anybody knows.
    Failed(Failure),
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What kind of failure it is.
    pub category: Category,
    /// Its name for machines.
    pub code: Code,
    /// The HTTP status, if there was an HTTP answer.
    pub status: Option<u16>,
    /// What happened, in words, at most [`limits::MESSAGE_BYTES_MAX`] bytes of them.
    pub message: String,
    /// How long the other side asks us to wait, where it may ask.
    pub retry_after: Option<Duration>,
    /// The row of `classify` that fitted, if one did.
    pub matched: Option<Position>,
    /// The category without that row; none if it would have been a success.
    pub default_category: Option<Category>,
    /// Whether the connection was the trouble.
    pub connection: Connection,
}

/// Whether a connection to the target came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It did, or there is none to make; what failed came after.
    Made,
    /// It did not, or it broke: a rule's `fatal_after` counts from the first of these in a row.
    Failed,
}

/// Says what an answer means. `timeout_category` is what the rule takes a timeout for.
#[must_use]
pub fn classify(answer: &Answer<'_>, overrides: &[Override], timeout_category: Category) -> Outcome {
    let usual = usual_meaning(answer, timeout_category);
    let row = overrides.iter().find(|row| fits(&row.when, answer, &usual));
    let matched = row.map(|row| row.position);
    let (default_category, default_code) = match usual {
        Usual::Delivered => (None, Code::of(codes::UNKNOWN_ERROR)),
        Usual::Failed(category, code) => (Some(category), code),
    };
    let category = match row.map(|row| row.meaning).or(default_category.map(Meaning::Failure)) {
        None | Some(Meaning::Delivered) => return Outcome::Delivered { matched },
        Some(Meaning::Failure(category)) => category,
    };
    let status = answer.what.status();
    let may_ask_to_wait = category == Category::RateLimited
        || default_category == Some(Category::RateLimited)
        || status == Some(503);
    Outcome::Failed(Failure {
        category,
        code: row.and_then(|row| row.code.clone()).unwrap_or(default_code),
        status,
        message: beginning(answer.message).to_owned(),
        retry_after: answer
            .retry_after
            .filter(|_| may_ask_to_wait)
            .map(|wait| wait.min(limits::RETRY_AFTER_MAX)),
        matched,
        default_category,
        connection: connection(&answer.what),
    })
}

/// What an answer means where no row of the book says otherwise.
enum Usual {
    Delivered,
    Failed(Category, Code),
}

fn usual_meaning(answer: &Answer<'_>, timeout_category: Category) -> Usual {
    let (category, code) = match &answer.what {
        What::Http { status: 200..=299, .. } | What::Taken | What::Process(Exit::Code(0)) => {
            return Usual::Delivered;
        }
        What::Http { status: 403, .. } if asks_to_wait(answer) => {
            (Category::RateLimited, codes::RATE_LIMITED)
        }
        What::Http { status, .. } => of_status(*status),
        What::Transport(error) => of_transport(*error, timeout_category),
        What::Process(exit) => of_process(*exit, timeout_category),
        What::Broker(error) => of_broker(*error, timeout_category),
        What::Malformed(Malformed::DoesNotParse) => (Category::Invalid, codes::DESERIALIZATION_FAILED),
        What::Malformed(Malformed::ViolatesSchema) => (Category::Invalid, codes::SCHEMA_VIOLATION),
        What::SignatureInvalid => (Category::Permanent, codes::SIGNATURE_INVALID),
        What::ConfigMissing => (Category::Fatal, codes::CONFIG_MISSING),
        What::Internal => (Category::Internal, codes::INTERNAL_ERROR),
        What::Reported { code } => return of_reported(code, timeout_category),
    };
    Usual::Failed(category, Code::of(code))
}

/// Some say "too many requests" by 403; a true refusal names no time and counts no requests.
fn asks_to_wait(answer: &Answer<'_>) -> bool {
    let none_left = answer.what.header("x-ratelimit-remaining").is_some_and(|left| left.trim() == "0");
    answer.retry_after.is_some() || answer.what.header("retry-after").is_some() || none_left
}

fn of_status(status: u16) -> (Category, &'static str) {
    match status {
        300..=399 => (Category::Permanent, codes::REDIRECTED),
        400 => (Category::Permanent, codes::BAD_REQUEST),
        401 => (Category::Fatal, codes::UNAUTHORIZED),
        403 => (Category::Fatal, codes::FORBIDDEN),
        404 => (Category::Permanent, codes::NOT_FOUND),
        408 => (Category::Transient, codes::REQUEST_TIMEOUT),
        409 => (Category::Permanent, codes::CONFLICT),
        410 => (Category::Permanent, codes::GONE),
        413 => (Category::Permanent, codes::PAYLOAD_TOO_LARGE),
        422 => (Category::Permanent, codes::UNPROCESSABLE),
        425 => (Category::Transient, codes::TOO_EARLY),
        429 | 529 => (Category::RateLimited, codes::RATE_LIMITED),
        402..=499 => (Category::Permanent, codes::CLIENT_ERROR),
        501 => (Category::Permanent, codes::NOT_IMPLEMENTED),
        502 => (Category::Transient, codes::BAD_GATEWAY),
        503 => (Category::Transient, codes::SERVICE_UNAVAILABLE),
        504 => (Category::Transient, codes::GATEWAY_TIMEOUT),
        500..=599 => (Category::Unknown, codes::SERVER_ERROR),
        0..=299 | 600.. => (Category::Unknown, codes::UNEXPECTED_STATUS),
    }
}

fn of_transport(error: TransportError, timeout_category: Category) -> (Category, &'static str) {
    match error {
        TransportError::Timeout(_) => (timeout_category, codes::NETWORK_TIMEOUT),
        TransportError::Refused => (Category::Transient, codes::CONNECTION_REFUSED),
        TransportError::Reset | TransportError::ClosedEarly => (Category::Transient, codes::CONNECTION_RESET),
        TransportError::Dns => (Category::Transient, codes::DNS_FAILURE),
        TransportError::Tls => (Category::Transient, codes::TLS_FAILURE),
        TransportError::Unreachable => (Category::Transient, codes::NETWORK_UNREACHABLE),
        TransportError::Protocol => (Category::Unknown, codes::PROTOCOL_ERROR),
    }
}

fn of_process(exit: Exit, timeout_category: Category) -> (Category, &'static str) {
    match exit {
        Exit::Code(_) => (Category::Unknown, codes::PROCESS_CRASHED),
        Exit::Signal(_) => (Category::Unknown, codes::PROCESS_KILLED),
        Exit::OutOfMemory => (Category::Unknown, codes::OUT_OF_MEMORY),
        Exit::ReportedError => (Category::Unknown, codes::PROCESS_ERROR),
        Exit::SpawnFailed => (Category::Permanent, codes::SPAWN_FAILED),
        // Permanent unless the rule says otherwise, which is for whoever resolves it to know.
        Exit::TimeLimit => (timeout_category, codes::TIME_LIMIT_EXCEEDED),
    }
}

fn of_broker(error: BrokerError, timeout_category: Category) -> (Category, &'static str) {
    match error {
        BrokerError::LeaderElection => (Category::Transient, codes::LEADER_ELECTION),
        BrokerError::Unavailable => (Category::Transient, codes::BROKER_UNAVAILABLE),
        BrokerError::TimedOut => (timeout_category, codes::NETWORK_TIMEOUT),
        BrokerError::QuotaExceeded => (Category::RateLimited, codes::QUOTA_EXCEEDED),
        BrokerError::StoreThrottled => (Category::Transient, codes::STORE_THROTTLED),
        BrokerError::QueueNotFound => (Category::Fatal, codes::QUEUE_NOT_FOUND),
        BrokerError::Unauthorized => (Category::Fatal, codes::UNAUTHORIZED),
        BrokerError::MessageTooLarge => (Category::Permanent, codes::MESSAGE_TOO_LARGE),
        BrokerError::Other => (Category::Unknown, codes::UNKNOWN_ERROR),
    }
}

/// Codes that callers report and what they are, beside those that name a timeout.
#[rustfmt::skip]
const REPORTED: [(&str, Category); 28] = [
    ("DHT_UNAVAILABLE",             Category::Transient),
    ("TEMPORARY_FAILURE",           Category::Transient),
    (codes::CONNECTION_REFUSED,     Category::Transient),
    (codes::CONNECTION_RESET,       Category::Transient),
    (codes::DNS_FAILURE,            Category::Transient),
    (codes::TLS_FAILURE,            Category::Transient),
    (codes::NETWORK_UNREACHABLE,    Category::Transient),
    (codes::SERVICE_UNAVAILABLE,    Category::Transient),
    (codes::LEADER_ELECTION,        Category::Transient),
    (codes::BROKER_UNAVAILABLE,     Category::Transient),
    (codes::STORE_THROTTLED,        Category::Transient),
    (codes::RATE_LIMITED,           Category::RateLimited),
    (codes::QUOTA_EXCEEDED,         Category::RateLimited),
    ("INVALID_PUBLIC_KEY",          Category::Permanent),
    ("INVALID_NIP05",               Category::Permanent),
    ("RECORD_NOT_FOUND",            Category::Permanent),
    ("MALFORMED_RESPONSE",          Category::Permanent),
    (codes::SIGNATURE_INVALID,      Category::Permanent),
    (codes::BAD_REQUEST,            Category::Permanent),
    (codes::NOT_FOUND,              Category::Permanent),
    (codes::CONFLICT,               Category::Permanent),
    (codes::DESERIALIZATION_FAILED, Category::Invalid),
    (codes::SCHEMA_VIOLATION,       Category::Invalid),
    (codes::UNAUTHORIZED,           Category::Fatal),
    (codes::FORBIDDEN,              Category::Fatal),
    (codes::CONFIG_MISSING,         Category::Fatal),
    (codes::QUEUE_NOT_FOUND,        Category::Fatal),
    (codes::UNKNOWN_ERROR,          Category::Unknown),
];

fn of_reported(code: &str, timeout_category: Category) -> Usual {
    let timeouts = [codes::NETWORK_TIMEOUT, "RELAY_TIMEOUT"];
    if let Some(timeout) = timeouts.into_iter().find(|known| *known == code) {
        return Usual::Failed(timeout_category, Code::of(timeout));
    }
    match REPORTED.into_iter().find(|(known, _)| *known == code) {
        Some((known, category)) => Usual::Failed(category, Code::of(known)),
        None => Usual::Failed(Category::Unknown, Code::reported(beginning(code))),
    }
}

fn connection(what: &What<'_>) -> Connection {
    match what {
        What::Transport(
            TransportError::Timeout(CallPart::Connect | CallPart::Tls)
            | TransportError::Refused
            | TransportError::Reset
            | TransportError::Dns
            | TransportError::Tls
            | TransportError::Unreachable,
        )
        | What::Broker(BrokerError::Unavailable) => Connection::Failed,
        What::Transport(
            TransportError::Timeout(CallPart::Headers | CallPart::Whole)
            | TransportError::ClosedEarly
            | TransportError::Protocol,
        )
        | What::Broker(
            BrokerError::LeaderElection
            | BrokerError::TimedOut
            | BrokerError::QuotaExceeded
            | BrokerError::StoreThrottled
            | BrokerError::QueueNotFound
            | BrokerError::Unauthorized
            | BrokerError::MessageTooLarge
            | BrokerError::Other,
        )
        | What::Http { .. }
        | What::Process(_)
        | What::Taken
        | What::Malformed(_)
        | What::SignatureInvalid
        | What::ConfigMissing
        | What::Internal
        | What::Reported { .. } => Connection::Made,
    }
}

fn fits(when: &Matcher, answer: &Answer<'_>, usual: &Usual) -> bool {
    let Matcher { statuses, code, header, message } = when;
    let status_fits = match answer.what.status() {
        Some(status) => statuses.iter().any(|range| range.contains(status)),
        None => false,
    };
    let default_code = match usual {
        // Only a row that names the status may speak against a success.
        Usual::Delivered if statuses.is_empty() => return false,
        Usual::Delivered => None,
        Usual::Failed(_, code) => Some(code),
    };
    let header_fits = header.as_ref().is_none_or(|header| {
        let found = answer.what.header(&header.name);
        found.is_some_and(|found| header.value.as_ref().is_none_or(|value| found.trim() == value))
    });
    (statuses.is_empty() || status_fits)
        && code.as_ref().is_none_or(|code| Some(code) == default_code)
        && header_fits
        && message.as_ref().is_none_or(|pattern| {
            [answer.message, answer.what.body()].into_iter().any(|text| pattern.is_match(beginning(text)))
        })
}

/// As much of a text as is looked at and kept.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(limits::MESSAGE_BYTES_MAX)]
}

#[cfg(test)]
mod tests;
