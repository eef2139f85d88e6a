//! Letters that the rule book brings back by itself when a dependency is well again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::{dead, letters, until_state};
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Call, Target, status};

/// What the target does at the moment.
const DOWN: usize = 0;
const WELL: usize = 1;
const PICKY: usize = 2;

fn book(target: &Target, letters: &str) -> String {
    format!(
        "version: 1
breakers:
  short: {{ trip: {{ consecutive: 3 }}, open: 100ms }}
dependencies:
  shop: {{ kind: webhook, breaker: short, in_flight: 1 }}
services:
  orders:
    target: {{ http: \"{}\" }}
    depends_on: shop
    on_failure: {{ transient: none }}
    dead_letter: {{ {letters} }}
    events: [\"orders.*\"]
",
        target.url()
    )
}

fn target(mood: &Arc<AtomicUsize>) -> Target {
    let mood = Arc::clone(mood);
    Target::start(move |call: &Call| {
        let is_hopeless = call.event_id().starts_with("hopeless");
        status(match mood.load(Ordering::SeqCst) {
            DOWN => 503,
            PICKY if is_hopeless => 400,
            _ => 200,
        })
    })
}

#[test]
fn letters_come_back_when_the_dependency_does() {
    let mood = Arc::new(AtomicUsize::new(DOWN));
    let target = target(&mood);
    // The same but for one key, behind the same breaker.
    let by_hand = format!(
        "  by-hand: {{ target: {{ http: \"{}\" }}, depends_on: shop, on_failure: {{ transient: none }}, dead_letter: {{ reprocess: manual }}, events: [\"by-hand.*\"] }}\n",
        target.url()
    );
    let folder = Folder::with("redrive.yaml", &(book(&target, "reprocess: automatic") + &by_hand));
    let server = Server::start(&folder);
    for (event_type, id) in [("orders.placed", "e0"), ("by-hand.placed", "stays"), ("orders.placed", "e1")] {
        server.accept(event_type, id, "");
    }
    until("the breaker opens after three deaths", || (dead(&server) == 3).then_some(()));
    mood.store(WELL, Ordering::SeqCst);
    // The next one is the probe that closes the breaker.
    server.accept("orders.placed", "probe", "");
    for id in ["e0", "e1"] {
        server.until(id, "delivered");
    }
    let job = until_state(&server, 1, "done");
    assert_eq!((&job["delivered"], &job["origin"]), (&json!(2), &json!("automatic")), "{job}");
    assert_eq!(server.event("stays")["deliveries"][0]["state"], "dead", "a person brings it back");
}

#[test]
fn a_letter_comes_back_so_often_and_then_is_poison() {
    let mood = Arc::new(AtomicUsize::new(DOWN));
    let target = target(&mood);
    let folder = Folder::with("redrive.yaml", &book(&target, "reprocess: automatic, reprocess_max: 2"));
    let server = Server::start(&folder);
    for id in ["hopeless", "a", "b"] {
        server.accept("orders.placed", id, "");
    }
    until("all are dead", || (dead(&server) == 3).then_some(()));
    for round in 1..=2 {
        mood.store(PICKY, Ordering::SeqCst);
        server.accept("orders.placed", &format!("probe-{round}"), "");
        until("the hopeless one was tried again", || {
            let found = letters(&server, "");
            let hopeless = found.iter().find(|letter| letter["event_id"] == "hopeless")?;
            (hopeless["replays"] == round).then_some(())
        });
        let hopeless = letters(&server, "").into_iter().find(|letter| letter["event_id"] == "hopeless");
        let expected = if round == 2 { "poison" } else { "dead" };
        assert_eq!(hopeless.expect("it is there")["tier"], expected, "round {round}");
        // Down again, so that the breaker opens and can close once more.
        mood.store(DOWN, Ordering::SeqCst);
        for number in 0..3 {
            server.accept("orders.placed", &format!("down-{round}-{number}"), "");
            server.until(&format!("down-{round}-{number}"), "dead");
        }
    }
}

#[test]
fn only_the_named_categories_come_back() {
    let mood = Arc::new(AtomicUsize::new(PICKY));
    let target = target(&mood);
    let letters_rule = "reprocess: filtered, reprocess_categories: [transient]";
    let folder = Folder::with("redrive.yaml", &book(&target, letters_rule));
    let server = Server::start(&folder);
    server.accept("orders.placed", "hopeless", "");
    server.until("hopeless", "dead");
    mood.store(DOWN, Ordering::SeqCst);
    for number in 0..3 {
        server.accept("orders.placed", &format!("e{number}"), "");
    }
    until("all are dead", || (dead(&server) == 4).then_some(()));
    mood.store(PICKY, Ordering::SeqCst);
    server.accept("orders.placed", "probe", "");
    for number in 0..3 {
        server.until(&format!("e{number}"), "delivered");
    }
    let left = letters(&server, "");
    assert_eq!((left.len(), &left[0]["replays"]), (1, &json!(0)), "{left:?}");
}
