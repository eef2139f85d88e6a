//! Whether the crystal ball is right: the same book and the same scenario, once foretold by `redrive simulate` and
//! once played by a real server against a real HTTP target that follows the script.
//!
//! Times are scaled: seconds where a real scenario has minutes. The stage waits for a slow machine before anything
//! changes on it (see `live.rs`), and what is due after a change is due at least a second after what is due before.
//! Each scenario is played once.
//!
//! Where nothing is left to chance both agree in everything that is shown: deliveries, attempts, dead letters with
//! their causes, turns of the breaker, duplicates, order. Where chance or the speed of the machine has a part they
//! agree within the bounds that each test states. If the machine kept the server from running, what is due in one
//! phase may fall into the next: then only what holds at any speed is asserted ([`assert_possible`]).

mod actor;
mod live;

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use self::live::{Came, Machine, Played, Stage};

/// One service that calls one dependency; `TARGET` is where.
fn book(dependency: &str, service: &str) -> String {
    format!(
        "version: 1
retry_policies:
  steps: {{ delays: [1s, 2s], retries: 2, jitter: none }}
  long: {{ delays: [4s], retries: 10, jitter: none }}
  eager: {{ initial: 100ms, max: 300ms, retries: 20, jitter: full }}
breakers:
  three: {{ trip: {{ consecutive: 3 }}, open: 2s }}
dependencies:
  warehouse: {{ kind: webhook, {dependency} }}
services:
  shop:
    target: {{ http: \"TARGET\" }}
    depends_on: warehouse
    {service}
    events: [\"orders.*\"]
"
    )
}

/// The most that a policy of the book allows.
const ATTEMPTS_MAX: u64 = 21;

fn scenario(duration: &str, arrivals: &[&str], warehouse: &str, more: &str) -> String {
    let arrivals = arrivals.iter().fold(String::new(), |mut lines, arrival| {
        let _ = writeln!(lines, "  - {{ {arrival} }}");
        lines
    });
    format!(
        "version: 1
duration: {duration}
settle: 30s
arrivals:
{arrivals}dependencies:
  warehouse: {{ {warehouse} }}
{more}"
    )
}

/// What was foretold, with all of its report, and what came.
#[track_caller]
fn played(book: &str, scenario: &str) -> (Came, Value, Played) {
    let stage = Stage::set(book, scenario);
    let (foretold, report) = stage.foretold();
    let played = stage.play();
    assert_possible(&foretold, &played.came);
    (foretold, report, played)
}

/// What holds at any speed of the machine.
#[track_caller]
fn assert_possible(foretold: &Came, came: &Came) {
    let ended = |came: &Came| came.delivered + came.dead.values().sum::<u64>();
    assert_eq!(
        (ended(came), came.waiting, came.out_of_order),
        (ended(foretold), foretold.waiting, foretold.out_of_order),
        "{foretold:?} foretold, {came:?} came"
    );
    let other_cause = came.dead.keys().find(|cause| !foretold.dead.contains_key(*cause));
    assert_eq!(other_cause, None, "{foretold:?} foretold, {came:?} came");
    let attempts_max = came.attempts.keys().max();
    assert!(attempts_max <= Some(&ATTEMPTS_MAX), "{came:?}");
}

/// Foretells and plays; both must say the same.
#[track_caller]
fn assert_agree(book: &str, scenario: &str, told: &str) {
    let (foretold, report, played) = played(book, scenario);
    if played.machine == Machine::Ran {
        assert_eq!(foretold, played.came, "foretold, then what came, with {:?}", played.seen);
    }
    let dead: Vec<String> = foretold
        .dead
        .iter()
        .map(|([.., code, failure], count)| format!("{count} {code}/{failure}"))
        .collect();
    let attempts: Vec<String> =
        foretold.attempts.iter().map(|(attempts, count)| format!("{count}×{attempts}")).collect();
    let shown = format!(
        "{} delivered; attempts: {}; dead: {}; breaker: {}; {} again",
        foretold.delivered,
        attempts.join(" "),
        dead.join(", "),
        foretold.breaker.join(", "),
        foretold.duplicates
    );
    assert_eq!(shown, told, "{report}");
}

/// All of them at once, since they mostly wait.
#[test]
fn what_is_foretold_comes() {
    let cases: [(&str, fn()); 10] = [
        ("retries that run out", retries_that_run_out),
        ("an outage and a breaker", an_outage_and_a_breaker),
        ("a bad deploy", a_bad_deploy),
        ("throttling with retry after", throttling_with_retry_after),
        ("a target that hangs and one that is too slow", a_target_that_hangs_and_one_that_is_too_slow),
        ("poison among good ones in a session", poison_among_good_ones_in_a_session),
        ("a server that is killed and comes back", a_server_that_is_killed_and_comes_back),
        ("a brown out by chance", a_brown_out_by_chance),
        ("a backlog comes back by and by", a_backlog_comes_back_by_and_by),
        ("a backlog flushes at the rate of its limit", a_backlog_flushes_at_the_rate_of_its_limit),
    ];
    let failed: Vec<&str> = std::thread::scope(|scope| {
        let playing = cases.map(|(name, play)| {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, play);
            (name, thread.expect("a thread can be had"))
        });
        playing.into_iter().filter_map(|(name, thread)| thread.join().is_err().then_some(name)).collect()
    });
    assert!(failed.is_empty(), "{failed:?}: each has said above what was foretold and what came");
}

fn retries_that_run_out() {
    assert_agree(
        &book("breaker: none, in_flight: 50", "retry: steps"),
        &scenario(
            "7s",
            &[
                "type: orders.placed, bursts: { size: 12 }",
                "type: orders.paid, bursts: { size: 8 }, from: 2500ms",
                "type: orders.sent, bursts: { size: 5 }, from: 6s",
            ],
            "latency: 10ms, phases: [{ at: 0s, for: 5s, is: down }]",
            "",
        ),
        "13 delivered; attempts: 5×1 20×3; dead: 12 MAX_RETRIES_EXCEEDED/CONNECTION_REFUSED; breaker: ; 0 again",
    );
}

fn an_outage_and_a_breaker() {
    assert_agree(
        &book("breaker: three, in_flight: 50", "retry: steps"),
        &scenario(
            "6s",
            &[
                "type: orders.placed, bursts: { size: 2 }",
                "type: orders.paid, bursts: { size: 10 }, from: 1500ms",
            ],
            "latency: 10ms, phases: [{ at: 1s, for: 5s, is: down }]",
            "",
        ),
        "12 delivered; attempts: 2×1 10×2; dead: ; breaker: closed → open, open → half-open, half-open → open, open → half-open, half-open → open, open → half-open, half-open → closed; 0 again",
    );
}

fn a_bad_deploy() {
    assert_agree(
        &book("breaker: three, in_flight: 50", "retry: steps"),
        &scenario(
            "6s",
            &[
                "type: orders.placed, bursts: { size: 10 }",
                "type: orders.paid, bursts: { size: 7 }, from: 2500ms",
                "type: orders.sent, bursts: { size: 5 }, from: 5s",
            ],
            "latency: 10ms, phases: [{ at: 0s, for: 2s, fails: { status: 404 } }, { at: 2s, for: 2s, fails: { status: 400 } }]",
            "",
        ),
        "5 delivered; attempts: 22×1; dead: 7 BAD_REQUEST/BAD_REQUEST, 10 NOT_FOUND/NOT_FOUND; breaker: ; 0 again",
    );
}

fn throttling_with_retry_after() {
    assert_agree(
        &book("breaker: three, in_flight: 50", "on_failure: { rate-limited: steps }"),
        &scenario(
            "5s",
            &["type: orders.placed, bursts: { size: 3 }"],
            "latency: 10ms, phases: [{ at: 0s, for: 30s, throttled: { rate: 20/m, retry_after: 3s } }]",
            "",
        ),
        "3 delivered; attempts: 1×1 1×2 1×3; dead: ; breaker: ; 0 again",
    );
}

fn a_target_that_hangs_and_one_that_is_too_slow() {
    assert_agree(
        &book("breaker: none, in_flight: 50", "retry: long\n    timeout: 2s"),
        &scenario(
            "5s",
            &[
                // So many successes let all others be called at once.
                "type: orders.sent, bursts: { size: 20 }",
                "type: orders.placed, bursts: { size: 4 }, from: 1s",
                "type: orders.paid, bursts: { size: 6 }, from: 2s",
            ],
            "latency: 10ms, phases: [{ at: 1s, for: 1s, is: hanging }, { at: 2s, for: 3s, slow: 9s }]",
            "",
        ),
        "30 delivered; attempts: 20×1 10×2; dead: ; breaker: ; 6 again",
    );
}

fn poison_among_good_ones_in_a_session() {
    assert_agree(
        &book("breaker: three, in_flight: 50", "retry: steps\n    order: session"),
        &scenario(
            "6s",
            &[
                "type: orders.placed, bursts: { size: 6 }, sessions: 1",
                "type: orders.broken, bursts: { size: 2 }, sessions: 1, poison: 100%, from: 1s",
                "type: orders.placed, bursts: { size: 6 }, sessions: 1, from: 2500ms",
                "type: orders.paid, bursts: { size: 3 }, sessions: 1, from: 5s",
            ],
            "latency: 10ms, phases: [{ at: 2s, for: 2s, fails: { status: 503 } }]",
            "",
        ),
        "15 delivered; attempts: 16×1 1×3; dead: 2 UNPROCESSABLE/UNPROCESSABLE; breaker: ; 0 again",
    );
}

fn a_server_that_is_killed_and_comes_back() {
    assert_agree(
        &book("breaker: none, in_flight: 50", "retry: long\n    timeout: 20s"),
        &scenario(
            "6s",
            &[
                "type: orders.placed, bursts: { size: 3 }",
                "type: orders.paid, bursts: { size: 4 }, from: 1500ms",
                "type: orders.sent, bursts: { size: 5 }, from: 4s",
            ],
            "latency: 10ms, phases: [{ at: 0s, for: 1s, fails: { status: 503 } }, { at: 1s, for: 2s, slow: 10s }]",
            "faults: [{ at: 3s, restart: 2s }]\n",
        ),
        "12 delivered; attempts: 5×1 7×2; dead: ; breaker: ; 4 again",
    );
}

/// Both count so many, give or take a tenth of what was foretold and one.
#[track_caller]
fn assert_near(what: &str, foretold: u64, came: u64) {
    let distance = foretold.abs_diff(came);
    assert!(distance <= foretold / 10 + 1, "{what}: {foretold} foretold, {came} came");
}

/// A third of all calls fail by chance, and delays are drawn: both differ between the two, their sums do not.
fn a_brown_out_by_chance() {
    let (foretold, report, played) = played(
        &book("breaker: none, in_flight: 50", "retry: eager"),
        &scenario(
            "3s",
            &["type: orders.placed, rate: 50/s, spacing: even"],
            "latency: 10ms, phases: [{ at: 0s, for: 1h, fails: { status: 503, share: 30% } }]",
            "",
        ),
    );
    assert_eq!((foretold.delivered, played.came.delivered), (150, 150));
    assert_near("calls", report["attempts"].as_u64().expect("a count"), played.seen.calls);
    let first = |came: &Came| came.attempts.get(&1).copied().unwrap_or(0);
    assert_near("delivered at once", first(&foretold), first(&played.came));
    assert_eq!(played.came.duplicates, 0);
}

/// Two hundred deliveries wait for the end of an outage; twenty at most may be called at once.
fn backlog(ramp: &str) -> (Came, Value, Played) {
    let (foretold, report, played) = played(
        &book(&format!("breaker: three, in_flight: 20, {ramp}"), "retry: long"),
        &scenario(
            "5s",
            &[
                "type: orders.placed, rate: 5/s, spacing: even, until: 700ms",
                "type: orders.sent, bursts: { size: 3 }, from: 1500ms",
                "type: orders.paid, bursts: { size: 200 }, from: 2s",
            ],
            "latency: 200ms, phases: [{ at: 1s, for: 4s, is: down }]",
            "",
        ),
    );
    assert_eq!((foretold.delivered, played.came.delivered), (207, 207));
    if played.machine == Machine::Ran {
        assert_eq!(foretold.breaker, played.came.breaker);
    }
    (foretold, report, played)
}

fn calls_in_a_second_max(report: &Value) -> f64 {
    report["dependencies"][0]["call_rate_max"].as_f64().expect("a rate")
}

/// Few calls are usual, so it begins with ten in a second, and one more with each: less than a tenth of what the
/// limit of calls at once allows. A machine that is late makes fewer calls in a second, and never more, but some
/// may come together at the target.
fn a_backlog_comes_back_by_and_by() {
    let (_, report, played) = backlog("ramp: 10s");
    let foretold = calls_in_a_second_max(&report);
    assert!((20.0..=25.0).contains(&foretold), "{foretold} calls in a second foretold");
    let came = played.seen.calls_in_a_second_max();
    let is_late = played.machine == Machine::WasLate;
    assert!(
        is_late || (came as f64) < 2.0 * foretold,
        "{came} calls in a second where {foretold} were foretold"
    );
    // 200 calls at 10/s and 1/s more each second: 12.4 s.
    let lasted = played.seen.last_came_within(200);
    assert!(lasted > Duration::from_secs(10), "all of them within {lasted:?}");
}

/// Without a ramp a backlog flushes as quickly as `in_flight` lets it: the calls at once rise by one with every
/// success, from four to that limit, which is soon.
fn a_backlog_flushes_at_the_rate_of_its_limit() {
    let (_, report, played) = backlog("ramp: 0s");
    let in_flight = report["dependencies"][0]["series"]["in_flight"].as_array().expect("a series");
    let at_once = in_flight.iter().filter_map(Value::as_u64).max();
    assert_eq!(at_once, Some(20), "foretold");
    let (came, is_late) = (played.seen.at_once_max, played.machine == Machine::WasLate);
    assert!(
        (15..=20).contains(&came) || is_late && came <= 20,
        "{came} at once: as many as may, and no more"
    );
    let usual = 5.0;
    let flush = calls_in_a_second_max(&report);
    assert!(flush >= 15.0 * usual, "{flush} calls in one second");
}
