//! `redrive export`: the rule book in forms that others read; one module for each.

use std::process::ExitCode;

use super::export_matrix;
use crate::cli::{Export, ExportArgs};

pub(super) fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        Export::Matrix(args) => export_matrix::run(args),
    }
}
