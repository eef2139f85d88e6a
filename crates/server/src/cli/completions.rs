//! `redrive completions`: shell completion scripts.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::{Cli, one_of};
use crate::terminal::print;

/// Prints a shell completion script.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive completions bash > ~/.local/share/bash-completion/completions/redrive
  redrive completions zsh > ~/.zfunc/_redrive
  redrive completions fish > ~/.config/fish/completions/redrive.fish
  redrive completions powershell >> $PROFILE")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_parser = one_of(&SHELLS))]
    pub(crate) shell: Shell,
}

const SHELLS: [(&str, &str, Shell); 4] = [
    ("bash", "GNU Bash", Shell::Bash),
    ("zsh", "Z shell", Shell::Zsh),
    ("fish", "fish", Shell::Fish),
    ("powershell", "PowerShell", Shell::PowerShell),
];

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "redrive", &mut script);
    print(&String::from_utf8(script)?)
}
