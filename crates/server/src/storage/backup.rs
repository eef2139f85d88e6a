//! `redrive backup`: copies the store, online by the server or offline without one.

use std::path::{Path, PathBuf};

use anyhow::Context;
use axum::http::header;
use axum::response::IntoResponse;
use clap::Args;
use redrive_core::text::{counted, show_count};
use redrive_node::store::{self, Backup, BackupProgress, Options, StoreError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::caller::ApiCaller;
use crate::api::App;
use crate::api::error::{ApiError, ApiResult};
use crate::api::reply::lines;
use crate::api::request::JsonBody;
use crate::cli::{CommandRefusal, DATA_DEFAULT, ServerArgs};
use crate::client::error::{ClientError, ConnectionError};
use crate::client::{Client, ClientRequest};
use crate::terminal::progress::{self, ProgressLine};
use crate::terminal::{plain, print, style};

/// Copies the store into a folder, with or without a running server.
///
/// With a server, the folder is on the server's machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive backup backups/monday
  redrive backup backups/monday --data /var/lib/redrive

Exit code: 0 copied, 1 refused or failed, 2 wrong use, 3 no server and no store.")]
pub(crate) struct BackupArgs {
    /// Target folder; must not contain a store
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The data folder, if no server runs
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Small, so that the progress bar moves.
const PAGES_PER_STEP: u32 = 256;

const BAR_COLUMNS_MAX: usize = 40;

const BAR_TEXT_COLUMNS: usize = 40;

pub(crate) async fn run(args: &BackupArgs) -> anyhow::Result<()> {
    let shown = args.folder.display();
    let folder = std::path::absolute(&args.folder).with_context(|| format!("invalid folder {shown}"))?;
    let client = args.server.client()?;
    let pages = match online_backup(client, &folder).await {
        Ok(pages) => pages,
        Err(BackupStop::NoServer(no_server)) => offline_backup(&args.data, &folder, no_server)?,
        Err(BackupStop::Failed(error)) => return Err(error),
    };
    let size = counted(pages, "page");
    print(&format!("{} copied {size} to {}\n", style::good("✓"), style::bold(folder.display())))
}

enum BackupStop {
    /// No server answers: the store may be free.
    NoServer(ClientError),
    Failed(anyhow::Error),
}

impl From<ClientError> for BackupStop {
    fn from(trouble: ClientError) -> Self {
        let is_alone = matches!(
            trouble,
            ClientError::Unreachable {
                reason: ConnectionError::Connect(_) | ConnectionError::NotConnected(_),
                ..
            }
        );
        if is_alone { Self::NoServer(trouble) } else { Self::Failed(trouble.into()) }
    }
}

/// Returns the number of pages.
async fn online_backup(mut client: Client, folder: &Path) -> Result<u64, BackupStop> {
    let wanted = BackupRequest { folder: folder.to_string_lossy().into_owned() };
    let mut lines = client.lines(&ClientRequest::json("/v1/backup", &wanted)).await?;
    let failed = |text: String| BackupStop::Failed(CommandRefusal(text).into());
    let broke_off = |reason: &str| {
        failed(format!("the copy is incomplete, do not use it: {reason} ({})", client.address()))
    };
    let line = ProgressLine::new();
    let mut last = None;
    while let Some(text) = lines.next().await.map_err(|reason| broke_off(&reason.to_string()))? {
        let step: BackupStep = lines.read(&text)?;
        if let Some(error) = step.error {
            line.clear();
            return Err(failed(format!("the copy failed: {}", plain(&error))));
        }
        show(&line, &step);
        last = Some(step);
    }
    line.clear();
    match last {
        Some(BackupStep { pages, remaining: 0, .. }) => Ok(pages),
        Some(_) | None => Err(broke_off("the server ended it early")),
    }
}

/// Returns the number of pages.
fn offline_backup(data: &Path, folder: &Path, no_server: ClientError) -> anyhow::Result<u64> {
    // Opening would create an empty store.
    if let Err(StoreError::NotOpened { .. }) = store::open_reader(data) {
        return Err(no_server).context(format!("no server, and no store in {}", data.display()));
    }
    let mut store = store::open(data, Options::default()).map_err(CommandRefusal::of)?;
    let mut backup = Backup::new(folder.to_owned(), PAGES_PER_STEP);
    let line = ProgressLine::new();
    loop {
        let BackupProgress { pages, remaining } = store.back_up(&mut backup).map_err(|error| {
            line.clear();
            CommandRefusal::of(error)
        })?;
        show(&line, &BackupStep { pages, remaining, error: None });
        if remaining == 0 {
            line.clear();
            // Not closed as after a run, so that the next start still sees how the last run ended.
            return Ok(pages);
        }
    }
}

fn show(line: &ProgressLine, step: &BackupStep) {
    if let Some(columns) = line.columns() {
        line.show(&bar(step, columns.saturating_sub(BAR_TEXT_COLUMNS).min(BAR_COLUMNS_MAX)));
    }
}

fn bar(step: &BackupStep, columns: usize) -> String {
    let BackupStep { pages, remaining, .. } = *step;
    let done = pages.saturating_sub(remaining);
    let words = format!("{} of {} pages", show_count(done), show_count(pages));
    progress::bar(done, pages, columns, &words)
}

/// Copies the store to a folder on the server's machine.
#[utoipa::path(
    post, path = "/v1/backup", operation_id = "createBackup", tag = "operating",
    request_body = BackupRequest,
    responses((status = 200, description = "one JSON line per step, as in the schema `BackupStep`", body = String, content_type = "application/x-ndjson"))
)]
pub(crate) async fn back_up(
    app: App,
    caller: ApiCaller,
    JsonBody(wanted): JsonBody<BackupRequest>,
) -> ApiResult {
    let folder = PathBuf::from(&wanted.folder);
    if !folder.is_absolute() {
        return Err(ApiError::invalid("folder", "must be an absolute path"));
    }
    let steps = app.node.back_up(folder, &caller.by());
    let stream = lines(
        steps,
        |steps| Box::pin(steps.recv()),
        |step: &Result<BackupProgress, String>| {
            serde_json::to_string(&match step {
                Ok(progress) => {
                    BackupStep { pages: progress.pages, remaining: progress.remaining, error: None }
                }
                Err(error) => BackupStep { pages: 0, remaining: 0, error: Some(error.clone()) },
            })
            .expect("numbers and texts are always JSON")
        },
    );
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], stream).into_response())
}

/// A backup to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub(crate) struct BackupRequest {
    /// Absolute path of a folder on the server's machine.
    pub folder: String,
}

/// Progress of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct BackupStep {
    pub pages: u64,
    pub remaining: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_from_nothing_to_all() {
        #[rustfmt::skip]
        let cases = [
            ("nothing",        200, 200, "░░░░   0 %  0 of 200 pages"),
            ("half",           200, 100, "██░░  50 %  100 of 200 pages"),
            ("all",            200, 0,   "████ 100 %  200 of 200 pages"),
            ("nothing to do",  0,   0,   "████ 100 %  0 of 0 pages"),
            ("it grew",        200, 300, "░░░░   0 %  0 of 200 pages"),
        ];
        for (name, pages, remaining, expected) in cases {
            let shown = bar(&BackupStep { pages, remaining, error: None }, 4);
            assert_eq!(anstream::adapter::strip_str(&shown).to_string(), expected, "{name}");
        }
    }
}
