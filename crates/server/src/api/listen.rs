//! Accepts connections and serves the API on them, within bounds that no client can stretch.
//!
//! A client that sends its headers slowly is cut off, one that sends its body slowly is answered 408, and
//! beyond a number of connections new ones wait in the system's queue.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tower_service::Service;

use super::identity::Peer;
use super::polite::Polite;
use super::{CORRELATION_ID, Guarded, Routers, correlation_id};

/// The bounds of the API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The largest body.
    pub body_bytes_max: usize,
    /// How long a body may take to come.
    pub body_time: Duration,
    /// How long headers may take to come, and how long a connection may idle between requests.
    pub header_time: Duration,
    /// Connections at once.
    pub connections_max: usize,
}

impl Limits {
    pub(crate) fn with_body(body_bytes_max: usize) -> Self {
        Self {
            body_bytes_max,
            body_time: Duration::from_secs(15),
            header_time: Duration::from_secs(15),
            connections_max: connections_max(),
        }
    }
}

/// Connections at once, if the system lets us have as many.
const CONNECTIONS_MAX: u64 = 10_000;
/// Files that are left for calls to targets, which are up to 1,024, and for the store.
const FILES_RESERVED: u64 = 1_024 + 256;

/// As many connections as there are files for: whoever comes must not take the last one, or nothing more
/// could be delivered.
fn connections_max() -> usize {
    let files = files_max();
    let beside = files.saturating_sub(FILES_RESERVED).max(files / 2);
    usize::try_from(beside.min(CONNECTIONS_MAX)).expect("a few thousand")
}

/// How many files this process may have open; it asks for all that it may ask for.
fn files_max() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { raised.current } else { limit.current };
    current.unwrap_or(u64::MAX)
}

/// The bytes that a request's headers may take.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// How long to wait when the system has no more sockets for us.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A door that is open.
pub(crate) struct Listening {
    pub address: SocketAddr,
    close: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Listening {
    /// Takes no more connections, and lets requests end within that time.
    pub(crate) async fn close(self, within: Duration) {
        // The task listens for as long as it runs.
        let _ = self.close.send(true);
        // Whoever has not ended by then is cut off.
        let _ = tokio::time::timeout(within, self.task).await;
    }
}

/// Serves the API at that address; the routers are made with what turns true when the door closes.
pub(crate) async fn listen(
    address: SocketAddr,
    routers: impl FnOnce(watch::Receiver<bool>) -> Routers,
    limits: Limits,
) -> std::io::Result<Listening> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let (close, closing) = watch::channel(false);
    let routers = Arc::new(routers(closing.clone()));
    let task = tokio::spawn(accept_all(listener, routers, limits, closing));
    Ok(Listening { address, close, task })
}

async fn accept_all(
    listener: TcpListener,
    routers: Arc<Routers>,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(limits.connections_max));
    let mut connections = JoinSet::new();
    let mut has_failed = false;
    loop {
        let place = Arc::clone(&room).acquire_owned().await.expect("nobody closes the semaphore");
        let (stream, peer) = tokio::select! {
            biased;
            _ = closing.changed() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    has_failed = false;
                    (stream, peer.ip())
                }
                Err(error) => {
                    // Once is enough until it goes well again.
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(%error, "could not accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let (routers, closing) = (Arc::clone(&routers), closing.clone());
        connections.spawn(async move {
            serve(stream, peer, &routers, limits, closing).await;
            drop(place);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Answers one request, under the client's correlation id or one of ours.
async fn answer(
    routers: &Routers,
    peer: IpAddr,
    mut request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let id = correlation_id(request.headers());
    let mut response = match &routers.guarded {
        Some(Guarded { access, router }) if access.is_on() => {
            request.extensions_mut().insert(Peer(peer));
            router.clone().call(request).await?
        }
        Some(_) | None => match routers.guests.check(request.headers()) {
            Ok(()) => routers.open.clone().call(request).await?,
            Err(refusal) => refusal.into_response(),
        },
    };
    // A handler that logs has told its own already.
    response.headers_mut().entry(CORRELATION_ID).or_insert(id);
    Ok(response)
}

async fn serve(
    stream: TcpStream,
    peer: IpAddr,
    routers: &Routers,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
) {
    // Answers are small and somebody waits for each.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(
            TokioIo::new(Polite::new(stream)),
            service_fn(|request| answer(routers, peer, request)),
        );
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = closing.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
