//! `GET /v1/status`.

use std::future::Future;
use std::time::Duration;

use redrive_core::book::alert_rules::is_own;
use redrive_node::runtime::stranded;

use crate::access::addresses::VisibleAddresses;
use crate::access::caller::ApiCaller;
use crate::alerts;
use crate::api::App;
use crate::api::error::{ApiError, ApiResult};
use crate::services::condition::{ServiceVerdict, judge};
use crate::services::handlers::ServiceFigures;
use crate::status::health;
use crate::status::json::{
    ServiceStatus, Status, archive_json, part_of, status_json, unavailable_json, with_letters,
};
use crate::webhooks::json::SourceStatus;

/// Retries until no delivery seems stranded, and their interval.
const READINGS_MAX: usize = 10;

const READ_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// State of the server, or of the services that the key is bound to.
#[utoipa::path(
    get, path = "/v1/status", operation_id = "getStatus", tag = "operating",
    responses((status = 200, description = "services, dependencies and current problems", body = Status))
)]
pub(crate) async fn status(app: App, caller: ApiCaller) -> ApiResult {
    let status = with_letters(&app.node, &caller, read_status(&app).await?).await?;
    let status = with_health(&ServiceFigures::of(&app).await?, status);
    let shown = match caller.services() {
        None => {
            let degraded = health::degraded(&app, &status);
            let read =
                app.node.sources().into_iter().map(|(name, view)| SourceStatus::of_reading(name, view));
            let sources = app.hooks.status().into_iter().chain(read).collect();
            Status { sources, degraded, firing: alerts::handlers::firing(&app.node), ..status }
        }
        // Keys bound to services do not see server-wide figures.
        Some(services) => part_of(status, services, &app.node.book()),
    };
    VisibleAddresses::for_caller(&caller, &app.node.book()).ok(&shown)
}

fn with_health(reading: &ServiceFigures, status: Status) -> Status {
    let judged = |service: ServiceStatus| {
        let view = reading.snapshot.queues.iter().find(|view| view.name.to_string() == service.name());
        let judgement = view.filter(|view| !is_own(view.name.service.as_str()));
        let Some(ServiceVerdict { word, why, since, until }) =
            judgement.map(|view| judge(&reading.signs(&view.name)))
        else {
            return service;
        };
        ServiceStatus { health: Some(word), why: Some(why), why_since: since, why_until: until, ..service }
    };
    Status { services: status.services.into_iter().map(judged).collect(), ..status }
}

/// Without dead letters and sources.
pub(crate) async fn read_status(app: &App) -> Result<Status, ApiError> {
    let (status, stranded) = until_nothing_is_stranded(|| reading(app)).await?;
    Ok(Status {
        stranded,
        archive: app.archivist.status(app.node.now()).map(archive_json),
        secrets: app.hooks.unavailable_secrets().await.into_iter().map(unavailable_json).collect(),
        issuer: app.access.unavailable_issuer().await.map(unavailable_json),
        ..status
    })
}

async fn reading(app: &App) -> Result<(Status, u64), ApiError> {
    let counts = app.node.read(|reader| reader.counts()).await?;
    let snapshot = app.snapshot().await?;
    Ok((status_json(&app.node, &snapshot, &counts), stranded(&snapshot, &counts)))
}

/// Repeats a reading until no delivery seems stranded.
///
/// Store and engine are read one after the other, so a delivery between the two seems stranded for a moment;
/// a real one is in every reading.
pub(crate) async fn until_nothing_is_stranded<T, E, R>(reading: impl Fn() -> R) -> Result<(T, u64), E>
where
    R: Future<Output = Result<(T, u64), E>>,
{
    let (mut seen, mut stranded) = reading().await?;
    for _ in 1..READINGS_MAX {
        if stranded == 0 {
            break;
        }
        tokio::time::sleep(READ_AGAIN_AFTER).await;
        let (again, left) = reading().await?;
        (seen, stranded) = (again, stranded.min(left));
    }
    Ok((seen, stranded))
}
