//! `redrive-bench`: that it measures what it says, keeps its promises while it does, and cleans up.
//!
//! No figure is asserted: what a machine can do is no property of the program.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_redrive-bench");

fn bench(folder: &Path, arguments: &[&str]) -> Output {
    let server = Path::new(BENCH).with_file_name("redrive");
    assert!(
        server.exists(),
        "the tests of the workspace build it; alone, `cargo build -p redrive-server` does"
    );
    Command::new(BENCH).args(arguments).current_dir(folder).output().expect("it was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Every row of the scenarios below, in the order of their names.
const ROWS: [&str; 26] = [
    "accept.delivering.rate",
    "accept.paused.cpu",
    "accept.paused.full.p99",
    "accept.paused.p99",
    "accept.paused.p999",
    "accept.paused.queued",
    "accept.paused.rate",
    "accept.refused",
    "deliver.cpu",
    "deliver.latency.p50",
    "deliver.latency.p99",
    "deliver.latency.queued",
    "deliver.lost",
    "deliver.memory.idle",
    "deliver.memory.peak",
    "deliver.rate",
    "deliver.repeated",
    "hooks.p50",
    "hooks.p99",
    "hooks.p999",
    "hooks.refused",
    "kill.delivering",
    "kill.lost",
    "kill.out-of-order",
    "kill.ready",
    "kill.repeated",
];

#[test]
fn a_quick_run_measures_everything_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder for the test can be made");
    let scenarios = ["kill", "accept", "deliver", "hooks"];
    let flags = ["--quick", "--format", "json", "--data", "."];
    let run = bench(folder.path(), &[scenarios.as_slice(), flags.as_slice()].concat());
    let report: Value = serde_json::from_slice(&run.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&run.stdout), text(&run.stderr)));

    let rows = report["rows"].as_array().expect("a list");
    let mut keys: Vec<&str> = rows.iter().map(|row| row["key"].as_str().expect("a name")).collect();
    assert!(keys[0].starts_with("accept."), "scenarios come in the order of the help: {keys:?}");
    keys.sort_unstable();
    assert_eq!(keys, ROWS);

    for row in rows {
        let measured = row["measured"]["value"].as_f64().expect("a number");
        assert!(measured.is_finite() && measured >= 0.0, "{row}");
        if row["nature"] == "promise" {
            assert_eq!(row["verdict"], "kept", "{row}");
        } else if !["deliver.cpu", "accept.paused.cpu", "deliver.latency.queued", "accept.paused.queued"]
            .contains(&row["key"].as_str().expect("a name"))
        {
            // CPU time is counted in steps that a short run may not reach, and an idle machine keeps no thread waiting.
            assert!(measured > 0.0, "{row}");
        }
        let is_timed =
            ["accept.paused.p99", "accept.paused.queued", "deliver.latency.p99", "deliver.latency.queued"];
        if is_timed.contains(&row["key"].as_str().expect("a name")) {
            assert!(
                row["beside"]["value"].as_f64().is_some(),
                "beside the bare limit at the same rate: {row}"
            );
        }
        if row["budget"].as_str().is_some_and(|budget| budget.starts_with('≥')) {
            assert!(row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{row}");
        }
    }
    assert_eq!(report["length"], "quick");
    assert!(report["machine"]["sync"]["count"].as_u64().is_some_and(|count| count > 0), "{report}");
    assert!(report["bare_handler"]["per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let left = std::fs::read_dir(folder.path()).expect("the folder is there").count();
    assert_eq!(left, 0, "what was made for the run goes with it");
}

#[test]
fn what_cannot_be_is_refused() {
    let here = Path::new(".");
    for wrong in [&["everything"][..], &["--format=xml"], &["--quick", "--full"], &["--redrive", "nowhere"]] {
        assert_eq!(bench(here, wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn its_other_processes_are_not_in_the_help() {
    let help = text(&bench(Path::new("."), &["--help"]).stdout);
    assert!(help.contains("[SCENARIO]"), "{help}");
    assert!(!help.contains("role") && !help.contains("COMMAND"), "{help}");
}
