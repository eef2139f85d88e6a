//! A stand-in for the push service: a real HTTP server that answers as ntfy does, and fails when it is told to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;

/// What it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    Answers(u16),
    /// Each text fails so many times with that status before it is taken.
    FailsFirst(u32, u16),
    Hangs,
}

/// One notification that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    pub topic: String,
    pub title: String,
    pub text: String,
}

struct Inside {
    mood: Mood,
    calls: u32,
    by_text: BTreeMap<String, u32>,
    taken: Vec<Pushed>,
}

#[derive(Clone)]
pub struct Push {
    inside: Arc<Mutex<Inside>>,
    pub address: String,
}

impl Push {
    pub async fn start(mood: Mood) -> Self {
        let inside = Inside { mood, calls: 0, by_text: BTreeMap::new(), taken: Vec::new() };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}/", listener.local_addr().expect("it is bound"));
        let push = Self { inside: Arc::new(Mutex::new(inside)), address };
        let router = Router::new()
            .route("/v1/health", get(health))
            .route("/{topic}", post(publish))
            .with_state(push.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        push
    }

    pub fn turn(&self, mood: Mood) {
        self.lock().mood = mood;
    }

    /// How often it was called, whatever it answered.
    pub fn calls(&self) -> u32 {
        self.lock().calls
    }

    /// What it took.
    pub fn taken(&self) -> Vec<Pushed> {
        self.lock().taken.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("no panic")
    }
}

async fn health(State(push): State<Push>) -> Response {
    match push.lock().mood {
        Mood::Well | Mood::FailsFirst(..) => Json(json!({ "healthy": true })).into_response(),
        Mood::Answers(_) | Mood::Hangs => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn publish(
    State(push): State<Push>,
    Path(topic): Path<String>,
    headers: HeaderMap,
    text: String,
) -> Response {
    let (answer, id) = {
        let mut inside = push.lock();
        inside.calls += 1;
        let seen = inside.by_text.entry(text.clone()).or_default();
        *seen += 1;
        let failing = match inside.mood {
            Mood::Well => None,
            Mood::Answers(status) => Some(Some(status)),
            Mood::FailsFirst(times, status) => (inside.by_text[&text] <= times).then_some(Some(status)),
            Mood::Hangs => Some(None),
        };
        if failing.is_none() {
            let title = headers.get("title").and_then(|title| title.to_str().ok()).unwrap_or_default();
            inside.taken.push(Pushed { topic: topic.clone(), title: title.to_owned(), text });
        }
        (failing, format!("n{}", inside.taken.len()))
    };
    match answer {
        None => Json(json!({ "id": id, "time": 1_700_000_000, "event": "message", "topic": topic }))
            .into_response(),
        Some(Some(status)) => StatusCode::from_u16(status).expect("a status").into_response(),
        Some(None) => std::future::pending().await,
    }
}
