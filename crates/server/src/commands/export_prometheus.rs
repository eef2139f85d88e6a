//! `redrive export prometheus`: alert rules on standard output, what has no series on standard error.

use redrive_lab::prometheus_rules;

use super::{open_book, print};
use crate::cli::ExportPrometheusArgs;
use crate::show;

pub(super) fn run(args: &ExportPrometheusArgs) -> anyhow::Result<()> {
    let book = open_book(&args.rules)?;
    let exported = prometheus_rules::export(&book);
    print(&exported.yaml)?;
    show::remarks::print("What has no series in Prometheus:", &exported.losses);
    Ok(())
}
