//! Client of a running server: one connection at a time, a few retries, and errors that say what to do next.
//!
//! Invariants: every wait and every response has a limit. A request is repeated only if no response came or
//! the server was unavailable, and only if it is safe to repeat.

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

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// For a whole response, once connected.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The server sends an empty line far more often.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Pauses before each retry.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(400), Duration::from_millis(800)];

const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A dead letter contains its whole event.
const LINE_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug)]
pub(crate) struct ClientRequest {
    method: Method,
    path: String,
    headers: Vec<(Cow<'static, str>, String)>,
    body: Bytes,
    tries: RequestTries,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestTries {
    /// A few times: safe to repeat.
    Several,
    /// Not safe to repeat.
    One,
}

impl ClientRequest {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        let (headers, body, tries) = (Vec::new(), Bytes::new(), RequestTries::Several);
        Self { method: Method::GET, path: path.into(), headers, body, tries }
    }

    /// A query; null values are left out.
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

    /// A request with a JSON object; null, false and empty lists are left out, which is equivalent.
    pub(crate) fn json(path: impl Into<String>, body: &impl Serialize) -> Self {
        let mut body = serde_json::to_value(body).expect("texts and numbers can be written as JSON");
        if let Value::Object(keys) = &mut body {
            let says_nothing =
                |value: &Value| *value == Value::Bool(false) || value.as_array().is_some_and(Vec::is_empty);
            keys.retain(|_, value| !value.is_null() && !says_nothing(value));
        }
        Self::post(path, "application/json", body.to_string())
    }

    /// Not safe to repeat.
    pub(crate) fn once(mut self) -> Self {
        self.tries = RequestTries::One;
        self
    }

    /// The value must be visible ASCII, or the request fails.
    pub(crate) fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ClientResponse {
    /// By the server's clock, if known.
    pub(crate) at: Timestamp,
    /// The `Location` of the response.
    location: Option<String>,
    body: Bytes,
}

#[derive(Debug)]
pub(crate) struct Client {
    address: Address,
    roots: Roots,
    key: Option<ClientKey>,
    connection: Option<RequestSender>,
}

type RequestSender = SendRequest<Full<Bytes>>;

/// Head of a response, with what is needed to read the rest.
struct ResponseHead {
    response: Response<Incoming>,
    sender: RequestSender,
    ends_at: Instant,
}

impl Client {
    pub(crate) const fn new(address: Address, key: Option<ClientKey>) -> Self {
        Self { address, roots: Roots::System, key, connection: None }
    }

    pub(crate) fn trusting(self, roots: Roots) -> Self {
        Self { roots, ..self }
    }

    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) async fn json<T: DeserializeOwned>(&mut self, ask: &ClientRequest) -> Result<T, ClientError> {
        self.timed_json(ask).await.map(|(shape, _at)| shape)
    }

    /// With the time of the response.
    pub(crate) async fn timed_json<T: DeserializeOwned>(
        &mut self,
        ask: &ClientRequest,
    ) -> Result<(T, Timestamp), ClientError> {
        let answer = self.ask(ask).await?;
        Ok((read(&self.address, &answer.body)?, answer.at))
    }

    /// With the last segment of its `Location`.
    pub(crate) async fn named_json<T: DeserializeOwned>(
        &mut self,
        ask: &ClientRequest,
    ) -> Result<(T, Option<String>), ClientError> {
        let answer = self.ask(ask).await?;
        let name = answer.location.as_deref().and_then(|location| location.rsplit('/').next());
        Ok((read(&self.address, &answer.body)?, name.map(ToOwned::to_owned)))
    }

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

    /// A response that is streamed line by line.
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

    /// Retries until the server is back.
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

    /// The first usable response, or the last error.
    async fn head(&mut self, ask: &ClientRequest) -> Result<ResponseHead, ClientError> {
        let request = self.request(ask)?;
        let mut pauses = PAUSES.into_iter();
        loop {
            let result = self.try_once(request.clone()).await;
            let is_transient = match &result {
                Ok(head) => is_away(head.response.status()),
                Err(problem) => problem.is_transient(),
            };
            match pauses.next().filter(|_| is_transient && ask.tries == RequestTries::Several) {
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
        // Without it small requests may be delayed.
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
    // Errors of the connection reach the pending request.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// The server, or a proxy before it, is temporarily unavailable.
pub(crate) fn is_away(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

fn read<T: DeserializeOwned>(address: &Address, json: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(json)
        .map_err(|error| ClientError::Unreadable { address: address.clone(), why: UnreadableResponse(error) })
}

/// Times in a response are by the server's clock, which may differ from ours.
fn server_time(headers: &HeaderMap) -> Timestamp {
    let date = headers.get(DATE).and_then(|value| httpdate::parse_http_date(value.to_str().ok()?).ok());
    let since = date.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or_else(wall_clock, |since| Timestamp::EPOCH + since)
}

#[derive(Debug)]
pub(crate) struct ResponseLines {
    address: Address,
    body: Incoming,
    buffer: Vec<u8>,
    /// Bytes of the buffer known to have no line end.
    read: usize,
    /// The connection closes when this is dropped.
    _sender: RequestSender,
}

impl ResponseLines {
    /// The next non-empty line; `None` at the end.
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

/// Up to the wanted number of rows, page by page, and the cursor for more; a short page need not be the last.
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
