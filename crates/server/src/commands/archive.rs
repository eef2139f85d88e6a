//! `redrive archive get`: an event's data as they came, from the archive itself.

use std::io::IsTerminal;
use std::path::PathBuf;

use redrive_core::archive::ArchiveRule;
use redrive_core::ids::Receipt;
use redrive_node::archive::{ArchiveKey, Found, Kept, folder};

use super::{Refused, open_book, print_bytes, write_new};
use crate::cli::{ArchiveFormat, ArchiveGetArgs};
use crate::show::{plain, style};

/// Events that are told apart in a message.
const TOLD_MAX: usize = 10;

pub(super) fn get(args: &ArchiveGetArgs) -> anyhow::Result<()> {
    let folder = folder_of(args)?;
    let kept = one(find(&folder, args)?, args, &folder)?;
    let bytes = match args.format {
        ArchiveFormat::Raw => kept.data,
        ArchiveFormat::Json => {
            let value: serde_json::Value = serde_json::from_str(&kept.json)?;
            super::json_text(&value)?.into_bytes()
        }
    };
    if let Some(path) = &args.output {
        return write_new(path, &bytes);
    }
    check_harmless(&bytes)?;
    print_bytes(&bytes)
}

fn folder_of(args: &ArchiveGetArgs) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &args.folder {
        return Ok(folder.clone());
    }
    let rule = ArchiveRule::of(&open_book(&args.rules)?);
    let rule = rule.ok_or_else(|| {
        Refused(format!("{} has no archive: name its folder with --folder", args.rules.display()))
    })?;
    let folder = rule.endpoint.settings::<String>();
    let folder = folder.ok_or_else(|| Refused("only an archive in a folder can be read here".to_owned()))?;
    Ok(folder.into())
}

/// All that goes by what was typed: an id first, and a receipt if it looks like one.
fn find(archive: &std::path::Path, args: &ArchiveGetArgs) -> anyhow::Result<Vec<Kept>> {
    let look = |key: ArchiveKey| {
        folder::find(archive, &key).map_err(|error| {
            Refused(format!("the archive in {} could not be read: {error}", archive.display()))
        })
    };
    let mut found = look(ArchiveKey::Id(args.event.clone()))?;
    if let Some(receipt) = Receipt::parse(&args.event).filter(|_| found.kept.is_empty()) {
        let Found { kept, damaged } = look(ArchiveKey::Receipt(receipt))?;
        found.kept = kept;
        found.damaged.extend(damaged);
    }
    let Found { mut kept, damaged } = found;
    for damaged in damaged.iter().take(TOLD_MAX) {
        anstream::eprintln!("{}: {}", style::warning("not shown"), plain(damaged));
    }
    kept.retain(|kept| args.source.as_ref().is_none_or(|source| kept.source == *source));
    Ok(kept)
}

/// The one that is meant.
fn one(mut found: Vec<Kept>, args: &ArchiveGetArgs, archive: &std::path::Path) -> Result<Kept, Refused> {
    if found.len() > 1 {
        let one_source = found.iter().all(|kept| kept.source == found[0].source);
        let each = found.iter().take(TOLD_MAX).map(|kept| {
            let Kept { source, receipt, received_at, .. } = kept;
            format!("\n  {}  {received_at}  {}", plain(receipt), plain(source))
        });
        let how = if one_source { "name its receipt" } else { "name its receipt, or its --source" };
        let each: String = each.collect();
        return Err(Refused(format!("{} events go by `{}`: {how}{each}", found.len(), plain(&args.event))));
    }
    found.pop().ok_or_else(|| {
        let (event, folder) = (plain(&args.event), archive.display());
        Refused(format!("the archive in {folder} has no event that goes by `{event}`"))
    })
}

/// What could play tricks on a terminal goes to files only.
fn check_harmless(bytes: &[u8]) -> Result<(), Refused> {
    let is_harmless = || {
        std::str::from_utf8(bytes).is_ok_and(|text| {
            !text.chars().any(|char| char.is_control() && !matches!(char, '\n' | '\t' | '\r'))
        })
    };
    if std::io::stdout().is_terminal() && !is_harmless() {
        let file = style::bold("-o FILE");
        return Err(Refused(format!("the data are no plain text: write them to a file with {file}")));
    }
    Ok(())
}
