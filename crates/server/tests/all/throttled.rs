//! A target that throttles a real server, with the defaults of a webhook: what has waited drains while events come,
//! at nearly what the target allows, without a burst, and the breaker stays out of it.
//!
//! Scaled, so that it takes about a minute: the limit is low for five seconds instead of thirty, so some of what
//! waits is sent at once then; it is judged from fifteen seconds after it rose instead of sixty, and `Retry-After` is
//! one second. So short a time holds one or two searches for the limit, which cost two seconds each: 87 % of what is
//! allowed were taken when this was written, and 70 % must be, so that a disk that stalls for a second fails nothing.
//! That it is 90 % over a longer time is asserted in virtual time (`simulate/throttling_test.rs` of the lab), and live
//! by the full length of this test with a bucket of 30 and `Retry-After: 10`, `scripts/soak throttle`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::run::Folder;
use crate::server::{Server, until_within};
use crate::target::{Say, Target, book, status};

/// Events a second, all the time.
const TRAFFIC: u32 = 20;
/// What the target allows in a second, and while it allows little.
const ALLOWED: f64 = 30.0;
const SCARCE: f64 = 5.0;
/// Nothing waits if no more does than comes in a second.
const FEW: usize = TRAFFIC as usize;

/// How long the test takes.
#[derive(Clone, Copy)]
struct Length {
    /// How long the target allows little.
    scarce_for: Duration,
    /// What is taken is judged so long after that.
    judged_after: Duration,
    /// Events that come at once while the limit is low.
    pile: usize,
    /// What the bucket of the target holds, and how long it asks callers to wait.
    burst: f64,
    retry_after: &'static str,
    /// Of what the target allows, so much must be taken when it is judged.
    share_min: f64,
}

const SHORT: Length = Length {
    scarce_for: Duration::from_secs(5),
    judged_after: Duration::from_secs(15),
    pile: 100,
    burst: 10.0,
    retry_after: "retry-after: 1\r\n",
    share_min: 0.7,
};
const FULL: Length = Length {
    scarce_for: Duration::from_secs(30),
    judged_after: Duration::from_secs(60),
    pile: 0,
    burst: 30.0,
    retry_after: "retry-after: 10\r\n",
    share_min: 0.9,
};

/// A bucket of tokens, and what became of every call.
struct Bucket {
    length: Length,
    /// When it began to allow little.
    scarce_at: Option<Instant>,
    filled_at: Instant,
    tokens: f64,
    calls: Vec<(Instant, bool)>,
}

impl Bucket {
    fn takes_one(&mut self) -> bool {
        let now = Instant::now();
        let is_scarce = self.scarce_at.is_some_and(|at| now - at < self.length.scarce_for);
        let rate = if is_scarce { SCARCE } else { ALLOWED };
        self.tokens = (self.tokens + rate * (now - self.filled_at).as_secs_f64()).min(self.length.burst);
        self.filled_at = now;
        let has_one = self.tokens >= 1.0;
        self.tokens -= if has_one { 1.0 } else { 0.0 };
        self.calls.push((now, has_one));
        has_one
    }
}

#[test]
fn a_backlog_drains_through_a_limit_that_rises_while_events_come() {
    let length = if std::env::var_os("REDRIVE_SOAK").is_some() { FULL } else { SHORT };
    let Length { scarce_for, judged_after, pile, burst, retry_after, .. } = length;
    let bucket =
        Bucket { length, scarce_at: None, filled_at: Instant::now(), tokens: burst, calls: Vec::new() };
    let bucket = Arc::new(Mutex::new(bucket));
    let asked = Arc::clone(&bucket);
    let target = Target::start(move |_| {
        let is_taken = asked.lock().expect("nobody panics with it").takes_one();
        if is_taken { status(200) } else { Say::Status(429, retry_after, String::new()) }
    });
    let book = book(&target, &["depends_on: shop"]) + "dependencies:\n  shop: { kind: webhook }\n";
    let folder = Folder::with("redrive.yaml", &book);
    let server = Server::start(&folder);
    let taken = || {
        let bucket = bucket.lock().expect("nobody panics with it");
        bucket.calls.iter().filter(|(_, is_taken)| *is_taken).count()
    };
    let (sent, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (scarce_at, empty_at) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut due_at = Instant::now();
            while !is_over.load(Ordering::SeqCst) {
                let id = sent.load(Ordering::SeqCst);
                server.accept("orders.placed", &format!("e-{id}"), "");
                sent.fetch_add(1, Ordering::SeqCst);
                due_at += Duration::from_secs(1) / TRAFFIC;
                std::thread::sleep(due_at.saturating_duration_since(Instant::now()));
            }
        });
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // A rate is measured over ten seconds.
            until_within(Duration::from_secs(60), "the traffic is known", || {
                (taken() >= 10 * FEW).then_some(())
            });
            let scarce_at = Instant::now();
            bucket.lock().expect("nobody panics with it").scarce_at = Some(scarce_at);
            // Before the limit is met, more than it allows would be called at once.
            until_within(Duration::from_secs(30), "the limit is met", || {
                let bucket = bucket.lock().expect("nobody panics with it");
                bucket.calls.iter().any(|(_, is_taken)| !is_taken).then_some(())
            });
            let event = |id: usize| json!({ "specversion": "1.0", "type": "orders.placed", "id": format!("pile-{id}"), "source": "/tests" });
            if pile > 0 {
                let events = (0..pile).map(event).collect::<Value>().to_string();
                let headers = "content-type: application/cloudevents-batch+json\r\n";
                assert_eq!(server.post("/v1/events", headers, events).status, 202);
            }
            until_within(Duration::from_secs(600), "what has waited is taken while events come", || {
                let is_judged = scarce_at.elapsed() > scarce_for + judged_after;
                let waits = (sent.load(Ordering::SeqCst) + pile).saturating_sub(taken());
                (is_judged && waits <= FEW).then_some(())
            });
            (scarce_at, Instant::now())
        }));
        is_over.store(true, Ordering::SeqCst);
        seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let metrics = server.get("/metrics").body;
    server.stop().assert_calm();

    let calls = bucket.lock().expect("nobody panics with it").calls.clone();
    judge(&calls, length, scarce_at, empty_at);
    let trips = metrics
        .lines()
        .find_map(|line| line.strip_prefix("redrive_breaker_trips_total{dependency=\"shop\"} "));
    assert!(matches!(trips, None | Some("0" | "1")), "the breaker opened again and again: {trips:?}");
}

/// What was taken and refused in each second since the first call.
fn by_second(calls: &[(Instant, bool)]) -> Vec<(u32, u32)> {
    let began_at = calls[0].0;
    let mut seconds = Vec::new();
    for (at, is_taken) in calls {
        let second = usize::try_from((*at - began_at).as_secs()).expect("a short time");
        seconds.resize(seconds.len().max(second + 1), (0, 0));
        let (taken, refused): &mut (u32, u32) = &mut seconds[second];
        *if *is_taken { taken } else { refused } += 1;
    }
    seconds
}

fn judge(calls: &[(Instant, bool)], length: Length, scarce_at: Instant, empty_at: Instant) {
    let seconds = by_second(calls);
    let judged_at = scarce_at + length.scarce_for + length.judged_after;
    let span = (empty_at - judged_at).as_secs_f64();
    assert!(span > 2.0, "what waited was gone before it is judged: {seconds:?}");
    let is_judged = |(at, is_taken): &&(Instant, bool)| *is_taken && *at >= judged_at && *at < empty_at;
    let share = calls.iter().filter(is_judged).count() as f64 / (span * ALLOWED);
    println!("{share:.2} of what is allowed over {span:.0} s: {seconds:?}");
    assert!(share >= length.share_min, "only {share:.2} of what is allowed is taken: {seconds:?}");
    let refused = calls.iter().filter(|(_, is_taken)| !is_taken).count();
    assert!(refused > 0, "nothing was throttled, so this proves nothing");
    assert!(refused * 20 <= calls.len(), "{refused} of {} calls were refused: {seconds:?}", calls.len());
    let rise = usize::try_from((scarce_at + length.scarce_for - calls[0].0).as_secs()).expect("a short time");
    // Two seconds together: a test that stands still for a moment sees calls of one second in the next.
    let pairs: Vec<(u32, u32)> =
        seconds.windows(2).map(|pair| (pair[0].0 + pair[1].0, pair[0].1 + pair[1].1)).collect();
    for second in rise + 1..pairs.len() {
        let (taken, refused) = pairs[second];
        let best = pairs[..second].iter().map(|(taken, _)| *taken).max().expect("it is not the first");
        let made = taken + refused;
        assert!(f64::from(made) <= 1.5 * f64::from(best), "{made} calls from second {second}: {seconds:?}");
    }
}
