//! Model check of the engine in virtual time, by seed: does it keep its promise, whatever fails?
//!
//! A seed gives a plan (`plan.rs`): a rule book, hundreds of events, targets with moods, a store that fails, a
//! process that crashes, operators who replay, skip, edit and purge dead letters. A world (`world.rs`) plays it
//! around the real engine, and a checker that sees nothing of the engine's inside (`checker.rs`) verifies the
//! promise. To show that the checker would notice, the engine is broken on purpose in every way of `sabotage.rs`,
//! and each must be caught.
//!
//! A failing seed prints the one command that repeats it, with all that happens.

mod books;
mod checker;
mod dice;
mod orders;
mod plan;
mod sabotage;
mod store;
mod targets;
mod world;
mod writer;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use self::checker::Violation;
use self::plan::Plan;
use self::sabotage::Sabotage;
use self::world::{Summary, Trace, World};

/// Seeds that must keep the promise, unless `REDRIVE_SEEDS` asks for more.
const SEEDS: u64 = 2_000;
/// Seeds within which a sabotage must be caught.
const SEEDS_TO_CATCH: u64 = 400;
const EVENTS_MIN: usize = 300;
const CRASHES_MIN: u32 = 2;

fn play(seed: u64, sabotage: Option<Sabotage>, trace: Trace) -> Result<Summary, Violation> {
    let result = catch_unwind(AssertUnwindSafe(|| World::new(Plan::of(seed), sabotage, trace).play()));
    result.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Violation { rule: "the engine never panics", how: said.unwrap_or_default() })
    })
}

/// Plays seeds on all cores, each once, until one fails.
fn first_failing(seeds: u64, sabotage: Option<Sabotage>) -> (Vec<Summary>, Option<(u64, Violation)>) {
    let next = AtomicU64::new(0);
    let found = Mutex::new((Vec::new(), None::<(u64, Violation)>));
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let failed = found.lock().unwrap_or_else(PoisonError::into_inner).1.is_some();
                    if seed >= seeds || failed {
                        return;
                    }
                    let result = play(seed, sabotage, Trace::Silent);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    match result {
                        Ok(summary) => found.0.push(summary),
                        Err(violation) => {
                            if found.1.as_ref().is_none_or(|(first, _)| seed < *first) {
                                found.1 = Some((seed, violation));
                            }
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn command(seed: u64) -> String {
    format!("REDRIVE_SEED={seed} cargo test -p redrive-core any_seed_keeps_the_promise -- --nocapture")
}

/// A number from the environment of the test run.
fn wanted(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "a seed to repeat is named there")]
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Says it whether or not the test's output is kept for failures: a seed that was not played proves nothing.
fn announce(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
fn any_seed_keeps_the_promise() {
    if let Some(seed) = wanted("REDRIVE_SEED") {
        let plan = Plan::of(seed);
        println!("{}", plan.books.iter().map(|book| book.text.as_str()).collect::<Vec<_>>().join("---\n"));
        println!("{:?}\n{:?}\n{:?}", plan.bounds, plan.faults, plan.ends);
        match play(seed, None, Trace::Told) {
            Ok(summary) => println!("seed {seed} keeps the promise: {summary:?}"),
            Err(Violation { rule, how }) => panic!("seed {seed} breaks \"{rule}\": {how}"),
        }
        return;
    }
    let (summaries, failed) = first_failing(wanted("REDRIVE_SEEDS").unwrap_or(SEEDS), None);
    if let Some((seed, Violation { rule, how })) = failed {
        panic!("seed {seed} breaks \"{rule}\": {how}\nrepeat it: {}", command(seed));
    }
    for summary in &summaries {
        assert!(summary.events >= EVENTS_MIN, "{summary:?}");
        assert!(summary.crashes >= CRASHES_MIN, "{summary:?}");
    }
    let sum = |of: fn(&Summary) -> u64| summaries.iter().map(of).sum::<u64>();
    announce(&format!(
        "{} seeds keep the promise: {} events, {} crashes, {} calls, {} of them repeated, {} delivered, {} dead, {} letters skipped, purged or edited, {} sent by {} replays, of which {} stopped",
        summaries.len(),
        sum(|summary| summary.events as u64),
        sum(|summary| u64::from(summary.crashes)),
        sum(|summary| summary.seen.calls),
        sum(|summary| summary.seen.repeated),
        sum(|summary| summary.seen.delivered),
        sum(|summary| summary.seen.dead),
        sum(|summary| summary.seen.closed),
        sum(|summary| summary.seen.sent),
        sum(|summary| summary.seen.replays),
        sum(|summary| summary.seen.stopped),
    ));
}

#[test]
fn every_sabotage_is_caught() {
    let mut missed = Vec::new();
    for way in Sabotage::ALL {
        match first_failing(SEEDS_TO_CATCH, Some(way)) {
            (_, Some((seed, Violation { rule, .. }))) => {
                announce(&format!("{way:?} is caught by seed {seed}: {rule}"));
            }
            (_, None) => missed.push(way),
        }
    }
    assert!(missed.is_empty(), "not caught within {SEEDS_TO_CATCH} seeds: {missed:?}");
}
