//! `redrive export matrix`: every row of every service as Markdown tables.

use redrive_lab::report::matrix;

use super::{open_book, print};
use crate::cli::ExportMatrixArgs;

pub(super) fn run(args: &ExportMatrixArgs) -> anyhow::Result<()> {
    let book = open_book(&args.rules)?;
    print(&matrix::render(&book))
}
