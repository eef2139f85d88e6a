//! The demo's story, for its guide on the page; a server that is no demo has none.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult, PathName};
use crate::api::{App, reply};
use crate::demo::story::DemoStep;
use crate::demo::{Demo, DemoService};

/// The demo: who takes part, and where the story stands.
#[derive(Serialize, ToSchema)]
pub(crate) struct DemoJson {
    services: Vec<DemoService>,
    steps: Vec<DemoStep>,
}

/// Where the story of the demo stands.
#[utoipa::path(
    get, path = "/v1/demo", operation_id = "getDemo", tag = "demo",
    responses((status = 200, description = "its services and its steps", body = DemoJson))
)]
pub(crate) async fn story(app: App) -> ApiResult {
    shown(&app, demo_of(&app)?).await
}

/// Deploys the release of the broken service that works or the one that does not, or says that somebody has
/// seen why letters are dead.
#[utoipa::path(
    post, path = "/v1/demo/{act}", operation_id = "runDemoAction", tag = "demo",
    params(("act" = String, Path, description = "`mend`, `break` or `look`", example = "mend")),
    responses((status = 200, description = "the story as it stands now", body = DemoJson))
)]
pub(crate) async fn act(app: App, PathName(word): PathName) -> ApiResult {
    let demo = demo_of(&app)?;
    demo.act(&word).ok_or_else(|| {
        ApiError::new(ApiCode::PathNotFound, format!("there is no `{word}` in the demo: mend, break or look"))
    })?;
    shown(&app, demo).await
}

fn demo_of(app: &App) -> Result<&Demo, ApiError> {
    let none = || ApiError::new(ApiCode::PathNotFound, "this server is no demo: `redrive demo` starts one");
    app.demo.as_ref().ok_or_else(none)
}

async fn shown(app: &App, demo: &Demo) -> ApiResult {
    let steps = demo.steps(&app.node).await;
    let steps = steps.ok_or_else(|| ApiError::unavailable("the store cannot be read at the moment"))?;
    reply::ok(&DemoJson { services: demo.services(), steps })
}
