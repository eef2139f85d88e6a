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
    Try(TryArgs),
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

/// Walks a delivery through answers that you name and says why each thing happens; needs no server.
#[derive(Debug, Args)]
#[command(after_help = "\
Answers, separated by commas:
  200, 404, 503 …    an HTTP status             503*4        four times
  429:60             with Retry-After: 60       500=quota    with a message
  timeout, refused, reset, dns, tls             the connection's own failures
  crash, oom         a process that fails       invalid      a message that does not parse
  DHT_UNAVAILABLE    a code of your own         ok           taken

Examples:
  redrive try todo.reminder.fired --rules examples/rulebooks/todo.yaml --answers 503,429:60,timeout,200
  redrive try orders.placed --rules redrive.yaml --service billing --answers 503*9")]
pub(crate) struct TryArgs {
    /// The event's type
    pub(crate) event_type: String,
    /// The rule book
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: PathBuf,
    /// Only this service, or service/channel
    #[arg(long)]
    pub(crate) service: Option<String>,
    /// What the target answers, one after the other
    #[arg(long, default_value = "200")]
    pub(crate) answers: String,
    /// What the jitter is drawn from; the same seed gives the same delays
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}
