//! `redrive replays`: shows, pauses, resumes and cancels replays.

use std::process::ExitCode;

use clap::Args;

use crate::cli::{ViewArgs, one_of};
use crate::client::ClientRequest;
use crate::replays::json::{ReplayJson, ReplaysResponse};
use crate::replays::{start, text};
use crate::terminal::{print_as, terminal_columns};

/// Shows replays; pauses, resumes or cancels one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive replays
  redrive replays 3
  redrive replays 3 --watch
  redrive replays 3 pause
  redrive replays 3 resume
  redrive replays 3 cancel

Exit code: 0 shown or done, 1 refused; with --watch also: stopped or failed again, 2 wrong use, 3 no server.")]
pub(crate) struct ReplaysArgs {
    /// The replay's number
    #[arg(value_name = "NUMBER")]
    pub(crate) replay: Option<u64>,
    /// The action
    #[arg(value_parser = one_of(&REPLAY_ACTS), conflicts_with = "watch")]
    pub(crate) act: Option<&'static str>,
    /// Shows progress until it ends
    #[arg(long, requires = "replay")]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Actions: argument, help, last part of the path.
const REPLAY_ACTS: [(&str, &str, &str); 3] = [
    ("pause", "Pauses sending", "pause"),
    ("resume", "Resumes sending", "resume"),
    ("cancel", "Cancels it; unsent letters stay dead", "cancel"),
];

pub(crate) async fn run(args: &ReplaysArgs) -> anyhow::Result<ExitCode> {
    let mut client = args.view.client()?;
    let format = args.view.format;
    let Some(id) = args.replay else {
        let (found, now) = client.timed_json::<ReplaysResponse>(&ClientRequest::get("/v1/replays")).await?;
        print_as(format, &found.replays, || text::list(&found.replays, now, terminal_columns()))?;
        return Ok(ExitCode::SUCCESS);
    };
    if args.watch {
        return start::watch(&mut client, id, format).await;
    }
    let ask = match args.act {
        None => ClientRequest::get(format!("/v1/replays/{id}")),
        Some(act) => ClientRequest::post(format!("/v1/replays/{id}/{act}"), "application/json", ""),
    };
    let (shown, now) = client.timed_json::<ReplayJson>(&ask).await?;
    print_as(format, &shown, || text::page(&shown, now))?;
    Ok(ExitCode::SUCCESS)
}
