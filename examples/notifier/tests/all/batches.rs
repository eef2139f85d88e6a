//! Batches from the queue: what is sent, what stays, what fails, and what a second delivery does.

use notifier::metrics::KEPT;
use serde_json::json;

use crate::push::{Mood, Push, Pushed};
use crate::support::{RULES, Served, changed, quick_rules};

#[tokio::test]
async fn a_message_goes_from_created_over_queued_to_completed() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Well).await);
    let served = Served::here(folder.path(), &push).await;
    let id = served.create("dinner is ready").await;
    assert_eq!(served.deliver(&[&id]).await, Vec::<String>::new());
    let message = served.message(&id).await;
    assert_eq!((&message["status"], &message["notification_id"]), (&json!("completed"), &json!("n1")));
    let pushed =
        Pushed { topic: "rez-agent-dev".into(), title: "Hello".into(), text: "dinner is ready".into() };
    assert_eq!(push.taken(), [pushed]);
}

#[tokio::test]
async fn what_the_queue_delivers_twice_is_sent_once() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Well).await);
    let served = Served::here(folder.path(), &push).await;
    let id = served.create("once").await;
    for _ in 0..3 {
        assert!(served.deliver(&[&id, &id]).await.is_empty());
    }
    // At once, and from another process too: see `processes`.
    let other = served.create("at once").await;
    let ids = [other.as_str()];
    let (one, two) = tokio::join!(served.deliver(&ids), served.deliver(&ids));
    assert!(one.is_empty() && two.is_empty());
    assert_eq!(push.calls(), 2);
}

#[tokio::test]
async fn only_what_failed_comes_back() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Well).await);
    let served = Served::here(folder.path(), &push).await;
    let (good, late) = (served.create("good").await, served.create("late").await);
    assert!(served.deliver(&[&good]).await.is_empty());
    push.turn(Mood::Answers(503));
    let failed = served.deliver(&[&good, &late, "nobody"]).await;
    assert_eq!(failed, [format!("item-{late}"), "item-nobody".to_owned()]);
    assert_eq!(served.message(&late).await["status"], "queued", "it may go well another time");

    push.turn(Mood::Well);
    assert!(served.deliver(&[&late]).await.is_empty());
    assert_eq!(served.message(&late).await["status"], "completed");
}

#[tokio::test]
async fn an_item_that_names_no_message_fails_alone() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Well).await);
    let served = Served::here(folder.path(), &push).await;
    let id = served.create("good").await;
    let body = json!({ "message_id": id }).to_string();
    let records = json!({ "Records": [
        { "messageId": "a", "body": "no JSON" },
        { "messageId": "b", "body": body },
    ] });
    let (status, answer) = served.post("/batch", &records).await;
    assert_eq!((status, answer), (200, json!({ "batchItemFailures": [{ "itemIdentifier": "a" }] })));
    assert_eq!(push.calls(), 1);
}

#[tokio::test]
async fn what_can_only_fail_is_not_tried_again_by_anybody() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Answers(400)).await);
    let served = Served::here(folder.path(), &push).await;
    let id = served.create("wrong").await;
    for _ in 0..3 {
        assert_eq!(served.deliver(&[&id]).await, [format!("item-{id}")], "so it ends where the queue says");
    }
    let message = served.message(&id).await;
    assert_eq!((&message["status"], &message["error"]), (&json!("failed"), &json!("ntfy: 400 Bad Request")));
    assert_eq!(push.calls(), 1);
}

#[tokio::test]
async fn outages_are_tried_three_more_times() {
    #[rustfmt::skip]
    let cases = [
        ("503 twice",          Mood::FailsFirst(2, 503), 3, "completed"),
        ("429 three times",    Mood::FailsFirst(3, 429), 4, "completed"),
        ("503 and no end",     Mood::Answers(503),       4, "queued"),
        ("broken",             Mood::Answers(500),       3, "queued"),
        ("not authorized",     Mood::Answers(401),       1, "failed"),
        ("no such topic",      Mood::Answers(404),       1, "failed"),
    ];
    for (name, mood, calls, status) in cases {
        let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(mood).await);
        let served = Served::here(folder.path(), &push).await;
        let id = served.create(name).await;
        served.deliver(&[&id]).await;
        assert_eq!((push.calls(), &served.message(&id).await["status"]), (calls, &json!(status)), "{name}");
    }
}

#[tokio::test]
async fn no_answer_in_time_is_an_outage_too() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Hangs).await);
    let rules = changed(&quick_rules(), &[("whole: 10s", "whole: 200ms")]);
    let served = Served::by(&rules, folder.path(), &push, KEPT).await;
    let id = served.create("nobody answers").await;
    assert_eq!(served.deliver(&[&id]).await.len(), 1);
    assert_eq!((push.calls(), &served.message(&id).await["status"]), (4, &json!("queued")));
}

#[test]
fn the_book_has_nothing_to_complain_of() {
    let connectors = redrive::core::book::connectors::built_in();
    assert_eq!(redrive_lab::lint::check(RULES.as_bytes(), connectors).problems, []);
}

#[tokio::test]
async fn wrong_input_is_told_by_field_and_reason() {
    let (folder, push) = (tempfile::tempdir().expect("a folder"), Push::start(Mood::Well).await);
    let served = Served::here(folder.path(), &push).await;
    let (status, answer) = served.post("/api/messages", &json!({ "stage": "production", "text": "x" })).await;
    let expected = json!({ "error": {
        "code": "VALIDATION_ERROR",
        "message": "Invalid stage parameter",
        "details": { "field": "stage", "reason": "must be one of [dev, stage, prod]" },
    } });
    assert_eq!((status, answer), (400, expected));
    let (status, answer) = served.post("/api/messages", &json!({ "stage": "dev" })).await;
    assert_eq!((status, &answer["error"]["details"]["field"]), (400, &json!("text")));
    let (status, answer) = served.get("/api/messages/none").await;
    let expected = json!({ "error": { "code": "MESSAGE_NOT_FOUND", "message": "Message not found" } });
    assert_eq!((status, answer), (404, expected));
}
