//! `redrive completions`: what a shell needs to complete our commands.

use clap::CommandFactory;
use clap_complete::Shell;

use super::print;
use crate::cli::{Cli, CompletionShell, CompletionsArgs};

pub(super) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let shell = match args.shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "redrive", &mut script);
    print(&String::from_utf8(script)?)
}
