//! Opens connections: DNS lookup, TCP, and perhaps TLS.
//!
//! Invariant: a name is looked up once per connection, and only addresses admitted by the guard are connected
//! to.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use redrive_core::policy::answer::CallPart;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::address::{ConnectionSecurity, HttpOrigin};
use super::failure::CallFailure;
use super::limits::{ADDRESSES_MAX, CallLimits, CallPhase, HEAD_BYTES_MAX, TCP_KEEP_ALIVE, timed_out};
use super::line::{Socket, SocketLine};
use super::pool::Pool;
use super::resolve::Resolver;

/// Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct ConnectionSender {
    pub(super) requests: SendRequest<Full<Bytes>>,
    pub(super) line: SocketLine,
    /// When its last request was about to be written.
    pub(super) called_at: Instant,
}

pub(super) async fn connect(
    origin: &HttpOrigin,
    pool: &Pool,
    limits: &CallLimits,
) -> Result<ConnectionSender, CallFailure> {
    let stream = limits.wait(CallPhase::Connection, origin, tcp(origin, pool.resolver(), limits)).await??;
    let socket = Socket::new(stream);
    let line = socket.line();
    match origin.security {
        ConnectionSecurity::Plain => speak_http(socket, line, origin).await,
        ConnectionSecurity::Tls => {
            let name = ServerName::try_from(origin.host.clone())
                .map_err(|_| CallFailure::dns(origin, "no certificate can be for such a name"))?;
            let handshake = TlsConnector::from(pool.tls()).connect(name, socket);
            let stream = limits.wait(CallPhase::Tls, origin, handshake).await?;
            speak_http(stream.map_err(|error| CallFailure::tls(origin, &error))?, line, origin).await
        }
    }
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
        failure = match timeout(share, open(*address)).await {
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

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // A request is one small write.
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_KEEP_ALIVE))?;
    Ok(stream)
}

async fn speak_http<S>(
    stream: S,
    line: SocketLine,
    origin: &HttpOrigin,
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
    Ok(ConnectionSender { requests, line, called_at: Instant::now() })
}
