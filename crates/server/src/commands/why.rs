//! `redrive why`: the story of a delivery, with the rule lines as they read then.

use super::{Refused, print_as, service_name};
use crate::api::shape::{DeliveriesFound, DeliveryShown, StateShown};
use crate::cli::WhyArgs;
use crate::client::{Ask, Client, segment};
use crate::show::{plain, why};

/// Among how many of the latest the last failure is looked for.
const LOOKED_AT_MAX: usize = 100;

pub(super) async fn run(args: &WhyArgs) -> anyhow::Result<()> {
    let mut client = args.view.client()?;
    let id = match &args.delivery {
        Some(id) => id.clone(),
        None => last(&mut client, args.service.as_deref()).await?,
    };
    let ask = Ask::get(format!("/v1/deliveries/{}", segment(&id)));
    let (delivery, now) = client.timed_json::<DeliveryShown>(&ask).await?;
    print_as(args.view.format, &delivery, || why::page(&delivery, now))
}

/// The delivery that failed last, or else the latest; of that service, if one is named.
async fn last(client: &mut Client, service: Option<&str>) -> anyhow::Result<String> {
    let of = service.map(|service| format!("&service={}", segment(service))).unwrap_or_default();
    let mut before = String::new();
    // Of a service that had none for long, the latest is behind many of others.
    let found = loop {
        let ask = Ask::get(format!("/v1/deliveries?limit={LOOKED_AT_MAX}{of}{before}"));
        let found: DeliveriesFound = client.json(&ask).await?;
        match &found.next {
            Some(next) if found.deliveries.is_empty() => before = format!("&before={}", segment(next)),
            Some(_) | None => break found,
        }
    };
    if found.deliveries.is_empty() {
        service_name::check(client, service).await?;
    }
    let written_at =
        |delivery: &&DeliveryShown| delivery.written_at.or(delivery.ended_at).unwrap_or(delivery.accepted_at);
    // Of equals the first of the list is the latest.
    let failed = found.deliveries.iter().rev().filter(|delivery| has_failed(delivery)).max_by_key(written_at);
    let delivery = failed.or(found.deliveries.first()).ok_or_else(|| {
        let of = service.map(|service| format!(" of {}", plain(service))).unwrap_or_default();
        Refused(format!("there are no deliveries{of} yet: send an event with `redrive send TYPE`"))
    })?;
    Ok(delivery.id.clone())
}

/// Whether an attempt of it has failed, as far as a list tells.
const fn has_failed(delivery: &DeliveryShown) -> bool {
    match delivery.state {
        StateShown::Retrying
        | StateShown::Dead
        | StateShown::Replaying
        | StateShown::Skipped
        | StateShown::Purged
        | StateShown::Superseded => true,
        StateShown::Pending | StateShown::Held => delivery.attempts > 0,
        StateShown::Delivered => delivery.attempts > 1,
    }
}
