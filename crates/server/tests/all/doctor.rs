//! `redrive doctor`: what it says, and that what it advises heals.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use insta::assert_snapshot;
use redrive_core::book::patch;
use serde_json::{Value, json};

use crate::run::{Folder, redrive};
use crate::scripted::{Reply, Scripted};
use crate::server::{Server, until};
use crate::sink::Sink;
use crate::target::{Target, status};

/// Enough for a judgement.
const EVENTS: usize = 40;

fn book(sink: &Sink, timeout: &str) -> String {
    format!(
        "version: 1
services:
  orders:
    target: {{ http: \"http://{}/\" }}
    retry: none
    breaker: none
    timeout: {timeout}
    events: [\"orders.*\"]
",
        sink.address
    )
}

/// Sends events and waits until all of them have ended.
fn send(server: &Server, ids: &str) {
    for number in 0..EVENTS {
        server.accept("orders.placed", &format!("{ids}-{number}"), "");
    }
    until("nothing waits", || (server.status()["services"][0]["waiting"] == 0).then_some(()));
}

fn finding(report: &Value, code: &str) -> Option<Value> {
    let findings = report["findings"].as_array().expect("a list");
    findings.iter().find(|finding| finding["code"] == code).cloned()
}

#[test]
fn a_timeout_that_is_too_short_is_found_and_the_change_heals_it() {
    let sink = Sink::start(&["--slow", "2s", "--quiet"]);
    let folder = Folder::with("redrive.yaml", &book(&sink, "1800ms"));
    let server = Server::start(&folder);
    send(&server, "before");

    let ailing = server.get("/v1/doctor").json();
    assert_eq!(ailing["looked_at"]["attempts"], EVENTS, "{ailing}");
    let found = finding(&ailing, "target-too-slow").unwrap_or_else(|| panic!("{ailing}"));
    assert_eq!(
        (&found["harm"], &found["dependency"], &found["line"]),
        (&json!("critical"), &json!("orders"), &json!(7))
    );
    let change = found["change"].as_str().expect("there is something to change");
    assert_eq!(change, "services:\n  orders:\n    timeout: 4s500ms\n");
    assert!(finding(&ailing, "one-cause").is_some(), "the letters have one cause: {ailing}");
    let url = format!("http://{}", server.client.address);
    let text = folder.run(&["doctor", "--server", &url]).printed();
    assert!(text.contains("CRITICAL  `orders` is slower than its timeout of 1s800ms"), "{text}");
    let denied = folder.run(&["doctor", "--server", &url, "--deny", "critical", "--format", "json"]);
    assert_eq!((denied.code, denied.stderr.as_str()), (1, ""));
    assert_eq!(server.get("/v1/doctor?service=nobody").json()["findings"], json!([]));

    let stated = change.lines().last().expect("a line").trim();
    let (_, timeout) = stated.split_once(": ").expect("a key and a value");
    folder.write("redrive.yaml", book(&sink, timeout));
    server.signal("HUP");
    server.err.wait_for("rule book reloaded");
    send(&server, "after");
    let healed = server.get("/v1/doctor").json();
    assert_eq!(finding(&healed, "target-too-slow"), None, "{healed}");
    server.stop().assert_calm();

    // The same folder without its server, by the book that it remembers and by one of a file.
    let at_rest = folder.run(&["doctor", "--data", "data", "--format", "json"]).printed();
    let at_rest: Value = serde_json::from_str(&at_rest).expect("JSON");
    assert_eq!(at_rest["looked_at"]["deliveries"], 2 * EVENTS, "{at_rest}");
    assert_eq!(finding(&at_rest, "target-too-slow"), None, "{at_rest}");
    folder.write("old.yaml", book(&sink, "1800ms"));
    let by_old =
        folder.run(&["doctor", "--data", "data", "--rules", "old.yaml", "--format", "json"]).printed();
    let by_old: Value = serde_json::from_str(&by_old).expect("JSON");
    assert_eq!(finding(&by_old, "target-too-slow"), None, "what was delivered since counts: {by_old}");
}

fn report() -> Value {
    json!({
        "looked_at": { "deliveries": 1_200, "attempts": 1_310, "since": "2025-10-21T12:05:00Z" },
        "findings": [
            {
                "code": "timeout-too-short", "harm": "high", "service": "mail", "dependency": "mail",
                "title": "the timeout of 3s cuts through good calls of `mail`",
                "evidence": [
                    "61 of 1310 attempts (5%) ran into the timeout of 3s",
                    "99 of 100 that arrived took up to 2s900ms, which is 97% of the limit",
                ],
                "advice": "raise the timeout from 3s to 4s500ms, half as much again as the slowest good calls take; if that is longer than anybody can wait, the target must become quicker",
                "change": "services:\n  mail:\n    timeout: 4s500ms\n", "line": 12, "touched": 61,
            },
            {
                "code": "letters-untouched", "harm": "medium", "service": "mail",
                "title": "dead letters of `mail` lie there for 3d",
                "evidence": ["4 letters of causes that go back more than 48h", "the oldest died 3d ago\u{1b}[2J"],
                "advice": "`redrive dlq groups --service mail` shows why", "touched": 4,
            },
        ],
        "too_little": [{ "service": "sms", "events": "orders.*", "attempts": 3 }],
    })
}

/// What the page says, without the address that the system chose.
fn page(report: &Value) -> String {
    let server = Scripted::new([Reply::json(200, report)]);
    let printed = redrive(&["doctor", "--server", server.url()]).printed();
    printed.replace(server.url(), "http://server")
}

#[test]
fn the_page_shows_what_to_change() {
    assert_snapshot!(page(&report()), @r"
    redrive doctor at http://server
    examined 1,200 deliveries of the last 2h30m with 1,310 attempts

    HIGH  the timeout of 3s cuts through good calls of `mail`  timeout-too-short
      • 61 of 1310 attempts (5%) ran into the timeout of 3s
      • 99 of 100 that arrived took up to 2s900ms, which is 97% of the limit
      → raise the timeout from 3s to 4s500ms, half as much again as the slowest good
        calls take; if that is longer than anybody can wait, the target must become
        quicker
        rule-book change, instead of line 12:
        + services:
        +   mail:
        +     timeout: 4s500ms

    MEDIUM  dead letters of `mail` lie there for 3d  letters-untouched
      • 4 letters of causes that go back more than 48h
      • the oldest died 3d ago [2J
      → `redrive dlq groups --service mail` shows why

    ✗ 2 findings: 1 high, 1 medium
    details: `redrive doctor --explain timeout-too-short`
    ? too few attempts to judge `sms` for `orders.*`: 3 attempts of at least 30
    ");
}

#[test]
fn without_findings_it_says_what_it_examined() {
    let mut well = report();
    well["findings"] = json!([]);
    assert_snapshot!(page(&well), @r"
    redrive doctor at http://server
    examined 1,200 deliveries of the last 2h30m with 1,310 attempts

    ✓ no problems found in the last 1,200 deliveries
    ? too few attempts to judge `sms` for `orders.*`: 3 attempts of at least 30
    ");
    let empty = json!({ "looked_at": { "deliveries": 0, "attempts": 0 }, "findings": [], "too_little": [] });
    assert_snapshot!(page(&empty), @r"
    redrive doctor at http://server
    no deliveries

    ? no attempts yet
    ");
}

#[test]
fn a_diagnosis_explains_itself() {
    assert_snapshot!(redrive(&["doctor", "--explain", "timeout-too-long"]).printed(), @r"
    MEDIUM timeout-too-long: a hanging call holds its slot far longer than any good call takes

    Good calls take a small part of the timeout, and some calls hang until it ends.
    Each of these holds a slot and a connection, and its retry comes late. A limit
    of a few times the slowest good call ends the same calls sooner and no others.

    Needs 100 successes and 3 hanging calls.
    ");
    let all = redrive(&["doctor", "--explain", "all"]).printed();
    assert_eq!(all.lines().count(), redrive_lab::doctor::all().count());
    let refused = redrive(&["doctor", "--explain", "timeout-to-short"]).refused();
    assert!(refused.contains("did you mean `timeout-too-short`?"), "{refused}");
    let nowhere = Folder::new().run(&["doctor", "--data", "nothing-here"]).refused();
    assert!(nowhere.contains("nothing-here"), "{nowhere}");
}

/// Every diagnosis as a row of a table.
fn table() -> String {
    let mut table =
        "| code | harm | what it finds | what it needs to have seen |\n| --- | --- | --- | --- |\n"
            .to_owned();
    for diagnosis in redrive_lab::doctor::all() {
        let redrive_lab::doctor::Diagnosis { code, harm, summary, needs, .. } = diagnosis;
        table.push_str(&format!("| `{code}` | {harm} | {summary} | {needs} |\n"));
    }
    table
}

/// Writes the table instead of comparing it: `REDRIVE_UPDATE=1 cargo test -p redrive-server doctor`.
#[test]
fn the_page_of_all_diagnoses_is_up_to_date() {
    const BEGIN: &str = "<!-- every diagnosis -->\n";
    const END: &str = "<!-- that was every diagnosis -->\n";
    let server = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = server
        .ancestors()
        .nth(2)
        .expect("crates/server lies two folders down")
        .join("docs/reference/diagnoses.md");
    let kept = fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = kept.split_once(BEGIN).expect("the table begins somewhere");
    let (_, after) = rest.split_once(END).expect("and ends");
    let made = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
    if std::env::var_os("REDRIVE_UPDATE").is_some() {
        fs::write(&path, &made).expect("the docs can be written");
        return;
    }
    assert!(
        kept == made,
        "docs/reference/diagnoses.md is out of date: run REDRIVE_UPDATE=1 cargo test -p redrive-server doctor"
    );
}

#[test]
fn a_service_that_is_not_there_is_a_wrong_name_and_no_good_news() {
    let sink = Sink::start(&["--quiet"]);
    let folder = Folder::with("redrive.yaml", &book(&sink, "2s"));
    let server = Server::start(&folder);
    server.accept("orders.placed", "one", "");
    server.until("one", "delivered");
    let url = format!("http://{}", server.client.address);
    #[rustfmt::skip]
    let of_a_server: [&[&str]; 5] = [
        &["doctor", "--deny", "high"], &["doctor", "--format", "json"], &["dlq", "list"], &["dlq", "groups"], &["why", "--last"],
    ];
    for words in of_a_server {
        let run = folder.run(&[words, &["--service", "odrers", "--server", &url]].concat());
        let expected = "error: no service `odrers`: did you mean `orders`?\n";
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (2, "", expected), "{words:?}");
        let known = folder.run(&[words, &["--service", "orders", "--server", &url]].concat());
        assert_eq!((known.code, known.stderr.as_str()), (0, ""), "{words:?}");
    }
    server.stop().assert_calm();
    let of_a_folder: [&[&str]; 3] =
        [&["doctor", "--rules", "redrive.yaml"], &["dlq", "list"], &["dlq", "groups"]];
    for words in of_a_folder {
        let run = folder.run(&[words, &["--service", "odrers", "--data", "data"]].concat());
        let expected = "error: no service `odrers` in data: did you mean `orders`?\n";
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (2, "", expected), "{words:?}");
        let known = folder.run(&[words, &["--service", "orders", "--data", "data"]].concat());
        assert_eq!((known.code, known.stderr.as_str()), (0, ""), "{words:?}");
    }
}

/// A book of two services with a breaker that asks again soon: one target is not there, one is slow.
fn broken_book(gone: &str, slow: &Sink, timeout: &str) -> String {
    format!(
        "version: 1
breakers:
  soon: {{ trip: {{ consecutive: 3 }}, open: 500ms }}
services:
  gone:
    target: {{ http: \"http://{gone}/\" }}
    breaker: soon
    events: [\"stock.*\"]
  slow:
    target: {{ http: \"http://{}/\" }}
    breaker: soon
    timeout: {timeout}
    events: [\"orders.*\"]
",
        slow.address
    )
}

#[test]
fn the_cause_comes_first_though_the_breaker_lets_few_attempts_through() {
    let slow = Sink::start(&["--slow", "300ms", "--quiet"]);
    // A port that the system gives to no program.
    let gone = "127.0.0.1:1";
    let folder = Folder::with("redrive.yaml", &broken_book(gone, &slow, "200ms"));
    let server = Server::start(&folder);
    for number in 0..EVENTS {
        server.accept("orders.placed", &format!("order-{number}"), "");
        server.accept("stock.low", &format!("stock-{number}"), "");
    }
    let waiting = |name: &str| {
        let status = server.status();
        let services = status["services"].as_array().expect("a list").clone();
        let service = services.into_iter().find(|service| service["service"] == name).expect("the service");
        service["waiting"].as_u64().expect("a number")
    };
    // So many probes of what is gone have failed that its breaker could be blamed.
    let probes_failed = || {
        let dependencies = server.get("/v1/dependencies").json();
        let all = dependencies["dependencies"].as_array().expect("a list");
        let gone = all.iter().find(|dependency| dependency["name"] == "gone")?;
        let turns = gone["history"].as_array().expect("a history").iter();
        let failed = turns.filter(|turn| turn["from"] == "half-open" && turn["to"] == "open").count();
        (failed > 5).then_some(())
    };
    until("probes keep failing", probes_failed);
    let breakers_opened = || {
        let report = folder.run(&["doctor", "--data", "data", "--format", "json"]).printed();
        let report: Value = serde_json::from_str(&report).expect("JSON");
        let both = finding(&report, "target-gone").is_some() && finding(&report, "target-too-slow").is_some();
        both.then_some(report)
    };
    let report = until("both causes are found", breakers_opened);
    let first: Vec<_> = report["findings"].as_array().expect("a list").iter().take(2).collect();
    for (code, dependency) in [("target-gone", "gone"), ("target-too-slow", "slow")] {
        let found = finding(&report, code).expect("it is found");
        assert!(first.contains(&&found), "{report}");
        assert_eq!((&found["harm"], &found["dependency"]), (&json!("critical"), &json!(dependency)));
    }
    assert_eq!(finding(&report, "target-gone").expect("found")["change"], Value::Null, "{report}");
    let found = finding(&report, "target-too-slow").expect("it is found");
    assert_eq!(found["change"], "services:\n  slow:\n    timeout: 500ms\n", "{report}");
    assert_eq!(finding(&report, "probes-keep-failing"), None, "{report}");
    assert_eq!((&found["gain"]["figure"], &found["gain"]["after"]), (&json!("not delivered"), &json!(0)));
    assert_eq!(report["change"], found["change"], "there is nothing else to change");
    assert_eq!(folder.run(&["doctor", "--data", "data", "--deny", "low"]).code, 1);

    folder.write("redrive.yaml", broken_book(gone, &slow, "500ms"));
    server.signal("HUP");
    server.err.wait_for("rule book reloaded");
    until("all that was slow is delivered", || (waiting("slow") == 0).then_some(()));
    let healed = server.get("/v1/doctor").json();
    assert_eq!(finding(&healed, "target-too-slow"), None, "{healed}");
    assert_eq!(healed["findings"][0]["code"], "target-gone", "{healed}");
    server.stop().assert_calm();
}

/// Puts the change of a finding into the book of a running server.
fn apply(folder: &Folder, server: &Server, found: &Value) {
    let change = found["change"].as_str().unwrap_or_else(|| panic!("there is something to change: {found}"));
    let kept = fs::read_to_string(folder.path("redrive.yaml")).expect("the book can be read");
    folder.write("redrive.yaml", patch::laid_over(&kept, change).expect("the change fits the book"));
    server.signal("HUP");
    server.err.wait_for("rule book reloaded");
}

/// Has the target be down for three seconds while events come, and says how many dead letters there are then.
fn outage(server: &Server, is_down: &AtomicBool, ids: &str) -> u64 {
    is_down.store(true, Ordering::SeqCst);
    for number in 0..60 {
        server.accept("orders.placed", &format!("{ids}-{number}"), "");
        thread::sleep(Duration::from_millis(50));
    }
    is_down.store(false, Ordering::SeqCst);
    let ended = || {
        let service = server.status()["services"][0].clone();
        (service["waiting"] == 0).then(|| service["dead"].as_u64().expect("a count"))
    };
    until("all have ended", ended)
}

#[test]
fn a_policy_that_gives_up_too_early_is_found_and_the_change_saves_deliveries() {
    let is_down = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_down);
    let target = Target::start(move |_| status(if asked.load(Ordering::SeqCst) { 503 } else { 200 }));
    let book = format!(
        "version: 1
retry_policies:
  short: {{ initial: 200ms, max: 400ms, retries: 2, jitter: none }}
services:
  orders:
    target: {{ http: \"{}\" }}
    retry: short
    breaker: none
    events: [\"orders.*\"]
",
        target.url()
    );
    let folder = Folder::with("redrive.yaml", &book);
    let server = Server::start(&folder);
    send(&server, "well");
    let before = outage(&server, &is_down, "before");
    assert!(before >= 5, "the policy gives up before the target is back: {before}");

    let report = server.get("/v1/doctor").json();
    let found = finding(&report, "retries-exhausted").unwrap_or_else(|| panic!("{report}"));
    assert_eq!(found["gain"]["figure"], "dead letters", "{report}");
    apply(&folder, &server, &found);
    let after = outage(&server, &is_down, "after") - before;
    assert!(after * 2 <= before, "{after} dead letters after the change, {before} before");
    server.stop().assert_calm();
}

#[test]
fn a_limit_of_calls_at_once_that_is_too_low_is_found_and_the_change_doubles_them() {
    let (in_flight, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, peak) = (Arc::clone(&in_flight), Arc::clone(&most));
    let target = Target::start(move |_| {
        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(10));
        now.fetch_sub(1, Ordering::SeqCst);
        status(200)
    });
    let book = format!(
        "version: 1
dependencies:
  shop: {{ kind: webhook, in_flight: 1 }}
services:
  orders:
    target: {{ http: \"{}\" }}
    depends_on: shop
    events: [\"orders.*\"]
",
        target.url()
    );
    let folder = Folder::with("redrive.yaml", &book);
    let server = Server::start(&folder);
    for batch in 0..10 {
        let event = |number: usize| json!({ "specversion": "1.0", "type": "orders.placed", "id": format!("{batch}-{number}"), "source": "/tests" });
        let events = (0..200).map(event).collect::<Value>().to_string();
        let headers = "content-type: application/cloudevents-batch+json\r\n";
        assert_eq!(server.post("/v1/events", headers, events).status, 202);
    }
    let found = until("the limit is found to be too low", || {
        finding(&server.get("/v1/doctor").json(), "too-few-at-once")
    });
    assert_eq!(most.load(Ordering::SeqCst), 1);
    apply(&folder, &server, &found);
    until("two calls are made at once", || (most.load(Ordering::SeqCst) == 2).then_some(()));
    until("the backlog drains", || (server.status()["services"][0]["waiting"] == 0).then_some(()));
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(finding(&server.get("/v1/doctor").json(), "too-few-at-once"), None);
    server.stop().assert_calm();
}
