//! Accepts connections and serves the API on them, within limits that no client can stretch.
//!
//! Slow headers close the connection, a slow body gets 408, and beyond the maximum new connections wait in
//! the system's queue, with a share per address. A response starts within a time limit, whatever the store
//! does; only its body may take longer, and clients that do not read it are cut off.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tower_service::Service;

use crate::access::Peer;
use crate::api::code::ApiCode;
use crate::api::error::ApiError;
use crate::api::limits::connection::ClientConnection;
use crate::api::limits::loopback_only::{LoopbackPolicy, check_host};
use crate::api::limits::per_address::AddressLimiter;
use crate::api::transport::{AcceptedStream, Transport, TransportScheme};
use crate::api::{CORRELATION_ID, GuardedRouter, Routers, correlation_id};
use crate::webhooks;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiLimits {
    pub body_bytes_max: usize,
    pub body_time: Duration,
    /// Time limit for headers, and idle time between requests.
    pub header_time: Duration,
    pub handshake_time: Duration,
    /// Time limit from the headers to the start of the response. Longer than `body_time`, so that slow
    /// senders get their 408.
    pub answer_time: Duration,
    /// How long a client may read nothing.
    pub unread_time: Duration,
    pub connections_max: usize,
}

impl ApiLimits {
    pub(crate) fn with_body(body_bytes_max: usize) -> Self {
        Self {
            body_bytes_max,
            body_time: Duration::from_secs(10),
            header_time: Duration::from_secs(15),
            handshake_time: Duration::from_secs(10),
            answer_time: Duration::from_secs(15),
            unread_time: Duration::from_secs(60),
            connections_max: connections_max(),
        }
    }
}

/// Maximum of connections, if the file limit allows.
const CONNECTIONS_MAX: u64 = 10_000;

/// Files reserved for calls to targets (up to 1,024) and the store.
const FILES_RESERVED: u64 = 1_024 + 256;

/// Connections must not take the last files, or deliveries would stop.
fn connections_max() -> usize {
    let files = files_max();
    let beside = files.saturating_sub(FILES_RESERVED).max(files / 2);
    usize::try_from(beside.min(CONNECTIONS_MAX)).expect("a few thousand")
}

/// Raises the limit of open files to the hard limit and returns it.
fn files_max() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { raised.current } else { limit.current };
    current.unwrap_or(u64::MAX)
}

/// Limit of request headers in bytes; the library allows a hundred headers.
const HEADER_BYTES_MAX: usize = 64 * 1024;

const URI_BYTES_MAX: usize = 8 * 1024;

/// Pause after a failed accept, such as without free sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct ApiListener {
    pub address: SocketAddr,
    close: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl ApiListener {
    /// Accepts no more connections, waits that long for requests to end, and cuts off the rest.
    pub(crate) async fn close(self, within: Duration) {
        // The task listens for as long as it runs.
        let _ = self.close.send(true);
        let mut task = self.task;
        if tokio::time::timeout(within, &mut task).await.is_err() {
            // The task owns all connections: the rest ends with it.
            task.abort();
            let _ = task.await;
        }
    }
}

pub(crate) fn start_listening(
    transport: Transport,
    listener: TcpListener,
    routers: impl FnOnce(watch::Receiver<bool>) -> Routers,
    limits: ApiLimits,
) -> std::io::Result<ApiListener> {
    let address = listener.local_addr()?;
    let (close, closing) = watch::channel(false);
    let routers = Arc::new(routers(closing.clone()));
    let task = tokio::spawn(accept_all(listener, transport, routers, limits, closing));
    Ok(ApiListener { address, close, task })
}

/// Serves `router` on the stack of the API, to this machine, without a response timeout: the baseline of
/// benchmarks.
pub async fn serve_bare(listener: TcpListener, router: Router, body_bytes_max: usize) -> std::io::Result<()> {
    let limits = ApiLimits { answer_time: Duration::MAX, ..ApiLimits::with_body(body_bytes_max) };
    let _listening = start_listening(Transport::Plain, listener, |_| Routers::open(router), limits)?;
    std::future::pending().await
}

async fn accept_all(
    listener: TcpListener,
    transport: Transport,
    routers: Arc<Routers>,
    limits: ApiLimits,
    mut closing: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(limits.connections_max));
    let per_address = AddressLimiter::of(limits.connections_max);
    let mut connections = JoinSet::new();
    let mut has_failed = false;
    loop {
        let place = tokio::select! {
            biased;
            _ = closing.changed() => break,
            place = Arc::clone(&room).acquire_owned() => place.expect("the semaphore is never closed"),
        };
        let (stream, peer) = tokio::select! {
            biased;
            _ = closing.changed() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    has_failed = false;
                    (stream, peer.ip())
                }
                Err(error) => {
                    // Logged once until an accept succeeds.
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(%error, "could not accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let Some(member) = per_address.join(peer) else {
            tracing::debug!(%peer, "connection limit of the address reached, connection closed");
            continue;
        };
        let (transport, routers, closing) = (transport.clone(), Arc::clone(&routers), closing.clone());
        connections.spawn(async move {
            serve(stream, peer, &transport, &routers, limits, closing).await;
            drop((place, member));
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn answer(
    routers: &Routers,
    came: ConnectionOrigin,
    mut request: Request<Incoming>,
    within: Duration,
) -> Result<Response, Infallible> {
    let id = correlation_id(request.headers());
    // Handlers find the id of the response.
    request.headers_mut().insert(CORRELATION_ID, id.clone());
    let mut response = match enter(routers, came, &mut request) {
        Ok(mut router) => match tokio::time::timeout(within, router.call(request)).await {
            Ok(answered) => answered?,
            Err(_) => ApiError::no_answer(within).into_response(),
        },
        Err(refusal) => refusal.into_response(),
    };
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
        // The cause is logged where it occurred; this links it to the correlation id.
        tracing::error!(correlation_id = ?id, "request failed with an internal error");
    }
    response.headers_mut().insert(CORRELATION_ID, id);
    Ok(response)
}

fn enter(
    routers: &Routers,
    came: ConnectionOrigin,
    request: &mut Request<Incoming>,
) -> Result<Router, ApiError> {
    let bytes = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if bytes > URI_BYTES_MAX {
        return Err(ApiError::new(
            ApiCode::UriTooLong,
            format!("the path has more than {URI_BYTES_MAX} bytes"),
        ));
    }
    check_host(request)?;
    request.extensions_mut().insert(Peer(came.from));
    match &routers.guarded {
        Some(GuardedRouter { access, router }) if access.is_on() => Ok(router.clone()),
        Some(_) | None => {
            let is_hook =
                routers.guarded.is_some() && webhooks::handlers::is_call(request.method(), request.uri());
            // Webhooks are verified by signature, and a tunnel may use its own host name.
            let loopback = if is_hook { LoopbackPolicy::AnyClient } else { routers.loopback };
            loopback.check(request.headers(), came.by)?;
            Ok(routers.open.clone())
        }
    }
}

async fn serve(
    stream: TcpStream,
    peer: IpAddr,
    transport: &Transport,
    routers: &Routers,
    limits: ApiLimits,
    mut closing: watch::Receiver<bool>,
) {
    // Responses are small and latency counts.
    let _ = stream.set_nodelay(true);
    let entered = tokio::select! {
        biased;
        entered = transport.enter(stream, limits.handshake_time) => entered,
        // Connections still in the handshake are dropped.
        _ = closing.changed() => return,
    };
    let came = ConnectionOrigin { from: peer, by: transport.scheme() };
    match entered {
        Some(AcceptedStream::Plain(stream)) => speak(stream, came, routers, limits, closing).await,
        Some(AcceptedStream::Tls(stream)) => speak(stream, came, routers, limits, closing).await,
        None => {}
    }
}

#[derive(Clone, Copy)]
struct ConnectionOrigin {
    from: IpAddr,
    by: TransportScheme,
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    came: ConnectionOrigin,
    routers: &Routers,
    limits: ApiLimits,
    mut closing: watch::Receiver<bool>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(
            TokioIo::new(ClientConnection::new(stream, limits.unread_time)),
            service_fn(|request| answer(routers, came, request, limits.answer_time)),
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
        tracing::debug!(%error, "connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn listening(router: Router, limits: ApiLimits) -> ApiListener {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        start_listening(Transport::Plain, listener, |_| Routers::open(router), limits)
            .expect("a port is free")
    }

    async fn say(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut said = String::new();
        stream.read_to_string(&mut said).await.expect("it answers in text");
        said
    }

    /// Responses to pipelined requests, and long ones, are buffered until they are read.
    #[tokio::test]
    async fn whoever_never_reads_the_answer_leaves_its_place_to_others() {
        let endless = || async {
            let piece =
                || Ok::<_, Infallible>(hyper::body::Frame::data(bytes::Bytes::from(vec![b'x'; 65_536])));
            let pieces = futures_util::stream::repeat_with(piece);
            Body::new(http_body_util::StreamBody::new(pieces))
        };
        let router = Router::new().route("/endless", get(endless)).route("/", get(|| async { "here" }));
        let unread_time = Duration::from_millis(100);
        let limits = ApiLimits { unread_time, connections_max: 1, ..ApiLimits::with_body(1_000) };
        let listening = listening(router, limits).await;
        let mut deaf = TcpStream::connect(listening.address).await.expect("it listens");
        deaf.write_all(b"GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it reads");
        let next = say(listening.address, "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let heard = tokio::time::timeout(Duration::from_secs(30), next).await.expect("there is room again");
        assert!(heard.ends_with("here"), "{heard}");
        listening.close(Duration::from_secs(5)).await;
    }

    #[tokio::test]
    async fn whoever_asks_is_answered_in_time_and_only_bodies_take_longer() {
        let limit = Duration::from_millis(50);
        let late = || async {
            let body = futures_util::stream::once(async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok::<_, Infallible>(hyper::body::Frame::data(bytes::Bytes::from("the end")))
            });
            Body::new(http_body_util::StreamBody::new(body))
        };
        let router =
            Router::new().route("/never", get(std::future::pending::<Response>)).route("/late", get(late));
        let limits = ApiLimits { answer_time: limit, ..ApiLimits::with_body(1_000) };
        let listening = listening(router, limits).await;
        let ask = |path: &str| {
            format!(
                "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-correlation-id: c-1\r\n\r\n"
            )
        };
        let never = say(listening.address, &ask("/never")).await;
        assert!(never.starts_with("HTTP/1.1 503 "), "{never}");
        for part in [
            "retry-after: 1\r\n",
            "x-correlation-id: c-1\r\n",
            "SERVICE_UNAVAILABLE",
            "no response within 0.05 s",
        ] {
            assert!(never.contains(part), "{part}: {never}");
        }
        let late = say(listening.address, &ask("/late")).await;
        assert!(late.starts_with("HTTP/1.1 200 ") && late.contains("the end"), "{late}");
        listening.close(Duration::from_secs(5)).await;
    }

    #[tokio::test]
    async fn closing_cuts_off_what_does_not_end_in_time() {
        let router = Router::new().route("/never", get(std::future::pending::<Response>));
        let limits = ApiLimits { connections_max: 2, ..ApiLimits::with_body(1_000) };
        let listening = listening(router, limits).await;
        let mut waiting = TcpStream::connect(listening.address).await.expect("it listens");
        waiting.write_all(b"GET /never HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it reads");
        listening.close(Duration::from_millis(50)).await;
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(5), waiting.read_to_end(&mut rest)).await;
        // Any kind of close is fine.
        let _ = ended.expect("the connection ends with the door");
        assert!(rest.is_empty(), "nothing was answered: {rest:?}");
    }
}
