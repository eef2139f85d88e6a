//! How calls of a target authenticate: `auth` of the book with its secret.

use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use redrive_core::book::connectors::http::HttpAuth;
use redrive_core::engine::Ending;
use redrive_core::policy::answer::TargetReply;

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
}

impl Auth {
    #[must_use]
    pub fn new(auth: &HttpAuth, secrets: &Secrets) -> Self {
        let scheme = match auth {
            HttpAuth::Bearer { .. } => AuthScheme::Bearer,
            HttpAuth::Basic { user, .. } => AuthScheme::Basic { user: user.clone() },
            HttpAuth::ApiKey { header, .. } => {
                let header = HeaderName::try_from(header).expect("the book has a valid header name");
                AuthScheme::ApiKey { header }
            }
        };
        Self { credential: Credential::new(secrets, auth.secret(), "call not made"), scheme }
    }

    /// The header for one call, if the secret is available within the limit.
    pub(super) async fn header(&self, limit: Duration) -> Result<(HeaderName, HeaderValue), TargetReply> {
        Ok(match &self.scheme {
            AuthScheme::Bearer => (AUTHORIZATION, self.credential.bearer(limit).await?),
            AuthScheme::Basic { user } => (AUTHORIZATION, self.credential.basic(user, limit).await?),
            AuthScheme::ApiKey { header } => (header.clone(), self.credential.plain(limit).await?),
        })
    }

    pub(super) fn hidden_in(&self, ending: Ending, header: &HeaderValue) -> Ending {
        match ending {
            Ending::Reply(reply) => Ending::Reply(self.credential.hidden_in(reply, header)),
            Ending::Partly { reply, failed } => {
                Ending::Partly { reply: self.credential.hidden_in(reply, header), failed }
            }
            other @ (Ending::Ran { .. } | Ending::Interrupted) => other,
        }
    }
}
