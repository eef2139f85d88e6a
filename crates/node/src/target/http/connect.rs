//! Opens connections: DNS lookup, TCP, and perhaps TLS.
//!
//! Invariant: a name is looked up once per connection, and only addresses admitted by the guard are connected
//! to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use redrive_core::policy::answer::CallPart;
use rustls::client::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::{ConnectionSecurity, HttpOrigin};
use super::failure::CallFailure;
use super::identity::Route;
use super::limits::{ADDRESSES_MAX, CallLimits, CallPhase, HEAD_BYTES_MAX, TCP_KEEP_ALIVE, timed_out};
use super::line::{Socket, SocketLine};
use super::pool::Pool;
use super::resolve::Resolver;
use super::shared::SharedConnection;

#[derive(Debug)]
pub(super) enum Connection {
    /// HTTP/1.1: for one call at a time.
    Alone(ConnectionSender),
    /// HTTP/2.
    Shared(Arc<SharedConnection>),
}

/// Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct ConnectionSender {
    pub(super) origin: Arc<HttpOrigin>,
    pub(super) requests: SendRequest<Full<Bytes>>,
    pub(super) line: SocketLine,
    /// When its last request was about to be written.
    pub(super) called_at: Instant,
}

/// For HTTP/1.1, with the usual trust.
pub(super) async fn connect(
    origin: &Arc<HttpOrigin>,
    pool: &Pool,
    limits: &CallLimits,
) -> Result<ConnectionSender, CallFailure> {
    let (socket, line) = reach(origin, pool, limits).await?;
    match origin.security {
        ConnectionSecurity::Plain => speak_http1(socket, line, origin).await,
        ConnectionSecurity::Tls => {
            let stream = shake_hands(socket, origin, &pool.tls().http1, limits).await?;
            speak_http1(stream, line, origin).await
        }
    }
}

/// For the best version of HTTP that the other side speaks.
pub(super) async fn open(
    route: &Route,
    pool: &Arc<Pool>,
    limits: &CallLimits,
) -> Result<Connection, CallFailure> {
    let Route { origin, config } = route;
    let (socket, line) = reach(origin, pool, limits).await?;
    let Some(config) = config else {
        return speak_http1(socket, line, origin).await.map(Connection::Alone);
    };
    let stream = shake_hands(socket, origin, config, limits).await?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let starting = SharedConnection::start(stream, line, origin, pool);
        return limits.wait(CallPhase::Tls, origin, starting).await?.map(Connection::Shared);
    }
    speak_http1(stream, line, origin).await.map(Connection::Alone)
}

async fn reach(
    origin: &HttpOrigin,
    pool: &Pool,
    limits: &CallLimits,
) -> Result<(Socket, SocketLine), CallFailure> {
    let stream = limits.wait(CallPhase::Connection, origin, tcp(origin, pool.resolver(), limits)).await??;
    let socket = Socket::new(stream);
    let line = socket.line();
    Ok((socket, line))
}

async fn shake_hands(
    socket: Socket,
    origin: &HttpOrigin,
    config: &Arc<ClientConfig>,
    limits: &CallLimits,
) -> Result<TlsStream<Socket>, CallFailure> {
    let name = ServerName::try_from(origin.host.clone())
        .map_err(|_| CallFailure::dns(origin, "no certificate can be for such a name"))?;
    let handshake = TlsConnector::from(Arc::clone(config)).connect(name, socket);
    let stream = limits.wait(CallPhase::Tls, origin, handshake).await?;
    stream.map_err(|error| CallFailure::tls(origin, &error))
}

/// Tries the addresses in turn; each gets its share of the remaining time.
pub(super) async fn tcp(
    origin: &HttpOrigin,
    resolver: &Resolver,
    limits: &CallLimits,
) -> Result<TcpStream, CallFailure> {
    let ends_at = Instant::now() + limits.connect;
    let addresses = addresses(origin, resolver).await?;
    let mut failure = CallFailure::dns(origin, "it has no address");
    for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let share = ends_at.saturating_duration_since(Instant::now())
            / u32::try_from(left).expect("there are only a few addresses");
        failure = match timeout(share, open_tcp(*address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => CallFailure::connecting(origin, &error),
            Err(_) => timed_out(CallPhase::Connection, CallPart::Connect, limits.connect, origin),
        };
    }
    Err(failure)
}

async fn addresses(origin: &HttpOrigin, resolver: &Resolver) -> Result<Vec<SocketAddr>, CallFailure> {
    let addresses = resolver.addresses(&origin.host, origin.port).await;
    let addresses = addresses.map_err(|error| CallFailure::dns(origin, &error.to_string()))?;
    let mut addresses =
        origin.leave.admit(addresses).map_err(|refused| CallFailure::no_leave(origin, refused))?;
    addresses.truncate(ADDRESSES_MAX);
    Ok(addresses)
}

async fn open_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // A request is one small write.
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_KEEP_ALIVE))?;
    Ok(stream)
}

async fn speak_http1<S>(
    stream: S,
    line: SocketLine,
    origin: &Arc<HttpOrigin>,
) -> Result<ConnectionSender, CallFailure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(line.counted(stream));
    let handshake = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(stream);
    let (requests, connection) = handshake.await.map_err(|error| CallFailure::http(origin, &error))?;
    // Ends when the sender is dropped or the other side closes; callers get the error.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(ConnectionSender { origin: Arc::clone(origin), requests, line, called_at: Instant::now() })
}
