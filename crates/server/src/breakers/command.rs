//! `redrive breakers`: lists, trips and resets circuit breakers.

use clap::{Args, Subcommand};
use serde_json::json;

use crate::breakers::json::{DependenciesResponse, DependencyJson};
use crate::breakers::text;
use crate::cli::{ServerArgs, ViewArgs};
use crate::client::ClientRequest;
use crate::client::address::segment;
use crate::terminal::{print, print_as, terminal_columns};

/// Lists circuit breakers; trips or resets one.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  redrive breakers
  redrive breakers trip billing --note 'maintenance until 14:00'
  redrive breakers reset billing

Exit code: 0 done, 1 no such dependency or no breaker, 2 wrong use, 3 no server."
)]
pub(crate) struct BreakersArgs {
    #[command(subcommand)]
    pub(crate) what: Option<BreakersCommand>,
    #[command(flatten)]
    pub(crate) list: ViewArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BreakersCommand {
    /// Lists the circuit breakers of all dependencies
    List(ViewArgs),
    /// Opens a breaker for its usual open time; deliveries wait
    Trip(BreakerSetArgs),
    /// Closes a breaker and clears its failure counts
    Reset(BreakerSetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BreakerSetArgs {
    /// The dependency
    #[arg(value_name = "DEPENDENCY")]
    pub(crate) name: String,
    /// The reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) async fn run(args: &BreakersArgs) -> anyhow::Result<()> {
    match &args.what {
        None => list(&args.list).await,
        Some(BreakersCommand::List(args)) => list(args).await,
        Some(BreakersCommand::Trip(args)) => turn(args, "trip").await,
        Some(BreakersCommand::Reset(args)) => turn(args, "reset").await,
    }
}

async fn list(args: &ViewArgs) -> anyhow::Result<()> {
    let ask = ClientRequest::get("/v1/dependencies");
    let (found, now) = args.client()?.timed_json::<DependenciesResponse>(&ask).await?;
    print_as(args.format, &found, || text::page(&found.dependencies, now, terminal_columns()))
}

async fn turn(args: &BreakerSetArgs, act: &str) -> anyhow::Result<()> {
    let path = format!("/v1/dependencies/{}/{act}", segment(&args.name));
    let ask = ClientRequest::json(path, &json!({ "note": args.note }));
    let (shown, now) = args.server.client()?.timed_json::<DependencyJson>(&ask).await?;
    print(&text::turned(&shown, now))
}
