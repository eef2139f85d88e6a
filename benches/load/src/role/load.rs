//! Load generator: sends events over kept-alive connections, in a closed loop or at a fixed rate.
//!
//! At a fixed rate, latency counts from the due time, whether a connection was free or not (no coordinated
//! omission).
//!
//! Invariant: the numbers of the events form one range, and every one was answered.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use redrive_server::terminal::print;
use ring::hmac;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::message::{Message, PAYLOAD_BYTES};
use super::sink::now_ns;
use crate::latency::{Latencies, Latency};

/// A server without a response for this long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const INSIST_AFTER: Duration = Duration::from_millis(5);
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const ANSWER_HEADERS_MAX: usize = 32;
/// Most events due and unsent.
const BEHIND_MAX: usize = 1 << 24;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoadPlan {
    pub to: SocketAddr,
    pub connections: u32,
    pub first: u64,
    pub until: Until,
    pub pace: Pace,
    /// Number of types, taken in turn.
    pub types: u64,
    pub sessions: Sessions,
    pub door: Door,
    pub on_failure: OnFailure,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Door {
    /// `POST /v1/events`.
    Events,
    /// A signed webhook of the scheme `github`; the type is the event that it names.
    Hook { source: String, secret: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Until {
    Count(u64),
    Over(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// Each connection sends after its last response.
    Closed,
    /// A fixed rate.
    PerSecond(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Sessions {
    None,
    Count(u64),
    /// A session per event.
    Distinct,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum OnFailure {
    /// A lost connection ends the run; a refused event is counted.
    GiveUp,
    /// Retries with the same id until accepted.
    Insist,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct LoadResult {
    pub started_at_ns: u64,
    pub ended_at_ns: u64,
    pub accepted: u64,
    pub refused: u64,
    pub resent: u64,
    /// From the due time to the response.
    pub latency: Latency,
    /// First unused number.
    pub next: u64,
}

impl LoadResult {
    pub(crate) fn rate(&self) -> f64 {
        self.accepted as f64 / (self.ended_at_ns.saturating_sub(self.started_at_ns).max(1) as f64 / 1e9)
    }
}

pub(super) fn run(plan: LoadPlan) -> anyhow::Result<ExitCode> {
    let result = super::half_the_cores()?.block_on(send_all(plan))?;
    let json = serde_json::to_string(&result).context("the result is not JSON")?;
    print(&format!("{json}\n"))?;
    Ok(ExitCode::SUCCESS)
}

struct Shared {
    plan: LoadPlan,
    started: Instant,
    started_at_ns: u64,
    next: AtomicU64,
    answered: AtomicU64,
    due: Semaphore,
}

#[derive(Default)]
struct Part {
    latencies: Latencies,
    accepted: u64,
    refused: u64,
    resent: u64,
}

async fn send_all(plan: LoadPlan) -> anyhow::Result<LoadResult> {
    let mut streams = Vec::new();
    for _ in 0..plan.connections {
        streams.push(connect(plan.to).await.with_context(|| format!("could not connect to {}", plan.to))?);
    }
    let shared = Arc::new(Shared {
        next: AtomicU64::new(plan.first),
        started: Instant::now(),
        started_at_ns: now_ns(),
        answered: AtomicU64::new(0),
        due: Semaphore::new(0),
        plan,
    });
    if let Pace::PerSecond(rate) = shared.plan.pace {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || keep_time(&shared, rate));
    }
    let mut lanes = JoinSet::new();
    for (number, stream) in (0..).zip(streams) {
        lanes.spawn(Lane { shared: Arc::clone(&shared), number, stream }.run());
    }
    let silence = watch(&shared);
    tokio::pin!(silence);
    let mut whole = Part::default();
    loop {
        let part = tokio::select! {
            biased;
            part = lanes.join_next() => part,
            () = &mut silence => anyhow::bail!("no event was answered for {SILENCE_MAX:?}"),
        };
        let Some(part) = part else { break };
        let part = part.context("a connection's task failed")?.context("a connection was lost")?;
        whole.latencies.join(&part.latencies);
        whole.accepted += part.accepted;
        whole.refused += part.refused;
        whole.resent += part.resent;
    }
    Ok(LoadResult {
        started_at_ns: shared.started_at_ns,
        ended_at_ns: now_ns(),
        accepted: whole.accepted,
        refused: whole.refused,
        resent: whole.resent,
        latency: whole.latencies.quantiles(),
        next: shared.plan.first + whole.accepted + whole.refused,
    })
}

/// Makes events due, on its own thread since the runtime's timers are in milliseconds.
fn keep_time(shared: &Shared, rate: f64) {
    let mut made_due = 0_u64;
    loop {
        let now = shared.started.elapsed();
        // Rates are far below what either type can hold.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of events")]
        let due = (now.as_secs_f64() * rate) as u64 + 1;
        let room = BEHIND_MAX - shared.due.available_permits();
        let more = usize::try_from(due - made_due).unwrap_or(room).min(room);
        shared.due.add_permits(more);
        made_due += more as u64;
        if shared.is_over(shared.plan.first + made_due, now) {
            // Waiting lanes see that it is over.
            shared.due.close();
            return;
        }
        let next = Duration::from_secs_f64(made_due as f64 / rate);
        std::thread::sleep(next.saturating_sub(shared.started.elapsed()));
    }
}

async fn watch(shared: &Shared) {
    let mut answered = 0;
    loop {
        tokio::time::sleep(SILENCE_MAX).await;
        let now = shared.answered.load(Ordering::Relaxed);
        if now == answered {
            return;
        }
        answered = now;
    }
}

impl Shared {
    fn is_over(&self, number: u64, now: Duration) -> bool {
        match self.plan.until {
            Until::Count(count) => number >= self.plan.first + count,
            Until::Over(time) => now >= time,
        }
    }

    async fn take(&self) -> Option<(u64, Duration)> {
        match self.plan.pace {
            Pace::Closed => {
                let now = self.started.elapsed();
                let number = self.claim(|number| !self.is_over(number, now))?;
                Some((number, now))
            }
            Pace::PerSecond(rate) => {
                let at = |number| Duration::from_secs_f64((number - self.plan.first) as f64 / rate);
                // Closed means over: the rest is sent without waiting.
                if let Ok(permit) = self.due.acquire().await {
                    permit.forget();
                }
                let number = self.claim(|number| !self.is_over(number, at(number)))?;
                Some((number, at(number)))
            }
        }
    }

    /// The next number, unless beyond the end; numbers beyond it are never used.
    fn claim(&self, is_wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let next = |number| is_wanted(number).then_some(number + 1);
        self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }
}

struct Lane {
    shared: Arc<Shared>,
    number: u32,
    stream: TcpStream,
}

impl Lane {
    async fn run(mut self) -> io::Result<Part> {
        let mut part = Part::default();
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        while let Some((number, at)) = self.shared.take().await {
            self.write(&mut request, number, at);
            loop {
                match (self.exchange(&request, &mut answer).await, self.shared.plan.on_failure) {
                    (Ok(200 | 202), _) => {
                        part.accepted += 1;
                        break;
                    }
                    (Ok(_), OnFailure::GiveUp) => {
                        part.refused += 1;
                        break;
                    }
                    (Err(error), OnFailure::GiveUp) => return Err(error),
                    (Ok(_), OnFailure::Insist) => tokio::time::sleep(INSIST_AFTER).await,
                    (Err(_), OnFailure::Insist) => self.reconnect().await,
                }
                part.resent += 1;
            }
            self.shared.answered.fetch_add(1, Ordering::Relaxed);
            let took = self.shared.started.elapsed().saturating_sub(at);
            part.latencies.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
        Ok(part)
    }

    fn write(&self, request: &mut Vec<u8>, number: u64, at: Duration) {
        let LoadPlan { types, sessions, door, .. } = &self.shared.plan;
        let session = match sessions {
            Sessions::None => None,
            Sessions::Count(count) => Some(number % count),
            Sessions::Distinct => Some(number),
        };
        let sent_at_ns = self.shared.started_at_ns + u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        let message = Message { sent_at_ns, number, lane: self.number, session };
        let event_type = number % types;
        request.clear();
        match door {
            Door::Events => {
                write!(
                    request,
                    "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                     content-length: {PAYLOAD_BYTES}\r\nce-specversion: 1.0\r\nce-source: /redrive/bench\r\n\
                     ce-type: bench.s{event_type}\r\nce-id: bench-{number:020}\r\n",
                )
                .expect("a list of bytes takes everything");
                if let Some(session) = session {
                    write!(request, "ce-partitionkey: {session}\r\n")
                        .expect("a list of bytes takes everything");
                }
                request.extend_from_slice(b"\r\n");
                message.write(request);
            }
            Door::Hook { source, secret } => {
                let mut body = Vec::with_capacity(PAYLOAD_BYTES);
                message.write(&mut body);
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
                write!(
                    request,
                    "POST /v1/hooks/{source} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                     content-length: {PAYLOAD_BYTES}\r\nx-github-event: s{event_type}\r\n\
                     x-github-delivery: bench-{number:020}\r\nx-hub-signature-256: sha256=",
                )
                .expect("a list of bytes takes everything");
                for byte in hmac::sign(&key, &body).as_ref() {
                    write!(request, "{byte:02x}").expect("a list of bytes takes everything");
                }
                request.extend_from_slice(b"\r\n\r\n");
                request.extend_from_slice(&body);
            }
        }
    }

    async fn exchange(&mut self, request: &[u8], answer: &mut Vec<u8>) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        answer.clear();
        loop {
            if self.stream.read_buf(answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(status) = whole_answer(answer)? {
                return Ok(status);
            }
        }
    }

    /// Retries until connected; the watchdog ends endless retries.
    async fn reconnect(&mut self) {
        loop {
            tokio::time::sleep(INSIST_AFTER).await;
            if let Ok(stream) = connect(self.shared.plan.to).await {
                self.stream = stream;
                return;
            }
        }
    }
}

async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn whole_answer(bytes: &[u8]) -> io::Result<Option<u16>> {
    let nonsense = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    if bytes.len() > ANSWER_BYTES_MAX {
        return Err(nonsense("the answer is too long"));
    }
    let mut headers = [httparse::EMPTY_HEADER; ANSWER_HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(head)) => {
            let length =
                response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
            let length =
                length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse::<usize>().ok());
            let length = length.ok_or_else(|| nonsense("the answer does not say how long it is"))?;
            Ok((bytes.len() >= head + length).then_some(response.code.unwrap_or_default()))
        }
        Err(error) => Err(nonsense(&error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        #[rustfmt::skip]
        let cases = [
            ("nothing yet",     "",                                                         None),
            ("half a head",     "HTTP/1.1 202 Accepted\r\ncontent-le",                      None),
            ("half a body",     "HTTP/1.1 202 Accepted\r\nContent-Length: 4\r\n\r\n{}",     None),
            ("all of it",       "HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\n{}",     Some(202)),
            ("an empty body",   "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",           Some(503)),
        ];
        for (name, bytes, expected) in cases {
            assert_eq!(whole_answer(bytes.as_bytes()).expect(name), expected, "{name}");
        }
        for wrong in ["SMTP", "HTTP/1.1 200 OK\r\n\r\n"] {
            assert!(whole_answer(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
