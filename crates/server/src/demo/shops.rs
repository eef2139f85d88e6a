//! The five services of the demo, each an HTTP server on loopback with its own behaviour, and a pager.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use redrive::clock::wall_clock;
use redrive_core::ids::{Attempt, DeliveryId, Seed};
use redrive_core::time::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::demo::DemoService;
use crate::terminal::style;

const BODY_BYTES_MAX: usize = 1024 * 1024;

const SLOW: Duration = Duration::from_millis(900);

const CALLS_PER_SECOND: u32 = 3;

/// Its `Retry-After`, in seconds.
const WAIT_SECONDS: u64 = 2;

/// First outage, its length, and the interval.
const DOWN_AFTER: Duration = Duration::from_secs(8);

const DOWN_FOR: Duration = Duration::from_secs(20);

const DOWN_EVERY: Duration = Duration::from_secs(80);

/// One call in this many fails at the flaky service.
const FLAKY_ONE_IN: u64 = 4;

/// At most this many failures per order: bad luck must not make a dead letter.
const FLAKY_ATTEMPTS_MAX: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShopHabit {
    Flaky,
    Slow,
    Limited,
    DownNowAndThen,
    Broken,
    /// Receives alert notifications.
    Pager,
}

const SHOPS: [(&str, ShopHabit, &str); 6] = [
    ("payments", ShopHabit::Flaky, "flaky: one call in four fails, and a retry succeeds"),
    ("shipping", ShopHabit::Slow, "slow: nearly a second per call, in order per customer"),
    ("crm", ShopHabit::Limited, "rate-limited: more than three calls a second get a Retry-After"),
    (
        "warehouse",
        ShopHabit::DownNowAndThen,
        "down for 20 seconds at times: its breaker opens, and events wait",
    ),
    ("invoicing", ShopHabit::Broken, "broken by its last deploy: rejects orders from the EU"),
    ("pager", ShopHabit::Pager, "receives alerts"),
];

/// All services; they close on drop.
pub(crate) struct Shops {
    open: Vec<(&'static str, SocketAddr, AbortHandle)>,
    world: Arc<DemoWorld>,
}

struct DemoWorld {
    began: Instant,
    calls: AtomicU64,
    /// When the working release was deployed; `None` while the broken one runs.
    fixed_at: Mutex<Option<Timestamp>>,
    /// Current second of the rate-limited service, and the calls in it.
    second: Mutex<(u64, u32)>,
}

impl Shops {
    pub(crate) async fn open() -> std::io::Result<Self> {
        let world = Arc::new(DemoWorld {
            began: Instant::now(),
            calls: AtomicU64::new(0),
            fixed_at: Mutex::new(None),
            second: Mutex::new((0, 0)),
        });
        let mut open = Vec::new();
        for (name, habit, _) in SHOPS {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let address = listener.local_addr()?;
            let task = tokio::spawn(serve(listener, habit, Arc::clone(&world)));
            open.push((name, address, task.abort_handle()));
        }
        Ok(Self { open, world })
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        self.open.iter().map(|(name, address, _)| (*name, *address))
    }

    pub(crate) fn introduced(&self) -> Vec<DemoService> {
        let both = SHOPS.into_iter().zip(self.addresses());
        let services = both.filter(|((_, habit, _), _)| *habit != ShopHabit::Pager);
        let shown = |((service, _, habit), (_, address))| DemoService {
            service,
            habit,
            address: format!("http://{address}"),
        };
        services.map(shown).collect()
    }

    pub(crate) fn are_closed(&self) -> bool {
        self.open.iter().all(|(_, _, task)| task.is_finished())
    }

    pub(crate) fn repair(&self) {
        self.world.repaired().get_or_insert_with(wall_clock);
    }

    pub(crate) fn break_again(&self) {
        *self.world.repaired() = None;
    }

    pub(crate) fn repaired_at(&self) -> Option<Timestamp> {
        *self.world.repaired()
    }
}

impl Drop for Shops {
    fn drop(&mut self) {
        self.open.iter().for_each(|(_, _, task)| task.abort());
    }
}

async fn serve(listener: TcpListener, habit: ShopHabit, world: Arc<DemoWorld>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(habit, &world, request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    habit: ShopHabit,
    world: &DemoWorld,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let attempt = head.headers.get("redrive-attempt").and_then(|text| text.to_str().ok()?.parse().ok());
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
    let data: Value =
        body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok()).unwrap_or_default();
    if habit == ShopHabit::Slow {
        tokio::time::sleep(SLOW).await;
    }
    if habit == ShopHabit::Pager {
        print_page(&data);
    }
    let (status, body) = match world.trouble(habit, attempt.unwrap_or(1), &data) {
        None => (StatusCode::OK, json!({ "ok": true })),
        Some((status, error)) => (status, json!({ "error": error })),
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(WAIT_SECONDS));
    }
    Ok(response)
}

fn print_page(notice: &Value) {
    let said = notice.get("summary").or_else(|| notice.get("data").and_then(|data| data.get("summary")));
    if let Some(summary) = said.and_then(Value::as_str) {
        anstream::println!("  {} {summary}", style::warning("pager"));
    }
}

/// Status and message.
type DemoFault = (StatusCode, &'static str);

impl DemoWorld {
    fn repaired(&self) -> std::sync::MutexGuard<'_, Option<Timestamp>> {
        self.fixed_at.lock().expect("never poisoned")
    }

    fn trouble(&self, habit: ShopHabit, attempt: u32, data: &Value) -> Option<DemoFault> {
        match habit {
            ShopHabit::Flaky => {
                let number = self.calls.fetch_add(1, Ordering::Relaxed);
                let drawn = Seed(3).draw(DeliveryId(u128::from(number)), Attempt::FIRST);
                let fails = drawn.is_multiple_of(FLAKY_ONE_IN) && attempt <= FLAKY_ATTEMPTS_MAX;
                fails.then_some((StatusCode::SERVICE_UNAVAILABLE, "try again"))
            }
            ShopHabit::Limited => {
                self.is_one_too_many().then_some((StatusCode::TOO_MANY_REQUESTS, "too many calls"))
            }
            ShopHabit::DownNowAndThen => is_down(self.began.elapsed())
                .then_some((StatusCode::SERVICE_UNAVAILABLE, "down for maintenance")),
            ShopHabit::Broken => {
                let is_eu = matches!(data["country"].as_str(), Some("DE" | "FR"));
                let refusal = "orders from the EU need the field `vat_id`";
                (is_eu && self.repaired().is_none()).then_some((StatusCode::UNPROCESSABLE_ENTITY, refusal))
            }
            ShopHabit::Slow | ShopHabit::Pager => None,
        }
    }

    fn is_one_too_many(&self) -> bool {
        let now = self.began.elapsed().as_secs();
        let mut second = self.second.lock().expect("never poisoned");
        if second.0 != now {
            *second = (now, 0);
        }
        second.1 += 1;
        second.1 > CALLS_PER_SECOND
    }
}

fn is_down(elapsed: Duration) -> bool {
    let Some(since) = elapsed.checked_sub(DOWN_AFTER) else { return false };
    Duration::from_millis(
        u64::try_from(since.as_millis()).unwrap_or_default()
            % u64::try_from(DOWN_EVERY.as_millis()).unwrap_or(1),
    ) < DOWN_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_down_now_and_then() {
        #[rustfmt::skip]
        let cases = [(0, false), (8, true), (27, true), (28, false), (87, false), (88, true), (107, true), (108, false)];
        for (seconds, expected) in cases {
            assert_eq!(is_down(Duration::from_secs(seconds)), expected, "{seconds}");
        }
    }
}
