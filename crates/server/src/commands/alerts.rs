//! `redrive alerts`: where they stand, and whether a receiver hears us.

use std::process::ExitCode;

use serde_json::json;

use super::print_as;
use crate::api::shape::alerts::{AlertsFound, ReceiverTested, TestOutcome};
use crate::cli::{Alerts, AlertsArgs, AlertsTestArgs, ViewArgs};
use crate::client::{Ask, segment};
use crate::show::alerts as show;
use crate::show::terminal_columns;

pub(super) async fn run(args: &AlertsArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        None => list(&args.list).await,
        Some(Alerts::List(args)) => list(args).await,
        Some(Alerts::Test(args)) => test(args).await,
    }
}

async fn list(args: &ViewArgs) -> anyhow::Result<ExitCode> {
    let (found, now) = args.client()?.timed_json::<AlertsFound>(&Ask::get("/v1/alerts")).await?;
    print_as(args.format, &found, || show::page(&found, now, terminal_columns()))?;
    Ok(ExitCode::SUCCESS)
}

async fn test(args: &AlertsTestArgs) -> anyhow::Result<ExitCode> {
    let ask = Ask::json(format!("/v1/receivers/{}/test", segment(&args.name)), &json!({}));
    let (tested, now) = args.view.client()?.timed_json::<ReceiverTested>(&ask).await?;
    print_as(args.view.format, &tested, || show::tested(&tested, now))?;
    let is_told = tested.outcome == TestOutcome::Delivered;
    Ok(if is_told { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
