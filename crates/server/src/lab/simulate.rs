//! `redrive simulate`: runs a scenario against a rule book and reports the result.

#[cfg(test)]
mod classical_test;
mod compare;
mod document;
pub(crate) mod handlers;
mod html_file;
mod json;
mod many;
mod sweep;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use redrive_core::book::RuleBook;
use redrive_core::book::model::At;
use redrive_core::book::problem::Problems;
use redrive_core::text::show_rounded;
use redrive_lab::scenario::{self, Scenario, trace};
use redrive_lab::simulate::advice::advised;
use redrive_lab::simulate::sweep::Sweep;
use redrive_lab::simulate::verdict::{SimulationFinding, verdict};
use redrive_lab::simulate::{self, Cancelled, Go, SimulationPlan, SimulationProgress, SimulationReport};
use serde::Serialize;

use crate::cli::{CommandRefusal, Format};
use crate::lab::simulate::document::SimulationDocument;
use crate::rules::file::{load, read_book};
use crate::terminal::progress::ProgressBar;
use crate::terminal::{self, compact_json, print, problem, style};

/// Runs a scenario against a rule book in virtual time, with the engine of the server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive simulate examples/scenarios/outage.yaml --rules examples/rulebooks/notifications.yaml
  redrive simulate outage.yaml --rules redrive.yaml --expect     fail if an expectation fails
  redrive simulate outage.yaml --rules redrive.yaml --runs 100   ranges over a hundred seeds
  redrive simulate outage.yaml --rules a.yaml --against b.yaml   which is better at what
  redrive simulate outage.yaml --rules redrive.yaml --sweep retries.standard.max=5s,30s,120s
  redrive simulate outage.yaml --rules redrive.yaml --html outage.html
  redrive simulate outage.yaml --rules redrive.yaml --format json

The same scenario, rule book and seed give the same result on every machine. Advice is verified: each change \
was simulated with five seeds and was better with each.

Exit code: 0 done, 1 problems in a file, or an expectation failed with --expect, 2 a file cannot be read.")]
pub(crate) struct SimulateArgs {
    /// The scenario
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// Another rule book to compare with
    #[arg(long, value_name = "FILE", conflicts_with = "sweep")]
    pub(crate) against: Option<PathBuf>,
    /// A setting of the rule book and the values to try; given twice, every combination
    #[arg(long, value_name = "PATH=VALUE,…")]
    pub(crate) sweep: Vec<Sweep>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number of runs, with this seed and the following ones
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,
    /// Exits with 1 if an expectation of the scenario fails
    #[arg(long)]
    pub(crate) expect: bool,
    /// Skips the search for changes that would help
    #[arg(long)]
    pub(crate) no_advice: bool,
    /// Also writes a self-contained page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    for rules in [Some(&args.rules), args.against.as_ref()].into_iter().flatten() {
        refuse_scenario(rules)?;
    }
    if args.seed.checked_add(u64::from(args.runs).saturating_sub(1)).is_none() {
        let why = format!("--seed {}: too large for {} runs", args.seed, args.runs);
        return Err(CommandRefusal(why).into());
    }
    if let Some(against) = &args.against {
        return compare::run(args, against);
    }
    if !args.sweep.is_empty() {
        return sweep::run(args);
    }
    let (book, book_text) = read_book(&args.rules)?;
    let book = Arc::new(book);
    let scenario = read_scenario(args, &[(&args.rules, &book)])?;
    if args.runs > 1 {
        let plan = SimulationPlan { scenario: &scenario, book, seed: args.seed };
        return many::run(&plan, args);
    }
    let plan = SimulationPlan { scenario: &scenario, book, seed: args.seed };
    let report = watched(|watch| simulate::run(&plan, watch))?;
    let findings = if args.no_advice {
        verdict(&report, &plan.book)
    } else {
        watched(|watch| Ok(advised(&plan, &report, &book_text, watch)))?
    };
    let run = SimulationRun { report: &report, findings: &findings };
    put_out(args, &SimulationDocument::new("run", &scenario, args, &run), || {
        text::page(&report, &findings, terminal::terminal_columns())
    })?;
    Ok(Expectations::of(report.expectations.iter().map(|expected| expected.met)).code(args))
}

#[derive(Serialize)]
struct SimulationRun<'a> {
    #[serde(flatten)]
    report: &'a SimulationReport,
    findings: &'a [SimulationFinding],
}

/// Writes the page if requested, and prints the report. In JSON, long lists of numbers take a line each.
fn put_out(
    args: &SimulateArgs,
    played: &SimulationDocument<'_, impl Serialize>,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    html_file::write(args, played)?;
    match args.format {
        Format::Text => print(&text()),
        Format::Json => print(&compact_json::text(&serde_json::to_value(played.report)?)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expectations {
    Met,
    Failed,
}

impl Expectations {
    fn of(mut met: impl Iterator<Item = bool>) -> Self {
        if met.all(|is_met| is_met) { Self::Met } else { Self::Failed }
    }

    /// Only `--expect` changes the exit code.
    fn code(self, args: &SimulateArgs) -> ExitCode {
        match self {
            Self::Failed if args.expect => ExitCode::from(1),
            Self::Failed | Self::Met => ExitCode::SUCCESS,
        }
    }
}

fn watched<T>(
    play: impl FnOnce(&mut dyn FnMut(SimulationProgress) -> Go) -> Result<T, Cancelled>,
) -> anyhow::Result<T> {
    let mut bar = ProgressBar::new();
    let played = play(&mut |progress| bar.show(&progress));
    bar.clear();
    Ok(played?)
}

/// Detects swapped arguments, for which the usual errors would be misleading.
fn refuse_scenario(rules: &Path) -> anyhow::Result<()> {
    let is_scenario = |bytes: Vec<u8>| scenario::read_bytes(&bytes).scenario.is_some();
    if std::fs::read(rules).is_ok_and(is_scenario) {
        let shown = rules.display();
        let help = "pass the scenario first and the rule book with --rules";
        anyhow::bail!("{shown} is a scenario, not a rule book: {help}");
    }
    Ok(())
}

/// The scenario in a file with its traces; refused if it has errors or does not fit a book; warnings are
/// printed.
fn read_scenario(args: &SimulateArgs, books: &[(&Path, &RuleBook)]) -> anyhow::Result<Scenario> {
    let path = args.scenario.as_path();
    let bytes = load_scenario(path)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let shown = path.display();
    let refused = |problems: Problems, why: String| {
        for problem in problems.into_sorted() {
            problem::say(&problem, path, &text);
        }
        anyhow::Error::from(CommandRefusal(why))
    };
    let reading = scenario::read_bytes(&bytes);
    let Some(scenario) = reading.scenario else {
        return Err(refused(reading.problems, format!("{shown} has errors: fix these errors first")));
    };
    for (book_path, book) in books {
        let misfits = scenario.misfits(book);
        if misfits.has_errors() {
            let why = format!("{shown} does not fit {}: fix one of them first", book_path.display());
            return Err(refused(misfits, why));
        }
    }
    if args.expect && scenario.expectations.is_empty() {
        let words = format!("{shown} has no expectations, so --expect has no effect: add `expect`");
        anstream::eprintln!("{}: {words}", style::warning("warning"));
    }
    for warning in reading.problems.into_sorted() {
        problem::say(&warning, path, &text);
    }
    with_traces(scenario, path, &text)
}

fn load_scenario(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path.exists() {
        return load(path);
    }
    anyhow::bail!("could not read {}: no such file; see examples/scenarios", path.display())
}

/// A trace path is relative to the scenario. Problems of a trace are shown where the scenario names it.
fn with_traces(mut scenario: Scenario, path: &Path, text: &str) -> anyhow::Result<Scenario> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let files: Vec<At<String>> = scenario.traces().cloned().collect();
    for At { value: name, span } in files {
        let file = folder.join(&name);
        let shown = file.display();
        let say = |code: &'static str, message: String, help: &str| {
            let mut problems = Problems::default();
            problems.error(code, span, message, help);
            for problem in problems.into_sorted() {
                problem::say(&problem, path, text);
            }
        };
        let recorded = std::fs::read_to_string(&file).map_err(|error| {
            say("no-trace", format!("could not read {shown}: {}", terminal::io_words(&error)), TRACE_HELP);
            anyhow::anyhow!("{} has a trace that cannot be read", path.display())
        })?;
        let refused = |message: String| {
            say("bad-trace", message, TRACE_FORM);
            CommandRefusal(format!("{} has an invalid trace: fix it first", path.display()))
        };
        let times = trace::parse(&recorded)
            .map_err(|error| refused(format!("{shown} is not a valid trace: {error}")))?;
        if let Some(first) = times.first().filter(|first| **first >= scenario.duration) {
            let (first, end) = (show_rounded(*first), show_rounded(scenario.duration));
            let message =
                format!("the first arrival of {shown} is at {first}, but the scenario ends at {end}");
            return Err(refused(message).into());
        }
        scenario = scenario.with_trace(&name, &times);
    }
    Ok(scenario)
}

const TRACE_HELP: &str = "the path is relative to the scenario";

const TRACE_FORM: &str = "one time per line: seconds since the start, such as 12.5, or timestamps";
