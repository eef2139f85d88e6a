//! `redrive hooks`: what was refused at the door for webhooks, and how to call it.

mod sign;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive::clock::wall_clock;
use serde_json::json;

use super::{gather, print_as, print_bytes};
use crate::api::shape::hooks::{RefusedFound, RefusedShown};
use crate::cli::{HooksArgs, HooksCommand, HooksRefusedArgs, HooksShowArgs};
use crate::client::Ask;
use crate::show::refused;

pub(super) async fn run(args: &HooksArgs) -> anyhow::Result<()> {
    match &args.what {
        HooksCommand::Refused(args) => list(args).await,
        HooksCommand::Show(args) => show(args).await,
        HooksCommand::Sign(args) => sign::run(args).await,
    }
}

async fn list(args: &HooksRefusedArgs) -> anyhow::Result<()> {
    let mut client = args.view.client()?;
    let mut now = wall_clock();
    let (all, _next) = gather(args.limit, None, async |limit, before| {
        let ask = Ask::find("/v1/refused-hooks", &json!({ "limit": limit, "before": before }));
        let found: RefusedFound;
        (found, now) = client.timed_json(&ask).await?;
        Ok((found.refused, found.next.map(|next| next.to_string())))
    })
    .await?;
    print_as(args.view.format, &all, || refused::list(&all, now))
}

async fn show(args: &HooksShowArgs) -> anyhow::Result<()> {
    let ask = Ask::get(format!("/v1/refused-hooks/{}", args.number));
    let (shown, now) = args.view.client()?.timed_json::<RefusedShown>(&ask).await?;
    let body = STANDARD.decode(shown.body_base64.as_deref().unwrap_or_default());
    let body = body.context("the server's answer has no readable body")?;
    if args.raw {
        return print_bytes(&body);
    }
    print_as(args.view.format, &shown, || refused::page(&shown, &body, now))
}
