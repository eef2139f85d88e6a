//! `redrive simulate` as it is typed.

use std::path::PathBuf;

use clap::Args;
use redrive_lab::simulate::sweep::Sweep;

use super::Format;

/// Plays a scenario against a rule book, in virtual time and with the engine of a server: what would happen?
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive simulate examples/scenarios/outage.yaml --rules examples/rulebooks/notifications.yaml
  redrive simulate outage.yaml --rules redrive.yaml --expect     fails if an expectation of the scenario does
  redrive simulate outage.yaml --rules redrive.yaml --runs 100   ranges over a hundred seeds
  redrive simulate outage.yaml --rules a.yaml --against b.yaml   which is better at what
  redrive simulate outage.yaml --rules redrive.yaml --sweep retries.standard.max=5s,30s,120s
  redrive simulate outage.yaml --rules redrive.yaml --html outage.html
  redrive simulate outage.yaml --rules redrive.yaml --format json

The same scenario, rule book and seed give the same answer, on every machine. Advice is proven: the scenario \
was played again with the change, with five seeds, and came out better with each.

Exit code: 0 played, 1 problems in a file, or an expectation failed with --expect, 2 a file cannot be read.")]
pub(crate) struct SimulateArgs {
    /// The scenario
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// Another rule book, to see which of the two is better at what
    #[arg(long, value_name = "FILE", conflicts_with = "sweep")]
    pub(crate) against: Option<PathBuf>,
    /// A setting of the rule book and the values to try there; given twice, every combination
    #[arg(long, value_name = "PATH=VALUE,…")]
    pub(crate) sweep: Vec<Sweep>,
    /// What chance is drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Plays it so many times, with this seed and those that follow
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,
    /// Fails if an expectation of the scenario does
    #[arg(long)]
    pub(crate) expect: bool,
    /// Does not look for changes that would help
    #[arg(long)]
    pub(crate) no_advice: bool,
    /// Writes a page with plots to this file as well, which needs nothing else to be looked at
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}
