//! A caller as handlers see it: its identity and scope.
//!
//! Invariant: what a caller may not see is answered as not found, and a request for more than it may see is
//! refused as a whole: nothing is left out silently.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use redrive_core::access::{AccessScope, Permission, Role};
use redrive_core::text::Rate;
use redrive_core::time::Timestamp;
use redrive_node::store::access_store::AuditActor;
use redrive_node::token::Claims;

use crate::access::keyring::CachedKey;
use crate::access::{Peer, forbidden};
use crate::api::error::ApiError;
use crate::api::limits::failed_logins::address_group;
use crate::keys;

#[derive(Clone, Debug)]
pub(crate) struct ApiCaller(CallerIdentity);

#[derive(Clone, Debug)]
enum CallerIdentity {
    /// Authentication is off: every caller may do everything.
    Anonymous,
    Key(Arc<CachedKey>),
    Token(Arc<Claims>),
}

impl<S: Send + Sync> FromRequestParts<S> for ApiCaller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        // Only routes without authentication have no caller.
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or(Self(CallerIdentity::Anonymous)))
    }
}

impl ApiCaller {
    pub(crate) fn with_key(held: Arc<CachedKey>) -> Self {
        Self(CallerIdentity::Key(held))
    }

    pub(crate) fn with_token(claims: Claims) -> Self {
        Self(CallerIdentity::Token(Arc::new(claims)))
    }

    /// For the audit log.
    pub(crate) fn by(&self) -> AuditActor {
        match &self.0 {
            CallerIdentity::Anonymous => AuditActor::unknown(),
            CallerIdentity::Key(held) => AuditActor::named(&keys::owner(&held.record)),
            CallerIdentity::Token(claims) => AuditActor::named(&format!("token of {}", claims.subject)),
        }
    }

    /// The key of its rate limit.
    pub(crate) fn meter(&self) -> String {
        match &self.0 {
            CallerIdentity::Anonymous => String::new(),
            CallerIdentity::Key(held) => format!("key {}", held.record.id),
            CallerIdentity::Token(claims) => format!("token {}", claims.subject),
        }
    }

    /// The key of its stream limit: its identity, or its address without authentication.
    pub(crate) fn name_or_address(&self, peer: Peer) -> String {
        match &self.0 {
            CallerIdentity::Anonymous => address_group(Some(peer.0)),
            CallerIdentity::Key(_) | CallerIdentity::Token(_) => self.meter(),
        }
    }

    pub(crate) fn rate(&self) -> Option<Rate> {
        match &self.0 {
            CallerIdentity::Anonymous | CallerIdentity::Token(_) => None,
            CallerIdentity::Key(held) => held.record.per_second.and_then(Rate::per_second),
        }
    }

    pub(crate) fn name(&self) -> String {
        match &self.0 {
            CallerIdentity::Anonymous => "anonymous".to_owned(),
            CallerIdentity::Key(held) => held.record.name.clone(),
            CallerIdentity::Token(claims) => claims.subject.clone(),
        }
    }

    /// The most powerful of its roles.
    pub(crate) fn role(&self) -> Role {
        match &self.0 {
            CallerIdentity::Anonymous => Role::Admin,
            CallerIdentity::Key(held) => held.record.role,
            CallerIdentity::Token(claims) => claims.roles.iter().copied().max().unwrap_or(Role::Ingest),
        }
    }

    pub(crate) fn services(&self) -> Option<&[String]> {
        self.scope().filter(|scope| scope.is_bound_to_services()).map(|scope| scope.services.as_slice())
    }

    pub(crate) fn may(&self, permission: Permission) -> bool {
        match &self.0 {
            CallerIdentity::Anonymous => true,
            CallerIdentity::Key(held) => held.record.role.may(permission),
            CallerIdentity::Token(claims) => claims.roles.iter().any(|role| role.may(permission)),
        }
    }

    fn scope(&self) -> Option<&AccessScope> {
        match &self.0 {
            // Tokens have no service scope.
            CallerIdentity::Anonymous | CallerIdentity::Token(_) => None,
            CallerIdentity::Key(held) => Some(&held.record.scope),
        }
    }

    /// Whether its credential is still valid: streams end when it is not.
    pub(crate) fn is_good(&self, now: Timestamp) -> bool {
        match &self.0 {
            CallerIdentity::Anonymous => true,
            CallerIdentity::Key(held) => held.is_good(now),
            CallerIdentity::Token(claims) => now < claims.expires_at,
        }
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.scope().is_some_and(AccessScope::is_bound_to_services)
    }

    pub(crate) fn sees(&self, service: &str) -> bool {
        self.scope().is_none_or(|scope| scope.allows_service(service))
    }

    pub(crate) fn check_service(&self, service: &str) -> Result<(), ApiError> {
        if self.sees(service) {
            return Ok(());
        }
        Err(self.out_of_bounds(format!("the key has no access to the service `{service}`")))
    }

    /// Refuses a list that exceeds its services.
    pub(crate) fn check_list(&self, service: Option<&str>) -> Result<(), ApiError> {
        match service {
            Some(service) => self.check_service(service),
            None if self.is_bound() => Err(self.out_of_bounds(
                "the key is bound to services: name one with `service` (in commands: --service NAME)"
                    .to_owned(),
            )),
            None => Ok(()),
        }
    }

    pub(crate) fn check_source(&self, source: &str) -> Result<(), ApiError> {
        let Some(scope) = self.scope().filter(|scope| !scope.allows_source(source)) else { return Ok(()) };
        if scope.sources.is_empty() {
            return Err(forbidden(
                "a key bound to services can send events only if it is bound to sources too: `redrive \
                 keys create … --source SOURCE`",
            ));
        }
        let message = format!("the key has no access to events of the source `{source}`");
        Err(forbidden(message).with("sources", scope.sources.clone()))
    }

    /// Refuses an imported letter whose event has a source outside the key's scope.
    pub(crate) fn check_imported_source(&self, source: &str) -> Result<(), ApiError> {
        let Some(scope) = self.scope().filter(|scope| !scope.allows_source(source)) else { return Ok(()) };
        let message = format!(
            "the key has no access to events of the source `{source}`: omit the source, or use a key that \
             is bound to it (`redrive keys create … --source {source}`)"
        );
        Err(forbidden(message).with("sources", scope.sources.clone()))
    }

    /// Refuses what concerns the whole server, and names alternatives.
    pub(crate) fn check_whole(&self) -> Result<(), ApiError> {
        let Some(service) = self.scope().and_then(|scope| scope.services.first()) else { return Ok(()) };
        Err(forbidden(format!(
            "the key is bound to services, but this concerns the whole server; with this key, use `redrive status`, \
             `redrive tail`, `redrive why --last --service {service}` or `redrive dlq list --service \
             {service}`",
        )))
    }

    fn out_of_bounds(&self, message: String) -> ApiError {
        let services = self.scope().map(|scope| scope.services.clone()).unwrap_or_default();
        forbidden(message).with("services", services)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::keyring::Keyring;
    use crate::keys::KeySpec;

    fn caller(role: Role, sources: &[&str], services: &[&str]) -> ApiCaller {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let scope = AccessScope { sources: owned(sources), services: owned(services) };
        let spec = KeySpec { name: "test".to_owned(), role, scope, rate: None, lives: None };
        let made = keys::make(spec, |_| false, Timestamp::EPOCH).expect("a key");
        let keyring = Keyring::new(vec![made.record]);
        ApiCaller::with_key(keyring.find(&made.text, Timestamp::EPOCH).expect("it is there"))
    }

    #[test]
    fn a_caller_keeps_within_what_its_key_is_bound_to() {
        let free = caller(Role::Operator, &[], &[]);
        let bound = caller(Role::Operator, &[], &["billing"]);
        let sender = caller(Role::Ingest, &["/shop"], &[]);
        #[rustfmt::skip]
        let cases = [
            ("a list of everything",         free.check_list(None),              bound.check_list(None),              true,  false),
            ("a list of its service",        free.check_list(Some("billing")),   bound.check_list(Some("billing")),   true,  true),
            ("a list of another",            free.check_list(Some("mail")),      bound.check_list(Some("mail")),      true,  false),
            ("a part of a name",             free.check_service("bill"),         bound.check_service("bill"),         true,  false),
            ("a channel is no service",      free.check_service("billing/x"),    bound.check_service("billing/x"),    true,  false),
            ("events of its source",         free.check_source("/shop"),         sender.check_source("/shop"),        true,  true),
            ("events of another",            free.check_source("/shop/2"),       sender.check_source("/shop/2"),      true,  false),
            ("events that may go elsewhere", free.check_source("/shop"),         bound.check_source("/shop"),         true,  false),
        ];
        for (name, of_free, of_bound, free_may, bound_may) in cases {
            assert_eq!(of_free.is_ok(), free_may, "{name}");
            assert_eq!(of_bound.is_ok(), bound_may, "{name}");
        }
        assert!(!free.is_bound() && bound.is_bound() && !sender.is_bound());
    }

    #[test]
    fn where_nobody_is_asked_everybody_may_everything() {
        let anonymous = ApiCaller(CallerIdentity::Anonymous);
        for permission in Permission::ALL {
            assert!(anonymous.may(permission), "{}", permission.as_words());
        }
        assert!(anonymous.check_list(None).is_ok() && anonymous.check_source("/any").is_ok());
        assert_eq!(anonymous.by(), AuditActor::unknown());
    }

    #[test]
    fn the_record_names_a_key_and_not_its_secret() {
        let caller = caller(Role::Viewer, &[], &[]);
        let by = caller.by();
        let name = by.name().expect("a name");
        assert!(name.starts_with("key rk_") && name.ends_with(" (test)"), "{name}");
        assert_eq!(name.len(), "key rk_1a2b3c4d (test)".len());
    }
}
