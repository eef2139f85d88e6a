//! `redrive init`: writes a starter rule book; never overwrites a file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::files::write_new;
use crate::terminal::{print, style};

/// Writes a starter rule book; never overwrites a file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive init
  redrive init rules/orders.yaml

Exit code: 0 written, 1 the file exists, 2 it cannot be written.")]
pub(crate) struct InitArgs {
    /// The file to write; missing folders are created
    #[arg(value_name = "FILE", default_value = "redrive.yaml")]
    pub(crate) file: PathBuf,
}

const STARTER: &str = include_str!("init/starter.yaml");

pub(crate) fn run(args: &InitArgs) -> anyhow::Result<()> {
    let path = &args.file;
    write_new(path, STARTER)?;
    print(&next_steps(path))
}

fn next_steps(path: &Path) -> String {
    let file = path.display();
    // The book's first line expects the schema beside it.
    let schema = path.with_file_name("redrive.schema.json");
    let steps = [
        (format!("redrive check {file}"), "check it"),
        (
            format!("redrive try orders.placed --rules {file} --answers '503*3,200'"),
            "run a delivery through it",
        ),
        ("redrive timeline standard".to_owned(), "show the delays of its retries"),
        (format!("redrive schema > {}", schema.display()), "completion and validation in your editor"),
    ];
    let mut text = format!("{} wrote {file}\n\nNext:\n", style::good("✓"));
    for (command, what) in steps {
        let _ = writeln!(text, "  {}\n      {}", style::bold(command), style::dim(what));
    }
    text
}
