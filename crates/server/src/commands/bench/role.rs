//! The other sides of a measurement, each a process of its own: where events go, where they come from, and
//! what the same machine does when nothing is stored.
//!
//! Invariant: a role ends when whoever started it does, since its standard input ends then.

mod handler;
pub(super) mod load;
pub(super) mod message;
mod relay;
pub(super) mod sink;
mod tally;

use std::io::Read;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use tokio::runtime::Runtime;

use crate::api::{Limits, Routers, listen};
use crate::cli::{BenchRole, BenchRoleArgs};
use crate::commands::{print, serve};

/// The largest body that a bare limit reads; ours take a kibibyte.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// What a role that listens says first, followed by where.
pub(super) const LISTENS: &str = "listening on ";

pub(in crate::commands) fn run(args: &BenchRoleArgs) -> anyhow::Result<ExitCode> {
    end_with_parent();
    match &args.role {
        BenchRole::Serve(args) => serve::run(args),
        BenchRole::Sink => sink::run(),
        BenchRole::Handler => handler::run(),
        BenchRole::Relay { to } => relay::run(*to),
        BenchRole::Load { plan } => {
            load::run(serde_json::from_str(plan).context("the plan is not one of ours")?)
        }
    }
}

/// Standard input is a pipe from whoever started us.
fn end_with_parent() {
    std::thread::spawn(|| {
        // Nobody writes to it: whether it ends or fails, there is nobody to work for.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

/// Half of the cores, since the one that is measured needs the others.
fn half_the_cores() -> anyhow::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = (cores / 2).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.context("could not start")
}

fn say_where(address: SocketAddr) -> anyhow::Result<()> {
    print(&format!("{LISTENS}{address}\n"))
}

/// Serves routes on the same stack as the API, until the process ends.
fn serve_routes(router: Router) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("could not start")?.block_on(async {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        // A sink that hangs does so until its caller gives up.
        let limits = Limits { answer_time: Duration::MAX, ..Limits::with_body(BODY_BYTES_MAX) };
        let listening = listen(any, |_| Routers::open(router), limits).await;
        // It closes when it is let go of.
        let listening = listening.context("could not listen")?;
        say_where(listening.address)?;
        std::future::pending().await
    })
}

/// The whole body; one that cannot be read is nobody's event.
async fn read(body: axum::body::Body) -> Option<Bytes> {
    Limited::new(body, BODY_BYTES_MAX).collect().await.ok().map(http_body_util::Collected::to_bytes)
}
