//! `redrive why`: the history of a delivery, with the rule lines in force at each attempt.

pub(crate) mod text;

use clap::Args;

use crate::cli::{CommandRefusal, ViewArgs};
use crate::client::address::segment;
use crate::client::{Client, ClientRequest};
use crate::deliveries::json::{DeliveriesResponse, DeliveryJson, DeliveryStateJson};
use crate::services::name_check;
use crate::terminal::{plain, print_as};

/// Explains a delivery: every attempt, the rule line that decided it, and the numbers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive why --last
  redrive why --last --service billing
  redrive why 3c6ef372

Exit code: 0 shown, 1 not found, 2 wrong use, 3 no server.")]
pub(crate) struct WhyArgs {
    /// The delivery's id or id prefix
    #[arg(required_unless_present = "last")]
    pub(crate) delivery: Option<String>,
    /// The latest failed delivery, or else the latest
    #[arg(long, conflicts_with = "delivery")]
    pub(crate) last: bool,
    /// With --last: only this service and its channels, or only service/channel
    #[arg(long, conflicts_with = "delivery")]
    pub(crate) service: Option<String>,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Deliveries searched for the latest failure.
const SEARCHED_MAX: usize = 100;

pub(crate) async fn run(args: &WhyArgs) -> anyhow::Result<()> {
    let mut client = args.view.client()?;
    let id = match &args.delivery {
        Some(id) => id.clone(),
        None => last(&mut client, args.service.as_deref()).await?,
    };
    let ask = ClientRequest::get(format!("/v1/deliveries/{}", segment(&id)));
    let (delivery, now) = client.timed_json::<DeliveryJson>(&ask).await?;
    print_as(args.view.format, &delivery, || text::page(&delivery, now))
}

async fn last(client: &mut Client, service: Option<&str>) -> anyhow::Result<String> {
    let of = service.map(|service| format!("&service={}", segment(service))).unwrap_or_default();
    let mut before = String::new();
    // A page may be empty though later ones match.
    let found = loop {
        let ask = ClientRequest::get(format!("/v1/deliveries?limit={SEARCHED_MAX}{of}{before}"));
        let found: DeliveriesResponse = client.json(&ask).await?;
        match &found.next {
            Some(next) if found.deliveries.is_empty() => before = format!("&before={}", segment(next)),
            Some(_) | None => break found,
        }
    };
    if found.deliveries.is_empty() {
        name_check::check(client, service).await?;
    }
    let written_at =
        |delivery: &&DeliveryJson| delivery.written_at.or(delivery.ended_at).unwrap_or(delivery.accepted_at);
    // The list is latest first; on a tie the first wins.
    let failed = found.deliveries.iter().rev().filter(|delivery| has_failed(delivery)).max_by_key(written_at);
    let delivery = failed.or(found.deliveries.first()).ok_or_else(|| {
        let of = service.map(|service| format!(" of {}", plain(service))).unwrap_or_default();
        CommandRefusal(format!("no deliveries{of} yet: send an event with `redrive send TYPE`"))
    })?;
    Ok(delivery.id.clone())
}

const fn has_failed(delivery: &DeliveryJson) -> bool {
    match delivery.state {
        DeliveryStateJson::Retrying
        | DeliveryStateJson::Dead
        | DeliveryStateJson::Replaying
        | DeliveryStateJson::Skipped
        | DeliveryStateJson::Purged
        | DeliveryStateJson::Superseded => true,
        DeliveryStateJson::Pending | DeliveryStateJson::Held => delivery.attempts > 0,
        DeliveryStateJson::Delivered => delivery.attempts > 1,
    }
}
