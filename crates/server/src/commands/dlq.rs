//! `redrive dlq`: dead letters, from a server or straight from a data folder.

mod edit;
mod import;
mod look;
mod purge;
mod replay;
mod skip;

use std::process::ExitCode;

use serde_json::Value;

use super::done;
use crate::cli::{Dlq, DlqArgs};
use crate::letters::filter::FilterKeys;

pub(super) use replay::watch;

pub(super) async fn run(args: &DlqArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        Dlq::List(args) => done(look::list(args).await),
        Dlq::Groups(args) => done(look::groups(args).await),
        Dlq::Show(args) => done(look::show(args).await),
        Dlq::Export(args) => done(look::export(args).await),
        Dlq::Replay(args) => replay::run(args).await,
        Dlq::Purge(args) => done(purge::run(args).await),
        Dlq::Edit(args) => done(edit::run(args).await),
        Dlq::Skip(args) => done(skip::run(args).await),
        Dlq::Import(args) => done(import::run(args).await),
    }
}

/// A request on the letters that a filter finds, with its other keys.
fn wish(filter: &FilterKeys, others: Value) -> Value {
    let mut wish = filter.keys();
    if let Value::Object(others) = others {
        wish.extend(others);
    }
    Value::Object(wish)
}
