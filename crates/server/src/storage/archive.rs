//! `redrive archive get`: the data of one event, from the archive.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use redrive_core::archive::ArchiveRule;
use redrive_core::ids::Receipt;
use redrive_node::archive::{ArchiveKey, ArchiveMatches, ArchivedEvent, folder};

use crate::cli::CommandRefusal;
use crate::cli::files::write_new;
use crate::rules::file::open_book;
use crate::terminal::{self, plain, print_bytes, style};

/// Reads the archive; needs no server.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  redrive archive get order-42                  its data, from the archive in redrive.yaml")]
pub(crate) struct ArchiveArgs {
    #[command(subcommand)]
    pub(crate) what: ArchiveWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveWhat {
    Get(ArchiveGetArgs),
}

/// Prints the exact data of an event, even if the store no longer has it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive archive get order-42
  redrive archive get order-42 --source /shop -o order-42.json
  redrive archive get 9f3c0c5b1a2d4e6f --format json --folder /var/lib/redrive-archive

The data is checked against its stored hash.

Exit code: 0 printed, 1 not found or damaged, 2 wrong use.")]
pub(crate) struct ArchiveGetArgs {
    /// The event's id or receipt
    #[arg(value_name = "EVENT")]
    pub(crate) event: String,
    /// The rule book that defines the archive
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml", conflicts_with = "folder")]
    pub(crate) rules: PathBuf,
    /// The archive's folder
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// The event's source, if several sources used its id
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// What to print
    #[arg(long, value_enum, default_value_t = ArchiveFormat::Raw)]
    pub(crate) format: ArchiveFormat,
    /// Output file (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArchiveFormat {
    /// The data, byte for byte
    Raw,
    /// Everything stored: attributes, data as base64, its hash, time of acceptance
    Json,
}

const LISTED_MAX: usize = 10;

pub(crate) fn get(args: &ArchiveGetArgs) -> anyhow::Result<()> {
    let folder = folder_of(args)?;
    let kept = one(find(&folder, args)?, args, &folder)?;
    let bytes = match args.format {
        ArchiveFormat::Raw => kept.data,
        ArchiveFormat::Json => {
            let value: serde_json::Value = serde_json::from_str(&kept.json)?;
            terminal::json_text(&value)?.into_bytes()
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
        CommandRefusal(format!("{} defines no archive: pass its folder with --folder", args.rules.display()))
    })?;
    let folder = rule.endpoint.settings::<String>();
    let folder =
        folder.ok_or_else(|| CommandRefusal("only an archive in a folder can be read".to_owned()))?;
    Ok(folder.into())
}

/// By id, or else by receipt.
fn find(archive: &std::path::Path, args: &ArchiveGetArgs) -> anyhow::Result<Vec<ArchivedEvent>> {
    let look = |key: ArchiveKey| {
        folder::find(archive, &key).map_err(|error| {
            CommandRefusal(format!("cannot read the archive in {}: {error}", archive.display()))
        })
    };
    let mut found = look(ArchiveKey::Id(args.event.clone()))?;
    if let Some(receipt) = Receipt::parse(&args.event).filter(|_| found.kept.is_empty()) {
        let ArchiveMatches { kept, damaged } = look(ArchiveKey::Receipt(receipt))?;
        found.kept = kept;
        found.damaged.extend(damaged);
    }
    let ArchiveMatches { mut kept, damaged } = found;
    for damaged in damaged.iter().take(LISTED_MAX) {
        anstream::eprintln!("{}: {}", style::warning("skipped"), plain(damaged));
    }
    kept.retain(|kept| args.source.as_ref().is_none_or(|source| kept.source == *source));
    Ok(kept)
}

fn one(
    mut found: Vec<ArchivedEvent>,
    args: &ArchiveGetArgs,
    archive: &std::path::Path,
) -> Result<ArchivedEvent, CommandRefusal> {
    if found.len() > 1 {
        let one_source = found.iter().all(|kept| kept.source == found[0].source);
        let each = found.iter().take(LISTED_MAX).map(|kept| {
            let ArchivedEvent { source, receipt, received_at, .. } = kept;
            format!("\n  {}  {received_at}  {}", plain(receipt), plain(source))
        });
        let how = if one_source { "use its receipt" } else { "use its receipt, or --source" };
        let each: String = each.collect();
        return Err(CommandRefusal(format!(
            "{} events match `{}`: {how}{each}",
            found.len(),
            plain(&args.event)
        )));
    }
    found.pop().ok_or_else(|| {
        let (event, folder) = (plain(&args.event), archive.display());
        CommandRefusal(format!("the archive in {folder} has no event `{event}`"))
    })
}

/// Control characters are written to files only.
fn check_harmless(bytes: &[u8]) -> Result<(), CommandRefusal> {
    let is_harmless = || {
        std::str::from_utf8(bytes).is_ok_and(|text| {
            !text.chars().any(|char| char.is_control() && !matches!(char, '\n' | '\t' | '\r'))
        })
    };
    if std::io::stdout().is_terminal() && !is_harmless() {
        let file = style::bold("-o FILE");
        return Err(CommandRefusal(format!("data is not plain text: write it to a file with {file}")));
    }
    Ok(())
}
