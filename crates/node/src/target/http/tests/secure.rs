//! TLS: with a certificate that is trusted, and with all that are not.

use std::sync::Mutex;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::server::{Act, Log, Server, answer, send, serve};
use super::*;

struct Identity {
    certificate: CertificateDer<'static>,
    config: Arc<ServerConfig>,
}

/// A server's certificate, signed by itself.
fn identity(name: &str, adjust: impl FnOnce(&mut CertificateParams)) -> Identity {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    adjust(&mut params);
    let certificate = params.self_signed(&key).expect("a certificate").der().clone();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the usual versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("a key and its certificate");
    Identity { certificate, config: Arc::new(config) }
}

/// The port of a server that answers every request with that over TLS.
async fn start(config: Arc<ServerConfig>) -> (u16, Arc<Mutex<Log>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let log = Arc::new(Mutex::new(Log::default()));
    let seen = Arc::clone(&log);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            seen.lock().expect("lock is not poisoned").accepted += 1;
            let (config, seen) = (Arc::clone(&config), Arc::clone(&seen));
            tokio::spawn(async move {
                let Ok(mut stream) = TlsAcceptor::from(config).accept(stream).await else { return };
                serve(&mut stream, &[answer("200 OK", "in private")], &seen).await;
            });
        }
    });
    (port, log)
}

async fn post_trusting(roots: Vec<CertificateDer<'static>>, url: &str) -> Ending {
    let pool = Arc::new(Pool::new(Roots::Only(roots)));
    post(&target_of(url, HttpFormat::Binary, &pool)).await
}

#[tokio::test]
async fn a_certificate_that_is_trusted_is_enough() {
    let identity = identity("127.0.0.1", |_| {});
    let (port, log) = start(identity.config).await;
    let pool = Arc::new(Pool::new(Roots::Only(vec![identity.certificate])));
    let target = target_of(&format!("https://127.0.0.1:{port}/hooks"), HttpFormat::Binary, &pool);
    for _ in 0..3 {
        assert_eq!(told(&post(&target).await, port), r#"200 "in private", 200 OK"#);
    }
    let log = log.lock().expect("lock is not poisoned");
    assert_eq!((log.accepted, log.requests.len()), (1, 3), "such connections are kept too");
    assert!(log.requests[0].starts_with("POST /hooks HTTP/1.1\r\n"), "{}", log.requests[0]);
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_said() {
    let good = identity("127.0.0.1", |_| {});
    let named = identity("elsewhere.test", |_| {});
    let old = identity("127.0.0.1", |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    let early = identity("127.0.0.1", |params| {
        params.not_before = date_time_ymd(2090, 1, 1);
        params.not_after = date_time_ymd(2091, 1, 1);
    });
    #[rustfmt::skip]
    let cases = [
        ("nobody trusts it",   good.config,  vec![],                   "its certificate is not signed by a trusted authority"),
        ("for another name",   named.config, vec![named.certificate],  "its certificate is not for 127.0.0.1 but for elsewhere.test"),
        ("too old",            old.config,   vec![old.certificate],    "its certificate expired at 2002-01-01T00:00:00Z"),
        ("too young",          early.config, vec![early.certificate],  "its certificate is not valid before 2090-01-01T00:00:00Z"),
    ];
    for (name, config, roots, why) in cases {
        let (port, _) = start(config).await;
        let ending = post_trusting(roots, &format!("https://127.0.0.1:{port}/")).await;
        let expected = format!("Transport(Tls), TLS with 127.0.0.1:PORT failed: {why}");
        assert_eq!(told(&ending, port), expected, "{name}");
    }
}

#[tokio::test]
async fn what_speaks_no_tls_is_told_apart() {
    let tls = |why: &str| format!("Transport(Tls), TLS with 127.0.0.1:PORT failed: {why}");
    // The script plays once a request has come, and no request comes before the handshake is over.
    let silent = Server::start(vec![Act::Hang]).await;
    let url = |server: &Server| format!("https://127.0.0.1:{}/", server.port());
    let hasty = call("{ connect: 20s, tls: 300ms, whole: 40s }", vec![order(7, "e-1")]);
    let ending = target(&url(&silent), HttpFormat::Binary).call(hasty).await;
    let expected = "Transport(Timeout(Tls)), no TLS handshake with 127.0.0.1:PORT within 300ms";
    assert_eq!(told(&ending, silent.port()), expected);

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let speaks = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        for answer in [b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), b""] {
            let (mut stream, _) = listener.accept().await.expect("a call");
            assert_ne!(stream.read(&mut [0; 4_096]).await.expect("a hello"), 0);
            stream.write_all(answer).await.expect("sent");
        }
    });
    let url = format!("https://127.0.0.1:{port}/");
    assert_eq!(told(&post_trusting(Vec::new(), &url).await, port), tls("it does not speak TLS"));
    assert_eq!(
        told(&post_trusting(Vec::new(), &url).await, port),
        tls("connection closed during the handshake")
    );
    speaks.await.expect("it got both calls");

    let plain = Server::start(vec![send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")]).await;
    let ending = post(&target(&plain.url(), HttpFormat::Binary)).await;
    assert_eq!(told(&ending, plain.port()), r#"200 "", 200 OK"#, "plain HTTP needs no certificate");
}
