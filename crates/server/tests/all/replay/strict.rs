//! `order: session-strict`: a dead head holds its session, visibly, until somebody does something about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{begin, letters, post, sequence, text, until_state};
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Call, Target, book, status};

/// Refuses what is called `bad…` until it is mended.
fn picky(mended: &Arc<AtomicBool>) -> Target {
    let mended = Arc::clone(mended);
    Target::start(move |call: &Call| {
        let is_bad = call.event_id().starts_with("bad") && !call.event_id().contains("edit");
        status(if is_bad && !mended.load(Ordering::SeqCst) { 400 } else { 200 })
    })
}

fn ids(target: &Target) -> Vec<String> {
    let taken = target.calls().into_iter().filter(|call| call.answered == Some(200));
    taken.map(|call| call.event_id().to_owned()).collect()
}

/// A session whose head is dead and behind which two wait; another session goes on.
fn held(target: &Target, folder: &Folder) -> (Server, String) {
    let server = Server::start(folder);
    for (id, session) in [("bad", "a"), ("second", "a"), ("third", "a"), ("elsewhere", "b")] {
        server.accept("orders.placed", id, session);
    }
    server.until("bad", "dead");
    server.until("elsewhere", "delivered");
    assert_eq!(ids(target), ["elsewhere"], "nobody of the session went past its head");
    assert_eq!(server.event("second")["deliveries"][0]["behind"], true);
    let sessions = server.get("/v1/held-sessions").json();
    let session = &sessions["held_sessions"][0];
    assert_eq!((&session["session"], &session["behind"]), (&json!("a"), &json!(2)), "{sessions}");
    let letter = letters(&server, "session=a").remove(0);
    assert_eq!(letter["holds"], 2, "{letter}");
    (server, text(&letter["id"]).to_owned())
}

#[test]
fn a_dead_head_holds_its_session_until_something_is_done() {
    type Deed = fn(&Server, &str, &AtomicBool);
    let replayed: Deed = |server, letter, mended| {
        mended.store(true, Ordering::SeqCst);
        let id = begin(server, &json!({ "letters": [letter] }));
        until_state(server, id, "done");
    };
    let skipped: Deed = |server, letter, _| {
        let answer = post(server, &format!("/v1/dead-letters/{letter}/skip"), &json!({ "note": "too late" }));
        assert_eq!(answer.status, 200, "{answer:?}");
        server.until("bad", "skipped");
    };
    let purged: Deed = |server, _, _| {
        let answer = post(server, "/v1/dead-letters/purge", &json!({ "session": "a" }));
        assert!(answer.status == 200 && answer.body.contains("\"deleted\":1"), "{answer:?}");
    };
    let edited: Deed = |server, letter, _| {
        let edit = json!({ "data": { "mended": true }, "note": "a typo" });
        let answer = post(server, &format!("/v1/dead-letters/{letter}/edit"), &edit);
        assert_eq!(answer.status, 200, "{answer:?}");
        server.until("bad", "superseded");
    };
    #[rustfmt::skip]
    let cases: [(&str, Deed, &[&str]); 4] = [
        ("replay", replayed, &["elsewhere", "bad", "second", "third", "fourth"]),
        ("skip",   skipped,  &["elsewhere", "second", "third", "fourth"]),
        ("purge",  purged,   &["elsewhere", "second", "third", "fourth"]),
        ("edit",   edited,   &["elsewhere", "bad#edit", "second", "third", "fourth"]),
    ];
    for (name, deed, expected) in cases {
        let mended = Arc::new(AtomicBool::new(false));
        let target = picky(&mended);
        let folder = Folder::with("redrive.yaml", &book(&target, &["order: session-strict"]));
        let (server, letter) = held(&target, &folder);
        deed(&server, &letter, &mended);
        server.accept("orders.placed", "fourth", "a");
        server.until("fourth", "delivered");
        let came = ids(&target);
        assert_eq!(came.len(), expected.len(), "{name}: {came:?}");
        for (came, expected) in came.iter().zip(expected) {
            assert!(came.starts_with(expected), "{name}: {came} instead of {expected}");
        }
        let calls = target.calls();
        let in_session = calls.iter().filter(|call| call.header("ce-partitionkey") == "a");
        let sequences: Vec<u64> =
            in_session.filter(|call| call.answered == Some(200)).map(sequence).collect();
        assert!(sequences.is_sorted(), "{name}: a target that fences takes them all: {sequences:?}");
        let sessions = server.get("/v1/held-sessions").json();
        assert_eq!(sessions["held_sessions"], json!([]), "{name}");
        let audit = server.get("/v1/audit").json();
        let acts: Vec<&str> =
            audit["audit"].as_array().expect("a list").iter().map(|record| text(&record["act"])).collect();
        assert_eq!(acts, [name], "{name}");
    }
}

#[test]
fn a_held_session_is_told_and_survives_kills_and_failed_replays() {
    let mended = Arc::new(AtomicBool::new(false));
    let target = picky(&mended);
    let folder = Folder::with("redrive.yaml", &book(&target, &["order: session-strict"]));
    let (server, letter) = held(&target, &folder);
    server.err.wait_for("session held by a dead letter");
    let id = begin(&server, &json!({ "letters": [letter] }));
    let job = until_state(&server, id, "done");
    assert_eq!(job["failed"], 1, "{job}");
    server.kill();
    let server = Server::start(&folder);
    server.err.wait_for("session held by a dead letter");
    assert_eq!(ids(&target), ["elsewhere"], "it still holds them");
    let letter = letters(&server, "tier=poison").remove(0);
    let refused = post(&server, "/v1/replays", &json!({ "letters": [letter["id"]] }));
    assert_eq!(refused.status, 409, "poison must be meant: {refused:?}");
    mended.store(true, Ordering::SeqCst);
    let wish = json!({ "letters": [letter["id"]], "include_poison": true, "note": "mended" });
    until_state(&server, begin(&server, &wish), "done");
    server.until("third", "delivered");
    assert_eq!(ids(&target), ["elsewhere", "bad", "second", "third"]);
}

#[test]
fn a_book_that_holds_nobody_any_more_lets_go() {
    let mended = Arc::new(AtomicBool::new(false));
    let target = picky(&mended);
    let folder = Folder::with("redrive.yaml", &book(&target, &["order: session-strict"]));
    let (server, _) = held(&target, &folder);
    server.kill();
    folder.write("redrive.yaml", book(&target, &["order: session"]));
    let server = Server::start(&folder);
    server.until("third", "delivered");
    assert_eq!(ids(&target), ["elsewhere", "second", "third"]);
    let letters = letters(&server, "session=a");
    assert_eq!((letters.len(), &letters[0]["holds"]), (1, &Value::Null), "the letter stays: {letters:?}");
}

#[test]
fn too_many_behind_a_dead_head_are_dead_letters_in_their_turn() {
    // One more may wait.
    let target = picky(&Arc::new(AtomicBool::new(false)));
    let more = ["order: session-strict", "waiting: { per_session: 3 }"];
    let folder = Folder::with("redrive.yaml", &book(&target, &more));
    let (server, _) = held(&target, &folder);
    server.accept("orders.placed", "fourth", "a");
    until("it waits with the others", || {
        let sessions = server.get("/v1/held-sessions").json();
        (sessions["held_sessions"][0]["behind"] == 3).then_some(())
    });
    assert_eq!(letters(&server, "code=SESSION_FULL").len(), 0);
    drop(server);

    let mended = Arc::new(AtomicBool::new(false));
    let target = picky(&mended);
    let more = ["order: session-strict", "waiting: { per_session: 2 }"];
    let folder = Folder::with("redrive.yaml", &book(&target, &more));
    let (server, letter) = held(&target, &folder);
    server.accept("orders.placed", "fourth", "a");
    server.until("fourth", "dead");
    assert_eq!(letters(&server, "code=SESSION_FULL").len(), 1);
    mended.store(true, Ordering::SeqCst);
    until_state(&server, begin(&server, &json!({ "letters": [letter] })), "done");
    server.until("third", "delivered");
    server.accept("orders.placed", "fifth", "a");
    until("the overflow holds the session in its turn", || {
        let sessions = server.get("/v1/held-sessions").json();
        (sessions["held_sessions"][0]["behind"] == 1).then_some(())
    });
    until_state(&server, begin(&server, &json!({ "service": "orders" })), "done");
    server.until("fifth", "delivered");
    assert_eq!(ids(&target), ["elsewhere", "bad", "second", "third", "fourth", "fifth"]);
}
