//! Simulations as pages: `redrive simulate --html`, and those that a running server plays.

use serde_json::{Value, json};

use crate::run::Folder;
use crate::server::{Server, until};

const BOOK: &str = "\
version: 1
retry_policies:
  steps: { delays: [1s, 2s, 4s], retries: 3, jitter: none }
dependencies:
  warehouse: { kind: webhook, breaker: none }
services:
  shop:
    target: { http: \"http://user:secret@127.0.0.1:9000/\" }
    depends_on: warehouse
    retry: steps
    events: [\"orders.*\"]
";

const OUTAGE: &str = "\
version: 1
about: The warehouse & its <friends>
duration: 2m
arrivals: [{ type: orders.placed, rate: 10/s, spacing: even }]
dependencies:
  warehouse: { latency: 20ms, phases: [{ at: 30s, for: 20s, is: down }] }
expect: [\"dead_letters == 0\"]
";

/// A service that never gives up, and a storm for it: as many retries as nobody waits for.
const STUBBORN: &str = "\
version: 1
retry_policies:
  stubborn: { delays: [1s], retries: 100, jitter: none }
services:
  shop:
    target: { http: \"http://127.0.0.1:9000/\" }
    retry: stubborn
    breaker: none
    events: [\"storms.*\"]
";

const ENDLESS: &str = "\
version: 1
duration: 1h
arrivals: [{ type: storms.seen, rate: 80/s }]
dependencies: { all: { phases: [{ at: 0s, for: 1h, is: down }] } }
";

fn folder() -> Folder {
    let folder = Folder::with("redrive.yaml", BOOK);
    folder.write("outage.yaml", OUTAGE);
    folder
}

fn files(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path(".")).expect("the folder is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_page_is_written_beside_what_is_printed() {
    let folder = folder();
    folder.write("other.yaml", BOOK.replace("retries: 3", "retries: 2"));
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 5] = [
        ("run",        &[]),
        ("run",        &["--no-advice"]),
        ("ranges",     &["--runs", "3"]),
        ("comparison", &["--against", "other.yaml"]),
        ("sweep",      &["--sweep", "retries.steps.retries=1,3"]),
    ];
    for (kind, more) in cases {
        let name = format!("{kind} {more:?}");
        let played = |extra: &[&str]| folder.run(&[&["simulate", "outage.yaml"], more, extra].concat());
        let (plain, run) = (played(&[]), played(&["--html", "page.html"]));
        assert_eq!((run.code, run.stderr.as_str()), (0, "wrote page.html\n"), "{name}");
        assert_eq!(run.stdout, plain.stdout, "{name}: what is printed stays the same");
        let page = std::fs::read_to_string(folder.path("page.html")).expect("it was written");
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{name}");
        let (_, rest) = page.split_once("id=\"report\">").expect("the report is in it");
        let (report, _) = rest.split_once("</script>").expect("it ends");
        assert!(!report.contains('<'), "{name}: nothing in it is a tag");
        let report: Value = serde_json::from_str(report).expect("JSON");
        assert_eq!(report["about"], "The warehouse & its <friends>", "{name}");
        assert_eq!((&report["kind"], &report["rules"]), (&json!(kind), &json!("redrive.yaml")), "{name}");
        let printed: Value = serde_json::from_str(&played(&["--format", "json"]).printed()).expect("JSON");
        assert_eq!(report["report"], printed, "{name}: the same as is printed");
        assert_eq!(
            files(&folder),
            ["other.yaml", "outage.yaml", "page.html", "redrive.yaml"],
            "{name}: nothing else is left"
        );
    }
}

#[test]
fn a_page_that_cannot_be_written_says_why_and_leaves_nothing() {
    let folder = folder();
    std::fs::create_dir(folder.path("folder")).expect("a folder");
    folder.write("folder/other.yaml", "version: 1\n");
    #[rustfmt::skip]
    let cases = [
        ("no such folder",    "missing/page.html",     "could not write missing/page.html: no such folder: missing"),
        ("a folder",          "folder",                "could not write folder: it is a folder; choose a file"),
        ("a file above",      "outage.yaml/page.html", "could not write outage.yaml/page.html: outage.yaml is not a folder"),
        ("the scenario",      "outage.yaml",           "could not write outage.yaml: it is an input of this run; choose another file"),
        ("the rule book",     "folder/../redrive.yaml", "redrive.yaml: it is an input of this run; choose another file"),
        ("another book",      "folder/other.yaml",     "could not write folder/other.yaml: the file exists and is not a page; choose another, or remove it"),
        ("a device",          "/dev/null",             "could not write /dev/null: it is not a regular file"),
    ];
    for (name, path, expected) in cases {
        let run = folder.run(&["simulate", "outage.yaml", "--no-advice", "--html", path]);
        assert_eq!(run.code, 2, "{name}");
        assert!(run.stderr.contains(expected), "{name}: {}", run.stderr);
        assert_eq!(files(&folder), ["folder", "outage.yaml", "redrive.yaml"], "{name}");
    }
    assert_eq!(folder.run(&["simulate", "outage.yaml", "--no-advice"]).code, 0, "both are as they were");
    let other = std::fs::read_to_string(folder.path("folder/other.yaml"));
    assert_eq!(other.expect("it is there"), "version: 1\n");
}

fn simulate(server: &Server, asked: &Value) -> crate::client::Answer {
    server.post("/v1/simulate", "content-type: application/json\r\n", asked.to_string())
}

#[test]
fn a_server_plays_scenarios_against_the_book_that_holds() {
    let folder = folder();
    let server = Server::start(&folder);
    let played = simulate(&server, &json!({ "scenario": OUTAGE, "seed": 7 }));
    assert_eq!(played.status, 200);
    let played = played.json();
    let printed = folder.run(&["simulate", "outage.yaml", "--seed", "7", "--format", "json"]).printed();
    let mut printed: Value = serde_json::from_str(&printed).expect("JSON");
    let findings = printed.as_object_mut().and_then(|report| report.remove("findings"));
    assert_eq!(played["report"], printed, "the same as the command");
    assert_eq!(Some(&played["findings"]), findings.as_ref());
    assert_eq!(played["warnings"], json!([]));
    let late = simulate(&server, &json!({ "scenario": OUTAGE.replace("at: 30s", "at: 30d") })).json();
    let warning = &late["warnings"][0];
    assert_eq!(
        (&warning["code"], &warning["severity"]),
        (&json!("never-happens"), &json!("warning")),
        "{late}"
    );
    assert!(warning["line"].as_u64().is_some_and(|line| line > 0), "{warning}");
    assert!(!played.to_string().contains("secret"), "{played}");

    let ready = server.get("/v1/scenarios").json();
    let scenarios = ready["scenarios"].as_array().expect("a list");
    assert_eq!(scenarios.len(), 7);
    for scenario in scenarios {
        assert!(scenario["about"].as_str().is_some_and(|about| !about.is_empty()), "{scenario}");
    }
    let outage = simulate(&server, &json!({ "scenario": scenarios[0]["text"] }));
    assert_eq!(outage.status, 200, "{outage:?}");
    server.stop().assert_calm();
}

#[test]
fn what_cannot_be_played_says_why_at_its_line() {
    let server = Server::start(&folder());
    let bad = OUTAGE.replace("rate: 10/s", "rate: fast");
    let refused = simulate(&server, &json!({ "scenario": bad }));
    assert_eq!(refused.error(), (400, "VALIDATION_ERROR".to_owned()));
    let problem = &refused.json()["error"]["details"]["problems"][0];
    assert_eq!((problem["line"].as_u64(), problem["column"].as_u64()), (Some(4), Some(41)), "{problem}");
    assert_eq!(problem["code"], "bad-rate");
    #[rustfmt::skip]
    let cases = [
        ("nothing",          json!({}),                                      400, "VALIDATION_ERROR"),
        ("no text",          json!({ "scenario": 7 }),                       400, "VALIDATION_ERROR"),
        ("no seed",          json!({ "scenario": OUTAGE, "seed": "x" }),     400, "VALIDATION_ERROR"),
        ("a seed too large", json!({ "scenario": OUTAGE, "seed": 1_u64 << 53 }), 400, "VALIDATION_ERROR"),
        ("another key",      json!({ "scenario": OUTAGE, "runs": 9 }),       400, "VALIDATION_ERROR"),
        ("a huge body",      json!({ "scenario": "#".repeat(300_000) }),     413, "PAYLOAD_TOO_LARGE"),
        ("too much of it",   json!({ "scenario": OUTAGE.replace("10/s", "100000/s") }), 400, "VALIDATION_ERROR"),
    ];
    for (name, asked, status, code) in cases {
        assert_eq!(simulate(&server, &asked).error(), (status, code.to_owned()), "{name}");
    }
    server.stop().assert_calm();
}

#[test]
fn one_is_played_at_a_time_and_whoever_leaves_makes_place() {
    let server = Server::start(&Folder::with("redrive.yaml", STUBBORN));
    let endless = json!({ "scenario": ENDLESS }).to_string();
    let head = format!(
        "POST /v1/simulate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{endless}",
        endless.len()
    );
    let short =
        json!({ "scenario": "version: 1\nduration: 1s\narrivals: [{ type: storms.seen, rate: 1/s }]\n" });
    let mut here = Vec::new();
    let busy = until("the place is taken", || {
        // Whoever comes while the short one is played is refused, so somebody comes each time.
        let mut connection = server.client.connect().expect("it listens");
        connection.send(head.as_bytes()).expect("it listens");
        here.push(connection);
        let answer = simulate(&server, &short);
        (answer.status != 200).then_some(answer)
    });
    assert_eq!(busy.error(), (503, "SERVICE_UNAVAILABLE".to_owned()));
    assert!(busy.header("retry-after").is_some());
    assert_eq!(server.get("/v1/status").status, 200, "everything else goes on");
    drop(here);
    until("the place is free", || (simulate(&server, &short).status == 200).then_some(()));
    server.stop().assert_calm();
}
