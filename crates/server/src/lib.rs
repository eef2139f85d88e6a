//! The commands of `redrive` and the HTTP API: parses the arguments, runs the command, returns its exit code.
//!
//! 0 done, 1 problems found or refused, 2 wrong use or a file that cannot be read, 3 no server there, 70 a bug ended
//! the server.

mod access;
mod alerts;
mod api;
mod breakers;
mod cli;
mod client;
mod connectors;
mod deliveries;
mod demo;
mod events;
mod keys;
mod lab;
mod letters;
mod logging;
mod replays;
mod rules;
mod schedules;
mod serve;
mod services;
mod status;
mod storage;
pub mod terminal;
mod webhooks;

use std::process::ExitCode;

use clap::Parser;

pub use api::listen::serve_bare;

use crate::cli::{Cli, CommandRefusal};
use crate::client::error::ClientError;
use crate::terminal::style;

/// Runs the command of this process' arguments.
#[must_use]
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    match cli::run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            // A reader that went away (`redrive rules | head`) is no failure of ours.
            if is_broken_pipe(&error) {
                return ExitCode::SUCCESS;
            }
            let said = format!("{}: {error:#}", style::error("error"));
            logging::say(said, || tracing::error!(error = format!("{error:#}"), "it ends"));
            ExitCode::from(code_of(&error))
        }
    }
}

fn code_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref() {
        Some(ClientError::Unreachable { .. } | ClientError::Distrusted { .. }) => 3,
        Some(ClientError::Refused(_) | ClientError::Unreadable { .. }) => 1,
        None if error.is::<CommandRefusal>() => 1,
        Some(ClientError::Unaskable(_)) | None => 2,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
