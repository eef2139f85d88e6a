//! Webhooks: signed requests that become events by the rule book's templates.
//!
//! A request is judged in two independent steps: [`WebhookSource::verify`] checks the signature, [`WebhookSource::read`]
//! makes the event. Both are pure; listening, answering and counting happen elsewhere.
//!
//! Invariants:
//!
//! - nothing of a request is trusted before its signature is verified;
//! - a request whose signature can be read in two ways is refused, so a sender cannot choose which one we
//!   see;
//! - the signed body is the event's data, byte for byte;
//! - no secret and no signature is in an error, in `Debug` or in a log.

mod claim;
mod event;
mod handle;
mod scheme;
mod tally;
#[cfg(test)]
mod tests;

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use redrive_core::book::connectors::webhook::{SignatureScheme, WebhookSettings};
use redrive_core::book::model::SourceEntry;
use redrive_core::event::attribute::EventSource;
use redrive_core::text::Rate;
use redrive_core::time::Timestamp;

pub use self::claim::SignatureError;
use self::claim::check;
pub(crate) use self::claim::to_hex;
pub use self::event::{WebhookCall, WebhookOutcome};
pub use self::handle::{OpenWebhook, WebhookSources};
pub use self::tally::{WebhookCounts, WebhookResponse, WebhookTally};
use crate::source::convert::Templates;
pub use crate::source::convert::{MalformedInput, MalformedReason};

/// The prefix of a webhook event's source; the name of the webhook follows.
pub const SOURCE_PREFIX: &str = "/v1/hooks/";
/// The default tolerance between the signed time and ours.
const TOLERANCE_DEFAULT: Duration = Duration::from_mins(5);
const BODY_BYTES_DEFAULT: u64 = 1024 * 1024;
/// GitHub sends up to this much.
const GITHUB_BODY_BYTES_DEFAULT: u64 = 25 * 1024 * 1024;

#[derive(Debug)]
pub struct WebhookSource {
    name: String,
    webhook: WebhookSettings,
    event_source: EventSource,
    /// Including the data fields that the scheme itself needs.
    templates: Templates,
    /// Whether a template needs the data.
    needs_data: bool,
}

impl WebhookSource {
    #[must_use]
    pub fn new(name: &str, source: &SourceEntry) -> Option<Self> {
        let webhook: &WebhookSettings = source.endpoint.settings()?;
        let mut templates = Templates::of(source);
        let needs_data = !templates.wanted.is_empty();
        for field in event::fields_of(&webhook.scheme) {
            templates.wanted.add(&[(*field).to_owned()]);
        }
        Some(Self {
            name: name.to_owned(),
            webhook: webhook.clone(),
            event_source: EventSource::new(&format!("{SOURCE_PREFIX}{name}"))
                .expect("names are short and plain"),
            templates,
            needs_data,
        })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub const fn scheme(&self) -> &SignatureScheme {
        &self.webhook.scheme
    }

    #[must_use]
    pub fn secret(&self) -> &str {
        &self.webhook.secret
    }

    #[must_use]
    pub const fn rate(&self) -> Option<Rate> {
        self.webhook.rate
    }

    #[must_use]
    pub fn tolerance(&self) -> Duration {
        self.webhook.tolerance.unwrap_or(TOLERANCE_DEFAULT)
    }

    #[must_use]
    pub fn body_bytes_max(&self) -> usize {
        let bytes = self.webhook.body_max.unwrap_or(match self.webhook.scheme {
            SignatureScheme::Github => GITHUB_BODY_BYTES_DEFAULT,
            SignatureScheme::StandardWebhooks
            | SignatureScheme::Stripe
            | SignatureScheme::Slack
            | SignatureScheme::Hmac(_) => BODY_BYTES_DEFAULT,
        });
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Whether the body was signed with one of the secrets, close enough to `now`, which is the wall clock's
    /// time like the sender's.
    pub fn verify(
        &self,
        secrets: &[&[u8]],
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), SignatureError> {
        let keys: Vec<_> = secrets.iter().filter_map(|secret| self.key(secret)).collect();
        check(&self.claim(headers)?, &keys, body, now, self.tolerance())
    }

    /// Whether a header must not be stored or shown.
    #[must_use]
    pub fn is_secret_header(&self, name: &HeaderName) -> bool {
        const NEVER_KEPT: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];
        const PARTS: [&str; 3] = ["secret", "signature", "token"];
        let name = name.as_str();
        let is_own = matches!(&self.webhook.scheme, SignatureScheme::Hmac(hmac) if hmac.header == name);
        is_own || NEVER_KEPT.contains(&name) || PARTS.iter().any(|part| name.contains(part))
    }

    #[must_use]
    pub const fn wants_session(&self) -> bool {
        self.templates.session.is_some()
    }
}
