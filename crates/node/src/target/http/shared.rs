//! Connections of HTTP/2, which all calls to an origin share.
//!
//! While an origin is known to speak HTTP/2, or not known at all, one call at a time opens a connection and the
//! others wait for it, for a time. An origin that answered in HTTP/1.1, or not at all, is dialled by each call on its own.
//!
//! Invariants: no call is given a connection that is known to be closed; a failed one is given to no further
//! call; an unused one is closed after [`IDLE_TIME_MAX`].

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};

use super::address::HttpOrigin;
use super::connect::{self, Connection};
use super::failure::CallFailure;
use super::identity::Route;
use super::limits::{
    CALLED_WITHIN, CallLimits, HEAD_BYTES_MAX, IDLE_TIME_MAX, ORIGINS_MAX, PING_ANSWER_MAX, PING_EVERY,
    Reuse, TURN_WAIT_MAX,
};
use super::line::SocketLine;
use super::pool::Pool;

#[derive(Debug, Default)]
pub(super) struct SharedConnections(Mutex<BTreeMap<Arc<HttpOrigin>, KnownOrigin>>);

#[derive(Debug, Default)]
struct KnownOrigin {
    last: LastDial,
    /// Held by the call that opens a connection.
    turn: Arc<tokio::sync::Mutex<()>>,
    current: Option<Arc<SharedConnection>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LastDial {
    #[default]
    Never,
    Http1,
    Http2,
    Failed,
}

pub(super) struct SharedConnection {
    origin: Arc<HttpOrigin>,
    requests: SendRequest<Full<Bytes>>,
    pub(super) line: SocketLine,
    made_at: Instant,
    /// Of the last request or answer.
    used_at: Mutex<Instant>,
    answered_at: Mutex<Option<Instant>>,
}

impl fmt::Debug for SharedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP/2 connection to {}", self.origin)
    }
}

/// A connection that did not exist when the call asked for it; it may have been opened by another call.
pub(super) async fn fresh(
    pool: &Arc<Pool>,
    route: &Route,
    limits: &CallLimits,
) -> Result<Connection, CallFailure> {
    let (began, origin) = (Instant::now(), &route.origin);
    if route.config.is_none() {
        return connect::open(route, pool, limits).await;
    }
    let _turn = match pool.shared().turn(origin) {
        None => None,
        Some(turn) => {
            // A call does not spend its own time on the connection of another for long.
            let held = timeout(limits.connect.min(limits.tls).min(TURN_WAIT_MAX), turn.lock_owned()).await;
            if let Some(shared) = pool.shared().usable(origin, |shared| shared.made_at >= began) {
                return Ok(Connection::Shared(shared));
            }
            // If the call before found no HTTP/2, no call waits for another any longer.
            pool.shared().turn(origin).and(held.ok())
        }
    };
    let opened = connect::open(route, pool, limits).await;
    pool.shared().note(origin, &opened);
    opened
}

impl SharedConnections {
    pub(super) fn take(&self, origin: &HttpOrigin, reuse: Reuse) -> Option<Arc<SharedConnection>> {
        let just_answered = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() < CALLED_WITHIN);
        match reuse {
            Reuse::None => None,
            Reuse::Any => self.usable(origin, |_| true),
            Reuse::JustUsed => self.usable(origin, |shared| just_answered(*locked(&shared.answered_at))),
        }
    }

    fn usable(
        &self,
        origin: &HttpOrigin,
        is_wanted: impl Fn(&SharedConnection) -> bool,
    ) -> Option<Arc<SharedConnection>> {
        let origins = locked(&self.0);
        let shared = origins.get(origin)?.current.as_ref()?;
        let is_usable = !shared.requests.is_closed() && !shared.is_expired() && is_wanted(shared);
        is_usable.then(|| Arc::clone(shared))
    }

    /// To be held while connecting; none if every call connects on its own.
    fn turn(&self, origin: &Arc<HttpOrigin>) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let mut origins = locked(&self.0);
        if origins.len() >= ORIGINS_MAX && !origins.contains_key(origin) {
            origins.retain(|_, known| known.current.is_some() || Arc::strong_count(&known.turn) > 1);
        }
        let known = origins.entry(Arc::clone(origin)).or_default();
        match known.last {
            LastDial::Never | LastDial::Http2 => Some(Arc::clone(&known.turn)),
            LastDial::Http1 | LastDial::Failed => None,
        }
    }

    fn note(&self, origin: &Arc<HttpOrigin>, opened: &Result<Connection, CallFailure>) {
        let mut origins = locked(&self.0);
        let known = origins.entry(Arc::clone(origin)).or_default();
        match opened {
            Ok(Connection::Shared(shared)) => {
                known.last = LastDial::Http2;
                known.current = Some(Arc::clone(shared));
            }
            Ok(Connection::Alone(_)) => known.last = LastDial::Http1,
            Err(_) => known.last = LastDial::Failed,
        }
    }

    /// The connection ends with the last of its calls.
    pub(super) fn forget(&self, shared: &SharedConnection) {
        let mut origins = locked(&self.0);
        let Some(known) = origins.get_mut(&shared.origin) else { return };
        if known.current.as_ref().is_some_and(|current| std::ptr::eq(Arc::as_ptr(current), shared)) {
            known.current = None;
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        locked(&self.0).values().filter(|known| known.current.is_some()).count()
    }
}

impl SharedConnection {
    pub(super) async fn start<S>(
        stream: S,
        line: SocketLine,
        origin: &Arc<HttpOrigin>,
        pool: &Arc<Pool>,
    ) -> Result<Arc<Self>, CallFailure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(line.counted(stream));
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_ANSWER_MAX)
            .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).expect("some KiB"))
            .handshake(stream);
        let (requests, connection) = handshake.await.map_err(|error| CallFailure::http(origin, &error))?;
        let now = Instant::now();
        let shared = Arc::new(Self {
            origin: Arc::clone(origin),
            requests,
            line,
            made_at: now,
            used_at: Mutex::new(now),
            answered_at: Mutex::new(None),
        });
        tokio::spawn(drive(connection, Arc::downgrade(&shared), Arc::downgrade(pool)));
        Ok(shared)
    }

    pub(super) fn send(
        &self,
        request: Request<Full<Bytes>>,
        host: &HeaderValue,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Full<Bytes>>>>> + use<> {
        *locked(&self.used_at) = Instant::now();
        self.requests.clone().try_send_request(in_http2(request, host))
    }

    pub(super) const fn origin(&self) -> &Arc<HttpOrigin> {
        &self.origin
    }

    pub(super) fn answered(&self) {
        let now = Instant::now();
        *locked(&self.used_at) = now;
        *locked(&self.answered_at) = Some(now);
    }

    fn expires_at(&self) -> Instant {
        *locked(&self.used_at) + IDLE_TIME_MAX
    }

    fn is_expired(&self) -> bool {
        Instant::now() >= self.expires_at()
    }
}

/// Runs a connection to its end, and lets go of it once it is unused for long.
async fn drive(
    connection: impl Future<Output = hyper::Result<()>>,
    shared: Weak<SharedConnection>,
    pool: Weak<Pool>,
) {
    let mut connection = pin!(connection);
    while let Some(expires_at) = shared.upgrade().map(|shared| shared.expires_at()) {
        tokio::select! {
            // Callers get the error.
            _ = &mut connection => {
                forget(&shared, &pool);
                return;
            }
            () = sleep_until(expires_at) => {
                if shared.upgrade().is_some_and(|shared| shared.is_expired()) {
                    forget(&shared, &pool);
                    break;
                }
            }
        }
    }
    // It ends when its last call has.
    let _ = connection.await;
}

fn forget(shared: &Weak<SharedConnection>, pool: &Weak<Pool>) {
    if let (Some(shared), Some(pool)) = (shared.upgrade(), pool.upgrade()) {
        pool.shared().forget(&shared);
    }
}

/// With the host in the address instead of a header.
fn in_http2(mut request: Request<Full<Bytes>>, host: &HeaderValue) -> Request<Full<Bytes>> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::builder().scheme("https").authority(host.as_bytes()).path_and_query(path).build();
    *request.uri_mut() = uri.expect("host and path are parts of an address");
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(HOST);
    request
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("lock is not poisoned")
}
