//! How it stops, starts again, and lives with a rule book that changes.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::run::Folder;
use crate::server::{Server, serve, until};
use crate::target::{Target, book, gated, status};

#[test]
fn a_call_may_end_before_the_server_does() {
    let (target, gate) = gated();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    server.accept("orders.placed", "o-1", "");
    target.until(1);
    server.signal("TERM");
    server.err.wait_for("shutting down");
    gate.open();
    let ended = server.ended();
    ended.assert_calm();
    assert!(!ended.stderr.contains("cut short"), "{}", ended.stderr);

    let server = Server::start(&folder);
    assert_eq!(server.delivery("o-1")["state"], "delivered");
    assert_eq!(target.count(), 1, "it is not called again");
    server.stop().assert_calm();
}

#[test]
fn a_call_that_was_cut_short_burns_no_retry() {
    let (target, gate) = gated();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::run(serve(&folder, &["--rules", "redrive.yaml", "--drain", "200ms"]));
    server.accept("orders.placed", "o-1", "");
    target.until(1);
    let started = Instant::now();
    let ended = server.stop();
    assert!(started.elapsed() < Duration::from_secs(5), "it waits no longer than it may");
    ended.assert_calm();
    assert!(ended.stderr.contains("1 call cut short, without using a retry"), "{}", ended.stderr);
    gate.open();

    let server = Server::start(&folder);
    let delivery = server.until("o-1", "delivered");
    assert_eq!(delivery["attempts"], 1, "{delivery}");
    let calls = target.calls();
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call.attempt() == 1), "the same attempt once more");
    assert_eq!(calls[0].webhook_id(), calls[1].webhook_id());
    server.stop().assert_calm();
}

#[test]
fn a_retry_outlives_the_server_that_planned_it() {
    let target = Target::saying(&[503, 200]);
    let rules = book(&target, &[]).replace("20ms", "1s");
    let folder = Folder::with("redrive.yaml", &rules);
    let server = Server::start(&folder);
    server.accept("orders.placed", "o-1", "");
    let planned = server.until("o-1", "retrying");
    server.kill();
    let server = Server::start(&folder);
    let found = server.delivery("o-1");
    if found["state"] == "retrying" {
        assert_eq!(found["due_at"], planned["due_at"], "what was planned holds");
    }
    let delivery = server.until("o-1", "delivered");
    assert_eq!((&delivery["attempts"], target.count()), (&json!(2), 2));
    server.stop().assert_calm();
}

#[test]
fn a_book_is_read_again_when_it_changes_and_a_wrong_one_is_refused() {
    let (first, second) = (Target::willing(), Target::willing());
    let folder = Folder::with("redrive.yaml", &book(&first, &[]));
    let server = Server::start(&folder);
    // Nothing lies between the greeting and the change: one that comes before the first look is seen too.
    folder.write("redrive.yaml", "version: 1\nservices: { orders: { retries: many } }\n");
    let before = server.status()["book"].clone();
    server.err.wait_for("rule book rejected");
    server.err.wait_for("redrive.yaml:2");
    assert_eq!(server.status()["book"], before, "the old one stays");
    server.accept("orders.placed", "o-1", "");
    server.until("o-1", "delivered");
    assert_eq!(first.count(), 1);

    folder.write("redrive.yaml", book(&second, &[]));
    server.err.wait_for("rule book reloaded");
    assert_ne!(server.status()["book"], before);
    server.accept("orders.placed", "o-2", "");
    server.until("o-2", "delivered");
    assert_eq!((first.count(), second.count()), (1, 1));

    // On SIGHUP at once, and what is refused then stays refused until it is mended.
    folder.write("redrive.yaml", "version: 2\n");
    server.signal("HUP");
    until("it is refused", || (server.err.so_far().matches("rule book rejected").count() >= 2).then_some(()));
    assert_eq!(server.get("/healthz").status, 200);
    server.stop().assert_calm();
}

#[test]
fn a_pipe_in_the_place_of_the_book_is_refused_and_holds_up_nobody() {
    let folder = Folder::with("redrive.yaml", &book(&Target::willing(), &[]));
    let server = Server::start(&folder);
    folder.replace_by_pipe("redrive.yaml");
    server.signal("HUP");
    let said = server.err.wait_for("rule book rejected");
    assert!(said.contains("redrive.yaml is not a file; the old one stays active"), "{said}");
    assert_eq!(server.get("/healthz").status, 200);
    server.stop().assert_calm();
}

#[test]
fn a_password_in_an_address_is_shown_by_nobody() {
    let target = Target::start(|_| status(410));
    let url = target.url().replace("http://", "http://ann:hunter2@");
    let service =
        format!("  s: {{ target: {{ http: \"{url}\" }}, events: [a.b], on_failure: {{ 410: none }} }}");
    let whole = format!("version: 1\nservices:\n{service}\n");
    let folder = Folder::with("redrive.yaml", &whole);
    let server = Server::start(&folder);
    server.accept("a.b", "e-1", "");
    server.until("e-1", "dead");
    folder.write("redrive.yaml", whole.replace("on_failure", "on_fail"));
    server.err.wait_for("rule book rejected");
    folder.write("redrive.yaml", whole);
    let at = format!("http://{}", server.client.address);
    #[rustfmt::skip]
    let cases = [
        ("the log",          server.err.so_far()),
        ("why",              folder.run(&["why", "--last", "--server", &at]).printed()),
        ("rules",            folder.run(&["rules", "s", "a.b"]).printed()),
        ("rules as JSON",    folder.run(&["rules", "s", "a.b", "--format", "json"]).printed()),
    ];
    for (name, said) in cases {
        assert!(said.contains(":*******@"), "{name}: {said}");
        assert!(!said.contains("hunter2"), "{name}: {said}");
    }
    server.stop().assert_calm();
}

#[test]
fn what_waits_for_a_removed_service_is_held_until_it_is_back() {
    let (target, gate) = gated();
    let whole = book(&target, &[]);
    let folder = Folder::with("redrive.yaml", &whole);
    let server = Server::start(&folder);
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    server.accept("orders.placed", "o-1", "");
    folder.write("redrive.yaml", whole.replace("  orders:\n", "  others:\n").replace("orders.*", "others.*"));
    server.signal("HUP");
    server.err.wait_for("rule book reloaded");
    assert_eq!(server.post("/v1/services/orders/resume", "", "").status, 200);
    gate.open();
    let held = until("it is held for that", || {
        let delivery = server.delivery("o-1");
        let because = delivery["waits"]["because"].as_str().unwrap_or_default().to_owned();
        (delivery["state"] == "held" && because.starts_with("SERVICE_REMOVED")).then_some(delivery)
    });
    assert_eq!((&held["attempts"], target.count()), (&json!(0), 0));
    assert_eq!(held["waits"]["on"], "service-removed");
    let status = server.status();
    let orders = status["services"].as_array().expect("a list").iter().find(|one| one["service"] == "orders");
    assert_eq!(orders.expect("it is still shown")["removed"], true, "{status}");

    folder.write("redrive.yaml", &whole);
    server.signal("HUP");
    server.until("o-1", "delivered");
    server.stop().assert_calm();
}

#[test]
fn a_pause_outlives_the_server() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    server.accept("orders.placed", "o-1", "");
    server.kill();
    let server = Server::start(&folder);
    server.until("o-1", "held");
    assert_eq!(target.count(), 0);
    assert_eq!(server.post("/v1/services/orders/resume", "", "").status, 200);
    server.until("o-1", "delivered");
    server.stop().assert_calm();
}
