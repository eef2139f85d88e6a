//! `redrive timeline`: the delays of a retry policy, their jitter range, and when each retry starts.

mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use redrive_core::book::problem::nearest;
use redrive_core::ids::PolicyName;
use redrive_core::policy::backoff::{self, Backoff};
use redrive_core::policy::catalog;
use redrive_lab::report::explain::millis;
use serde_json::{Value, json};

use crate::cli::CommandRefusal;
use crate::rules::file::open_book;
use crate::terminal::print;

/// Shows the delays of a retry policy, their jitter range, and when each retry starts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive timeline standard
  redrive timeline overnight --rules redrive.yaml
  redrive timeline webhook --format json")]
pub(crate) struct TimelineArgs {
    /// The policy, from the catalog or from the rule book
    pub(crate) policy: String,
    /// The rule book that defines it
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TimelineFormat::Text)]
    pub(crate) format: TimelineFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimelineFormat {
    /// A table with a plot
    Text,
    /// A list of objects, times in milliseconds
    Json,
}

pub(crate) fn run(args: &TimelineArgs) -> anyhow::Result<ExitCode> {
    let (backoff, origin) = find(args)?;
    match args.format {
        TimelineFormat::Text => print(&text::render(&args.policy, &backoff, &origin))?,
        TimelineFormat::Json => print(&(serde_json::to_string_pretty(&rows(&backoff))? + "\n"))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn find(args: &TimelineArgs) -> anyhow::Result<(Backoff, String)> {
    let mut known: Vec<String> = catalog::policies().iter().map(|policy| policy.name.to_owned()).collect();
    if let Some(path) = &args.rules {
        let book = open_book(path)?;
        let own = PolicyName::new(&args.policy).ok().and_then(|name| book.sections().policies.get(&name));
        if let Some(at) = own {
            let line = at.span.position.line;
            let from = at.value.from.as_ref().map(|from| format!(", extends {from}")).unwrap_or_default();
            return Ok((at.value.backoff.clone(), format!("{}, line {line}{from}", path.display())));
        }
        known.extend(book.sections().policies.keys().map(ToString::to_string));
    }
    match catalog::policy(&args.policy) {
        Some(policy) => Ok((policy.backoff.clone(), "from the catalog".to_owned())),
        None => Err(CommandRefusal(unknown(args, &known)).into()),
    }
}

fn unknown(args: &TimelineArgs, known: &[String]) -> String {
    let near = nearest(&args.policy, known.iter().map(String::as_str));
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let own = if args.rules.is_some() { "" } else { "\n  pass --rules FILE for policies of a rule book" };
    format!("there is no retry policy `{}`{near}\n  available: {}{own}", args.policy, known.join(", "))
}

fn rows(backoff: &Backoff) -> Vec<Value> {
    let row = |step: backoff::RetryStep| {
        json!({
            "retry": step.retry,
            "delay_ms": millis(step.nominal),
            "delay_min_ms": millis(step.min),
            "delay_max_ms": millis(step.max),
            "cumulative_ms": millis(step.cumulative),
        })
    };
    backoff::timeline(backoff).into_iter().map(row).collect()
}
