//! `redrive status`: what it says beside its tables, and the one mark for all of it.

use serde_json::{Value, json};

use crate::run::{Folder, redrive};
use crate::scripted::{Reply, Scripted};
use crate::server::Server;
use crate::target::{Target, book};

/// A status without services, and with that.
fn bare_status(more: &Value) -> Value {
    let mut status = json!({
        "version": "0.1.0", "started_at": "2025-10-21T11:20:00Z", "book": "00000000000000ff", "calls_in_flight": 0,
        "events": 1, "unrouted": 0, "stranded": 0, "services": [], "dependencies": [],
    });
    status.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    status
}

#[test]
fn a_status_says_what_dead_letters_are_up_to() {
    let replays: Vec<Value> = (1..=12)
        .rev()
        .map(|id| {
            json!({
                "id": id, "state": "paused", "what": "service billing", "rate": null, "concurrency": 1000, "canary": false,
                "origin": "operator", "total": 1, "sent": 0, "delivered": 0, "failed": 0, "left": 0, "in_flight": 0,
                "waiting": 1, "claimed_by_others": 0, "created_at": "2025-10-21T14:34:00Z", "changed_at": "2025-10-21T14:34:50Z",
            })
        })
        .collect();
    let mut stopped = replays[0].clone();
    stopped["state"] = json!("stopped");
    let told = |more: &Value| {
        let server = Scripted::new([Reply::json(200, &bare_status(more))]);
        let printed = redrive(&["status", "--server", server.url()]).printed();
        printed.lines().skip(2).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let held = |sessions: u64, deliveries: u64, at_least: bool| json!({ "held_sessions": sessions, "held_deliveries": deliveries, "held_at_least": at_least });
    #[rustfmt::skip]
    let cases = [
        ("nothing",     held(0, 0, false),           vec![]),
        ("one alone",   held(1, 0, false),           vec!["✗ 1 session is blocked by a dead letter: no deliveries wait there"]),
        ("one",         held(1, 1, false),           vec!["✗ 1 session is blocked by a dead letter: 1 delivery waits behind it"]),
        ("some",        held(2, 1200, false),        vec!["✗ 2 sessions are blocked by dead letters: 1,200 deliveries wait behind them"]),
        ("too many",    held(10_000, 12_000, true),  vec!["✗ 10,000 sessions or more are blocked by dead letters: 12,000 deliveries or more wait behind them"]),
        ("poison",      json!({ "poison": 1 }),      vec!["! 1 poison letter, skipped by replays"]),
        ("a replay",    json!({ "replays": replays[..1] }), vec!["↻ replay 12 is paused, 0 of 1 letter: service billing; `redrive replays 12 resume` resumes it"]),
        ("one that has stopped", json!({ "replays": [stopped] }), vec!["↻ replay 12 is stopped, 0 of 1 letter: service billing; `redrive replays 12` shows why"]),
    ];
    for (name, more, expected) in cases {
        assert_eq!(told(&more), expected, "{name}");
    }
    let many = told(&json!({ "replays": replays }));
    assert_eq!((many.len(), many[10].as_str()), (11, "↻ 2 more open replays: `redrive replays` shows them"));
}

#[test]
fn a_status_says_what_is_wrong_and_what_fires() {
    let told = |more: &Value| {
        let server = Scripted::new([Reply::json(200, &bare_status(more))]);
        let printed = redrive(&["status", "--server", server.url()]).printed();
        let lines =
            printed.lines().enumerate().filter(|(place, _)| *place != 1).map(|(place, line)| {
                if place == 0 { line.chars().take(1).collect() } else { line.to_owned() }
            });
        lines.collect::<Vec<_>>()
    };
    let wrong = |what: &str, why: &str| json!({ "degraded": [{ "what": what, "why": why, "since": "2025-10-21T14:30:00Z" }] });
    let fires = |severity: &str| {
        json!({ "firing": [{
        "name": "letters", "when": "dead_letters > 9", "severity": severity, "to": ["ops"], "state": "firing", "told": 1,
        "covers": "service billing", "since": "2025-10-21T14:33:00Z", "value": "12", "subjects": [],
    }] })
    };
    let next = ["", "Next:", "  redrive alerts", "      shows firing alerts and notifications"];
    #[rustfmt::skip]
    let cases = [
        ("all is well",        json!({}),                                              vec!["✓"], false),
        ("an old book",        wrong("book-refused", "invalid rule book rejected, the previous one stays active: line 2"),
                                                                                       vec!["✗", "✗ invalid rule book rejected, the previous one stays active: line 2, for 5m"], false),
        ("no room",            wrong("disk-short", "the disk is nearly full"),         vec!["✗", "✗ the disk is nearly full, for 5m"], false),
        ("a slow disk",        wrong("store-slow", "the store is slow"),               vec!["!", "! the store is slow, for 5m"], false),
        ("nobody was told",    wrong("receiver-dead", "an alert receiver is unreachable: ops"),
                                                                                       vec!["✗", "✗ an alert receiver is unreachable: ops, for 5m"], true),
        ("told elsewhere",     wrong("service-paused", "a service is paused: mail"),   vec!["!"], false),
        ("something new",      wrong("moon-full", "the moon is full"),                 vec!["✗", "✗ the moon is full, for 5m"], false),
        ("an urgent alert",    fires("high"),                                          vec!["✗", "✗ alert letters (service billing) fires for 2m: dead_letters > 9, it is 12"], true),
        ("an alert",           fires("warning"),                                       vec!["!", "! alert letters (service billing) fires for 2m: dead_letters > 9, it is 12"], true),
    ];
    for (name, more, mut expected, has_next) in cases {
        expected.extend(next.iter().filter(|_| has_next));
        assert_eq!(told(&more), expected, "{name}");
    }
}

#[test]
fn a_service_without_a_breaker_has_none() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &["breaker: none"]));
    let server = Server::start(&folder);
    server.accept("orders.placed", "o-1", "");
    server.until("o-1", "delivered");
    let status = server.status();
    assert_eq!(status["dependencies"][0]["breaker"], "none", "{status}");
    assert_eq!(server.get("/readyz").json()["status"], "ready");
    let url = format!("http://{}", server.client.address);
    let printed = redrive(&["status", "--server", &url]).printed();
    assert!(printed.starts_with('✓') && !printed.contains("closed"), "{printed}");
    server.stop().assert_calm();
}
