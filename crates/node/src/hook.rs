//! Webhooks: calls of others, believed for their signature and made events by the rule book's templates.
//!
//! A call is judged in two steps that do not know of each other: [`Hook::verify`] says whether whoever holds
//! the secret has sent these bytes, [`Hook::read`] what they say. Both are plain functions of what came in;
//! who listens, answers and counts is elsewhere.
//!
//! Invariants:
//! - nothing of a call is believed before its signature is: the first step looks at bytes only;
//! - of two ways to read a signature the call is refused, so that nobody can choose which one we see;
//! - the body that was signed is the event's data, byte for byte;
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
use redrive_core::book::connectors::webhook::{Scheme, Webhook};
use redrive_core::book::model::Source;
use redrive_core::event::attribute::EventSource;
use redrive_core::text::Rate;
use redrive_core::time::Timestamp;

pub use self::claim::Distrust;
use self::claim::check;
pub(crate) use self::claim::to_hex;
pub use self::event::{Call, Made};
pub use self::handle::{Hooks, Opened};
pub use self::tally::{Answered, Counts, Tally};
use crate::source::convert::Templates;
pub use crate::source::convert::{Malformed, Why};

/// What the source of every event that comes by a webhook begins with; the name of the source follows.
pub const SOURCE_PREFIX: &str = "/v1/hooks/";
/// How far the time that is signed may be from ours, unless the rule book says otherwise.
const TOLERANCE_DEFAULT: Duration = Duration::from_mins(5);
/// The largest body, unless the rule book says otherwise.
const BODY_BYTES_DEFAULT: u64 = 1024 * 1024;
/// The same for GitHub, which sends no larger ones.
const GITHUB_BODY_BYTES_DEFAULT: u64 = 25 * 1024 * 1024;

/// One webhook source of a rule book, ready to judge calls.
#[derive(Debug)]
pub struct Hook {
    name: String,
    webhook: Webhook,
    event_source: EventSource,
    /// With the fields of the data that the scheme looks at.
    templates: Templates,
    /// Whether a template cannot do without the data.
    needs_data: bool,
}

impl Hook {
    /// The source of that name; none if it is no webhook.
    #[must_use]
    pub fn new(name: &str, source: &Source) -> Option<Self> {
        let webhook: &Webhook = source.endpoint.settings()?;
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

    /// Its name in the rule book.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its calls are signed.
    #[must_use]
    pub const fn scheme(&self) -> &Scheme {
        &self.webhook.scheme
    }

    /// The name of the secret that its calls are signed with.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.webhook.secret
    }

    /// How many calls are taken, if that is limited.
    #[must_use]
    pub const fn rate(&self) -> Option<Rate> {
        self.webhook.rate
    }

    /// How far the time that a call was signed at may be from ours.
    #[must_use]
    pub fn tolerance(&self) -> Duration {
        self.webhook.tolerance.unwrap_or(TOLERANCE_DEFAULT)
    }

    /// The largest body that is taken.
    #[must_use]
    pub fn body_bytes_max(&self) -> usize {
        let bytes = self.webhook.body_max.unwrap_or(match self.webhook.scheme {
            Scheme::Github => GITHUB_BODY_BYTES_DEFAULT,
            Scheme::StandardWebhooks | Scheme::Stripe | Scheme::Slack | Scheme::Hmac(_) => BODY_BYTES_DEFAULT,
        });
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Whether one who holds one of the secrets has signed this body, not long before `now`.
    ///
    /// `now` is the wall clock's: the other side signs by its own, and both are set by the same time.
    pub fn verify(
        &self,
        secrets: &[&[u8]],
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), Distrust> {
        let keys: Vec<_> = secrets.iter().filter_map(|secret| self.key(secret)).collect();
        check(&self.claim(headers)?, &keys, body, now, self.tolerance())
    }

    /// Whether a header tells something that must not be kept or shown.
    #[must_use]
    pub fn is_secret_header(&self, name: &HeaderName) -> bool {
        const NEVER_KEPT: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];
        const PARTS: [&str; 3] = ["secret", "signature", "token"];
        let name = name.as_str();
        let is_own = matches!(&self.webhook.scheme, Scheme::Hmac(hmac) if hmac.header == name);
        is_own || NEVER_KEPT.contains(&name) || PARTS.iter().any(|part| name.contains(part))
    }

    /// Whether its events are to have a session.
    #[must_use]
    pub const fn wants_session(&self) -> bool {
        self.templates.session.is_some()
    }
}
