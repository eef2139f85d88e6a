//! What an earlier release wrote is served on: a data folder and a rule book.

use std::fs;

use rusqlite::Connection;
use serde_json::json;

use crate::run::Folder;
use crate::server::Server;
use crate::target::Target;

const FORMAT_4: &str = include_str!("../../../node/src/store/tests/fixtures/format-4.sql");
/// All kinds in it are built in.
const PKARR: &str = include_str!("../../../core/src/book/tests/before/pkarr.yaml");

#[test]
fn a_data_folder_of_an_earlier_format_is_served_on() {
    let target = Target::willing();
    let url = target.url();
    // Letters and deliveries of the fixture stay for ten years, the most that a book can say.
    let rules = format!(
        "version: 1
defaults: {{ keep_delivered: 3650d, dead_letter: {{ retention: 3650d }}, breaker: none }}
services:
  ok: {{ target: {{ http: \"{url}\" }}, events: [shop.paid] }}
  bad: {{ target: {{ http: \"{url}\" }}, events: [shop.lost, shop.paid] }}
  held: {{ target: {{ http: \"{url}\" }}, order: session-strict, events: [shop.step] }}
  later: {{ target: {{ http: \"{url}\" }}, retry: patient, events: [shop.slow] }}
"
    );
    let folder = Folder::with("redrive.yaml", &rules);
    fs::create_dir(folder.path("data")).expect("a folder");
    let connection = Connection::open(folder.path("data/redrive.db")).expect("it opens");
    connection.execute_batch(FORMAT_4).expect("it is SQL");
    drop(connection);

    let server = Server::start(&folder);
    let letters = server.get("/v1/dead-letters").json();
    assert_eq!(letters["dead_letters"].as_array().map(Vec::len), Some(6), "{letters}");
    assert_eq!(server.event("imported-1")["deliveries"][0]["state"], "delivered");
    assert_eq!(server.event("unheard-1")["unrouted"], true);
    assert_eq!(server.post("/v1/services/later/resume", "", "").status, 200);
    server.until("slow-1", "delivered");
    let step = server.event("step-1")["deliveries"][0]["id"].as_str().expect("an id").to_owned();
    let replay = server.post("/v1/replays", "", json!({ "letters": [step] }).to_string());
    assert_eq!(replay.status, 201, "{replay:?}");
    for id in ["step-1", "step-2"] {
        server.until(id, "delivered");
    }
    server.stop().assert_calm();
    Server::start(&folder).stop().assert_calm();
}

#[test]
fn a_rule_book_of_an_earlier_release_is_served() {
    let folder = Folder::with("redrive.yaml", PKARR);
    let server = Server::start(&folder);
    assert_eq!(server.get("/readyz").status, 200);
    server.accept("pkarr.verification.requested", "v-1", "");
    assert_eq!(server.event("v-1")["deliveries"].as_array().map(Vec::len), Some(1));
    server.stop().assert_calm();
}
