//! A target that throttles a real server: what has waited drains, few calls are refused, and the breaker stays out
//! of it. How well it does so is proven in virtual time (`simulate/throttling_test.rs` of the core).

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::run::Folder;
use crate::server::{Server, until_within};
use crate::target::{Call, Say, Target, book, status};

const EVENTS: usize = 600;
/// What the target takes in a second at first, and from when on it takes more.
const SCARCE: f64 = 10.0;
const SCARCE_FOR: Duration = Duration::from_secs(3);
const ALLOWED: f64 = 100.0;
const BURST: f64 = 10.0;

/// A bucket of tokens.
struct Bucket {
    began_at: Instant,
    filled_at: Instant,
    tokens: f64,
}

impl Bucket {
    fn takes_one(&mut self) -> bool {
        let now = Instant::now();
        let rate = if now - self.began_at < SCARCE_FOR { SCARCE } else { ALLOWED };
        self.tokens = (self.tokens + rate * (now - self.filled_at).as_secs_f64()).min(BURST);
        self.filled_at = now;
        let has_one = self.tokens >= 1.0;
        self.tokens -= if has_one { 1.0 } else { 0.0 };
        has_one
    }
}

#[test]
fn a_backlog_drains_through_a_limit_that_rises() {
    let now = Instant::now();
    let bucket = Mutex::new(Bucket { began_at: now, filled_at: now, tokens: BURST });
    let target = Target::start(move |_| {
        let is_taken = bucket.lock().expect("nobody panics with it").takes_one();
        if is_taken { status(200) } else { Say::Status(429, "retry-after: 1\r\n", String::new()) }
    });
    let dependency = "breakers:
  five: { trip: { consecutive: 5 }, open: 2s }
dependencies:
  shop: { kind: webhook, breaker: five, rate_growth: 15% }
";
    let folder = Folder::with("redrive.yaml", &(book(&target, &["depends_on: shop"]) + dependency));
    let server = Server::start(&folder);
    let mut batch = String::new();
    for id in 0..EVENTS {
        let comma = if id == 0 { "[" } else { "," };
        write!(batch, "{comma}{{\"specversion\":\"1.0\",\"type\":\"orders.placed\",\"id\":\"{id}\",\"source\":\"/tests\"}}")
            .expect("a string takes everything");
    }
    batch.push(']');
    let answer = server.post("/v1/events", "content-type: application/cloudevents-batch+json\r\n", &batch);
    assert_eq!(answer.status, 202, "{answer:?}");

    let is_taken = |call: &&Call| call.answered == Some(200);
    let taken = || target.calls().iter().filter(is_taken).count();
    until_within(Duration::from_secs(120), "all are taken", || (taken() >= EVENTS).then_some(()));
    let refused = target.count() - EVENTS;
    assert!(refused > 0, "nothing was throttled, so this proves nothing");
    assert!(refused <= EVENTS / 10, "{refused} calls were refused");
    let metrics = server.get("/metrics").body;
    let trips = metrics
        .lines()
        .find_map(|line| line.strip_prefix("redrive_breaker_trips_total{dependency=\"shop\"} "));
    let trips: u32 = trips.map_or(0, |count| count.parse().expect("a count"));
    assert!(trips <= 1, "the breaker opened {trips} times");
    server.stop().assert_calm();
}
