//! What `redrive why` says of a delivery that has not ended, and proposes for one that something holds.

use serde_json::json;

use super::{DELIVERY, against, delivery};
use crate::scripted::Reply;

#[test]
fn what_has_not_ended_says_what_it_waits_for() {
    let delivered = json!({
        "state": "delivered", "attempts": 1, "ended_at": "2025-10-21T14:30:00.1Z",
        "stories": [{
            "attempt": 1, "started_at": "2025-10-21T14:30:00Z", "took_nanos": 1_234_567, "end": "delivered", "status": 200,
            "book": 255, "verdict": { "is": "delivered" },
        }],
    });
    #[rustfmt::skip]
    let cases = [
        ("retrying",  json!({ "state": "retrying", "attempts": 2, "waits": { "on": "retry", "because": "waiting for the next attempt", "until": "2025-10-21T14:35:12Z" } }),
                                                                        "… waiting after 2 attempts: waiting for the next attempt until 2025-10-21T14:35:12Z (in 12s)\n"),
        ("due",       json!({ "state": "pending", "waits": { "on": "retry", "because": "waiting for the next attempt", "until": "2025-10-21T14:34:59Z" } }),
                                                                        "… waiting after 0 attempts: waiting for the next attempt until 2025-10-21T14:34:59Z (now)\n"),
        ("ready",     json!({ "state": "pending", "waits": { "on": "turn", "because": "queued" } }),       "… waiting after 0 attempts: queued\n"),
        ("paused",    json!({ "state": "held", "waits": { "on": "pause", "because": "the service is paused", "since": "2025-10-21T14:30:00Z" } }),
                                                                        "… waiting after 0 attempts: the service is paused since 2025-10-21T14:30:00Z\n"),
        ("unknown",   json!({ "state": "pending" }),                                                   "… waiting after 0 attempts: no reason given by the server\n"),
        ("delivered", delivered,                                                                       "\n✓ delivered after 1 attempt and 100ms\n"),
    ];
    for (name, more, words) in cases {
        let (run, _) = against([Reply::json(200, &delivery(&more))], &["why", DELIVERY]);
        let told = run.printed();
        assert!(told.contains(words), "{name}: {told}");
    }
}

#[test]
fn what_is_held_is_let_go_by_what_holds_it() {
    #[rustfmt::skip]
    let cases = [
        ("a pause",           "pause",           vec!["redrive resume billing"]),
        ("a breaker",         "breaker",         vec!["redrive breakers", "redrive breakers reset mail-api"]),
        ("a request to wait", "retry-after",     vec!["redrive breakers"]),
        ("a removed row",     "rule-removed",    vec!["redrive removed move billing/email --to SERVICE", "redrive removed dead-letter billing/email"]),
        ("a removed service", "service-removed", vec!["redrive removed move billing/email --to SERVICE", "redrive removed dead-letter billing/email"]),
    ];
    for (name, on, expected) in cases {
        let waits = json!({ "on": on, "because": "of something", "dependency": "mail-api" });
        let held = delivery(&json!({ "state": "held", "waits": waits }));
        let (run, _) = against([Reply::json(200, &held)], &["why", DELIVERY]);
        let printed = run.printed();
        let steps: Vec<&str> =
            printed.lines().filter(|line| line.starts_with("  redrive")).map(str::trim).collect();
        assert_eq!(steps, expected, "{name}");
    }
}
