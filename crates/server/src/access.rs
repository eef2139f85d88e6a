//! Authentication and authorization, in front of every route.
//!
//! A caller sends an API key or a token. The permission of each route is in the route table of `api.rs`, from
//! which the router is built, so no route lacks one. Scopes (services, sources) are checked here for routes
//! that concern the whole server, and by the handler otherwise. There are no cookies, hence no CSRF.
//!
//! Invariants:
//! - once authentication is required it stays so until restart: neither a revoked key nor another rule book
//!   turns it off;
//! - unknown, revoked and expired keys get the same answer;
//! - no key or token is in a log, an error or the audit log.

pub(crate) mod addresses;
pub(crate) mod caller;
mod credential;
mod failures;
mod keyring;
pub(crate) mod tokens;
pub(crate) mod whoami;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use redrive::stale::UnavailableValue;
use redrive_core::access::{Permission, Role};
use redrive_core::book::RuleBook;
use redrive_core::text::Rate;
use redrive_core::time::Timestamp;
use redrive_node::runtime::BookSwitch;
use redrive_node::secret::Secrets;
use redrive_node::store::access_store::KeyRecord;
use redrive_node::target::http::Pool;
use tokio::sync::{Mutex, MutexGuard};

use crate::access::caller::ApiCaller;
use crate::access::credential::Credential;
use crate::access::failures::{CredentialProblem, FailedLoginLog};
use crate::access::keyring::Keyring;
use crate::access::tokens::{BearerTokens, IssuerAlarm};
use crate::api::App;
use crate::api::code::ApiCode;
use crate::api::error::ApiError;
use crate::api::limits::rate::{self, Limiter};

/// What a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteAccess {
    /// The route reveals nothing, or authenticates by itself.
    Nothing,
    /// Any valid credential.
    Key,
    Permission(Permission, ServiceScope),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceScope {
    /// The whole server: denied to callers bound to services.
    Whole,
    /// A part named by the request: its handler checks the caller's scope.
    Part,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub IpAddr);

pub(crate) struct AccessParts {
    pub(crate) limiter: Arc<Limiter>,
    /// For tokens signed with a shared secret.
    pub(crate) secrets: Secrets,
    /// For fetching an issuer's keys.
    pub(crate) pool: Arc<Pool>,
    /// Called when those keys cannot be fetched.
    pub(crate) alarm: IssuerAlarm,
}

/// Access control; clones share state.
#[derive(Clone)]
pub(crate) struct AccessControl(Arc<AccessState>);

struct AccessState {
    is_on: AtomicBool,
    keys: Keyring,
    bearers: BearerTokens,
    /// The rate limit of callers without their own.
    rate: ArcSwapOption<Rate>,
    limiter: Arc<Limiter>,
    failed: FailedLoginLog,
    /// Serializes key changes: each builds on the result of the last.
    changing: Mutex<()>,
}

impl AccessControl {
    pub(crate) fn new(keys: Vec<KeyRecord>, book: &RuleBook, with: AccessParts) -> Self {
        let AccessParts { limiter, secrets, pool, alarm } = with;
        let inner = AccessState {
            is_on: AtomicBool::new(!keys.is_empty()),
            keys: Keyring::new(keys),
            bearers: BearerTokens::new(secrets, pool, alarm),
            rate: ArcSwapOption::empty(),
            limiter,
            failed: FailedLoginLog::default(),
            changing: Mutex::new(()),
        };
        let access = Self(Arc::new(inner));
        match access.prepare(book) {
            Ok(switch) => switch(),
            // An invalid token setup must never turn authentication off.
            Err(why) => {
                access.0.is_on.store(true, Ordering::Release);
                access.0.bearers.shut(why);
            }
        }
        access
    }

    pub(crate) fn prepare(&self, book: &RuleBook) -> Result<BookSwitch, String> {
        let (inner, tokens) = (Arc::clone(&self.0), self.0.bearers.prepare(book)?);
        let rate = book.sections().access.rate.map(Arc::new);
        Ok(Box::new(move || {
            inner.rate.store(rate);
            if tokens.is_some() {
                inner.is_on.store(true, Ordering::Release);
            }
            inner.bearers.switch(tokens);
        }))
    }

    /// Whether authentication is required.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Acquire)
    }

    /// Whether authentication is required but no key or token could pass.
    pub(crate) fn is_shut(&self, now: Timestamp) -> bool {
        self.is_on() && !self.0.keys.has_good(now) && !self.0.bearers.are_believed()
    }

    /// Waits for the right to change keys.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.0.changing.lock().await
    }

    /// Records a key that was durably created or revoked.
    pub(crate) fn put(&self, record: KeyRecord) {
        self.0.keys.put(record);
        self.0.is_on.store(true, Ordering::Release);
    }

    /// `None` if unused since the server started.
    pub(crate) fn last_used_at(&self, id: &str) -> Option<Timestamp> {
        self.0.keys.last_used_at(id)
    }

    /// `Err` if the credential cannot be checked now.
    async fn identify(
        &self,
        credential: &Credential<'_>,
        now: Timestamp,
    ) -> Result<Result<ApiCaller, CredentialProblem>, ApiError> {
        match credential {
            Credential::Key(text) => {
                Ok(self.0.keys.find(text, now).map(ApiCaller::with_key).ok_or(CredentialProblem::Key))
            }
            Credential::Token(text) => Ok(self.0.bearers.find(text).await?.map(ApiCaller::with_token)),
        }
    }

    /// The token issuer, if its keys cannot be fetched.
    pub(crate) async fn unavailable_issuer(&self) -> Option<(String, UnavailableValue)> {
        self.0.bearers.unavailable().await
    }

    fn rate_of(&self, caller: &ApiCaller) -> Option<Rate> {
        caller.rate().or_else(|| self.0.rate.load().as_deref().copied())
    }
}

#[derive(Clone)]
pub(crate) struct RouteGuard {
    pub app: App,
    /// The required permission, if any.
    pub asked: Option<(Permission, ServiceScope)>,
}

/// Passes a request to its handler with its caller attached, or rejects it.
pub(crate) async fn guard(State(guard): State<RouteGuard>, mut request: Request, next: Next) -> Response {
    let RouteGuard { app, asked } = guard;
    let now = app.node.now();
    let caller = match who(&app, request.headers(), request.extensions().get::<Peer>(), now).await {
        Ok(caller) => caller,
        Err(refusal) => return refusal.into_response(),
    };
    let allowed = match app.access.rate_of(&caller) {
        None => None,
        Some(rate) => match app.access.0.limiter.check(&caller.meter(), rate, now) {
            Ok(allowed) => Some(allowed),
            Err(too_many) => return rate::refusal(&too_many).into_response(),
        },
    };
    let may_come = asked.map_or(Ok(()), |(permission, reach)| may(&caller, permission, reach));
    let mut response = match may_come {
        Ok(()) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    };
    if let Some(allowed) = allowed {
        rate::set_rate_headers(&allowed, response.headers_mut());
    }
    response
}

/// Whether the caller may read everything, on routes that need no key. Bad credentials are rejected as
/// everywhere.
pub(crate) async fn reads_all(app: &App, headers: &HeaderMap, peer: Option<&Peer>) -> Result<bool, ApiError> {
    if !app.access.is_on() {
        return Ok(true);
    }
    if matches!(Credential::of(headers), Ok(None)) {
        return Ok(false);
    }
    let caller = who(app, headers, peer, app.node.now()).await?;
    Ok(may(&caller, Permission::Read, ServiceScope::Whole).is_ok())
}

/// Identifies the caller; failed attempts are counted.
async fn who(
    app: &App,
    headers: &HeaderMap,
    peer: Option<&Peer>,
    now: Timestamp,
) -> Result<ApiCaller, ApiError> {
    let shown = match Credential::of(headers) {
        Ok(None) => return Err(unauthorized("credentials required")),
        Ok(Some(credential)) => app.access.identify(&credential, now).await?,
        Err(_) => Err(CredentialProblem::Unreadable),
    };
    shown.map_err(|doubt| {
        let peer = peer.map(|peer| peer.0);
        let refusal = app.access.0.failed.note(&app.node, peer, &doubt, now).err();
        refusal.unwrap_or_else(|| unauthorized("invalid or expired credentials"))
    })
}

/// The same answer for all bad credentials, so that valid key ids cannot be probed.
fn unauthorized(because: &str) -> ApiError {
    ApiError::new(
        ApiCode::Unauthorized,
        format!("{because}: send a key or token as `Authorization: Bearer KEY`"),
    )
    .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

fn may(caller: &ApiCaller, permission: Permission, reach: ServiceScope) -> Result<(), ApiError> {
    if !caller.may(permission) {
        let roles: Vec<&str> = permission.roles().into_iter().map(Role::as_str).collect();
        let message = format!("role {} required to {}", roles.join(" or "), permission.as_words());
        return Err(forbidden(message).with("roles", roles));
    }
    match reach {
        ServiceScope::Whole => caller.check_whole(),
        ServiceScope::Part => Ok(()),
    }
}

pub(crate) fn forbidden(message: impl Into<String>) -> ApiError {
    ApiError::new(ApiCode::Forbidden, message)
}
