//! `redrive completions`: what a shell needs to complete our commands.

use clap::CommandFactory;

use super::print;
use crate::cli::{Cli, CompletionsArgs};

pub(super) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "redrive", &mut script);
    print(&String::from_utf8(script)?)
}
