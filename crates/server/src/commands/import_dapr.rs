//! `redrive import`: a rule book made of another tool's file, and a word on what that tool left unsaid.
//!
//! Invariant: a file that is there is never written over, whoever else may be creating it.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use redrive::core::dapr;

use super::{Refused, print};
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

fn write_new(path: &Path, book: &str) -> anyhow::Result<()> {
    let shown = path.display();
    let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let refusal = format!("{shown} is there already and stays as it is: name another file");
            return Err(Refused(refusal).into());
        }
        Err(error) => return Err(error).context(format!("could not create {shown}")),
    };
    file.write_all(book.as_bytes()).and_then(|()| file.sync_all()).or_else(|error| {
        // Half a book would be in the way of the next try; if it cannot be removed, that is no worse.
        let _ = fs::remove_file(path);
        Err(error).context(format!("could not write {shown}"))
    })
}
