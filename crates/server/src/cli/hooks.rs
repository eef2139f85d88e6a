//! The commands for webhooks.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::remote::{ServerArgs, ViewArgs};

/// Tries webhook sources out, and shows what was refused.
#[derive(Debug, Args)]
#[command(after_help = "\
A first webhook:
  redrive serve --rules redrive.yaml            with a source `github` in the rule book
  redrive hooks sign github --body push.json    a curl command with a good signature
  redrive hooks refused                         what was signed well and is no event all the same")]
pub(crate) struct HooksArgs {
    #[command(subcommand)]
    pub(crate) what: HooksCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    Refused(HooksRefusedArgs),
    Show(HooksShowArgs),
    Sign(HooksSignArgs),
}

/// Lists what came with a good signature and could not be taken, the latest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive hooks refused
  redrive hooks refused --limit 200 --format json

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct HooksRefusedArgs {
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Shows one of them with its headers and its body.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive hooks show 12
  redrive hooks show 12 --raw > body.json

Exit code: 0 shown, 1 it is not kept any more, 2 wrong use, 3 no server.")]
pub(crate) struct HooksShowArgs {
    /// Its number, as `redrive hooks refused` tells it
    #[arg(value_name = "NUMBER")]
    pub(crate) number: u64,
    /// Prints the body as it came, and nothing else
    #[arg(long, conflicts_with = "format")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Prints a curl command that calls a webhook source with a good signature.
///
/// The secret is read where the rule book says, and is not printed. Most schemes sign the time too: such a
/// command is good for a few minutes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive hooks sign github --event issues --body issue.json
  redrive hooks sign billing --rules rules/billing.yaml | sh

Exit code: 0 printed, 1 no such source, or its secret cannot be had, 2 a file cannot be read.")]
pub(crate) struct HooksSignArgs {
    /// The source's name in the rule book
    pub(crate) source: String,
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// The file that holds the body; without it, the body is {}
    #[arg(long, value_name = "FILE")]
    pub(crate) body: Option<PathBuf>,
    /// What happened, where the scheme says so in a header: with `github`
    #[arg(long, value_name = "NAME", default_value = "ping")]
    pub(crate) event: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
