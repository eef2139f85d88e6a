//! `redrive replays`: how they stand, and what may be done to one.

use std::process::ExitCode;

use super::{dlq, print_as};
use crate::api::shape::letters::{ReplayShown, ReplaysFound};
use crate::cli::ReplaysArgs;
use crate::client::Ask;
use crate::show::{replay, terminal_columns};

pub(super) async fn run(args: &ReplaysArgs) -> anyhow::Result<ExitCode> {
    let mut client = args.view.client()?;
    let format = args.view.format;
    let Some(id) = args.replay else {
        let (found, now) = client.timed_json::<ReplaysFound>(&Ask::get("/v1/replays")).await?;
        print_as(format, &found.replays, || replay::list(&found.replays, now, terminal_columns()))?;
        return Ok(ExitCode::SUCCESS);
    };
    if args.watch {
        return dlq::watch(&mut client, id, format).await;
    }
    let ask = match args.act {
        None => Ask::get(format!("/v1/replays/{id}")),
        Some(act) => Ask::post(format!("/v1/replays/{id}/{act}"), "application/json", ""),
    };
    let (shown, now) = client.timed_json::<ReplayShown>(&ask).await?;
    print_as(format, &shown, || replay::page(&shown, now))?;
    Ok(ExitCode::SUCCESS)
}
