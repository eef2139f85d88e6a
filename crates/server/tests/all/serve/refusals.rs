//! What is refused, in which words: full services, addresses that others can reach, a folder in use.

use serde_json::json;

use crate::run::{Folder, Run};
use crate::server::{Server, serve};
use crate::target::{Target, book};

#[test]
fn a_full_service_refuses_the_whole_of_a_batch() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &["waiting: { events: 5 }"]));
    let server = Server::start(&folder);
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    for number in 0..4 {
        server.accept("orders.placed", &format!("o-{number}"), "");
    }
    let event =
        |id: &str, kind: &str| json!({ "specversion": "1.0", "id": id, "source": "/shop", "type": kind });
    let batch = |events: serde_json::Value| {
        server.post("/v1/events", "content-type: application/cloudevents-batch+json\r\n", events.to_string())
    };
    let refused =
        batch(json!([event("x", "parcels.sent"), event("y", "orders.placed"), event("z", "orders.placed")]));
    assert_eq!(refused.error(), (503, "BACKLOG_FULL".to_owned()));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(refused.json()["error"]["details"], json!({ "index": 2, "service": "orders" }));
    for id in ["x", "y", "z"] {
        assert_eq!(server.get(&format!("/v1/events/{id}")).status, 404, "nothing of it was taken");
    }
    // The last place is still free, and what nobody full wants is taken.
    assert_eq!(batch(json!([event("y", "orders.placed"), event("x", "parcels.sent")])).status, 202);
    assert_eq!(batch(json!([event("w", "orders.placed")])).error().1, "BACKLOG_FULL");
    assert_eq!(batch(json!([event("v", "parcels.sent")])).status, 202);
    // What was refused may come again.
    assert_eq!(server.post("/v1/services/orders/resume", "", "").status, 200);
    server.until("y", "delivered");
    crate::server::until("there is room", || {
        (batch(json!([event("w", "orders.placed")])).status == 202).then_some(())
    });
    server.until("w", "delivered");
    server.stop().assert_calm();
}

#[test]
fn a_full_service_may_take_dead_letters_instead() {
    let target = Target::willing();
    let more = ["waiting: { events: 5, when_full: dead-letter }"];
    let folder = Folder::with("redrive.yaml", &book(&target, &more));
    let server = Server::start(&folder);
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    for number in 0..6 {
        server.accept("orders.placed", &format!("o-{number}"), "");
    }
    let dead = server.until("o-5", "dead");
    assert_eq!(dead["death"]["code"], "BACKLOG_FULL", "{dead}");
    assert_eq!(server.delivery("o-4")["state"], "held");
    let status = server.status();
    assert_eq!((&status["services"][0]["waiting"], &status["services"][0]["dead"]), (&json!(5), &json!(1)));
    assert_eq!(server.post("/v1/services/orders/resume", "", "").status, 200);
    for number in 0..5 {
        server.until(&format!("o-{number}"), "delivered");
    }
    assert_eq!(target.count(), 5, "a dead one is not called for");
    server.stop().assert_calm();
}

#[test]
fn only_this_machine_is_served() {
    let folder = Folder::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = folder.run(&["serve", "--listen", address]).refused();
        assert!(refused.contains("is a public address, and authentication is off"), "{refused}");
        assert!(refused.contains("127.0.0.1"), "it says what to do: {refused}");
    }
}

#[test]
fn a_folder_has_one_master() {
    let folder = Folder::new();
    let first = Server::run(serve(&folder, &[]));
    let Err(second) = Server::try_run(serve(&folder, &[])) else {
        panic!("two servers on one folder");
    };
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("data"), "it says which folder: {}", second.stderr);
    assert_eq!(second.stdout, "");
    // The first one minds nothing of it, and when it is gone the folder is free.
    assert_eq!(first.get("/healthz").status, 200);
    first.kill();
    Server::run(serve(&folder, &[])).stop().assert_calm();
}

#[test]
fn what_it_cannot_start_with_is_said() {
    let folder = Folder::with("redrive.yaml", "version: 1\nservices: { a: { target: { http: 7 } } }\n");
    let refused = folder.run(&["serve", "--rules", "redrive.yaml", "--listen", "127.0.0.1:0"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("redrive.yaml:2"), "{}", refused.stderr);
    let missing = folder.run(&["serve", "--rules", "none.yaml", "--listen", "127.0.0.1:0"]);
    assert_eq!(missing.code, 2, "{}", missing.stderr);

    let first = Server::run(serve(&folder, &[]));
    let taken = folder.run(&["serve", "--listen", &first.client.address, "--data", "other"]);
    assert_eq!(taken.code, 1, "{}", taken.stderr);
    let says = |run: &Run| run.stderr.contains("the address is in use, perhaps by another redrive");
    assert!(says(&taken) && taken.stderr.contains("--listen 127.0.0.1:"), "{}", taken.stderr);
    assert!(!folder.path("other").exists(), "what does not start leaves nothing behind");
    let demo = folder.run(&["demo", "--listen", &first.client.address, "--data", "play"]);
    assert!(demo.code == 1 && says(&demo) && !folder.path("play").exists(), "{demo:?}");
}
