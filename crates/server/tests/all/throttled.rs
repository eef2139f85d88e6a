//! A target that throttles a real server, with the defaults of a webhook: what has waited drains while events come,
//! at nine tenths of what the target allows at least, without a burst, and the breaker stays out of it.
//!
//! Shortened, so that it takes about a minute: the limit is low for eight seconds instead of thirty, so some of what
//! waits is sent at once then; it is judged from twenty seconds after it rose instead of sixty, and `Retry-After` is
//! one second. `scripts/soak throttle` plays two buckets in full length; `simulate/throttling_test.rs` of the lab plays
//! all shapes in virtual time.
//!
//! The target has a clock of its own that stands still while the machine does: what it allows, the traffic and all
//! that is judged are counted by it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::run::Folder;
use crate::server::{Server, until_within};
use crate::target::{Say, Target, book, status};

/// What the target's clock counts.
const TICK: Duration = Duration::from_millis(5);
const TICKS_A_SECOND: usize = 200;
/// A clock that is later than this has stood still, and does not catch up.
const LATE_MAX: Duration = Duration::from_millis(50);
/// Events a second, all the time.
const TRAFFIC: usize = 20;
/// What the target allows in a second, and while it allows little.
const ALLOWED: usize = 30;
const SCARCE: usize = 5;
/// Nothing waits if no more does than comes in a second.
const FEW: usize = TRAFFIC;

/// How long the test takes, and how the target limits its calls.
#[derive(Clone, Copy)]
struct Length {
    /// For how many seconds the target allows little.
    scarce_for: usize,
    /// So many seconds after that it is judged.
    judged_after: usize,
    /// Events that come at once while the limit is low.
    pile: usize,
    /// What the bucket of the target holds, and how long it asks callers to wait.
    burst: usize,
    retry_after: &'static str,
}

const SHORT: Length =
    Length { scarce_for: 8, judged_after: 20, pile: 80, burst: 30, retry_after: "retry-after: 1\r\n" };
const FULL: Length =
    Length { scarce_for: 30, judged_after: 60, pile: 0, burst: 30, retry_after: "retry-after: 10\r\n" };
const FULL_OF_TEN: Length = Length { burst: 10, retry_after: "retry-after: 1\r\n", ..FULL };

/// A bucket of tokens, and what became of every call.
struct Bucket {
    length: Length,
    /// Ticks so far.
    now: usize,
    /// When it began to allow little.
    scarce_at: Option<usize>,
    /// Of a token there are as many parts as ticks in a second.
    token_parts: usize,
    calls: Vec<Call>,
    is_over: bool,
}

/// A call at the target.
#[derive(Clone, Copy)]
struct Call {
    at: usize,
    is_taken: bool,
}

impl Bucket {
    fn new(length: Length) -> Self {
        let token_parts = length.burst * TICKS_A_SECOND;
        Self { length, now: 0, scarce_at: None, token_parts, calls: Vec::new(), is_over: false }
    }

    fn tick(&mut self) {
        self.now += 1;
        let is_scarce =
            self.scarce_at.is_some_and(|at| self.now - at < self.length.scarce_for * TICKS_A_SECOND);
        let parts = if is_scarce { SCARCE } else { ALLOWED };
        self.token_parts = (self.token_parts + parts).min(self.length.burst * TICKS_A_SECOND);
    }

    fn takes_one(&mut self) -> bool {
        let is_taken = self.token_parts >= TICKS_A_SECOND;
        self.token_parts -= if is_taken { TICKS_A_SECOND } else { 0 };
        self.calls.push(Call { at: self.now, is_taken });
        is_taken
    }

    fn taken(&self) -> usize {
        self.calls.iter().filter(|call| call.is_taken).count()
    }
}

/// Lets the clock of the target run until it is over.
fn run_clock(bucket: &Mutex<Bucket>) {
    let mut due_at = Instant::now();
    while !locked(bucket).is_over {
        due_at = (due_at + TICK).max(Instant::now().checked_sub(LATE_MAX).expect("the machine is up"));
        std::thread::sleep(due_at.saturating_duration_since(Instant::now()));
        locked(bucket).tick();
    }
}

fn locked(bucket: &Mutex<Bucket>) -> MutexGuard<'_, Bucket> {
    bucket.lock().expect("no holder of the lock panics")
}

#[test]
fn a_backlog_drains_through_a_limit_that_rises_while_events_come() {
    if std::env::var_os("REDRIVE_SOAK").is_some() {
        play(FULL);
        play(FULL_OF_TEN);
    } else {
        play(SHORT);
    }
}

fn play(length: Length) {
    let Length { scarce_for, judged_after, pile, retry_after, .. } = length;
    let bucket = Arc::new(Mutex::new(Bucket::new(length)));
    let asked = Arc::clone(&bucket);
    let target = Target::start(move |_| {
        if locked(&asked).takes_one() { status(200) } else { Say::Status(429, retry_after, String::new()) }
    });
    let book = book(&target, &["depends_on: shop"]) + "dependencies:\n  shop: { kind: webhook }\n";
    let folder = Folder::with("redrive.yaml", &book);
    let server = Server::start(&folder);
    let sent = Mutex::new(0);
    let (scarce_at, empty_at) = std::thread::scope(|scope| {
        scope.spawn(|| run_clock(&bucket));
        scope.spawn(|| send(&server, &bucket, &sent));
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // A rate is measured over ten seconds.
            until_within(Duration::from_secs(60), "the traffic is known", || {
                (locked(&bucket).taken() >= 10 * TRAFFIC).then_some(())
            });
            let scarce_at = {
                let mut bucket = locked(&bucket);
                bucket.scarce_at = Some(bucket.now);
                bucket.now
            };
            // Before the limit is met, more than it allows would be called at once.
            until_within(Duration::from_secs(30), "the limit is met", || {
                locked(&bucket).calls.iter().any(|call| !call.is_taken).then_some(())
            });
            let event = |id: usize| json!({ "specversion": "1.0", "type": "orders.placed", "id": format!("pile-{id}"), "source": "/tests" });
            if pile > 0 {
                let events = (0..pile).map(event).collect::<Value>().to_string();
                let headers = "content-type: application/cloudevents-batch+json\r\n";
                assert_eq!(server.post("/v1/events", headers, events).status, 202);
            }
            let judged_at = scarce_at + (scarce_for + judged_after) * TICKS_A_SECOND;
            let empty = || {
                let sent = *sent.lock().expect("no holder of the lock panics") + pile;
                let bucket = locked(&bucket);
                (bucket.now > judged_at && sent <= bucket.taken() + FEW).then_some(bucket.now)
            };
            let seconds = Duration::from_secs(600);
            (scarce_at, until_within(seconds, "what has waited is taken while events come", empty))
        }));
        locked(&bucket).is_over = true;
        seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let metrics = server.get("/metrics").body;
    server.stop().assert_calm();

    judge(&locked(&bucket), scarce_at, empty_at);
    let trips = metrics
        .lines()
        .find_map(|line| line.strip_prefix("redrive_breaker_trips_total{dependency=\"shop\"} "));
    assert!(matches!(trips, None | Some("0" | "1")), "the breaker opened again and again: {trips:?}");
}

/// Sends events at the pace of the target's clock until it is over.
fn send(server: &Server, bucket: &Mutex<Bucket>, sent: &Mutex<usize>) {
    loop {
        let (now, is_over) = {
            let bucket = locked(bucket);
            (bucket.now, bucket.is_over)
        };
        if is_over {
            return;
        }
        let id = *sent.lock().expect("no holder of the lock panics");
        if now >= id * TICKS_A_SECOND / TRAFFIC {
            server.accept("orders.placed", &format!("e-{id}"), "");
            *sent.lock().expect("no holder of the lock panics") += 1;
        } else {
            std::thread::sleep(TICK);
        }
    }
}

/// What was taken and refused in each second.
fn by_second(calls: &[Call]) -> Vec<(usize, usize)> {
    let mut seconds = Vec::new();
    for call in calls {
        let second = call.at / TICKS_A_SECOND;
        seconds.resize(seconds.len().max(second + 1), (0, 0));
        let (taken, refused): &mut (usize, usize) = &mut seconds[second];
        *if call.is_taken { taken } else { refused } += 1;
    }
    seconds
}

fn judge(bucket: &Bucket, scarce_at: usize, empty_at: usize) {
    let Bucket { length, calls, .. } = bucket;
    let seconds = by_second(calls);
    let rises_at = scarce_at + length.scarce_for * TICKS_A_SECOND;
    let judged = rises_at + length.judged_after * TICKS_A_SECOND..empty_at;
    let allowed = judged.len() * ALLOWED / TICKS_A_SECOND;
    assert!(allowed >= 2 * ALLOWED, "what waited was gone before it is judged: {seconds:?}");
    let taken = calls.iter().filter(|call| call.is_taken && judged.contains(&call.at)).count();
    println!("{taken} of {allowed} that were allowed in {} s: {seconds:?}", judged.len() / TICKS_A_SECOND);
    assert!(taken * 10 >= allowed * 9, "only {taken} of {allowed} that were allowed are taken: {seconds:?}");
    let refused = calls.iter().filter(|call| !call.is_taken).count();
    assert!(refused > 0, "nothing was throttled, so this proves nothing");
    assert!(refused * 20 <= calls.len(), "{refused} of {} calls were refused: {seconds:?}", calls.len());
    // Two seconds together: a call is a little late now and then.
    let pairs: Vec<_> =
        seconds.windows(2).map(|pair| (pair[0].0 + pair[1].0, pair[0].1 + pair[1].1)).collect();
    for second in rises_at / TICKS_A_SECOND + 1..pairs.len() {
        let (taken, refused) = pairs[second];
        let best = pairs[..second].iter().map(|(taken, _)| *taken).max().expect("it is not the first");
        let made = taken + refused;
        assert!(made * 2 <= best * 3, "{made} calls from second {second}: {seconds:?}");
    }
}
