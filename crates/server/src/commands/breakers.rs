//! `redrive breakers`: how they are, and a person's hand on one.

use std::process::ExitCode;

use serde_json::json;

use super::{print, print_json, wait_for};
use crate::api::shape::dependencies::{DependenciesFound, DependencyShown};
use crate::cli::{BreakerTurnArgs, Breakers, BreakersArgs, BreakersListArgs, Format};
use crate::client::{Ask, segment};
use crate::show::breakers as show;
use crate::show::terminal_columns;

pub(super) fn run(args: &BreakersArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        None => list(&args.list)?,
        Some(Breakers::List(args)) => list(args)?,
        Some(Breakers::Trip(args)) => turn(args, "trip")?,
        Some(Breakers::Reset(args)) => turn(args, "reset")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: &BreakersListArgs) -> anyhow::Result<()> {
    wait_for(async {
        let mut client = args.server.client()?;
        let (found, now) = client.timed_json::<DependenciesFound>(&Ask::get("/v1/dependencies")).await?;
        match args.format {
            Format::Json => print_json(&found),
            Format::Text => print(&show::page(&found.dependencies, now, terminal_columns())),
        }
    })
}

fn turn(args: &BreakerTurnArgs, act: &str) -> anyhow::Result<()> {
    wait_for(async {
        let path = format!("/v1/dependencies/{}/{act}", segment(&args.name));
        let body = args.note.as_ref().map_or_else(|| json!({}), |note| json!({ "note": note }));
        let ask = Ask::post(path, "application/json", body.to_string());
        let (shown, now) = args.server.client()?.timed_json::<DependencyShown>(&ask).await?;
        print(&show::turned(&shown, now))
    })
}
