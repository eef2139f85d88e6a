//! Transport of connections: plain, or TLS with a certificate that may change while serving.
//!
//! Invariants: a handshake has a time limit; open connections keep their certificate, new ones use the
//! current one.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::api::code::ApiCode;
use crate::api::limits::connection::error_response;

#[derive(Clone)]
pub(crate) enum Transport {
    Plain,
    Tls(ServerCertificate),
}

/// The current certificate; clones share it.
#[derive(Clone)]
pub(crate) struct ServerCertificate(Arc<ArcSwap<ServerConfig>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportScheme {
    Http,
    Https,
}

pub(crate) enum AcceptedStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl ServerCertificate {
    pub(crate) fn new(config: Arc<ServerConfig>) -> Self {
        Self(Arc::new(ArcSwap::new(config)))
    }

    pub(crate) fn change(&self, config: Arc<ServerConfig>) {
        self.0.store(config);
    }

    fn current(&self) -> Arc<ServerConfig> {
        self.0.load_full()
    }
}

impl TransportScheme {
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::Http => "http://",
            Self::Https => "https://",
        }
    }
}

impl Transport {
    pub(crate) const fn scheme(&self) -> TransportScheme {
        match self {
            Self::Plain => TransportScheme::Http,
            Self::Tls(_) => TransportScheme::Https,
        }
    }

    /// Accepts a connection; `None` if the handshake failed or took too long.
    pub(crate) async fn enter(&self, stream: TcpStream, within: Duration) -> Option<AcceptedStream> {
        let certificate = match self {
            Self::Plain => return Some(AcceptedStream::Plain(stream)),
            Self::Tls(certificate) => certificate,
        };
        match timeout(within, shake_hands(stream, certificate)).await {
            Ok(Ok(AcceptedStream::Tls(stream))) => return Some(AcceptedStream::Tls(stream)),
            Ok(Ok(AcceptedStream::Plain(stream))) => {
                tracing::debug!("plain HTTP on a TLS connection");
                // The client may be gone.
                let _ = timeout(TURN_AWAY_TIME, turn_away(stream)).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!(?within, "TLS handshake timed out"),
        }
        None
    }
}

/// How long a plain-HTTP client is read, so that the response arrives.
const TURN_AWAY_TIME: Duration = Duration::from_secs(1);

const TURN_AWAY_BYTES_MAX: u64 = 64 * 1024;

async fn shake_hands(stream: TcpStream, certificate: &ServerCertificate) -> std::io::Result<AcceptedStream> {
    // A request begins with a letter; a TLS handshake does not.
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
        return Ok(AcceptedStream::Plain(stream));
    }
    let stream = TlsAcceptor::from(certificate.current()).accept(stream).await?;
    Ok(AcceptedStream::Tls(Box::new(stream)))
}

async fn turn_away(mut stream: TcpStream) -> std::io::Result<()> {
    let answer = error_response(ApiCode::BadRequest, "this server requires TLS: use https://");
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    // Closing with unread input would reset the connection and lose the response.
    tokio::io::copy(&mut stream.take(TURN_AWAY_BYTES_MAX), &mut tokio::io::sink()).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::routing::get;
    use rcgen::{CertificateParams, KeyPair};
    use redrive_node::tls::{Roots, client_config};
    use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::api::Routers;
    use crate::api::listen::{ApiLimits, start_listening};

    fn pair() -> (CertificateDer<'static>, Arc<ServerConfig>) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["a.test".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the usual versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .expect("a key and its certificate");
        (certificate, Arc::new(config))
    }

    async fn bound() -> TcpListener {
        TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free")
    }

    const ASK: &str = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

    async fn ask(address: SocketAddr, root: &CertificateDer<'static>) -> std::io::Result<String> {
        say(ASK, address, root).await
    }

    async fn say(
        words: &str,
        address: SocketAddr,
        root: &CertificateDer<'static>,
    ) -> std::io::Result<String> {
        let connector = TlsConnector::from(client_config(&Roots::Only(vec![root.clone()])));
        let name = ServerName::try_from("a.test").expect("a name");
        let mut stream = connector.connect(name, TcpStream::connect(address).await?).await?;
        stream.write_all(words.as_bytes()).await?;
        let mut heard = String::new();
        stream.read_to_string(&mut heard).await?;
        Ok(heard)
    }

    #[tokio::test]
    async fn who_never_shakes_hands_makes_room_for_others() {
        let (certificate, config) = pair();
        let transport = Transport::Tls(ServerCertificate::new(config));
        let limits = ApiLimits {
            handshake_time: Duration::from_millis(50),
            connections_max: 1,
            ..ApiLimits::with_body(1_000)
        };
        let router = Router::new().route("/", get(|| async { "in private" }));
        let listening = start_listening(transport, bound().await, |_| Routers::open(router), limits)
            .expect("a port is free");
        // Each takes the only slot: one sends nothing, one half a hello.
        let mut silent = TcpStream::connect(listening.address).await.expect("it listens");
        let mut half = TcpStream::connect(listening.address).await.expect("it listens");
        half.write_all(&[22, 3, 1, 2, 0, 1]).await.expect("it reads");
        let heard = ask(listening.address, &certificate).await.expect("it is served in turn");
        assert!(heard.starts_with("HTTP/1.1 200 OK\r\n") && heard.ends_with("in private"), "{heard}");
        for stream in [&mut silent, &mut half] {
            // Any kind of close is fine.
            assert!(matches!(stream.read(&mut [0; 64]).await, Ok(0) | Err(_)));
        }
        listening.close(Duration::from_secs(5)).await;
    }

    #[tokio::test]
    async fn a_new_certificate_is_for_those_who_come_later_and_all_else_is_as_without_tls() {
        let ((old, config), (new, new_config)) = (pair(), pair());
        let shown = ServerCertificate::new(config);
        let router = Router::new().route("/", get(|| async { "in private" }));
        let transport = Transport::Tls(shown.clone());
        let listening =
            start_listening(transport, bound().await, |_| Routers::open(router), ApiLimits::with_body(1_000));
        let listening = listening.expect("a port is free");
        assert!(ask(listening.address, &old).await.is_ok());
        shown.change(new_config);
        assert!(ask(listening.address, &old).await.is_err());
        assert!(ask(listening.address, &new).await.is_ok());
        let refused = say("nonsense\r\n\r\n", listening.address, &new).await.expect("it is answered");
        assert!(refused.starts_with("HTTP/1.1 400 ") && refused.contains("BAD_REQUEST"), "{refused}");
        let page = ASK.replace("connection", "origin: https://elsewhere.test\r\nconnection");
        let refused = say(&page, listening.address, &new).await.expect("it is answered");
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
        let ours = page.replace("elsewhere.test", "localhost");
        let taken = say(&ours, listening.address, &new).await.expect("it is answered");
        assert!(taken.starts_with("HTTP/1.1 200 "), "{taken}");
        listening.close(Duration::from_secs(5)).await;
    }

    #[tokio::test]
    async fn closing_waits_for_nobody_who_is_still_outside() {
        let (_, config) = pair();
        let transport = Transport::Tls(ServerCertificate::new(config));
        let listening = start_listening(
            transport,
            bound().await,
            |_| Routers::open(Router::new()),
            ApiLimits::with_body(1_000),
        );
        let listening = listening.expect("a port is free");
        let mut silent = TcpStream::connect(listening.address).await.expect("it listens");
        let far_off = Duration::from_mins(10);
        timeout(Duration::from_secs(30), listening.close(far_off)).await.expect("it closes at once");
        assert!(matches!(silent.read(&mut [0; 64]).await, Ok(0) | Err(_)));
    }
}
