//! The commands for services that the rule book has no more.

use clap::{Args, Subcommand};

use super::{ServerArgs, ViewArgs};

/// Shows services and rows that left the rule book while deliveries wait for them; ends those, or sends them elsewhere.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  redrive removed
  redrive removed move billing --to payments
  redrive removed dead-letter billing --limit 25 --note 'billing is gone for good'

A service that stays in the rule book and loses a row is listed too, with the deliveries that no row takes.
What comes back into the rule book gets what waits for it, and nothing has to be done.

Exit code: 0 done, 1 the rule book has a row for all that waits, or not the other service, 2 wrong use, 3 no server."
)]
pub(crate) struct RemovedArgs {
    #[command(subcommand)]
    pub(crate) what: Option<Removed>,
    #[command(flatten)]
    pub(crate) list: ViewArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Removed {
    /// Shows services and rows that the rule book has no more and that deliveries wait for
    List(ViewArgs),
    /// Turns what waits for a removed service or row into dead letters (`SERVICE_REMOVED`, `RULE_REMOVED`), the oldest first
    DeadLetter(RemovedOf),
    /// Sends what waits for a removed service or row to another service, each session in its order
    Move(RemovedMoveArgs),
}

/// Whose deliveries go where.
#[derive(Debug, Args)]
pub(crate) struct RemovedMoveArgs {
    /// The service that gets them, or one of its channels
    #[arg(long, value_name = "SERVICE[/CHANNEL]")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) of: RemovedOf,
}

/// Which deliveries.
#[derive(Debug, Args)]
pub(crate) struct RemovedOf {
    /// The service that was removed or has lost rows, or one of its channels
    #[arg(value_name = "SERVICE[/CHANNEL]")]
    pub(crate) service: String,
    /// So many at most
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Why; for the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
