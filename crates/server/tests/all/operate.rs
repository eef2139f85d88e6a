//! The commands of an operator against a real server: what one prints, the next one takes.

use std::fs;

use serde_json::Value;

use crate::run::Folder;
use crate::server::Server;
use crate::target::{Target, book};

/// A word of the output after that one.
#[track_caller]
fn word_after<'a>(text: &'a str, before: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("{before:?} is not in {text}")).1;
    rest.split_whitespace().next().expect("something follows")
}

#[test]
fn from_an_event_to_its_story() {
    let target = Target::saying(&[410]);
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let url = format!("http://{}", server.client.address);
    let run = |arguments: &[&str]| folder.run(&[arguments, &["--server", &url]].concat());

    let sent = run(&["send", "orders.placed", "{\"order\": 42}", "--session", "customer 7"]).printed();
    let (id, receipt) = (word_after(&sent, "id  "), word_after(&sent, "redrive show "));
    server.until(id, "dead");
    let shown = run(&["show", receipt]).printed();
    assert_eq!(run(&["show", id]).printed(), shown);
    for words in ["orders.placed", "customer 7", "\"order\": 42", "  orders   dead", "GONE"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let delivery = word_after(&shown, "redrive why ");
    let why = run(&["why", delivery]).printed();
    assert_eq!(run(&["why", "--last"]).printed(), why);
    for words in ["410 Gone", "permanent", "dead letter", "✗ dead after 1 attempt", "--answers 410"] {
        assert!(why.contains(words), "{words}: {why}");
    }
    assert!(run(&["show", delivery]).printed().contains("dead letter GONE"), "by the digits of a delivery");
    assert!(run(&["show", "nothing-of-the-kind"]).refused().contains("nothing found for"));
    let json: Value =
        serde_json::from_str(&run(&["why", delivery, "--format", "json"]).printed()).expect("JSON");
    assert_eq!(json["stories"][0]["status"], 410);
    server.stop().assert_calm();
}

#[test]
fn what_an_operator_says_holds() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let url = format!("http://{}", server.client.address);
    let run = |arguments: &[&str]| folder.run(&[arguments, &["--server", &url]].concat());

    run(&["pause", "orders"]).printed();
    run(&["send", "orders.placed", "--id", "1"]).printed();
    assert!(run(&["send", "nobody.wants", "--id", "2"]).printed().contains("routed to none"));
    let paused = run(&["status"]).printed();
    assert!(paused.contains("paused for ") && paused.contains("1 unrouted"), "{paused}");
    assert!(run(&["why", "--last"]).printed().contains("waiting after 0 attempts: "));
    run(&["resume", "orders"]).printed();
    server.until("1", "delivered");
    assert!(!run(&["status"]).printed().contains("paused for "));
    assert!(run(&["pause", "biling"]).refused().contains("(SERVICE_NOT_FOUND, 404)"));
    assert!(run(&["route", "--unrouted"]).printed().starts_with("! 1 unrouted event,"));
    server.stop().assert_calm();
}

#[test]
fn a_copy_is_a_store_whoever_made_it() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    let url = format!("http://{}", server.client.address);
    let backup = |to: &str| folder.run(&["backup", to, "--data", "data", "--server", &url]);

    folder.run(&["send", "orders.placed", "--id", "1", "--server", &url]).printed();
    server.until("1", "delivered");
    assert!(backup("online").printed().contains(" pages to "));
    assert!(backup("online").refused().contains("the backup folder must be empty"));
    let compact = || folder.run(&["compact", "--data", "data"]);
    let refused = compact().refused();
    assert!(refused.starts_with("error: a server is using data (process "), "{refused}");
    assert!(refused.ends_with("): stop it to compact the folder\n"), "{refused}");
    let refused = folder.run(&["keys", "create", "me", "--role", "admin", "--data", "data"]).refused();
    assert!(refused.contains("use the server instead, without --data and with an admin key"), "{refused}");
    server.stop().assert_calm();
    assert!(backup("offline").printed().contains(" pages to "));
    assert!(compact().printed().starts_with("✓ data: "));

    for copy in ["online", "offline"] {
        fs::remove_dir_all(folder.path("data")).expect("nobody uses it");
        fs::rename(folder.path(copy), folder.path("data")).expect("a copy is a folder");
        let server = Server::start(&folder);
        server.until("1", "delivered");
        server.stop().assert_calm();
    }
}
