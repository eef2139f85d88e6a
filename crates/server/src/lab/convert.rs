//! `redrive export` and `redrive import`: Dapr resiliency, Prometheus alert rules, a Markdown matrix.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use redrive_lab::dapr::{self, Matching};
use redrive_lab::prometheus_rules;
use redrive_lab::report::matrix;

use crate::cli::files::write_new;
use crate::rules::file::open_book;
use crate::terminal::{self, print, problem};

/// Exports the rule book to other formats.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(subcommand)]
    pub(crate) what: ExportCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExportCommand {
    Dapr(ExportDaprArgs),
    Matrix(ExportMatrixArgs),
    Prometheus(ExportPrometheusArgs),
}

/// Exports the alerts of a rule book as a Prometheus rule file.
///
/// For setups where Prometheus watches the metrics of Redrive and the book needs no receivers. Alerts without
/// a Prometheus series are listed on standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive export prometheus --rules redrive.yaml > redrive-alerts.yml
  promtool check rules redrive-alerts.yml

Exit code: 0 done, 1 the book has errors, 2 it cannot be read.")]
pub(crate) struct ExportPrometheusArgs {
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
}

/// Prints every row of every service as Markdown tables.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive export matrix --rules examples/rulebooks/notifications.yaml > matrix.md")]
pub(crate) struct ExportMatrixArgs {
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
}

/// Exports the retries, timeouts and breakers of a rule book as a Dapr resiliency file.
///
/// Dependencies with `dapr:` become targets. Settings that Dapr does not have are listed on standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive export dapr --rules redrive.yaml > resiliency.yaml
  redrive export dapr --rules redrive.yaml --with-matching | kubectl apply -f -

Exit code: 0 done, 1 the book has errors, 2 it cannot be read.")]
pub(crate) struct ExportDaprArgs {
    /// The rule book
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) rules: PathBuf,
    /// Lists the HTTP statuses to retry in every policy that an exported target uses; without it Dapr retries
    /// all failures
    #[arg(long)]
    pub(crate) with_matching: bool,
}

/// Converts another tool's file to a rule book.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    pub(crate) what: ImportCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    Dapr(ImportDaprArgs),
}

/// Converts a Dapr resiliency file to a rule book.
///
/// Implicit defaults of Dapr are written out in the book and listed on standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive import dapr resiliency.yaml > redrive.yaml
  redrive import dapr resiliency.yaml -o redrive.yaml

Exit code: 0 done, 1 the file is invalid or has no counterpart, 2 a file cannot be read or written.")]
pub(crate) struct ImportDaprArgs {
    /// The Dapr file, with one resource of kind Resiliency
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Writes the book to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

pub(crate) fn export_dapr(args: &ExportDaprArgs) -> anyhow::Result<()> {
    let book = open_book(&args.rules)?;
    let matching = if args.with_matching { Matching::Always } else { Matching::AsStated };
    let exported = dapr::export(&book, matching);
    print(&exported.yaml)?;
    terminal::print_remarks("Not supported by Dapr:", &exported.losses);
    Ok(())
}

pub(crate) fn export_matrix(args: &ExportMatrixArgs) -> anyhow::Result<()> {
    let book = open_book(&args.rules)?;
    print(&matrix::render(&book))
}

pub(crate) fn export_prometheus(args: &ExportPrometheusArgs) -> anyhow::Result<()> {
    let book = open_book(&args.rules)?;
    let exported = prometheus_rules::export(&book);
    print(&exported.yaml)?;
    terminal::print_remarks("Without a series in Prometheus:", &exported.losses);
    Ok(())
}

pub(crate) fn import_dapr(args: &ImportDaprArgs) -> anyhow::Result<ExitCode> {
    let bytes = redrive::load::load(&args.file)?;
    let imported = match dapr::import(&bytes) {
        Ok(imported) => imported,
        Err(problems) => {
            let text = String::from_utf8_lossy(&bytes);
            for problem in problems {
                anstream::eprintln!("{}\n", problem::render(&problem, &args.file, &text));
            }
            return Ok(ExitCode::from(1));
        }
    };
    match &args.output {
        None => print(&imported.book)?,
        Some(path) => write_new(path, &imported.book)?,
    }
    terminal::print_remarks(
        "Implicit defaults of Dapr and their settings in the rule book:",
        &imported.notes,
    );
    Ok(ExitCode::SUCCESS)
}
