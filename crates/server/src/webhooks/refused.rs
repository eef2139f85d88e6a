//! Shows what came in by a webhook with a good signature and could not be taken.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive_node::store::door::RefusedBody;

use crate::api::code::Code;
use crate::api::error::{Answer, ApiError, Named};
use crate::api::openapi::query_keys::Keys;
use crate::api::request::{Before, Page, Query};
use crate::api::{App, reply};
use crate::webhooks::json::{RefusedFound, RefusedShown};

/// What came by webhooks with a good signature and was no event, the latest first.
#[utoipa::path(
    get, path = "/v1/refused-hooks", operation_id = "refusedHooks", tag = "events",
    params(Keys<Before>, Keys<Page>),
    responses((status = 200, description = "a part of them, without their bodies", body = RefusedFound))
)]
pub(crate) async fn list(app: App, Query((Before { before }, page)): Query<(Before, Page)>) -> Answer {
    let rows_max = page.rows_max();
    let found = app.node.read(move |reader| reader.refused(before, rows_max)).await?;
    let next = (found.len() == rows_max).then(|| found.last().map(|body| body.number)).flatten();
    let refused = found.into_iter().map(|body| RefusedShown { body_base64: None, ..shown(body) }).collect();
    reply::ok(&RefusedFound { refused, next })
}

/// One of them, with what is kept of its body.
#[utoipa::path(
    get, path = "/v1/refused-hooks/{number}", operation_id = "refusedHook", tag = "events",
    params(("number" = u64, Path, description = "its number")),
    responses((status = 200, description = "the call", body = RefusedShown))
)]
pub(crate) async fn one(app: App, Named(number): Named) -> Answer {
    let wanted = number.parse().map_err(|_| ApiError::invalid("number", "is no number"))?;
    let found = app.node.read(move |reader| reader.refused_body(wanted)).await?;
    let refused = found.ok_or_else(|| {
        let message = format!("there is no refused body {wanted}: only the latest are kept");
        ApiError::new(Code::RefusedBodyNotFound, message)
    })?;
    reply::ok(&shown(refused))
}

fn shown(refused: RefusedBody) -> RefusedShown {
    let RefusedBody { number, at, source, reason, headers, body, body_bytes } = refused;
    RefusedShown { number, at, source, reason, headers, body_bytes, body_base64: Some(STANDARD.encode(body)) }
}
