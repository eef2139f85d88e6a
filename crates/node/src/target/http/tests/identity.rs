//! Client certificates: real handshakes with servers that require one.

use std::sync::Mutex;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use redrive_core::book::connectors::http::{TlsClient, TlsIdentity};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::server::{Log, answer, serve};
use super::*;
use crate::connectors::Drivers;
use crate::secret::Secrets;
use crate::target::call_test::book_of;
use crate::target::http::ClientTls;

struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    fn pair(&self) -> (CertificateDer<'static>, Vec<u8>) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").der().clone();
        (certificate, key.serialize_der())
    }

    fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// A server that talks only to those whom the authority knows.
async fn start(
    authority: &Authority,
    version: &'static rustls::SupportedProtocolVersion,
) -> (u16, Arc<Mutex<Log>>) {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let (certificate, key) = authority.pair();
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a usual version")
        .with_client_cert_verifier(verifier.build().expect("it has a root"))
        .with_single_cert(vec![certificate], PrivatePkcs8KeyDer::from(key).into())
        .expect("a key and its certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let log = Arc::new(Mutex::new(Log::default()));
    let seen = Arc::clone(&log);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (config, seen) = (Arc::clone(&config), Arc::clone(&seen));
            tokio::spawn(async move {
                let Ok(mut stream) = TlsAcceptor::from(config).accept(stream).await else { return };
                seen.lock().expect("lock is not poisoned").accepted += 1;
                serve(&mut stream, &[answer("200 OK", "in private")], &seen).await;
            });
        }
    });
    (port, log)
}

/// Secrets `certificate`, `key` and `ca` in files.
struct Stage {
    folder: TempDir,
    secrets: Secrets,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let secret = |name: &str| format!("{name}: {{ file: \"{}\" }}", folder.path().join(name).display());
        let names = ["certificate", "key", "ca"].map(secret).join(", ");
        let book = book_of(&format!("version: 1\nsecrets: {{ {names} }}\n"));
        let secrets = Secrets::new(&Arc::new(book), Drivers::built_in());
        Self { folder, secrets }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).expect("a file");
    }

    fn write_pair(&self, authority: &Authority) {
        let (certificate, key) = authority.pair();
        self.write("certificate", &pem("CERTIFICATE", &certificate));
        self.write("key", &pem("PRIVATE KEY", &key));
    }

    fn target(&self, port: u16) -> HttpTarget {
        let identity = TlsIdentity { certificate: "certificate".to_owned(), key: "key".to_owned() };
        self.target_with(port, Some(identity))
    }

    fn target_with(&self, port: u16, identity: Option<TlsIdentity>) -> HttpTarget {
        let client = TlsClient { identity, ca: Some("ca".to_owned()) };
        let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
        let target = target_of(&format!("https://127.0.0.1:{port}/"), HttpFormat::Binary, &pool);
        target.with_tls(Some(ClientTls::new(&client, &self.secrets)))
    }
}

const PRIVATE: &str = r#"200 "in private", 200 OK"#;

#[tokio::test]
async fn whoever_has_the_right_certificate_is_let_in() {
    let (ours, theirs, same) = (Authority::new("ours"), Authority::new("theirs"), Authority::new("ours"));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (port, log) = start(&ours, version).await;
        let stage = Stage::new();
        stage.write("ca", &ours.pem());
        let target = stage.target(port);

        for other in [&theirs, &same] {
            stage.write_pair(other);
            later(2).await;
            let ending = told(&post(&target).await, port);
            let refused =
                "Broker(Unauthorized), TLS with 127.0.0.1:PORT failed: it refused our client certificate";
            assert!(ending.starts_with(refused), "{version:?}: {ending}");
        }

        stage.write_pair(&ours);
        later(2).await;
        for _ in 0..2 {
            assert_eq!(told(&post(&target).await, port), PRIVATE, "{version:?}");
        }
        assert_eq!(log.lock().expect("not poisoned").accepted, 1, "{version:?}: the connection is kept");

        // With another certificate no old connection is used.
        stage.write_pair(&ours);
        later(2).await;
        assert_eq!(told(&post(&target).await, port), PRIVATE, "{version:?}");
        assert_eq!(log.lock().expect("not poisoned").accepted, 2, "{version:?}: another identity");
    }
}

#[tokio::test]
async fn whoever_has_none_or_a_broken_one_is_told_what_to_change() {
    let ours = Authority::new("ours");
    let (port, _) = start(&ours, &rustls::version::TLS13).await;
    let stage = Stage::new();
    stage.write("ca", &ours.pem());
    let ending = told(&post(&stage.target_with(port, None)).await, port);
    let required = "Broker(Unauthorized), TLS with 127.0.0.1:PORT failed: it requires a client certificate";
    assert!(ending.starts_with(required), "{ending}");

    let broken = |why: &str| format!("ConfigMissing, call not made: secret {why}");
    let (certificate, key) = ours.pair();
    let (certificate, key) = (pem("CERTIFICATE", &certificate), pem("PRIVATE KEY", &key));
    let (_, other) = ours.pair();
    let other = pem("PRIVATE KEY", &other);
    #[rustfmt::skip]
    let cases = [
        ("certificate", "nothing",       broken("`certificate` has no certificate: expected -----BEGIN CERTIFICATE-----")),
        ("key",         &*other,         broken("`key` does not match the certificate")),
        ("ca",          "nothing",       broken("`ca` has no certificate: expected -----BEGIN CERTIFICATE-----")),
        ("ca",          &*certificate,   "Transport(Tls), TLS with 127.0.0.1:PORT failed: its certificate is not signed by a trusted authority".to_owned()),
    ];
    for (name, text, expected) in cases {
        let stage = Stage::new();
        stage.write("ca", &ours.pem());
        stage.write("certificate", &certificate);
        stage.write("key", &key);
        stage.write(name, text);
        assert_eq!(told(&post(&stage.target(port)).await, port), expected);
    }
    let stage = Stage::new();
    let ending = told(&post(&stage.target(port)).await, port);
    assert!(ending.starts_with("SecretUnavailable, call not made: secret `certificate`"), "{ending}");
}
