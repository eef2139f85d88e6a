//! JSON answers of handlers.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::error::Answer;

/// A good answer, as the end of a handler.
#[expect(clippy::unnecessary_wraps, reason = "handlers end with it")]
pub(crate) fn ok(value: &impl serde::Serialize) -> Answer {
    Ok(json(StatusCode::OK, value))
}

pub(crate) fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    let text = serde_json::to_vec(value).expect("what we answer with is always JSON");
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}
