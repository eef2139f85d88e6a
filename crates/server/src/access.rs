//! Who comes, and whether they may: one place in front of every route.
//!
//! A caller shows a key or a token. Which permission a route asks for stands beside the route, in the table of
//! `api.rs`, and the router is made of that table: there is no route that nobody has thought about. What a
//! key is bound to is asked here where a route concerns the whole server, and by the handler where it
//! concerns a part of it.
//!
//! There are no cookies, so that no page can make a browser speak for its user.
//!
//! Invariants:
//! - once somebody is asked for a key, everybody is until the next start: neither a revoked key nor another
//!   rule book opens the door;
//! - unknown, revoked and expired keys are answered alike;
//! - no key and no token is in a log, an error or the record.

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

/// What one needs for a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteAccess {
    /// Nothing: it tells nobody anything, or has an authentication of its own.
    Nothing,
    /// To be known, whatever one may do.
    Key,
    /// To be allowed that, on what it concerns.
    Permission(Permission, ServiceScope),
}

/// What a route concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceScope {
    /// Everything: nobody who is bound to services may have it.
    Whole,
    /// A part, which the request names: its handler asks whether the caller is bound to something else.
    Part,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub IpAddr);

/// What it takes to know who comes.
pub(crate) struct AccessParts {
    pub(crate) limiter: Arc<Limiter>,
    /// For tokens that are signed with a secret.
    pub(crate) secrets: Secrets,
    /// For the keys that an issuer publishes.
    pub(crate) pool: Arc<Pool>,
    /// For people, when those cannot be had.
    pub(crate) alarm: IssuerAlarm,
}

/// Who may come in; clones are the same.
#[derive(Clone)]
pub(crate) struct AccessControl(Arc<AccessState>);

struct AccessState {
    is_on: AtomicBool,
    keys: Keyring,
    bearers: BearerTokens,
    /// How many requests a caller may make who has no rate of its own.
    rate: ArcSwapOption<Rate>,
    limiter: Arc<Limiter>,
    failed: FailedLoginLog,
    /// Changes of keys come one after the other: each is made of what the last one left.
    changing: Mutex<()>,
}

impl AccessControl {
    /// With the keys that there are, and the tokens that the book believes.
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
            // A book that asks for tokens was never one that asks for nothing.
            Err(why) => {
                access.0.is_on.store(true, Ordering::Release);
                access.0.bearers.shut(why);
            }
        }
        access
    }

    /// Builds what another rule book asks of callers.
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

    /// Whether anybody is asked.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Acquire)
    }

    /// Whether everybody is asked and nobody could come in, by a key or by a token.
    pub(crate) fn is_shut(&self, now: Timestamp) -> bool {
        self.is_on() && !self.0.keys.has_good(now) && !self.0.bearers.are_believed()
    }

    /// The turn of one who changes keys.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.0.changing.lock().await
    }

    /// A key was made or revoked, durably.
    pub(crate) fn put(&self, record: KeyRecord) {
        self.0.keys.put(record);
        self.0.is_on.store(true, Ordering::Release);
    }

    /// When a key was last used, since the server started.
    pub(crate) fn last_used_at(&self, id: &str) -> Option<Timestamp> {
        self.0.keys.last_used_at(id)
    }

    /// Who shows that, or why it is not good; an error if that cannot be known now.
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

    /// The issuer of tokens, if its keys cannot be fetched.
    pub(crate) async fn unavailable_issuer(&self) -> Option<(String, UnavailableValue)> {
        self.0.bearers.ailing().await
    }

    fn rate_of(&self, caller: &ApiCaller) -> Option<Rate> {
        caller.rate().or_else(|| self.0.rate.load().as_deref().copied())
    }
}

/// What stands in front of a route.
#[derive(Clone)]
pub(crate) struct RouteGuard {
    pub app: App,
    /// What one must be allowed, if anything.
    pub asked: Option<(Permission, ServiceScope)>,
}

/// Lets a request through to its handler, with its caller beside it, or says why not.
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

/// Whether whoever asks may read everything, where nobody is asked for a key; one who shows something bad is
/// answered as everywhere.
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

/// Whose request it is; one that shows something bad is remembered.
async fn who(
    app: &App,
    headers: &HeaderMap,
    peer: Option<&Peer>,
    now: Timestamp,
) -> Result<ApiCaller, ApiError> {
    let shown = match Credential::of(headers) {
        Ok(None) => return Err(unauthorized("a key or token is needed, and none was shown")),
        Ok(Some(credential)) => app.access.identify(&credential, now).await?,
        Err(_) => Err(CredentialProblem::Unreadable),
    };
    shown.map_err(|doubt| {
        let peer = peer.map(|peer| peer.0);
        let refusal = app.access.0.failed.note(&app.node, peer, &doubt, now).err();
        refusal
            .unwrap_or_else(|| unauthorized("the key or token that was shown is not known, or good no more"))
    })
}

/// One answer to all who show something that is not good, so that nobody learns which keys there are; whether
/// they showed anything is no news to them.
fn unauthorized(because: &str) -> ApiError {
    ApiError::new(ApiCode::Unauthorized, format!("{because}: send a good one as `Authorization: Bearer KEY`"))
        .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

fn may(caller: &ApiCaller, permission: Permission, reach: ServiceScope) -> Result<(), ApiError> {
    if !caller.may(permission) {
        let roles: Vec<&str> = permission.roles().into_iter().map(Role::as_str).collect();
        let message = format!("one needs the role {} to {}", roles.join(" or "), permission.as_words());
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
