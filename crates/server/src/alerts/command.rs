//! `redrive alerts`: alert states, and a test message to a receiver.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::alerts::json::{AlertsResponse, ReceiverTestOutcome, ReceiverTestResponse};
use crate::alerts::text;
use crate::cli::ViewArgs;
use crate::client::ClientRequest;
use crate::client::address::segment;
use crate::terminal::{print_as, terminal_columns};

/// Shows alerts and receivers; sends test messages.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  redrive alerts
  redrive alerts --format json
  redrive alerts test on-call

Exit code: 0 done, 1 no such receiver or not delivered, 2 wrong use, 3 no server."
)]
pub(crate) struct AlertsArgs {
    #[command(subcommand)]
    pub(crate) what: Option<AlertsCommand>,
    #[command(flatten)]
    pub(crate) list: ViewArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AlertsCommand {
    /// Lists alerts and receivers of the rule book
    List(ViewArgs),
    Test(AlertsTestArgs),
}

/// Sends a test message to a receiver and waits for the outcome.
#[derive(Debug, Args)]
pub(crate) struct AlertsTestArgs {
    /// The receiver
    #[arg(value_name = "RECEIVER")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

pub(crate) async fn run(args: &AlertsArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        None => list(&args.list).await,
        Some(AlertsCommand::List(args)) => list(args).await,
        Some(AlertsCommand::Test(args)) => test(args).await,
    }
}

async fn list(args: &ViewArgs) -> anyhow::Result<ExitCode> {
    let (found, now) = args.client()?.timed_json::<AlertsResponse>(&ClientRequest::get("/v1/alerts")).await?;
    print_as(args.format, &found, || text::page(&found, now, terminal_columns()))?;
    Ok(ExitCode::SUCCESS)
}

async fn test(args: &AlertsTestArgs) -> anyhow::Result<ExitCode> {
    let ask = ClientRequest::json(format!("/v1/receivers/{}/test", segment(&args.name)), &json!({}));
    let (tested, now) = args.view.client()?.timed_json::<ReceiverTestResponse>(&ask).await?;
    print_as(args.view.format, &tested, || text::tested(&tested, now))?;
    let is_told = tested.outcome == ReceiverTestOutcome::Delivered;
    Ok(if is_told { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
