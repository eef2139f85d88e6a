//! `redrive hooks`: what was refused at the door for webhooks, and how to call it.

mod sign;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{print, print_json, wait_for};
use crate::api::shape::hooks::{RefusedFound, RefusedShown};
use crate::cli::{Format, HooksArgs, HooksCommand, HooksRefusedArgs, HooksShowArgs};
use crate::client::Ask;
use crate::show::refused;

/// Refused bodies that are asked for at once.
const PAGE: usize = 500;

pub(super) fn run(args: &HooksArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        HooksCommand::Refused(args) => list(args),
        HooksCommand::Show(args) => show(args),
        HooksCommand::Sign(args) => sign::run(args),
    }
}

fn list(args: &HooksRefusedArgs) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let mut client = args.server.client()?;
        let wanted = usize::try_from(args.limit).unwrap_or(usize::MAX);
        let mut all: Vec<RefusedShown> = Vec::new();
        let mut before = String::new();
        let now = loop {
            let limit = (wanted - all.len()).min(PAGE);
            let ask = Ask::get(format!("/v1/refused-hooks?limit={limit}{before}"));
            let (page, now) = client.timed_json::<RefusedFound>(&ask).await?;
            all.extend(page.refused);
            match page.next.filter(|_| all.len() < wanted) {
                Some(next) => before = format!("&before={next}"),
                None => break now,
            }
        };
        match args.format {
            Format::Json => print_json(&all)?,
            Format::Text => print(&refused::list(&all, now))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn show(args: &HooksShowArgs) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let mut client = args.server.client()?;
        let ask = Ask::get(format!("/v1/refused-hooks/{}", args.number));
        let (shown, now) = client.timed_json::<RefusedShown>(&ask).await?;
        let body = STANDARD.decode(shown.body_base64.as_deref().unwrap_or_default());
        let body = body.context("the server's answer has no readable body")?;
        match args.format {
            _ if args.raw => {
                let mut out = std::io::stdout().lock();
                out.write_all(&body).and_then(|()| out.flush()).context("could not write the output")?;
            }
            Format::Json => print_json(&shown)?,
            Format::Text => print(&refused::page(&shown, &body, now))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
