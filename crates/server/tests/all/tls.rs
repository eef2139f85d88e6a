//! TLS on every side: callers who trust the server or do not, certificates that change, and targets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::NoClientAuth;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::alerts::until_told;
use crate::run::{Folder, Run};
use crate::server::{Lines, PATIENCE, Server, in_folder, serve};
use crate::target::Target;

/// Somebody who signs certificates.
pub(crate) struct Authority {
    pub(crate) certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
pub(crate) struct Pair {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: Vec<u8>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn pair(&self, name: &str) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").der().clone();
        Pair { certificate, key: key.serialize_der() }
    }

    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }
}

impl Pair {
    pub(crate) fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    pub(crate) fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key)
    }

    pub(crate) fn write(&self, folder: &Folder) {
        folder.write("cert.pem", self.certificate_pem());
        folder.write("key.pem", self.key_pem());
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

const BEHIND_TLS: [&str; 4] = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];

/// A server behind TLS, in a folder where `ca.pem` vouches for it.
fn behind_tls(authority: &Authority) -> (Folder, Server, String) {
    let (folder, server, url) = behind_tls_with(authority, "", &[]);
    server.out.wait_for(&format!("Try: curl -d '{{\"hello\":\"world\"}}' {url}/v1/events/"));
    (folder, server, url)
}

/// The same with what `redrive.yaml` says, if the arguments name it.
fn behind_tls_with(authority: &Authority, book: &str, more: &[&str]) -> (Folder, Server, String) {
    let folder = Folder::with("ca.pem", &authority.pem());
    folder.write("redrive.yaml", book);
    authority.pair("127.0.0.1").write(&folder);
    let server = Server::run(serve(&folder, &[&BEHIND_TLS[..], more].concat()));
    let url = format!("https://{}", server.client.address);
    server.out.wait_for(&format!("redrive serves on {url}"));
    (folder, server, url)
}

fn status(folder: &Folder, url: &str, ca: &str) -> Run {
    folder.run(&["status", "--server", url, "--ca", ca])
}

#[test]
fn whoever_knows_its_authority_talks_to_a_server_behind_tls() {
    let (folder, server, url) = behind_tls(&Authority::new("ours"));
    let ask = |arguments: &[&str]| {
        folder.run(&[arguments, &["--server", &url, "--ca", "ca.pem"]].concat()).printed()
    };
    ask(&["send", "orders.placed", "{\"order\": 42}", "--id", "order-42"]);
    assert!(ask(&["show", "order-42"]).contains("orders.placed"));
    let status: serde_json::Value =
        serde_json::from_str(&ask(&["status", "--format", "json"])).expect("JSON");
    assert_eq!(status["events"], 1);

    let mut by_environment = Command::new(env!("CARGO_BIN_EXE_redrive"));
    by_environment.arg("status");
    let mut by_environment = in_folder(by_environment, &folder);
    let output = by_environment.env("REDRIVE_CA", "ca.pem").env("REDRIVE_SERVER", &url).output();
    assert!(output.expect("the binary was built for this test").status.success());
    server.stop().assert_calm();
}

#[test]
fn whoever_is_not_trusted_is_told_nothing() {
    let authority = Authority::new("ours");
    let (folder, server, url) = behind_tls(&authority);
    folder.write("other.pem", Authority::new("theirs").pem());
    folder.write("empty.pem", "");
    let by_name = url.replace("127.0.0.1", "localhost");
    let plain = url.replace("https://", "http://");
    let distrusted = |url: &str, why: &str| format!("error: the server at {url} is not trusted: {why}\n");
    let unknown = "its certificate is not signed by a trusted authority\n  if you trust it, pass its CA certificate with --ca FILE or REDRIVE_CA";
    let another = "its certificate is not for localhost but for 127.0.0.1\n  use a name of its certificate: --server URL";
    #[rustfmt::skip]
    let cases = [
        ("another authority", &url,     "other.pem", 3, distrusted(&url, unknown)),
        ("another name",      &by_name, "ca.pem",    3, distrusted(&by_name, another)),
        ("no authority",      &url,     "empty.pem", 2, "error: no certificate in empty.pem: expected -----BEGIN CERTIFICATE-----\n".to_owned()),
        ("no TLS",            &plain,   "ca.pem",    1, "error: this server requires TLS: use https://  (BAD_REQUEST, 400)\n".to_owned()),
    ];
    for (name, url, ca, code, said) in cases {
        let run = status(&folder, url, ca);
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{name}: {}", run.stderr);
        assert!(run.stderr.starts_with(said.trim_end()), "{name}: {}", run.stderr);
    }
    let run = folder.run(&["status", "--server", &url]);
    assert!(run.stderr.contains("is not signed by a trusted authority"), "the system: {}", run.stderr);

    let other = Folder::new();
    let plain = Server::run(serve(&other, &[]));
    let run = status(&folder, &format!("https://{}", plain.client.address), "ca.pem");
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(
        run.stderr.contains("it does not speak TLS\n  use http:// for a server without TLS"),
        "{}",
        run.stderr
    );
    plain.stop().assert_calm();
    server.stop().assert_calm();
}

/// Somebody who listens to what happens on a server behind TLS, until they are told to stop.
struct Listener {
    child: Child,
    heard: Lines,
}

impl Listener {
    fn start(folder: &Folder, url: &str) -> Self {
        let mut command = in_folder(Command::new(env!("CARGO_BIN_EXE_redrive")), folder);
        command.args(["tail", "--server", url, "--ca", "ca.pem"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary was built for this test");
        Lines::of(child.stderr.take().expect("it is piped")).wait_for("following");
        let heard = Lines::of(child.stdout.take().expect("it is piped"));
        Self { child, heard }
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn a_new_certificate_is_shown_without_a_restart_and_a_broken_one_is_not() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let hook = Target::willing();
    // It is over a second after its end, where the catalog's own condition waits a minute.
    let book = format!(
        "version: 1\nreceivers: {{ hook: {{ webhook: \"{}\" }} }}\nalerts: [{{ use: certificate-refused, when: certificate_refused for 1s }}]\n",
        hook.url()
    );
    let (folder, server, url) = behind_tls_with(&ours, &book, &["--rules", "redrive.yaml"]);
    folder.write("new.pem", theirs.pem());
    assert_eq!(status(&folder, &url, "new.pem").code, 3);

    let mut listener = Listener::start(&folder, &url);

    // A key that belongs to nothing, and a certificate cut off in the middle.
    folder.write("key.pem", theirs.pair("127.0.0.1").key_pem());
    let said = server.err.wait_for("certificate rejected");
    let words = "private key in key.pem does not match the certificate in cert.pem";
    assert!(said.contains(words), "{said}");
    let told = listener.heard.wait_for("certificate rejected, the old one stays active");
    assert!(told.contains("alert") && told.contains("does not match"), "{told}");
    listener.end();
    let firing = until_told(&hook, "certificate-refused", "firing");
    assert!(firing["subjects"][0]["value"].to_string().contains("does not match"), "{firing}");
    assert_eq!(status(&folder, &url, "ca.pem").code, 0, "the old one is shown");
    folder.write("cert.pem", &ours.pair("127.0.0.1").certificate_pem()[..100]);
    server.err.wait_for("cert.pem is damaged");
    assert_eq!(status(&folder, &url, "ca.pem").code, 0, "the old one is shown");

    theirs.pair("127.0.0.1").write(&folder);
    server.err.wait_for("certificate reloaded: cert.pem");
    assert_eq!(status(&folder, &url, "new.pem").code, 0, "the new one is shown");
    assert_eq!(status(&folder, &url, "ca.pem").code, 3, "the old one is not");
    until_told(&hook, "certificate-refused", "resolved");

    // Nobody waits for a pipe.
    folder.replace_by_pipe("key.pem");
    server.signal("HUP");
    server.err.wait_for("certificate rejected: key.pem is not a file; the old one stays active");
    assert_eq!(status(&folder, &url, "new.pem").code, 0, "the new one is shown still");
    server.stop().assert_calm();
}

#[test]
fn a_server_does_not_start_with_what_it_could_not_show() {
    let authority = Authority::new("ours");
    let folder = Folder::new();
    let (pair, other) = (authority.pair("127.0.0.1"), authority.pair("127.0.0.1"));
    pair.write(&folder);
    folder.write("other.pem", other.key_pem());
    folder.write("empty.pem", "");
    folder.write("encrypted.pem", pair.key_pem().replace("PRIVATE", "ENCRYPTED PRIVATE"));
    #[rustfmt::skip]
    let cases: [(&str, &[&str], i32, &str); 8] = [
        ("no key",             &["--tls-cert", "cert.pem"],                               2, "--tls-key <FILE>"),
        ("no certificate",     &["--tls-key", "key.pem"],                                 2, "--tls-cert <FILE>"),
        ("no such file",       &["--tls-cert", "none.pem", "--tls-key", "key.pem"],       2, "could not read none.pem: No such file"),
        ("an empty file",      &["--tls-cert", "empty.pem", "--tls-key", "key.pem"],      1, "no certificate in empty.pem"),
        ("another's key",      &["--tls-cert", "cert.pem", "--tls-key", "other.pem"],     1, "private key in other.pem does not match the certificate in cert.pem"),
        ("an encrypted key",   &["--tls-cert", "cert.pem", "--tls-key", "encrypted.pem"], 1, "private key in encrypted.pem is encrypted"),
        ("no roots",           &["--tls-roots", "empty.pem"],                             1, "no certificate in empty.pem"),
        ("no file with roots", &["--tls-roots", "none.pem"],                              2, "could not read none.pem: No such file"),
    ];
    for (name, arguments, code, words) in cases {
        let run = folder.run(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat());
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{name}: {}", run.stderr);
        assert!(run.stderr.contains(words), "{name}: {}", run.stderr);
    }
    assert!(!folder.path("redrive-data").exists(), "nothing was begun");
}

#[test]
fn who_speaks_no_tls_is_told_so_and_harms_nobody() {
    let (folder, server, url) = behind_tls(&Authority::new("ours"));
    let answer = server.post("/v1/events/a.b", "", "{}");
    assert_eq!(answer.error(), (400, "BAD_REQUEST".to_owned()));
    assert!(answer.body.contains("use https://"), "{answer:?}");
    assert_eq!(answer.header("connection"), Some("close"));
    // More than is read of it: it is told all the same, or hung up on, and nothing else.
    let large = vec![b'x'; 4 << 20];
    let mut connection = server.client.connect().expect("it listens");
    let head =
        format!("POST /v1/events/a.b HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", large.len());
    let _ = connection.send(head.as_bytes()).and_then(|()| connection.send(&large));
    if let Ok(answer) = connection.answer() {
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    for junk in [&b"\x16\x03\x01\x00\x05junk!"[..], b"\0\0\0\0", b"ssh-2.0 hello\r\n", b""] {
        let mut stream = TcpStream::connect(&server.client.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(junk).expect("it reads");
        stream.shutdown(Shutdown::Write).expect("a socket");
        let mut said = Vec::new();
        // It may break off; what it must not do is wait.
        let _ = stream.read_to_end(&mut said);
        assert!(said.len() < 100 && !said.starts_with(b"HTTP"), "an alert at most: {said:?}");
    }
    assert_eq!(status(&folder, &url, "ca.pem").code, 0);
    let events: serde_json::Value = serde_json::from_str(
        &folder.run(&["status", "--format", "json", "--server", &url, "--ca", "ca.pem"]).printed(),
    )
    .expect("JSON");
    assert_eq!(events["events"], 0, "nothing of it was taken");
    server.stop().assert_calm();
}

/// A target behind TLS that takes everything; it goes away with the test.
fn target(pair: &Pair) -> String {
    target_for(pair, Arc::new(NoClientAuth))
}

/// How long the rest of a refused call is read.
const LINGER: Duration = Duration::from_secs(5);

/// The same for callers that the verifier lets in.
pub(crate) fn target_for(pair: &Pair, callers: Arc<dyn ClientCertVerifier>) -> String {
    let key = PrivatePkcs8KeyDer::from(pair.key.clone()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the usual versions")
        .with_client_cert_verifier(callers)
        .with_single_cert(vec![pair.certificate.clone()], key)
        .expect("a key and its certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("the system has a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            thread::spawn(move || {
                let connection = ServerConnection::new(config).expect("a sound configuration");
                let mut stream = StreamOwned::new(connection, stream);
                let mut buffer = [0; 4096];
                // Small requests come in one piece; one who does not trust us sends none.
                while let Ok(1..) = stream.read(&mut buffer) {
                    if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
                        return;
                    }
                }
                // Closed with unread bytes, the connection would be reset before the alert is read.
                let mut socket = stream.sock;
                let _ = socket.shutdown(Shutdown::Write);
                let _ = socket.set_read_timeout(Some(LINGER));
                while let Ok(1..) = socket.read(&mut buffer) {}
            });
        }
    });
    format!("https://{address}/events")
}

#[test]
fn targets_are_trusted_by_the_roots_that_were_given() {
    let authority = Authority::new("ours");
    let url = target(&authority.pair("127.0.0.1"));
    let rules = format!(
        "version: 1\nservices:\n  orders: {{ target: {{ http: \"{url}\" }}, retry: none, events: [\"orders.*\"] }}\n"
    );
    let folder = Folder::with("redrive.yaml", &rules);
    folder.write("ca.pem", authority.pem());
    folder.write("other.pem", Authority::new("theirs").pem());
    let serving =
        |roots: &str| Server::run(serve(&folder, &["--rules", "redrive.yaml", "--tls-roots", roots]));

    let server = serving("other.pem");
    server.accept("orders.placed", "o-1", "");
    let dead = server.until("o-1", "dead");
    assert!(dead.to_string().contains("TLS_FAILURE"), "{dead}");
    assert!(dead.to_string().contains("its certificate is not signed by a trusted authority"), "{dead}");
    server.stop().assert_calm();

    let server = serving("ca.pem");
    server.accept("orders.placed", "o-2", "");
    server.until("o-2", "delivered");
    // A new book uses the same connections and the same roots.
    folder.write("redrive.yaml", rules.replace("retry: none", "retry: standard"));
    server.err.wait_for("rule book reloaded:");
    server.accept("orders.placed", "o-3", "");
    server.until("o-3", "delivered");
    server.stop().assert_calm();
}
