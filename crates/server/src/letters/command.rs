//! `redrive dlq`: its subcommands.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use redrive_core::text::counted;
use serde_json::{Value, json};

use crate::cli::{ServerArgs, done};
use crate::client::ClientRequest;
use crate::client::address::segment;
use crate::deliveries::text::short_id;
use crate::letters::browse::{self, DlqExportArgs, DlqGroupsArgs, DlqListArgs, DlqShowArgs};
use crate::letters::edit::{self, DlqEditArgs};
use crate::letters::filter::FilterKeys;
use crate::letters::import::{self, DlqImportArgs};
use crate::letters::json::SkipResponse;
use crate::letters::purge::{self, DlqPurgeArgs};
use crate::replays::start::{self, DlqReplayArgs};
use crate::terminal::{print, style};

/// Lists, replays, edits and deletes dead letters.
#[derive(Debug, Args)]
#[command(after_help = "\
After an outage:
  redrive dlq groups                            causes of dead letters
  redrive dlq show 3c6ef372                     one letter with its attempts and data
  redrive dlq replay --fingerprint 00c0ffee00c0ffee --canary
                                                one, then ten, then the rest
  redrive replays                               progress of replays")]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    pub(crate) what: DlqCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    List(DlqListArgs),
    Groups(DlqGroupsArgs),
    Show(DlqShowArgs),
    Replay(Box<DlqReplayArgs>),
    Purge(Box<DlqPurgeArgs>),
    Edit(DlqEditArgs),
    Skip(DlqSkipArgs),
    Import(DlqImportArgs),
    Export(DlqExportArgs),
}

pub(crate) async fn run(args: &DlqArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        DlqCommand::List(args) => done(browse::list(args).await),
        DlqCommand::Groups(args) => done(browse::groups(args).await),
        DlqCommand::Show(args) => done(browse::show(args).await),
        DlqCommand::Export(args) => done(browse::export(args).await),
        DlqCommand::Replay(args) => start::run(args).await,
        DlqCommand::Purge(args) => done(purge::run(args).await),
        DlqCommand::Edit(args) => done(edit::run(args).await),
        DlqCommand::Skip(args) => done(skip(args).await),
        DlqCommand::Import(args) => done(import::run(args).await),
    }
}

pub(crate) fn letter_request(filter: &FilterKeys, others: Value) -> Value {
    let mut letter_request = filter.keys();
    if let Value::Object(others) = others {
        letter_request.extend(others);
    }
    Value::Object(letter_request)
}

/// Discards a dead letter; deliveries behind it in its session resume.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive dlq skip 3c6ef372 --note 'the order was cancelled by phone'

Exit code: 0 skipped, 1 refused, 2 wrong use, 3 no server.")]
pub(crate) struct DlqSkipArgs {
    /// The letter's id, id prefix, or original id
    #[arg(value_name = "LETTER")]
    pub(crate) letter: String,
    /// The reason, for the audit log
    #[arg(long)]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) async fn skip(args: &DlqSkipArgs) -> anyhow::Result<()> {
    let path = format!("/v1/dead-letters/{}/skip", segment(&args.letter));
    let ask = ClientRequest::json(path, &json!({ "note": args.note }));
    let skipped: SkipResponse = args.server.client()?.json(&ask).await?;
    let id = style::bold(short_id(&skipped.id));
    let released = match skipped.released {
        0 => String::new(),
        1 => ": 1 delivery behind it resumes".to_owned(),
        count => format!(": {} behind it resume", counted(count, "delivery")),
    };
    print(&format!("{} skipped letter {id}{released}\n", style::good("✓")))
}
