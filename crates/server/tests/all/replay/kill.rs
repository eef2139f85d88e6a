//! Kills in the middle of a replay: nothing that was recorded as sent is sent twice, and nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{accept_all, begin, by_session, dead, post, replay, sequence};
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Call, Target, status};

const LETTERS: usize = 1_200;
const SESSIONS: usize = 40;
const CONCURRENCY: usize = 8;
const KILLS: usize = 6;

fn book(target: &Target, round: usize) -> String {
    format!(
        "version: 1
dependencies:
  shop: {{ kind: webhook, breaker: none }}
services:
  orders:
    target: {{ http: \"http://{}/{round}\" }}
    depends_on: shop
    order: session
    events: [\"orders.*\"]
",
        target.address
    )
}

#[test]
fn a_replay_survives_kills() {
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let target = Target::start(move |_: &Call| {
        if !is_mended.load(Ordering::SeqCst) {
            return status(400);
        }
        thread::sleep(Duration::from_millis(2));
        status(200)
    });
    let folder = Folder::with("redrive.yaml", &book(&target, 0));
    let mut server = Server::start(&folder);
    let events: Vec<_> = (0..LETTERS)
        .map(|number| ("orders.placed".to_owned(), format!("e{number}"), format!("s{}", number % SESSIONS)))
        .collect();
    accept_all(&server, &events);
    until("all of them are dead", || (dead(&server) == LETTERS as u64).then_some(()));
    mended.store(true, Ordering::SeqCst);
    let id = begin(&server, &json!({ "service": "orders", "concurrency": CONCURRENCY }));

    // Deliveries that the server said were delivered, by the round in which it said so.
    let mut recorded: BTreeMap<String, usize> = BTreeMap::new();
    for round in 1..=KILLS {
        let delivered = |job: &Value| job["delivered"].as_u64().expect("a number");
        until("it has gone on", || {
            (delivered(&replay(&server, id)) >= (round * LETTERS / (KILLS + 2)) as u64).then_some(())
        });
        for delivery in server.get("/v1/deliveries?state=delivered&limit=500").json()["deliveries"]
            .as_array()
            .expect("a list")
        {
            recorded.entry(delivery["webhook_id"].as_str().expect("an id").to_owned()).or_insert(round);
        }
        server.kill();
        folder.write("redrive.yaml", book(&target, round));
        server = Server::start(&folder);
    }
    until("it is done", || (replay(&server, id)["state"] == "done").then_some(()));
    let job = replay(&server, id);
    assert_eq!(
        (&job["delivered"], &job["failed"], &job["left"]),
        (&json!(LETTERS), &json!(0), &json!(0)),
        "{job}"
    );
    assert_eq!(dead(&server), 0);

    let calls = target.calls();
    let round = |call: &Call| call.path.trim_start_matches('/').parse::<usize>().expect("a number");
    let taken: Vec<&Call> = calls.iter().filter(|call| call.answered == Some(200)).collect();
    let distinct: BTreeSet<&str> = taken.iter().map(|call| call.webhook_id()).collect();
    assert_eq!(distinct.len(), LETTERS, "all of them arrived");
    assert!(
        taken.len() <= LETTERS + KILLS * CONCURRENCY,
        "only calls in flight are repeated: {}",
        taken.len()
    );
    for call in &taken {
        if let Some(known) = recorded.get(call.webhook_id()) {
            assert!(round(call) < *known, "it was recorded as delivered, and sent again: {call:?}");
        }
    }
    for (session, calls) in by_session(taken) {
        // What was in flight at a kill comes again; the order of first arrivals is what counts.
        let mut seen = BTreeSet::new();
        let firsts: Vec<_> =
            calls.into_iter().filter(|call| seen.insert(call.webhook_id().to_owned())).collect();
        assert!(firsts.is_sorted_by_key(|call| sequence(call)), "{session} is in order");
    }
}

#[test]
fn a_paused_replay_stays_paused_over_a_restart() {
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let target =
        Target::start(move |_: &Call| status(if is_mended.load(Ordering::SeqCst) { 200 } else { 400 }));
    let folder = Folder::with("redrive.yaml", &book(&target, 0));
    let server = Server::start(&folder);
    let events: Vec<_> = (0..50)
        .map(|number| ("orders.placed".to_owned(), format!("e{number}"), format!("s{number}")))
        .collect();
    accept_all(&server, &events);
    until("all of them are dead", || (dead(&server) == 50).then_some(()));
    mended.store(true, Ordering::SeqCst);
    let id = begin(&server, &json!({ "service": "orders", "rate": 5 }));
    until("some were sent", || (replay(&server, id)["sent"].as_u64() > Some(1)).then_some(()));
    assert_eq!(post(&server, &format!("/v1/replays/{id}/pause"), &json!({})).status, 200);
    until("what was sent has arrived", || {
        let job = replay(&server, id);
        (job["sent"] == job["delivered"]).then_some(())
    });
    let sent = replay(&server, id)["sent"].clone();
    server.kill();
    let server = Server::start(&folder);
    let job = replay(&server, id);
    assert_eq!((&job["state"], &job["sent"]), (&json!("paused"), &sent), "{job}");
    let before = target.count();
    server.accept("orders.placed", "live", "other");
    server.until("live", "delivered");
    assert_eq!(target.count(), before + 1, "only what is live was sent");
    // A second operator is told whose the letters are.
    let (status, code) = post(&server, "/v1/replays", &json!({ "service": "orders" })).error();
    assert_eq!((status, code.as_str()), (409, "REPLAY_CONFLICT"));
    assert_eq!(post(&server, &format!("/v1/replays/{id}/cancel"), &json!({})).status, 200);
    let again = begin(&server, &json!({ "service": "orders" }));
    until("the second has sent the rest", || (replay(&server, again)["state"] == "done").then_some(()));
    assert_eq!(dead(&server), 0);
}
