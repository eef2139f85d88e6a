//! The demo's steps, for the guide on the page; other servers have none.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult, PathName};
use crate::api::{App, reply};
use crate::demo::story::DemoStep;
use crate::demo::{Demo, DemoService};

/// The demo: services and steps.
#[derive(Serialize, ToSchema)]
pub(crate) struct DemoJson {
    services: Vec<DemoService>,
    steps: Vec<DemoStep>,
}

/// The steps of the demo.
#[utoipa::path(
    get, path = "/v1/demo", operation_id = "getDemo", tag = "demo",
    responses((status = 200, description = "services and steps", body = DemoJson))
)]
pub(crate) async fn story(app: App) -> ApiResult {
    shown(&app, demo_of(&app)?).await
}

/// Deploys the working or the broken release of the service, or marks the cause as seen.
#[utoipa::path(
    post, path = "/v1/demo/{act}", operation_id = "runDemoAction", tag = "demo",
    params(("act" = String, Path, description = "`fix`, `break` or `look`", example = "fix")),
    responses((status = 200, description = "services and steps", body = DemoJson))
)]
pub(crate) async fn act(app: App, PathName(word): PathName) -> ApiResult {
    let demo = demo_of(&app)?;
    demo.act(&word).ok_or_else(|| {
        ApiError::new(
            ApiCode::PathNotFound,
            format!("there is no `{word}` in the demo: use fix, break or look"),
        )
    })?;
    shown(&app, demo).await
}

fn demo_of(app: &App) -> Result<&Demo, ApiError> {
    let none =
        || ApiError::new(ApiCode::PathNotFound, "this server is not a demo: start one with `redrive demo`");
    app.demo.as_ref().ok_or_else(none)
}

async fn shown(app: &App, demo: &Demo) -> ApiResult {
    let steps = demo.steps(&app.node).await;
    let steps = steps.ok_or_else(|| ApiError::unavailable("the store cannot be read"))?;
    reply::ok(&DemoJson { services: demo.services(), steps })
}
