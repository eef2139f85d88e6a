//! Measures the guard of a call, breaker and retry policy, in Redrive and in its peers, in one run.
//!
//! Two paths are measured: a call that succeeds behind a closed breaker, and one that fails, so that
//! the breaker learns of it and the delay of the first retry is decided; nobody sleeps. All subjects
//! take turns in every round, so that the noise of the machine hits them alike.

mod allocations;
mod call;
mod measure;
mod ours;
mod peers;

use std::process::ExitCode;

use serde_json::json;

use crate::measure::{Figures, Subject};

/// What is said beside the figures, for they mean nothing without it.
const NOTES: [&str; 7] = [
    "breaker closed; policy: 3 retries, 100ms doubling up to 10s, with jitter; nobody sleeps",
    "path success: the call succeeds at once; path failure: it fails, the breaker counts it, the first delay is decided",
    "median over interleaved rounds on one thread; the spread is the middle half of the rounds",
    "allocations are counted in a pass of their own, since counting takes time",
    "tower-resilience is async: its futures are polled in place with a waker that does nothing, so no executor is paid for",
    "x is the ratio to ours, and ours includes the clock that its caller reads",
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
            println!("{name:<44} {ns:>9.1} {spread:>17} {allocations:>12.2} {:>7.2}", ns / base);
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
    let ours = path.figures.iter().find(|figures| figures.name == ours::WITH_CLOCK);
    ours.expect("ours is among those measured").ns
}
