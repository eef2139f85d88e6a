//! The commands of `redrive` and the HTTP API: parses arguments, runs the command, returns its exit code.
//!
//! 0 done, 1 problems found or refused, 2 usage error or unreadable file, 3 no server, 70 the server ended by
//! a bug.

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

pub use api::listen::serve_bare;

use crate::cli::CommandRefusal;
use crate::client::error::ClientError;
use crate::terminal::style;

#[must_use]
pub fn run() -> ExitCode {
    match cli::run(cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            // A closed pipe (`redrive rules | head`) is not an error.
            if is_broken_pipe(&error) {
                return ExitCode::SUCCESS;
            }
            let said = format!("{}: {error:#}", style::error("error"));
            logging::say(said, || tracing::error!(error = format!("{error:#}"), "exiting with an error"));
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
