//! Credentials of calls: a secret's newest value, as a header.
//!
//! Values are read for each call, so a rotated one takes effect at once. Invariant: a call that should carry a
//! credential carries it or is not made, and what the other side answers is kept without it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use redrive_core::policy::answer::{ReplyKind, TargetReply};
use redrive_core::redact::hide_known;
use zeroize::Zeroizing;

use crate::secret::Secrets;

pub(crate) struct Credential {
    secrets: Secrets,
    name: String,
    /// Begins the message if there is no value, such as "call not made".
    failure: &'static str,
}

impl Credential {
    pub(crate) fn new(secrets: &Secrets, name: &str, failure: &'static str) -> Self {
        Self { secrets: secrets.clone(), name: name.to_owned(), failure }
    }

    pub(crate) async fn value(&self, limit: Duration) -> Result<Zeroizing<String>, TargetReply> {
        let missing = |why: &dyn std::fmt::Display| {
            let message = format!("{}: secret `{}` is unavailable: {why}", self.failure, self.name);
            TargetReply::new(ReplyKind::SecretUnavailable, message)
        };
        let values = self.secrets.get_within(&self.name, limit).await.map_err(|error| missing(&error))?;
        let newest = values.iter().next().ok_or_else(|| missing(&"it is empty"))?;
        let text = std::str::from_utf8(newest).map_err(|_| missing(&"it is not text"))?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    pub(crate) async fn bearer(&self, limit: Duration) -> Result<HeaderValue, TargetReply> {
        let value = self.value(limit).await?;
        self.header(&Zeroizing::new(format!("Bearer {}", value.as_str())))
    }

    /// With the secret as password.
    pub(crate) async fn basic(&self, user: &str, limit: Duration) -> Result<HeaderValue, TargetReply> {
        let pair = Zeroizing::new(format!("{user}:{}", self.value(limit).await?.as_str()));
        self.header(&Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes()))))
    }

    pub(crate) async fn plain(&self, limit: Duration) -> Result<HeaderValue, TargetReply> {
        self.header(&self.value(limit).await?)
    }

    /// Such as "has no certificate".
    pub(crate) fn unusable(&self, why: &str) -> TargetReply {
        let message = format!("{}: secret `{}` {why}", self.failure, self.name);
        TargetReply::new(ReplyKind::ConfigMissing, message)
    }

    fn header(&self, value: &str) -> Result<HeaderValue, TargetReply> {
        let mut header = HeaderValue::from_str(value)
            .map_err(|_| self.unusable("has characters not allowed in a header"))?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// Removes the secret and the header with it from a response, which is stored and shown.
    pub(crate) fn hidden_in(&self, reply: TargetReply, header: &HeaderValue) -> TargetReply {
        let sent = header.to_str().unwrap_or_default();
        let encoded = sent.split_once(' ').map_or(sent, |(_, encoded)| encoded);
        let hide = |text: &str| hide_known(&self.secrets.hide(text), [encoded]).into_owned();
        let seen = match reply.seen {
            ReplyKind::Http { status, headers, body } => {
                ReplyKind::Http { status, headers, body: hide(&body) }
            }
            ReplyKind::Unexpected { status, headers, body } => {
                ReplyKind::Unexpected { status, headers, body: hide(&body) }
            }
            other => other,
        };
        TargetReply { seen, message: hide(&reply.message), retry_after: reply.retry_after }
    }
}
