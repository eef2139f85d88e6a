//! Real errors of real sockets, through each client: the same trouble is called the same.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::{Request, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo};
use redrive_core::policy::answer::ReplyKind;
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::BoxFuture;

/// What a server does with whoever connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Nobody listens.
    Away,
    /// Answers with these bytes and hangs up.
    Say(&'static str),
    /// Answers with these bytes and then says nothing more.
    Stall(&'static str),
    /// Reads the request and resets the connection.
    Reset,
    /// Takes the connection and says nothing.
    Hang,
}

impl Manner {
    /// How long who connects waits: as short as may be where nothing comes, and long enough where it does.
    fn limit(self) -> Duration {
        if self == Self::Hang { Duration::from_millis(200) } else { Duration::from_secs(20) }
    }
}

/// A name that no resolver needs to be asked for: a part of it is longer than parts of names are.
const NO_NAME: &str = "no-such-name-no-such-name-no-such-name-no-such-name-no-such-name.invalid";

/// A port with a server of that manner.
async fn server(manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has one");
    if manner != Manner::Away {
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4_096];
                match manner {
                    Manner::Away => unreachable!("there is no listener then"),
                    Manner::Hang => kept.push(stream),
                    Manner::Say(words) => {
                        let _ = stream.read(&mut request).await;
                        let _ = stream.write_all(words.as_bytes()).await;
                    }
                    Manner::Stall(words) => {
                        let _ = stream.read(&mut request).await;
                        let _ = stream.write_all(words.as_bytes()).await;
                        kept.push(stream);
                    }
                    Manner::Reset => {
                        let _ = stream.read(&mut request).await;
                        socket2::SockRef::from(&stream)
                            .set_linger(Some(Duration::ZERO))
                            .expect("it can be set");
                    }
                }
            }
        });
    }
    address
}

const PARTIAL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly a part";
const BUSY: &str =
    "HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\ncontent-length: 10\r\n\r\ntoo  busy!";
const LIMITED: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
const CUT_BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 100\r\n\r\ntoo busy";
const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";

/// What was seen, in one line: the code and category that a book without rows of its own gives it.
fn told<E: Classify>(result: Result<String, E>) -> String {
    match result {
        Ok(body) => body,
        Err(error) => meaning(&error.answer()),
    }
}

fn meaning(answer: &TargetAnswer<'_>) -> String {
    match classify(answer, &[], Category::Transient) {
        Outcome::Failed(failure) => match failure.retry_after {
            None => format!("{} {}", failure.code, failure.category),
            Some(wait) => format!("{} {} after {wait:?}", failure.code, failure.category),
        },
        Outcome::Delivered { .. } => "no failure".to_owned(),
    }
}

/// Each row: what the server does, and what all clients make of it.
#[rustfmt::skip]
const MANNERS: [(Manner, &str); 11] = [
    (Manner::Say(FINE),                    "fine"),
    (Manner::Away,                         "CONNECTION_REFUSED transient"),
    (Manner::Reset,                        "CONNECTION_RESET transient"),
    (Manner::Say(""),                      "CONNECTION_RESET transient"),
    (Manner::Say(PARTIAL),                 "CONNECTION_RESET transient"),
    (Manner::Say("SSH-2.0-OpenSSH_9.6\r\n"), "PROTOCOL_ERROR unknown"),
    (Manner::Hang,                         "NETWORK_TIMEOUT transient"),
    (Manner::Say(BUSY),                    "SERVICE_UNAVAILABLE transient after 7s"),
    (Manner::Say(LIMITED),                 "RATE_LIMITED rate-limited"),
    (Manner::Say(CUT_BUSY),                "SERVICE_UNAVAILABLE transient"),
    (Manner::Stall(CUT_BUSY),              "SERVICE_UNAVAILABLE transient"),
];

fn reqwest_client(limit: Duration) -> ::reqwest::Client {
    ::reqwest::Client::builder().timeout(limit).no_proxy().build().expect("a client")
}

async fn by_reqwest(url: String, limit: Duration) -> Result<String, HttpError<::reqwest::Error>> {
    let response = reqwest::check(reqwest_client(limit).get(url).send().await?).await?;
    Ok(response.text().await?)
}

#[tokio::test]
async fn reqwest_reports_what_happened() {
    for (manner, expected) in MANNERS {
        let (url, limit) = (format!("http://{}/", server(manner).await), manner.limit());
        assert_eq!(told(by_reqwest(url.clone(), limit).await), expected, "{manner:?}");
        // The bare error of reqwest is called the same, as far as it goes: it has no headers.
        let bare = async { reqwest_client(limit).get(url).send().await?.error_for_status()?.text().await };
        let without_wait = expected.split(" after").next().expect("it has a beginning");
        assert_eq!(told(bare.await), without_wait, "{manner:?}, bare");
    }
    #[rustfmt::skip]
    let cases = [
        (format!("http://{NO_NAME}/"),        "DNS_FAILURE transient"),
        ("https://127.0.0.1:1/".to_owned(),   "CONFIG_MISSING fatal"),
        ("no address".to_owned(),             "CONFIG_MISSING fatal"),
    ];
    let limit = Manner::Away.limit();
    for (url, expected) in cases {
        assert_eq!(told(by_reqwest(url.clone(), limit).await), expected, "{url}");
        assert_eq!(
            told(reqwest_client(limit).get(&url).send().await.map(|_| String::new())),
            expected,
            "{url}, bare"
        );
    }
}

/// Errors of hyper-util's client, and the one that a time limit of our own makes.
async fn by_client<C>(client: Client<C, Empty<Bytes>>, uri: Uri, limit: Duration) -> String
where
    C: legacy::connect::Connect + Clone + Send + Sync + 'static,
{
    let call = async {
        let response =
            client.get(uri).await.map_err(HttpError::from).map_err(|error| told::<_>(Err(error)))?;
        let response =
            hyper::check::<_, ::hyper::Error>(response).await.map_err(|error| told::<_>(Err(error)))?;
        let body = response.into_body().collect().await.map_err(|error| told::<_>(Err(error)))?;
        Ok::<_, String>(String::from_utf8_lossy(&body.to_bytes()).into_owned())
    };
    match timeout(limit, call).await {
        Ok(Ok(body)) => body,
        Ok(Err(told)) => told,
        Err(_) => told(Err(io::Error::from(ErrorKind::TimedOut))),
    }
}

#[tokio::test]
async fn the_client_of_hyper_util_reports_what_happened() {
    let client = || Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    for (manner, expected) in MANNERS {
        let uri = format!("http://{}/", server(manner).await).parse().expect("an address");
        assert_eq!(by_client(client(), uri, manner.limit()).await, expected, "{manner:?}");
    }
    #[rustfmt::skip]
    let cases = [
        (format!("http://{NO_NAME}/"),      "DNS_FAILURE transient"),
        ("https://127.0.0.1:1/".to_owned(), "CONFIG_MISSING fatal"),
    ];
    for (uri, expected) in cases {
        let parsed = uri.parse().expect("an address");
        assert_eq!(by_client(client(), parsed, Manner::Away.limit()).await, expected, "{uri}");
    }
}

/// Hyper by itself, over a connection that is made by hand.
async fn by_hyper(address: SocketAddr) -> Result<String, HttpError<::hyper::Error>> {
    let stream = TcpStream::connect(address).await.expect("somebody listens");
    let (mut sender, connection) =
        ::hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(HttpError::from)?;
    tokio::spawn(connection);
    let request = Request::get("/").header("host", "here").body(Empty::<Bytes>::new()).expect("a request");
    let response = hyper::check(sender.send_request(request).await?).await?;
    Ok(String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()).into_owned())
}

#[tokio::test]
async fn hyper_reports_what_happened() {
    for (manner, expected) in MANNERS {
        if !matches!(manner, Manner::Away | Manner::Hang) {
            assert_eq!(told(by_hyper(server(manner).await).await), expected, "{manner:?}");
        }
    }
}

/// Makes connections with TLS, as connectors for it do: a handshake that fails is an error of the connection.
#[derive(Clone)]
struct Secured(tokio_rustls::TlsConnector);

struct Stream(TokioIo<tokio_rustls::client::TlsStream<TcpStream>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl ::hyper::rt::Read for Stream {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: ::hyper::rt::ReadBufCursor<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl ::hyper::rt::Write for Stream {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl tower_service::Service<Uri> for Secured {
    type Response = Stream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Stream>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.0.clone();
        Box::pin(async move {
            let address = (uri.host().expect("a host").to_owned(), uri.port_u16().expect("a port"));
            let stream = TcpStream::connect(address).await?;
            let name = "localhost".try_into().expect("a name");
            Ok(Stream(TokioIo::new(connector.connect(name, stream).await?)))
        })
    }
}

#[tokio::test]
async fn a_handshake_that_fails_is_told_from_a_connection_that_does() {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("it has some")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let connector = Secured(Arc::new(config).into());
    #[rustfmt::skip]
    let cases = [
        (Manner::Say("HTTP/1.1 400 Bad Request\r\n\r\n"), "TLS_FAILURE transient"),
        (Manner::Say(""),                                 "TLS_FAILURE transient"),
        (Manner::Away,                                    "CONNECTION_REFUSED transient"),
        (Manner::Reset,                                   "CONNECTION_RESET transient"),
    ];
    for (manner, expected) in cases {
        let client = Client::builder(TokioExecutor::new()).build(connector.clone());
        let uri = format!("https://{}/", server(manner).await).parse().expect("an address");
        assert_eq!(by_client(client, uri, manner.limit()).await, expected, "{manner:?}");
    }
}

#[tokio::test]
async fn errors_of_plain_sockets_are_told_apart() {
    /// Asks over a bare socket, and wants ten bytes.
    async fn ask(address: &str, limit: Duration) -> io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"hello").await?;
        let mut bytes = [0; 10];
        let read = timeout(limit, stream.read_exact(&mut bytes));
        read.await.map_err(io::Error::from)??;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
    #[rustfmt::skip]
    let cases = [
        (Manner::Say("ten bytes!"), "ten bytes!"),
        (Manner::Say("nine."),      "CONNECTION_RESET transient"),
        (Manner::Away,              "CONNECTION_REFUSED transient"),
        (Manner::Reset,             "CONNECTION_RESET transient"),
        (Manner::Hang,              "NETWORK_TIMEOUT transient"),
    ];
    for (manner, expected) in cases {
        assert_eq!(
            told(ask(&server(manner).await.to_string(), manner.limit()).await),
            expected,
            "{manner:?}"
        );
    }
    assert_eq!(told(ask(&format!("{NO_NAME}:80"), Manner::Away.limit()).await), "DNS_FAILURE transient");
    let other = std::fs::read_to_string("/no/such/file");
    assert_eq!(told(other), "UNKNOWN_ERROR unknown", "it has nothing to do with connections");
}

#[test]
fn every_kind_that_sockets_have_is_known() {
    #[rustfmt::skip]
    let cases = [
        (ErrorKind::ConnectionRefused,  "CONNECTION_REFUSED transient"),
        (ErrorKind::ConnectionReset,    "CONNECTION_RESET transient"),
        (ErrorKind::ConnectionAborted,  "CONNECTION_RESET transient"),
        (ErrorKind::BrokenPipe,         "CONNECTION_RESET transient"),
        (ErrorKind::NotConnected,       "CONNECTION_RESET transient"),
        (ErrorKind::UnexpectedEof,      "CONNECTION_RESET transient"),
        (ErrorKind::TimedOut,           "NETWORK_TIMEOUT transient"),
        (ErrorKind::WouldBlock,         "NETWORK_TIMEOUT transient"),
        (ErrorKind::HostUnreachable,    "NETWORK_UNREACHABLE transient"),
        (ErrorKind::NetworkUnreachable, "NETWORK_UNREACHABLE transient"),
        (ErrorKind::NetworkDown,        "NETWORK_UNREACHABLE transient"),
        (ErrorKind::AddrNotAvailable,   "NETWORK_UNREACHABLE transient"),
        (ErrorKind::InvalidData,        "PROTOCOL_ERROR unknown"),
        (ErrorKind::PermissionDenied,   "UNKNOWN_ERROR unknown"),
    ];
    for (kind, expected) in cases {
        assert_eq!(meaning(&io::Error::from(kind).answer()), expected, "{kind:?}");
    }
}

#[tokio::test]
async fn a_refusal_says_all_that_rules_look_at_and_no_error_shows_a_password() {
    let address = server(Manner::Say(BUSY)).await;
    let refused =
        by_reqwest(format!("http://{address}/"), Manner::Away.limit()).await.expect_err("it is busy");
    assert_eq!(
        (refused.status(), refused.to_string().as_str()),
        (Some(503), "503 Service Unavailable: too busy!")
    );
    let ReplyKind::Http { headers, body, .. } = &refused.seen().seen else { panic!("an answer came") };
    assert_eq!(redrive_core::policy::answer::AnswerHeaders::get(headers, "Retry-After"), Some("7"));
    assert_eq!(body, "too  busy!");

    let address = server(Manner::Away).await;
    let url = format!("http://user:hidden@{address}/?key=hidden");
    let error = by_reqwest(url, Manner::Away.limit()).await.expect_err("away");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hidden"), "{shown}");
    assert!(shown.contains("Connection refused"), "{shown}");
}

/// A server that is busy for the first call, and notes what it was asked.
async fn busy_once() -> (SocketAddr, Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has one");
    let asked: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&asked);
    tokio::spawn(async move {
        for answer in [LIMITED, FINE] {
            let (mut stream, _) = listener.accept().await.expect("somebody comes");
            let mut request = vec![0; 4_096];
            let length = stream.read(&mut request).await.expect("it asks");
            request.truncate(length);
            noted.lock().expect("nobody panics").push(String::from_utf8(request).expect("text"));
            stream.write_all(answer.as_bytes()).await.expect("it listens");
        }
    });
    (address, asked)
}

fn quick_guard() -> crate::Guard {
    let rules = "version: 1\nretry_policies: { quick: { delays: [1ms], retries: 1, jitter: none } }\n\
        dependencies: { d: { kind: webhook, on_failure: { rate-limited: quick } } }\n";
    crate::Book::parse(rules).expect("a book").guard("d").expect("it is there")
}

#[tokio::test]
async fn clients_are_services_that_a_guard_goes_around() {
    use tower_layer::Layer;
    use tower_service::Service;

    let (address, asked) = busy_once().await;
    let layer =
        crate::tower::GuardLayer::new(quick_guard()).judged(reqwest::judge).requests(reqwest::TryCloned);
    let mut client = layer.layer(reqwest_client(Manner::Away.limit()));
    let request = ::reqwest::Client::new().post(format!("http://{address}/")).body("hello").build();
    std::future::poll_fn(|context| client.poll_ready(context)).await.expect("it is ready");
    let answer = client.call(request.expect("a request")).await.expect("the second goes well");
    assert_eq!(answer.text().await.expect("a body"), "fine");
    let asked = asked.lock().expect("nobody panics").clone();
    let key = |request: &String| {
        request.lines().find(|line| line.starts_with("idempotency-key: ")).map(str::to_owned)
    };
    assert_eq!(asked.len(), 2);
    assert!(key(&asked[0]).is_some() && key(&asked[0]) == key(&asked[1]), "{asked:?}");

    let (address, asked) = busy_once().await;
    let inner = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(HttpConnector::new());
    let mut client = crate::tower::GuardLayer::new(quick_guard()).judged(hyper::judge).layer(inner);
    let request = Request::get(format!("http://{address}/")).body(Empty::new()).expect("a request");
    std::future::poll_fn(|context| client.poll_ready(context)).await.expect("it is ready");
    let answer = client.call(request).await.expect("the second goes well");
    assert_eq!(answer.into_body().collect().await.expect("a body").to_bytes(), "fine");
    assert_eq!(asked.lock().expect("nobody panics").len(), 2);
}
