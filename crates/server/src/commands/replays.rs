//! `redrive replays`: how they stand, and what may be done to one.

use std::process::ExitCode;

use super::{dlq, print, print_json, wait_for};
use crate::api::shape::letters::{ReplayShown, ReplaysFound};
use crate::cli::{Format, ReplaysArgs};
use crate::client::Ask;
use crate::show::{replay, terminal_columns};

pub(super) fn run(args: &ReplaysArgs) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let mut client = args.server.client()?;
        let Some(id) = args.replay else {
            let (found, now) = client.timed_json::<ReplaysFound>(&Ask::get("/v1/replays")).await?;
            match args.format {
                Format::Json => print_json(&found.replays)?,
                Format::Text => print(&replay::list(&found.replays, now, terminal_columns()))?,
            }
            return Ok(ExitCode::SUCCESS);
        };
        if args.watch {
            return dlq::watch(&mut client, id, args.format).await;
        }
        let ask = match args.act {
            None => Ask::get(format!("/v1/replays/{id}")),
            Some(act) => Ask::post(format!("/v1/replays/{id}/{}", act.as_str()), "application/json", ""),
        };
        let (shown, now) = client.timed_json::<ReplayShown>(&ask).await?;
        match args.format {
            Format::Json => print_json(&shown)?,
            Format::Text => print(&replay::page(&shown, now))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
