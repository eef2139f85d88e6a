//! What can be typed: commands, flags and their help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Delivers events and records one outcome for each, by rules you can read.
#[derive(Debug, Parser)]
#[command(name = "redrive", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Check(CheckArgs),
}

/// Finds what is wrong with a rule book, and what will hurt later.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive check redrive.yaml
  redrive check rules/*.yaml --deny warnings
  redrive check redrive.yaml --format json
  redrive check --explain retry-outlives-deadline

Exit code: 0 clean, 1 problems, 2 a file cannot be read.")]
pub(crate) struct CheckArgs {
    /// The rule books
    #[arg(required_unless_present = "explain", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// How to print what was found
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    pub(crate) format: CheckFormat,
    /// What else counts as a problem
    #[arg(long, value_enum)]
    pub(crate) deny: Option<Deny>,
    /// Also says which lints cannot tell, and which fact they lack
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Explains a lint and shows a bad book and its mended twin; `all` lists every lint
    #[arg(long, value_name = "CODE")]
    pub(crate) explain: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// For people
    Text,
    /// A list of objects
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Deny {
    /// Warnings fail the check too
    Warnings,
}
