//! `redrive sink`: an HTTP target that answers as its flags say.

mod text;

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use redrive::clock::wall_clock;
use redrive_core::ids::{Attempt, DeliveryId, Seed};
use redrive_core::text::{Share, parse_duration, parse_share};
use redrive_core::time::Timestamp;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};

use crate::cli::{CommandRefusal, wait_for_many};
use crate::events::sink::text::{SinkCounts, SinkRequest};
use crate::serve::args::parse_listen;
use crate::serve::bind;
use crate::terminal::{plain, print};

/// Runs a test target that accepts events, and fails, delays or hangs as its flags say.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Prints a line per request and, when stopped (Ctrl-C), the counts. Failures are drawn from \
                        the seed: the same requests in the same order get the same answers.

Examples:
  redrive sink                                    accepts everything
  redrive sink --fail 30% --status 429 --retry-after 5s
  redrive sink --down 60s --slow 200ms            down for a minute, then slow
  redrive sink --listen 127.0.0.1:0 --format json | tee requests.ndjson

Exit code: 0 stopped, 1 address in use or not a loopback address, 2 wrong use.")]
pub(crate) struct SinkArgs {
    /// Loopback address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = parse_listen)]
    pub(crate) listen: SocketAddr,
    /// Share of requests that fail, such as 30%
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub(crate) fail: Option<Share>,
    /// Status of failed requests
    #[arg(long, default_value_t = 503, value_parser = clap::value_parser!(u16).range(200..600))]
    pub(crate) status: u16,
    /// Delay before each answer
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) slow: Option<Duration>,
    /// Answers 503 for this long after the start
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) down: Option<Duration>,
    /// Never answers
    #[arg(long)]
    pub(crate) hang: bool,
    /// Adds Retry-After to failures
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) retry_after: Option<Duration>,
    /// Random seed of failures
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Prints the address and the counts only
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = SinkFormat::Text)]
    pub(crate) format: SinkFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SinkFormat {
    /// Text
    Text,
    /// One JSON object per line
    Json,
}

/// Further connections wait to be accepted.
const CONNECTIONS_MAX: usize = 1_024;

const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bounds memory: further requests wait for their answer.
const LINES_WAITING_MAX: usize = 1_024;

pub(crate) fn run(args: &SinkArgs) -> anyhow::Result<()> {
    if !args.listen.ip().is_loopback() {
        let address = args.listen;
        let refusal = format!("refusing to listen on {address}: a sink listens on 127.0.0.1 or [::1] only");
        return Err(CommandRefusal(refusal).into());
    }
    wait_for_many(serve(args))
}

async fn serve(args: &SinkArgs) -> anyhow::Result<()> {
    // Before the first request: a signal that comes earlier would end the process without the counts.
    let stop = stopped().context("cannot wait for a signal")?;
    let listener = bind(args.listen).await?;
    let address: SocketAddr = listener.local_addr().context("cannot listen")?;
    print(&text::listening(&format!("http://{address}"), args.format))?;

    let (lines, mut waiting) = mpsc::channel(LINES_WAITING_MAX);
    let accepting = tokio::spawn(accept(listener, Arc::new(SinkScript::new(args)), lines));
    let mut counts = SinkCounts::default();
    let mut add = |request: &SinkRequest| {
        counts.add(request);
        if args.quiet { Ok(()) } else { print(&text::line(request, args.format)) }
    };
    tokio::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(request) = waiting.recv() => add(&request)?,
        }
    }
    accepting.abort();
    while let Ok(request) = waiting.try_recv() {
        add(&request)?;
    }
    print(&counts.render(args.format))
}

/// Catches Ctrl-C and termination signals from now on; the future ends with the first.
pub(crate) fn stopped() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

async fn accept(listener: TcpListener, script: Arc<SinkScript>, lines: mpsc::Sender<SinkRequest>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (script, lines) = (Arc::clone(&script), lines.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| answer(&script, &lines, request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}

struct SinkScript {
    args: SinkArgs,
    started: Instant,
    requests: AtomicU64,
}

impl SinkScript {
    fn new(args: &SinkArgs) -> Self {
        Self { args: args.clone(), started: Instant::now(), requests: AtomicU64::new(0) }
    }

    fn next(&self) -> u16 {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if self.args.down.is_some_and(|down| self.started.elapsed() < down) {
            return 503;
        }
        let drawn = Seed(self.args.seed).draw(DeliveryId(u128::from(number)), Attempt::FIRST) as f64
            / u64::MAX as f64;
        // At 100 % every draw fails.
        let fails = self.args.fail.is_some_and(|share| drawn < share.get() || share.get() >= 1.0);
        if fails { self.args.status } else { 200 }
    }
}

async fn answer(
    script: &SinkScript,
    lines: &mpsc::Sender<SinkRequest>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let (status, body) = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => (script.next(), body.to_bytes()),
        Err(_) => (413, Bytes::new()),
    };
    let number = |name| text_of(&head.headers, name).and_then(|text| text.parse().ok());
    let request = SinkRequest {
        at: Timestamp::from_millis(wall_clock().as_millis()),
        path: head.uri.to_string(),
        webhook_id: text_of(&head.headers, "webhook-id"),
        event_type: event_type(&head.headers, &body),
        attempt: number("redrive-attempt"),
        sequence: number("redrive-sequence"),
        replay: number("redrive-replay"),
        bytes: body.len(),
        answer: (!script.args.hang).then_some(status),
    };
    // Without a printer the sink is about to end.
    let _ = lines.send(request).await;
    if script.args.hang {
        pending::<()>().await;
    }
    if let Some(slow) = script.args.slow {
        tokio::time::sleep(slow).await;
    }
    Ok(response(script, status))
}

fn response(script: &SinkScript, status: u16) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(status).expect("the status is between 200 and 599");
    let fails = !status.is_success();
    // An empty success acknowledges a batch as a whole, too.
    let body = if fails { "the sink was set to fail\n" } else { "" };
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    if let Some(wait) = script.args.retry_after.filter(|_| fails) {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// The event type of a request, or the size of a batch, if it can be read.
fn event_type(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    if let Some(named) = text_of(headers, "ce-type") {
        return Some(named);
    }
    let content_type = text_of(headers, CONTENT_TYPE.as_str())?;
    if !content_type.starts_with("application/cloudevents") {
        return None;
    }
    match serde_json::from_slice(body).ok()? {
        Value::Array(events) => Some(format!("batch of {}", events.len())),
        event => event["type"].as_str().map(plain),
    }
}

fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}
