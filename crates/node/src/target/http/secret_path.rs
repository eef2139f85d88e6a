//! Paths that are credentials: webhooks whose address is all that a caller needs to know.

use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Uri};
use redrive_core::engine::Ending;
use redrive_core::policy::answer::{ReplyKind, TargetReply};

use crate::credential::Credential;
use crate::secret::Secrets;

pub struct SecretPath {
    credential: Credential,
    name: String,
}

impl SecretPath {
    #[must_use]
    pub fn new(secrets: &Secrets, name: &str) -> Self {
        Self { credential: Credential::new(secrets, name, "call not made"), name: name.to_owned() }
    }

    /// Puts the secret between path and query of the request, if it is available within the limit. Returns it.
    pub(super) async fn append<B>(
        &self,
        request: &mut Request<B>,
        limit: Duration,
    ) -> Result<HeaderValue, TargetReply> {
        let secret = self.credential.plain(limit).await?;
        let text = secret.to_str().ok().map(str::trim).filter(|text| text.starts_with('/'));
        let target = text.and_then(|text| PathAndQuery::try_from(joined(request.uri(), text)).ok());
        let target = target.ok_or_else(|| {
            let message =
                format!("call not made: secret `{}` is not a path such as /services/T0/B0", self.name);
            TargetReply::new(ReplyKind::ConfigMissing, message)
        })?;
        *request.uri_mut() = Uri::from(target);
        Ok(secret)
    }

    pub(super) fn hidden_in(&self, ending: Ending, secret: &HeaderValue) -> Ending {
        match ending {
            Ending::Reply(reply) => Ending::Reply(self.credential.hidden_in(reply, secret)),
            Ending::Partly { reply, failed } => {
                Ending::Partly { reply: self.credential.hidden_in(reply, secret), failed }
            }
            other @ (Ending::Ran { .. } | Ending::Interrupted) => other,
        }
    }
}

pub(super) fn joined(uri: &Uri, secret: &str) -> String {
    let mut target = uri.path().trim_end_matches('/').to_owned();
    target += secret;
    if let Some(query) = uri.query() {
        target.push(if secret.contains('?') { '&' } else { '?' });
        target += query;
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_join_the_address() {
        #[rustfmt::skip]
        let cases = [
            ("/",        "/services/T/B",   "/services/T/B"),
            ("/v1/",     "/a?sig=x",        "/v1/a?sig=x"),
            ("/v1?k=1",  "/a",              "/v1/a?k=1"),
            ("/v1?k=1",  "/a?sig=x",        "/v1/a?sig=x&k=1"),
        ];
        for (address, secret, expected) in cases {
            assert_eq!(joined(&address.parse().expect("an address"), secret), expected, "{address} {secret}");
        }
    }
}
