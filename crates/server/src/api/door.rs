//! How a connection comes in: as it is, or by TLS under a certificate that may change while the door is open.
//!
//! Invariants: a handshake ends within a time, as everything that a client may drag out; whoever is inside
//! keeps the certificate that was shown, whoever comes later sees the new one.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::code::Code;
use super::polite::worded;

/// What a connection has to go through.
#[derive(Clone)]
pub(crate) enum Door {
    /// Nothing.
    Plain,
    /// A handshake.
    Tls(Certificate),
}

/// The certificate that is shown; clones are the same.
#[derive(Clone)]
pub(crate) struct Certificate(Arc<RwLock<Arc<ServerConfig>>>);

/// Which kind of address leads here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// A connection that is in.
pub(super) enum Entered {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Certificate {
    pub(crate) fn new(config: Arc<ServerConfig>) -> Self {
        Self(Arc::new(RwLock::new(config)))
    }

    /// Another one is shown from now on.
    pub(crate) fn change(&self, config: Arc<ServerConfig>) {
        *self.0.write().expect("nobody panics while swapping") = config;
    }

    fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().expect("nobody panics while swapping"))
    }
}

impl Scheme {
    /// What stands before the host.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::Http => "http://",
            Self::Https => "https://",
        }
    }
}

impl Door {
    pub(crate) const fn scheme(&self) -> Scheme {
        match self {
            Self::Plain => Scheme::Http,
            Self::Tls(_) => Scheme::Https,
        }
    }

    /// Lets a connection in; none if it did not get through within that time.
    pub(super) async fn enter(&self, stream: TcpStream, within: Duration) -> Option<Entered> {
        let certificate = match self {
            Self::Plain => return Some(Entered::Plain(stream)),
            Self::Tls(certificate) => certificate,
        };
        match timeout(within, shake_hands(stream, certificate)).await {
            Ok(Ok(Hello::Tls(stream))) => return Some(Entered::Tls(stream)),
            Ok(Ok(Hello::Plain(stream))) => {
                tracing::debug!("a connection spoke no TLS");
                // Whoever is gone by then has no use for it.
                let _ = timeout(TURN_AWAY_TIME, turn_away(stream)).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!(?within, "a TLS handshake took too long"),
        }
        None
    }
}

/// What somebody begins with.
enum Hello {
    Tls(Box<TlsStream<TcpStream>>),
    Plain(TcpStream),
}

/// How long somebody who speaks no TLS is listened to, so that the answer arrives.
const TURN_AWAY_TIME: Duration = Duration::from_secs(1);
/// As much of it is read.
const TURN_AWAY_BYTES_MAX: u64 = 64 * 1024;

async fn shake_hands(stream: TcpStream, certificate: &Certificate) -> std::io::Result<Hello> {
    // A request begins with a method, and a handshake with a byte that is no letter.
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
        return Ok(Hello::Plain(stream));
    }
    let stream = TlsAcceptor::from(certificate.current()).accept(stream).await?;
    Ok(Hello::Tls(Box::new(stream)))
}

/// Tells whoever asks by plain HTTP how to ask.
async fn turn_away(mut stream: TcpStream) -> std::io::Result<()> {
    let answer = worded(Code::BadRequest, "this server speaks TLS here: ask by https://");
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    // With something left to read, closing would break off the connection and take the answer with it.
    tokio::io::copy(&mut stream.take(TURN_AWAY_BYTES_MAX), &mut tokio::io::sink()).await.map(|_| ())
}
