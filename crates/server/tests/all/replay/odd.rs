//! What may get in the way of a replay: a rule book that changes, another operator, a filter that finds
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::{accept_all, begin, dead, letters, post, until_state};
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Call, Target, book, status};

/// More than one step of gathering looks at.
const LETTERS: usize = 3_000;

fn server_with_letters(target: &Target, count: usize) -> (Folder, Server) {
    let folder = Folder::with("redrive.yaml", &book(target, &[]));
    let server = Server::start(&folder);
    let events: Vec<_> = (0..count)
        .map(|number| ("orders.placed".to_owned(), format!("e{number}"), format!("s{number}")))
        .collect();
    accept_all(&server, &events);
    until("all of them are dead", || (dead(&server) == count as u64).then_some(()));
    (folder, server)
}

#[test]
fn a_second_operator_is_told_whose_the_letters_are() {
    let target = Target::saying(&[400]);
    let (_folder, server) = server_with_letters(&target, LETTERS);
    begin(&server, &json!({ "service": "orders", "rate": 1 }));
    until("all of them are claimed", || (super::replay(&server, 1)["total"] == LETTERS as u64).then_some(()));
    let answer = post(&server, "/v1/replays", &json!({ "service": "orders" }));
    assert_eq!(answer.error(), (409, "REPLAY_CONFLICT".to_owned()), "{answer:?}");
    let purge = post(&server, "/v1/dead-letters/purge", &json!({ "service": "orders", "tier": "dead" }));
    assert!(purge.body.contains("\"deleted\":0"), "letters of an open replay stay: {purge:?}");
    let answer = post(&server, "/v1/replays", &json!({ "service": "nobody" }));
    assert_eq!(answer.status, 404, "a filter that finds nothing: {answer:?}");
    assert_eq!(server.get("/v1/replays").json()["replays"].as_array().map(Vec::len), Some(1));
}

#[test]
fn live_events_do_not_wait_for_a_slow_replay_of_their_session() {
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let target =
        Target::start(move |_: &Call| status(if is_mended.load(Ordering::SeqCst) { 200 } else { 400 }));
    let folder = Folder::with("redrive.yaml", &book(&target, &["order: session"]));
    let server = Server::start(&folder);
    let events: Vec<_> =
        (0..30).map(|number| ("orders.placed".to_owned(), format!("e{number}"), "s".to_owned())).collect();
    accept_all(&server, &events);
    until("all of them are dead", || (dead(&server) == 30).then_some(()));
    mended.store(true, Ordering::SeqCst);
    // At this rate the replay takes longer than any test waits.
    let id = begin(&server, &json!({ "service": "orders", "rate": 0.5 }));
    for number in 0..5 {
        let live = format!("live{number}");
        server.accept("orders.placed", &live, "s");
        server.until(&live, "delivered");
    }
    let job = super::replay(&server, id);
    assert!(job["state"] == "running" && job["waiting"].as_u64() > Some(10), "it is still at it: {job}");
}

#[test]
fn a_service_that_goes_away_halts_its_replay_and_keeps_its_letters() {
    let target = Target::saying(&[400]);
    let (folder, server) = server_with_letters(&target, 20);
    let id = begin(&server, &json!({ "service": "orders", "rate": 1 }));
    assert_eq!(post(&server, &format!("/v1/replays/{id}/pause"), &json!({})).status, 200);
    until("what was sent has ended", || {
        let job = super::replay(&server, id);
        (job["in_flight"] == 0).then_some(())
    });
    let calls = target.count();
    folder.write("redrive.yaml", book(&target, &[]).replace("  orders:", "  others:"));
    until("the service is gone", || {
        let status = server.status();
        let gone = status["services"].as_array()?.iter().find(|service| service["service"] == "orders")?;
        (gone["removed"] == true).then_some(())
    });
    let answer = post(&server, "/v1/replays", &json!({ "service": "orders" }));
    assert_eq!(answer.error(), (409, "REPLAY_CONFLICT".to_owned()), "{answer:?}");
    assert_eq!(post(&server, &format!("/v1/replays/{id}/resume"), &json!({})).status, 200);
    until_state(&server, id, "stopped");
    assert_eq!(letters(&server, "code=RULE_REMOVED&limit=100").len(), 1, "one was enough to find out");
    assert_eq!((dead(&server), target.count()), (20, calls), "nothing was sent, and nothing is lost");
    assert_eq!(post(&server, &format!("/v1/replays/{id}/cancel"), &json!({})).status, 200);
    let answer = post(&server, "/v1/replays", &json!({ "service": "orders" }));
    assert_eq!(answer.error(), (409, "SERVICE_GONE".to_owned()), "{answer:?}");
    let elsewhere = begin(
        &server,
        &json!({ "service": "orders", "to": "others", "include_poison": true, "note": "they moved" }),
    );
    until_state(&server, elsewhere, "done");
    assert_eq!(target.count(), calls + 20, "`to` sends them elsewhere");
}

#[test]
fn what_cannot_be_sent_again_says_why() {
    let target = Target::saying(&[400]);
    let (folder, server) = server_with_letters(&target, 1);
    let id = begin(&server, &json!({ "service": "orders" }));
    until_state(&server, id, "done");
    let others = "  others:\n    target: { log: stdout }\n    events: [others.placed]\n";
    folder.write("redrive.yaml", book(&target, &[]) + others);
    until("it is known", || (server.post("/v1/services/others/resume", "", "").status == 200).then_some(()));
    let moved = json!({ "service": "orders", "to": "others", "include_poison": true, "note": "they moved" });
    let path = format!("/v1/replays/{id}/resume");
    #[rustfmt::skip]
    let cases = [
        ("it failed once more",   "/v1/replays", json!({ "service": "orders" }), "ONLY_POISON"),
        ("nobody wants it there", "/v1/replays", moved,                          "EVENT_NOT_WANTED"),
        ("it is over",            &path,         json!({}),                      "REPLAY_STATE"),
    ];
    for (name, path, wish, code) in cases {
        let answer = post(&server, path, &wish);
        assert_eq!(answer.error(), (409, code.to_owned()), "{name}: {answer:?}");
    }
    server.stop().assert_calm();
}
