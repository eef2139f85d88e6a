//! Shows what came in by a webhook with a good signature and could not be taken.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive::store::door::RefusedBody;
use serde::Deserialize;

use crate::api::code::Code;
use crate::api::error::{ApiError, Named};
use crate::api::shape::hooks::{RefusedFound, RefusedShown};
use crate::api::{App, events};

/// Refused bodies in one list, at most and unless asked otherwise.
const LIST_MAX: usize = 500;
const LIST_DEFAULT: usize = 50;

/// What a list may be narrowed down to.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// The `next` of an earlier answer.
    before: Option<u64>,
    /// How many at most: 50 unless said, and never more than 500.
    limit: Option<usize>,
}

/// What came by webhooks with a good signature and was no event, the latest first.
#[utoipa::path(
    get, path = "/v1/refused-hooks", operation_id = "refusedHooks", tag = "events",
    params(ListQuery),
    responses((status = 200, description = "a part of them, without their bodies", body = RefusedFound))
)]
pub(crate) async fn list(
    State(app): State<App>,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(|error| ApiError::invalid("query", error.body_text()))?;
    let rows_max = query.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
    let found = app.node.read(move |reader| reader.refused(query.before, rows_max)).await?;
    let next = (found.len() == rows_max).then(|| found.last().map(|body| body.number)).flatten();
    let refused = found.into_iter().map(|body| RefusedShown { body_base64: None, ..shown(body) }).collect();
    Ok(events::json(StatusCode::OK, &RefusedFound { refused, next }))
}

/// One of them, with what is kept of its body.
#[utoipa::path(
    get, path = "/v1/refused-hooks/{number}", operation_id = "refusedHook", tag = "events",
    params(("number" = u64, Path, description = "its number")),
    responses((status = 200, description = "the call", body = RefusedShown))
)]
pub(crate) async fn one(State(app): State<App>, Named(number): Named) -> Result<Response, ApiError> {
    let wanted = number.parse().map_err(|_| ApiError::invalid("number", "is no number"))?;
    let found = app.node.read(move |reader| reader.refused_body(wanted)).await?;
    let refused = found.ok_or_else(|| {
        let message = format!("there is no refused body {wanted}: only the latest are kept");
        ApiError::new(Code::RefusedBodyNotFound, message)
    })?;
    Ok(events::json(StatusCode::OK, &shown(refused)))
}

fn shown(refused: RefusedBody) -> RefusedShown {
    let RefusedBody { number, at, source, reason, headers, body, body_bytes } = refused;
    RefusedShown { number, at, source, reason, headers, body_bytes, body_base64: Some(STANDARD.encode(body)) }
}
