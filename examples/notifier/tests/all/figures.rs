//! The figures: fresh, as they were, in part, or not at all.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;

use crate::push::{Mood, Push};
use crate::support::Served;

/// Makes the messages unreadable, and readable again.
fn rename(folder: &std::path::Path, from: &str, to: &str) {
    let database = Connection::open(folder.join("messages.db")).expect("the file is there");
    database.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}")).expect("nobody else writes");
}

/// Who asks twice within this gets the same answer twice.
async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(250)).await;
}

#[tokio::test]
async fn figures_are_as_good_as_they_can_be_had() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Well).await);
    let served = Served::here(folder.path(), &push).await;
    let id = served.create("counted").await;
    served.deliver(&[&id]).await;

    let messages = json!({ "created": 0, "queued": 0, "completed": 1, "failed": 0 });
    let fresh = json!({ "status": "fresh", "messages": messages, "ntfy": { "healthy": true } });
    assert_eq!(served.get("/api/metrics").await, (200, fresh));

    rename(folder.path(), "messages", "away");
    a_moment().await;
    let (status, stale) = served.get("/api/metrics").await;
    assert_eq!((status, &stale["status"], &stale["messages"]), (200, &json!("stale"), &messages));
    assert!(stale["age_seconds"].is_u64(), "{stale}");

    rename(folder.path(), "away", "messages");
    a_moment().await;
    assert_eq!(served.get("/api/metrics").await.1["status"], "fresh");
}

#[tokio::test]
async fn what_was_never_had_is_named_and_nothing_at_all_is_unavailable() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Well).await);
    let served = Served::keeping(folder.path(), &push, Duration::from_millis(300)).await;
    rename(folder.path(), "messages", "away");
    let partial = json!({ "status": "partial", "missing": ["messages"], "ntfy": { "healthy": true } });
    assert_eq!(served.get("/api/metrics").await, (200, partial));

    push.turn(Mood::Answers(503));
    tokio::time::sleep(Duration::from_millis(350)).await;
    let unavailable = json!({ "error": {
        "code": "SERVICE_UNAVAILABLE",
        "message": "No figures can be had",
        "details": { "missing": ["messages", "ntfy"] },
    } });
    assert_eq!(served.get("/api/metrics").await, (503, unavailable));
}
