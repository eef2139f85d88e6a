//! One module for each command; each turns its arguments into output and an exit code.

mod check;
mod export_dapr;
mod import;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use redrive::core::book::RuleBook;

use crate::cli::{Command, ExportWhat, ImportWhat};
use crate::show;

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Export(args) => match args.what {
            ExportWhat::Dapr(args) => export_dapr::run(&args),
        },
        Command::Import(args) => match args.what {
            ImportWhat::Dapr(args) => import::dapr(&args),
        },
    }
}

/// The book in a file; one with errors is shown and refused.
pub(crate) fn open_book(path: &Path) -> anyhow::Result<RuleBook> {
    let bytes = redrive::load::load(path)?;
    let reading = redrive::core::book::read_bytes(&bytes);
    if let Some(book) = reading.book {
        return Ok(book);
    }
    let text = String::from_utf8_lossy(&bytes);
    for problem in reading.problems.into_sorted() {
        anstream::eprintln!("{}\n", show::problem::render(&problem, path, &text));
    }
    bail!("{} has errors: mend them first, `redrive check` shows them all", path.display())
}

/// Prints a text that may be long; a reader that goes away is an error of its own kind.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("could not write the output")
}
