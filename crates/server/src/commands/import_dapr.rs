//! `redrive import`: a rule book made of another tool's file, and a word on what that tool left unsaid.

use std::process::ExitCode;

use redrive_lab::dapr;

use super::{print, write_new};
use crate::cli::ImportDaprArgs;
use crate::show;

pub(super) fn run(args: &ImportDaprArgs) -> anyhow::Result<ExitCode> {
    let bytes = redrive::load::load(&args.file)?;
    let imported = match dapr::import(&bytes) {
        Ok(imported) => imported,
        Err(problems) => {
            let text = String::from_utf8_lossy(&bytes);
            for problem in problems {
                anstream::eprintln!("{}\n", show::problem::render(&problem, &args.file, &text));
            }
            return Ok(ExitCode::from(1));
        }
    };
    match &args.output {
        None => print(&imported.book)?,
        Some(path) => write_new(path, &imported.book)?,
    }
    show::remarks::print("What Dapr does without saying so, and what the book has instead:", &imported.notes);
    Ok(ExitCode::SUCCESS)
}
