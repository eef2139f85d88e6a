//! `redrive compact`: gives back the disk space of what was deleted.

use redrive_node::store::{self, Compacted, StoreError};

use super::{Refused, print};
use crate::cli::CompactArgs;
use crate::show::{size, style};

pub(super) fn run(args: &CompactArgs) -> anyhow::Result<()> {
    let compacted = store::compact(&args.data).map_err(|error| match error {
        StoreError::InUse { path, owner } => {
            let shown = path.display();
            Refused(format!(
                "a server runs on {shown} (process {owner}): stop it while the folder is compacted"
            ))
        }
        other => Refused::of(other),
    })?;
    let Compacted { bytes_before, bytes_after } = compacted;
    let sizes = format!("{} before, {} now", size(bytes_before), size(bytes_after));
    print(&format!("{} {}: {sizes}\n", style::good("✓"), style::bold(args.data.display())))
}
