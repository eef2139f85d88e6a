//! The `redrive` command: reads what was typed, runs it, and says how it went by its exit code.
//!
//! 0 done, 1 problems found or refused, 2 wrong use or a file that cannot be read, 3 no server there, 70 a bug ended
//! the server.

mod api;
mod cli;
mod client;
mod commands;
mod demo;
mod doctor;
mod keys;
mod letters;
mod logging;
mod otlp;
mod show;

use std::process::ExitCode;

use clap::Parser;

/// An event is allocated on one thread and dropped on another, again and again, which this one is made for. It is
/// built not to ask for huge pages (`no_thp`): an idle server would hold megabytes of them that it never uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    leave_huge_pages();
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

/// Where the system gives huge pages to everybody, it has to be told. Without such a setting there is nothing to do.
fn leave_huge_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
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
