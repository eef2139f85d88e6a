//! `redrive dlq skip`: gives up a dead letter.

use clap::Args;
use serde_json::json;

use crate::cli::ServerArgs;
use crate::client::Ask;
use crate::client::address::segment;
use crate::deliveries::text::short_id;
use crate::letters::json::Skipped;
use crate::terminal::{counted, print, style};

/// Gives up a dead letter; those that it holds go on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq skip 3c6ef372 --note 'the order was cancelled by phone'

Exit code: 0 skipped, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct DlqSkipArgs {
    /// The letter's id, the first digits of it, or the id that it had elsewhere
    #[arg(value_name = "LETTER")]
    pub(crate) letter: String,
    /// Why, for the record
    #[arg(long)]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) async fn run(args: &DlqSkipArgs) -> anyhow::Result<()> {
    let path = format!("/v1/dead-letters/{}/skip", segment(&args.letter));
    let ask = Ask::json(path, &json!({ "note": args.note }));
    let skipped: Skipped = args.server.client()?.json(&ask).await?;
    let id = style::bold(short_id(&skipped.id));
    let released = match skipped.released {
        0 => String::new(),
        1 => ": the one behind it goes on".to_owned(),
        count => format!(": {} behind it go on", counted(count, "delivery")),
    };
    print(&format!("{} letter {id} is skipped{released}\n", style::good("✓")))
}
