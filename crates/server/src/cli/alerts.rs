//! The commands for alerts.

use clap::{Args, Subcommand};

use super::remote::{Format, ServerArgs};

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
    pub(crate) list: AlertsListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Alerts {
    List(AlertsListArgs),
    Test(AlertsTestArgs),
}

/// Shows the alerts of the rule book, and those who are told.
#[derive(Debug, Args)]
pub(crate) struct AlertsListArgs {
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Sends a receiver a message that says that it is a test, and waits for what becomes of it.
#[derive(Debug, Args)]
pub(crate) struct AlertsTestArgs {
    /// The receiver
    #[arg(value_name = "RECEIVER")]
    pub(crate) name: String,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
