//! `redrive dlq`: dead letters, from a server or straight from a data folder.

mod edit;
mod import;
mod look;
mod purge;
mod replay;
mod skip;

use std::process::ExitCode;

use serde_json::{Map, Value};

use crate::cli::{Dlq, DlqArgs};

pub(super) use replay::watch;

pub(super) fn run(args: &DlqArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        Dlq::List(args) => look::list(args),
        Dlq::Groups(args) => look::groups(args),
        Dlq::Show(args) => look::show(args),
        Dlq::Export(args) => look::export(args),
        Dlq::Replay(args) => replay::run(args),
        Dlq::Purge(args) => purge::run(args),
        Dlq::Edit(args) => edit::run(args),
        Dlq::Skip(args) => skip::run(args),
        Dlq::Import(args) => import::run(args),
    }
}

/// The part of an address behind the question mark.
fn query(keys: &Map<String, Value>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(keys.iter().filter_map(|(name, value)| Some((name, value.as_str()?))));
    query.finish()
}
