//! The sink of the benchmark: accepts events fast, slowly or never, and counts them.
//!
//! `/take/NAME` responds at once, `/slow/NAME` after a second and `/hang/NAME` never; `/break/NAME` refuses
//! until a post to `/fix`. `/seen` returns the counts, and `/mark` makes the next event the first.

use std::convert::Infallible;
use std::future::pending;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::tally::Tally;
pub(crate) use super::tally::{Counts, Seen};

const SLOW: Duration = Duration::from_secs(1);

pub(super) fn run() -> anyhow::Result<ExitCode> {
    super::half_the_cores()?.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("could not listen")?;
        super::say_where(listener.local_addr().context("could not listen")?)?;
        let tally = Shared::default();
        loop {
            // A connection lost before it was accepted is the sender's problem.
            let Ok((stream, _)) = listener.accept().await else { continue };
            // Responses are small and latency counts.
            let _ = stream.set_nodelay(true);
            let tally = tally.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| answer(&tally, request));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    })
}

#[derive(Clone, Default)]
struct Shared {
    tally: Arc<Mutex<Tally>>,
    fixed: Arc<AtomicBool>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().expect("nothing panics while it holds the tally")
    }

    fn fix(&self) {
        self.fixed.store(true, Ordering::SeqCst);
    }

    fn is_fixed(&self) -> bool {
        self.fixed.load(Ordering::SeqCst)
    }
}

/// A call without a response; ends when answered or when the caller disconnects.
struct OpenCall<'a>(&'a Shared);

impl<'a> OpenCall<'a> {
    fn new(tally: &'a Shared) -> Self {
        tally.lock().call_opened();
        Self(tally)
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.0.lock().call_closed();
    }
}

async fn answer(tally: &Shared, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, super::BODY_BYTES_MAX).collect().await else {
        return Ok(response(StatusCode::PAYLOAD_TOO_LARGE, Bytes::new()));
    };
    let (manner, name) = head.uri.path()[1..].split_once('/').unwrap_or((&head.uri.path()[1..], ""));
    let ok = |body: Vec<u8>| Ok(response(StatusCode::OK, body.into()));
    match manner {
        "break" if !tally.is_fixed() => {
            let why = Bytes::from_static(b"the last deploy does not know the field `total`");
            return Ok(response(StatusCode::UNPROCESSABLE_ENTITY, why));
        }
        "take" | "slow" | "hang" | "break" => {
            let place =
                head.headers.get("redrive-sequence").and_then(|place| place.to_str().ok()?.parse().ok());
            tally.lock().take(name, &body.to_bytes(), place, now_ns());
        }
        "seen" => {
            let seen = tally.lock().seen();
            return ok(serde_json::to_vec(&seen).expect("texts and numbers are always JSON"));
        }
        "fix" => {
            tally.fix();
            return ok(Vec::new());
        }
        "mark" => {
            tally.lock().mark();
            return ok(Vec::new());
        }
        _ => return Ok(response(StatusCode::NOT_FOUND, Bytes::new())),
    }
    let open = OpenCall::new(tally);
    match manner {
        "slow" => tokio::time::sleep(SLOW).await,
        "hang" => pending().await,
        _ => {}
    }
    drop(open);
    ok(Vec::new())
}

fn response(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}

/// Wall clock, shared by all processes of the benchmark.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
