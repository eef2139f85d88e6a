//! Laws of simulations, and results that are known.

use std::fmt::Write;
use std::sync::Arc;

use super::*;
use crate::scenario;
use redrive_core::book;
use redrive_core::book::connectors::built_in;
use redrive_core::policy::breaker::BreakerPhase;

/// One service with one row of events; `inside` says more of the service.
pub(super) fn book(inside: &str, more: &str) -> Arc<RuleBook> {
    let text = format!(
        "version: 1\n{more}services:\n  shop:\n    target: {{ http: \"http://127.0.0.1:9000/\" }}\n    depends_on: api\n{inside}    events: [\"orders.*\"]\n"
    );
    let reading = book::read(&text, built_in());
    Arc::new(reading.book.unwrap_or_else(|| panic!("{text}\n{:?}", reading.problems)))
}

pub(super) fn scenario(text: &str) -> Scenario {
    let reading = scenario::read(&format!("version: 1\n{text}"));
    reading.scenario.unwrap_or_else(|| panic!("{text}\n{:?}", reading.problems))
}

pub(super) fn play(scenario: &Scenario, book: &Arc<RuleBook>, seed: u64) -> SimulationReport {
    let misfits = scenario.misfits(book);
    assert!(!misfits.has_errors(), "{misfits:?}");
    run(&SimulationPlan { scenario, book: Arc::clone(book), seed }, &mut |_| Go::On)
        .expect("no run is stopped")
}

const API: &str = "dependencies:\n  api: { kind: webhook, breaker: none, in_flight: 1000 }\n";

/// Ten events a second for a minute, all of which meet the phases of `api`.
fn with_phases(phases: &str) -> Scenario {
    scenario(&format!(
        "duration: 1m\narrivals: [{{ type: orders.placed, rate: 10/s, spacing: even }}]\ndependencies:\n  api: {{ latency: 10ms, phases: [{phases}] }}\n"
    ))
}

#[test]
fn a_calm_day_needs_one_call_for_each_delivery() {
    let report = play(&with_phases(""), &book("", API), 1);
    assert_eq!((report.events, report.deliveries, report.delivered), (600, 600, 600));
    assert_eq!((report.dead, report.waiting, report.attempts, report.duplicates), (0, 0, 600, 0));
    assert!((report.amplification - 1.0).abs() < 1e-9);
    assert_eq!(report.latency.map(|latency| latency.p50_ms), Some(10));
    assert_eq!(report.dependencies[0].troubles, []);
}

#[test]
fn a_policy_without_jitter_gives_exactly_its_attempts() {
    let policy = "retry_policies:\n  steps: { delays: [1s, 2s, 4s], retries: 3, jitter: none }\n";
    let book = book("    retry: steps\n", &format!("{API}{policy}"));
    #[rustfmt::skip]
    let cases = [
        ("down for good: one call and three retries",   "{ at: 0s, for: 1h, is: down }",                         vec![(4, 600)], 600),
        // What is sent from 3s on has a call 7s later, beyond the end; of what is sent before 10s, the first
        // 30 have their last call 7.003s after they were sent, while it is down still.
        ("down for ten seconds",                        "{ at: 0s, for: 10s, is: down }",                        vec![(1, 500), (2, 10), (3, 20), (4, 70)], 30),
        ("422 is final",                                "{ at: 0s, for: 1h, fails: { status: 422 } }",           vec![(1, 600)], 600),
        ("503 to everybody",                            "{ at: 0s, for: 1h, fails: { status: 503 } }",           vec![(4, 600)], 600),
    ];
    for (name, phases, attempts, dead) in cases {
        let report = play(&with_phases(phases), &book, 1);
        let told: Vec<(u32, u64)> =
            report.attempts_per_delivery.iter().map(|count| (count.attempts, count.deliveries)).collect();
        assert_eq!(told, attempts, "{name}");
        assert_eq!(report.dead, dead, "{name}");
    }
}

/// Both books meet the same luck, in whatever order they say what they say.
#[test]
fn the_order_of_services_changes_nothing() {
    let services = [
        "  one: { target: { http: \"http://127.0.0.1:1/\" }, events: [\"a.b\"] }\n",
        "  two: { target: { http: \"http://127.0.0.1:2/\" }, events: [\"c.d\"] }\n",
        "  six: { target: { http: \"http://127.0.0.1:6/\" }, order: session, events: [\"e.f\"] }\n",
    ];
    let book = |places: &[usize]| {
        let services: String = places.iter().map(|place| services[*place]).collect();
        Arc::new(book::read(&format!("version: 1\nservices:\n{services}"), built_in()).book.expect("a book"))
    };
    let rough = scenario(
        "duration: 1m\nnodes: 2\narrivals: [{ type: \"*\", rate: 5/s, sessions: 4, poison: 2% }]\ndependencies:\n  all: { latency: { p50: 40ms, p99: 400ms }, phases: [{ at: 10s, for: 30s, fails: { status: 503, share: 40% } }] }\n",
    );
    let told = |places: &[usize]| {
        let report = play(&rough, &book(places), 1);
        let of = |name: &str| {
            let found = report.dependencies.iter().find(|dependency| dependency.name == name);
            found.map(|it| (it.calls, it.calls_failed, it.call_latency, it.series.calls.clone()))
        };
        ["one", "two", "six"].map(of)
    };
    assert_eq!(told(&[2, 1, 0]), told(&[0, 1, 2]));
}

/// A call is an attempt of what it was made for, whether or not that has ended, and whether or not its end was heard.
#[test]
fn every_call_is_an_attempt_of_a_delivery() {
    let policy = "retry_policies:\n  steps: { delays: [1s], retries: 3, jitter: none }\n  on: { delays: [2s], retries: 10000, jitter: none }\n";
    let one = "arrivals: [{ type: orders.placed, bursts: { size: 1 } }]\n";
    let later = one.replace(" } }", " }, from: 2s }");
    let each = "arrivals: [{ type: orders.placed, rate: 1/s, spacing: even }]\n";
    let down = "dependencies: { api: { phases: [{ at: 0s, for: 1h, is: down }] } }\n";
    let slow = "dependencies: { api: { latency: 2s } }\nfaults: [{ at: 3500ms, restart: 5s }]\n";
    let away = "faults: [{ at: 1s, restart: 1h }]\n";
    #[rustfmt::skip]
    let cases = [
        ("one that has not ended",          "on",    format!("duration: 10s\nsettle: 10s\n{one}{down}"), vec![(10, 1, 1)], 10),
        ("two calls that a crash cut off",  "steps", format!("duration: 10s\n{each}{slow}"),             vec![(1, 8, 0), (2, 2, 0)], 12),
        ("what nobody was there to take",   "steps", format!("duration: 10s\nsettle: 10s\n{later}{away}"), vec![(0, 1, 1)], 0),
    ];
    for (name, retry, text, expected, attempts) in cases {
        let book = book(&format!("    retry: {retry}\n"), &format!("{API}{policy}"));
        let report = play(&scenario(&text), &book, 1);
        let told = report.attempts_per_delivery.iter();
        let told: Vec<(u32, u64, u64)> =
            told.map(|count| (count.attempts, count.deliveries, count.waiting)).collect();
        assert_eq!(told, expected, "{name}");
        let most = expected.iter().map(|(attempts, ..)| *attempts).max().expect("some");
        assert_eq!((report.attempts, report.attempts_max), (attempts, most), "{name}");
        let deliveries: u64 = expected.iter().map(|(_, deliveries, _)| deliveries).sum();
        let for_each = (attempts as f64 / deliveries as f64).max(1.0);
        assert!((report.amplification - for_each).abs() < 1e-9, "{name}: {}", report.amplification);
    }
}

#[test]
fn what_never_arrives_is_not_quick() {
    let text = "duration: 10s\narrivals: [{ type: orders.placed, rate: 1/s }]\ndependencies: { api: { phases: [{ at: 0s, for: 1h, fails: { status: 422 } }] } }\nexpect: [\"latency_p99 < 1s\", \"latency_p50 >= 0s\"]\n";
    let report = play(&scenario(text), &book("", API), 1);
    assert_eq!((report.delivered, report.latency, report.queues[0].latency), (0, None, None));
    for told in &report.expectations {
        assert_eq!(
            (told.met, told.value.to_string().as_str()),
            (false, "nothing arrived"),
            "{}",
            told.expectation
        );
    }
}

/// What arrives together with a trouble waits because of it.
#[test]
fn a_trouble_from_the_first_moment_on_is_drained_when_nothing_waits() {
    let policy = "retry_policies:\n  steps: { delays: [10s], retries: 3, jitter: none }\n";
    let book = book("    retry: steps\n", &format!("{API}{policy}"));
    let burst = scenario(
        "duration: 1m\narrivals: [{ type: orders.placed, bursts: { size: 3 } }]\ndependencies:\n  api: { latency: 100ms, phases: [{ at: 0s, for: 25s, is: down }] }\n",
    );
    let report = play(&burst, &book, 1);
    let [trouble] = report.dependencies[0].troubles.as_slice() else { panic!("one trouble") };
    // Three calls that are refused after a millisecond, ten seconds apart, and one that takes a tenth of a second.
    let told = (trouble.waiting_before, trouble.waiting_max, trouble.drain_ms);
    assert_eq!(told, (0, 3, Some(30_103 - 25_000)));
}

/// A trouble that outlives the run has no end in it, and what waits because of it is never drained.
#[test]
fn a_trouble_that_lasts_has_no_end_and_no_drain() {
    let policy = "retry_policies:\n  again: { delays: [1s], retries: 10000, jitter: none }\n  once: { delays: [1s], retries: 1, jitter: none }\n";
    #[rustfmt::skip]
    let cases = [
        ("what waits is not drained", "again", "never"),
        ("nothing is left to drain",  "once",  "0s"),
    ];
    for (name, retry, drain) in cases {
        let book = book(&format!("    retry: {retry}\n"), &format!("{API}{policy}"));
        let text = "duration: 10s\nsettle: 10s\narrivals: [{ type: orders.placed, bursts: { size: 1 } }]\ndependencies: { api: { phases: [{ at: 0s, for: 1h, is: down }] } }\nexpect: [\"drain < 1m\"]\n";
        let report = play(&scenario(text), &book, 1);
        let trouble = report.dependencies[0].troubles[0];
        assert_eq!((trouble.ended_at_ms, trouble.drain_ms), (None, None), "{name}");
        assert_eq!(report.expectations[0].value.to_string(), drain, "{name}");
    }
}

#[test]
fn a_breaker_spares_a_dependency_that_is_down_and_nothing_dies() {
    let breaker = "breakers:\n  five: { trip: { consecutive: 5 }, open: 10s }\ndependencies:\n  api: { kind: webhook, breaker: five, in_flight: 1000 }\n";
    let outage = with_phases("{ at: 10s, for: 30s, is: down }");
    let guarded = play(&outage, &book("", breaker), 1);
    let bare = play(&outage, &book("", API), 1);
    let api = &guarded.dependencies[0];
    assert_eq!(guarded.dead, 0);
    assert_eq!(api.breaker_opened, 1, "it stays open through its probes");
    assert!(api.calls_failed < 20, "{}", api.calls_failed);
    assert!(bare.dependencies[0].calls_failed > 300, "{}", bare.dependencies[0].calls_failed);
    let last = api.transitions.last().expect("it changed");
    assert_eq!(last.to, BreakerPhase::Closed);
    let trouble = api.troubles[0];
    assert_eq!((trouble.began_at_ms, trouble.ended_at_ms), (10_000, Some(40_000)));
    // Until the next probe at most ten seconds, then 20/s and a tenth more each second, while 10/s arrive.
    assert!(trouble.drain_ms.is_some_and(|drain| drain < 30_000), "{trouble:?}");
}

/// Scenarios that have everything in them.
const LIVELY: [(&str, &str); 4] = [
    (
        "an outage with restarts and sessions",
        "duration: 2m\narrivals: [{ type: orders.placed, rate: 20/s, sessions: 40, poison: 2% }]\ndependencies:\n  api: { phases: [{ at: 20s, for: 30s, is: down }, { at: 1m, for: 20s, slow: 5s }] }\nfaults: [{ at: 30s, restart: 5s }, { at: 70s, store_stall: 10s }]\n",
    ),
    (
        "a brown-out on three nodes, one of which goes down",
        "duration: 2m\nnodes: 3\narrivals: [{ type: orders.placed, rate: 30/s, sessions: 50 }]\ndependencies:\n  api: { phases: [{ at: 10s, for: 60s, fails: [{ status: 503, share: 30% }, { status: 500, share: 5% }] }] }\nfaults: [{ at: 40s, restart: 20s, node: 2 }]\n",
    ),
    (
        "throttling and bursts",
        "duration: 3m\narrivals:\n  - { type: orders.placed, bursts: { size: 300, every: 1m } }\n  - { type: orders.paid, wave: { low: 1/s, high: 10/s, every: 1m } }\ndependencies:\n  api: { phases: [{ at: 0s, for: 2m, throttled: { rate: 5/s, retry_after: 3s } }] }\n",
    ),
    (
        "more than it can take, and it hangs",
        "duration: 1m\narrivals: [{ type: orders.placed, rate: 40/s, sessions: 200 }]\ndependencies:\n  api: { capacity: { concurrent: 4, queue: 50, collapse: 20% }, phases: [{ at: 20s, for: 10s, is: hanging }] }\n",
    ),
];

fn lively_book() -> Arc<RuleBook> {
    book("    order: session\n    timeout: 2s\n", "dependencies:\n  api: { kind: webhook, in_flight: 100 }\n")
}

#[test]
fn whatever_happens_nothing_is_lost_and_order_is_kept() {
    for (name, text) in LIVELY {
        for seed in 0..5 {
            let report = play(&scenario(text), &lively_book(), seed);
            assert_eq!(
                report.deliveries,
                report.delivered + report.dead + report.waiting,
                "{name}, seed {seed}"
            );
            assert_eq!(report.waiting, 0, "{name}, seed {seed}: all of it settles");
            assert_eq!(report.order_violations, 0, "{name}, seed {seed}");
            assert!(report.amplification >= 1.0, "{name}, seed {seed}");
            let ended: u64 = report.attempts_per_delivery.iter().map(|count| count.deliveries).sum();
            assert_eq!(ended, report.deliveries, "{name}, seed {seed}");
            let causes: u64 = report.dead_letters.iter().map(|cause| cause.count).sum();
            assert_eq!(causes, report.dead, "{name}, seed {seed}");
            for dependency in &report.dependencies {
                let calls: u64 = dependency.series.calls.iter().sum();
                assert_eq!(calls, dependency.calls, "{name}, seed {seed}");
                assert!(dependency.series.in_flight.iter().all(|count| *count <= 100), "{name}, seed {seed}");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
    for (name, text) in LIVELY {
        let told = |seed| serde_json::to_string(&play(&scenario(text), &lively_book(), seed)).expect("JSON");
        assert_eq!(told(7), told(7), "{name}");
        assert_ne!(told(7), told(8), "{name}");
    }
}

#[test]
fn more_retries_never_make_fewer_calls_in_a_hard_outage() {
    let outage = with_phases("{ at: 0s, for: 1h, is: down }");
    let mut before = 0;
    for retries in 0..8 {
        let policy = format!("retry_policies:\n  steps: {{ initial: 1s, max: 20s, retries: {retries} }}\n");
        let report = play(&outage, &book("    retry: steps\n", &format!("{API}{policy}")), 1);
        let calls = report.dependencies[0].calls;
        assert!(calls > before, "{retries} retries: {calls} calls after {before}");
        assert_eq!(calls, 600 * (retries + 1), "{retries} retries");
        before = calls;
    }
}

#[test]
fn a_call_given_up_that_took_effect_all_the_same_is_a_duplicate() {
    let policy = "retry_policies:\n  twice: { delays: [1s], retries: 1, jitter: none }\n";
    let inside = "    retry: twice\n    timeout: 1s\n";
    let slow = with_phases("{ at: 0s, for: 1h, slow: 3s }");
    let report = play(&slow, &book(inside, &format!("{API}{policy}")), 1);
    assert_eq!((report.dead, report.duplicates), (600, 600), "both calls of each took effect");
    let hanging = with_phases("{ at: 0s, for: 1h, is: hanging }");
    let report = play(&hanging, &book(inside, &format!("{API}{policy}")), 1);
    assert_eq!((report.dead, report.duplicates), (600, 0), "what hangs takes nothing");
}

#[test]
fn poison_dies_and_everything_else_arrives() {
    let text = "duration: 1m\narrivals: [{ type: orders.placed, bursts: { size: 1000 }, poison: 10% }]\n";
    let report = play(&scenario(text), &book("", API), 3);
    assert!((70..=130).contains(&report.dead), "{}", report.dead);
    assert_eq!(report.delivered + report.dead, 1_000);
    assert_eq!(report.dead_letters.len(), 1, "{:?}", report.dead_letters);
}

#[test]
fn a_service_that_pauses_itself_keeps_everything_waiting() {
    let inside = "    on_failure: { fatal: pause }\n";
    let locked_out = with_phases("{ at: 10s, for: 1h, fails: { status: 401 } }");
    let report = play(&locked_out, &book(inside, API), 1);
    assert_eq!((report.delivered, report.dead, report.waiting), (100, 0, 500));
    assert_eq!(report.paused.len(), 1);
}

#[test]
fn a_batch_fails_in_part() {
    let text = "version: 1\ndependencies: { api: { kind: webhook, breaker: none } }\nservices:\n  shop:\n    target: { http: \"http://127.0.0.1:9000/\", format: batch }\n    depends_on: api\n    events: [orders.placed]\n";
    let book = Arc::new(book::read(text, built_in()).book.expect("a book"));
    let burst = "duration: 1m\narrivals: [{ type: orders.placed, bursts: { size: 1000 }, poison: 10% }]\n";
    let report = play(&scenario(burst), &book, 3);
    assert!((70..=130).contains(&report.dead), "{}", report.dead);
    assert!(report.dependencies[0].calls < 500, "{}", report.dependencies[0].calls);
    assert_eq!(report.duplicates, 0);
}

/// A call is a call, however many deliveries it carries, and attempts are of deliveries.
#[test]
fn calls_of_batches_are_counted_as_calls() {
    let text = "version: 1\nretry_policies: { r: { delays: [1s], retries: 3, jitter: none } }\ndependencies: { api: { kind: webhook, breaker: none } }\nservices:\n  shop:\n    target: { http: \"http://127.0.0.1:9000/\", format: batch, batch_max: 5 }\n    depends_on: api\n    retry: r\n    events: [orders.placed]\n";
    let book = Arc::new(book::read(text, built_in()).book.expect("a book"));
    let burst = |more: &str, phases: &str| {
        let text = format!(
            "duration: 30s\narrivals: [{{ type: orders.placed, bursts: {{ size: 20 }}{more} }}]\ndependencies: {{ api: {{ latency: 100ms{phases} }} }}\n"
        );
        play(&scenario(&text), &book, 1)
    };
    let down = ", phases: [{ at: 0s, for: 1500ms, fails: { status: 503 } }]";
    #[rustfmt::skip]
    let cases = [
        ("all is well",     burst("", "")),
        ("some are poison", burst(", poison: 50%", "")),
        ("all come again",  burst("", down)),
    ];
    for (name, report) in &cases {
        let api = &report.dependencies[0];
        let (calls, first): (u64, u64) =
            (api.series.calls.iter().sum(), api.series.first_attempts.iter().sum());
        assert_eq!(calls, api.calls, "{name}");
        assert!(first <= calls && api.retry_rate_max <= api.call_rate_max, "{name}: {api:#?}");
        let each = report.attempts as f64 / 20.0;
        assert!((api.amplification - each).abs() < 1e-9, "{name}: {}", api.amplification);
    }
    let failed = cases.each_ref().map(|(_, report)| {
        let api = &report.dependencies[0];
        (api.calls, api.calls_failed, api.calls_failed_partly)
    });
    assert_eq!(cases.each_ref().map(|(_, report)| report.attempts)[0], 20);
    assert_eq!(failed[0], (4, 0, 0));
    // One that comes again alone is no batch, and fails as a whole.
    assert!(failed[1].1 < failed[1].2, "{failed:?}");
    assert_eq!((failed[2].1, failed[2].2), (8, 0), "{failed:?}");
}

#[test]
fn what_a_worker_tells_arrives_at_whoever_wants_it() {
    let text = "version: 1\ndependencies: { runs: { kind: webhook }, post: { kind: webhook } }\nservices:\n  work:\n    target: { exec: [\"/bin/true\"], output: orders.made }\n    depends_on: runs\n    breaker: none\n    events: [orders.placed]\n  mail:\n    target: { http: \"http://127.0.0.1:9000/\" }\n    depends_on: post\n    order: session\n    events: [orders.made]\n";
    let reading = book::read(text, built_in());
    let book = Arc::new(reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems)));
    for nodes in [1, 3] {
        let burst = format!(
            "duration: 10s\nnodes: {nodes}\narrivals: [{{ type: orders.placed, bursts: {{ size: 100 }}, sessions: 7 }}]\ndependencies:\n  runs: {{ latency: 1s }}\nfaults: [{{ at: 500ms, restart: 3s }}]\n"
        );
        let report = play(&scenario(&burst), &book, 1);
        let of = |name: &str| report.queues.iter().find(|queue| queue.name == name).expect("a queue");
        let runs = report.dependencies.iter().find(|it| it.name == "runs").expect("a dependency").calls;
        assert!(runs > 100, "{nodes} nodes: the restart meets some that run");
        assert_eq!((of("work").deliveries, of("mail").deliveries), (100, runs), "{nodes} nodes");
        let sums = (report.delivered, report.events, report.order_violations);
        assert_eq!(sums, (100 + runs, 100 + runs, 0), "{nodes} nodes: every run has a result that arrives");
    }
}

/// A dependency that can do twice what arrives, with many calls in flight and a short timeout: after a short
/// outage its own backlog keeps it from answering in time, and retries keep the backlog.
#[test]
fn a_storm_of_retries_keeps_a_dependency_down_unless_calls_in_flight_are_few() {
    let text = "duration: 5m\nsettle: 1s\narrivals: [{ type: orders.placed, rate: 10/s }]\ndependencies:\n  api: { latency: { p50: 50ms, p99: 200ms }, capacity: { rate: 20/s, queue: 1000 }, phases: [{ at: 1m, for: 1m, is: down }] }\n";
    let drain = |in_flight: u32| {
        let policy = "retry_policies:\n  eager: { initial: 1s, max: 10s, retries: 10000, jitter: full }\n";
        let more = format!(
            "{policy}dependencies:\n  api: {{ kind: webhook, breaker: none, in_flight: {in_flight} }}\n"
        );
        let report = play(&scenario(text), &book("    retry: eager\n    timeout: 1s\n", &more), 1);
        (report.dependencies[0].troubles[0].drain_ms, report.duplicates)
    };
    let (storm, duplicates) = drain(200);
    let (calm, none) = drain(5);
    assert_eq!(storm, None, "three minutes later it is still down, though nothing is wrong with it");
    assert!(duplicates > 1_000, "{duplicates}");
    assert!(calm.is_some_and(|drain| drain < 2 * 60_000), "{calm:?}");
    assert_eq!(none, 0);
}

/// Far more retries wait for their budget than fit into memory, and what is no retry does not notice.
#[test]
fn retries_that_wait_for_their_budget_keep_no_first_attempt_waiting() {
    let policy = "retry_policies:\n  again: { delays: [1s], retries: 10000, jitter: none }\n";
    let budget =
        "dependencies:\n  api: { kind: webhook, breaker: none, in_flight: 1000, retry_budget: 10% }\n";
    let text = "duration: 100s\nsettle: 1s\narrivals: [{ type: orders.placed, rate: 20/s, spacing: even }]\ndependencies:\n  api: { latency: 10ms, phases: [{ at: 0s, for: 60s, is: down }] }\n";
    let report = play(&scenario(text), &book("    retry: again\n", &format!("{policy}{budget}")), 1);
    let api = &report.dependencies[0];
    assert!(api.waiting_max > 1_000, "{}", api.waiting_max);
    assert!(
        api.series.first_attempts[..100].iter().all(|count| *count == 20),
        "{:?}",
        api.series.first_attempts
    );
}

#[test]
fn a_run_can_be_watched_and_stopped() {
    let long = scenario("duration: 1h\narrivals: [{ type: orders.placed, rate: 50/s }]\n");
    let plan = SimulationPlan { scenario: &long, book: book("", API), seed: 1 };
    let mut looks = 0;
    let stopped = run(&plan, &mut |progress| {
        looks += 1;
        assert!(progress.at <= progress.duration);
        if looks == 3 { Go::Stop } else { Go::On }
    });
    assert_eq!(stopped, Err(Cancelled));
    assert_eq!(looks, 3);
}

#[test]
fn facts_fill_in_what_a_scenario_leaves_out() {
    let text = "version: 1\ndependencies: { api: { kind: webhook, facts: { p99: 1s } } }\nservices:\n  shop:\n    target: { http: \"http://127.0.0.1:9000/\" }\n    depends_on: api\n    events: [{ type: orders.placed, facts: { rate: 20/s } }, orders.paid]\n";
    let book = Arc::new(book::read(text, built_in()).book.expect("a book"));
    let report = play(&scenario("duration: 100s\n"), &book, 1);
    assert!((1_800..2_200).contains(&report.events), "{}", report.events);
    let latency = report.dependencies[0].call_latency;
    assert!((90..=110).contains(&latency.p50_ms) && (900..=1_100).contains(&latency.p99_ms), "{latency:?}");
}

#[test]
fn expectations_are_held_against_the_report() {
    let mut text =
        "duration: 1m\narrivals: [{ type: orders.placed, rate: 10/s, spacing: even }]\nexpect:\n".to_owned();
    #[rustfmt::skip]
    let cases = [
        ("dead_letters == 0",          true,  "0"),
        ("delivered == 100%",          true,  "100.00%"),
        ("amplification < 1.5",        true,  "1.00"),
        ("amplification of api > 2",   false, "1.00"),
        ("drain < 2m",                 true,  "0s"),
        ("calls == 600",               true,  "600"),
        ("calls of api < 600",         false, "600"),
        ("attempts_max == 1",          true,  "1"),
        ("order_violations == 0",      true,  "0"),
        ("waiting == 0",               true,  "0"),
    ];
    for (expectation, ..) in cases {
        let _ = writeln!(text, "  - \"{expectation}\"");
    }
    let report = play(&scenario(&text), &book("", API), 1);
    for (told, (expectation, met, value)) in report.expectations.iter().zip(cases) {
        assert_eq!(
            (told.expectation.as_str(), told.met, told.value.to_string().as_str()),
            (expectation, met, value)
        );
    }
}
