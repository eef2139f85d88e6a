//! Signs a call as its sender would, so that a source can be tried before anybody sends to it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive_core::book::connectors::webhook::Scheme;
use redrive_core::time::Timestamp;

use super::claim::{signature, to_hex};
use super::{Hook, custom, github, slack, standard, stripe};

impl Hook {
    /// The headers that make a call with this body a good one at that time, under that id; none if the
    /// secret cannot be a key of the scheme.
    #[must_use]
    pub fn sign(
        &self,
        secret: &[u8],
        body: &[u8],
        id: &str,
        now: Timestamp,
    ) -> Option<Vec<(String, String)>> {
        let key = self.key(secret)?;
        let seconds = (now.as_millis() / 1_000).to_string();
        let hex = |head: &str| to_hex(signature(&key, head, body).as_ref());
        let headers = match self.scheme() {
            Scheme::Github => vec![
                ("x-github-event", "ping".to_owned()),
                ("x-github-delivery", id.to_owned()),
                (github::SIGNATURE, format!("{}{}", github::PREFIX, hex(""))),
            ],
            Scheme::StandardWebhooks => {
                let signed = signature(&key, &format!("{id}.{seconds}."), body);
                let value = format!("{}{}", standard::VERSION, STANDARD.encode(signed));
                vec![
                    (standard::ID, id.to_owned()),
                    (standard::TIMESTAMP, seconds),
                    (standard::SIGNATURE, value),
                ]
            }
            Scheme::Stripe => {
                let value = format!("t={seconds},v1={}", hex(&format!("{seconds}.")));
                vec![(stripe::SIGNATURE, value)]
            }
            Scheme::Slack => {
                let value = format!("{}{}", slack::PREFIX, hex(&slack::head(&seconds)));
                vec![(slack::TIMESTAMP, seconds), (slack::SIGNATURE, value)]
            }
            Scheme::Hmac(hmac) => {
                let value = custom::written(hmac, signature(&key, "", body).as_ref());
                vec![(hmac.header.as_str(), value)]
            }
        };
        Some(headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}
