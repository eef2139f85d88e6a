//! A server that does as it is told: reads a request, then plays its script, bytes and all.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a server does once it has a request.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these again and again, until nobody wants them.
    Repeat(Vec<u8>),
    /// Does nothing more, with the connection open.
    Hang,
    /// Ends the connection in good order.
    Close,
    /// Breaks it off.
    Reset,
}

pub(super) fn send(text: &str) -> Act {
    Act::Send(text.as_bytes().to_vec())
}

/// An answer with a body, after which the connection goes on.
pub(super) fn answer(status: &str, body: &str) -> Act {
    send(&format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

/// A server that runs as long as the test does.
pub(super) struct Server {
    address: SocketAddr,
    log: Arc<Mutex<Log>>,
}

/// What a server has seen.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) accepted: usize,
    pub(super) ended: usize,
    pub(super) requests: Vec<String>,
}

impl Server {
    /// One that plays the same script for every request.
    pub(super) async fn start(script: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let log = Arc::new(Mutex::new(Log::default()));
        let seen = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                seen.lock().expect("lock is not poisoned").accepted += 1;
                let (script, seen) = (script.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    serve_tcp(stream, &script, &seen).await;
                    seen.lock().expect("lock is not poisoned").ended += 1;
                });
            }
        });
        Self { address, log }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/hooks?from=here", self.address)
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.log.lock().expect("lock is not poisoned"))
    }

    /// The only request that came, with `PORT` and `VERSION` for what changes.
    pub(super) fn request(&self) -> String {
        self.log(|log| {
            assert_eq!(log.requests.len(), 1);
            log.requests[0]
                .replace(&format!(":{}", self.port()), ":PORT")
                .replace(concat!("redrive/", env!("CARGO_PKG_VERSION")), "redrive/VERSION")
                .replace("\r\n", "\n")
        })
    }
}

async fn serve_tcp(mut stream: TcpStream, script: &[Act], log: &Mutex<Log>) {
    if let Some(Act::Reset) = serve(&mut stream, script, log).await {
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket lingers as it is told");
    }
}

/// Plays the script for each request; says by which act the connection ends.
pub(super) async fn serve<S>(stream: &mut S, script: &[Act], log: &Mutex<Log>) -> Option<Act>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(request) = read_request(stream).await {
        log.lock().expect("lock is not poisoned").requests.push(request);
        for act in script {
            match act {
                Act::Send(bytes) => stream.write_all(bytes).await.ok()?,
                Act::Repeat(bytes) => while stream.write_all(bytes).await.is_ok() {},
                // Until the other side has had enough.
                Act::Hang => while stream.read_u8().await.is_ok() {},
                Act::Close | Act::Reset => return Some(act.clone()),
            }
        }
    }
    None
}

/// A whole request: its head, and as much as that promises.
pub(super) async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut bytes = Vec::new();
    let head = loop {
        bytes.push(stream.read_u8().await.ok()?);
        if bytes.ends_with(b"\r\n\r\n") {
            break String::from_utf8(bytes.clone()).expect("a head is text");
        }
    };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("it is stated");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).await.ok()?;
    bytes.extend(body);
    Some(String::from_utf8(bytes).expect("the tests send text"))
}
