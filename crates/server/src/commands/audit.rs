//! `redrive audit`: what was done with dead letters.

use redrive::clock::wall_clock;
use serde_json::json;

use super::{gather, print_as};
use crate::api::shape::letters::AuditFound;
use crate::cli::AuditArgs;
use crate::client::Ask;
use crate::show::{audit, terminal_columns};

pub(super) async fn run(args: &AuditArgs) -> anyhow::Result<()> {
    let mut client = args.view.client()?;
    let mut now = wall_clock();
    let (records, _next) = gather(args.limit, None, async |limit, before| {
        let ask = Ask::find("/v1/audit", &json!({ "limit": limit, "before": before }));
        let found: AuditFound;
        (found, now) = client.timed_json(&ask).await?;
        Ok((found.audit, found.next))
    })
    .await?;
    print_as(args.view.format, &records, || audit::page(&records, now, terminal_columns()))
}
