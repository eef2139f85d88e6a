//! `redrive dlq purge`: deletes dead letters, once somebody has said so with the number before them.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use redrive::core::text::show_duration;
use serde_json::{Map, Value, json};

use crate::api::shape::letters::PurgeShown;
use crate::cli::{DlqPurgeArgs, Format};
use crate::client::{Ask, Client, Trouble};
use crate::commands::{Refused, print, print_json, wait_for};
use crate::show::{counted, style};

pub(super) fn run(args: &DlqPurgeArgs) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let mut client = Client::new(args.server.server.clone());
        if args.dry_run || !args.yes {
            let dry: PurgeShown =
                client.json(&ask(&Map::from_iter([("dry_run".to_owned(), json!(true))]), args)).await?;
            if args.dry_run {
                match args.format {
                    Format::Json => print_json(&dry)?,
                    Format::Text => print(&would_be(&dry))?,
                }
                return Ok(ExitCode::SUCCESS);
            }
            if dry.deleted == 0 {
                print(&would_be(&dry))?;
                return Ok(ExitCode::SUCCESS);
            }
            confirm(&dry)?;
        }
        let purged = purge(&mut client, args).await?;
        match args.format {
            Format::Json => print_json(&purged)?,
            Format::Text => print(&ending(&purged))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn ask(more: &Map<String, Value>, args: &DlqPurgeArgs) -> Ask {
    let mut wish = more.clone();
    wish.extend(args.filter.pairs().into_iter().map(|(name, value)| (name.to_owned(), json!(value))));
    wish.extend(args.older_than.map(|age| ("older_than".to_owned(), json!(show_duration(age)))));
    wish.extend(args.note.as_ref().map(|note| ("note".to_owned(), json!(note))));
    if args.all {
        wish.insert("all".to_owned(), json!(true));
    }
    let body = serde_json::to_vec(&wish).expect("texts can be written as JSON");
    Ask::post("/v1/dead-letters/purge", "application/json", body)
}

/// Goes on until the server says that it is done.
async fn purge(client: &mut Client, args: &DlqPurgeArgs) -> anyhow::Result<PurgeShown> {
    let address = client.address().clone();
    let mut lines = client.lines(&ask(&Map::new(), args)).await?;
    let is_terminal = std::io::stderr().is_terminal();
    loop {
        let line = lines.next().await;
        let Ok(Some(line)) = line else {
            let text = "the server went away before it said that it is done: the purge may be incomplete";
            return Err(Refused(text.to_owned()).into());
        };
        let step: PurgeShown = serde_json::from_str(&line)
            .map_err(|source| Trouble::Unreadable { address: address.clone(), source })?;
        if is_terminal {
            let _ = write!(anstream::stderr().lock(), "\r\x1b[K");
        }
        if let Some(error) = step.error {
            return Err(Refused(format!("the purge is incomplete: {error}")).into());
        }
        if step.done {
            return Ok(step);
        }
        if is_terminal {
            let so_far = format!("{} deleted so far", counted(step.deleted, "dead letter"));
            let _ = write!(anstream::stderr().lock(), "{}", style::dim(so_far));
        }
    }
}

fn would_be(dry: &PurgeShown) -> String {
    let mut out = format!("{} would be deleted\n", counted(dry.deleted, "dead letter"));
    if let Some(holding) = dry.holding.filter(|holding| *holding > 0) {
        let sessions = counted(holding, "session");
        out.push_str(&format!("  {sessions} that they hold would go on without them\n"));
    }
    if dry.claimed > 0 {
        out.push_str(&format!("  {} of open replays would stay\n", counted(dry.claimed, "more")));
    }
    out
}

fn ending(purged: &PurgeShown) -> String {
    let mut out = format!("{} {} deleted\n", style::good("✓"), counted(purged.deleted, "dead letter"));
    if purged.claimed > 0 {
        let letters = counted(purged.claimed, "letter");
        out.push_str(&format!("  {letters} of open replays stay: cancel the replay first\n"));
    }
    out
}

/// Asks a person; where there is none, nothing is deleted.
fn confirm(dry: &PurgeShown) -> anyhow::Result<()> {
    let stay = |why: &str| {
        let letters = counted(dry.deleted, "dead letter");
        Refused(format!("{letters} would be deleted for good, and {why}: nothing was deleted"))
    };
    if !std::io::stdin().is_terminal() {
        return Err(stay("nobody can be asked here; add --yes").into());
    }
    let question = format!("{}Delete them for good? [y/N] ", would_be(dry));
    write!(anstream::stderr().lock(), "{question}")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(stay("you did not say yes").into()),
    }
}
