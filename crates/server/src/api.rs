//! The HTTP API: accepts events and answers queries.
//!
//! Invariants:
//! - "accepted" is answered only when the event is durable;
//! - every response has an `X-Correlation-Id`, and every error the form of [`error`];
//! - no client can take more than a bounded amount of memory or time.

pub(crate) mod body;
pub(crate) mod code;
pub(crate) mod error;
pub(crate) mod ids;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod openapi;
pub(crate) mod page;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod transport;

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

use crate::access::{AccessControl, RouteAccess, ServiceScope, whoami};
use crate::api::body::BodyBudget;
use crate::api::code::ApiCode;
use crate::api::error::ApiError;
use crate::api::ids::fresh_id;
use crate::api::limits::loopback_only::LoopbackPolicy;
use crate::api::listen::ApiLimits;
use crate::api::openapi::Routes;
use crate::demo::{self, Demo};
use crate::events::{self, route, tail};
use crate::lab::doctor::handlers::DoctorReports;
use crate::lab::simulate::handlers::Simulations;
use crate::lab::{doctor, simulate};
use crate::letters::{self, bulk};
use crate::rules::handlers::BookJsonCache;
use crate::services::{self, removed};
use crate::status::health::{self, HealthMemo};
use crate::status::live::{self, LiveHub};
use crate::status::metrics::gather::Metrics;
use crate::status::{self, metrics, trend};
use crate::storage::{audit, backup};
use crate::webhooks::handlers::Webhooks;
use crate::webhooks::{self, refused};
use crate::{alerts, breakers, deliveries, keys, replays, rules};

/// State of every handler; cloned per request.
#[derive(Clone)]
pub(crate) struct App(Arc<AppState>);

pub(crate) struct AppState {
    pub node: Node,
    pub archivist: Archivist,
    pub limits: ApiLimits,
    pub reading: BodyBudget,
    pub hooks: Webhooks,
    pub access: AccessControl,
    pub demo: Option<Demo>,
    pub health: HealthMemo,
    pub reports: DoctorReports,
    pub simulations: Simulations,
    /// `None` for the built-in book.
    pub book_path: Option<PathBuf>,
    pub book_shown: BookJsonCache,
    pub live: LiveHub,
    pub metrics: Metrics,
    /// Turns true at shutdown, so that streams end.
    pub closing: watch::Receiver<bool>,
}

impl App {
    pub(crate) fn new(parts: AppState) -> Self {
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
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, ApiError> {
        self.node.snapshot().await.ok_or_else(|| ApiError::unavailable("the server is shutting down"))
    }
}

impl std::ops::Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

/// Completes the work even if the caller disconnects or times out.
pub(crate) async fn run_to_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::spawn(work).await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // An aborted task belongs to a runtime that is shutting down.
        Err(_) => Err(ApiError::unavailable("the server is shutting down")),
    })
}

pub(crate) const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// Longer ids of clients are replaced.
const CORRELATION_ID_BYTES_MAX: usize = 128;

/// Every route with its access and errors. Routers and API description are generated from it, so that no
/// route lacks its access check or its description.
#[rustfmt::skip]
fn routes() -> Routes {
    use Permission::{Administer, Operate, Read, Send};
    use ServiceScope::{Part, Whole};
    Routes::new()
        .add(RouteAccess::Permission(Send, Part),         routes!(events::handlers::accept),          &[ApiCode::Conflict, ApiCode::BacklogFull])
        .add(RouteAccess::Permission(Send, Part),         routes!(events::handlers::accept_easy),     &[ApiCode::Conflict, ApiCode::BacklogFull])
        .add(RouteAccess::Permission(Read, Part),         routes!(deliveries::handlers::event),          &[ApiCode::EventNotFound])
        .add(RouteAccess::Nothing,                        routes!(webhooks::handlers::take),             &[ApiCode::SourceNotFound, ApiCode::Unauthorized, ApiCode::RateLimitExceeded, ApiCode::BacklogFull])
        .add(RouteAccess::Permission(Read, Whole),        routes!(refused::list),    &[])
        .add(RouteAccess::Permission(Read, Whole),        routes!(refused::one),     &[ApiCode::RefusedBodyNotFound])
        .add(RouteAccess::Permission(Read, Part),         routes!(deliveries::handlers::list),           &[])
        .add(RouteAccess::Permission(Read, Part),         routes!(deliveries::handlers::delivery),       &[ApiCode::DeliveryNotFound, ApiCode::AmbiguousId])
        .add(RouteAccess::Permission(Read, Part),         routes!(status::handlers::status),         &[])
        .add(RouteAccess::Permission(Read, Whole),        routes!(metrics::scrape),         &[])
        .add(RouteAccess::Permission(Read, Whole),        routes!(metrics::figures),        &[])
        .add(RouteAccess::Permission(Read, Part),         routes!(tail::activity),     &[])
        .add(RouteAccess::Permission(Read, Part),         routes!(live::live),              &[])
        .add(RouteAccess::Key,                            routes!(whoami::whoami),          &[])
        .add(RouteAccess::Permission(Read, Part),         routes!(services::handlers::list),          &[])
        .add(RouteAccess::Permission(Read, Part),         routes!(trend::trend),            &[ApiCode::ServiceNotFound, ApiCode::DependencyNotFound])
        .add(RouteAccess::Permission(Read, Whole),        routes!(rules::handlers::book),              &[])
        .add(RouteAccess::Permission(Read, Part),         routes!(rules::handlers::rule),              &[ApiCode::ServiceNotFound, ApiCode::EventNotWanted])
        .add(RouteAccess::Permission(Read, Whole),        routes!(simulate::handlers::ready),         &[])
        .add(RouteAccess::Permission(Read, Whole),        routes!(simulate::handlers::simulate),      &[])
        .add(RouteAccess::Permission(Read, Part),         routes!(breakers::handlers::list),      &[])
        .add(RouteAccess::Permission(Operate, Whole),     routes!(breakers::handlers::trip),      &[ApiCode::DependencyNotFound, ApiCode::NoBreaker])
        .add(RouteAccess::Permission(Operate, Whole),     routes!(breakers::handlers::reset),     &[ApiCode::DependencyNotFound, ApiCode::NoBreaker])
        .add(RouteAccess::Permission(Read, Whole),        routes!(doctor::handlers::doctor),          &[])
        .add(RouteAccess::Permission(Read, Whole),        routes!(alerts::handlers::list),            &[])
        .add(RouteAccess::Permission(Operate, Whole),     routes!(alerts::handlers::test),            &[ApiCode::ReceiverNotFound])
        .add(RouteAccess::Permission(Operate, Part),      routes!(services::handlers::pause),          &[ApiCode::ServiceNotFound])
        .add(RouteAccess::Permission(Operate, Part),      routes!(services::handlers::resume),         &[ApiCode::ServiceNotFound])
        .add(RouteAccess::Permission(Operate, Whole),     routes!(route::route_unrouted), &[])
        .add(RouteAccess::Permission(Read, Part),         routes!(removed::list),           &[])
        .add(RouteAccess::Permission(Operate, Part),      routes!(removed::dead_letter),    &[ApiCode::ServiceInBook])
        .add(RouteAccess::Permission(Operate, Part),      routes!(removed::move_elsewhere), &[ApiCode::ServiceInBook, ApiCode::ServiceGone])
        .add(RouteAccess::Permission(Administer, Whole),  routes!(backup::back_up),        &[])
        .add(RouteAccess::Permission(Administer, Whole),  routes!(keys::handlers::list),              &[])
        .add(RouteAccess::Permission(Administer, Whole),  routes!(keys::handlers::create),            &[])
        .add(RouteAccess::Permission(Administer, Whole),  routes!(keys::handlers::revoke),            &[ApiCode::KeyNotFound])
        .add(RouteAccess::Permission(Read, Part),         routes!(letters::handlers::list),           &[])
        .add(RouteAccess::Permission(Read, Part),         routes!(bulk::export),            &[])
        .add(RouteAccess::Permission(Operate, Part),      routes!(bulk::import),            &[])
        .add(RouteAccess::Permission(Operate, Part),      routes!(bulk::purge),             &[ApiCode::DeadLetterNotFound, ApiCode::AmbiguousId])
        .add(RouteAccess::Permission(Read, Part),         routes!(letters::handlers::one),            &[ApiCode::DeadLetterNotFound, ApiCode::AmbiguousId])
        .add(RouteAccess::Permission(Operate, Part),      routes!(letters::handlers::skip),           &[ApiCode::DeadLetterNotFound, ApiCode::AmbiguousId, ApiCode::ReplayConflict, ApiCode::Conflict])
        .add(RouteAccess::Permission(Operate, Part),      routes!(letters::handlers::edit),           &[ApiCode::DeadLetterNotFound, ApiCode::AmbiguousId, ApiCode::ReplayConflict, ApiCode::Conflict, ApiCode::ServiceGone, ApiCode::EventNotWanted])
        .add(RouteAccess::Permission(Read, Part),         routes!(letters::handlers::groups),         &[])
        .add(RouteAccess::Permission(Read, Whole),        routes!(letters::handlers::held_sessions),  &[])
        .add(RouteAccess::Permission(Read, Whole),        routes!(audit::audit),          &[])
        .add(RouteAccess::Permission(Read, Part),         routes!(replays::handlers::list),           &[])
        .add(RouteAccess::Permission(Operate, Part),      routes!(replays::handlers::begin),          &[ApiCode::DeadLetterNotFound, ApiCode::Conflict, ApiCode::AmbiguousId, ApiCode::ReplayConflict, ApiCode::OnlyPoison, ApiCode::ServiceGone, ApiCode::EventNotWanted])
        .add(RouteAccess::Permission(Read, Part),         routes!(replays::handlers::one),            &[ApiCode::ReplayNotFound])
        .add(RouteAccess::Permission(Read, Part),         routes!(replays::handlers::progress),       &[ApiCode::ReplayNotFound])
        .add(RouteAccess::Permission(Operate, Part),      routes!(replays::handlers::change),         &[ApiCode::ReplayNotFound, ApiCode::PathNotFound, ApiCode::ReplayState])
        .add(RouteAccess::Permission(Read, Whole),        routes!(demo::handlers::story),             &[ApiCode::PathNotFound])
        .add(RouteAccess::Permission(Operate, Whole),     routes!(demo::handlers::act),               &[ApiCode::PathNotFound])
        .add(RouteAccess::Nothing,                        routes!(health::live),            &[])
        .add(RouteAccess::Nothing,                        routes!(health::ready),           &[ApiCode::Unauthorized, ApiCode::RateLimitExceeded])
        .add(RouteAccess::Nothing,                        routes!(openapi::describe),       &[])
        .beside("/",                               get(page::first))
        .beside("/page/{*file}",                   get(page::file))
}

/// The routes twice: without and with authentication, so that open servers do not pay for the check.
#[derive(Clone)]
pub(crate) struct Routers {
    open: Router,
    guarded: Option<GuardedRouter>,
    loopback: LoopbackPolicy,
}

#[derive(Clone)]
struct GuardedRouter {
    access: AccessControl,
    router: Router,
}

impl Routers {
    pub(crate) fn new(app: &App, loopback: LoopbackPolicy) -> Self {
        let (open, guarded) = routes().serve(app);
        let guarded = GuardedRouter { access: app.access.clone(), router: finished(guarded, app) };
        Self { open: finished(open, app), guarded: Some(guarded), loopback }
    }

    pub(crate) fn open(open: Router) -> Self {
        Self { open, guarded: None, loopback: LoopbackPolicy::ThisMachine }
    }
}

fn finished(router: Router<App>, app: &App) -> Router {
    router
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::wrong_method)
        .with_state(app.clone())
}

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

    /// Roles that may use a route, with a star where a key bound to services may not.
    fn who(need: RouteAccess) -> String {
        let (permission, reach) = match need {
            RouteAccess::Nothing => return "all".to_owned(),
            RouteAccess::Key => return "any key".to_owned(),
            RouteAccess::Permission(permission, reach) => (permission, reach),
        };
        let star = if reach == ServiceScope::Whole { "*" } else { "" };
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
            ("POST /v1/hooks/{source}",            "all"),
            ("GET /v1/refused-hooks",              "viewer operator admin*"),
            ("GET /v1/refused-hooks/{number}",     "viewer operator admin*"),
            ("GET /v1/deliveries",                 "viewer operator admin"),
            ("GET /v1/deliveries/{id}",            "viewer operator admin"),
            ("GET /v1/status",                     "viewer operator admin"),
            ("GET /metrics",                       "viewer operator admin*"),
            ("GET /v1/metrics",                    "viewer operator admin*"),
            ("GET /v1/activity",                 "viewer operator admin"),
            ("GET /v1/live",                       "viewer operator admin"),
            ("GET /v1/whoami",                     "any key"          ),
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
            ("GET /healthz",                       "all"),
            ("GET /readyz",                        "all"),
            ("GET /openapi.json",                  "all"),
            ("GET /",                              "all"),
            ("GET /page/{*file}",                  "all"),
        ];
        let needs = routes().needs();
        for ((route, need), (name, roles)) in needs.iter().zip(expected) {
            assert_eq!(route, name);
            assert_eq!(who(*need), roles, "{name}");
        }
        assert_eq!(needs.len(), expected.len());
    }
}
