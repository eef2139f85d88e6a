//! Instruction counts of the hot paths beside a stored baseline, so that a change that makes one of them dearer is
//! noticed on any machine, however busy.
//!
//! The test runs itself under callgrind, each path with few rounds and with more; the difference is what the further
//! rounds cost. Only functions of our own crates count: compilers and C libraries differ from machine to machine. It is
//! the test build that is counted, since another build would take minutes. A deliberate change writes the baseline anew:
//! `REDRIVE_UPDATE=1 cargo test -p redrive-node --test instructions`. `scripts/compare-instructions` compares two builds
//! exactly.

#[path = "../benches/stage/mod.rs"]
mod stage;

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use redrive::Book;
use redrive_core::book;
use redrive_core::book::connectors::built_in;
use redrive_core::ids::{Attempt, DeliveryId, Seed};
use redrive_core::policy::answer::{AnswerKind, TargetAnswer};
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::classify;
use redrive_core::policy::decide::{AttemptResult, History, Moment, decide};
use redrive_core::time::Timestamp;

use self::stage::{Kind, Stage};

/// How far a count may be from the baseline, in hundredths of it: compilers of other versions stay within.
const TOLERANCE: u64 = 20;

/// A path: its name, what it runs, and the rounds of the short and of the long run.
struct HotPath {
    name: &'static str,
    run: fn(u64),
    rounds: [u64; 2],
}

const PATHS: [HotPath; 6] = [
    HotPath { name: "accept", run: accept, rounds: [2, 6] },
    HotPath { name: "accept and settle", run: accept_and_settle, rounds: [2, 6] },
    HotPath { name: "accept and settle in sessions", run: accept_and_settle_in_sessions, rounds: [2, 6] },
    HotPath { name: "refuse a duplicate", run: refuse_duplicates, rounds: [2, 6] },
    HotPath { name: "decide", run: decide_retries, rounds: [100, 1_100] },
    HotPath { name: "guard", run: guard, rounds: [100, 600] },
];

/// Events in one batch of the store.
const BATCH: usize = 32;

/// The argument that makes this program run one path instead of comparing all.
const RUN: &str = "--run-path";

/// The argument that makes it print the counts alone.
const COUNTS: &str = "--counts";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [run, name, rounds] if run == RUN => {
            let path = PATHS.iter().find(|path| path.name == name).expect("a path of the table");
            (path.run)(rounds.parse().expect("a number of rounds"));
            ExitCode::SUCCESS
        }
        [counts] if counts == COUNTS => {
            for (name, count) in counted() {
                println!("{name}\t{count}");
            }
            ExitCode::SUCCESS
        }
        // Another test was asked for by its name.
        [filter, ..] if !filter.starts_with('-') && !"instructions".contains(filter.as_str()) => {
            ExitCode::SUCCESS
        }
        _ => compare(),
    }
}

/// Counts every path and compares it with the baseline.
fn compare() -> ExitCode {
    let counts = counted();
    let baseline = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions.json");
    if std::env::var_os("REDRIVE_UPDATE").is_some() {
        let text = serde_json::to_string_pretty(&counts).expect("counts are JSON") + "\n";
        fs::write(&baseline, text).expect("the baseline is written");
    }
    let text = fs::read_to_string(&baseline).expect("the baseline is part of the project");
    let expected: BTreeMap<String, u64> =
        serde_json::from_str(&text).expect("the baseline is a map of counts");
    let mut failed = 0_u32;
    for (name, counted) in &counts {
        let Some(&expected) = expected.get(*name) else { panic!("{name} has no baseline: write it anew") };
        let is_near = counted.abs_diff(expected) * 100 <= expected * TOLERANCE;
        failed += u32::from(!is_near);
        let verdict = if is_near { "ok" } else { "FAILED" };
        println!("test {name}: {counted} instructions a round, {expected} in the baseline ... {verdict}");
    }
    let passed = counts.len() - failed as usize;
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn counted() -> BTreeMap<&'static str, u64> {
    PATHS.iter().map(|path| (path.name, count(path))).collect()
}

/// Instructions of our own code in one further round.
fn count(path: &HotPath) -> u64 {
    let [short, long] = path.rounds.map(|rounds| instructions(path.name, rounds));
    let [few, many] = path.rounds;
    (long - short) / (many - few)
}

/// Instructions of our own code in one run of a path.
fn instructions(name: &str, rounds: u64) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let profile: PathBuf = folder.path().join("profile");
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe().expect("this program has a path"))
        .args([RUN, name, &rounds.to_string()])
        .output()
        .expect("valgrind is installed");
    assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
    own_cost(&fs::read_to_string(profile).expect("callgrind wrote a profile"))
}

/// The sum of what functions of our own crates cost themselves, in a profile of callgrind.
fn own_cost(profile: &str) -> u64 {
    let (mut sum, mut is_ours, mut is_call) = (0, false, false);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            is_ours = name.contains("redrive");
        } else if line.starts_with("calls=") {
            // The next line has the cost of what is called, which is counted where it stands.
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or_default();
            if is_ours && !is_call {
                sum += cost;
            }
            is_call = false;
        }
    }
    sum
}

fn accept(rounds: u64) {
    write(Stage::new(Kind::Held), rounds);
}

fn accept_and_settle(rounds: u64) {
    write(Stage::new(Kind::Unordered), rounds);
}

fn accept_and_settle_in_sessions(rounds: u64) {
    write(Stage::new(Kind::InSessions), rounds);
}

fn refuse_duplicates(rounds: u64) {
    write(Stage::new(Kind::Repeated), rounds);
}

fn write(mut stage: Stage, rounds: u64) {
    for _ in 0..rounds {
        let batch = stage.batch(BATCH);
        stage.write(&batch);
    }
}

/// Classifies an answer and decides on the retry.
fn decide_retries(rounds: u64) {
    let text = "version: 1\nservices:\n  s:\n    target: { http: \"http://127.0.0.1/\" }\n    \
                classify: [{ status: 404, as: transient, because: late }]\n    events: [a.b]\n";
    let book = book::read(text, built_in()).book.expect("a sound book");
    let rule = book.rule("s", None, "a.b").expect("the book has the row");
    let unavailable = TargetAnswer {
        what: AnswerKind::Http { status: 503, headers: &(), body: "" },
        message: "",
        retry_after: None,
    };
    let (now, history) = (Timestamp::from_millis(1_700_000_000_000), History::new());
    for round in 0..rounds {
        let ended =
            AttemptResult::Outcome(classify(black_box(&unavailable), &rule.classify, Category::Transient));
        let moment =
            Moment { now, seed: Seed(7), delivery: DeliveryId(round.into()), attempt: Attempt::FIRST };
        black_box(decide(rule, &history, &ended, &moment));
    }
}

/// Calls that succeed, through breaker, throttle and timeout.
fn guard(rounds: u64) {
    let text =
        "version: 1\ndependencies:\n  bank: { kind: invoke, retry: standard, timeout: 2s, in_flight: 8 }\n";
    let bank = Book::parse(text).expect("a sound book").guard("bank").expect("the book has it");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        for _ in 0..rounds {
            let answer = bank.call(|_| async { Ok::<_, std::io::Error>(black_box(7)) }).await;
            assert!(answer.is_ok());
        }
    });
}
