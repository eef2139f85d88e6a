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
mod identity;
mod keys;
mod letters;
mod listen;
mod operate;
mod polite;
mod queries;
mod rate;
mod refusal;
mod replays;
pub(crate) mod shape;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use redrive::core::access::Permission;
use redrive::node::Node;
use tokio::sync::watch;

pub(crate) use self::guest::Guests;
pub(crate) use self::identity::{Access, With};
use self::identity::{Door, Guard, Reach, guard};
pub(crate) use self::listen::{Limits, listen};
pub(crate) use self::rate::Limiter;

/// What every handler has; each request gets a clone of its own.
#[derive(Clone)]
pub(crate) struct App(Arc<Parts>);

/// What there is of it once.
pub(crate) struct Parts {
    pub node: Node,
    pub limits: Limits,
    /// Who may come in.
    pub access: Access,
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

/// One route: what one needs for it, and who answers.
struct Route {
    #[cfg_attr(not(test), expect(dead_code, reason = "the test of every route with every role names it"))]
    method: Method,
    path: &'static str,
    door: Door,
    answer: MethodRouter<App>,
}

/// Every route there is. Both routers are made of this table, so that no route can be without its door.
#[rustfmt::skip]
fn routes() -> Vec<Route> {
    use Permission::{Administer, Operate, Read, Send};
    use Reach::{Part, Whole};
    vec![
        route(Method::POST, "/v1/events",                      Door::For(Send, Part),        events::accept),
        route(Method::POST, "/v1/events/{name}",               Door::For(Send, Part),        events::accept_easy),
        route(Method::GET,  "/v1/events/{name}",               Door::For(Read, Part),        queries::event),
        route(Method::GET,  "/v1/deliveries",                  Door::For(Read, Part),        queries::list),
        route(Method::GET,  "/v1/deliveries/{id}",             Door::For(Read, Part),        queries::delivery),
        route(Method::GET,  "/v1/status",                      Door::For(Read, Whole),       queries::status),
        route(Method::GET,  "/v1/happenings",                  Door::For(Read, Part),        queries::happenings),
        route(Method::POST, "/v1/services/{service}/pause",    Door::For(Operate, Part),     operate::pause),
        route(Method::POST, "/v1/services/{service}/resume",   Door::For(Operate, Part),     operate::resume),
        route(Method::POST, "/v1/unrouted/route",              Door::For(Operate, Whole),    operate::route_unrouted),
        route(Method::POST, "/v1/backup",                      Door::For(Administer, Whole), operate::back_up),
        route(Method::GET,  "/v1/keys",                        Door::For(Administer, Whole), keys::list),
        route(Method::POST, "/v1/keys",                        Door::For(Administer, Whole), keys::create),
        route(Method::POST, "/v1/keys/{id}/revoke",            Door::For(Administer, Whole), keys::revoke),
        route(Method::GET,  "/v1/dead-letters",                Door::For(Read, Part),        letters::list),
        route(Method::GET,  "/v1/dead-letters/export",         Door::For(Read, Part),        bulk::export),
        route(Method::POST, "/v1/dead-letters/import",         Door::For(Operate, Part),     bulk::import),
        route(Method::POST, "/v1/dead-letters/purge",          Door::For(Operate, Part),     bulk::purge),
        route(Method::GET,  "/v1/dead-letters/{id}",           Door::For(Read, Part),        letters::one),
        route(Method::POST, "/v1/dead-letters/{id}/skip",      Door::For(Operate, Part),     letters::skip),
        route(Method::POST, "/v1/dead-letters/{id}/edit",      Door::For(Operate, Part),     letters::edit),
        route(Method::GET,  "/v1/failure-groups",              Door::For(Read, Part),        letters::groups),
        route(Method::GET,  "/v1/held-sessions",               Door::For(Read, Whole),       letters::held_sessions),
        route(Method::GET,  "/v1/audit",                       Door::For(Read, Whole),       letters::audit),
        route(Method::GET,  "/v1/replays",                     Door::For(Read, Part),        replays::list),
        route(Method::POST, "/v1/replays",                     Door::For(Operate, Part),     replays::begin),
        route(Method::GET,  "/v1/replays/{id}",                Door::For(Read, Part),        replays::one),
        route(Method::GET,  "/v1/replays/{id}/progress",       Door::For(Read, Part),        replays::progress),
        route(Method::POST, "/v1/replays/{id}/{act}",          Door::For(Operate, Part),     replays::change),
        route(Method::GET,  "/healthz",                        Door::Open,                   queries::health),
    ]
}

fn route<H, T>(method: Method, path: &'static str, door: Door, handler: H) -> Route
where
    H: Handler<T, App>,
    T: 'static,
{
    let filter = MethodFilter::try_from(method.clone()).expect("a method that every server knows");
    Route { method, path, door, answer: on(filter, handler) }
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
        let open = routes().into_iter().map(|route| (route.path, route.answer));
        let guarded = routes().into_iter().map(|route| {
            let answer = match route.door {
                Door::Open => route.answer,
                Door::For(permission, reach) => {
                    let guarding = Guard { app: app.clone(), permission, reach };
                    route.answer.route_layer(from_fn_with_state(guarding, guard))
                }
            };
            (route.path, answer)
        });
        let guarded = Guarded { access: app.access.clone(), router: router(guarded, app.clone()) };
        Self { open: router(open, app.clone()), guarded: Some(guarded), guests }
    }

    /// Routes of another kind, for anybody on this machine.
    pub(crate) fn open(open: Router) -> Self {
        Self { open, guarded: None, guests: Guests::ThisMachine }
    }
}

fn router(routes: impl Iterator<Item = (&'static str, MethodRouter<App>)>, app: App) -> Router {
    routes
        .fold(Router::new(), |router, (path, answer)| router.route(path, answer))
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

#[cfg(test)]
mod tests {
    use redrive::core::access::Role;

    use super::*;

    /// Who may come by a route: every role that may, with a star where a key that is bound to services may
    /// not.
    fn who(door: Door) -> String {
        let Door::For(permission, reach) = door else { return "everybody".to_owned() };
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
            ("GET /v1/deliveries",                 "viewer operator admin"),
            ("GET /v1/deliveries/{id}",            "viewer operator admin"),
            ("GET /v1/status",                     "viewer operator admin*"),
            ("GET /v1/happenings",                 "viewer operator admin"),
            ("POST /v1/services/{service}/pause",  "operator admin"),
            ("POST /v1/services/{service}/resume", "operator admin"),
            ("POST /v1/unrouted/route",            "operator admin*"),
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
            ("GET /healthz",                       "everybody"),
        ];
        let routes = routes();
        for (route, (name, roles)) in routes.iter().zip(expected) {
            assert_eq!(format!("{} {}", route.method, route.path), name);
            assert_eq!(who(route.door), roles, "{name}");
        }
        assert_eq!(routes.len(), expected.len());
    }
}
