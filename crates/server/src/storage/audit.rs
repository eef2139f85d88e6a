//! `GET /v1/audit` and `redrive audit`.

use clap::Args;
use redrive::clock::wall_clock;
use redrive_core::text::show_count;
use redrive_core::time::Timestamp;
use redrive_node::store::letter::AuditRecord;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::api::error::ApiResult;
use crate::api::openapi::query_keys::QueryKeys;
use crate::api::request::{BeforeQuery, PageQuery, Query};
use crate::api::{App, reply};
use crate::cli::ViewArgs;
use crate::client::{ClientRequest, gather};
use crate::terminal::moment::{ago, moment};
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{plain, print_as, style, terminal_columns};

/// Shows the audit log: operations by people and by rules, latest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive audit
  redrive audit --limit 500 --format json

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct AuditArgs {
    /// Maximum number of records
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

pub(crate) async fn run(args: &AuditArgs) -> anyhow::Result<()> {
    let mut client = args.view.client()?;
    let mut now = wall_clock();
    let (records, _next) = gather(args.limit, None, async |limit, before| {
        let ask = ClientRequest::find("/v1/audit", &json!({ "limit": limit, "before": before }));
        let found: AuditResponse;
        (found, now) = client.timed_json(&ask).await?;
        Ok((found.audit, found.next))
    })
    .await?;
    print_as(args.view.format, &records, || page(&records, now, terminal_columns()))
}

pub(crate) fn page(records: &[AuditRecord], now: Timestamp, room: Option<usize>) -> String {
    if records.is_empty() {
        return format!("{} the audit log is empty\n", style::good("✓"));
    }
    // Without authentication there are no names.
    let names_doers = records.iter().any(|record| record.by.is_some());
    let left = CellAlign::Left;
    let sides = [CellAlign::Whole, left, left, CellAlign::Right, left, left, left];
    let heads = ["AT", "", "ACT", "LETTERS", "WHAT", "NOTE", "BY"];
    let columns = if names_doers { heads.len() } else { heads.len() - 1 };
    let mut table = Table::new(&sides[..columns]);
    table.head(&heads[..columns]);
    for record in records {
        let mut cells = vec![
            Cell::plain(moment(record.at)),
            Cell::dim(ago(record.at, now)),
            Cell::bold(plain(&record.act)),
            // Zero: the operation concerned no letters.
            Cell::plain(if record.letters == 0 { String::new() } else { show_count(record.letters) }),
            Cell::plain(plain(&record.what)),
            Cell::dim(record.note.as_deref().map(plain).unwrap_or_default()),
            Cell::plain(record.by.as_deref().map(plain).unwrap_or_default()),
        ];
        cells.truncate(columns);
        table.push(cells);
    }
    table.within(room).text()
}

/// The audit log, latest first.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "listAuditEntries", tag = "operating",
    params(QueryKeys<BeforeQuery>, QueryKeys<PageQuery>),
    responses((status = 200, description = "a page of the audit log", body = AuditResponse))
)]
pub(crate) async fn audit(
    app: App,
    Query((BeforeQuery { before }, page)): Query<(BeforeQuery, PageQuery)>,
) -> ApiResult {
    let rows_max = page.rows_max();
    let audit = app.node.read(move |reader| reader.audit(before, rows_max)).await?;
    let next = audit.last().filter(|_| audit.len() == rows_max).map(|record| record.number.to_string());
    reply::ok(&AuditResponse { audit, next })
}

/// A page of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AuditResponse {
    pub audit: Vec<AuditRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
