//! Services and rows that the rule book has no more and that deliveries wait for: which there are, and a way out.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use redrive_core::engine::QueueName;
use redrive_core::ids::{ChannelName, ServiceName};
use redrive_node::runtime::{Destination, Reassigned, RemovedPart, RemovedWaiting};

use super::error::{ApiError, Named};
use super::identity::Caller;
use super::queries::service_of;
use super::shape::removed::{ReassignedShown, RemovedFound, RemovedShown};
use super::shape::wanted::{DeadLetterRemovedWanted, MoveRemovedWanted};
use super::{App, events, to_its_end};
use crate::letters::fields::Fields;

/// Deliveries that one request takes out at most, so that its answer comes in time.
const AT_ONCE_MAX: u64 = 5_000;

/// Services that deliveries wait for though the rule book has them no more, or has no row that takes these events.
#[utoipa::path(
    get, path = "/v1/removed", operation_id = "removedServices", tag = "operating",
    responses((status = 200, description = "all of them, with how many deliveries wait", body = RemovedFound))
)]
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    let waiting = app.node.removed_waiting().await?;
    let theirs = waiting.into_iter().filter(|(queue, _)| caller.sees(queue.service.as_str()));
    let shown = |(queue, found): (QueueName, RemovedWaiting)| RemovedShown {
        service: queue.service.to_string(),
        channel: queue.channel.map(|channel| channel.to_string()),
        waiting: found.waiting,
        in_book: found.removed == RemovedPart::Rows,
    };
    Ok(events::json(StatusCode::OK, &RemovedFound { removed: theirs.map(shown).collect() }))
}

/// Turns what waits for a removed service into dead letters (`SERVICE_REMOVED`), or what no row of a service takes
/// (`RULE_REMOVED`), the oldest first.
#[utoipa::path(
    post, path = "/v1/removed/{service}/dead-letter", operation_id = "deadLetterRemoved", tag = "operating",
    params(("service" = String, Path, description = "a service that the rule book has no more, or that has lost rows", example = "billing", min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+$")),
    request_body = DeadLetterRemovedWanted,
    responses((status = 200, description = "how many are dead letters now; none when nothing is left to do", body = ReassignedShown))
)]
pub(super) async fn dead_letter(
    State(app): State<App>,
    caller: Caller,
    Named(service): Named,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    reassign(app, caller, &service, &headers, body, Act::DeadLetter).await
}

/// Sends what waits for a removed service, or what no row of it takes, to another service, each session in its order.
#[utoipa::path(
    post, path = "/v1/removed/{service}/move", operation_id = "moveRemoved", tag = "operating",
    params(("service" = String, Path, description = "a service that the rule book has no more, or that has lost rows", example = "billing", min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+$")),
    request_body = MoveRemovedWanted,
    responses((status = 200, description = "how many wait for the other service now; none when nothing is left to do", body = ReassignedShown))
)]
pub(super) async fn move_elsewhere(
    State(app): State<App>,
    caller: Caller,
    Named(service): Named,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    reassign(app, caller, &service, &headers, body, Act::Move).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    DeadLetter,
    Move,
}

async fn reassign(
    app: App,
    caller: Caller,
    service: &str,
    headers: &HeaderMap,
    body: Body,
    act: Act,
) -> Result<Response, ApiError> {
    caller.check_service(service)?;
    let mut fields = Fields::of_body(&events::read(&app, headers, body).await?)?;
    let channel = fields.read("channel", ChannelName::new)?;
    let limit = fields.number("limit")?;
    let note = fields.note()?;
    let destination = match act {
        Act::DeadLetter => Destination::DeadLetters,
        Act::Move => match fields.read("to", queue_of)? {
            Some(to) => Destination::Queue(to),
            None => return Err(ApiError::wrong("to", "the service to send them to is missing")),
        },
    };
    fields.finish()?;
    if let Destination::Queue(to) = &destination {
        caller.check_service(service_of(to.service.as_str()))?;
    }
    let service = ServiceName::new(service).map_err(|error| ApiError::wrong("service", error.to_string()))?;
    let (queue, at_most) = (QueueName { service, channel }, limit.unwrap_or(AT_ONCE_MAX).min(AT_ONCE_MAX));
    let done = to_its_end(async move {
        let by = caller.by();
        let done = app.node.reassign(queue.clone(), destination, Some(at_most), note, &by).await?;
        let left = app.node.removed_waiting().await?.get(&queue).map_or(0, |found| found.waiting);
        Ok((done, left))
    });
    let (Reassigned { done, unwanted, busy }, left) = done.await?;
    Ok(events::json(StatusCode::OK, &ReassignedShown { done, left, unwanted, busy }))
}

/// `service` or `service/channel`.
fn queue_of(text: &str) -> Result<QueueName, String> {
    let (service, channel) =
        text.split_once('/').map_or((text, None), |(service, channel)| (service, Some(channel)));
    let service = ServiceName::new(service).map_err(|error| error.to_string())?;
    let channel = channel.map(ChannelName::new).transpose().map_err(|error| error.to_string())?;
    Ok(QueueName { service, channel })
}
