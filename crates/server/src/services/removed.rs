//! Services and rows removed from the rule book while deliveries wait for them: handlers and `redrive
//! removed`.

use clap::{Args, Subcommand};
use redrive_core::engine::QueueName;
use redrive_core::ids::{ChannelName, ServiceName};
use redrive_core::text::{counted, show_count};
use redrive_node::letters::import;
use redrive_node::runtime::{Destination, ReassignResult, RemovedPart, RemovedWaiting};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::access::caller::ApiCaller;
use crate::api::error::{ApiError, ApiResult, PathName};
use crate::api::request::{JsonBody, note, number, read};
use crate::api::{App, reply, run_to_end};
use crate::cli::{ServerArgs, ViewArgs};
use crate::client::ClientRequest;
use crate::client::address::segment;
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{next_steps, plain, print, print_as, queue_name, shell_word, style};

/// Shows services and rows that were removed from the rule book while deliveries wait; dead-letters or moves
/// those deliveries.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  redrive removed
  redrive removed move billing --to payments
  redrive removed dead-letter billing --limit 25 --note 'billing is gone for good'

Services that lost a row are listed too, with the deliveries that no row matches.
Deliveries resume by themselves once their service or row is back in the rule book.

Exit code: 0 done, 1 nothing to do, or unknown target service, 2 wrong use, 3 no server."
)]
pub(crate) struct RemovedArgs {
    #[command(subcommand)]
    pub(crate) what: Option<RemovedCommand>,
    #[command(flatten)]
    pub(crate) list: ViewArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RemovedCommand {
    /// Lists removed services and rows with waiting deliveries
    List(ViewArgs),
    /// Turns deliveries of a removed service or row into dead letters (`SERVICE_REMOVED`, `RULE_REMOVED`),
    /// oldest first
    DeadLetter(RemovedTargetArgs),
    /// Moves deliveries of a removed service or row to another service, in session order
    Move(RemovedMoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RemovedMoveArgs {
    /// The service, or channel, that receives them
    #[arg(long, value_name = "SERVICE[/CHANNEL]")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) of: RemovedTargetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemovedTargetArgs {
    /// The service that was removed or lost rows, or one of its channels
    #[arg(value_name = "SERVICE[/CHANNEL]")]
    pub(crate) service: String,
    /// Maximum number of deliveries
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// The reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Per request, so that its answer comes in time.
const AT_ONCE_MAX: u64 = 5_000;

/// Dead-letters the deliveries of a removed service.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLetterRemovedRequest {
    /// The channel, if any.
    #[schema(min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+$")]
    channel: Option<String>,
    /// Maximum number; at most 5,000 in one request.
    #[serde(default, deserialize_with = "number")]
    limit: Option<u64>,
    /// The reason, for the audit log.
    #[serde(default, deserialize_with = "note")]
    #[schema(min_length = 1, max_length = 1000)]
    note: Option<String>,
}

/// Another service for the deliveries of a removed one.
#[derive(Deserialize, ToSchema)]
pub(crate) struct MoveTo {
    /// The other service, or `service/channel`.
    #[schema(min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+(/[A-Za-z0-9_.:-]+)?$")]
    to: String,
}

/// Moves the deliveries of a removed service.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes two types that are read as one object")]
struct MoveRemovedRequest {
    #[serde(flatten)]
    to: MoveTo,
    #[serde(flatten)]
    which: DeadLetterRemovedRequest,
}

/// Removed services, and services with removed rows, for which deliveries wait.
#[utoipa::path(
    get, path = "/v1/removed", operation_id = "listRemovedServices", tag = "operating",
    responses((status = 200, description = "removed services with counts of waiting deliveries", body = RemovedResponse))
)]
pub(crate) async fn list(app: App, caller: ApiCaller) -> ApiResult {
    let waiting = app.node.removed_waiting().await?;
    let theirs = waiting.into_iter().filter(|(queue, _)| caller.sees(queue.service.as_str()));
    let shown = |(queue, found): (QueueName, RemovedWaiting)| RemovedJson {
        service: queue.service.to_string(),
        channel: queue.channel.map(|channel| channel.to_string()),
        waiting: found.waiting,
        in_book: found.removed == RemovedPart::Rows,
    };
    reply::ok(&RemovedResponse { removed: theirs.map(shown).collect() })
}

/// Turns deliveries of a removed service (`SERVICE_REMOVED`), or those that no row matches (`RULE_REMOVED`),
/// into dead letters, oldest first.
#[utoipa::path(
    post, path = "/v1/removed/{service}/dead-letter", operation_id = "deadLetterRemovedService", tag = "operating",
    params(("service" = String, Path, description = "a service that was removed from the rule book or lost rows", example = "billing", min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+$")),
    request_body = DeadLetterRemovedRequest,
    responses((status = 200, description = "number dead-lettered; 0 when none is left", body = ReassignResponse))
)]
pub(crate) async fn dead_letter(
    app: App,
    caller: ApiCaller,
    PathName(service): PathName,
    JsonBody(wanted): JsonBody<DeadLetterRemovedRequest>,
) -> ApiResult {
    reassign(app, caller, &service, wanted, Destination::DeadLetters).await
}

/// Moves deliveries of a removed service, or those that no row matches, to another service, in session order.
#[utoipa::path(
    post, path = "/v1/removed/{service}/move", operation_id = "moveRemovedService", tag = "operating",
    params(("service" = String, Path, description = "a service that was removed from the rule book or lost rows", example = "billing", min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+$")),
    request_body = MoveRemovedRequest,
    responses((status = 200, description = "number moved; 0 when none is left", body = ReassignResponse))
)]
pub(crate) async fn move_elsewhere(
    app: App,
    caller: ApiCaller,
    PathName(service): PathName,
    JsonBody((MoveTo { to }, wanted)): JsonBody<(MoveTo, DeadLetterRemovedRequest)>,
) -> ApiResult {
    let to = import::queue(&to).map_err(|why| ApiError::invalid("to", why))?;
    caller.check_service(to.service.as_str())?;
    reassign(app, caller, &service, wanted, Destination::Queue(to)).await
}

async fn reassign(
    app: App,
    caller: ApiCaller,
    service: &str,
    wanted: DeadLetterRemovedRequest,
    destination: Destination,
) -> ApiResult {
    caller.check_service(service)?;
    let DeadLetterRemovedRequest { channel, limit, note } = wanted;
    let channel = read("channel", channel.as_deref(), ChannelName::new)?;
    let service = ServiceName::new(service).map_err(|error| ApiError::wrong("service", error.to_string()))?;
    let (queue, at_most) = (QueueName { service, channel }, limit.unwrap_or(AT_ONCE_MAX).min(AT_ONCE_MAX));
    let done = run_to_end(async move {
        let by = caller.by();
        let done = app.node.reassign(queue.clone(), destination, Some(at_most), note, &by).await?;
        let left = app.node.removed_waiting().await?.get(&queue).map_or(0, |found| found.waiting);
        Ok((done, left))
    });
    let (ReassignResult { done, unwanted, busy }, left) = done.await?;
    reply::ok(&ReassignResponse { done, left, unwanted, busy })
}

/// Removed services with waiting deliveries.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RemovedResponse {
    pub removed: Vec<RemovedJson>,
}

/// A removed service or channel, or one without a row for its waiting deliveries.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RemovedJson {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Waiting deliveries.
    pub waiting: u64,
    /// The service still exists; only rows were removed.
    #[serde(default)]
    pub in_book: bool,
}

/// Result for the deliveries of a removed service.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReassignResponse {
    /// Deliveries dead-lettered or moved.
    pub done: u64,
    /// Deliveries that still wait.
    pub left: u64,
    /// Of those, deliveries whose events the other service has no rule for.
    pub unwanted: u64,
    /// Of those, deliveries with a running attempt or in an open replay.
    pub busy: u64,
}

pub(crate) async fn run(args: &RemovedArgs) -> anyhow::Result<()> {
    match &args.what {
        None => print_list(&args.list).await,
        Some(RemovedCommand::List(args)) => print_list(args).await,
        Some(RemovedCommand::DeadLetter(of)) => {
            let done = request_reassign(of, "dead-letter", None).await?;
            print(&words(done, "turned into dead letters"))
        }
        Some(RemovedCommand::Move(args)) => {
            let done = request_reassign(&args.of, "move", Some(&args.to)).await?;
            print(&words(done, &format!("moved to {}", plain(&args.to))))
        }
    }
}

async fn print_list(args: &ViewArgs) -> anyhow::Result<()> {
    let found: RemovedResponse = args.client()?.json(&ClientRequest::get("/v1/removed")).await?;
    print_as(args.format, &found, || page(&found))
}

fn page(found: &RemovedResponse) -> String {
    let Some(first) = found.removed.first() else {
        return format!("{} no deliveries wait for a removed service or row\n", style::good("✓"));
    };
    let mut table = Table::new(&[CellAlign::Left, CellAlign::Right, CellAlign::Left]);
    table.head(&["SERVICE", "WAITING", "REMOVED"]);
    for removed in &found.removed {
        let queue = queue_name(&removed.service, removed.channel.as_deref());
        let what = if removed.in_book { "rows for these events" } else { "the service" };
        table.push(vec![
            Cell::bold(queue),
            Cell::plain(show_count(removed.waiting)),
            Cell::plain(what.to_owned()),
        ]);
    }
    let first = shell_word(&queue_name(&first.service, first.channel.as_deref()));
    let steps = [
        (format!("redrive removed move {first} --to SERVICE"), "moves its deliveries to another service"),
        (format!("redrive removed dead-letter {first}"), "turns its deliveries into dead letters"),
    ];
    table.text() + &next_steps(&steps)
}

/// Repeats bounded requests until nothing more is done.
async fn request_reassign(
    of: &RemovedTargetArgs,
    act: &str,
    to: Option<&str>,
) -> anyhow::Result<ReassignResponse> {
    let (service, channel) = match of.service.split_once('/') {
        Some((service, channel)) => (service, Some(channel)),
        None => (of.service.as_str(), None),
    };
    let path = format!("/v1/removed/{}/{act}", segment(service));
    let mut client = of.server.client()?;
    let mut all = 0;
    loop {
        let limit = of.limit.map(|limit| limit.saturating_sub(all));
        let body = json!({ "channel": channel, "to": to, "note": of.note, "limit": limit });
        let done: ReassignResponse = client.json(&ClientRequest::json(&path, &body)).await?;
        all += done.done;
        if done.done == 0 || done.left == 0 || of.limit.is_some_and(|limit| all >= limit) {
            return Ok(ReassignResponse { done: all, ..done });
        }
    }
}

fn words(done: ReassignResponse, became: &str) -> String {
    let ReassignResponse { done, left, unwanted, busy } = done;
    let deliveries = counted(done, "delivery");
    let mark = if left == 0 { style::good("✓") } else { style::warning("!") };
    let mut text = format!("{mark} {deliveries} {became}");
    if left > 0 {
        text += &format!(", {} left", show_count(left));
    }
    let mut why = Vec::new();
    if unwanted > 0 {
        why.push(format!("{} of a type that the other service has no rule for", show_count(unwanted)));
    }
    if busy > 0 {
        why.push(format!("{} with a running attempt or replay", show_count(busy)));
    }
    if !why.is_empty() {
        text += &format!(": {}", why.join(", "));
    }
    text + "\n"
}
