//! `redrive route`: events that nobody wanted are held against the rule book as it reads now.

use redrive_node::runtime::Rerouted;
use serde_json::json;

use super::print;
use crate::cli::RouteArgs;
use crate::client::Ask;
use crate::show::{counted, style, thousands};

pub(super) async fn run(args: &RouteArgs) -> anyhow::Result<()> {
    let ask = Ask::json("/v1/unrouted/route", &json!({}));
    print(&words(args.server.client()?.json(&ask).await?))
}

fn words(Rerouted { seen, routed }: Rerouted) -> String {
    let events = counted(seen, "unrouted event");
    let stay = thousands(seen.saturating_sub(routed));
    match (seen, routed) {
        (0, _) => format!("{} there are no unrouted events\n", style::good("✓")),
        (_, 0) => {
            let advice = "`redrive try TYPE` says which rows come close";
            format!("{} {events}, and still no row wants any; {advice}\n", style::warning("!"))
        }
        (1, _) => format!("{} the unrouted event is on its way now\n", style::good("✓")),
        (_, routed) if routed == seen => {
            format!("{} all {events} are on their way now\n", style::good("✓"))
        }
        (_, routed) => {
            let routed = thousands(routed);
            format!("{} {routed} of {events} are on their way now, {stay} stay\n", style::good("✓"))
        }
    }
}
