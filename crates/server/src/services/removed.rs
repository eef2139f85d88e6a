//! Services and rows that the rule book no longer has while deliveries wait for them: handlers and `redrive removed`.

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

/// Shows services and rows that left the rule book while deliveries wait for them; ends those, or sends them elsewhere.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  redrive removed
  redrive removed move billing --to payments
  redrive removed dead-letter billing --limit 25 --note 'billing is gone for good'

A service that stays in the rule book and loses a row is listed too, with the deliveries that no row takes.
What comes back into the rule book gets what waits for it, and nothing has to be done.

Exit code: 0 done, 1 the rule book has a row for all that waits, or not the other service, 2 wrong use, 3 no server."
)]
pub(crate) struct RemovedArgs {
    #[command(subcommand)]
    pub(crate) what: Option<RemovedCommand>,
    #[command(flatten)]
    pub(crate) list: ViewArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RemovedCommand {
    /// Shows services and rows that the rule book has no more and that deliveries wait for
    List(ViewArgs),
    /// Turns what waits for a removed service or row into dead letters (`SERVICE_REMOVED`, `RULE_REMOVED`), the oldest first
    DeadLetter(RemovedTargetArgs),
    /// Sends what waits for a removed service or row to another service, each session in its order
    Move(RemovedMoveArgs),
}

/// Whose deliveries go where.
#[derive(Debug, Args)]
pub(crate) struct RemovedMoveArgs {
    /// The service that gets them, or one of its channels
    #[arg(long, value_name = "SERVICE[/CHANNEL]")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) of: RemovedTargetArgs,
}

/// Which deliveries.
#[derive(Debug, Args)]
pub(crate) struct RemovedTargetArgs {
    /// The service that was removed or has lost rows, or one of its channels
    #[arg(value_name = "SERVICE[/CHANNEL]")]
    pub(crate) service: String,
    /// So many at most
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Why; for the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Deliveries that one request takes out at most, so that its answer comes in time.
const AT_ONCE_MAX: u64 = 5_000;

/// What waits for a removed service becomes dead letters.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLetterRemovedRequest {
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
pub(crate) struct MoveTo {
    /// The other service, or `service/channel`.
    #[schema(min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+(/[A-Za-z0-9_.:-]+)?$")]
    to: String,
}

/// What waits for a removed service goes to another.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes two types that are read as one object")]
struct MoveRemovedRequest {
    #[serde(flatten)]
    to: MoveTo,
    #[serde(flatten)]
    which: DeadLetterRemovedRequest,
}

/// Services that deliveries wait for though the rule book has them no more, or has no row that takes these events.
#[utoipa::path(
    get, path = "/v1/removed", operation_id = "listRemovedServices", tag = "operating",
    responses((status = 200, description = "all of them, with how many deliveries wait", body = RemovedResponse))
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

/// Turns what waits for a removed service into dead letters (`SERVICE_REMOVED`), or what no row of a service takes
/// (`RULE_REMOVED`), the oldest first.
#[utoipa::path(
    post, path = "/v1/removed/{service}/dead-letter", operation_id = "deadLetterRemovedService", tag = "operating",
    params(("service" = String, Path, description = "a service that the rule book has no more, or that has lost rows", example = "billing", min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+$")),
    request_body = DeadLetterRemovedRequest,
    responses((status = 200, description = "how many are dead letters now; none when nothing is left to do", body = ReassignResponse))
)]
pub(crate) async fn dead_letter(
    app: App,
    caller: ApiCaller,
    PathName(service): PathName,
    JsonBody(wanted): JsonBody<DeadLetterRemovedRequest>,
) -> ApiResult {
    reassign(app, caller, &service, wanted, Destination::DeadLetters).await
}

/// Sends what waits for a removed service, or what no row of it takes, to another service, each session in its order.
#[utoipa::path(
    post, path = "/v1/removed/{service}/move", operation_id = "moveRemovedService", tag = "operating",
    params(("service" = String, Path, description = "a service that the rule book has no more, or that has lost rows", example = "billing", min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.:-]+$")),
    request_body = MoveRemovedRequest,
    responses((status = 200, description = "how many wait for the other service now; none when nothing is left to do", body = ReassignResponse))
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

/// All of them that deliveries wait for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RemovedResponse {
    pub removed: Vec<RemovedJson>,
}

/// A service, or one of its channels, that the rule book has no more, or that has no row for what waits.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RemovedJson {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Deliveries that wait for it.
    pub waiting: u64,
    /// The rule book has the service: only rows of it are gone, and these deliveries are of their events.
    #[serde(default)]
    pub in_book: bool,
}

/// What became of deliveries that waited for a removed service.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReassignResponse {
    /// Dead letters now, or on their way to the other service.
    pub done: u64,
    /// Deliveries that still wait for the removed service.
    pub left: u64,
    /// Those of them that the other service takes no events of.
    pub unwanted: u64,
    /// Those of them whose attempts are running, or that an open replay sends.
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
            print(&words(done, &format!("sent to {}", plain(&args.to))))
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
        let what = if removed.in_book { "rows that took these events" } else { "the service" };
        table.push(vec![
            Cell::bold(queue),
            Cell::plain(show_count(removed.waiting)),
            Cell::plain(what.to_owned()),
        ]);
    }
    let first = shell_word(&queue_name(&first.service, first.channel.as_deref()));
    let steps = [
        (format!("redrive removed move {first} --to SERVICE"), "sends what waits to another service"),
        (format!("redrive removed dead-letter {first}"), "turns what waits into dead letters"),
    ];
    table.text() + &next_steps(&steps)
}

/// Asks again and again until nothing more is done: one request does a bounded part.
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
        why.push(format!("{} of a type that the other service does not take", show_count(unwanted)));
    }
    if busy > 0 {
        why.push(format!("{} with an attempt or a replay under way", show_count(busy)));
    }
    if !why.is_empty() {
        text += &format!(": {}", why.join(", "));
    }
    text + "\n"
}
