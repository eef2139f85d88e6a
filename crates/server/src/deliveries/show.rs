//! `redrive show`: an event or a delivery.

use clap::Args;
use http::StatusCode;
use redrive_core::time::Timestamp;
use serde::de::DeserializeOwned;

use crate::cli::{CommandRefusal, ViewArgs};
use crate::client::address::segment;
use crate::client::error::ClientError;
use crate::client::{Client, ClientRequest};
use crate::deliveries::json::{DeliveryJson, EventsResponse};
use crate::deliveries::text;
use crate::terminal::{plain, print_as};

/// Shows an event with its data and deliveries, or a delivery with its attempts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive show order-42
  redrive show 9e3779b97f4a7c15
  redrive show 3c6ef372

Exit code: 0 shown, 1 not found, 2 wrong use, 3 no server.")]
pub(crate) struct ShowArgs {
    /// An event's id or receipt, or a delivery's id or id prefix
    #[arg(value_name = "EVENT|DELIVERY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

pub(crate) async fn run(args: &ShowArgs) -> anyhow::Result<()> {
    let (key, format) = (segment(&args.key), args.view.format);
    let mut client = args.view.client()?;
    let found = known::<EventsResponse>(&mut client, format!("/v1/events/{key}")).await?;
    if let Some((found, now)) = found.filter(|(found, _)| !found.events.is_empty()) {
        let pages = found.events.iter().map(|shown| text::page(shown, now));
        return print_as(format, &found, || pages.collect::<Vec<_>>().join("\n"));
    }
    let found = known::<DeliveryJson>(&mut client, format!("/v1/deliveries/{key}")).await?;
    let (delivery, now) = found.ok_or_else(|| {
        CommandRefusal(format!(
            "nothing found for `{}`: not an event id or receipt, and not a delivery id or id prefix\n  completed deliveries are kept for a limited time only",
            plain(&args.key)
        ))
    })?;
    print_as(format, &delivery, || text::delivery_page(&delivery, now))
}

/// `None` if the name is unknown or invalid.
async fn known<T: DeserializeOwned>(
    client: &mut Client,
    path: String,
) -> Result<Option<(T, Timestamp)>, ClientError> {
    match client.timed_json(&ClientRequest::get(path)).await {
        Ok(found) => Ok(Some(found)),
        Err(trouble) => match trouble.refusal().map(|refusal| refusal.status) {
            Some(StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST) => Ok(None),
            Some(_) | None => Err(trouble),
        },
    }
}
