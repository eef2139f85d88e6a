//! What can be typed for `redrive doctor`.

use std::path::PathBuf;

use clap::Args;
use redrive_lab::doctor::Harm;

use super::dlq::FromArgs;
use super::one_of;
use super::remote::Format;

/// Says what ails a server, with the evidence and the change to the rule book.
///
/// It looks at the latest 5,000 deliveries with all their attempts, at queues, breakers and dead letters, and
/// at what the server has counted. What it has seen too little of, it does not judge.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive doctor
  redrive doctor --service billing
  redrive doctor --data /var/lib/redrive --rules redrive.yaml
  redrive doctor --deny high --format json
  redrive doctor --explain timeout-too-short

Exit code: 0 looked, 1 something does as much harm as --deny says, or refused, 2 wrong use, 3 no server.")]
pub(crate) struct DoctorArgs {
    /// Only this service and its channels
    #[arg(long)]
    pub(crate) service: Option<String>,
    /// With --data: the rule book to hold against what happened; else the one of the latest attempt
    #[arg(long, value_name = "FILE", requires = "data")]
    pub(crate) rules: Option<PathBuf>,
    /// Ends with 1 if anything does this much harm, or more
    #[arg(long, value_name = "HARM", value_parser = one_of(&HARMS))]
    pub(crate) deny: Option<Harm>,
    /// Says what a diagnosis means and what to do about it, or lists them: `all`
    #[arg(long, value_name = "CODE")]
    pub(crate) explain: Option<String>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) from: FromArgs,
}

/// How much harm is too much.
const HARMS: [(&str, &str, Harm); 4] = [
    ("critical", "Deliveries stand still, or most of them fail", Harm::Critical),
    ("high", "Deliveries fail that need not", Harm::High),
    ("medium", "Things are slower or dearer than they need be", Harm::Medium),
    ("low", "Anything", Harm::Low),
];
