//! `redrive backtest`: what happened on a real server, held against changed rules, while it runs and after it stopped.

mod kinds;

use std::collections::BTreeSet;

use insta::assert_snapshot;
use serde_json::Value;

use crate::run::Folder;
use crate::server::Server;
use crate::target::{Call, Say, Target, status};

/// What a target says: orders that are `late` are taken at the third attempt, those that are `odd` never are.
fn script(call: &Call) -> Say {
    let body = String::from_utf8_lossy(&call.body).into_owned();
    if body.contains("late") && call.nth < 3 {
        status(503)
    } else if body.contains("odd") {
        status(404)
    } else {
        status(200)
    }
}

/// One service with so many retries; `more` are further lines of it.
fn book(target: &Target, retries: u32, more: &str) -> String {
    format!(
        "version: 1
retry_policies:
  quick: {{ initial: 20ms, max: 20ms, retries: {retries}, jitter: full }}
services:
  orders:
    target: {{ http: \"{}\" }}
    retry: quick
    breaker: none
{more}    events: [\"orders.*\"]
",
        target.url()
    )
}

/// A day on a server: 20 orders, of which three are late and two are odd.
fn day() -> (Target, Folder, Server) {
    let target = Target::start(script);
    let folder = Folder::with("redrive.yaml", &book(&target, 3, ""));
    let server = Server::start(&folder);
    for number in 0..15 {
        server.accept("orders.placed", &format!("fine-{number}"), "");
    }
    for id in ["late-1", "late-2", "late-3"] {
        server.accept("orders.placed", id, "");
    }
    for id in ["odd-1", "odd-2"] {
        server.accept("orders.placed", id, "");
        server.until(id, "dead");
    }
    for id in ["late-1", "late-2", "late-3", "fine-0", "fine-14"] {
        server.until(id, "delivered");
    }
    for number in 0..15 {
        server.until(&format!("fine-{number}"), "delivered");
    }
    (target, folder, server)
}

/// The page with what differs from run to run left out: ids and times.
fn masked(page: &str) -> String {
    let mask = |line: &str| {
        if let Some((before, _)) = line.split_once(" of the last ") {
            return format!("{before} of the last TIME");
        }
        if line.ends_with('s') && (line.starts_with("delivered  ") || line.starts_with("given up  ")) {
            return format!("{} TIMES", line.split("  ").next().unwrap_or_default());
        }
        if line.starts_with("time until") {
            return line.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        let is_id = |word: &str| word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        line.split(' ').map(|word| if is_id(word) { "DELIVERY" } else { word }).collect::<Vec<_>>().join(" ")
    };
    page.lines().map(|line| mask(line) + "\n").collect()
}

fn json(folder: &Folder, rules: &str) -> Value {
    let printed = folder.run(&["backtest", "--data", "data", "--rules", rules, "--format", "json"]).printed();
    serde_json::from_str(&printed).expect("JSON")
}

/// Holds the day against the same rules, against fewer retries, and against one for what is missing.
#[track_caller]
fn compare(folder: &Folder, late: &[String], when: &str) {
    let same = json(folder, "same.yaml");
    assert_eq!((&same["deliveries"], &same["changed"]), (&20.into(), &0.into()), "{when}: {same}");
    assert_eq!(same["certainty"]["certain"], 20, "{when}: {same}");
    assert_eq!(same["before"], same["after"], "{when}");
    assert_eq!(same["untold"].as_array().map(Vec::len), Some(0), "{when}: {same}");

    let fewer = json(folder, "fewer.yaml");
    assert_eq!(
        (&fewer["changed"], &fewer["certainty"]["certain"]),
        (&3.into(), &20.into()),
        "{when}: {fewer}"
    );
    let change = &fewer["changes"][0];
    assert_eq!((&change["from"], &change["to"]), (&"delivered".into(), &"dead".into()), "{when}");
    let examples = change["examples"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let named: BTreeSet<&str> = examples.collect();
    assert_eq!(named, late.iter().map(String::as_str).collect(), "{when}: they are named");

    // What was answered 404 a moment ago would have been again.
    let lenient = json(folder, "lenient.yaml");
    assert_eq!(
        (&lenient["changed"], &lenient["certainty"]["likely"]),
        (&0.into(), &2.into()),
        "{when}: {lenient}"
    );
    let calls = &lenient["dependencies"][0]["calls"];
    assert_eq!((&calls["before"], &calls["after"]), (&26.into(), &32.into()), "{when}");

    // When a breaker would have opened that was not there is on no record.
    let guarded = json(folder, "guarded.yaml");
    assert_eq!(
        (&guarded["changed"], &guarded["certainty"]["certain"], &guarded["certainty"]["unknown"]),
        (&0.into(), &0.into(), &5.into()),
        "{when}: {guarded}"
    );
    let calls = &guarded["dependencies"][0];
    assert_eq!(
        (&calls["calls"]["before"], &calls["certainty"]["certain"]),
        (&26.into(), &0.into()),
        "{when}"
    );
    assert_eq!(calls["certainty"], guarded["certainty"], "{when}");
}

/// Rule books that differ from the one that was running.
fn write_books(folder: &Folder, target: &Target) {
    let usual = book(target, 3, "");
    folder.write("same.yaml", format!("# The same rules, one line further down.\n{usual}"));
    folder.write("fewer.yaml", book(target, 1, ""));
    folder.write("lenient.yaml", book(target, 3, "    classify: [{ status: 404, as: transient }]\n"));
    folder.write("slower.yaml", usual.replace("20ms", "5m").replace("full", "none"));
    folder.write("guarded.yaml", usual.replace("    breaker: none\n", ""));
    folder.write("gone.yaml", usual.replace("orders", "bills"));
}

#[test]
fn a_day_is_held_against_changed_rules_while_the_server_runs_and_after() {
    let (target, folder, server) = day();
    write_books(&folder, &target);
    let id = |event: &&str| server.delivery(event)["id"].as_str().expect("an id").to_owned();
    let late: Vec<String> = ["late-1", "late-2", "late-3"].iter().map(id).collect();
    compare(&folder, &late, "while it runs");
    let url = format!("http://{}", server.client.address);
    let example = folder.run(&["why", &late[0][..8], "--server", &url]).printed();
    assert!(example.contains("503"), "what the page names can be asked for: {example}");
    server.stop().assert_calm();
    let before = std::fs::read(folder.path("data/redrive.db")).expect("the store is there");
    compare(&folder, &late, "after it stopped");
    let after = std::fs::read(folder.path("data/redrive.db")).expect("the store is there");
    assert!(before == after, "it only reads");

    let page = |rules: &str| masked(&folder.run(&["backtest", "--data", "data", "--rules", rules]).printed());
    let pages =
        ["same.yaml", "fewer.yaml", "lenient.yaml", "slower.yaml", "gone.yaml", "guarded.yaml"].map(page);
    assert_snapshot!("pages", pages.join("\n---\n\n"));
}

#[test]
fn a_store_that_is_written_to_is_told_as_it_was_when_the_reading_began() {
    let target = Target::start(script);
    let folder = Folder::with("redrive.yaml", &book(&target, 3, ""));
    let server = Server::start(&folder);
    let empty = folder.run(&["backtest", "--data", "data"]).refused();
    assert!(empty.contains("data has no deliveries to compare"), "{empty}");
    server.accept("orders.placed", "first", "");
    server.until("first", "delivered");
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for number in 0..300 {
                let kind =
                    ["fine", "late", "odd"][usize::from(number % 7 == 0) + usize::from(number % 21 == 0)];
                server.accept("orders.placed", &format!("{kind}-{number}"), "");
            }
        });
        let mut looks = 0;
        while looks < 2 || !sending.is_finished() {
            let report = json(&folder, "redrive.yaml");
            let all = &report["deliveries"];
            assert_eq!((&report["changed"], &report["certainty"]["certain"]), (&0.into(), all), "{report:#}");
            assert_eq!(report["before"], report["after"], "{report:#}");
            looks += 1;
        }
    });
    server.stop().assert_calm();
    assert_eq!(json(&folder, "redrive.yaml")["deliveries"], 301);
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let (target, folder, server) = day();
    server.stop();
    let refused = |arguments: &[&str]| {
        let all: Vec<&str> = ["backtest"].iter().chain(arguments).copied().collect();
        folder.run(&all).refused()
    };
    for name in ["bare", "other", "unmade"] {
        std::fs::create_dir(folder.path(name)).expect("a folder can be made");
    }
    folder.write("other/redrive.db", "no store of ours, and no database either");
    folder.write("unmade/redrive.db", "");
    folder.write("file", "");
    #[rustfmt::skip]
    let no_stores = [
        ("nowhere", "could not open nowhere"),
        ("bare",    "could not open bare: it contains no store"),
        ("file",    "could not open file: it is a file, not a data folder"),
        ("other",   "other/redrive.db is damaged: file is not a database; nothing was changed"),
        ("unmade",  "could not open unmade/redrive.db: it has format 0"),
    ];
    for (data, words) in no_stores {
        let said = refused(&["--data", data]);
        assert!(said.contains(words), "{data}: {said}");
    }
    let now = refused(&["--data", "data", "--since", "0s"]);
    assert!(
        now.contains("data has no delivery since") && now.contains("the latest was accepted at"),
        "{now}"
    );
    let since = refused(&["--data", "data", "--since", "2100-01-01T00:00:00Z"]);
    assert!(since.contains("data has no delivery since 2100-01-01"), "{since}");
    assert!(since.contains("the latest was accepted at"), "{since}");
    let ages = refused(&["--data", "data", "--since", "10000d"]);
    assert!(ages.contains("--since: `10000d` is longer than ten years"), "{ages}");
    let soon = refused(&["--data", "data", "--since", "soon"]);
    assert!(
        soon.contains(
            "--since: expected a time such as 2026-01-31T12:00:00Z or an age such as 2h, got \"soon\""
        ),
        "{soon}"
    );
    folder.write("bad.yaml", book(&target, 3, "    retry: qick\n"));
    let bad = refused(&["--data", "data", "--rules", "bad.yaml"]);
    assert!(bad.contains("bad.yaml:") && bad.contains("has errors: fix these errors first"), "{bad}");
    assert_eq!(folder.run(&["backtest", "--data", "data", "--rules", "none.yaml"]).code, 2);
    // What was accepted at that very moment is among them.
    let times = json(&folder, "redrive.yaml")["accepted"].clone();
    let [first, last] = [0, 1].map(|place| times[place].as_str().expect("a time").to_owned());
    #[rustfmt::skip]
    let cases = [("1h", Some(20)), ("3650d", Some(20)), (&*first, Some(20)), (&*last, Some(1)), ("1970-01-01T00:00:00Z", Some(20))];
    for (since, expected) in cases {
        let arguments = ["backtest", "--data", "data", "--since", since, "--format", "json"];
        let report: Value = serde_json::from_str(&folder.run(&arguments).printed()).expect("JSON");
        assert_eq!(report["deliveries"].as_u64(), expected, "{since}: {report}");
        assert_eq!((&report["changed"], &report["before"]), (&0.into(), &report["after"]), "{since}");
    }

    let file = folder.path("data/redrive.db");
    let mut bytes = std::fs::read(&file).expect("the store is there");
    bytes[60..64].copy_from_slice(&[0, 0, 3, 231]);
    std::fs::write(&file, bytes).expect("it can be written");
    let newer = refused(&["--data", "data"]);
    assert!(newer.contains("use a newer redrive"), "{newer}");
}
