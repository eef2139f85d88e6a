//! `redrive backtest` as it is typed.

use std::path::PathBuf;

use clap::Args;

use super::{DATA_DEFAULT, Format};

/// Holds what happened against another rule book: which deliveries would have ended otherwise?
///
/// It reads the record of a data folder, also while a server runs on it, and changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive backtest --data /var/lib/redrive --rules new.yaml
  redrive backtest --data /var/lib/redrive --rules new.yaml --since 7d
  redrive backtest --rules new.yaml --since 2026-01-31T12:00:00Z --format json

Where the new rules ask for the attempts that were made, what follows is certain. Where they would have \
tried at another time, it is taken from what the dependency answered to others at about that time; and \
where nobody called, it is not told.

Exit code: 0 compared, 1 refused, or problems in the rule book, 2 wrong use, or a file cannot be read.")]
pub(crate) struct BacktestArgs {
    /// The data folder, on which a server may be running
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub(crate) data: PathBuf,
    /// The rule book to hold against what happened
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// Only what was accepted then or later: a time, or a span ago such as 7d; without it, everything
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}
