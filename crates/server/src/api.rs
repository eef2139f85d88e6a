//! The HTTP API: takes events in and answers questions about them.
//!
//! Invariants:
//! - an answer that says "accepted" is sent only when the event is durable;
//! - every answer has an `X-Correlation-Id`, and every error the one form of [`error`];
//! - nothing a client sends or leaves unsent takes more than a bounded amount of memory or time.

pub(crate) mod bulk;
mod error;
mod events;
mod fresh;
mod guest;
mod letters;
mod listen;
mod operate;
mod polite;
mod queries;
mod refusal;
mod replays;
pub(crate) mod shape;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::routing::{get, post};
use redrive::archive::archivist::Archivist;
use redrive::node::Node;
use tokio::sync::watch;

pub(crate) use self::listen::{Limits, listen};

/// What every handler has; each request gets a clone of its own.
#[derive(Clone)]
pub(crate) struct App(Arc<Parts>);

/// What there is of it once.
pub(crate) struct Parts {
    pub node: Node,
    pub archivist: Archivist,
    pub limits: Limits,
    /// Turns true when the server stops, so that endless answers end.
    pub closing: watch::Receiver<bool>,
}

impl App {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl std::ops::Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
/// The longest correlation id that is taken over from a client.
const CORRELATION_ID_BYTES_MAX: usize = 128;

/// All routes.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/v1/events", post(events::accept))
        .route("/v1/events/{name}", post(events::accept_easy).get(queries::event))
        .route("/v1/deliveries", get(queries::list))
        .route("/v1/deliveries/{id}", get(queries::delivery))
        .route("/v1/status", get(queries::status))
        .route("/v1/happenings", get(queries::happenings))
        .route("/v1/services/{service}/pause", post(operate::pause))
        .route("/v1/services/{service}/resume", post(operate::resume))
        .route("/v1/unrouted/route", post(operate::route_unrouted))
        .route("/v1/backup", post(operate::back_up))
        .route("/v1/dead-letters", get(letters::list))
        .route("/v1/dead-letters/export", get(bulk::export))
        .route("/v1/dead-letters/import", post(bulk::import))
        .route("/v1/dead-letters/purge", post(bulk::purge))
        .route("/v1/dead-letters/{id}", get(letters::one))
        .route("/v1/dead-letters/{id}/skip", post(letters::skip))
        .route("/v1/dead-letters/{id}/edit", post(letters::edit))
        .route("/v1/failure-groups", get(letters::groups))
        .route("/v1/held-sessions", get(letters::held_sessions))
        .route("/v1/audit", get(letters::audit))
        .route("/v1/replays", get(replays::list).post(replays::begin))
        .route("/v1/replays/{id}", get(replays::one))
        .route("/v1/replays/{id}/progress", get(replays::progress))
        .route("/v1/replays/{id}/{act}", post(replays::change))
        .route("/healthz", get(queries::health))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::wrong_method)
        .with_state(app)
}

/// The id that the client sent, or a new one.
fn correlation_id(headers: &HeaderMap) -> HeaderValue {
    let sent = headers.get(&CORRELATION_ID).filter(|value| is_fit(value)).cloned();
    sent.unwrap_or_else(|| {
        HeaderValue::from_str(&fresh::fresh_id().to_string()).expect("digits, letters and dashes")
    })
}

fn is_fit(value: &HeaderValue) -> bool {
    value.len() <= CORRELATION_ID_BYTES_MAX
        && !value.is_empty()
        && value.as_bytes().iter().all(u8::is_ascii_graphic)
}
