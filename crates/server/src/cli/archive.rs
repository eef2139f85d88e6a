//! The commands for the archive.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What the archive has kept, whether a server runs or not.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  redrive archive get order-42                  its data as they came, from redrive.yaml's archive")]
pub(crate) struct ArchiveArgs {
    #[command(subcommand)]
    pub(crate) what: ArchiveWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveWhat {
    Get(ArchiveGetArgs),
}

/// Prints the data of an event exactly as they came, even if the store has forgotten it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive archive get order-42
  redrive archive get order-42 --source /shop -o order-42.json
  redrive archive get 9f3c0c5b1a2d4e6f --format json --folder /var/lib/redrive-archive

The data are checked against the hash that was written with them.

Exit code: 0 printed, 1 not found or damaged, 2 wrong use.")]
pub(crate) struct ArchiveGetArgs {
    /// The event's id or its receipt
    #[arg(value_name = "EVENT")]
    pub(crate) event: String,
    /// The rule book that names the archive
    #[arg(long, value_name = "FILE", default_value = "redrive.yaml", conflicts_with = "folder")]
    pub(crate) rules: PathBuf,
    /// The archive's folder
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// The event's source, if several sources have used its id
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// What to print
    #[arg(long, value_enum, default_value_t = ArchiveFormat::Raw)]
    pub(crate) format: ArchiveFormat,
    /// Writes it to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArchiveFormat {
    /// The data, byte for byte
    Raw,
    /// All that is kept: the attributes, the data as base64, their hash, when it was accepted
    Json,
}
