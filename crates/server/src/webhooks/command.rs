//! `redrive hooks`: refused webhook calls, and signed test calls.

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use redrive::clock::wall_clock;
use serde_json::json;

use crate::cli::ViewArgs;
use crate::client::{ClientRequest, gather};
use crate::terminal::{print_as, print_bytes};
use crate::webhooks::json::{RefusedCallJson, RefusedCallsResponse};
use crate::webhooks::sign::{self, HooksSignArgs};
use crate::webhooks::text;

/// Tests webhook sources, and shows refused calls.
#[derive(Debug, Args)]
#[command(after_help = "\
A first webhook:
  redrive serve --rules redrive.yaml            with a source `github` in the rule book
  redrive hooks sign github --body push.json    a curl command with a valid signature
  redrive hooks refused                         refused calls with a valid signature")]
pub(crate) struct HooksArgs {
    #[command(subcommand)]
    pub(crate) what: HooksCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    Refused(HooksRefusedArgs),
    Show(HooksShowArgs),
    Sign(HooksSignArgs),
}

/// Lists calls with a valid signature that were refused, latest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive hooks refused
  redrive hooks refused --limit 200 --format json

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct HooksRefusedArgs {
    /// Maximum number of calls
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Shows a refused call with its headers and body.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive hooks show 12
  redrive hooks show 12 --raw > body.json

Exit code: 0 shown, 1 not found, 2 wrong use, 3 no server.")]
pub(crate) struct HooksShowArgs {
    /// Its number, as `redrive hooks refused` shows it
    #[arg(value_name = "NUMBER")]
    pub(crate) number: u64,
    /// Prints the raw body only
    #[arg(long, conflicts_with = "format")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

pub(crate) async fn run(args: &HooksArgs) -> anyhow::Result<()> {
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
        let ask = ClientRequest::find("/v1/refused-hooks", &json!({ "limit": limit, "before": before }));
        let found: RefusedCallsResponse;
        (found, now) = client.timed_json(&ask).await?;
        Ok((found.refused, found.next.map(|next| next.to_string())))
    })
    .await?;
    print_as(args.view.format, &all, || text::list(&all, now))
}

async fn show(args: &HooksShowArgs) -> anyhow::Result<()> {
    let ask = ClientRequest::get(format!("/v1/refused-hooks/{}", args.number));
    let (shown, now) = args.view.client()?.timed_json::<RefusedCallJson>(&ask).await?;
    let body = STANDARD.decode(shown.body_base64.as_deref().unwrap_or_default());
    let body = body.context("the server's answer has no readable body")?;
    if args.raw {
        return print_bytes(&body);
    }
    print_as(args.view.format, &shown, || text::page(&shown, &body, now))
}
