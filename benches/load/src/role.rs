//! The other processes of a benchmark: where events go, where they come from, and the baselines without a
//! store.
//!
//! Invariant: a role ends with its parent: its standard input closes, and the system kills the server.

mod handler;
pub(super) mod load;
pub(super) mod message;
mod relay;
pub(super) mod sink;
mod tally;

use std::ffi::OsString;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;
use axum::Router;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use redrive_server::terminal::print;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::arguments::Role;

const BODY_BYTES_MAX: usize = 1024 * 1024;

/// First output of a listening role, followed by its address.
pub(super) const LISTENS: &str = "listening on ";

pub(super) fn run(role: &Role) -> anyhow::Result<ExitCode> {
    if !matches!(role, Role::Serve { .. }) {
        end_with_parent();
    }
    match role {
        Role::Serve { redrive, arguments } => become_server(redrive, arguments),
        Role::Sink => sink::run(),
        Role::Handler => handler::run(),
        Role::Relay { to } => relay::run(*to),
        Role::Load { plan } => load::run(serde_json::from_str(plan).context("the plan is not one of ours")?),
    }
}

/// The process keeps its id, so that its figures are the server's alone; the system ends it with its parent.
fn become_server(redrive: &Path, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .context("could not bind the server to this run")?;
    let error = Command::new(redrive).args(arguments).exec();
    Err(error).with_context(|| format!("could not start {}", redrive.display()))
}

/// Standard input is a pipe from the parent.
fn end_with_parent() {
    std::thread::spawn(|| {
        // Its end or an error means that the parent is gone.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

/// The measured process needs the other half.
fn half_the_cores() -> anyhow::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = (cores / 2).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.context("could not start")
}

fn say_where(address: SocketAddr) -> anyhow::Result<()> {
    print(&format!("{LISTENS}{address}\n"))
}

fn serve_routes(router: Router) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("could not start")?.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("could not listen")?;
        say_where(listener.local_addr().context("could not listen")?)?;
        redrive_server::serve_bare(listener, router, BODY_BYTES_MAX).await.context("could not serve")?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn read(body: axum::body::Body) -> Option<Bytes> {
    Limited::new(body, BODY_BYTES_MAX).collect().await.ok().map(http_body_util::Collected::to_bytes)
}
