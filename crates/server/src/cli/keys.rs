//! The commands for keys.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use redrive_core::access::Role;
use redrive_core::text::{Rate, parse_duration, parse_rate};

use super::one_of;
use super::remote::{Format, ServerArgs};

/// Makes keys for those who come to a server, lists them, and revokes them.
#[derive(Debug, Args)]
#[command(after_help = "\
The first one, before a server is reachable for others:
  redrive keys create ops --role admin --data redrive-data

A key is sent as `Authorization: Bearer KEY`. The commands here take it from the variable REDRIVE_KEY or \
from the file of --key-file. Once there is a key, everybody is asked for one.")]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) what: Keys,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    Create(Box<KeysCreateArgs>),
    List(KeysListArgs),
    Revoke(KeysRevokeArgs),
}

/// Makes a key, and tells it this once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive keys create ops --role admin --data redrive-data
  redrive keys create shop --role ingest --source /shop --rate 100/s
  redrive keys create billing-team --role operator --service billing --expires 90d
  redrive keys create ci --role viewer --quiet > key

Exit code: 0 made, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct KeysCreateArgs {
    /// Whose it is, for lists and the record
    pub(crate) name: String,
    /// What its owner may do
    #[arg(long, value_parser = one_of(&ROLES))]
    pub(crate) role: Role,
    /// Only events of this source; may be given more than once
    #[arg(long = "source", value_name = "SOURCE")]
    pub(crate) sources: Vec<String>,
    /// Only this service; may be given more than once
    #[arg(long = "service", value_name = "SERVICE")]
    pub(crate) services: Vec<String>,
    /// How many requests its owner may make; without it, what the rule book says
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) rate: Option<Rate>,
    /// How long it is good; without it, until it is revoked
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) expires: Option<Duration>,
    /// Prints the key and nothing else
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) at: KeysAtArgs,
}

/// Lists keys, the oldest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive keys list
  redrive keys list --data redrive-data --format json

Exit code: 0 shown, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct KeysListArgs {
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) at: KeysAtArgs,
}

/// Makes a key good for nothing from now on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive keys revoke rk_1a2b3c4d --note 'it was in a log'

Exit code: 0 revoked, 1 there is no such key, 2 wrong use, 3 no server.")]
pub(crate) struct KeysRevokeArgs {
    /// The key's id, as `redrive keys list` tells it: the first part of the key
    pub(crate) id: String,
    /// Why, for the record
    #[arg(long)]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) at: KeysAtArgs,
}

/// Where keys are kept.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeysAtArgs {
    /// Changes this data folder instead of asking a server; none may be running on it, but to list
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

const ROLES: [(&str, &str, Role); 4] = [
    ("ingest", "Sends events, and sees nothing", Role::Ingest),
    ("viewer", "Looks, and changes nothing", Role::Viewer),
    ("operator", "Looks, sends events, and deals with services, dead letters and replays", Role::Operator),
    ("admin", "May do everything, keys included", Role::Admin),
];
