//! Every code that an error of the API may have: its status, and what it means.
//!
//! Invariant: an error is made of a code, so one that is not in this list cannot be answered with; the page
//! of errors and the API's own description are made of it too. A code never changes its meaning.

use axum::http::StatusCode;

/// What went wrong, for machines.
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

/// What is fixed about each code: its status, its word, and what it means, as a sentence without its end.
#[rustfmt::skip]
const TABLE: [(ApiCode, StatusCode, &str, &str); 35] = [
    (ApiCode::BadRequest, StatusCode::BAD_REQUEST, "BAD_REQUEST", "what came is no request that HTTP/1.1 knows"),
    (ApiCode::Validation, StatusCode::BAD_REQUEST, "VALIDATION_ERROR", "something about the request is wrong: `details.field` says what and `details.reason` why; of a batch `details.index` says where, of an import or a scenario `details.problems` lists the lines"),
    (ApiCode::Unauthorized, StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "the signature of a webhook is missing or does not fit, or a key or token is needed and none that is good was shown"),
    (ApiCode::Forbidden, StatusCode::FORBIDDEN, "FORBIDDEN", "the key's role or what it is bound to does not allow it: `details.roles`; or, where nobody is asked for a key, the `Host` is not this machine or a web page from elsewhere asks"),
    (ApiCode::PathNotFound, StatusCode::NOT_FOUND, "PATH_NOT_FOUND", "there is nothing at this path"),
    (ApiCode::SourceNotFound, StatusCode::NOT_FOUND, "SOURCE_NOT_FOUND", "the rule book has no such webhook source"),
    (ApiCode::KeyNotFound, StatusCode::NOT_FOUND, "KEY_NOT_FOUND", "there is no key of this id"),
    (ApiCode::RefusedBodyNotFound, StatusCode::NOT_FOUND, "REFUSED_BODY_NOT_FOUND", "there is no refused call of this number: only the latest are kept"),
    (ApiCode::EventNotFound, StatusCode::NOT_FOUND, "EVENT_NOT_FOUND", "there is no event with this id or receipt"),
    (ApiCode::DeliveryNotFound, StatusCode::NOT_FOUND, "DELIVERY_NOT_FOUND", "there is no delivery whose id begins so"),
    (ApiCode::ServiceNotFound, StatusCode::NOT_FOUND, "SERVICE_NOT_FOUND", "the rule book has no such service, and none that has gone has deliveries left: `details.services` lists those there are"),
    (ApiCode::DependencyNotFound, StatusCode::NOT_FOUND, "DEPENDENCY_NOT_FOUND", "the rule book has no such dependency: `details.dependencies` lists those there are"),
    (ApiCode::ReceiverNotFound, StatusCode::NOT_FOUND, "RECEIVER_NOT_FOUND", "the rule book has no such receiver: `details.receivers` lists those there are"),
    (ApiCode::DeadLetterNotFound, StatusCode::NOT_FOUND, "DEAD_LETTER_NOT_FOUND", "there is no such dead letter, or none matches"),
    (ApiCode::ReplayNotFound, StatusCode::NOT_FOUND, "REPLAY_NOT_FOUND", "there is no replay of this number"),
    (ApiCode::MethodNotAllowed, StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "the path does not take this method: `Allow` says which it takes"),
    (ApiCode::RequestTimeout, StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", "the body did not come within 10 s"),
    (ApiCode::Conflict, StatusCode::CONFLICT, "CONFLICT", "this source and id came before with other content, or the letter is not as it would have to be"),
    (ApiCode::AmbiguousId, StatusCode::CONFLICT, "AMBIGUOUS_ID", "several begin so: `details.candidates` lists them"),
    (ApiCode::ReplayConflict, StatusCode::CONFLICT, "REPLAY_CONFLICT", "the letters belong to another replay: `details.replay` or `details.replays`"),
    (ApiCode::ReplayState, StatusCode::CONFLICT, "REPLAY_STATE", "the replay is over, or as wanted already: `details.state`"),
    (ApiCode::OnlyPoison, StatusCode::CONFLICT, "ONLY_POISON", "only poison matches, and it was not meant: `include_poison` includes it"),
    (ApiCode::ServiceGone, StatusCode::CONFLICT, "SERVICE_GONE", "the rule book has no such service any more"),
    (ApiCode::EventNotWanted, StatusCode::CONFLICT, "EVENT_NOT_WANTED", "the service's rules have no row for such events"),
    (ApiCode::NoBreaker, StatusCode::CONFLICT, "NO_BREAKER", "no rule guards the dependency by a breaker, so there is nothing to trip or reset"),
    (ApiCode::ServiceInBook, StatusCode::CONFLICT, "SERVICE_IN_BOOK", "the rule book has the service and a row for all that waits: only what waits for a removed service or row can be sent elsewhere or ended"),
    (ApiCode::PayloadTooLarge, StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", "the body has more than `details.bytes_max` bytes"),
    (ApiCode::UriTooLong, StatusCode::URI_TOO_LONG, "URI_TOO_LONG", "the path and its query are too long"),
    (ApiCode::UnsupportedEncoding, StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_ENCODING", "the body has a `Content-Encoding`, such as gzip: bodies are taken as they are"),
    (ApiCode::RateLimitExceeded, StatusCode::TOO_MANY_REQUESTS, "RATE_LIMIT_EXCEEDED", "the caller, its address or the source has used up its rate; `RateLimit` says what that is"),
    (ApiCode::HeadersTooLarge, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "HEADERS_TOO_LARGE", "the headers are too many or too long"),
    (ApiCode::Internal, StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_SERVER_ERROR", "something went wrong in the server, whose log says more under the answer's `X-Correlation-Id`"),
    (ApiCode::BacklogFull, StatusCode::SERVICE_UNAVAILABLE, "BACKLOG_FULL", "a service that wants the event has as much waiting as its `waiting` allows: `details.service`"),
    (ApiCode::OutcomeUnknown, StatusCode::SERVICE_UNAVAILABLE, "OUTCOME_UNKNOWN", "the store failed while it was being written, and it is not known whether it was taken: an event that is sent again with the same id is taken once; before another command is repeated, look in the audit"),
    (ApiCode::Unavailable, StatusCode::SERVICE_UNAVAILABLE, "SERVICE_UNAVAILABLE", "it cannot be done at the moment: the disk is nearly full, the store fails, more comes in than can be written, there was no answer within 15 s, another simulation is being played, or the server is stopping"),
];

impl ApiCode {
    /// All of them, in the order of their statuses, which is that of the table.
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

    /// The code as clients see it.
    pub(crate) const fn as_str(self) -> &'static str {
        TABLE[self as usize].2
    }

    pub(crate) const fn status(self) -> StatusCode {
        TABLE[self as usize].1
    }

    /// What it means, as a sentence without its end.
    pub(crate) const fn says(self) -> &'static str {
        TABLE[self as usize].3
    }

    /// Whether it always comes with a `Retry-After`.
    pub(crate) fn asks_to_wait(self) -> bool {
        matches!(self.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The page of all codes.
    fn page() -> String {
        let mut page = "# Errors\n\nEvery error of the API is `{\"error\": {\"code\", \"message\", \"details\"}}`: `code` is for machines and never changes its meaning, `message` is for people and may, `details` says more where there is more to say. The answer's `X-Correlation-Id` is the request's own, if it came with one. What may be answered to which request is in [the description of the API](openapi.json), which a server has at `/openapi.json` and `redrive openapi` prints.\n\nThis page is made of the code.\n\n| status | code | meaning |\n| --- | --- | --- |\n".to_owned();
        for code in ApiCode::ALL {
            let wait = if code.asks_to_wait() { ". `Retry-After` says how long to wait" } else { "" };
            let (status, word, says) = (code.status().as_u16(), code.as_str(), code.says());
            page.push_str(&format!("| {status} | `{word}` | {says}{wait} |\n"));
        }
        page
    }

    /// Writes the page instead of comparing it: `REDRIVE_UPDATE=1 cargo test -p redrive-server errors`.
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
        // The last one there is has the highest number, so none can be missing.
        assert_eq!(ApiCode::ALL.last().map(|last| *last as usize), Some(ApiCode::ALL.len() - 1));
    }
}
