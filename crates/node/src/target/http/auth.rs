//! How calls of a target authenticate: `auth` of the book with its secret.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use redrive_core::book::connectors::http::HttpAuth;
use redrive_core::book::model::Network;
use redrive_core::engine::Ending;
use redrive_core::policy::answer::{ReplyKind, TargetReply};
use tokio::time::Instant;

use super::address::InvalidTargetAddress;
use super::oauth::{AccessToken, TokenSource};
use super::pool::Pool;
use crate::credential::Credential;
use crate::secret::Secrets;

pub struct Auth {
    credential: Credential,
    scheme: AuthScheme,
}

enum AuthScheme {
    Bearer,
    Basic { user: String },
    ApiKey { header: HeaderName },
    OAuth2(Arc<TokenSource>),
}

/// What one call carries.
pub(super) struct CallCredential {
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
    token: Option<Arc<AccessToken>>,
}

impl Auth {
    /// Issuers of tokens are called over the pool, and may be where the network allows.
    pub fn new(
        auth: &HttpAuth,
        secrets: &Secrets,
        pool: &Arc<Pool>,
        network: Network,
    ) -> Result<Self, InvalidTargetAddress> {
        let scheme = match auth {
            HttpAuth::Bearer { .. } => AuthScheme::Bearer,
            HttpAuth::Basic { user, .. } => AuthScheme::Basic { user: user.clone() },
            HttpAuth::ApiKey { header, .. } => {
                let header = HeaderName::try_from(header).expect("the book has a valid header name");
                AuthScheme::ApiKey { header }
            }
            HttpAuth::OAuth2(client) => {
                AuthScheme::OAuth2(pool.tokens().source(client, network, secrets, pool)?)
            }
        };
        Ok(Self { credential: Credential::new(secrets, auth.secret(), "call not made"), scheme })
    }

    /// The header for one call, if secret and token are available by then.
    pub(super) async fn credential(&self, until: Instant) -> Result<CallCredential, TargetReply> {
        let limit = until.saturating_duration_since(Instant::now());
        let (name, value, token) = match &self.scheme {
            AuthScheme::Bearer => (AUTHORIZATION, self.credential.bearer(limit).await?, None),
            AuthScheme::Basic { user } => (AUTHORIZATION, self.credential.basic(user, limit).await?, None),
            AuthScheme::ApiKey { header } => (header.clone(), self.credential.plain(limit).await?, None),
            AuthScheme::OAuth2(source) => {
                let token = source.token(until).await?;
                (AUTHORIZATION, token.header.clone(), Some(token))
            }
        };
        Ok(CallCredential { name, value, token })
    }

    /// Whether a call may be refused for a credential that can be renewed.
    pub(super) const fn can_renew(&self) -> bool {
        matches!(self.scheme, AuthScheme::OAuth2(_))
    }

    /// Another credential, if the target refused this one and a newer can be had.
    pub(super) async fn renewed(
        &self,
        refused: &CallCredential,
        reply: &TargetReply,
        until: Instant,
    ) -> Option<CallCredential> {
        let (AuthScheme::OAuth2(source), Some(token)) = (&self.scheme, &refused.token) else { return None };
        let is_refused = matches!(reply.seen, ReplyKind::Http { status: 401, .. });
        if !is_refused || !source.give_up(token) {
            return None;
        }
        self.credential(until).await.ok()
    }

    /// Makes a call that may be refused for an old token; such a one is made again with a new one.
    pub(crate) async fn around<F: Future<Output = TargetReply>>(
        &self,
        until: Instant,
        call: impl Fn(HeaderName, HeaderValue) -> F,
    ) -> TargetReply {
        let mut credential = match self.credential(until).await {
            Ok(credential) => credential,
            Err(reply) => return reply,
        };
        let mut reply = call(credential.name.clone(), credential.value.clone()).await;
        if let Some(newer) = self.renewed(&credential, &reply, until).await {
            credential = newer;
            reply = call(credential.name.clone(), credential.value.clone()).await;
        }
        self.credential.hidden_in(reply, &credential.value)
    }

    pub(super) fn hidden_in(&self, ending: Ending, credential: &CallCredential) -> Ending {
        let hidden = |reply| self.credential.hidden_in(reply, &credential.value);
        match ending {
            Ending::Reply(reply) => Ending::Reply(hidden(reply)),
            Ending::Partly { reply, failed } => Ending::Partly { reply: hidden(reply), failed },
            other @ (Ending::Ran { .. } | Ending::Interrupted) => other,
        }
    }
}
