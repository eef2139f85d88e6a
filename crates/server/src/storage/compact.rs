//! `redrive compact`: returns the disk space of deleted data.

use std::path::PathBuf;

use clap::Args;
use redrive_node::store::{self, CompactionResult, StoreError};

use crate::cli::{CommandRefusal, DATA_DEFAULT};
use crate::terminal::{print, size, style};

/// Returns the disk space of deleted data; no server may use the folder.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive compact --data /var/lib/redrive

Exit code: 0 done, 1 refused or failed, 2 wrong use.")]
pub(crate) struct CompactArgs {
    /// The data folder
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub(crate) data: PathBuf,
}

pub(crate) fn run(args: &CompactArgs) -> anyhow::Result<()> {
    let compacted = store::compact(&args.data).map_err(|error| match error {
        StoreError::InUse { path, owner } => {
            let shown = path.display();
            CommandRefusal(format!(
                "a server is using {shown} (process {owner}): stop it to compact the folder"
            ))
        }
        other => CommandRefusal::of(other),
    })?;
    let CompactionResult { bytes_before, bytes_after } = compacted;
    let sizes = format!("{} before, {} now", size(bytes_before), size(bytes_after));
    print(&format!("{} {}: {sizes}\n", style::good("✓"), style::bold(args.data.display())))
}
