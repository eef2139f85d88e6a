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
        ("retrying",  json!({ "state": "retrying", "attempts": 2, "due_at": "2025-10-21T14:35:12Z" }), "… still waiting after 2 attempts: the next starts in 12s, at 2025-10-21T14:35:12Z\n"),
        ("due",       json!({ "state": "pending", "due_at": "2025-10-21T14:34:59Z" }),                 "… still waiting after 0 attempts: the next starts now, at"),
        ("ready",     json!({ "state": "pending" }),                                                   "… still waiting after 0 attempts: the next may start at any moment\n"),
        ("held",      json!({ "state": "held", "held_because": "its service is paused", "due_at": "2554-07-21T23:34:33.709551615Z" }), "… still waiting after 0 attempts: its service is paused\n"),
        ("behind",    json!({ "state": "pending", "behind": true }),                                   "… still waiting after 0 attempts: another of session `customer-7` comes first\n"),
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
        ("a pause",           json!({ "by": "pause" }),                                    vec!["redrive resume billing"]),
        ("a breaker",         json!({ "by": "breaker", "dependency": "mail-api" }),        vec!["redrive breakers", "redrive breakers reset mail-api"]),
        ("a request to wait", json!({ "by": "retry-after", "dependency": "mail-api" }),    vec!["redrive breakers"]),
        ("a changed book",    json!({ "by": "removal" }),                                  vec!["redrive status"]),
    ];
    for (name, hold, expected) in cases {
        let held = delivery(&json!({ "state": "held", "held_because": "of something", "hold": hold }));
        let (run, _) = against([Reply::json(200, &held)], &["why", DELIVERY]);
        let printed = run.printed();
        let steps: Vec<&str> =
            printed.lines().filter(|line| line.starts_with("  redrive")).map(str::trim).collect();
        assert_eq!(steps, expected, "{name}");
    }
}
