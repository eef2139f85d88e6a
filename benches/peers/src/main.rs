//! Measures the guard of a call, breaker and retry policy, in Redrive and in its peers, in one run.
//!
//! Two paths are measured of what decides: a call that succeeds behind a closed breaker, and one that fails, so
//! that the breaker learns of it and the delay of the first retry is decided; nobody sleeps. Two more are of the
//! whole async guard: a future that is ready at once, and one that is waited for under a time limit. At last,
//! several threads call through one guard. All subjects take turns in every round, so that the noise of the
//! machine hits them alike.

mod allocations;
mod call;
mod contention;
mod measure;
mod ours;
mod peers;
mod whole;

use std::process::ExitCode;

use serde_json::json;

use crate::measure::{Figures, Subject};

/// What is said beside the figures, for they mean nothing without it.
const NOTES: [&str; 9] = [
    "breaker closed; policy: 3 retries, 100ms doubling up to 10s, with jitter; nobody sleeps",
    "path success: the call succeeds at once; path failure: it fails, the breaker counts it, the first delay is decided",
    "median over interleaved rounds on one thread; the spread is the middle half of the rounds",
    "allocations are counted in a pass of their own, since counting takes time",
    "tower-resilience is async: its futures are polled in place with a waker that does nothing, so no executor is paid for",
    "x is the ratio to ours, and ours includes the clock that its caller reads",
    "async: `redrive` is the library's guard with breaker, permits, rate, retry budget, time limit and idempotency key; its futures are polled in place too, in a runtime that is there for the timers",
    "threads: wall time for all calls of all threads divided by their number; allocations are not counted there",
    "while closed, failsafe (failures in a row) and recloser (share of the last calls) read no clock; tower-resilience does",
];

struct Path {
    name: &'static str,
    figures: Vec<Figures>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let print: fn(&[Path]) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => print_text,
        ["--json"] => print_json,
        _ => {
            eprintln!("usage: redrive-peers [--json]");
            return ExitCode::from(2);
        }
    };
    let paths = [
        Path { name: "success", figures: measure::run(all(ours::success(), peers::success())) },
        Path { name: "failure", figures: measure::run(all(ours::failure(), peers::failure())) },
        Path { name: "async, ready at once", figures: measure::run(whole::ready()) },
        Path { name: "async, waits under a limit", figures: measure::run(whole::pending()) },
        Path { name: "1 thread", figures: contention::run(1) },
        Path { name: "2 threads on one breaker", figures: contention::run(2) },
        Path { name: "4 threads on one breaker", figures: contention::run(4) },
        Path { name: "8 threads on one breaker", figures: contention::run(8) },
    ];
    print(&paths);
    ExitCode::SUCCESS
}

fn all(ours: Vec<Subject>, peers: Vec<Subject>) -> Vec<Subject> {
    ours.into_iter().chain(peers).collect()
}

fn print_text(paths: &[Path]) {
    for path in paths {
        let base = base(path);
        let title = format!("path: {}", path.name);
        println!("{title:<44} {:>9} {:>17} {:>12} {:>7}", "ns/call", "spread", "allocations", "x");
        for figures in &path.figures {
            let Figures { name, ns, ns_low, ns_high, allocations } = figures;
            let spread = format!("{ns_low:.1}–{ns_high:.1}");
            let counted = if allocations.is_nan() { "–".to_owned() } else { format!("{allocations:.2}") };
            println!("{name:<44} {ns:>9.1} {spread:>17} {counted:>12} {:>7.2}", ns / base);
        }
        println!();
    }
    for note in NOTES {
        println!("- {note}");
    }
}

fn print_json(paths: &[Path]) {
    let rows = paths.iter().flat_map(|path| {
        path.figures.iter().map(move |figures| {
            json!({
                "path": path.name,
                "name": figures.name,
                "ns_per_call": figures.ns,
                "ns_per_call_low": figures.ns_low,
                "ns_per_call_high": figures.ns_high,
                "allocations_per_call": figures.allocations,
                "ratio_to_ours": figures.ns / base(path),
            })
        })
    });
    let report = json!({ "rows": rows.collect::<Vec<_>>(), "notes": NOTES });
    println!("{report:#}");
}

/// What the ratios refer to.
fn base(path: &Path) -> f64 {
    let ours = path.figures.iter().find(|figures| [ours::WITH_CLOCK, whole::OURS].contains(&figures.name));
    ours.expect("ours is among those measured").ns
}
