//! What an answer means: delivered, or a failure of one of the seven categories.
//!
//! Invariants:
//! - every answer has a meaning; an unexpected one is `unknown`;
//! - a rule's own rows come first, the first match wins, and its position is kept, so that a verdict can name
//!   its line;
//! - a success stays one unless a row names its status: a pattern for failures must not turn a delivered
//!   event into one that is sent again.

use std::time::Duration;

use crate::book::problem::Position;
use crate::limits;
use crate::policy::answer::{
    AnswerKind, BrokerError, CallPart, Exit, MalformedEvent, TargetAnswer, TransportError,
};
use crate::policy::category::{Category, FailureCode, codes};
use crate::policy::reported::reported_code;
use crate::policy::rule::{Matcher, Override, OverrideMeaning};

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Delivered { matched: Option<Position> },
    Failed(Failure),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub category: Category,
    pub code: FailureCode,
    pub status: Option<u16>,
    /// At most [`limits::MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
    pub retry_after: Option<Duration>,
    pub matched: Option<Position>,
    /// The category without that row; `None` if it would have been a success.
    pub default_category: Option<Category>,
    pub connection: ConnectionStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionStatus {
    /// It was, or there is none to make; the failure came after.
    Made,
    /// It was not, or it broke: a rule's `fatal_after` counts from the first of these in a row.
    Failed,
    /// Not tried for a reason of our own: says nothing about the target, and uses no retry.
    NotTried,
}

#[must_use]
pub fn classify(answer: &TargetAnswer<'_>, overrides: &[Override], timeout_category: Category) -> Outcome {
    let usual = usual_meaning(answer, timeout_category);
    let reported = reported_code(&answer.what);
    let row = overrides.iter().find(|row| fits(&row.when, answer, &usual, reported.as_ref()));
    let matched = row.map(|row| row.position);
    let (default_category, default_code) = match usual {
        DefaultMeaning::Delivered => (None, FailureCode::of(codes::UNKNOWN_ERROR)),
        DefaultMeaning::Failed(category, code) => (Some(category), code),
    };
    let category = match row.map(|row| row.meaning).or(default_category.map(OverrideMeaning::Failure)) {
        None | Some(OverrideMeaning::Delivered) => return Outcome::Delivered { matched },
        Some(OverrideMeaning::Failure(category)) => category,
    };
    let status = answer.what.status();
    let connection = connection(&answer.what);
    let may_ask_to_wait = category == Category::RateLimited
        || default_category == Some(Category::RateLimited)
        || status == Some(503);
    let retry_after = match connection {
        ConnectionStatus::Made | ConnectionStatus::Failed => answer.retry_after.filter(|_| may_ask_to_wait),
        ConnectionStatus::NotTried => Some(limits::SECRET_RETRY_AFTER),
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

/// The code of a failure where no row gives one: the target's own, which says more than its status, except
/// for statuses that alerts and throttles depend on.
fn own_code(usual: FailureCode, reported: Option<FailureCode>) -> FailureCode {
    match usual.as_str() {
        codes::UNAUTHORIZED | codes::FORBIDDEN | codes::RATE_LIMITED => usual,
        _ => reported.unwrap_or(usual),
    }
}

enum DefaultMeaning {
    Delivered,
    Failed(Category, FailureCode),
}

fn usual_meaning(answer: &TargetAnswer<'_>, timeout_category: Category) -> DefaultMeaning {
    let KnownCode { code, kind } = match &answer.what {
        AnswerKind::Http { status: 200..=299, .. }
        | AnswerKind::Taken
        | AnswerKind::Process(Exit::Code(0)) => {
            return DefaultMeaning::Delivered;
        }
        AnswerKind::Http { status: 403, .. } if asks_to_wait(answer) => const { known(codes::RATE_LIMITED) },
        AnswerKind::Http { status, .. } => of_status(*status),
        AnswerKind::Unexpected { .. } => const { known(codes::UNEXPECTED_RESPONSE) },
        AnswerKind::Transport(error) => of_transport(*error),
        AnswerKind::Process(exit) => of_process(*exit),
        AnswerKind::Broker(error) => of_broker(*error),
        AnswerKind::Malformed(MalformedEvent::DoesNotParse) => const { known(codes::DESERIALIZATION_FAILED) },
        AnswerKind::Malformed(MalformedEvent::ViolatesSchema) => const { known(codes::SCHEMA_VIOLATION) },
        AnswerKind::SignatureInvalid => const { known(codes::SIGNATURE_INVALID) },
        AnswerKind::ConfigMissing => const { known(codes::CONFIG_MISSING) },
        AnswerKind::SecretUnavailable => const { known(codes::SECRET_UNAVAILABLE) },
        AnswerKind::Internal => const { known(codes::INTERNAL_ERROR) },
        AnswerKind::Reported { code } => match KNOWN.iter().find(|known| known.code == *code) {
            Some(known) if !matches!(known.kind, CodeMeaning::Is(Category::Internal)) => *known,
            Some(_) | None => {
                return DefaultMeaning::Failed(Category::Unknown, FailureCode::reported(beginning(code)));
            }
        },
    };
    let category = match kind {
        CodeMeaning::Is(category) => category,
        CodeMeaning::Timeout => timeout_category,
    };
    DefaultMeaning::Failed(category, FailureCode::of(code))
}

/// Some servers say "too many requests" by 403; a true refusal names no time and counts no requests.
fn asks_to_wait(answer: &TargetAnswer<'_>) -> bool {
    let none_left = answer.what.header("x-ratelimit-remaining").is_some_and(|left| left.trim() == "0");
    answer.retry_after.is_some() || answer.what.header("retry-after").is_some() || none_left
}

const fn of_status(status: u16) -> KnownCode {
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

const fn of_transport(error: TransportError) -> KnownCode {
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

const fn of_process(exit: Exit) -> KnownCode {
    match exit {
        Exit::Code(_) => const { known(codes::PROCESS_CRASHED) },
        Exit::Signal(_) => const { known(codes::PROCESS_KILLED) },
        Exit::OutOfMemory => const { known(codes::OUT_OF_MEMORY) },
        Exit::ReportedError => const { known(codes::PROCESS_ERROR) },
        Exit::SpawnFailed => const { known(codes::SPAWN_FAILED) },
        Exit::RuntimeUnavailable => const { known(codes::RUNTIME_UNAVAILABLE) },
        // A timeout is permanent unless the rule says otherwise, which its resolution decides.
        Exit::TimeLimit => const { known(codes::TIME_LIMIT_EXCEEDED) },
    }
}

const fn of_broker(error: BrokerError) -> KnownCode {
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

#[derive(Clone, Copy)]
struct KnownCode {
    code: &'static str,
    kind: CodeMeaning,
}

#[derive(Clone, Copy)]
enum CodeMeaning {
    Is(Category),
    Timeout,
}

impl KnownCode {
    const fn new(code: &'static str, kind: CodeMeaning) -> Self {
        Self { code, kind }
    }
}

/// Looked up at compile time: a code that the table lacks does not build.
const fn known(code: &str) -> KnownCode {
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

#[rustfmt::skip]
const KNOWN: [KnownCode; 56] = [
    KnownCode::new(codes::NETWORK_TIMEOUT,        CodeMeaning::Timeout),
    KnownCode::new(codes::TIME_LIMIT_EXCEEDED,    CodeMeaning::Timeout),
    KnownCode::new("RELAY_TIMEOUT",               CodeMeaning::Timeout),
    KnownCode::new("DHT_UNAVAILABLE",             CodeMeaning::Is(Category::Transient)),
    KnownCode::new("TEMPORARY_FAILURE",           CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::CONNECTION_REFUSED,     CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::CONNECTION_RESET,       CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::DNS_FAILURE,            CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::TLS_FAILURE,            CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::NETWORK_UNREACHABLE,    CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::REQUEST_TIMEOUT,        CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::TOO_EARLY,              CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::BAD_GATEWAY,            CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::SERVICE_UNAVAILABLE,    CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::GATEWAY_TIMEOUT,        CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::LEADER_ELECTION,        CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::BROKER_UNAVAILABLE,     CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::STORE_THROTTLED,        CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::RUNTIME_UNAVAILABLE,    CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::SECRET_UNAVAILABLE,     CodeMeaning::Is(Category::Transient)),
    KnownCode::new(codes::RATE_LIMITED,           CodeMeaning::Is(Category::RateLimited)),
    KnownCode::new(codes::QUOTA_EXCEEDED,         CodeMeaning::Is(Category::RateLimited)),
    KnownCode::new("INVALID_PUBLIC_KEY",          CodeMeaning::Is(Category::Permanent)),
    KnownCode::new("INVALID_NIP05",               CodeMeaning::Is(Category::Permanent)),
    KnownCode::new("RECORD_NOT_FOUND",            CodeMeaning::Is(Category::Permanent)),
    KnownCode::new("MALFORMED_RESPONSE",          CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::SIGNATURE_INVALID,      CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::BAD_REQUEST,            CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::NOT_FOUND,              CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::CONFLICT,               CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::GONE,                   CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::PAYLOAD_TOO_LARGE,      CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::UNPROCESSABLE,          CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::CLIENT_ERROR,           CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::REDIRECTED,             CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::NOT_IMPLEMENTED,        CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::SPAWN_FAILED,           CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::MESSAGE_TOO_LARGE,      CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::MESSAGE_REFUSED,        CodeMeaning::Is(Category::Permanent)),
    KnownCode::new(codes::DESERIALIZATION_FAILED, CodeMeaning::Is(Category::Invalid)),
    KnownCode::new(codes::SCHEMA_VIOLATION,       CodeMeaning::Is(Category::Invalid)),
    KnownCode::new(codes::UNAUTHORIZED,           CodeMeaning::Is(Category::Fatal)),
    KnownCode::new(codes::FORBIDDEN,              CodeMeaning::Is(Category::Fatal)),
    KnownCode::new(codes::CONFIG_MISSING,         CodeMeaning::Is(Category::Fatal)),
    KnownCode::new(codes::QUEUE_NOT_FOUND,        CodeMeaning::Is(Category::Fatal)),
    KnownCode::new(codes::ADDRESS_REFUSED,        CodeMeaning::Is(Category::Fatal)),
    KnownCode::new(codes::SERVER_ERROR,           CodeMeaning::Is(Category::Unknown)),
    KnownCode::new(codes::UNEXPECTED_STATUS,      CodeMeaning::Is(Category::Unknown)),
    KnownCode::new(codes::UNEXPECTED_RESPONSE,    CodeMeaning::Is(Category::Unknown)),
    KnownCode::new(codes::PROTOCOL_ERROR,         CodeMeaning::Is(Category::Unknown)),
    KnownCode::new(codes::PROCESS_CRASHED,        CodeMeaning::Is(Category::Unknown)),
    KnownCode::new(codes::PROCESS_KILLED,         CodeMeaning::Is(Category::Unknown)),
    KnownCode::new(codes::OUT_OF_MEMORY,          CodeMeaning::Is(Category::Unknown)),
    KnownCode::new(codes::PROCESS_ERROR,          CodeMeaning::Is(Category::Unknown)),
    KnownCode::new(codes::UNKNOWN_ERROR,          CodeMeaning::Is(Category::Unknown)),
    KnownCode::new(codes::INTERNAL_ERROR,         CodeMeaning::Is(Category::Internal)),
];

fn connection(what: &AnswerKind<'_>) -> ConnectionStatus {
    match what {
        AnswerKind::SecretUnavailable => ConnectionStatus::NotTried,
        AnswerKind::Transport(
            TransportError::Timeout(CallPart::Connect | CallPart::Tls)
            | TransportError::Refused
            | TransportError::Reset
            | TransportError::Dns
            | TransportError::Tls
            | TransportError::Unreachable,
        )
        | AnswerKind::Broker(BrokerError::Unavailable) => ConnectionStatus::Failed,
        AnswerKind::Transport(
            TransportError::Timeout(CallPart::Headers | CallPart::Whole)
            | TransportError::AddressRefused
            | TransportError::ClosedEarly
            | TransportError::Protocol,
        )
        | AnswerKind::Broker(
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
        | AnswerKind::Http { .. }
        | AnswerKind::Unexpected { .. }
        | AnswerKind::Process(_)
        | AnswerKind::Taken
        | AnswerKind::Malformed(_)
        | AnswerKind::SignatureInvalid
        | AnswerKind::ConfigMissing
        | AnswerKind::Internal
        | AnswerKind::Reported { .. } => ConnectionStatus::Made,
    }
}

fn fits(
    when: &Matcher,
    answer: &TargetAnswer<'_>,
    usual: &DefaultMeaning,
    reported: Option<&FailureCode>,
) -> bool {
    fits_otherwise(when, answer, usual, reported) && has_header(when, answer)
}

/// Whether a row would match if the answer had the row's header: for callers that no longer know the headers.
#[must_use]
pub fn fits_but_for_header(when: &Matcher, answer: &TargetAnswer<'_>) -> bool {
    let reported = reported_code(&answer.what);
    fits_otherwise(when, answer, &usual_meaning(answer, Category::Transient), reported.as_ref())
}

fn has_header(when: &Matcher, answer: &TargetAnswer<'_>) -> bool {
    when.header.as_ref().is_none_or(|header| {
        let found = answer.what.header(&header.name);
        found.is_some_and(|found| header.value.as_ref().is_none_or(|value| found.trim() == value))
    })
}

fn fits_otherwise(
    when: &Matcher,
    answer: &TargetAnswer<'_>,
    usual: &DefaultMeaning,
    reported: Option<&FailureCode>,
) -> bool {
    let Matcher { statuses, code, header: _, message } = when;
    let status_fits = match answer.what.status() {
        Some(status) => statuses.iter().any(|range| range.contains(status)),
        None => false,
    };
    let default_code = match usual {
        // Only a row that names the status may override a success.
        DefaultMeaning::Delivered if statuses.is_empty() => return false,
        DefaultMeaning::Delivered => None,
        DefaultMeaning::Failed(_, code) => Some(code),
    };
    (statuses.is_empty() || status_fits)
        && code.as_ref().is_none_or(|code| Some(code) == default_code || Some(code) == reported)
        && message.as_ref().is_none_or(|pattern| {
            [answer.message, answer.what.body()].into_iter().any(|text| pattern.is_match(beginning(text)))
        })
}

fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(limits::MESSAGE_BYTES_MAX)]
}

#[cfg(test)]
mod tests;
