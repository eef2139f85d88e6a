//! `redrive dlq skip`: gives up a dead letter.

use serde_json::json;

use crate::api::shape::letters::Skipped;
use crate::cli::DlqSkipArgs;
use crate::client::{Ask, segment};
use crate::commands::print;
use crate::show::event::short_id;
use crate::show::{counted, style};

pub(super) async fn run(args: &DlqSkipArgs) -> anyhow::Result<()> {
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
