//! `redrive init`: a short rule book to start from.
//!
//! Invariant: a file that is there is never written over, whoever else may be creating it.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use super::{Refused, print};
use crate::cli::InitArgs;
use crate::show::style;

/// The book that a newcomer reads first.
const STARTER: &str = include_str!("init/starter.yaml");

pub(super) fn run(args: &InitArgs) -> anyhow::Result<ExitCode> {
    let path = &args.file;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => {
            if let Err(error) = file.write_all(STARTER.as_bytes()).and_then(|()| file.sync_all()) {
                // Half a book would be in the way of the next try; if it cannot be removed, that is no worse.
                let _ = fs::remove_file(path);
                return Err(error).context(format!("could not write {}", path.display()));
            }
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let shown = path.display();
            let refusal = format!("{shown} is there already and stays as it is: name another file");
            return Err(Refused(refusal).into());
        }
        Err(error) => return Err(error).context(format!("could not create {}", path.display())),
    }
    print(&next_steps(path))?;
    Ok(ExitCode::SUCCESS)
}

fn next_steps(path: &Path) -> String {
    let file = path.display();
    // The book's first line looks for the schema beside it.
    let schema = path.with_file_name("redrive.schema.json");
    let steps = [
        (format!("redrive check {file}"), "finds what is wrong with it"),
        (
            format!("redrive try orders.placed --rules {file} --answers '503*3,200'"),
            "walks a delivery through it",
        ),
        ("redrive timeline standard".to_owned(), "shows how long its retries wait"),
        (format!("redrive schema > {}", schema.display()), "lets your editor complete and check it"),
    ];
    let mut text = format!("{} wrote {file}\n\nNext:\n", style::good("✓"));
    for (command, what) in steps {
        let _ = writeln!(text, "  {}\n      {}", style::bold(command), style::dim(what));
    }
    text
}
