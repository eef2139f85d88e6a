//! Sources that a real server reads: files of a folder, through kills, outages and a store that takes nothing.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Target, book};

fn event(id: &str) -> String {
    format!(
        r#"{{"specversion":"1.0","id":"{id}","source":"/spool","type":"orders.placed","data":{{"n":1}}}}"#
    )
}

/// Writes a file elsewhere and moves it there.
fn put(folder: &Folder, path: &str, text: &str) {
    folder.write("new", text);
    fs::rename(folder.path("new"), folder.path(path)).expect("it is renamed");
}

#[track_caller]
fn until_gone(path: &Path) {
    until(&format!("{} is gone", path.display()), || (!path.exists()).then_some(()));
}

/// Waits until the event is there, and delivered.
#[track_caller]
fn until_delivered(server: &Server, id: &str) {
    until(&format!("{id} is there"), || {
        (server.get(&format!("/v1/events/{id}")).status == 200).then_some(())
    });
    server.until(id, "delivered");
}

fn source(server: &Server, name: &str) -> Value {
    let status = server.status();
    let sources = status["sources"].as_array().expect("a list");
    sources.iter().find(|source| source["name"] == name).expect("the source").clone()
}

#[test]
fn files_of_a_folder_become_events_and_are_put_away() {
    let target = Target::willing();
    let sources = "sources:
  whole: { folder: whole }
  plain: { folder: plain, when_done: keep, type: \"orders.{data.kind}\", session: \"{data.customer}\" }
";
    let folder = Folder::with("redrive.yaml", &(book(&target, &[]) + sources));
    fs::create_dir(folder.path("whole")).expect("made");
    fs::create_dir(folder.path("plain")).expect("made");
    let server = Server::start(&folder);
    put(&folder, "whole/1.json", &event("e-1"));
    put(&folder, "whole/2.ndjson", &format!("{}\n\n{}\n", event("e-2"), event("e-3")));
    put(&folder, "plain/orders.json", r#"{"kind":"placed","customer":"ann"}"#);
    for id in ["e-1", "e-2", "e-3"] {
        until_delivered(&server, id);
    }
    until_gone(&folder.path("whole/1.json"));
    until_gone(&folder.path("whole/2.ndjson"));
    until_gone(&folder.path("plain/orders.json"));
    let kept = fs::read_to_string(folder.path("plain/done/orders.json")).expect("it is kept");
    assert_eq!(kept, r#"{"kind":"placed","customer":"ann"}"#);
    let events = server.get("/v1/deliveries?session=ann").json();
    assert_eq!(events["deliveries"][0]["event_type"], "orders.placed", "{events}");

    // One bad line sends the whole file away, and what was good of it is taken.
    put(&folder, "whole/3.jsonl", &format!("{}\nno json\n{}\n", event("e-4"), event("e-5")));
    until_delivered(&server, "e-5");
    until_gone(&folder.path("whole/3.jsonl"));
    assert!(folder.path("whole/refused/3.jsonl").exists());
    let reasons = fs::read_to_string(folder.path("whole/refused/3.jsonl.reason.txt")).expect("it says why");
    assert!(reasons.starts_with("line 2: ") && reasons.lines().count() == 1, "{reasons}");
    let refused = server.get("/v1/refused-hooks").json();
    assert_eq!(refused["refused"][0]["source"], "whole", "{refused}");
    // Mended and moved back, only what was refused is news.
    put(&folder, "whole/3.jsonl", &format!("{}\n{}\n{}\n", event("e-4"), event("e-6"), event("e-5")));
    until_delivered(&server, "e-6");
    until_gone(&folder.path("whole/3.jsonl"));
    let whole = source(&server, "whole");
    let counts = [&whole["accepted"], &whole["duplicates"], &whole["malformed"]].map(Value::as_u64);
    assert_eq!(counts, [Some(6), Some(2), Some(1)], "{whole}");
    assert_eq!(whole["reading"]["state"], "reading", "{whole}");
    let metrics = server.get("/metrics").body;
    assert!(
        metrics.contains("redrive_source_messages_total{source=\"whole\",verdict=\"durable\"} 6"),
        "{metrics}"
    );
    until("nothing is behind", || (source(&server, "whole")["reading"]["lag"] == 0).then_some(()));
    let status = folder.run(&["status", "--server", &format!("http://{}", server.client.address)]).printed();
    assert!(status.contains("lag 0"), "{status}");

    // What is no JSON is not made an event of, whatever the source makes of the rest; nor is nothing at all.
    put(&folder, "plain/words.json", "{words");
    put(&folder, "plain/nothing.json", "");
    for name in ["words.json", "nothing.json"] {
        until_gone(&folder.path(&format!("plain/{name}")));
        let reason = folder.path(&format!("plain/refused/{name}.reason.txt"));
        let reason = fs::read_to_string(reason).expect("it says why");
        assert!(reason.starts_with("line 1: not valid JSON: "), "{reason}");
    }
    server.stop().assert_calm();
}

#[test]
fn a_kill_between_durable_and_acknowledged_costs_nothing() {
    const LINES: usize = 4_000;
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &(book(&target, &[]) + "sources: { in: { folder: in } }\n"));
    fs::create_dir(folder.path("in")).expect("made");
    let lines: String = (0..LINES).map(|number| event(&format!("e-{number}")) + "\n").collect();
    put(&folder, "in/all.ndjson", &lines);
    for _ in 0..3 {
        let server = Server::start(&folder);
        until("some of it is durable", || (source(&server, "in")["accepted"].as_u64()? > 0).then_some(()));
        server.kill();
    }
    let server = Server::start(&folder);
    until_gone(&folder.path("in/all.ndjson"));
    let events = until("all are counted", || {
        let events = server.status()["events"].as_u64()?;
        (events >= LINES as u64).then_some(events)
    });
    assert_eq!(events, LINES as u64, "each is taken once");
    server.stop().assert_calm();
}

#[test]
fn an_outage_of_a_source_shows_and_ends_by_itself() {
    let target = Target::willing();
    let more = "\
dependencies: { disk: { kind: blob, retry: quick, breaker: none } }
sources: { in: { folder: in, depends_on: disk } }
";
    let folder = Folder::with("redrive.yaml", &(book(&target, &[]) + more));
    let server = Server::start(&folder);
    until("it is down", || (source(&server, "in")["reading"]["state"] == "down").then_some(()));
    let ready = server.get("/readyz").json();
    assert_eq!(
        (&ready["status"], &ready["degraded"][0]["what"]),
        (&"degraded".into(), &"source-down".into()),
        "{ready}"
    );
    fs::create_dir(folder.path("in")).expect("made");
    put(&folder, "in/1.json", &event("e-1"));
    until_delivered(&server, "e-1");
    assert_eq!(server.get("/readyz").json()["status"], "ready");
    // What a reload does not change goes on; what it changes is read from the new place.
    let counted = || source(&server, "in")["accepted"].clone();
    assert_eq!(counted(), 1);
    let since = source(&server, "in")["reading"]["since"].clone();
    let added = "  other: { target: { log: stdout }, events: [none.of] }\ndependencies:";
    folder.write("redrive.yaml", book(&target, &[]) + &more.replace("dependencies:", added));
    until("it is reloaded", || server.status()["services"].to_string().contains("other").then_some(()));
    assert_eq!(source(&server, "in")["reading"]["since"], since, "it was not disturbed");
    folder.write("redrive.yaml", book(&target, &[]) + &more.replace("folder: in,", "folder: other,"));
    fs::create_dir(folder.path("other")).expect("made");
    put(&folder, "other/2.json", &event("e-2"));
    until_delivered(&server, "e-2");
    assert_eq!(counted(), 2);
    server.stop().assert_calm();
}

#[test]
fn a_source_that_cannot_be_taken_from_waits_and_is_alerted_on() {
    let target = Target::willing();
    let more = "sources: { in: { folder: in } }
alerts: [{ name: behind, when: consumer_lag > 3 by source, severity: warning }]
";
    let rules = book(&target, &["waiting: { events: 2 }"]) + more;
    let folder = Folder::with("redrive.yaml", &rules);
    fs::create_dir(folder.path("in")).expect("made");
    let server = Server::start(&folder);
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    for number in 0..10 {
        put(&folder, &format!("in/{number}.json"), &event(&format!("e-{number}")));
    }
    let held = until("it is held", || {
        let source = source(&server, "in");
        (source["reading"]["state"] == "held").then_some(source)
    });
    assert_eq!(held["reading"]["why"], "backlog of service orders is full", "{held}");
    let ready = server.get("/readyz").json();
    let degraded = ready["degraded"].as_array().expect("a list");
    assert!(degraded.iter().any(|one| one["what"] == "source-held"), "{ready}");
    until("it is alerted on", || {
        let firing = server.status()["firing"].to_string();
        (firing.contains("behind") && firing.contains("source=in")).then_some(())
    });
    assert_eq!(server.post("/v1/services/orders/resume", "", "").status, 200);
    for number in 0..10 {
        until_delivered(&server, &format!("e-{number}"));
    }
    until("nothing is behind", || (source(&server, "in")["reading"]["lag"] == 0).then_some(()));
    server.stop().assert_calm();
}
