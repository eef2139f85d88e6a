//! The HTTP API: takes events in and answers questions about them.
//!
//! Invariants:
//! - an answer that says "accepted" is sent only when the event is durable;
//! - every answer has an `X-Correlation-Id`, and every error the one form of [`error`];
//! - nothing a client sends or leaves unsent takes more than a bounded amount of memory or time.

pub(crate) mod bulk;
mod code;
mod error;
mod events;
mod fresh;
mod guest;
mod letters;
mod listen;
pub(crate) mod openapi;
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
use redrive::node::Node;
use tokio::sync::watch;
use utoipa_axum::routes;

use self::code::Code;
pub(crate) use self::listen::{Limits, listen};
use self::openapi::Routes;

/// What every handler has; each request gets a clone of its own.
#[derive(Clone)]
pub(crate) struct App(Arc<Parts>);

/// What there is of it once.
pub(crate) struct Parts {
    pub node: Node,
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

/// All routes, each with its description and the errors of its own.
#[rustfmt::skip]
fn routes() -> Routes {
    Routes::new()
        .add(routes!(events::accept),          &[Code::Conflict, Code::BacklogFull])
        .add(routes!(events::accept_easy),     &[Code::Conflict, Code::BacklogFull])
        .add(routes!(queries::event),          &[Code::EventNotFound])
        .add(routes!(queries::list),           &[])
        .add(routes!(queries::delivery),       &[Code::DeliveryNotFound, Code::AmbiguousId])
        .add(routes!(queries::status),         &[])
        .add(routes!(queries::happenings),     &[])
        .add(routes!(operate::pause),          &[Code::ServiceNotFound])
        .add(routes!(operate::resume),         &[Code::ServiceNotFound])
        .add(routes!(operate::route_unrouted), &[])
        .add(routes!(operate::back_up),        &[])
        .add(routes!(letters::list),           &[])
        .add(routes!(bulk::export),            &[])
        .add(routes!(bulk::import),            &[])
        .add(routes!(bulk::purge),             &[])
        .add(routes!(letters::one),            &[Code::DeadLetterNotFound, Code::AmbiguousId])
        .add(routes!(letters::skip),           &[Code::DeadLetterNotFound, Code::AmbiguousId, Code::ReplayConflict, Code::Conflict])
        .add(routes!(letters::edit),           &[Code::DeadLetterNotFound, Code::AmbiguousId, Code::ReplayConflict, Code::Conflict, Code::ServiceGone, Code::EventNotWanted])
        .add(routes!(letters::groups),         &[])
        .add(routes!(letters::held_sessions),  &[])
        .add(routes!(letters::audit),          &[])
        .add(routes!(replays::list),           &[])
        .add(routes!(replays::begin),          &[Code::DeadLetterNotFound, Code::AmbiguousId, Code::ReplayConflict, Code::OnlyPoison, Code::ServiceGone, Code::EventNotWanted])
        .add(routes!(replays::one),            &[Code::ReplayNotFound])
        .add(routes!(replays::progress),       &[Code::ReplayNotFound])
        .add(routes!(replays::change),         &[Code::ReplayNotFound, Code::PathNotFound, Code::ReplayState])
        .add(routes!(queries::health),         &[])
        .add(routes!(openapi::describe),       &[])
}

/// Serves them.
pub(crate) fn router(app: App) -> Router {
    let (router, _) = routes().split();
    router.fallback(error::no_such_path).method_not_allowed_fallback(error::wrong_method).with_state(app)
}

/// The id that the client sent, or a new one.
fn correlation_id(headers: &HeaderMap) -> HeaderValue {
    let sent = headers.get(&CORRELATION_ID).filter(|value| is_fit(value)).cloned();
    sent.unwrap_or_else(|| {
        let mut text = uuid::Uuid::encode_buffer();
        let fresh = fresh::fresh_id().hyphenated().encode_lower(&mut text);
        HeaderValue::from_str(fresh).expect("digits, letters and dashes")
    })
}

fn is_fit(value: &HeaderValue) -> bool {
    value.len() <= CORRELATION_ID_BYTES_MAX
        && !value.is_empty()
        && value.as_bytes().iter().all(u8::is_ascii_graphic)
}
