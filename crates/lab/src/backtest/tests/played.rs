//! Records of whole days that the engine itself made, with restarts, stalls, breakers and sessions in them.

use std::sync::Arc;

use super::*;
use crate::scenario;
use crate::simulate::{self, Go, record_test};
use redrive_core::hash::stable_64_of;

/// When all of it is over.
const EVENING: Timestamp = at(86_400);

/// Days that have everything in them.
#[rustfmt::skip]
const DAYS: [(&str, &str); 4] = [
    ("an outage with a restart, a stall and sessions",
     "duration: 90s\narrivals: [{ type: orders.placed, rate: 10/s, sessions: 40, poison: 2% }]\ndependencies:\n  api: { phases: [{ at: 10s, for: 30s, is: down }, { at: 50s, for: 10s, slow: 5s }] }\nfaults: [{ at: 20s, restart: 5s }, { at: 60s, store_stall: 5s }]\n"),
    ("a brown-out with a restart that outlasts windows",
     "duration: 1m\narrivals: [{ type: orders.placed, rate: 10/s }]\ndependencies:\n  api: { phases: [{ at: 5s, for: 40s, fails: [{ status: 503, share: 60% }, { status: 500, share: 10% }] }] }\nfaults: [{ at: 20s, restart: 2m }]\n"),
    ("throttling",
     "duration: 1m\narrivals: [{ type: orders.placed, rate: 8/s }]\ndependencies:\n  api: { phases: [{ at: 0s, for: 40s, throttled: { rate: 5/s, retry_after: 3s } }] }\n"),
    ("more than it can take, and it hangs",
     "duration: 40s\narrivals: [{ type: orders.placed, rate: 20/s, sessions: 200 }]\ndependencies:\n  api: { capacity: { concurrent: 4, queue: 50, collapse: 20% }, phases: [{ at: 20s, for: 10s, is: hanging }] }\n"),
];

/// What a service may say of its retries; `five` is a breaker.
#[rustfmt::skip]
const BOOKS: [(&str, &str); 7] = [
    ("the usual",            ""),
    ("little patience",      "    retry: short\n    hold_max: 2s\n"),
    ("a deadline",           "    retry: long\n    deadline: 8s\n    breaker: none\n"),
    ("a window",             "    retry: windowed\n    on_failure: { unknown: short }\n    breaker: none\n"),
    ("a window and holds",   "    retry: windowed\n    breaker: five\n"),
    ("no connection",        "    retry: long\n    fatal_after: 5s\n    breaker: none\n"),
    ("given up when open",   "    breaker: five\n    when_open: dead-letter\n"),
];

/// The text of a book; a line more at its top moves every other line.
fn text(inside: &str, top: &str) -> String {
    format!(
        "{top}version: 1
retry_policies:
  short: {{ initial: 1s, factor: 2, max: 8s, retries: 3, jitter: full }}
  long: {{ initial: 500ms, factor: 2, max: 5s, retries: 20, jitter: equal }}
  windowed: {{ initial: 500ms, factor: 3, max: 20s, retries: 20, jitter: decorrelated, window: 15s }}
breakers:
  five: {{ trip: {{ consecutive: 5 }}, open: 5s }}
dependencies:
  api: {{ kind: webhook, in_flight: 100 }}
services:
  shop:
    target: {{ http: \"http://127.0.0.1:9000/\" }}
    depends_on: api
    order: session
    timeout: 2s
{inside}    events: [\"orders.*\"]
"
    )
}

/// Plays a day by a book, and keeps its record.
fn day(scenario: &str, book: &RuleBook, seed: u64) -> (simulate::SimulationReport, Vec<Kept>) {
    let reading = scenario::read(&format!("version: 1\n{scenario}"));
    let scenario = reading.scenario.unwrap_or_else(|| panic!("{:?}", reading.problems));
    let plan = simulate::SimulationPlan { scenario: &scenario, book: Arc::new(book.clone()), seed };
    let (report, stories) =
        record_test::kept(|| simulate::run(&plan, &mut |_| Go::On).expect("no run is stopped"));
    let queue = QueueName { service: Name::new("shop").expect("a name"), channel: None };
    let kept = stories.into_iter().map(|(id, stories)| Kept {
        id,
        queue: queue.clone(),
        event_type: "orders.placed".to_owned(),
        accepted_at: stories[0].started_at,
        state: RecordedState::Waiting,
        replays: ReplayHistory::None,
        stories,
    });
    (report, kept.collect())
}

fn node_seed(seed: u64) -> Seed {
    Seed(stable_64_of(seed, 0))
}

/// Holds a record against the book that it was made by, a line further down.
fn assert_unchanged(name: &str, scenario: &str, inside: &str, seed: u64) -> Vec<Kept> {
    let old = read(&text(inside, ""));
    let moved = read(&text(inside, "# The same, one line further down.\n"));
    let (played, kept) = day(scenario, &old, seed);
    let report = tested(&moved, &old, &kept, node_seed(seed), EVENING);
    assert_eq!(report.changes, [], "{name}");
    assert_eq!(report.untold, [], "{name}");
    assert_eq!(report.certainty.certain, report.deliveries, "{name}: {:?}", report.certainty);
    assert_eq!(report.before, report.after, "{name}");
    assert_eq!((report.before.delivered, report.before.dead), (played.delivered, played.dead), "{name}");
    assert_eq!(report.until_delivered.before, report.until_delivered.after, "{name}");
    assert_eq!(report.until_dead.sum_ms.before, report.until_dead.sum_ms.after, "{name}");
    let calls = report.dependencies[0].calls;
    assert_eq!(calls.before, calls.after, "{name}");
    // A call that went down with its node is on no record.
    assert!(calls.before <= played.attempts && calls.before + 20 > played.attempts, "{name}");
    kept
}

#[test]
fn the_book_that_was_running_changes_nothing_and_that_is_certain() {
    let mut deaths = BTreeSet::new();
    for (day_name, scenario) in DAYS {
        for (book_name, inside) in BOOKS {
            for seed in 1..=2 {
                let name = format!("{day_name}, {book_name}, seed {seed}");
                let kept = assert_unchanged(&name, scenario, inside, seed);
                let stories = kept.iter().flat_map(|kept| &kept.stories);
                deaths.extend(stories.filter_map(|story| match &story.verdict {
                    RecordedVerdict::Dead { code, .. } => Some(code.to_string()),
                    _ => None,
                }));
            }
        }
    }
    // Every way to die was among them, so that each of them is walked.
    let all = [
        "CIRCUIT_BREAKER_OPEN",
        "CONNECTION_FAILING",
        "DEADLINE_EXCEEDED",
        "HOLD_EXPIRED",
        "MAX_RETRIES_EXCEEDED",
        "RETRY_WINDOW_EXCEEDED",
        "UNPROCESSABLE",
    ];
    assert_eq!(deaths.iter().map(String::as_str).collect::<Vec<_>>(), all);
}

#[test]
fn what_is_foretold_of_an_outage_is_what_happens() {
    let outage = "duration: 2m\narrivals: [{ type: orders.placed, rate: 10/s, spacing: even }]\ndependencies:\n  api: { latency: 20ms, phases: [{ at: 30s, for: 20s, is: down }] }\n";
    let with = |retries: u32| {
        let delays = vec!["4s"; retries as usize].join(", ");
        read(&format!(
            "version: 1\nretry_policies:\n  few: {{ delays: [{delays}], retries: {retries}, jitter: none }}\ndependencies:\n  api: {{ kind: webhook, breaker: none, in_flight: 1000 }}\nservices:\n  shop:\n    target: {{ http: \"http://127.0.0.1:9000/\" }}\n    depends_on: api\n    retry: few\n    events: [\"orders.*\"]\n"
        ))
    };
    for (from, to) in [(2, 1), (2, 3), (1, 4), (4, 1), (3, 2)] {
        let (old, new) = (with(from), with(to));
        let (_, kept) = day(outage, &old, 1);
        let foretold = tested(&new, &old, &kept, node_seed(1), EVENING);
        let (played, _) = day(outage, &new, 1);
        let calls = foretold.dependencies[0].calls.after;
        assert_eq!(
            (foretold.after.delivered, foretold.after.dead, foretold.after.unknown, calls),
            (played.delivered, played.dead, 0, played.attempts),
            "from {from} to {to} retries"
        );
    }
}

/// A dependency that is down for half a minute, behind a breaker.
const DOWN: &str = "duration: 90s\narrivals: [{ type: orders.placed, rate: 10/s, spacing: even }]\ndependencies:\n  api: { latency: 20ms, phases: [{ at: 20s, for: 30s, is: down }] }\n";

#[test]
fn more_patience_behind_a_breaker_is_foretold() {
    let with = |hold_max: &str| {
        read(&text(&format!("    retry: long\n    breaker: five\n    hold_max: {hold_max}\n"), ""))
    };
    let (little, much) = (with("2s"), with("10m"));
    let (_, kept) = day(DOWN, &little, 1);
    let foretold = tested(&much, &little, &kept, node_seed(1), EVENING);
    let (played, _) = day(DOWN, &much, 1);
    assert!(foretold.before.dead > 200, "{:?}", foretold.before);
    assert_eq!(
        (foretold.after.dead, foretold.after.unknown, played.dead),
        (0, 0, 0),
        "{:?}",
        foretold.unknown
    );
    assert_eq!(foretold.after.delivered, played.delivered);
    // And the other way round: what was held for longer than that would have died.
    let (_, kept) = day(DOWN, &much, 1);
    let foretold = tested(&little, &much, &kept, node_seed(1), EVENING);
    let (played, _) = day(DOWN, &little, 1);
    let apart = foretold.after.dead.abs_diff(played.dead);
    assert!(apart * 10 <= played.dead, "{} are foretold, and it was {}", foretold.after.dead, played.dead);
}
