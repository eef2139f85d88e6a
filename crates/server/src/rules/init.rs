//! `redrive init`: a short rule book to start from; never over a file that is there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::files::write_new;
use crate::terminal::{print, style};

/// Writes a short rule book to start from; never over a file that is there.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive init
  redrive init rules/orders.yaml

Exit code: 0 written, 1 the file is there already, 2 it cannot be written.")]
pub(crate) struct InitArgs {
    /// Where to write it; its folder is made if need be
    #[arg(value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) file: PathBuf,
}

/// The book that a newcomer reads first.
const STARTER: &str = include_str!("init/starter.yaml");

pub(crate) fn run(args: &InitArgs) -> anyhow::Result<()> {
    let path = &args.file;
    write_new(path, STARTER)?;
    print(&next_steps(path))
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
