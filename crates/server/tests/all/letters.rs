//! Dead letters of a real server: asked for, edited, deleted, carried from one server to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::client::Answer;
use crate::run::{Folder, Run};
use crate::server::{Server, until};
use crate::target::{Call, Say, Target, book, status};

/// A server whose target refuses everything until it is mended, and the commands that talk to it.
struct Stage {
    folder: Folder,
    server: Server,
    target: Target,
    mended: Arc<AtomicBool>,
}

impl Stage {
    fn new(more: &[&str]) -> Self {
        let mended = Arc::new(AtomicBool::new(false));
        let is_well = Arc::clone(&mended);
        let target = Target::start(move |call: &Call| {
            if is_well.load(Ordering::SeqCst) {
                return status(200);
            }
            match call.header("ce-type") {
                "orders.placed" => {
                    Say::Status(422, "", format!("order {} has no field `total`", call.event_id()))
                }
                _ => Say::Status(410, "", "no such customer".to_owned()),
            }
        });
        let folder = Folder::with("redrive.yaml", &book(&target, more));
        let server = Server::start(&folder);
        Self { folder, server, target, mended }
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let address = format!("http://{}", self.server.client.address);
        self.folder.run(&[arguments, &["--server", &address]].concat())
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let printed = self.run(&[arguments, &["--format", "json"]].concat()).printed();
        serde_json::from_str(&printed).expect("JSON")
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Answer {
        self.server.post(path, "content-type: application/json\r\n", body.to_string())
    }

    #[track_caller]
    fn die(&self, events: &[(&str, &str)]) {
        for (event_type, id) in events {
            self.server.accept(event_type, id, "");
            self.server.until(id, "dead");
        }
    }

    fn id_of(&self, event_id: &str) -> String {
        self.server.delivery(event_id)["id"].as_str().expect("an id").to_owned()
    }
}

fn ids(letters: &Value) -> Vec<&str> {
    let letters = letters.as_array().expect("a list");
    letters.iter().map(|letter| letter["event_id"].as_str().expect("an id")).collect()
}

#[test]
fn letters_are_found_by_all_that_is_known_of_them() {
    let stage = Stage::new(&[]);
    stage.die(&[("orders.placed", "41"), ("orders.cancelled", "42"), ("orders.placed", "43")]);
    let listed = stage.json(&["dlq", "list"]);
    assert_eq!(ids(&listed), ["43", "42", "41"], "the latest first");
    let group = listed[0]["fingerprint"].as_str().expect("a fingerprint").to_owned();
    assert_eq!(listed[2]["fingerprint"], group.as_str(), "the order's id makes no cause of its own");
    #[rustfmt::skip]
    let cases: [(&str, &[&str], &[&str]); 12] = [
        ("a service",        &["--service", "orders"],                        &["43", "42", "41"]),
        ("a type",           &["--type", "orders.placed"],                    &["43", "41"]),
        ("a pattern",        &["--type", "orders.*"],                         &["43", "42", "41"]),
        ("a code",           &["--code", "GONE"],                             &["42"]),
        ("a category",       &["--category", "permanent"],                    &["43", "42", "41"]),
        ("another",          &["--category", "transient"],                    &[]),
        ("a group",          &["--fingerprint", &group],                      &["43", "41"]),
        ("a text in it",     &["--group", &group, "--text", "ORDER 41"],       &["41"]),
        ("a time",           &["--from", "1h"],                               &["43", "42", "41"]),
        ("before that",      &["--until", "1h"],                              &[]),
        ("a tier",           &["--tier", "poison"],                           &[]),
        ("few",              &["--limit", "2"],                               &["43", "42"]),
    ];
    for (name, filter, expected) in cases {
        // The folder is read beside the running server, and says the same.
        for source in [&["--data", "data"][..], &[]] {
            let run = stage.run(&[&["dlq", "list", "--format", "json"], filter, source].concat());
            assert_eq!(run.code, 0, "{name}: {}", run.stderr);
            let found: Value = serde_json::from_str(&run.stdout).expect(name);
            assert_eq!(ids(&found), expected, "{name}, {source:?}");
        }
    }
    let groups = stage.json(&["dlq", "groups"]);
    assert_eq!((&groups[0]["count"], &groups[1]["count"]), (&json!(2), &json!(1)), "{groups}");
    assert_eq!(groups[0]["sample"], listed[0]["id"]);
    assert_eq!(groups[0]["trend"]["counts"].as_array().map(Vec::len), Some(288));
    assert_eq!(stage.json(&["dlq", "groups", "--data", "data"])[0]["fingerprint"], groups[0]["fingerprint"]);
    let shown = stage.run(&["dlq", "groups"]).printed();
    assert!(shown.contains("3 dead letters of 2 causes") && shown.contains("·█"), "{shown}");
    stage.server.stop().assert_calm();
}

#[test]
fn a_letter_is_an_envelope_in_two_forms() {
    let stage = Stage::new(&[]);
    stage.die(&[("orders.placed", "a")]);
    let id = stage.id_of("a");
    let envelope = stage.json(&["dlq", "show", &id[..6]]);
    assert_eq!(envelope["dlqId"], id.as_str());
    assert_eq!(envelope["originalMessage"]["data"], json!({ "id": "a" }));
    assert_eq!(envelope["retryAttempts"][0]["httpStatus"], 422, "{envelope}");
    assert_eq!(envelope["failureCategory"], "permanent");
    let answer = stage.server.get(&format!("/v1/dead-letters/{}", &id[..6]));
    assert_eq!(answer.header("content-location"), Some(&*format!("/v1/dead-letters/{id}")));
    assert_eq!(stage.json(&["dlq", "show", &id, "--data", "data"]), envelope);
    let redis = stage.json(&["dlq", "show", &id, "--form", "redis"]);
    assert_eq!(redis["error_context"]["service"], "orders", "{redis}");
    assert!(stage.run(&["dlq", "show", &id]).printed().contains("redrive dlq replay"));
    assert!(stage.run(&["why", &id]).printed().contains(&format!("redrive dlq replay {}", &id[..8])));
    stage.server.stop().assert_calm();
}

#[test]
fn a_queue_has_the_name_and_the_form_that_the_book_gives_it() {
    let stage = Stage::new(&["dead_letter: { name: \"{queue}:dlq\", queue: orders, form: redis }"]);
    stage.die(&[("orders.placed", "a")]);
    let listed = stage.json(&["dlq", "list", "--name", "orders:dlq"]);
    assert_eq!((ids(&listed), &listed[0]["name"]), (vec!["a"], &json!("orders:dlq")));
    assert_eq!(stage.json(&["dlq", "list", "--name", "_orders.deadletter"]), json!([]));
    let chosen = |name: &str| stage.json(&["dlq", "replay", "--name", name, "--dry-run"])["letters"].clone();
    assert_eq!((chosen("orders:dlq"), chosen("others:dlq")), (json!(1), json!(0)));
    let id = stage.id_of("a");
    assert_eq!(stage.json(&["dlq", "show", &id])["error_context"]["service"], "orders");
    assert_eq!(stage.json(&["dlq", "show", &id, "--form", "envelope"])["dlqId"], id.as_str());
    let exported = |more: &[&str]| -> Value {
        let line = stage.run(&[&["dlq", "export"], more].concat()).printed();
        serde_json::from_str(line.trim()).expect("a line of JSON")
    };
    assert_eq!(exported(&["--name", "orders:dlq"])["error_context"]["service"], "orders");
    assert_eq!(exported(&["--form", "envelope"])["dlqId"], id.as_str());
    assert!(stage.run(&["dlq", "show", &id]).printed().contains("attempts"), "people see the whole letter");
    stage.server.stop().assert_calm();
}

#[test]
fn what_cannot_be_done_is_said_clearly() {
    let stage = Stage::new(&[]);
    stage.die(&[("orders.placed", "a"), ("orders.placed", "b")]);
    let (id, other) = (stage.id_of("a"), stage.id_of("b"));
    let nothing = "0123456789abcdef0123456789abcdef";
    let replays = "/v1/replays";
    let purge = "/v1/dead-letters/purge";
    let skip = |id: &str| format!("/v1/dead-letters/{id}/skip");
    let edit = format!("/v1/dead-letters/{id}/edit");
    #[rustfmt::skip]
    let cases = [
        ("no letter",            skip(nothing),                 json!({}),                                             404, "no dead letter"),
        ("no replay",            format!("{replays}/9/pause"),  json!({}),                                             404, "no replay 9"),
        ("no number",            format!("{replays}/x/pause"),  json!({}),                                             400, "they start at 1"),
        ("no act",               format!("{replays}/1/stop"),   json!({}),                                             404, "expected pause, resume or cancel"),
        ("an empty replay",      replays.to_owned(),            json!({}),                                             400, "`\\\"all\\\": true`"),
        ("an empty purge",       purge.to_owned(),              json!({}),                                             400, "`\\\"all\\\": true`"),
        ("a typo",               replays.to_owned(),            json!({ "sevice": "orders" }),                         400, "`sevice` is unknown"),
        ("no letter to replay",  replays.to_owned(),            json!({ "letters": [nothing] }),                       404, "no dead letter"),
        ("nothing matches",      replays.to_owned(),            json!({ "service": "billing" }),                       404, "no dead letter matches"),
        ("no such service",      replays.to_owned(),            json!({ "service": "orders", "to": "billing" }),       409, "--to SERVICE"),
        ("poison, no word",      replays.to_owned(),            json!({ "all": true, "include_poison": true }),        400, "add a note with the reason"),
        ("no rate",              replays.to_owned(),            json!({ "all": true, "rate": 0 }),                     400, "`rate` must be a number"),
        ("no concurrency",       replays.to_owned(),            json!({ "all": true, "concurrency": 0 }),              400, "`concurrency` must be a number from 1"),
        ("text alone",           purge.to_owned(),              json!({ "text": "x" }),                                400, "requires a failure group or a time"),
        ("nothing to edit",      edit.clone(),                  json!({}),                                             400, "`data` is missing"),
        ("the same again",       edit,                          json!({ "data": { "id": "a" } }),                      400, "replay the letter instead"),
        ("no JSON",              purge.to_owned(),              json!([]),                                             400, "is not a JSON object"),
    ];
    for (name, path, body, status, words) in cases {
        let answer = stage.post(&path, &body);
        assert_eq!(answer.status, status, "{name}: {answer:?}");
        assert!(answer.body.contains(words), "{name}: {answer:?}");
    }
    // Whoever comes second is told whose the letters are.
    let slow = json!({ "letters": [id, other], "rate": 0.001 });
    let first = stage.post(replays, &slow);
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(stage.post("/v1/replays/1/pause", &json!({})).status, 200);
    // One of them may have been sent before the pause, and have failed again.
    let letters = stage.server.get("/v1/dead-letters").json()["dead_letters"].clone();
    let claimed = letters.as_array().expect("a list").iter().find(|letter| letter["claimed_by"] == 1);
    let claimed = claimed.unwrap_or_else(|| panic!("the other waits for its turn: {letters}"));
    let name = claimed["id"].as_str().expect("an id");
    let second = stage.run(&["dlq", "replay", name]).refused();
    assert!(second.contains("REPLAY_CONFLICT") && second.contains("belongs to replay 1"), "{second}");
    let skipped = stage.run(&["dlq", "skip", name]).refused();
    assert!(skipped.contains("belongs to replay 1"), "{skipped}");
    assert!(stage.run(&["replays", "1", "pause"]).refused().contains("replay 1 is paused already"));
    let purged = stage.run(&["dlq", "purge", "--all", "--yes"]).printed();
    assert!(purged.contains(": cancel the replay first"), "{purged}");
    stage.server.stop().assert_calm();
}

#[test]
fn a_purge_leaves_what_died_after_somebody_looked() {
    let stage = Stage::new(&[]);
    stage.die(&[("orders.placed", "a"), ("orders.placed", "b")]);
    let purge = "/v1/dead-letters/purge";
    let dry = stage.post(purge, &json!({ "service": "orders", "dry_run": true })).json();
    assert_eq!(dry["deleted"], 2, "{dry}");
    let looked_at = dry["died_until"].as_str().expect("the moment that it looked at").to_owned();
    stage.die(&[("orders.placed", "c")]);
    // A span is one before that moment too, however long somebody thought about it.
    let wish = |more: &Value| {
        let mut wish = json!({ "service": "orders", "died_until": looked_at });
        wish.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        wish
    };
    let young = stage.post(purge, &wish(&json!({ "older_than": "1h" }))).json();
    assert_eq!(young["deleted"], 0, "{young}");
    let purged = stage.post(purge, &wish(&json!({}))).json();
    assert_eq!((&purged["deleted"], &purged["died_until"]), (&json!(2), &json!(null)), "{purged}");
    assert_eq!(ids(&stage.json(&["dlq", "list"])), ["c"]);
    let wrong = stage.post(purge, &json!({ "all": true, "died_until": "1h" }));
    assert_eq!(wrong.status, 400);
    assert!(wrong.json().to_string().contains("`died_until` is not valid"));
    let late = json!({ "all": true, "dry_run": true, "died_until": "2500-01-01T00:00:00Z" });
    let late = stage.post(purge, &late).json();
    assert_ne!(late["died_until"], "2500-01-01T00:00:00Z", "nobody has looked at that yet: {late}");
    stage.server.stop().assert_calm();
}

#[test]
fn one_letter_is_purged_by_its_id_among_others_that_died_of_the_same() {
    let stage = Stage::new(&[]);
    stage.die(&[("orders.placed", "a"), ("orders.placed", "b"), ("orders.placed", "c")]);
    let purge = "/v1/dead-letters/purge";
    let (a, b) = (stage.id_of("a"), stage.id_of("b"));
    let dry = stage.post(purge, &json!({ "letters": [a], "dry_run": true })).json();
    assert_eq!(dry["deleted"], 1, "{dry}");
    let purged = stage.post(purge, &json!({ "letters": [a], "died_until": dry["died_until"] })).json();
    assert_eq!((&purged["deleted"], &purged["done"]), (&json!(1), &json!(true)), "{purged}");
    stage.server.until("a", "purged");
    let again = stage.post(purge, &json!({ "letters": [a] }));
    assert_eq!(again.status, 404, "{again:?}");
    let none = stage.post(purge, &json!({ "letters": [] }));
    assert_eq!(none.status, 400, "{none:?}");
    let purged = stage.run(&["dlq", "purge", &b[..12], "--yes", "--note", "a test"]).printed();
    assert!(purged.starts_with("✓ 1 dead letter deleted"), "{purged}");
    assert_eq!(ids(&stage.json(&["dlq", "list"])), ["c"]);
    let audit = stage.json(&["audit"]);
    assert_eq!(
        (&audit[0]["what"], &audit[0]["note"]),
        (&json!(format!("letter {b}")), &json!("a test")),
        "{audit}"
    );
    stage.server.stop().assert_calm();
}

#[test]
fn a_letter_is_mended_and_another_given_up() {
    let stage = Stage::new(&[]);
    stage.die(&[("orders.placed", "a"), ("orders.placed", "b"), ("orders.placed", "c")]);
    stage.mended.store(true, Ordering::SeqCst);
    let edited = stage.json(&["dlq", "edit", &stage.id_of("a"), "--data", r#"{"id":"a","total":12.0}"#]);
    let new = edited["event_id"].as_str().expect("an id");
    let receipt = edited["receipt"].as_str().expect("a receipt");
    assert!(new.starts_with("a#edit-"), "{edited}");
    stage.server.until(receipt, "delivered");
    let call = stage.target.calls().pop().expect("it was called");
    assert_eq!(String::from_utf8_lossy(&call.body), r#"{"id":"a","total":12.0}"#, "byte for byte");
    // An edit whose answer was lost is asked for again, and answered like the first time.
    let path = format!("/v1/dead-letters/{}/edit", stage.id_of("a"));
    let again = stage.post(&path, &json!({ "data": { "id": "a", "total": 12.0 } }));
    assert_eq!((again.status, again.json()), (200, edited.clone()));
    let other = stage.post(&path, &json!({ "data": { "id": "a", "total": 13 } }));
    assert_eq!(other.status, 404, "another edit comes too late");
    assert!(other.json().to_string().contains("was edited and resent"), "{}", other.json());
    let old = stage.server.until("a", "superseded");
    assert_eq!(old["superseded_by"], receipt, "{old}");
    assert!(stage.run(&["why", &stage.id_of("a")]).printed().contains("replaced by the event"));
    stage.run(&["dlq", "skip", &stage.id_of("b"), "--note", "too late"]).printed();
    stage.server.until("b", "skipped");
    assert!(stage.run(&["dlq", "purge", "--type", "orders.*"]).refused().contains("add --yes"));
    assert!(
        stage
            .run(&["dlq", "purge", "--type", "orders.*", "--dry-run"])
            .printed()
            .starts_with("1 dead letter ")
    );
    assert!(
        stage.run(&["dlq", "purge", "--type", "orders.*", "--yes"]).printed().starts_with("✓ 1 dead letter ")
    );
    stage.server.until("c", "purged");
    let audit = stage.json(&["audit"]);
    let acts: Vec<&str> =
        audit.as_array().expect("a list").iter().filter_map(|record| record["act"].as_str()).collect();
    assert_eq!(acts, ["purge", "skip", "edit"], "{audit}");
    assert_eq!(audit[1]["note"], "too late");
    stage.server.stop().assert_calm();
}

#[test]
fn a_target_is_told_that_a_letter_comes_again_out_of_turn() {
    let stage = Stage::new(&["order: session"]);
    for id in ["a", "b"] {
        stage.server.accept("orders.placed", id, "s");
        stage.server.until(id, "dead");
    }
    stage.mended.store(true, Ordering::SeqCst);
    stage.server.accept("orders.placed", "c", "s");
    stage.server.until("c", "delivered");
    stage.run(&["dlq", "replay", &stage.id_of("a")]).printed();
    stage.run(&["dlq", "edit", &stage.id_of("b"), "--data", "{}"]).printed();
    let calls = stage.target.until(5);
    let told = |call: &Call| {
        let place: u64 = call.header("redrive-sequence").parse().expect("a call of a session has its place");
        (place, call.header("redrive-replay").to_owned(), call.webhook_id().to_owned())
    };
    let [a, b, c, again, edited] = [0, 1, 2, 3, 4].map(|place| told(&calls[place]));
    assert!(a.0 < b.0 && b.0 < c.0, "places grow: {a:?}, {b:?}, {c:?}");
    assert_eq!(again, (a.0, "1".to_owned(), a.2), "its own place and id, and that it is a replay");
    assert_eq!((edited.0, edited.1.as_str()), (b.0, ""), "the old one's place");
    assert_ne!(edited.2, b.2, "an edited letter is no repetition");
    assert!(calls[4].event_id().starts_with("b#edit-"));
    stage.server.stop().assert_calm();
}

#[test]
fn a_pile_moves_from_one_server_to_another() {
    let from = Stage::new(&[]);
    from.die(&[("orders.placed", "a"), ("orders.cancelled", "b")]);
    let lines = from.run(&["dlq", "export"]).printed();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(
        lines.contains("\"originalEventId\":\"a\"") && lines.find("\"a\"") < lines.find("\"b\""),
        "the oldest first"
    );
    assert_eq!(from.run(&["dlq", "export", "--data", "data"]).printed(), lines);

    let to = Stage::new(&[]);
    let plain =
        r#"{"service":"old-billing","type":"orders.placed","data":{"n":1},"error":"boom","key":"x-1"}"#;
    to.folder.write("pile.jsonl", format!("{lines}{plain}\n"));
    assert_eq!(to.json(&["dlq", "import", "pile.jsonl"]), json!({ "imported": 3, "known": 0 }));
    assert_eq!(
        to.json(&["dlq", "import", "pile.jsonl"]),
        json!({ "imported": 0, "known": 3 }),
        "twice changes nothing"
    );
    assert_eq!(to.server.status()["services"].as_array().map(Vec::len), Some(2));
    let refused = to.run(&["dlq", "replay", "--all"]).refused();
    assert!(refused.contains("SERVICE_GONE") && refused.contains("--to SERVICE"), "{refused}");
    let edited = to.run(&["dlq", "edit", "x-1", "--data", "{}"]).refused();
    assert!(edited.contains("SERVICE_GONE"), "an edited event would wait for ever: {edited}");
    to.mended.store(true, Ordering::SeqCst);
    to.run(&["dlq", "replay", "x-1", "--to", "orders"]).printed();
    assert_eq!(String::from_utf8_lossy(&to.target.calls()[0].body), r#"{"n":1}"#);
    to.run(&["dlq", "replay", "--service", "orders", "--canary"]).printed();
    assert_eq!(to.target.count(), 3);
    assert_eq!(to.json(&["dlq", "list"]), json!([]));
    // What is wrong is told with its line, and nothing is taken.
    let answer = to.server.post(
        "/v1/dead-letters/import",
        "",
        format!("{plain}\n\n{{\"service\":\"a b\",\"type\":\"c\"}}\n"),
    );
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.body.contains("line 3 has an invalid service name"), "{answer:?}");
    from.server.stop().assert_calm();
    to.server.stop().assert_calm();
}

#[test]
fn progress_is_a_stream_that_ends() {
    let stage = Stage::new(&[]);
    stage.die(&[("orders.placed", "a"), ("orders.placed", "b")]);
    stage.run(&["dlq", "replay", "--all", "--canary"]);
    let stopped = stage.server.get("/v1/replays/1/progress?until=halt");
    let header =
        stopped.headers.iter().find(|(name, _)| name == "content-type").map(|(_, value)| value.as_str());
    assert_eq!(header, Some("text/event-stream"));
    assert!(stopped.body.contains("data: {\"id\":1,\"state\":\"stopped\""), "{stopped:?}");
    let status = stage.run(&["status"]).printed();
    assert!(
        status.contains("1 poison letter") && status.contains("replay 1 is stopped, 1 of 2 letters"),
        "{status}"
    );
    assert_eq!(stage.run(&["replays", "1", "cancel"]).code, 0);
    let over = stage.server.get("/v1/replays/1/progress");
    assert!(over.body.contains("\"state\":\"cancelled\""), "{over:?}");
    until("the status forgets it", || {
        let status = stage.server.status();
        (status["replays"] == json!([])).then_some(())
    });
    stage.server.stop().assert_calm();
}

#[test]
fn who_waits_behind_a_dead_letter_is_told_which() {
    let stage = Stage::new(&["order: session-strict"]);
    stage.server.accept("orders.placed", "1", "a");
    stage.server.until("1", "dead");
    stage.server.accept("orders.placed", "2", "a");
    let letter = stage.id_of("1");
    let why = stage.run(&["why", &stage.id_of("2")]).printed();
    assert!(why.contains(&format!("the dead letter {letter} blocks its session")), "{why}");
    assert!(why.contains(&format!("redrive dlq skip {}", &letter[..8])), "{why}");
    let status = stage.run(&["status"]).printed();
    assert!(status.contains("1 session is blocked by a dead letter: 1 delivery waits behind it"), "{status}");
    stage.mended.store(true, Ordering::SeqCst);
    stage.run(&["dlq", "replay", &letter]).printed();
    stage.server.until("2", "delivered");
    stage.server.stop().assert_calm();
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_watching_and_not_the_replay() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};

    let stage = Stage::new(&[]);
    stage.die(&[
        ("orders.placed", "1"),
        ("orders.placed", "2"),
        ("orders.placed", "3"),
        ("orders.placed", "4"),
    ]);
    stage.mended.store(true, Ordering::SeqCst);
    let address = format!("http://{}", stage.server.client.address);
    let mut watching = Command::new(env!("CARGO_BIN_EXE_redrive"))
        .args(["dlq", "replay", "--all", "--rate", "0.5/s", "--server", &address])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    let mut said = BufReader::new(watching.stderr.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it tells how far it is");
    assert!(line.starts_with("replay 1: ") && line.contains(" delivered, 0 failed, "), "{line}");
    crate::server::signal(watching.id(), "INT");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("it ends");
    assert!(rest.contains("replay 1 continues on the server"), "{rest}");
    assert_eq!(watching.wait().expect("it ends").code(), Some(0));
    assert_eq!(stage.server.get("/v1/replays/1").json()["state"], "running");
    stage.server.stop().assert_calm();
}
