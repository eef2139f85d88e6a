//! What the tests share: the book in its own times and in short ones, and the service in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notifier::api::{self, Doors};
use notifier::message::Messages;
use notifier::metrics::Metrics;
use notifier::ntfy::Ntfy;
use notifier::service::Notifier;
use redrive::Book;
use redrive::embedded::File;
use redrive::once::Once;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::push::Push;

/// The rule book of the service.
pub const RULES: &str = include_str!("../../rules.yaml");

/// The same book with times that a test can wait for.
pub fn quick_rules() -> String {
    changed(
        RULES,
        &[
            ("open: 30s", "open: 300ms"),
            ("retry: messaging", "retry: quick"),
            ("rate-limited: messaging", "rate-limited: quick"),
            (
                "\ndependencies:",
                "\nretry_policies:\n  quick: { from: messaging, initial: 5ms, jitter: none }\n\ndependencies:",
            ),
        ],
    )
}

/// A book with other words in it.
pub fn changed(rules: &str, words: &[(&str, &str)]) -> String {
    words.iter().fold(rules.to_owned(), |rules, (own, other)| {
        assert!(rules.contains(own), "the book has {own}");
        rules.replace(own, other)
    })
}

/// The service, served in this process or in another.
pub struct Served {
    pub address: String,
    client: reqwest::Client,
}

impl Served {
    /// In this process, with state in that folder.
    pub async fn here(folder: &Path, push: &Push) -> Self {
        Self::by(&quick_rules(), folder, push, notifier::metrics::KEPT).await
    }

    /// The same by that book, with figures that are kept for so long.
    pub async fn by(rules: &str, folder: &Path, push: &Push, kept: Duration) -> Self {
        let state = File::open(folder.join("state.db")).expect("a file");
        let messages = Messages::open(&folder.join("messages.db")).expect("a file");
        let ntfy = Ntfy::new(push.address.parse().expect("an address"), "rez-agent-dev");
        let book = Book::parse(rules).expect("a sound book").shared(Arc::new(state.clone()));
        let guard = book.guard("ntfy-sh").expect("the book has it");
        let doors = Arc::new(Doors {
            notifier: Notifier::new(messages.clone(), ntfy.clone(), guard.clone(), Once::new(state)),
            metrics: Metrics::new(messages, ntfy, guard, kept),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        tokio::spawn(async move { axum::serve(listener, api::router(doors)).await.expect("it serves") });
        Self::at(address)
    }

    pub fn at(address: String) -> Self {
        Self { address, client: reqwest::Client::new() }
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.address)).body(body.to_string());
        answer(request.header("content-type", "application/json")).await
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.client.get(format!("{}{path}", self.address))).await
    }

    /// Takes a message and returns its id.
    pub async fn create(&self, text: &str) -> String {
        let body = json!({ "stage": "dev", "title": "Hello", "text": text });
        let (status, message) = self.post("/api/messages", &body).await;
        assert_eq!((status, &message["status"]), (201, &json!("created")));
        message["message_id"].as_str().expect("an id").to_owned()
    }

    /// Delivers messages as the queue does, and returns the items that failed.
    pub async fn deliver(&self, ids: &[&str]) -> Vec<String> {
        let record = |id: &&str| json!({ "messageId": format!("item-{id}"), "body": json!({ "message_id": id }).to_string() });
        let records: Vec<Value> = ids.iter().map(record).collect();
        let (status, answer) = self.post("/batch", &json!({ "Records": records })).await;
        assert_eq!(status, 200);
        let failures = answer["batchItemFailures"].as_array().expect("a list").iter();
        failures.map(|item| item["itemIdentifier"].as_str().expect("a name").to_owned()).collect()
    }

    /// What became of a message.
    pub async fn message(&self, id: &str) -> Value {
        let (status, message) = self.get(&format!("/api/messages/{id}")).await;
        assert_eq!(status, 200);
        message
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.expect("it answers");
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.expect("a body")).expect("JSON"))
}
