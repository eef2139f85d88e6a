//! `redrive status`: how a server is.

use std::process::ExitCode;

use super::{print, print_json, wait_for};
use crate::api::shape::Status;
use crate::cli::{Format, StatusArgs};
use crate::client::Ask;
use crate::show::status;

pub(super) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let mut client = args.server.client()?;
        let (shape, now) = client.timed_json::<Status>(&Ask::get("/v1/status")).await?;
        match args.format {
            Format::Json => print_json(&shape)?,
            Format::Text => print(&status::page(&shape, client.address(), now))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
