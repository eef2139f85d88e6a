//! The archive of a real server: what it keeps, what is in its way, and how an event comes out of it again.

use std::fs;

use serde_json::Value;

use crate::alerts::until_told;
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Target, book};

const ARCHIVE: &str = "archive: { folder: archive }\n";

fn with_archive(target: &Target) -> String {
    book(target, &[]) + ARCHIVE
}

/// Waits until the archive of the folder gives that event, and prints it.
#[track_caller]
fn archived(folder: &Folder, event: &str) -> String {
    until(&format!("{event} is archived"), || {
        let run = folder.run(&["archive", "get", event]);
        (run.code == 0).then_some(run.stdout)
    })
}

#[test]
fn what_was_sent_is_kept_byte_for_byte_and_outlives_the_store() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &with_archive(&target));
    let server = Server::start(&folder);
    let body = "{ \"total\" : 1.50,\n\t\"note\": \"ünï\" }";
    let id = "..%2F..%2Fetc%2Fpasswd";
    let sent = server.post("/v1/events/orders.placed", "idempotency-key: ../../etc/passwd\r\n", body);
    assert_eq!(sent.status, 202, "{sent:?}");
    let receipt = sent.json()["receipt"].as_str().expect("a receipt").to_owned();
    assert_eq!(archived(&folder, "../../etc/passwd"), body);
    server.until(id, "delivered");
    until("it is counted", || (server.status()["archive"]["archived"] == 1).then_some(()));
    let status = server.status()["archive"].clone();
    assert_eq!((&status["state"], &status["skipped"]), (&Value::from("well"), &Value::from(0)), "{status}");
    let url = format!("http://{}", server.client.address);
    let shown = folder.run(&["status", "--server", &url]).printed();
    assert!(shown.contains("✓ archive: 1 event archived\n"), "{shown}");
    server.stop().assert_calm();

    fs::remove_dir_all(folder.path("data")).expect("it is there");
    assert_eq!(folder.run(&["archive", "get", &receipt]).printed(), body);
    let json = folder.run(&["archive", "get", &receipt, "--folder", "archive", "--format", "json"]).printed();
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["event"]["id"], &json["receipt"]), (&"../../etc/passwd".into(), &Value::from(receipt)));
    let written = folder.run(&["archive", "get", "../../etc/passwd", "-o", "out.json"]);
    assert_eq!(written.printed(), "");
    assert_eq!(fs::read_to_string(folder.path("out.json")).expect("it is there"), body);
    let days: Vec<_> = fs::read_dir(folder.path("archive")).expect("it is there").collect();
    assert_eq!(days.len(), 1, "a day and nothing else: {days:?}");
}

#[test]
fn what_came_before_a_crash_is_archived_after_it() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &with_archive(&target));
    let server = Server::start(&folder);
    for number in 0..300 {
        server.accept("orders.placed", &format!("o-{number}"), "");
    }
    server.kill();
    let server = Server::start(&folder);
    for number in 0..300 {
        assert_eq!(archived(&folder, &format!("o-{number}")), format!("{{\"id\":\"o-{number}\"}}"));
    }
    server.stop().assert_calm();
}

#[test]
fn an_archive_that_takes_nothing_holds_up_nobody_and_catches_up() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &with_archive(&target));
    folder.write("archive", "no folder");
    let server = Server::start(&folder);
    server.accept("orders.placed", "early", "");
    server.until("early", "delivered");
    until("it is seen", || (server.status()["archive"]["state"] == "waiting").then_some(()));
    let url = format!("http://{}", server.client.address);
    let shown = folder.run(&["status", "--server", &url]).printed();
    assert!(shown.contains("! archive: writes fail") && shown.contains("access denied"), "{shown}");
    assert!(server.err.so_far().contains("archive access denied"), "{}", server.err.so_far());
    fs::remove_file(folder.path("archive")).expect("it is there");
    assert_eq!(archived(&folder, "early"), "{\"id\":\"early\"}");
    assert_eq!(server.status()["archive"]["skipped"], 0);
    server.stop().assert_calm();
}

#[test]
fn events_that_are_left_out_of_the_archive_are_told_and_its_breaker_says_when() {
    // No folder can have that name, and no retry changes that.
    let folder_name = format!("archive-{}", "x".repeat(300));
    for (breaker, has_opened) in [("breaker: quick", true), ("", false)] {
        let (target, hook) = (Target::willing(), Target::willing());
        let more = format!(
            "archive: {{ folder: {folder_name}, {breaker} }}
breakers: {{ quick: {{ trip: {{ consecutive: 1 }}, open: 1h }} }}
receivers: {{ hook: {{ webhook: \"{}\" }} }}
",
            hook.url()
        );
        let folder = Folder::with("redrive.yaml", &(book(&target, &[]) + &more));
        let server = Server::start(&folder);
        server.accept("orders.placed", "o-1", "");
        until("the write has failed", || (!server.status()["archive"]["last_error"].is_null()).then_some(()));
        if has_opened {
            let firing = until_told(&hook, "archive-incomplete", "firing");
            assert_eq!(firing["subjects"][0]["of"], "archive", "{firing}");
            until("it is counted", || (server.status()["archive"]["skipped"] == 1).then_some(()));
        } else {
            let archive = server.status()["archive"].clone();
            assert_eq!(archive["skipped"], 0, "the breaker of its kind lets more than one fail: {archive}");
        }
        server.stop().assert_calm();
    }
}

#[test]
fn an_archive_may_come_with_a_new_rule_book() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    server.accept("orders.placed", "before", "");
    assert_eq!(server.status()["archive"], Value::Null);
    folder.write("redrive.yaml", with_archive(&target));
    until("it has one", || (!server.status()["archive"].is_null()).then_some(()));
    // Where it begins is settled a moment later.
    let mut number = 0;
    until("it begins", || {
        number += 1;
        server.accept("orders.placed", &format!("after-{number}"), "");
        server.status()["archive"]["archived"].as_u64().filter(|archived| *archived > 0)
    });
    archived(&folder, &format!("after-{number}"));
    assert!(folder.run(&["archive", "get", "before"]).refused().contains("has no event `before`"));
    server.stop().assert_calm();
}

#[test]
fn an_event_that_is_not_the_only_one_of_its_id_needs_another_word() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &with_archive(&target));
    let server = Server::start(&folder);
    for source in ["/a", "/b"] {
        let headers = format!(
            "ce-specversion: 1.0\r\nce-id: same\r\nce-source: {source}\r\nce-type: orders.placed\r\ncontent-type: application/json\r\n"
        );
        let sent = server.post("/v1/events", &headers, format!("\"from {source}\""));
        assert_eq!(sent.status, 202, "{sent:?}");
    }
    until("both are archived", || (server.status()["archive"]["archived"] == 2).then_some(()));
    let refused = folder.run(&["archive", "get", "same"]).refused();
    assert!(refused.contains("2 events match `same`") && refused.contains("--source"), "{refused}");
    let one = folder.run(&["archive", "get", "same", "--source", "/b"]).printed();
    assert_eq!(one, "\"from /b\"");
    server.stop().assert_calm();
}

#[test]
fn what_cannot_be_had_is_said_in_words() {
    let folder = Folder::with(
        "redrive.yaml",
        "version: 1\nservices:\n  a:\n    target: { log: stdout }\n    events: [x.y]\n",
    );
    assert!(folder.run(&["archive", "get", "x"]).refused().contains("redrive.yaml defines no archive"));
    let missing = folder.run(&["archive", "get", "x", "--folder", "none"]).refused();
    assert!(missing.contains("cannot read the archive in none"), "{missing}");
}
