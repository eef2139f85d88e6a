//! The commands of `redrive` and the HTTP API: parses the arguments, runs the command, returns its exit code.
//!
//! 0 done, 1 problems found or refused, 2 wrong use or a file that cannot be read, 3 no server there, 70 a bug ended
//! the server.

mod api;
mod cli;
mod client;
mod commands;
mod connectors;
mod demo;
mod doctor;
mod keys;
mod letters;
mod logging;
mod otlp;
mod show;

use std::process::ExitCode;

use clap::Parser;

pub use api::serve_bare;

/// Terminal output for the programs beside this one.
pub mod terminal {
    pub use crate::commands::print;
    pub use crate::show::{style, table};
}

/// Runs the command of this process' arguments.
#[must_use]
pub fn run() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            // A reader that went away (`redrive rules | head`) is no failure of ours.
            if is_broken_pipe(&error) {
                return ExitCode::SUCCESS;
            }
            let said = format!("{}: {error:#}", show::style::error("error"));
            logging::say(said, || tracing::error!(error = format!("{error:#}"), "it ends"));
            ExitCode::from(code_of(&error))
        }
    }
}

fn code_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref() {
        Some(client::Trouble::Unreachable { .. } | client::Trouble::Distrusted { .. }) => 3,
        Some(client::Trouble::Refused(_) | client::Trouble::Unreadable { .. }) => 1,
        None if error.is::<commands::Refused>() => 1,
        Some(client::Trouble::Unaskable(_)) | None => 2,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
