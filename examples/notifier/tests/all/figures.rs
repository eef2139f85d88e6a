//! The figures: fresh, as they were, in part, or not at all.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::push::{Mood, Push};
use crate::support::{Served, quick_rules};

/// Makes the messages unreadable, and readable again.
fn rename(folder: &std::path::Path, from: &str, to: &str) {
    let database = Connection::open(folder.join("messages.db")).expect("the file is there");
    database.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}")).expect("nobody else writes");
}

/// What is answered once it is as good as that: who asks twice in a moment gets the same answer twice.
async fn once_it_is(served: &Served, standing: &str) -> Value {
    let waited = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            let (_, told) = served.get("/api/metrics").await;
            if told["status"] == standing || told["error"]["code"] == standing {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.expect("it comes to that")
}

#[tokio::test]
async fn figures_are_as_good_as_they_can_be_had() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Well).await);
    let served = Served::here(folder.path(), &push).await;
    let id = served.create("counted").await;
    served.deliver(&[&id]).await;

    let messages = json!({ "created": 0, "queued": 0, "completed": 1, "failed": 0 });
    let fresh =
        json!({ "status": "fresh", "circuit": "closed", "messages": messages, "ntfy": { "healthy": true } });
    assert_eq!(served.get("/api/metrics").await, (200, fresh));

    rename(folder.path(), "messages", "away");
    let stale = once_it_is(&served, "stale").await;
    assert_eq!(stale["messages"], messages);
    assert!(stale["age_seconds"].is_u64(), "{stale}");

    rename(folder.path(), "away", "messages");
    once_it_is(&served, "fresh").await;
}

#[tokio::test]
async fn what_was_never_had_is_named_and_nothing_at_all_is_unavailable() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Well).await);
    let served = Served::by(&quick_rules(), folder.path(), &push, Duration::from_millis(300)).await;
    rename(folder.path(), "messages", "away");
    let partial = json!({ "status": "partial", "circuit": "closed", "missing": ["messages"], "ntfy": { "healthy": true } });
    assert_eq!(served.get("/api/metrics").await, (200, partial));

    push.turn(Mood::Answers(503));
    let told = once_it_is(&served, "SERVICE_UNAVAILABLE").await;
    let unavailable = json!({ "error": {
        "code": "SERVICE_UNAVAILABLE",
        "message": "No figures can be had",
        "details": { "missing": ["messages", "ntfy"] },
    } });
    assert_eq!(told, unavailable);
    assert_eq!(served.get("/api/metrics").await.0, 503);
}
