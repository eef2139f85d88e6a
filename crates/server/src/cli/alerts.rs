//! The commands for alerts.

use clap::{Args, Subcommand};

use super::remote::ViewArgs;

/// Shows the alerts of the rule book and where they stand; tries out whether a receiver hears us.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  redrive alerts
  redrive alerts --format json
  redrive alerts test on-call

Exit code: 0 done, 1 no such receiver or it was not reached, 2 wrong use, 3 no server."
)]
pub(crate) struct AlertsArgs {
    #[command(subcommand)]
    pub(crate) what: Option<Alerts>,
    #[command(flatten)]
    pub(crate) list: ViewArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Alerts {
    /// Shows the alerts of the rule book, and those who are told
    List(ViewArgs),
    Test(AlertsTestArgs),
}

/// Sends a receiver a message that says that it is a test, and waits for what becomes of it.
#[derive(Debug, Args)]
pub(crate) struct AlertsTestArgs {
    /// The receiver
    #[arg(value_name = "RECEIVER")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}
