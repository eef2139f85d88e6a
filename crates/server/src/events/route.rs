//! `redrive route`: routes unrouted events again, by the current rule book.

use clap::Args;
use redrive_core::text::{counted, show_count};
use redrive_node::runtime::RerouteResult;
use serde_json::json;

use crate::access::caller::ApiCaller;
use crate::api::error::ApiResult;
use crate::api::{App, reply, run_to_end};
use crate::cli::ServerArgs;
use crate::client::ClientRequest;
use crate::terminal::{print, style};

/// Routes events again, by the current rule book.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive route --unrouted

Exit code: 0 done, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct RouteArgs {
    /// Events that no rule matched when they arrived
    #[arg(long, required = true)]
    pub(crate) unrouted: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) async fn run(args: &RouteArgs) -> anyhow::Result<()> {
    let ask = ClientRequest::json("/v1/unrouted/route", &json!({}));
    print(&words(args.server.client()?.json(&ask).await?))
}

fn words(RerouteResult { seen, routed }: RerouteResult) -> String {
    let events = counted(seen, "unrouted event");
    let stay = show_count(seen.saturating_sub(routed));
    match (seen, routed) {
        (0, _) => format!("{} no unrouted events\n", style::good("✓")),
        (_, 0) => {
            let advice = "`redrive try TYPE` shows which rules nearly match";
            format!("{} {events}, still no matching rule; {advice}\n", style::warning("!"))
        }
        (1, _) => format!("{} routed the unrouted event\n", style::good("✓")),
        (_, routed) if routed == seen => {
            format!("{} routed all {events}\n", style::good("✓"))
        }
        (_, routed) => {
            let routed = show_count(routed);
            format!("{} routed {routed} of {events}, {stay} remain\n", style::good("✓"))
        }
    }
}

/// Routes unrouted events again, by the current rule book.
#[utoipa::path(
    post, path = "/v1/unrouted/route", operation_id = "routeUnrouted", tag = "operating",
    responses((status = 200, description = "number of events checked and routed", body = RerouteResult))
)]
pub(crate) async fn route_unrouted(app: App, caller: ApiCaller) -> ApiResult {
    let rerouted = run_to_end(async move { Ok(app.node.route_unrouted(&caller.by()).await?) }).await?;
    reply::ok(&rerouted)
}
