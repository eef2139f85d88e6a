//! `redrive simulate`: plays a scenario against a rule book, and says what would happen.
//!
//! The core plays; here are the files, the threads for many runs, the bar that shows how far it is, and the runs
//! that prove an advice. Two books are put side by side in `compare.rs`, and one over several values in
//! `sweep.rs`.

mod compare;
mod document;
mod html_file;
mod many;
pub(super) mod progress;
mod sweep;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use redrive_core::book::RuleBook;
use redrive_core::book::model::At;
use redrive_core::book::problem::Problems;
use redrive_core::text::show_rounded;
use redrive_lab::scenario::{self, Scenario, trace};
use redrive_lab::simulate::advice::advised;
use redrive_lab::simulate::verdict::{Finding, verdict};
use redrive_lab::simulate::{self, Cancelled, Go, Plan, Progress, Report};
use serde::Serialize;

use self::document::Played;
use self::progress::Bar;
use super::{Refused, load, print, read_book};
use crate::cli::{Format, SimulateArgs};
use crate::show;

pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    for rules in [Some(&args.rules), args.against.as_ref()].into_iter().flatten() {
        refuse_scenario(rules)?;
    }
    if args.seed.checked_add(u64::from(args.runs).saturating_sub(1)).is_none() {
        let why = format!("--seed {}: there are no {} seeds from there on", args.seed, args.runs);
        return Err(Refused(why).into());
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
        let plan = Plan { scenario: &scenario, book, seed: args.seed };
        return many::run(&plan, args);
    }
    let plan = Plan { scenario: &scenario, book, seed: args.seed };
    let report = watched(|watch| simulate::run(&plan, watch))?;
    let findings = if args.no_advice {
        verdict(&report, &plan.book)
    } else {
        watched(|watch| Ok(advised(&plan, &report, &book_text, watch)))?
    };
    let run = Run { report: &report, findings: &findings };
    put_out(args, &Played::new("run", &scenario, args, &run), || {
        show::simulate::page(&report, &findings, show::terminal_columns())
    })?;
    Ok(Expectations::of(report.expectations.iter().map(|expected| expected.met)).code(args))
}

/// What one run came to, for programs.
#[derive(Serialize)]
struct Run<'a> {
    #[serde(flatten)]
    report: &'a Report,
    findings: &'a [Finding],
}

/// Writes the page if one is wanted, and prints the report. In JSON, lists of numbers, which are long, take a line
/// each.
fn put_out(
    args: &SimulateArgs,
    played: &Played<'_, impl Serialize>,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    html_file::write(args, played)?;
    match args.format {
        Format::Text => print(&text()),
        Format::Json => print(&show::compact_json::text(&serde_json::to_value(played.report)?)),
    }
}

/// Whether all came as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expectations {
    Met,
    Failed,
}

impl Expectations {
    fn of(mut met: impl Iterator<Item = bool>) -> Self {
        if met.all(|is_met| is_met) { Self::Met } else { Self::Failed }
    }

    /// Only whoever asked for it is told by the exit code.
    fn code(self, args: &SimulateArgs) -> ExitCode {
        match self {
            Self::Failed if args.expect => ExitCode::from(1),
            Self::Failed | Self::Met => ExitCode::SUCCESS,
        }
    }
}

/// Plays with a bar that shows how far it is.
fn watched<T>(
    play: impl FnOnce(&mut dyn FnMut(Progress) -> Go) -> Result<T, Cancelled>,
) -> anyhow::Result<T> {
    let mut bar = Bar::new();
    let played = play(&mut |progress| bar.show(&progress));
    bar.clear();
    Ok(played?)
}

/// Whoever mixes the two up is told so, and not what a rule book has in place of a scenario's keys.
fn refuse_scenario(rules: &Path) -> anyhow::Result<()> {
    let is_scenario = |bytes: Vec<u8>| scenario::read_bytes(&bytes).scenario.is_some();
    if std::fs::read(rules).is_ok_and(is_scenario) {
        let shown = rules.display();
        let help = "give the scenario first, and the rule book with --rules";
        anyhow::bail!("{shown} is a scenario, and no rule book: {help}");
    }
    Ok(())
}

/// The scenario in a file with the traces it names; one with errors, or that does not fit each of the books, is
/// shown and refused, and what it only warns of is shown.
fn read_scenario(args: &SimulateArgs, books: &[(&Path, &RuleBook)]) -> anyhow::Result<Scenario> {
    let path = args.scenario.as_path();
    let bytes = load_scenario(path)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let shown = path.display();
    let refused = |problems: Problems, why: String| {
        for problem in problems.into_sorted() {
            show::problem::say(&problem, path, &text);
        }
        anyhow::Error::from(Refused(why))
    };
    let reading = scenario::read_bytes(&bytes);
    let Some(scenario) = reading.scenario else {
        return Err(refused(reading.problems, format!("{shown} has errors: mend them first")));
    };
    for (book_path, book) in books {
        let misfits = scenario.misfits(book);
        if misfits.has_errors() {
            let why = format!("{shown} does not fit {}: mend one of them first", book_path.display());
            return Err(refused(misfits, why));
        }
    }
    if args.expect && scenario.expectations.is_empty() {
        let words = format!("{shown} expects nothing, so --expect asks for nothing: give it `expect`");
        anstream::eprintln!("{}: {words}", show::style::warning("warning"));
    }
    for warning in reading.problems.into_sorted() {
        show::problem::say(&warning, path, &text);
    }
    with_traces(scenario, path, &text)
}

fn load_scenario(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path.exists() {
        return load(path);
    }
    anyhow::bail!("could not read {}: there is no such file; examples/scenarios has some", path.display())
}

/// A trace lies where the scenario does, unless its name says otherwise. What is wrong with one is shown where the
/// scenario names it.
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
                show::problem::say(&problem, path, text);
            }
        };
        let recorded = std::fs::read_to_string(&file).map_err(|error| {
            say("no-trace", format!("could not read {shown}: {}", show::io_words(&error)), TRACE_HELP);
            anyhow::anyhow!("{} names a trace that cannot be read", path.display())
        })?;
        let refused = |message: String| {
            say("bad-trace", message, TRACE_FORM);
            Refused(format!("{} names a trace that cannot be played: mend it first", path.display()))
        };
        let times =
            trace::parse(&recorded).map_err(|error| refused(format!("{shown} is no trace: {error}")))?;
        if let Some(first) = times.first().filter(|first| **first >= scenario.duration) {
            let (first, end) = (show_rounded(*first), show_rounded(scenario.duration));
            let message = format!("the first of {shown} arrives at {first}, and the scenario ends at {end}");
            return Err(refused(message).into());
        }
        scenario = scenario.with_trace(&name, &times);
    }
    Ok(scenario)
}

const TRACE_HELP: &str = "a trace lies beside the scenario, unless its name leads elsewhere";
const TRACE_FORM: &str = "one time in each line: seconds since the start, such as 12.5, or points in time";
