//! Services and rows that the rule book has no more and that deliveries wait for: which there are, and a way out.

use redrive_core::engine::QueueName;
use redrive_core::ids::{ChannelName, ServiceName};
use redrive_node::letter::import;
use redrive_node::runtime::{Destination, Reassigned, RemovedPart, RemovedWaiting};
use serde::Deserialize;
use utoipa::ToSchema;

use super::error::{Answer, ApiError, Named};
use super::identity::Caller;
use super::request::{Sent, note, number, read};
use super::shape::removed::{ReassignedShown, RemovedFound, RemovedShown};
use super::{App, events, to_its_end};

/// Deliveries that one request takes out at most, so that its answer comes in time.
const AT_ONCE_MAX: u64 = 5_000;

/// What waits for a removed service becomes dead letters.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeadLetterRemovedWanted {
    /// The channel of the service, if it is one's.
    #[schema(min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+$")]
    channel: Option<String>,
    /// So many at most; 5,000 in one request.
    #[serde(default, deserialize_with = "number")]
    limit: Option<u64>,
    /// For the audit.
    #[serde(default, deserialize_with = "note")]
    #[schema(min_length = 1, max_length = 1000)]
    note: Option<String>,
}

/// Another service for what waits for a removed one.
#[derive(Deserialize, ToSchema)]
pub(super) struct MoveTo {
    /// The other service, or `service/channel`.
    #[schema(min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+(/[A-Za-z0-9_.:-]+)?$")]
    to: String,
}

/// What waits for a removed service goes to another.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes two types that are read as one object")]
struct MoveRemovedWanted {
    #[serde(flatten)]
    to: MoveTo,
    #[serde(flatten)]
    which: DeadLetterRemovedWanted,
}

/// Services that deliveries wait for though the rule book has them no more, or has no row that takes these events.
#[utoipa::path(
    get, path = "/v1/removed", operation_id = "removedServices", tag = "operating",
    responses((status = 200, description = "all of them, with how many deliveries wait", body = RemovedFound))
)]
pub(super) async fn list(app: App, caller: Caller) -> Answer {
    let waiting = app.node.removed_waiting().await?;
    let theirs = waiting.into_iter().filter(|(queue, _)| caller.sees(queue.service.as_str()));
    let shown = |(queue, found): (QueueName, RemovedWaiting)| RemovedShown {
        service: queue.service.to_string(),
        channel: queue.channel.map(|channel| channel.to_string()),
        waiting: found.waiting,
        in_book: found.removed == RemovedPart::Rows,
    };
    events::ok(&RemovedFound { removed: theirs.map(shown).collect() })
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
    app: App,
    caller: Caller,
    Named(service): Named,
    Sent(wanted): Sent<DeadLetterRemovedWanted>,
) -> Answer {
    reassign(app, caller, &service, wanted, Destination::DeadLetters).await
}

/// Sends what waits for a removed service, or what no row of it takes, to another service, each session in its order.
#[utoipa::path(
    post, path = "/v1/removed/{service}/move", operation_id = "moveRemoved", tag = "operating",
    params(("service" = String, Path, description = "a service that the rule book has no more, or that has lost rows", example = "billing", min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+$")),
    request_body = MoveRemovedWanted,
    responses((status = 200, description = "how many wait for the other service now; none when nothing is left to do", body = ReassignedShown))
)]
pub(super) async fn move_elsewhere(
    app: App,
    caller: Caller,
    Named(service): Named,
    Sent((MoveTo { to }, wanted)): Sent<(MoveTo, DeadLetterRemovedWanted)>,
) -> Answer {
    let to = import::queue(&to).map_err(|why| ApiError::invalid("to", why))?;
    caller.check_service(to.service.as_str())?;
    reassign(app, caller, &service, wanted, Destination::Queue(to)).await
}

async fn reassign(
    app: App,
    caller: Caller,
    service: &str,
    wanted: DeadLetterRemovedWanted,
    destination: Destination,
) -> Answer {
    caller.check_service(service)?;
    let DeadLetterRemovedWanted { channel, limit, note } = wanted;
    let channel = read("channel", channel.as_deref(), ChannelName::new)?;
    let service = ServiceName::new(service).map_err(|error| ApiError::wrong("service", error.to_string()))?;
    let (queue, at_most) = (QueueName { service, channel }, limit.unwrap_or(AT_ONCE_MAX).min(AT_ONCE_MAX));
    let done = to_its_end(async move {
        let by = caller.by();
        let done = app.node.reassign(queue.clone(), destination, Some(at_most), note, &by).await?;
        let left = app.node.removed_waiting().await?.get(&queue).map_or(0, |found| found.waiting);
        Ok((done, left))
    });
    let (Reassigned { done, unwanted, busy }, left) = done.await?;
    events::ok(&ReassignedShown { done, left, unwanted, busy })
}
