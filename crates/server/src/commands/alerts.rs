//! `redrive alerts`: where they stand, and whether a receiver hears us.

use std::process::ExitCode;

use super::{print, print_json, wait_for};
use crate::api::shape::alerts::{AlertsFound, ReceiverTested, TestOutcome};
use crate::cli::{Alerts, AlertsArgs, AlertsListArgs, AlertsTestArgs, Format};
use crate::client::{Ask, segment};
use crate::show::alerts as show;
use crate::show::terminal_columns;

pub(super) fn run(args: &AlertsArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        None => list(&args.list),
        Some(Alerts::List(args)) => list(args),
        Some(Alerts::Test(args)) => test(args),
    }
}

fn list(args: &AlertsListArgs) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let mut client = args.server.client()?;
        let (found, now) = client.timed_json::<AlertsFound>(&Ask::get("/v1/alerts")).await?;
        match args.format {
            Format::Json => print_json(&found)?,
            Format::Text => print(&show::page(&found, now, terminal_columns()))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn test(args: &AlertsTestArgs) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let path = format!("/v1/receivers/{}/test", segment(&args.name));
        let ask = Ask::post(path, "application/json", "{}".to_owned());
        let (tested, now) = args.server.client()?.timed_json::<ReceiverTested>(&ask).await?;
        match args.format {
            Format::Json => print_json(&tested)?,
            Format::Text => print(&show::tested(&tested, now))?,
        }
        let is_told = tested.outcome == TestOutcome::Delivered;
        Ok(if is_told { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
