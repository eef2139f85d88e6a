//! Talks to a running server: one connection at a time, a few tries, and errors that say what to do next.
//!
//! Invariants: nothing waits without a limit, and no answer is read without a bound. A request is sent again
//! only if nobody answered or the server said that it is not there; each of ours may come twice.

pub(crate) mod address;
pub(crate) mod error;
pub(crate) mod key;

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LOCATION, DATE, HOST};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use redrive::clock::wall_clock;
use redrive_core::time::Timestamp;
use redrive_node::tls::Roots;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use crate::client::address::{Address, Security};
use crate::client::error::{ClientError, ConnectionError, ServerRefusal, UnreadableResponse};
use crate::client::key::ClientKey;
use crate::letters::LIST_MAX;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a whole answer may take, once connected.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a stream may say nothing: the server sends an empty line far more often.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The pauses before each further try.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(400), Duration::from_millis(800)];

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The longest line of a stream: a dead letter holds all that its event does.
const LINE_BYTES_MAX: usize = 64 << 20;

/// What is asked of a server.
#[derive(Clone, Debug)]
pub(crate) struct ClientRequest {
    method: Method,
    path: String,
    headers: Vec<(Cow<'static, str>, String)>,
    body: Bytes,
    tries: RequestTries,
}

/// How often something is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestTries {
    /// Until somebody answers, a few times: it may come twice.
    Several,
    /// Once: it would be done twice.
    One,
}

impl ClientRequest {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        let (headers, body, tries) = (Vec::new(), Bytes::new(), RequestTries::Several);
        Self { method: Method::GET, path: path.into(), headers, body, tries }
    }

    /// A question with these keys behind the question mark; null is left out.
    pub(crate) fn find(path: &str, keys: &Value) -> Self {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in keys.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            query.append_pair(name, &value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned));
        }
        Self::get(format!("{path}?{}", query.finish()))
    }

    pub(crate) fn post(path: impl Into<String>, content_type: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type".into(), content_type.to_owned())];
        let (body, tries) = (body.into(), RequestTries::Several);
        Self { method: Method::POST, path: path.into(), headers, body, tries }
    }

    /// A request with a JSON object; null, false and empty lists are left out of it, which says the same.
    pub(crate) fn json(path: impl Into<String>, body: &impl Serialize) -> Self {
        let mut body = serde_json::to_value(body).expect("texts and numbers can be written as JSON");
        if let Value::Object(keys) = &mut body {
            let says_nothing =
                |value: &Value| *value == Value::Bool(false) || value.as_array().is_some_and(Vec::is_empty);
            keys.retain(|_, value| !value.is_null() && !says_nothing(value));
        }
        Self::post(path, "application/json", body.to_string())
    }

    /// Asks only once, since it would be done twice.
    pub(crate) fn once(mut self) -> Self {
        self.tries = RequestTries::One;
        self
    }

    /// Adds a header; its value must be visible ASCII, or the request is not sent.
    pub(crate) fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// A whole answer that says yes.
#[derive(Clone, Debug)]
pub(crate) struct ClientResponse {
    /// When it was given, by the server's own clock if it told.
    pub(crate) at: Timestamp,
    /// The address that it is known by, if the server told a better one than was asked for.
    location: Option<String>,
    body: Bytes,
}

/// A server and the connection to it.
#[derive(Debug)]
pub(crate) struct Client {
    address: Address,
    roots: Roots,
    key: Option<ClientKey>,
    connection: Option<RequestSender>,
}

type RequestSender = SendRequest<Full<Bytes>>;

/// The beginning of an answer, with what it takes to read the rest.
struct ResponseHead {
    response: Response<Incoming>,
    sender: RequestSender,
    ends_at: Instant,
}

impl Client {
    pub(crate) const fn new(address: Address, key: Option<ClientKey>) -> Self {
        Self { address, roots: Roots::System, key, connection: None }
    }

    /// The same, believing certificates that these sign.
    pub(crate) fn trusting(self, roots: Roots) -> Self {
        Self { roots, ..self }
    }

    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }

    /// Asks, and reads the answer as JSON of that shape.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self, ask: &ClientRequest) -> Result<T, ClientError> {
        self.timed_json(ask).await.map(|(shape, _at)| shape)
    }

    /// The same, with the moment at which it held.
    pub(crate) async fn timed_json<T: DeserializeOwned>(
        &mut self,
        ask: &ClientRequest,
    ) -> Result<(T, Timestamp), ClientError> {
        let answer = self.ask(ask).await?;
        Ok((read(&self.address, &answer.body)?, answer.at))
    }

    /// The same, with the last part of the address that it is known by.
    pub(crate) async fn named_json<T: DeserializeOwned>(
        &mut self,
        ask: &ClientRequest,
    ) -> Result<(T, Option<String>), ClientError> {
        let answer = self.ask(ask).await?;
        let name = answer.location.as_deref().and_then(|location| location.rsplit('/').next());
        Ok((read(&self.address, &answer.body)?, name.map(ToOwned::to_owned)))
    }

    /// Asks, and reads the whole answer.
    pub(crate) async fn ask(&mut self, ask: &ClientRequest) -> Result<ClientResponse, ClientError> {
        let ResponseHead { response, sender, ends_at } = self.head(ask).await?;
        let (parts, body) = response.into_parts();
        let body = timeout_at(ends_at, Limited::new(body, ANSWER_BYTES_MAX).collect()).await;
        let body = match body {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(source)) => return Err(self.broken(ConnectionError::BrokeOff(source))),
            Err(_) => return Err(self.broken(ConnectionError::NoAnswer(ANSWER_TIMEOUT))),
        };
        self.connection = Some(sender);
        if !parts.status.is_success() {
            return Err(ServerRefusal::read(parts.status, &parts.headers, &body).into());
        }
        let location = parts.headers.get(CONTENT_LOCATION).and_then(|value| value.to_str().ok());
        Ok(ClientResponse {
            at: server_time(&parts.headers),
            location: location.map(ToOwned::to_owned),
            body,
        })
    }

    /// Asks for an answer that comes line by line for as long as it takes.
    pub(crate) async fn lines(&mut self, ask: &ClientRequest) -> Result<ResponseLines, ClientError> {
        let ResponseHead { response, sender, ends_at } = self.head(ask).await?;
        let (parts, body) = response.into_parts();
        if parts.status.is_success() {
            let address = self.address.clone();
            return Ok(ResponseLines { address, body, buffer: Vec::new(), read: 0, _sender: sender });
        }
        let body = timeout_at(ends_at, Limited::new(body, ANSWER_BYTES_MAX).collect()).await;
        let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes);
        Err(ServerRefusal::read(parts.status, &parts.headers, &body.unwrap_or_default()).into())
    }

    /// The same of a server that has gone away: it is asked again and again until it is back.
    pub(crate) async fn lines_again(
        &mut self,
        ask: &ClientRequest,
        pause: Duration,
    ) -> Result<ResponseLines, ClientError> {
        loop {
            sleep(pause).await;
            match self.lines(ask).await {
                Err(trouble) if trouble.is_absence() => {}
                result => return result,
            }
        }
    }

    /// The first answer that is worth reading, or the last one there was.
    async fn head(&mut self, ask: &ClientRequest) -> Result<ResponseHead, ClientError> {
        let request = self.request(ask)?;
        let mut pauses = PAUSES.into_iter();
        loop {
            let result = self.try_once(request.clone()).await;
            let may_heal = match &result {
                Ok(head) => is_away(head.response.status()),
                Err(problem) => problem.may_heal(),
            };
            match pauses.next().filter(|_| may_heal && ask.tries == RequestTries::Several) {
                Some(pause) => sleep(pause).await,
                None => return result.map_err(|problem| self.broken(problem)),
            }
        }
    }

    async fn try_once(&mut self, request: Request<Full<Bytes>>) -> Result<ResponseHead, ConnectionError> {
        let mut sender = match self.connection.take() {
            Some(mut kept) => match kept.ready().await {
                Ok(()) => kept,
                Err(_) => self.connect().await?,
            },
            None => self.connect().await?,
        };
        let ends_at = Instant::now() + ANSWER_TIMEOUT;
        match timeout_at(ends_at, sender.send_request(request)).await {
            Ok(Ok(response)) => Ok(ResponseHead { response, sender, ends_at }),
            Ok(Err(source)) => Err(ConnectionError::Http(source)),
            Err(_) => Err(ConnectionError::NoAnswer(ANSWER_TIMEOUT)),
        }
    }

    fn request(&self, ask: &ClientRequest) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(format!("{}{}", self.address.base_path(), ask.path))
            .header(HOST, self.address.authority());
        for (name, value) in &ask.headers {
            request = request.header(&**name, value);
        }
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.header());
        }
        Ok(request.body(Full::new(ask.body.clone()))?)
    }

    async fn connect(&self) -> Result<RequestSender, ConnectionError> {
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(self.address.host_and_port())).await;
        let stream = stream
            .map_err(|_| ConnectionError::NotConnected(CONNECT_TIMEOUT))?
            .map_err(ConnectionError::Connect)?;
        // Without it small requests may wait for one another; with a socket that cannot, they do.
        let _ = stream.set_nodelay(true);
        match self.address.security() {
            Security::Plain => speak_http(stream).await,
            Security::Tls(name) => {
                let connector = TlsConnector::from(redrive_node::tls::client_config(&self.roots));
                let stream = timeout(CONNECT_TIMEOUT, connector.connect(name.clone(), stream)).await;
                let stream = stream.map_err(|_| ConnectionError::NotConnected(CONNECT_TIMEOUT))?;
                speak_http(stream.map_err(ConnectionError::of_handshake)?).await
            }
        }
    }

    fn broken(&self, reason: ConnectionError) -> ClientError {
        if let ConnectionError::Distrust(why) = reason {
            return ClientError::Distrusted { address: self.address.clone(), why };
        }
        ClientError::Unreachable { address: self.address.clone(), reason }
    }
}

async fn speak_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
) -> Result<RequestSender, ConnectionError> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(ConnectionError::Http)?;
    // What goes wrong on the connection is told to whoever waits for an answer.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// The statuses of a server, or of one before it, that is not there for now.
pub(crate) fn is_away(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

fn read<T: DeserializeOwned>(address: &Address, json: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(json)
        .map_err(|error| ClientError::Unreadable { address: address.clone(), why: UnreadableResponse(error) })
}

/// The server's clock may differ from ours, and all other times in its answer are by its own.
fn server_time(headers: &HeaderMap) -> Timestamp {
    let date = headers.get(DATE).and_then(|value| httpdate::parse_http_date(value.to_str().ok()?).ok());
    let since = date.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or_else(wall_clock, |since| Timestamp::EPOCH + since)
}

/// An answer that comes line by line.
#[derive(Debug)]
pub(crate) struct ResponseLines {
    address: Address,
    body: Incoming,
    buffer: Vec<u8>,
    /// How much of the buffer is known to hold no end of a line.
    read: usize,
    /// The connection closes when nobody can send on it any more.
    _sender: RequestSender,
}

impl ResponseLines {
    /// The next line that is not empty; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, ConnectionError> {
        loop {
            if let Some(line) = self.buffered() {
                if line.trim().is_empty() {
                    continue;
                }
                return Ok(Some(line));
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(ConnectionError::LineTooLong(LINE_BYTES_MAX));
            }
            let frame = timeout(SILENCE_MAX, self.body.frame()).await;
            match frame.map_err(|_| ConnectionError::Silent(SILENCE_MAX))? {
                None => return Ok(None),
                Some(Err(source)) => return Err(ConnectionError::Http(source)),
                Some(Ok(frame)) => self.buffer.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
            }
        }
    }

    /// A line as JSON of that shape.
    pub(crate) fn read<T: DeserializeOwned>(&self, line: &str) -> Result<T, ClientError> {
        read(&self.address, line.as_bytes())
    }

    fn buffered(&mut self) -> Option<String> {
        let end = self.buffer[self.read..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end.map(|end| self.read + end) else {
            self.read = self.buffer.len();
            return None;
        };
        self.read = 0;
        let line: Vec<u8> = self.buffer.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

/// As many rows as are wanted, page by page, and where a next list would begin; a page may be short and still not be
/// the last.
pub(crate) async fn gather<T>(
    wanted: u32,
    mut before: Option<String>,
    mut page: impl AsyncFnMut(usize, Option<String>) -> anyhow::Result<(Vec<T>, Option<String>)>,
) -> anyhow::Result<(Vec<T>, Option<String>)> {
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let mut rows = Vec::new();
    loop {
        let (more, next) = page((wanted - rows.len()).min(LIST_MAX), before).await?;
        rows.extend(more);
        if next.is_none() || rows.len() >= wanted {
            return Ok((rows, next));
        }
        before = next;
    }
}
