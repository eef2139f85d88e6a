//! `redrive dlq skip`: gives up a dead letter.

use std::process::ExitCode;

use serde_json::json;

use crate::api::shape::letters::Skipped;
use crate::cli::DlqSkipArgs;
use crate::client::{Ask, segment};
use crate::commands::{print, wait_for};
use crate::show::event::short_id;
use crate::show::{counted, style};

pub(super) fn run(args: &DlqSkipArgs) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let mut client = args.server.client()?;
        let path = format!("/v1/dead-letters/{}/skip", segment(&args.letter));
        let body = match &args.note {
            Some(note) => json!({ "note": note }),
            None => json!({}),
        };
        let skipped: Skipped = client.json(&Ask::post(path, "application/json", body.to_string())).await?;
        let id = style::bold(short_id(&skipped.id));
        let released = match skipped.released {
            0 => String::new(),
            1 => ": the one behind it goes on".to_owned(),
            count => format!(": {} behind it go on", counted(count, "delivery")),
        };
        print(&format!("{} letter {id} is skipped{released}\n", style::good("✓")))?;
        Ok(ExitCode::SUCCESS)
    })
}
