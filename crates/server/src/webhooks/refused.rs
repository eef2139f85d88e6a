//! Refused webhook calls with a valid signature.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive_node::store::access_store::RefusedBody;

use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult, PathName};
use crate::api::openapi::query_keys::QueryKeys;
use crate::api::request::{BeforeQuery, PageQuery, Query};
use crate::api::{App, reply};
use crate::webhooks::json::{RefusedCallJson, RefusedCallsResponse};

/// Refused webhook calls with a valid signature, latest first.
#[utoipa::path(
    get, path = "/v1/refused-hooks", operation_id = "listRefusedWebhooks", tag = "events",
    params(QueryKeys<BeforeQuery>, QueryKeys<PageQuery>),
    responses((status = 200, description = "a page of calls, without bodies", body = RefusedCallsResponse))
)]
pub(crate) async fn list(
    app: App,
    Query((BeforeQuery { before }, page)): Query<(BeforeQuery, PageQuery)>,
) -> ApiResult {
    let rows_max = page.rows_max();
    let found = app.node.read(move |reader| reader.refused(before, rows_max)).await?;
    let next = (found.len() == rows_max).then(|| found.last().map(|body| body.number)).flatten();
    let refused =
        found.into_iter().map(|body| RefusedCallJson { body_base64: None, ..shown(body) }).collect();
    reply::ok(&RefusedCallsResponse { refused, next })
}

/// A refused call with the stored part of its body.
#[utoipa::path(
    get, path = "/v1/refused-hooks/{number}", operation_id = "getRefusedWebhook", tag = "events",
    params(("number" = u64, Path, description = "call number")),
    responses((status = 200, description = "the call", body = RefusedCallJson))
)]
pub(crate) async fn one(app: App, PathName(number): PathName) -> ApiResult {
    let wanted = number.parse().map_err(|_| ApiError::invalid("number", "is not a number"))?;
    let found = app.node.read(move |reader| reader.refused_body(wanted)).await?;
    let refused = found.ok_or_else(|| {
        let message = format!("no refused call {wanted}: only the latest are kept");
        ApiError::new(ApiCode::RefusedBodyNotFound, message)
    })?;
    reply::ok(&shown(refused))
}

fn shown(refused: RefusedBody) -> RefusedCallJson {
    let RefusedBody { number, at, source, reason, headers, body, body_bytes } = refused;
    RefusedCallJson {
        number,
        at,
        source,
        reason,
        headers,
        body_bytes,
        body_base64: Some(STANDARD.encode(body)),
    }
}
