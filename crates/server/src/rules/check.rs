//! `redrive check`: problems of a rule book, where they are, and how to fix them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use redrive_core::book::problem::{BookSpan, Problem, ProblemSeverity, suggest};
use redrive_core::text::counted;
use redrive_lab::lint::{self, CheckReport, Lint};
use serde::Serialize;

use crate::cli::CommandRefusal;
use crate::connectors;
use crate::rules::file::load;
use crate::terminal::{self, print, print_json, problem, style};

/// Checks rule books for errors and risky settings.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive check redrive.yaml
  redrive check rules/*.yaml --deny warnings
  redrive check redrive.yaml --format json
  redrive check --explain retry-outlives-deadline

Exit code: 0 valid, 1 problems, 2 a file cannot be read.")]
pub(crate) struct CheckArgs {
    /// The rule books
    #[arg(default_value = "redrive.yaml", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    pub(crate) format: CheckFormat,
    /// What else fails the check
    #[arg(long, value_enum)]
    pub(crate) deny: Option<DenyLevel>,
    /// Lists the lints that were skipped and the fact each needs
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Explains a lint with a bad book and its fix; `all` lists every lint
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
pub(crate) enum DenyLevel {
    /// Warnings fail the check too
    Warnings,
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    if let Some(code) = &args.explain {
        return explain(code);
    }
    let mut rows = Vec::new();
    let (mut errors, mut warnings, mut unreadable) = (0, 0, 0);
    for path in &args.files {
        let bytes = match load(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                // The other files are still checked.
                anstream::eprintln!("{}: {error:#}", style::error("error"));
                unreadable += 1;
                continue;
            }
        };
        let checked = lint::check_for(&bytes, connectors::table());
        let count = |severity| checked.problems.iter().filter(|p| p.severity == severity).count();
        errors += count(ProblemSeverity::Error);
        warnings += count(ProblemSeverity::Warning);
        match args.format {
            CheckFormat::Text => print(&report(path, &String::from_utf8_lossy(&bytes), &checked, args))?,
            CheckFormat::Json => {
                rows.extend(checked.problems.into_iter().map(|problem| CheckRow::new(problem, path)));
                rows.extend((checked.left_out > 0).then(|| CheckRow::left_out(checked.left_out, path)));
            }
        }
    }
    if args.format == CheckFormat::Json {
        print_json(&rows)?;
    }
    if unreadable > 0 {
        return Ok(ExitCode::from(2));
    }
    let is_clean = errors == 0 && (warnings == 0 || args.deny != Some(DenyLevel::Warnings));
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

#[derive(Serialize)]
struct CheckRow {
    severity: ProblemSeverity,
    code: &'static str,
    file: String,
    line: u32,
    column: u32,
    message: String,
    help: String,
}

impl CheckRow {
    fn left_out(count: usize, path: &Path) -> Self {
        let message = format!("{count} more problems are not listed");
        let span = BookSpan::default();
        let help = "fix these errors first".to_owned();
        Self::new(
            Problem { severity: ProblemSeverity::Info, code: "more-problems", span, message, help },
            path,
        )
    }

    fn new(problem: Problem, path: &Path) -> Self {
        Self {
            severity: problem.severity,
            code: problem.code,
            file: path.display().to_string(),
            line: problem.span.position.line,
            column: problem.span.position.column,
            message: problem.message,
            help: problem.help,
        }
    }
}

fn report(path: &Path, text: &str, checked: &CheckReport, args: &CheckArgs) -> String {
    let mut out = String::new();
    for problem in &checked.problems {
        out.push_str(&problem::render(problem, path, text));
        out.push_str("\n\n");
    }
    if args.verbose {
        for skipped in &checked.skipped {
            let place = format!("{}:{}", path.display(), skipped.span.position);
            let line = format!("{}: {place}: needs `{}`:", style::info("skipped"), skipped.fact);
            out.push_str(&format!("{line} {}\n", style::bold(skipped.lint)));
        }
    }
    out.push_str(&summary(path, checked, args));
    out
}

fn summary(path: &Path, checked: &CheckReport, args: &CheckArgs) -> String {
    let count = |severity| checked.problems.iter().filter(|p| p.severity == severity).count();
    let (errors, warnings, infos) =
        (count(ProblemSeverity::Error), count(ProblemSeverity::Warning), count(ProblemSeverity::Info));
    let parts = [(errors, "error"), (warnings, "warning"), (infos, "note")];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let mut parts: Vec<String> = parts.map(|(count, what)| counted(count as u64, what)).collect();
    if checked.left_out > 0 {
        parts.push(format!("{} more not shown", checked.left_out));
    }
    if checked.silenced > 0 {
        parts.push(format!("{} silenced", checked.silenced));
    }
    if !checked.skipped.is_empty() && !args.verbose {
        let skipped = counted(checked.skipped.len() as u64, "check");
        parts.push(format!("{skipped} skipped for lack of facts (--verbose)"));
    }
    let mut line = match (errors, warnings) {
        (0, 0) => format!("{} {}: valid", style::good("✓"), path.display()),
        (0, _) => format!("{} {}", style::warning("!"), path.display()),
        _ => format!("{} {}", style::error("✗"), path.display()),
    };
    if !parts.is_empty() {
        line.push_str(": ");
        line.push_str(&parts.join(", "));
    }
    line.push('\n');
    line
}

fn explain(code: &str) -> anyhow::Result<ExitCode> {
    if code == "all" {
        let width = lint::all().iter().map(|lint| lint.code.len()).max().unwrap_or(0);
        for lint in lint::all() {
            print(&format!("{:width$}  {:8} {}\n", lint.code, lint.severity.to_string(), lint.summary))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some(lint) = lint::find(code) else {
        let codes = lint::all().into_iter().map(|lint| lint.code).collect::<Vec<_>>();
        let advice = suggest(code, codes);
        let advice = if advice.ends_with('?') { advice } else { "list all with --explain all".to_owned() };
        return Err(CommandRefusal(format!("there is no lint `{code}`: {advice}")).into());
    };
    print(&explanation(lint))?;
    Ok(ExitCode::SUCCESS)
}

fn explanation(lint: &Lint) -> String {
    let indent = |text: &str| text.lines().flat_map(|line| ["    ", line, "\n"]).collect::<String>();
    format!(
        "{} ({}): {}\n\n{}\n\n{}\n{}\n{}\n{}",
        style::bold(lint.code),
        lint.severity,
        lint.summary,
        terminal::wrap(lint.explanation, 90),
        style::error("Bad:"),
        indent(&lint.bad_book()),
        style::good("Fixed:"),
        indent(&lint.fixed_book()),
    )
}
