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
    Export(ExportArgs),
    Import(ImportArgs),
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

/// Writes a rule book in another form.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(subcommand)]
    pub(crate) what: ExportWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExportWhat {
    Dapr(ExportDaprArgs),
}

/// Writes the retries, timeouts and breakers of a rule book as a Dapr resiliency file.
///
/// Dependencies with `dapr:` become targets. What Dapr cannot hold is listed on standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive export dapr --rules redrive.yaml > resiliency.yaml
  redrive export dapr --rules redrive.yaml --with-matching | kubectl apply -f -

Exit code: 0 done, 2 the book has errors or cannot be read.")]
pub(crate) struct ExportDaprArgs {
    /// The rule book
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: PathBuf,
    /// Lists the HTTP statuses to retry in every policy: without it Dapr retries all failures
    #[arg(long)]
    pub(crate) with_matching: bool,
}

/// Makes a rule book of another tool's file.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    pub(crate) what: ImportWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportWhat {
    Dapr(ImportDaprArgs),
}

/// Makes a rule book of a Dapr resiliency file.
///
/// What Dapr does without saying so is written out in the book and listed on standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive import dapr resiliency.yaml > redrive.yaml
  redrive import dapr resiliency.yaml -o redrive.yaml

Exit code: 0 done, 1 Dapr would refuse the file or it has no counterpart, 2 a file cannot be read or written.")]
pub(crate) struct ImportDaprArgs {
    /// The Dapr file, with one resource of kind Resiliency
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Writes the book to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
