//! Baseline handler: the API's stack reads an event and responds "accepted"; nothing more.

use std::process::ExitCode;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use serde::Serialize;

pub(super) fn run() -> anyhow::Result<ExitCode> {
    super::serve_routes(Router::new().route("/v1/events", post(accept)))
}

async fn accept(headers: HeaderMap, body: Body) -> Response {
    match super::read(body).await {
        Some(_) => accepted(&headers),
        None => StatusCode::BAD_REQUEST.into_response(),
    }
}

#[derive(Serialize)]
struct Accepted<'a> {
    id: &'a str,
    receipt: &'a str,
    duplicate: bool,
    deliveries: u64,
}

pub(super) fn accepted(headers: &HeaderMap) -> Response {
    let id = headers.get("ce-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    let accepted = Accepted { id, receipt: id, duplicate: false, deliveries: 1 };
    let json = serde_json::to_vec(&accepted).expect("texts and numbers are always JSON");
    (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, "application/json")], json).into_response()
}
