//! `redrive export dapr`: the Dapr file on standard output, what it cannot hold on standard error.

use redrive_lab::dapr::{self, Matching};

use super::{open_book, print};
use crate::cli::ExportDaprArgs;
use crate::show;

pub(super) fn run(args: &ExportDaprArgs) -> anyhow::Result<()> {
    let book = open_book(&args.rules)?;
    let matching = if args.with_matching { Matching::Always } else { Matching::AsStated };
    let exported = dapr::export(&book, matching);
    print(&exported.yaml)?;
    show::remarks::print("What does not carry over to Dapr:", &exported.losses);
    Ok(())
}
