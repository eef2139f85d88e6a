//! HTTP/2: calls share a connection, and what it says about a request decides whether that is sent again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::{Request, Response};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::super::limits::IDLE_TIME_MAX;
use super::*;

/// What is done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Answer,
    Reset(Reason),
    Hang,
    /// Ends the connection as it is.
    Break,
    /// Answers, and says that the connection will end.
    GoAway,
    /// Answers when so many requests have come.
    Together,
}

/// A server that plays one act after the other, and the last one ever after.
struct Stub {
    port: u16,
    certificate: CertificateDer<'static>,
    seen: Arc<Seen>,
}

struct Seen {
    acts: Vec<Act>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    requests: Mutex<Vec<String>>,
    together: Barrier,
}

impl Stub {
    async fn start(acts: &[Act], together: usize) -> Self {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the usual versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .expect("a key and its certificate");
        config.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let seen = Arc::new(Seen {
            acts: acts.to_vec(),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            requests: Mutex::default(),
            together: Barrier::new(together),
        });
        let (config, shared) = (Arc::new(config), Arc::clone(&seen));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&config), stream, Arc::clone(&shared)));
            }
        });
        Self { port, certificate, seen }
    }

    fn pool(&self) -> Arc<Pool> {
        Arc::new(Pool::new(Roots::Only(vec![self.certificate.clone()])))
    }

    fn target(&self, pool: &Arc<Pool>) -> HttpTarget {
        target_of(&format!("https://127.0.0.1:{}/hooks?a=b", self.port), HttpFormat::Binary, pool)
    }

    /// Connections and requests that came.
    fn counts(&self) -> (usize, usize) {
        let requests = self.seen.requests.lock().expect("not poisoned").len();
        (self.seen.accepted.load(Ordering::SeqCst), requests)
    }
}

async fn serve(config: Arc<ServerConfig>, stream: TcpStream, seen: Arc<Seen>) {
    seen.accepted.fetch_add(1, Ordering::SeqCst);
    seen.open.fetch_add(1, Ordering::SeqCst);
    if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await
        && let Ok(mut connection) = h2::server::handshake(stream).await
    {
        while let Some(Ok((request, respond))) = connection.accept().await {
            let number = {
                let mut requests = seen.requests.lock().expect("not poisoned");
                requests.push(head(&request));
                requests.len()
            };
            let act = seen.acts[(number - 1).min(seen.acts.len() - 1)];
            if act == Act::Break {
                break;
            }
            if act == Act::GoAway {
                connection.graceful_shutdown();
            }
            tokio::spawn(play(act, request.into_body(), respond, Arc::clone(&seen)));
        }
    }
    seen.open.fetch_sub(1, Ordering::SeqCst);
}

fn head<T>(request: &Request<T>) -> String {
    let headers = request.headers();
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("none").to_owned();
    format!("{} {} host={} length={}", request.method(), request.uri(), text("host"), text("content-length"))
}

async fn play(act: Act, mut body: h2::RecvStream, mut respond: SendResponse<Bytes>, seen: Arc<Seen>) {
    match act {
        Act::Reset(reason) => return respond.send_reset(reason),
        Act::Hang | Act::Break => return std::future::pending().await,
        Act::Together => {
            seen.together.wait().await;
        }
        Act::Answer | Act::GoAway => {}
    }
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
    }
    if let Ok(mut stream) = respond.send_response(Response::new(()), false) {
        let _ = stream.send_data(Bytes::from_static(b"taken"), true);
    }
}

const TAKEN: &str = r#"200 "taken", 200 OK"#;

#[tokio::test]
async fn many_calls_share_one_connection() {
    let stub = Stub::start(&[Act::Together], 50).await;
    let pool = stub.pool();
    let target = Arc::new(stub.target(&pool));
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let target = Arc::clone(&target);
        calls.spawn(async move { post(&target).await });
    }
    for ending in calls.join_all().await {
        assert_eq!(told(&ending, stub.port), TAKEN);
    }
    assert_eq!(stub.counts(), (1, 50), "all at once over one connection");
    let requests = stub.seen.requests.lock().expect("not poisoned").clone();
    let expected = format!("POST https://127.0.0.1:{}/hooks?a=b host=none length=12", stub.port);
    assert_eq!(requests[0], expected);
}

/// Name, what the server does, retry policy, retries, outcome, and how many connections and requests it saw.
type Row<'a> = (&'a str, &'a [Act], &'a str, u32, &'a str, (usize, usize));

#[tokio::test]
async fn what_became_of_a_request_decides_whether_it_is_sent_again() {
    let reset =
        "Transport(Reset), 127.0.0.1:PORT ended the HTTP/2 stream: unexpected internal error encountered";
    let closed =
        "Transport(ClosedEarly), 127.0.0.1:PORT closed the connection before the response was complete";
    let late = "Transport(Timeout(Headers)), no answer from 127.0.0.1:PORT within 300ms";
    let patient = "{ headers: 300ms, whole: 60s }";
    #[rustfmt::skip]
    let cases: &[Row<'_>] = &[
        ("a stream that was refused: on a new connection",           &[Act::Answer, Act::Reset(Reason::REFUSED_STREAM), Act::Answer], "standard", 0, TAKEN, (2, 3)),
        ("the same where nothing is retried",                        &[Act::Answer, Act::Reset(Reason::REFUSED_STREAM), Act::Answer], "none",     0, TAKEN, (2, 3)),
        ("a stream that broke: it may have been acted on",           &[Act::Answer, Act::Reset(Reason::INTERNAL_ERROR)],              "standard", 0, reset, (1, 2)),
        ("a kept connection that breaks: once more",                 &[Act::Answer, Act::Break, Act::Answer],                          "standard", 0, TAKEN, (2, 3)),
        ("twice is enough",                                          &[Act::Answer, Act::Break],                                       "standard", 0, closed, (2, 3)),
        ("a connection that said goodbye is not used",               &[Act::GoAway, Act::Answer],                                      "standard", 0, TAKEN, (2, 2)),
        ("a retry takes a new connection",                           &[Act::Answer],                                                   "standard", 1, TAKEN, (2, 2)),
        ("no answer in time",                                        &[Act::Answer, Act::Hang],                                        "standard", 0, late,  (1, 2)),
    ];
    for (name, acts, retry, attempts, expected, counts) in cases {
        let stub = Stub::start(acts, 1).await;
        let pool = stub.pool();
        let target = stub.target(&pool);
        assert_eq!(told(&post(&target).await, stub.port), TAKEN, "{name}");
        if acts[0] == Act::GoAway {
            until("news of the end", || pool.shared().count() == 0).await;
        }
        let delivery = PendingDelivery { attempts: *attempts, ..order(8, "e-2") };
        let ending = told(&target.call(call_retried(retry, patient, vec![delivery])).await, stub.port);
        let expected_connections = if *retry == "none" { stub.counts() } else { *counts };
        // Only a connection that was just used serves a rule without retries.
        assert!((2..=3).contains(&stub.counts().1), "{name}");
        assert_eq!((ending.as_str(), stub.counts()), (*expected, expected_connections), "{name}");
        if *expected != TAKEN {
            assert_eq!(
                pool.shared().count(),
                usize::from(*expected == reset),
                "{name}: a dead one is dropped"
            );
        }
    }
}

#[tokio::test]
async fn an_unused_connection_is_closed() {
    let stub = Stub::start(&[Act::Answer], 1).await;
    let pool = stub.pool();
    assert_eq!(told(&post(&stub.target(&pool)).await, stub.port), TAKEN);
    assert_eq!((pool.shared().count(), stub.seen.open.load(Ordering::SeqCst)), (1, 1));
    tokio::time::pause();
    tokio::time::advance(IDLE_TIME_MAX + Duration::from_secs(1)).await;
    tokio::time::resume();
    until("its end", || pool.shared().count() == 0 && stub.seen.open.load(Ordering::SeqCst) == 0).await;
}
