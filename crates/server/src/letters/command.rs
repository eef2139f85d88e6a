//! `redrive dlq`: its subcommands.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli::done;
use crate::letters::browse::{DlqExportArgs, DlqGroupsArgs, DlqListArgs, DlqShowArgs};
use crate::letters::edit::DlqEditArgs;
use crate::letters::filter::FilterKeys;
use crate::letters::import::DlqImportArgs;
use crate::letters::purge::DlqPurgeArgs;
use crate::letters::skip::DlqSkipArgs;
use crate::letters::{browse, edit, import, purge, skip};
use crate::replays::start;
use crate::replays::start::DlqReplayArgs;

/// Looks at dead letters, sends them again, or does away with them.
#[derive(Debug, Args)]
#[command(after_help = "\
A morning after:
  redrive dlq groups                            which causes there are
  redrive dlq show 3c6ef372                     one letter with its attempts and its data
  redrive dlq replay --fingerprint 00c0ffee00c0ffee --canary
                                                one, then ten, then the rest
  redrive replays                               how far they are")]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    pub(crate) what: Dlq,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
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
        Dlq::List(args) => done(browse::list(args).await),
        Dlq::Groups(args) => done(browse::groups(args).await),
        Dlq::Show(args) => done(browse::show(args).await),
        Dlq::Export(args) => done(browse::export(args).await),
        Dlq::Replay(args) => start::run(args).await,
        Dlq::Purge(args) => done(purge::run(args).await),
        Dlq::Edit(args) => done(edit::run(args).await),
        Dlq::Skip(args) => done(skip::run(args).await),
        Dlq::Import(args) => done(import::run(args).await),
    }
}

/// A request on the letters that a filter finds, with its other keys.
pub(crate) fn wish(filter: &FilterKeys, others: Value) -> Value {
    let mut wish = filter.keys();
    if let Value::Object(others) = others {
        wish.extend(others);
    }
    Value::Object(wish)
}
