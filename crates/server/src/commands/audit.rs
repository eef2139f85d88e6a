//! `redrive audit`: what was done with dead letters.

use std::process::ExitCode;

use super::{print, print_json, wait_for};
use crate::api::shape::letters::AuditFound;
use crate::cli::{AuditArgs, Format};
use crate::client::Ask;
use crate::letters::LIST_MAX;
use crate::show::{audit, terminal_columns};

pub(super) fn run(args: &AuditArgs) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let mut client = args.server.client()?;
        let wanted = usize::try_from(args.limit).unwrap_or(usize::MAX);
        let mut records = Vec::new();
        let mut before = String::new();
        let now = loop {
            let limit = (wanted - records.len()).min(LIST_MAX);
            let ask = Ask::get(format!("/v1/audit?limit={limit}{before}"));
            let (page, now) = client.timed_json::<AuditFound>(&ask).await?;
            records.extend(page.audit);
            match page.next.filter(|_| records.len() < wanted) {
                Some(next) => before = format!("&before={next}"),
                None => break now,
            }
        };
        match args.format {
            Format::Json => print_json(&records)?,
            Format::Text => print(&audit::page(&records, now, terminal_columns()))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
