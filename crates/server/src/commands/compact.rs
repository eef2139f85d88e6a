//! `redrive compact`: gives back the disk space of what was deleted.

use std::path::Path;
use std::process::ExitCode;

use super::{Refused, print};
use crate::cli::CompactArgs;
use crate::show::style;

pub(super) fn run(args: &CompactArgs) -> anyhow::Result<ExitCode> {
    offline_compact(&args.data)?;
    print(&format!("{} {} is compact\n", style::good("✓"), style::bold(args.data.display())))?;
    Ok(ExitCode::SUCCESS)
}

/// Compacts a store that no server has open.
fn offline_compact(data: &Path) -> anyhow::Result<()> {
    Err(Refused(format!("{} cannot be compacted: this redrive has no store on disk", data.display())).into())
}
