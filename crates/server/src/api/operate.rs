//! What an operator may do to a running server.

use axum::http::header;
use axum::response::IntoResponse;
use redrive_core::ids::ServiceName;
use redrive_node::runtime::Rerouted;
use redrive_node::store::BackupProgress;
use serde_json::json;

use super::code::Code;
use super::error::{Answer, ApiError, Named};
use super::events;
use super::identity::Caller;
use super::queries::lines;
use super::request::Sent;
use super::shape::wanted::Nothing;
use super::shape::{BackupStep, BackupWanted};
use super::{App, to_its_end};

/// Nothing of a service starts from now on; what waits stays.
#[utoipa::path(
    post, path = "/v1/services/{service}/pause", operation_id = "pauseService", tag = "operating",
    params(("service" = String, Path, description = "a service of the rule book, or one that still has deliveries", example = "billing")),
    responses((status = 200, description = "it is so", body = Nothing))
)]
pub(super) async fn pause(app: App, caller: Caller, Named(service): Named) -> Answer {
    caller.check_service(&service)?;
    app.node.pause(known(&app, &caller, &service).await?, &caller.by()).await?;
    events::ok(&json!({}))
}

/// A service that was paused goes on.
#[utoipa::path(
    post, path = "/v1/services/{service}/resume", operation_id = "resumeService", tag = "operating",
    params(("service" = String, Path, description = "a service of the rule book, or one that still has deliveries", example = "billing")),
    responses((status = 200, description = "it is so", body = Nothing))
)]
pub(super) async fn resume(app: App, caller: Caller, Named(service): Named) -> Answer {
    caller.check_service(&service)?;
    app.node.resume(known(&app, &caller, &service).await?, &caller.by()).await?;
    events::ok(&json!({}))
}

/// A service of the book, or one that still has deliveries.
async fn known(app: &App, caller: &Caller, name: &str) -> Result<ServiceName, ApiError> {
    let book = app.node.book();
    if let Some(service) = book.service(name) {
        return Ok(service.name.clone());
    }
    let snapshot = app.snapshot().await?;
    let gone =
        snapshot.queues.iter().map(|queue| &queue.name.service).find(|service| service.as_str() == name);
    gone.cloned().ok_or_else(|| {
        let names = book.sections().services.iter().map(|service| service.name.to_string());
        let names: Vec<_> = names.filter(|name| caller.sees(name)).collect();
        let message = format!("there is no service `{name}`");
        ApiError::new(Code::ServiceNotFound, message).with("services", names)
    })
}

/// Holds events that nobody wanted against the rule book as it reads now.
#[utoipa::path(
    post, path = "/v1/unrouted/route", operation_id = "routeUnrouted", tag = "operating",
    responses((status = 200, description = "how many were looked at, and how many are wanted now", body = Rerouted))
)]
pub(super) async fn route_unrouted(app: App, caller: Caller) -> Answer {
    let rerouted = to_its_end(async move { Ok(app.node.route_unrouted(&caller.by()).await?) }).await?;
    events::ok(&rerouted)
}

/// Copies the store to a folder of the server's machine.
#[utoipa::path(
    post, path = "/v1/backup", operation_id = "backUp", tag = "operating",
    request_body = BackupWanted,
    responses((status = 200, description = "one line of JSON for each step, as in the schema `BackupStep`", body = String, content_type = "application/x-ndjson"))
)]
pub(super) async fn back_up(app: App, caller: Caller, Sent(wanted): Sent<BackupWanted>) -> Answer {
    let folder = std::path::PathBuf::from(&wanted.folder);
    if !folder.is_absolute() {
        return Err(ApiError::invalid("folder", "must be an absolute path"));
    }
    let steps = app.node.back_up(folder, &caller.by());
    let stream = lines(
        steps,
        |steps| Box::pin(steps.recv()),
        |step: &Result<BackupProgress, String>| {
            serde_json::to_string(&match step {
                Ok(progress) => {
                    BackupStep { pages: progress.pages, remaining: progress.remaining, error: None }
                }
                Err(error) => BackupStep { pages: 0, remaining: 0, error: Some(error.clone()) },
            })
            .expect("numbers and texts are always JSON")
        },
    );
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], stream).into_response())
}
