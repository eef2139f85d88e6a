//! The data folder of a real server: one that goes away under it, that another wants too, or that is damaged.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use serde_json::json;

use crate::alerts::until_told;
use crate::run::Folder;
use crate::server::{Server, contents, serve, until};
use crate::target::{Target, book};

/// A page of the database with what stands before it in the log.
const FRAME_BYTES: u64 = 8_192 + 24;

fn post(server: &Server, id: &str) -> u16 {
    server.post("/v1/events/orders.placed", &format!("idempotency-key: {id}\r\n"), "{}").status
}

/// Text that is in the data of one event and nowhere else.
const MARK: &str = "a-mark-that-nothing-else-has";

/// Takes an event whose data have the mark.
fn accept_marked(server: &Server, event_type: &str, id: &str) {
    let path = format!("/v1/events/{event_type}");
    let body = json!({ "mark": MARK }).to_string();
    let answer = server.post(&path, &format!("idempotency-key: {id}\r\n"), body);
    assert_eq!(answer.status, 202, "{answer:?}");
}

/// Flips a bit of the mark in the database of a server that has stopped.
fn damage_marked(folder: &Folder) {
    let path = folder.path("data/redrive.db");
    let mut bytes = fs::read(&path).expect("it is there");
    let found = bytes.windows(MARK.len()).position(|window| window == MARK.as_bytes());
    bytes[found.expect("the payload is in the file")] ^= 1;
    fs::write(&path, bytes).expect("it is ours");
}

/// Why it is not ready.
fn blockers(server: &Server) -> Option<serde_json::Value> {
    let answer = server.get("/readyz");
    (answer.status == 503).then(|| answer.json()["error"]["details"].clone())
}

#[test]
fn a_folder_that_goes_away_takes_no_more_events() {
    type Harm = fn(&Folder);
    let remove: Harm = |folder| fs::remove_dir_all(folder.path("data")).expect("it is ours");
    let replace: Harm = |folder| {
        fs::rename(folder.path("data"), folder.path("aside")).expect("it is ours");
        drop(Server::run(serve(folder, &[])));
    };
    for (name, harm) in [("removed", remove), ("replaced by another store", replace)] {
        let folder = Folder::new();
        let server = Server::run(serve(&folder, &[]));
        server.accept("orders.placed", "o-1", "");
        harm(&folder);
        for id in ["o-2", "o-3"] {
            assert_eq!(post(&server, id), 503, "{name}");
        }
        let details = until("it is not ready", || blockers(&server));
        assert_eq!(
            (&details["status"], &details["because"][0]["what"]),
            (&json!("not-ready"), &json!("store-failing")),
            "{name}: {details}"
        );
        assert!(details["because"][0]["why"].to_string().contains("deleted, moved or replaced"), "{details}");
        let line = server.err.wait_for("store writes failing");
        assert!(line.contains("ERROR") && line.contains("deleted, moved or replaced"), "{name}: {line}");
        assert!(!line.contains("nothing is lost"), "{name}: only the files could tell: {line}");
        assert_eq!(server.get("/healthz").status, 200, "{name}: a restart would begin with nothing");
        server.stop();
        if folder.path("aside").exists() {
            assert!(folder.path("data/redrive.db").exists(), "the other store is left alone");
        }
    }
}

#[test]
fn a_folder_that_is_moved_and_comes_back_is_served_on() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    server.accept("orders.placed", "o-1", "");
    fs::rename(folder.path("data"), folder.path("aside")).expect("it is ours");
    until("it is found out though nothing comes in", || blockers(&server));
    assert_eq!(post(&server, "o-2"), 503);
    fs::rename(folder.path("aside"), folder.path("data")).expect("it is ours");
    until("it takes events again", || (post(&server, "o-3") == 202).then_some(()));
    for id in ["o-1", "o-3"] {
        server.until(id, "delivered");
    }
    until("it is ready again", || (server.get("/readyz").status == 200).then_some(()));
    server.stop().assert_calm();
}

#[test]
fn a_commit_into_a_folder_that_is_gone_is_not_known() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    server.accept("orders.placed", "o-1", "");
    fs::remove_dir_all(folder.path("data")).expect("it is ours");
    let answer = server.post("/v1/events/orders.placed", "idempotency-key: o-2\r\n", "{}");
    let (status, code) = answer.error();
    // The look at the folder each second may have been quicker.
    assert_eq!(status, 503, "{answer:?}");
    assert!(["OUTCOME_UNKNOWN", "SERVICE_UNAVAILABLE"].contains(&code.as_str()), "{answer:?}");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
}

#[test]
fn a_log_that_is_deleted_alone_loses_nothing() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    assert_eq!(server.post("/v1/services/log/pause", "", "").status, 200);
    for number in 0..20 {
        server.accept("orders.placed", &format!("o-{number}"), "");
    }
    fs::remove_file(folder.path("data/redrive.db-wal")).expect("it is there while it serves");
    for id in ["new-1", "new-2"] {
        assert_eq!(post(&server, id), 503);
    }
    let line = server.err.wait_for("its commits are saved in the database");
    assert!(line.contains("ERROR") && line.contains("restart the server"), "{line}");
    until("it is not ready", || blockers(&server));
    for number in 0..20 {
        server.event(&format!("o-{number}"));
    }
    let ended = server.stop();
    ended.assert_calm();
    assert_eq!(ended.stderr.matches("its commits are saved").count(), 1, "{}", ended.stderr);

    let server = Server::run(serve(&folder, &[]));
    assert_eq!(server.post("/v1/services/log/resume", "", "").status, 200);
    for number in 0..20 {
        server.until(&format!("o-{number}"), "delivered");
    }
    server.stop().assert_calm();
}

#[test]
fn a_lock_file_that_was_deleted_lets_no_second_server_in() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    fs::remove_file(folder.path("data/lock")).expect("it is there while it serves");
    for _ in 0..2 {
        let Err(refused) = Server::try_run(serve(&folder, &[])) else { panic!("both serve") };
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
        assert!(refused.stderr.contains("another redrive is running on data"), "{}", refused.stderr);
    }
    let offline = folder.run(&["compact", "--data", "data"]);
    assert!(offline.code != 0 && offline.stderr.contains("a server is using data"), "{offline:?}");
    server.accept("orders.placed", "o-1", "");
    server.until("o-1", "delivered");
    let has_lock = || folder.path("data/lock").exists();
    assert!(!has_lock(), "those that were refused left none");
    server.stop().assert_calm();
    assert!(!has_lock(), "and so did the server");
    Server::run(serve(&folder, &[])).stop().assert_calm();
    assert!(!has_lock());
}

#[test]
fn a_copy_that_was_not_finished_is_not_served() {
    let folder = Folder::new();
    fs::create_dir(folder.path("data")).expect("a folder");
    folder.write("data/redrive.db.partial", "half of it");
    let Err(refused) = Server::try_run(serve(&folder, &[])) else { panic!("it serves") };
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("redrive.db.partial"), "{}", refused.stderr);
    assert_eq!(contents(&folder.path("data")).len(), 1, "nothing is made beside it");
}

#[test]
fn commits_behind_damage_in_the_log_are_counted_and_not_lost_in_silence() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    assert_eq!(server.post("/v1/services/log/pause", "", "").status, 200);
    let path = folder.path("data/redrive.db-wal");
    let mut frames = 0;
    for number in 0..12 {
        if number == 6 {
            frames = (fs::metadata(&path).expect("a log").len() - 32) / FRAME_BYTES;
        }
        server.accept("orders.placed", &format!("o-{number}"), "");
    }
    server.kill();
    let log = OpenOptions::new().read(true).write(true).open(&path).expect("a log");
    let (at, mut byte) = (32 + frames * FRAME_BYTES + 24 + 4_000, [0]);
    log.read_exact_at(&mut byte, at).expect("it is there");
    log.write_all_at(&[byte[0] ^ 8], at).expect("it is ours");
    let files = || {
        let mut files = contents(&folder.path("data"));
        files.retain(|(path, _)| !path.ends_with("lock"));
        files
    };
    let before = files();
    for arguments in
        [&["serve", "--listen", "127.0.0.1:0", "--data", "data"][..], &["compact", "--data", "data"]]
    {
        let refused = folder.run(arguments);
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{refused:?}");
        let damage = format!("damaged at frame {}", frames + 1);
        assert!(refused.stderr.contains(&damage), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("committed transactions") && refused.stderr.contains("--accept-loss")
        );
    }
    assert!(before == files(), "not a byte was changed");

    let server = Server::run(serve(&folder, &["--accept-loss"]));
    let line = server.err.wait_for("loss of commits accepted");
    assert!(line.contains("ERROR") && line.contains("commits="), "{line}");
    let kept = (0..12).filter(|n| server.get(&format!("/v1/events/o-{n}")).status == 200).count();
    assert_eq!(kept, 6, "those behind the damage are lost");
    server.accept("orders.placed", "o-new", "");
    server.kill();
    let server = Server::run(serve(&folder, &[]));
    assert_eq!(server.get("/v1/events/o-new").status, 200, "the loss is accepted once and for all");
    server.stop().assert_calm();
}

#[test]
fn a_server_leaves_huge_pages_alone() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", server.id())).expect("it runs");
    let value = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key).map(str::trim).map(str::to_owned));
        line.unwrap_or_else(|| panic!("Linux says so: {key}"))
    };
    assert_eq!(value(&read("status"), "THP_enabled:"), "0");
    assert_eq!(value(&read("smaps_rollup"), "AnonHugePages:"), "0 kB");
    server.stop().assert_calm();
}

#[test]
fn an_event_whose_bits_have_changed_is_a_dead_letter_and_is_never_delivered() {
    let (target, hook) = (Target::willing(), Target::willing());
    let receivers = format!("receivers: {{ hook: {{ webhook: \"{}\" }} }}\n", hook.url());
    let folder = Folder::with("redrive.yaml", &(book(&target, &[]) + &receivers));
    let server = Server::start(&folder);
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    server.accept("orders.placed", "o-before", "");
    accept_marked(&server, "orders.placed", "o-bad");
    server.accept("orders.placed", "o-after", "");
    server.stop().assert_calm();
    damage_marked(&folder);

    let server = Server::start(&folder);
    assert_eq!(server.post("/v1/services/orders/resume", "", "").status, 200);
    for id in ["o-before", "o-after"] {
        server.until(id, "delivered");
    }
    let dead = server.until("o-bad", "dead");
    assert_eq!((&dead["attempts"], target.count()), (&json!(0), 2), "{dead}");
    let letters = server.get("/v1/dead-letters").json();
    assert_eq!(letters["dead_letters"][0]["code"], "DAMAGED", "{letters}");
    let line = server.err.wait_for("DAMAGED");
    assert!(line.contains("WARN"), "{line}");
    let firing = until_told(&hook, "event-damaged", "firing");
    assert_eq!(
        (&firing["severity"], &firing["subjects"][0]["of"]),
        (&json!("critical"), &json!("service=orders"))
    );

    let id = letters["dead_letters"][0]["id"].as_str().expect("an id");
    let edit = server.post(&format!("/v1/dead-letters/{id}/edit"), "", r#"{"data":{"mark":"typed in"}}"#);
    let named = server.post("/v1/replays", "", json!({ "letters": [id] }).to_string());
    let matched = server.post("/v1/replays", "", r#"{"code":"DAMAGED"}"#);
    for refused in [edit, named, matched] {
        assert_eq!(refused.error(), (409, "CONFLICT".to_owned()), "{refused:?}");
        let error = &refused.json()["error"];
        assert_eq!(error["details"]["letter"], id, "{error}");
        assert!(error["message"].to_string().contains("is damaged; restore a backup"), "{error}");
    }
    assert_eq!(target.count(), 2, "nothing is made of it");
    server.stop().assert_calm();
}

#[test]
fn a_damaged_event_that_finds_its_service_later_is_never_delivered() {
    let target = Target::willing();
    let rules = book(&target, &[]);
    let folder = Folder::with("redrive.yaml", &rules);
    let server = Server::start(&folder);
    accept_marked(&server, "parcels.sent", "p-bad");
    server.accept("parcels.sent", "p-good", "");
    server.stop().assert_calm();
    damage_marked(&folder);

    let server = Server::start(&folder);
    folder.write("redrive.yaml", rules.replace("[\"orders.*\"]", "[\"orders.*\", \"parcels.*\"]"));
    server.signal("HUP");
    server.err.wait_for("rule book reloaded");
    let routed = server.post("/v1/unrouted/route", "", "").json();
    assert_eq!(routed, json!({ "seen": 2, "routed": 2 }));
    server.until("p-good", "delivered");
    let dead = server.until("p-bad", "dead");
    assert_eq!((&dead["attempts"], target.count()), (&json!(0), 1), "{dead}");
    let letters = server.get("/v1/dead-letters").json();
    assert_eq!(letters["dead_letters"][0]["code"], "DAMAGED", "{letters}");
    server.stop().assert_calm();
}
