//! The commands for breakers.

use clap::{Args, Subcommand};

use super::remote::{ServerArgs, ViewArgs};

/// Shows how the breakers of all dependencies are; trips one, or resets it.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  redrive breakers
  redrive breakers trip billing --note 'their maintenance until 14:00'
  redrive breakers reset billing

Exit code: 0 done, 1 no such dependency or no breaker, 2 wrong use, 3 no server."
)]
pub(crate) struct BreakersArgs {
    #[command(subcommand)]
    pub(crate) what: Option<Breakers>,
    #[command(flatten)]
    pub(crate) list: ViewArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Breakers {
    /// Shows how the breakers of all dependencies are
    List(ViewArgs),
    /// Opens the breaker of a dependency for as long as failures would: calls wait
    Trip(BreakerTurnArgs),
    /// Closes it and forgets the failures so far: calls flow
    Reset(BreakerTurnArgs),
}

/// Which breaker is turned.
#[derive(Debug, Args)]
pub(crate) struct BreakerTurnArgs {
    /// The dependency
    #[arg(value_name = "DEPENDENCY")]
    pub(crate) name: String,
    /// Why; for the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
