//! The HTTP API: takes events in and answers questions about them.
//!
//! Invariants:
//! - an answer that says "accepted" is sent only when the event is durable;
//! - every answer has an `X-Correlation-Id`, and every error the one form of [`error`];
//! - nothing a client sends or leaves unsent takes more than a bounded amount of memory or time.

mod addresses;
mod alerts;
mod body;
pub(crate) mod book;
pub(crate) mod bulk;
mod code;
mod connection;
mod crowd;
mod demo;
mod dependencies;
pub(crate) mod doctor;
pub(crate) mod door;
mod error;
mod events;
mod fresh;
mod guest;
pub(crate) mod health;
pub(crate) mod hooks;
mod identity;
mod keys;
mod letters;
mod listen;
pub(crate) mod live;
mod metrics;
pub(crate) mod openapi;
mod operate;
pub(crate) mod page;
mod queries;
mod rate;
mod refusal;
mod removed;
mod replays;
pub(crate) mod request;
mod services;
pub(crate) mod shape;
mod simulate;
mod strangers;
mod trend;
mod views;
mod waits;
mod whoami;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::request::Parts as RequestParts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::routing::get;
use redrive_core::access::Permission;
use redrive_node::archive::archivist::Archivist;
use redrive_node::runtime::{Node, Snapshot};
use tokio::sync::watch;
use utoipa_axum::routes;

use crate::demo::Demo;

pub(crate) use self::body::Reading;
use self::code::Code;
use self::error::ApiError;
pub(crate) use self::fresh::fresh_id;
pub(crate) use self::guest::Guests;
pub(crate) use self::identity::{Access, Alarm, With};
use self::identity::{Need, Reach};
pub use self::listen::serve_bare;
pub(crate) use self::listen::{Limits, listen_behind};
pub(crate) use self::metrics::Metrics;
use self::openapi::Routes;
pub(crate) use self::rate::Limiter;
pub(crate) use self::simulate::Simulations;

/// What every handler has; each request gets a clone of its own.
#[derive(Clone)]
pub(crate) struct App(Arc<Parts>);

/// What there is of it once.
pub(crate) struct Parts {
    pub node: Node,
    pub archivist: Archivist,
    pub limits: Limits,
    /// The bound of all bodies that come in.
    pub reading: Reading,
    pub hooks: hooks::Webhooks,
    /// Who may come in.
    pub access: Access,
    /// The demo that this server is, if it is one.
    pub demo: Option<Demo>,
    /// How it was when somebody asked last.
    pub health: health::Memo,
    /// What the doctor found lately.
    pub reports: doctor::Reports,
    /// The bound of what is simulated at once.
    pub simulations: Simulations,
    /// Where the rule book is, unless it is the built-in one.
    pub book_path: Option<PathBuf>,
    pub book_shown: book::Shown,
    pub live: live::Hub,
    /// The figures of all this.
    pub metrics: Metrics,
    /// Turns true when the server stops, so that endless answers end.
    pub closing: watch::Receiver<bool>,
}

impl App {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl FromRequestParts<Self> for App {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut RequestParts, app: &Self) -> Result<Self, Infallible> {
        Ok(app.clone())
    }
}

impl App {
    /// What the engine has at the moment.
    async fn snapshot(&self) -> Result<Snapshot, ApiError> {
        self.node.snapshot().await.ok_or_else(|| ApiError::unavailable("the server is shutting down"))
    }
}

impl std::ops::Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// Goes on to the end of what was begun, even if whoever asked has gone or was told that it takes too long.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::spawn(work).await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // An aborted task belongs to a runtime that is going away.
        Err(_) => Err(ApiError::unavailable("the server is shutting down")),
    })
}

const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
/// The longest correlation id that is taken over from a client.
const CORRELATION_ID_BYTES_MAX: usize = 128;

/// Every route there is: what one needs for it, and the errors of its own. Both routers and the API's
/// description are made of this table, so that no route can be without its guard or its words.
#[rustfmt::skip]
fn routes() -> Routes {
    use Permission::{Administer, Operate, Read, Send};
    use Reach::{Part, Whole};
    Routes::new()
        .add(Need::Permission(Send, Part),         routes!(events::accept),          &[Code::Conflict, Code::BacklogFull])
        .add(Need::Permission(Send, Part),         routes!(events::accept_easy),     &[Code::Conflict, Code::BacklogFull])
        .add(Need::Permission(Read, Part),         routes!(queries::event),          &[Code::EventNotFound])
        .add(Need::Nothing,                        routes!(hooks::take),             &[Code::SourceNotFound, Code::Unauthorized, Code::RateLimitExceeded, Code::BacklogFull])
        .add(Need::Permission(Read, Whole),        routes!(hooks::refused::list),    &[])
        .add(Need::Permission(Read, Whole),        routes!(hooks::refused::one),     &[Code::RefusedBodyNotFound])
        .add(Need::Permission(Read, Part),         routes!(queries::list),           &[])
        .add(Need::Permission(Read, Part),         routes!(queries::delivery),       &[Code::DeliveryNotFound, Code::AmbiguousId])
        .add(Need::Permission(Read, Part),         routes!(queries::status),         &[])
        .add(Need::Permission(Read, Whole),        routes!(metrics::scrape),         &[])
        .add(Need::Permission(Read, Whole),        routes!(metrics::figures),        &[])
        .add(Need::Permission(Read, Part),         routes!(queries::happenings),     &[])
        .add(Need::Permission(Read, Part),         routes!(live::live),              &[])
        .add(Need::Key,                            routes!(whoami::whoami),          &[])
        .add(Need::Permission(Read, Part),         routes!(services::list),          &[])
        .add(Need::Permission(Read, Part),         routes!(trend::trend),            &[Code::ServiceNotFound, Code::DependencyNotFound])
        .add(Need::Permission(Read, Whole),        routes!(book::book),              &[])
        .add(Need::Permission(Read, Part),         routes!(book::rule),              &[Code::ServiceNotFound, Code::EventNotWanted])
        .add(Need::Permission(Read, Whole),        routes!(simulate::ready),         &[])
        .add(Need::Permission(Read, Whole),        routes!(simulate::simulate),      &[])
        .add(Need::Permission(Read, Part),         routes!(dependencies::list),      &[])
        .add(Need::Permission(Operate, Whole),     routes!(dependencies::trip),      &[Code::DependencyNotFound, Code::NoBreaker])
        .add(Need::Permission(Operate, Whole),     routes!(dependencies::reset),     &[Code::DependencyNotFound, Code::NoBreaker])
        .add(Need::Permission(Read, Whole),        routes!(doctor::doctor),          &[])
        .add(Need::Permission(Read, Whole),        routes!(alerts::list),            &[])
        .add(Need::Permission(Operate, Whole),     routes!(alerts::test),            &[Code::ReceiverNotFound])
        .add(Need::Permission(Operate, Part),      routes!(operate::pause),          &[Code::ServiceNotFound])
        .add(Need::Permission(Operate, Part),      routes!(operate::resume),         &[Code::ServiceNotFound])
        .add(Need::Permission(Operate, Whole),     routes!(operate::route_unrouted), &[])
        .add(Need::Permission(Read, Part),         routes!(removed::list),           &[])
        .add(Need::Permission(Operate, Part),      routes!(removed::dead_letter),    &[Code::ServiceInBook])
        .add(Need::Permission(Operate, Part),      routes!(removed::move_elsewhere), &[Code::ServiceInBook, Code::ServiceGone])
        .add(Need::Permission(Administer, Whole),  routes!(operate::back_up),        &[])
        .add(Need::Permission(Administer, Whole),  routes!(keys::list),              &[])
        .add(Need::Permission(Administer, Whole),  routes!(keys::create),            &[])
        .add(Need::Permission(Administer, Whole),  routes!(keys::revoke),            &[Code::KeyNotFound])
        .add(Need::Permission(Read, Part),         routes!(letters::list),           &[])
        .add(Need::Permission(Read, Part),         routes!(bulk::export),            &[])
        .add(Need::Permission(Operate, Part),      routes!(bulk::import),            &[])
        .add(Need::Permission(Operate, Part),      routes!(bulk::purge),             &[Code::DeadLetterNotFound, Code::AmbiguousId])
        .add(Need::Permission(Read, Part),         routes!(letters::one),            &[Code::DeadLetterNotFound, Code::AmbiguousId])
        .add(Need::Permission(Operate, Part),      routes!(letters::skip),           &[Code::DeadLetterNotFound, Code::AmbiguousId, Code::ReplayConflict, Code::Conflict])
        .add(Need::Permission(Operate, Part),      routes!(letters::edit),           &[Code::DeadLetterNotFound, Code::AmbiguousId, Code::ReplayConflict, Code::Conflict, Code::ServiceGone, Code::EventNotWanted])
        .add(Need::Permission(Read, Part),         routes!(letters::groups),         &[])
        .add(Need::Permission(Read, Whole),        routes!(letters::held_sessions),  &[])
        .add(Need::Permission(Read, Whole),        routes!(letters::audit),          &[])
        .add(Need::Permission(Read, Part),         routes!(replays::list),           &[])
        .add(Need::Permission(Operate, Part),      routes!(replays::begin),          &[Code::DeadLetterNotFound, Code::Conflict, Code::AmbiguousId, Code::ReplayConflict, Code::OnlyPoison, Code::ServiceGone, Code::EventNotWanted])
        .add(Need::Permission(Read, Part),         routes!(replays::one),            &[Code::ReplayNotFound])
        .add(Need::Permission(Read, Part),         routes!(replays::progress),       &[Code::ReplayNotFound])
        .add(Need::Permission(Operate, Part),      routes!(replays::change),         &[Code::ReplayNotFound, Code::PathNotFound, Code::ReplayState])
        .add(Need::Permission(Read, Whole),        routes!(demo::story),             &[Code::PathNotFound])
        .add(Need::Permission(Operate, Whole),     routes!(demo::act),               &[Code::PathNotFound])
        .add(Need::Nothing,                        routes!(health::live),            &[])
        .add(Need::Nothing,                        routes!(health::ready),           &[Code::Unauthorized, Code::RateLimitExceeded])
        .add(Need::Nothing,                        routes!(openapi::describe),       &[])
        .beside("/",                               get(page::first))
        .beside("/page/{*file}",                   get(page::file))
}

/// The routes twice: for when anybody may come, and for when everybody is asked who they are.
///
/// A server that asks nobody does not pay for the question.
#[derive(Clone)]
pub(crate) struct Routers {
    open: Router,
    guarded: Option<Guarded>,
    guests: Guests,
}

#[derive(Clone)]
struct Guarded {
    access: Access,
    router: Router,
}

impl Routers {
    /// The API.
    pub(crate) fn new(app: &App, guests: Guests) -> Self {
        let (open, guarded) = routes().serve(app);
        let guarded = Guarded { access: app.access.clone(), router: finished(guarded, app) };
        Self { open: finished(open, app), guarded: Some(guarded), guests }
    }

    /// Routes of another kind, for anybody on this machine.
    pub(crate) fn open(open: Router) -> Self {
        Self { open, guarded: None, guests: Guests::ThisMachine }
    }
}

fn finished(router: Router<App>, app: &App) -> Router {
    router
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::wrong_method)
        .with_state(app.clone())
}

/// The id that the client sent, or a new one.
fn correlation_id(headers: &HeaderMap) -> HeaderValue {
    let sent = headers.get(&CORRELATION_ID).filter(|value| is_fit(value)).cloned();
    sent.unwrap_or_else(|| {
        let mut text = uuid::Uuid::encode_buffer();
        let fresh = fresh_id().hyphenated().encode_lower(&mut text);
        HeaderValue::from_str(fresh).expect("digits, letters and dashes")
    })
}

fn is_fit(value: &HeaderValue) -> bool {
    value.len() <= CORRELATION_ID_BYTES_MAX
        && !value.is_empty()
        && value.as_bytes().iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use redrive_core::access::Role;

    use super::*;

    /// Who may come by a route: every role that may, with a star where a key that is bound to services may
    /// not.
    fn who(need: Need) -> String {
        let (permission, reach) = match need {
            Need::Nothing => return "everybody".to_owned(),
            Need::Key => return "whoever has a key".to_owned(),
            Need::Permission(permission, reach) => (permission, reach),
        };
        let star = if reach == Reach::Whole { "*" } else { "" };
        let roles = permission.roles().into_iter().map(Role::as_str);
        format!("{}{star}", roles.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn every_route_lets_in_whom_it_is_for() {
        #[rustfmt::skip]
        let expected = [
            ("POST /v1/events",                    "ingest operator admin"),
            ("POST /v1/events/{name}",             "ingest operator admin"),
            ("GET /v1/events/{name}",              "viewer operator admin"),
            ("POST /v1/hooks/{source}",            "everybody"),
            ("GET /v1/refused-hooks",              "viewer operator admin*"),
            ("GET /v1/refused-hooks/{number}",     "viewer operator admin*"),
            ("GET /v1/deliveries",                 "viewer operator admin"),
            ("GET /v1/deliveries/{id}",            "viewer operator admin"),
            ("GET /v1/status",                     "viewer operator admin"),
            ("GET /metrics",                       "viewer operator admin*"),
            ("GET /v1/metrics",                    "viewer operator admin*"),
            ("GET /v1/happenings",                 "viewer operator admin"),
            ("GET /v1/live",                       "viewer operator admin"),
            ("GET /v1/whoami",                     "whoever has a key"),
            ("GET /v1/services",                   "viewer operator admin"),
            ("GET /v1/trend",                      "viewer operator admin"),
            ("GET /v1/book",                       "viewer operator admin*"),
            ("GET /v1/rule",                       "viewer operator admin"),
            ("GET /v1/scenarios",                  "viewer operator admin*"),
            ("POST /v1/simulate",                  "viewer operator admin*"),
            ("GET /v1/dependencies",               "viewer operator admin"),
            ("POST /v1/dependencies/{name}/trip",  "operator admin*"),
            ("POST /v1/dependencies/{name}/reset", "operator admin*"),
            ("GET /v1/doctor",                     "viewer operator admin*"),
            ("GET /v1/alerts",                     "viewer operator admin*"),
            ("POST /v1/receivers/{name}/test",     "operator admin*"),
            ("POST /v1/services/{service}/pause",  "operator admin"),
            ("POST /v1/services/{service}/resume", "operator admin"),
            ("POST /v1/unrouted/route",            "operator admin*"),
            ("GET /v1/removed",                    "viewer operator admin"),
            ("POST /v1/removed/{service}/dead-letter", "operator admin"),
            ("POST /v1/removed/{service}/move",    "operator admin"),
            ("POST /v1/backup",                    "admin*"),
            ("GET /v1/keys",                       "admin*"),
            ("POST /v1/keys",                      "admin*"),
            ("POST /v1/keys/{id}/revoke",          "admin*"),
            ("GET /v1/dead-letters",               "viewer operator admin"),
            ("GET /v1/dead-letters/export",        "viewer operator admin"),
            ("POST /v1/dead-letters/import",       "operator admin"),
            ("POST /v1/dead-letters/purge",        "operator admin"),
            ("GET /v1/dead-letters/{id}",          "viewer operator admin"),
            ("POST /v1/dead-letters/{id}/skip",    "operator admin"),
            ("POST /v1/dead-letters/{id}/edit",    "operator admin"),
            ("GET /v1/failure-groups",             "viewer operator admin"),
            ("GET /v1/held-sessions",              "viewer operator admin*"),
            ("GET /v1/audit",                      "viewer operator admin*"),
            ("GET /v1/replays",                    "viewer operator admin"),
            ("POST /v1/replays",                   "operator admin"),
            ("GET /v1/replays/{id}",               "viewer operator admin"),
            ("GET /v1/replays/{id}/progress",      "viewer operator admin"),
            ("POST /v1/replays/{id}/{act}",        "operator admin"),
            ("GET /v1/demo",                       "viewer operator admin*"),
            ("POST /v1/demo/{act}",                "operator admin*"),
            ("GET /healthz",                       "everybody"),
            ("GET /readyz",                        "everybody"),
            ("GET /openapi.json",                  "everybody"),
            ("GET /",                              "everybody"),
            ("GET /page/{*file}",                  "everybody"),
        ];
        let needs = routes().needs();
        for ((route, need), (name, roles)) in needs.iter().zip(expected) {
            assert_eq!(route, name);
            assert_eq!(who(*need), roles, "{name}");
        }
        assert_eq!(needs.len(), expected.len());
    }
}
