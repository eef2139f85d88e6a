//! `redrive backup`: a copy of the store, made by the server if one runs, and by ourselves if none does.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use redrive_node::store::{self, Backup, BackupProgress, Options, StoreError};

use super::{Refused, print, wait_for};
use crate::api::shape::{BackupStep, BackupWanted};
use crate::cli::BackupArgs;
use crate::client::{Address, Ask, Break, Client, NotRead, Trouble};
use crate::show::{columns, counted, plain, style, thousands};

/// Few enough that the bar moves.
const PAGES_PER_STEP: u32 = 256;
/// The widest bar of progress, whatever the terminal.
const BAR_COLUMNS_MAX: usize = 40;
/// What stands beside the bar.
const BAR_TEXT_COLUMNS: usize = 40;

pub(super) fn run(args: &BackupArgs) -> anyhow::Result<ExitCode> {
    let shown = args.folder.display();
    let folder = std::path::absolute(&args.folder).with_context(|| format!("{shown} names no folder"))?;
    let client = args.server.client()?;
    let pages = match wait_for(async { Ok(online_backup(client, &folder).await) })? {
        Ok(pages) => pages,
        Err(Stopped::NoServer(no_server)) => offline_backup(&args.data, &folder, no_server)?,
        Err(Stopped::Failed(error)) => return Err(error),
    };
    let size = counted(pages, "page");
    print(&format!("{} {size} copied to {}\n", style::good("✓"), style::bold(folder.display())))?;
    Ok(ExitCode::SUCCESS)
}

/// Why the server made no copy.
enum Stopped {
    /// There is none, so that the store may be free.
    NoServer(Trouble),
    /// There is one, and it could not.
    Failed(anyhow::Error),
}

impl From<Trouble> for Stopped {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Unreachable { reason: Break::Connect(_) | Break::NotConnected(_), .. } => {
                Self::NoServer(trouble)
            }
            Trouble::Unreachable { .. }
            | Trouble::Distrusted { .. }
            | Trouble::Refused(_)
            | Trouble::Unreadable { .. }
            | Trouble::Unaskable(_) => Self::Failed(trouble.into()),
        }
    }
}

/// Has the server copy its store, and tells how many pages it has.
async fn online_backup(mut client: Client, folder: &Path) -> Result<u64, Stopped> {
    let folder = folder.to_string_lossy().into_owned();
    let wanted = serde_json::to_vec(&BackupWanted { folder }).expect("a text can be written as JSON");
    let address = &client.address().clone();
    let mut lines = client.lines(&Ask::post("/v1/backup", "application/json", wanted)).await?;
    let bar = Bar::new();
    let mut last = None;
    loop {
        let line = lines.next().await.map_err(|reason| broke_off(address, &reason.to_string()))?;
        let Some(line) = line else { break };
        let step: BackupStep = serde_json::from_str(&line)
            .map_err(|error| Trouble::Unreadable { address: address.clone(), why: NotRead(error) })?;
        if let Some(error) = step.error {
            bar.clear();
            return Err(Stopped::Failed(Refused(format!("the copy failed: {}", plain(&error))).into()));
        }
        bar.show(&step);
        last = Some(step);
    }
    bar.clear();
    match last {
        Some(BackupStep { pages, remaining: 0, .. }) => Ok(pages),
        Some(_) | None => Err(broke_off(address, "the server ended it early")),
    }
}

fn broke_off(address: &Address, reason: &str) -> Stopped {
    let text = format!("the copy is not complete, do not use it: {reason} ({address})");
    Stopped::Failed(Refused(text).into())
}

/// Copies a store that no server has open, and tells how many pages it has.
fn offline_backup(data: &Path, folder: &Path, no_server: Trouble) -> anyhow::Result<u64> {
    // Opening a store makes one, and a copy of nothing helps nobody.
    if let Err(StoreError::NotOpened { .. }) = store::open_reader(data) {
        return Err(no_server).context(format!("there is no store in {} either", data.display()));
    }
    let refuse = |error: StoreError| Refused(error.to_string());
    let mut store = store::open(data, Options::default()).map_err(refuse)?;
    let mut backup = Backup::new(folder.to_owned(), PAGES_PER_STEP);
    let bar = Bar::new();
    loop {
        let BackupProgress { pages, remaining } = store.back_up(&mut backup).map_err(|error| {
            bar.clear();
            refuse(error)
        })?;
        bar.show(&BackupStep { pages, remaining, error: None });
        if remaining == 0 {
            bar.clear();
            // The store is not closed as after a run: how the last one ended is for the next one to find.
            return Ok(pages);
        }
    }
}

/// Progress on standard error, where it is a terminal.
struct Bar {
    columns: Option<usize>,
}

impl Bar {
    fn new() -> Self {
        let room = columns().saturating_sub(BAR_TEXT_COLUMNS).min(BAR_COLUMNS_MAX);
        Self { columns: std::io::stderr().is_terminal().then_some(room) }
    }

    fn show(&self, step: &BackupStep) {
        let Some(columns) = self.columns else { return };
        let text = bar(step, columns);
        // A bar that cannot be shown is no reason to stop.
        let _ = write!(anstream::stderr().lock(), "\r{text}\x1b[K");
    }

    fn clear(&self) {
        if self.columns.is_some() {
            let _ = write!(anstream::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn bar(step: &BackupStep, columns: usize) -> String {
    let BackupStep { pages, remaining, .. } = *step;
    let done = pages.saturating_sub(remaining);
    // Nothing to copy is all copied.
    let of_pages = |whole: u64| done.saturating_mul(whole).checked_div(pages).unwrap_or(whole);
    let filled = usize::try_from(of_pages(columns as u64)).map_or(columns, |filled| filled.min(columns));
    let percent = of_pages(100);
    let (full, empty) = ("█".repeat(filled), "░".repeat(columns - filled));
    let of = format!("{} of {} pages", thousands(done), thousands(pages));
    format!("{}{} {percent:3} %  {}", style::good(full), style::dim(empty), style::dim(of))
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
