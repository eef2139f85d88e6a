//! `redrive init`: a short rule book to start from; never over a file that is there.

use std::fmt::Write as _;
use std::path::Path;

use super::{print, write_new};
use crate::cli::InitArgs;
use crate::show::style;

/// The book that a newcomer reads first.
const STARTER: &str = include_str!("init/starter.yaml");

pub(super) fn run(args: &InitArgs) -> anyhow::Result<()> {
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
