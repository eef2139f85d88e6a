//! The demo's story, for its guide on the page; a server that is no demo has none.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::code::Code;
use super::error::{ApiError, Named};
use super::shape::demo::DemoShown;
use super::{App, events};
use crate::demo::Demo;

/// Where the story of the demo stands.
#[utoipa::path(
    get, path = "/v1/demo", operation_id = "demo", tag = "demo",
    responses((status = 200, description = "its services and its steps", body = DemoShown))
)]
pub(super) async fn story(State(app): State<App>) -> Result<Response, ApiError> {
    shown(&app, demo_of(&app)?).await
}

/// Deploys the release of the broken service that works or the one that does not, or says that somebody has
/// seen why letters are dead.
#[utoipa::path(
    post, path = "/v1/demo/{act}", operation_id = "actInDemo", tag = "demo",
    params(("act" = String, Path, description = "`mend`, `break` or `look`", example = "mend")),
    responses((status = 200, description = "the story as it stands now", body = DemoShown))
)]
pub(super) async fn act(State(app): State<App>, Named(word): Named) -> Result<Response, ApiError> {
    let demo = demo_of(&app)?;
    demo.act(&word).ok_or_else(|| {
        ApiError::new(Code::PathNotFound, format!("there is no `{word}` in the demo: mend, break or look"))
    })?;
    shown(&app, demo).await
}

fn demo_of(app: &App) -> Result<&Demo, ApiError> {
    let none = || ApiError::new(Code::PathNotFound, "this server is no demo: `redrive demo` starts one");
    app.demo.as_ref().ok_or_else(none)
}

async fn shown(app: &App, demo: &Demo) -> Result<Response, ApiError> {
    let steps = demo.steps(&app.node).await;
    let steps = steps.ok_or_else(|| ApiError::unavailable("the store cannot be read at the moment"))?;
    Ok(events::json(StatusCode::OK, &DemoShown { services: demo.services(), steps }))
}
