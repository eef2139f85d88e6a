//! `redrive breakers`: how they are, and a person's hand on one.

use serde_json::json;

use super::{print, print_as};
use crate::api::shape::dependencies::{DependenciesFound, DependencyShown};
use crate::cli::{BreakerTurnArgs, Breakers, BreakersArgs, ViewArgs};
use crate::client::{Ask, segment};
use crate::show::breakers as show;
use crate::show::terminal_columns;

pub(super) async fn run(args: &BreakersArgs) -> anyhow::Result<()> {
    match &args.what {
        None => list(&args.list).await,
        Some(Breakers::List(args)) => list(args).await,
        Some(Breakers::Trip(args)) => turn(args, "trip").await,
        Some(Breakers::Reset(args)) => turn(args, "reset").await,
    }
}

async fn list(args: &ViewArgs) -> anyhow::Result<()> {
    let ask = Ask::get("/v1/dependencies");
    let (found, now) = args.client()?.timed_json::<DependenciesFound>(&ask).await?;
    print_as(args.format, &found, || show::page(&found.dependencies, now, terminal_columns()))
}

async fn turn(args: &BreakerTurnArgs, act: &str) -> anyhow::Result<()> {
    let path = format!("/v1/dependencies/{}/{act}", segment(&args.name));
    let ask = Ask::json(path, &json!({ "note": args.note }));
    let (shown, now) = args.server.client()?.timed_json::<DependencyShown>(&ask).await?;
    print(&show::turned(&shown, now))
}
