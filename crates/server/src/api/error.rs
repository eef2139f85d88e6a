//! Errors of the API, in one form: `{"error":{"code","message","details":{…}}}`.
//!
//! Invariant: a code never changes its meaning, and no message leaks internals.

use std::time::Duration;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use redrive_core::event::refusal::InvalidEvent;
use redrive_node::runtime::{ReadError, RerouteError, SubmitError};
use redrive_node::store::SubmissionRefusal;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::code::ApiCode;

pub(crate) type ApiResult = Result<Response, ApiError>;

#[derive(Debug)]
pub(crate) struct ApiError(Box<ApiErrorParts>);

#[derive(Debug)]
struct ApiErrorParts {
    code: ApiCode,
    message: String,
    details: Map<String, Value>,
    retry_after_seconds: Option<u32>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Under overload.
const RETRY_AFTER_SECONDS: u32 = 1;

/// With a full disk or a failing store.
const RETRY_AFTER_TROUBLE_SECONDS: u32 = 10;

impl ApiError {
    pub(crate) fn new(code: ApiCode, message: impl Into<String>) -> Self {
        let (message, details) = (message.into(), Map::new());
        let retry_after_seconds = code.has_retry_after().then_some(RETRY_AFTER_SECONDS);
        Self(Box::new(ApiErrorParts { code, message, details, retry_after_seconds, headers: Vec::new() }))
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(key.to_owned(), value.into());
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.0.retry_after_seconds = Some(seconds);
        self
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    pub(crate) fn invalid(field: &str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::new(ApiCode::Validation, format!("`{field}` {reason}"))
            .with("field", field)
            .with("reason", reason)
    }

    /// A validation error whose message does not start with the field.
    pub(crate) fn wrong(field: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::new(ApiCode::Validation, message.clone()).with("field", field).with("reason", message)
    }

    pub(crate) fn too_large(bytes_max: usize) -> Self {
        let message = format!("the body has more than {bytes_max} bytes");
        Self::new(ApiCode::PayloadTooLarge, message).with("bytes_max", bytes_max)
    }

    pub(crate) fn too_slow() -> Self {
        Self::new(ApiCode::RequestTimeout, "the body was not received in time")
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ApiCode::Unavailable, message)
    }

    /// Response timeout; the work may still complete.
    pub(crate) fn no_answer(within: Duration) -> Self {
        let seconds = within.as_secs_f64();
        Self::unavailable(format!("no response within {seconds} s; the request may still complete"))
    }

    pub(crate) fn internal() -> Self {
        let message = "internal error; see the server's log";
        Self::new(ApiCode::Internal, message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let ApiErrorParts { code, message, details, retry_after_seconds, headers } = *self.0;
        let body = ErrorBody { error: ErrorJson { code: code.as_str().to_owned(), message, details } };
        let text = serde_json::to_vec(&body).expect("texts and numbers are always JSON");
        let mut response =
            (code.status(), [(header::CONTENT_TYPE, "application/json")], text).into_response();
        if let Some(seconds) = retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.headers_mut().extend(headers);
        response
    }
}

impl From<InvalidEvent> for ApiError {
    fn from(invalid: InvalidEvent) -> Self {
        let error = Self::new(ApiCode::Validation, invalid.to_string())
            .with("field", invalid.field)
            .with("reason", invalid.reason.to_string());
        match invalid.index {
            Some(index) => error.with("index", index),
            None => error,
        }
    }
}

impl ApiError {
    /// An event was not stored, or may not be: its id makes sending it again safe.
    pub(crate) fn of_event(error: SubmitError) -> Self {
        match error {
            SubmitError::Unknown { .. } => Self::unknown(
                "the commit failed; the event may or may not be stored: send it again with the same id",
            ),
            other => other.into(),
        }
    }

    fn unknown(message: &str) -> Self {
        Self::new(ApiCode::OutcomeUnknown, message).retry_after(RETRY_AFTER_TROUBLE_SECONDS)
    }
}

/// A command was not stored; unlike an event it has no id that makes repeating it safe.
impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Refused(SubmissionRefusal::Conflict { index, first }) => {
                let Some(first) = first else {
                    let message = "the batch has two different events with this source and id: use a new id";
                    return Self::new(ApiCode::Conflict, message).with("index", index);
                };
                let message = "a different event with this source and id exists: use a new id";
                Self::new(ApiCode::Conflict, message)
                    .with("index", index)
                    .with("first_receipt", first.to_string())
            }
            SubmitError::Refused(SubmissionRefusal::Full { index, service }) => {
                let message = format!("the backlog of the service `{service}` is full: nothing was stored");
                Self::new(ApiCode::BacklogFull, message)
                    .with("index", index)
                    .with("service", service.as_str())
                    .retry_after(RETRY_AFTER_TROUBLE_SECONDS)
            }
            SubmitError::Refused(SubmissionRefusal::Invalid { index, violation }) => {
                let reason = format!("violates the schema of its event type: {}", violation.reason);
                Self::invalid(&violation.path, reason).with("index", index)
            }
            SubmitError::Busy => Self::unavailable("overloaded: try again in a moment"),
            SubmitError::NoRoom { .. } => Self::unavailable("the disk is nearly full: nothing was stored")
                .retry_after(RETRY_AFTER_TROUBLE_SECONDS),
            SubmitError::Failing { .. } => {
                Self::unavailable("the store cannot be written: nothing was stored")
                    .retry_after(RETRY_AFTER_TROUBLE_SECONDS)
            }
            SubmitError::Unknown { .. } => Self::unknown(
                "the commit failed; the command may or may not be done: check the audit log before repeating it",
            ),
            SubmitError::Stopping => Self::unavailable("the server is shutting down"),
        }
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Stopping => Self::unavailable("the server is shutting down"),
            ReadError::Store(error) => {
                tracing::error!(%error, "query failed");
                Self::internal()
            }
        }
    }
}

impl From<RerouteError> for ApiError {
    fn from(error: RerouteError) -> Self {
        match error {
            RerouteError::Read(error) => error.into(),
            RerouteError::Write(error) => error.into(),
        }
    }
}

pub(crate) struct PathName(pub String);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(_) => Err(ApiError::invalid("path", "is not UTF-8 after percent-decoding")),
        }
    }
}

pub(crate) async fn no_such_path(uri: Uri) -> ApiError {
    let message = format!("no such path: {}", uri.path());
    ApiError::new(ApiCode::PathNotFound, message)
}

pub(crate) async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not support {method}", uri.path());
    ApiError::new(ApiCode::MethodNotAllowed, message)
}

/// Any error: `{"error":{"code","message","details"}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorBody {
    pub error: ErrorJson,
}

/// The error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorJson {
    pub code: String,
    pub message: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub details: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use redrive_node::runtime::{KeyError, LetterCommandError};

    use super::*;

    #[test]
    fn what_may_have_been_written_says_how_to_find_out() {
        let unknown = || SubmitError::Unknown { reason: "disk".to_owned() };
        #[rustfmt::skip]
        let cases = [
            ("an event",                     ApiError::of_event(unknown()),                    "send it again with the same id"),
            ("a pause, or a receiver's test", ApiError::from(unknown()),                       "check the audit log before repeating it"),
            ("a replay, a purge, an edit",   ApiError::from(LetterCommandError::NotWritten(unknown())), "check the audit log before repeating it"),
            ("a key",                        ApiError::from(KeyError::NotWritten(unknown())),  "check the audit log before repeating it"),
            ("events that go elsewhere",     ApiError::from(RerouteError::Write(unknown())),   "check the audit log before repeating it"),
        ];
        for (name, error, expected) in cases {
            assert_eq!(
                (error.0.code, error.0.retry_after_seconds),
                (ApiCode::OutcomeUnknown, Some(10)),
                "{name}"
            );
            assert!(error.message().ends_with(expected), "{name}: {}", error.message());
        }
        let refused = ApiError::of_event(SubmitError::Busy);
        assert_eq!(refused.0.code, ApiCode::Unavailable);
    }

    #[test]
    fn a_question_to_a_server_that_stops_is_not_an_error_of_its_own() {
        let error = ApiError::from(ReadError::Stopping);
        assert_eq!(error.into_response().status().as_u16(), 503);
    }
}
