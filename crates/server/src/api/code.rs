//! Error codes of the API: status and meaning.
//!
//! Invariant: every error has a code of this list, from which the error page and the OpenAPI description are
//! generated. A code never changes its meaning.

use axum::http::StatusCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ApiCode {
    BadRequest,
    Validation,
    Unauthorized,
    Forbidden,
    PathNotFound,
    SourceNotFound,
    KeyNotFound,
    RefusedBodyNotFound,
    EventNotFound,
    DeliveryNotFound,
    ServiceNotFound,
    DependencyNotFound,
    ReceiverNotFound,
    DeadLetterNotFound,
    ReplayNotFound,
    MethodNotAllowed,
    RequestTimeout,
    Conflict,
    AmbiguousId,
    ReplayConflict,
    ReplayState,
    OnlyPoison,
    ServiceGone,
    EventNotWanted,
    NoBreaker,
    ServiceInBook,
    PayloadTooLarge,
    UriTooLong,
    UnsupportedEncoding,
    RateLimitExceeded,
    HeadersTooLarge,
    Internal,
    BacklogFull,
    OutcomeUnknown,
    Unavailable,
}

/// Status, code and meaning (a sentence without its full stop).
#[rustfmt::skip]
const TABLE: [(ApiCode, StatusCode, &str, &str); 35] = [
    (ApiCode::BadRequest, StatusCode::BAD_REQUEST, "BAD_REQUEST", "not a valid HTTP/1.1 request"),
    (ApiCode::Validation, StatusCode::BAD_REQUEST, "VALIDATION_ERROR", "invalid request: `details.field` and `details.reason`; for a batch `details.index`; for an import or a scenario `details.problems` with lines"),
    (ApiCode::Unauthorized, StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "missing or invalid credentials, or a missing or wrong webhook signature"),
    (ApiCode::Forbidden, StatusCode::FORBIDDEN, "FORBIDDEN", "the key's role or services do not allow it: `details.roles`; or, without authentication, the `Host` is not this machine or the request is cross-origin"),
    (ApiCode::PathNotFound, StatusCode::NOT_FOUND, "PATH_NOT_FOUND", "no such path"),
    (ApiCode::SourceNotFound, StatusCode::NOT_FOUND, "SOURCE_NOT_FOUND", "the rule book has no such webhook source"),
    (ApiCode::KeyNotFound, StatusCode::NOT_FOUND, "KEY_NOT_FOUND", "no key with this id"),
    (ApiCode::RefusedBodyNotFound, StatusCode::NOT_FOUND, "REFUSED_BODY_NOT_FOUND", "no refused call with this number: only the latest are kept"),
    (ApiCode::EventNotFound, StatusCode::NOT_FOUND, "EVENT_NOT_FOUND", "no event with this id or receipt"),
    (ApiCode::DeliveryNotFound, StatusCode::NOT_FOUND, "DELIVERY_NOT_FOUND", "no delivery whose id starts with this"),
    (ApiCode::ServiceNotFound, StatusCode::NOT_FOUND, "SERVICE_NOT_FOUND", "the rule book has no such service: `details.services` lists all, including removed ones with deliveries left"),
    (ApiCode::DependencyNotFound, StatusCode::NOT_FOUND, "DEPENDENCY_NOT_FOUND", "the rule book has no such dependency: `details.dependencies` lists all"),
    (ApiCode::ReceiverNotFound, StatusCode::NOT_FOUND, "RECEIVER_NOT_FOUND", "the rule book has no such receiver: `details.receivers` lists all"),
    (ApiCode::DeadLetterNotFound, StatusCode::NOT_FOUND, "DEAD_LETTER_NOT_FOUND", "no such dead letter, or none matches"),
    (ApiCode::ReplayNotFound, StatusCode::NOT_FOUND, "REPLAY_NOT_FOUND", "no replay with this number"),
    (ApiCode::MethodNotAllowed, StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "the path does not support this method: see `Allow`"),
    (ApiCode::RequestTimeout, StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", "the body was not received within 10 s"),
    (ApiCode::Conflict, StatusCode::CONFLICT, "CONFLICT", "a different event with this source and id exists, or the dead letter is in another state"),
    (ApiCode::AmbiguousId, StatusCode::CONFLICT, "AMBIGUOUS_ID", "several ids start with this: `details.candidates` lists them"),
    (ApiCode::ReplayConflict, StatusCode::CONFLICT, "REPLAY_CONFLICT", "the dead letters belong to another replay: `details.replay` or `details.replays`"),
    (ApiCode::ReplayState, StatusCode::CONFLICT, "REPLAY_STATE", "the replay has ended, or is already in this state: `details.state`"),
    (ApiCode::OnlyPoison, StatusCode::CONFLICT, "ONLY_POISON", "only poison matches: set `include_poison` to include it"),
    (ApiCode::ServiceGone, StatusCode::CONFLICT, "SERVICE_GONE", "the service is no longer in the rule book"),
    (ApiCode::EventNotWanted, StatusCode::CONFLICT, "EVENT_NOT_WANTED", "the service does not subscribe to such events"),
    (ApiCode::NoBreaker, StatusCode::CONFLICT, "NO_BREAKER", "the dependency has no breaker to trip or reset"),
    (ApiCode::ServiceInBook, StatusCode::CONFLICT, "SERVICE_IN_BOOK", "the service and its rows are in the rule book: only deliveries of a removed service or row can be sent elsewhere or ended"),
    (ApiCode::PayloadTooLarge, StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", "the body has more than `details.bytes_max` bytes"),
    (ApiCode::UriTooLong, StatusCode::URI_TOO_LONG, "URI_TOO_LONG", "the path with its query is too long"),
    (ApiCode::UnsupportedEncoding, StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_ENCODING", "`Content-Encoding`, such as gzip, is not supported: send the body uncompressed"),
    (ApiCode::RateLimitExceeded, StatusCode::TOO_MANY_REQUESTS, "RATE_LIMIT_EXCEEDED", "the rate limit of the caller, its address or the source is exceeded: see `RateLimit`"),
    (ApiCode::HeadersTooLarge, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "HEADERS_TOO_LARGE", "the headers are too large"),
    (ApiCode::Internal, StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_SERVER_ERROR", "internal error: see the server's log for the `X-Correlation-Id` of the response"),
    (ApiCode::BacklogFull, StatusCode::SERVICE_UNAVAILABLE, "BACKLOG_FULL", "the backlog of a subscribed service has reached its `waiting` limit: `details.service`"),
    (ApiCode::OutcomeUnknown, StatusCode::SERVICE_UNAVAILABLE, "OUTCOME_UNKNOWN", "the commit failed and may or may not be durable: an event can be sent again with the same id; check the audit log before repeating another command"),
    (ApiCode::Unavailable, StatusCode::SERVICE_UNAVAILABLE, "SERVICE_UNAVAILABLE", "temporarily unavailable: disk nearly full, store failing, overload, no response within 15 s, another simulation running, or shutdown"),
];

impl ApiCode {
    /// In the order of the table, which is that of the statuses.
    pub(crate) const ALL: [Self; TABLE.len()] = {
        let mut all = [Self::BadRequest; TABLE.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = TABLE[index].0;
            assert!(all[index] as usize == index, "each code has its row, in the order of the codes");
            index += 1;
        }
        all
    };

    pub(crate) const fn as_str(self) -> &'static str {
        TABLE[self as usize].2
    }

    pub(crate) const fn status(self) -> StatusCode {
        TABLE[self as usize].1
    }

    /// The meaning, a sentence without its full stop.
    pub(crate) const fn meaning(self) -> &'static str {
        TABLE[self as usize].3
    }

    pub(crate) fn has_retry_after(self) -> bool {
        matches!(self.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn page() -> String {
        let mut page = "# Errors\n\nEvery error of the API is `{\"error\": {\"code\", \"message\", \"details\"}}`: `code` is for machines and never changes its meaning, `message` is for people and may change, `details` has further values. The response has the `X-Correlation-Id` of the request, or a new one. The errors of each request are in [the API description](openapi.json), which a server has at `/openapi.json` and `redrive openapi` prints.\n\nThis page is generated.\n\n| status | code | meaning |\n| --- | --- | --- |\n".to_owned();
        for code in ApiCode::ALL {
            let wait = if code.has_retry_after() { ". See `Retry-After`" } else { "" };
            let (status, word, says) = (code.status().as_u16(), code.as_str(), code.meaning());
            page.push_str(&format!("| {status} | `{word}` | {says}{wait} |\n"));
        }
        page
    }

    /// Update with `REDRIVE_UPDATE=1 cargo test -p redrive-server errors`.
    #[test]
    fn the_page_of_errors_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/errors.md");
        if std::env::var_os("REDRIVE_UPDATE").is_some() {
            std::fs::write(path, page()).expect("the docs can be written");
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == page(),
            "docs/reference/errors.md is out of date: run REDRIVE_UPDATE=1 cargo test -p redrive-server errors"
        );
    }

    #[test]
    fn each_code_is_listed_once_in_the_order_of_statuses() {
        let words: BTreeSet<&str> = ApiCode::ALL.into_iter().map(ApiCode::as_str).collect();
        assert_eq!(words.len(), ApiCode::ALL.len());
        assert!(ApiCode::ALL.is_sorted());
        assert!(ApiCode::ALL.is_sorted_by_key(|code| code.status()));
        // The last code has the highest number, so none is missing.
        assert_eq!(ApiCode::ALL.last().map(|last| *last as usize), Some(ApiCode::ALL.len() - 1));
    }
}
