//! What an answer means: delivered, or a failure of one of the seven categories.
//!
//! Invariants:
//! - every answer has a meaning; what nobody thought of is `unknown`;
//! - a rule's own rows come first, the first that fits wins, and its position is kept, so that a
//!   verdict can name its line;
//! - a success stays one unless a row names its status: a pattern meant for failures must not turn a
//!   delivered event into one that is sent again.

use std::time::Duration;

use crate::limits;
use crate::policy::answer::{Answer, BrokerError, CallPart, Exit, Malformed, TransportError, What};
use crate::policy::category::{Category, Code, codes};
use crate::policy::reported::reported_code;
use crate::policy::rule::{Matcher, Meaning, Override};
use crate::position::Position;

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
    /// Nobody tried, for a reason of our own: it says nothing of the target, and burns no retry.
    NotTried,
}

/// Says what an answer means. `timeout_category` is what the rule takes a timeout for.
#[must_use]
pub fn classify(answer: &Answer<'_>, overrides: &[Override], timeout_category: Category) -> Outcome {
    let usual = usual_meaning(answer, timeout_category);
    let reported = reported_code(&answer.what);
    let row = overrides.iter().find(|row| fits(&row.when, answer, &usual, reported.as_ref()));
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
    let connection = connection(&answer.what);
    let may_ask_to_wait = category == Category::RateLimited
        || default_category == Some(Category::RateLimited)
        || status == Some(503);
    let retry_after = match connection {
        Connection::Made | Connection::Failed => answer.retry_after.filter(|_| may_ask_to_wait),
        Connection::NotTried => Some(limits::SECRET_RETRY_AFTER),
    };
    Outcome::Failed(Failure {
        category,
        code: row.and_then(|row| row.code.clone()).unwrap_or_else(|| own_code(default_code, reported)),
        status,
        message: beginning(answer.message).to_owned(),
        retry_after: retry_after.map(|wait| wait.min(limits::RETRY_AFTER_MAX)),
        matched,
        default_category,
        connection,
    })
}

/// The code of a failure where no row gives it one: the target's own, which says more than its status, but for
/// statuses that have a meaning of their own to alerts and throttles.
fn own_code(usual: Code, reported: Option<Code>) -> Code {
    match usual.as_str() {
        codes::UNAUTHORIZED | codes::FORBIDDEN | codes::RATE_LIMITED => usual,
        _ => reported.unwrap_or(usual),
    }
}

/// What an answer means where no row of the book says otherwise.
enum Usual {
    Delivered,
    Failed(Category, Code),
}

fn usual_meaning(answer: &Answer<'_>, timeout_category: Category) -> Usual {
    let Known { code, kind } = match &answer.what {
        What::Http { status: 200..=299, .. } | What::Taken | What::Process(Exit::Code(0)) => {
            return Usual::Delivered;
        }
        What::Http { status: 403, .. } if asks_to_wait(answer) => const { known(codes::RATE_LIMITED) },
        What::Http { status, .. } => of_status(*status),
        What::Transport(error) => of_transport(*error),
        What::Process(exit) => of_process(*exit),
        What::Broker(error) => of_broker(*error),
        What::Malformed(Malformed::DoesNotParse) => const { known(codes::DESERIALIZATION_FAILED) },
        What::Malformed(Malformed::ViolatesSchema) => const { known(codes::SCHEMA_VIOLATION) },
        What::SignatureInvalid => const { known(codes::SIGNATURE_INVALID) },
        What::ConfigMissing => const { known(codes::CONFIG_MISSING) },
        What::SecretUnavailable => const { known(codes::SECRET_UNAVAILABLE) },
        What::Internal => const { known(codes::INTERNAL_ERROR) },
        // What somebody else calls internal is not our own fault.
        What::Reported { code } => match KNOWN.iter().find(|known| known.code == *code) {
            Some(known) if !matches!(known.kind, Kind::Is(Category::Internal)) => *known,
            Some(_) | None => return Usual::Failed(Category::Unknown, Code::reported(beginning(code))),
        },
    };
    let category = match kind {
        Kind::Is(category) => category,
        Kind::Timeout => timeout_category,
    };
    Usual::Failed(category, Code::of(code))
}

/// Some say "too many requests" by 403; a true refusal names no time and counts no requests.
fn asks_to_wait(answer: &Answer<'_>) -> bool {
    let none_left = answer.what.header("x-ratelimit-remaining").is_some_and(|left| left.trim() == "0");
    answer.retry_after.is_some() || answer.what.header("retry-after").is_some() || none_left
}

const fn of_status(status: u16) -> Known {
    match status {
        300..=399 => const { known(codes::REDIRECTED) },
        400 => const { known(codes::BAD_REQUEST) },
        401 => const { known(codes::UNAUTHORIZED) },
        403 => const { known(codes::FORBIDDEN) },
        404 => const { known(codes::NOT_FOUND) },
        408 => const { known(codes::REQUEST_TIMEOUT) },
        409 => const { known(codes::CONFLICT) },
        410 => const { known(codes::GONE) },
        413 => const { known(codes::PAYLOAD_TOO_LARGE) },
        422 => const { known(codes::UNPROCESSABLE) },
        425 => const { known(codes::TOO_EARLY) },
        429 | 529 => const { known(codes::RATE_LIMITED) },
        402..=499 => const { known(codes::CLIENT_ERROR) },
        501 => const { known(codes::NOT_IMPLEMENTED) },
        502 => const { known(codes::BAD_GATEWAY) },
        503 => const { known(codes::SERVICE_UNAVAILABLE) },
        504 => const { known(codes::GATEWAY_TIMEOUT) },
        500..=599 => const { known(codes::SERVER_ERROR) },
        0..=299 | 600.. => const { known(codes::UNEXPECTED_STATUS) },
    }
}

const fn of_transport(error: TransportError) -> Known {
    match error {
        TransportError::Timeout(_) => const { known(codes::NETWORK_TIMEOUT) },
        TransportError::Refused => const { known(codes::CONNECTION_REFUSED) },
        TransportError::Reset | TransportError::ClosedEarly => const { known(codes::CONNECTION_RESET) },
        TransportError::Dns => const { known(codes::DNS_FAILURE) },
        TransportError::Tls => const { known(codes::TLS_FAILURE) },
        TransportError::Unreachable => const { known(codes::NETWORK_UNREACHABLE) },
        TransportError::AddressRefused => const { known(codes::ADDRESS_REFUSED) },
        TransportError::Protocol => const { known(codes::PROTOCOL_ERROR) },
    }
}

const fn of_process(exit: Exit) -> Known {
    match exit {
        Exit::Code(_) => const { known(codes::PROCESS_CRASHED) },
        Exit::Signal(_) => const { known(codes::PROCESS_KILLED) },
        Exit::OutOfMemory => const { known(codes::OUT_OF_MEMORY) },
        Exit::ReportedError => const { known(codes::PROCESS_ERROR) },
        Exit::SpawnFailed => const { known(codes::SPAWN_FAILED) },
        // A timeout is permanent unless the rule says otherwise, which is for whoever resolves it to know.
        Exit::TimeLimit => const { known(codes::TIME_LIMIT_EXCEEDED) },
    }
}

const fn of_broker(error: BrokerError) -> Known {
    match error {
        BrokerError::LeaderElection => const { known(codes::LEADER_ELECTION) },
        BrokerError::Unavailable => const { known(codes::BROKER_UNAVAILABLE) },
        BrokerError::TimedOut => const { known(codes::NETWORK_TIMEOUT) },
        BrokerError::QuotaExceeded => const { known(codes::QUOTA_EXCEEDED) },
        BrokerError::StoreThrottled => const { known(codes::STORE_THROTTLED) },
        BrokerError::QueueNotFound => const { known(codes::QUEUE_NOT_FOUND) },
        BrokerError::Unauthorized => const { known(codes::UNAUTHORIZED) },
        BrokerError::MessageTooLarge => const { known(codes::MESSAGE_TOO_LARGE) },
        BrokerError::Refused => const { known(codes::MESSAGE_REFUSED) },
        BrokerError::Other => const { known(codes::UNKNOWN_ERROR) },
    }
}

/// A code and what a failure with it is.
#[derive(Clone, Copy)]
struct Known {
    code: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Always this.
    Is(Category),
    /// What the rule takes a timeout for.
    Timeout,
}

impl Known {
    const fn new(code: &'static str, kind: Kind) -> Self {
        Self { code, kind }
    }
}

/// What is known of a code, looked up while compiling: one that the table lacks does not build.
const fn known(code: &str) -> Known {
    let mut index = 0;
    while !is_same(KNOWN[index].code.as_bytes(), code.as_bytes()) {
        index += 1;
    }
    KNOWN[index]
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}

/// The codes that an attempt may fail with and what each is, whether we saw it or a caller reports it.
#[rustfmt::skip]
const KNOWN: [Known; 54] = [
    Known::new(codes::NETWORK_TIMEOUT,        Kind::Timeout),
    Known::new(codes::TIME_LIMIT_EXCEEDED,    Kind::Timeout),
    Known::new("RELAY_TIMEOUT",               Kind::Timeout),
    Known::new("DHT_UNAVAILABLE",             Kind::Is(Category::Transient)),
    Known::new("TEMPORARY_FAILURE",           Kind::Is(Category::Transient)),
    Known::new(codes::CONNECTION_REFUSED,     Kind::Is(Category::Transient)),
    Known::new(codes::CONNECTION_RESET,       Kind::Is(Category::Transient)),
    Known::new(codes::DNS_FAILURE,            Kind::Is(Category::Transient)),
    Known::new(codes::TLS_FAILURE,            Kind::Is(Category::Transient)),
    Known::new(codes::NETWORK_UNREACHABLE,    Kind::Is(Category::Transient)),
    Known::new(codes::REQUEST_TIMEOUT,        Kind::Is(Category::Transient)),
    Known::new(codes::TOO_EARLY,              Kind::Is(Category::Transient)),
    Known::new(codes::BAD_GATEWAY,            Kind::Is(Category::Transient)),
    Known::new(codes::SERVICE_UNAVAILABLE,    Kind::Is(Category::Transient)),
    Known::new(codes::GATEWAY_TIMEOUT,        Kind::Is(Category::Transient)),
    Known::new(codes::LEADER_ELECTION,        Kind::Is(Category::Transient)),
    Known::new(codes::BROKER_UNAVAILABLE,     Kind::Is(Category::Transient)),
    Known::new(codes::STORE_THROTTLED,        Kind::Is(Category::Transient)),
    Known::new(codes::SECRET_UNAVAILABLE,     Kind::Is(Category::Transient)),
    Known::new(codes::RATE_LIMITED,           Kind::Is(Category::RateLimited)),
    Known::new(codes::QUOTA_EXCEEDED,         Kind::Is(Category::RateLimited)),
    Known::new("INVALID_PUBLIC_KEY",          Kind::Is(Category::Permanent)),
    Known::new("INVALID_NIP05",               Kind::Is(Category::Permanent)),
    Known::new("RECORD_NOT_FOUND",            Kind::Is(Category::Permanent)),
    Known::new("MALFORMED_RESPONSE",          Kind::Is(Category::Permanent)),
    Known::new(codes::SIGNATURE_INVALID,      Kind::Is(Category::Permanent)),
    Known::new(codes::BAD_REQUEST,            Kind::Is(Category::Permanent)),
    Known::new(codes::NOT_FOUND,              Kind::Is(Category::Permanent)),
    Known::new(codes::CONFLICT,               Kind::Is(Category::Permanent)),
    Known::new(codes::GONE,                   Kind::Is(Category::Permanent)),
    Known::new(codes::PAYLOAD_TOO_LARGE,      Kind::Is(Category::Permanent)),
    Known::new(codes::UNPROCESSABLE,          Kind::Is(Category::Permanent)),
    Known::new(codes::CLIENT_ERROR,           Kind::Is(Category::Permanent)),
    Known::new(codes::REDIRECTED,             Kind::Is(Category::Permanent)),
    Known::new(codes::NOT_IMPLEMENTED,        Kind::Is(Category::Permanent)),
    Known::new(codes::SPAWN_FAILED,           Kind::Is(Category::Permanent)),
    Known::new(codes::MESSAGE_TOO_LARGE,      Kind::Is(Category::Permanent)),
    Known::new(codes::MESSAGE_REFUSED,        Kind::Is(Category::Permanent)),
    Known::new(codes::DESERIALIZATION_FAILED, Kind::Is(Category::Invalid)),
    Known::new(codes::SCHEMA_VIOLATION,       Kind::Is(Category::Invalid)),
    Known::new(codes::UNAUTHORIZED,           Kind::Is(Category::Fatal)),
    Known::new(codes::FORBIDDEN,              Kind::Is(Category::Fatal)),
    Known::new(codes::CONFIG_MISSING,         Kind::Is(Category::Fatal)),
    Known::new(codes::QUEUE_NOT_FOUND,        Kind::Is(Category::Fatal)),
    Known::new(codes::ADDRESS_REFUSED,        Kind::Is(Category::Fatal)),
    Known::new(codes::SERVER_ERROR,           Kind::Is(Category::Unknown)),
    Known::new(codes::UNEXPECTED_STATUS,      Kind::Is(Category::Unknown)),
    Known::new(codes::PROTOCOL_ERROR,         Kind::Is(Category::Unknown)),
    Known::new(codes::PROCESS_CRASHED,        Kind::Is(Category::Unknown)),
    Known::new(codes::PROCESS_KILLED,         Kind::Is(Category::Unknown)),
    Known::new(codes::OUT_OF_MEMORY,          Kind::Is(Category::Unknown)),
    Known::new(codes::PROCESS_ERROR,          Kind::Is(Category::Unknown)),
    Known::new(codes::UNKNOWN_ERROR,          Kind::Is(Category::Unknown)),
    Known::new(codes::INTERNAL_ERROR,         Kind::Is(Category::Internal)),
];

fn connection(what: &What<'_>) -> Connection {
    match what {
        What::SecretUnavailable => Connection::NotTried,
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
            | TransportError::AddressRefused
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
            | BrokerError::Refused
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

fn fits(when: &Matcher, answer: &Answer<'_>, usual: &Usual, reported: Option<&Code>) -> bool {
    fits_otherwise(when, answer, usual, reported) && has_header(when, answer)
}

/// Whether a row would fit if the answer had the header that the row looks for: for those who no longer know
/// what headers it had.
#[must_use]
pub fn fits_but_for_header(when: &Matcher, answer: &Answer<'_>) -> bool {
    let reported = reported_code(&answer.what);
    fits_otherwise(when, answer, &usual_meaning(answer, Category::Transient), reported.as_ref())
}

fn has_header(when: &Matcher, answer: &Answer<'_>) -> bool {
    when.header.as_ref().is_none_or(|header| {
        let found = answer.what.header(&header.name);
        found.is_some_and(|found| header.value.as_ref().is_none_or(|value| found.trim() == value))
    })
}

/// Whether everything fits but the header.
fn fits_otherwise(when: &Matcher, answer: &Answer<'_>, usual: &Usual, reported: Option<&Code>) -> bool {
    let Matcher { statuses, code, header: _, message } = when;
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
    (statuses.is_empty() || status_fits)
        && code.as_ref().is_none_or(|code| Some(code) == default_code || Some(code) == reported)
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
