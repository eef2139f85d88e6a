//! The signature schemes: the header, the signed text before the body, and the encoding.
//!
//! GitHub signs neither a time nor `X-GitHub-Delivery`, so a captured request can be replayed under another
//! id. That is the scheme's limit; TLS prevents capture.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use redrive_core::book::connectors::webhook::{Encoding, HmacAlgorithm, SignatureScheme};
use redrive_core::time::Timestamp;
use ring::hmac;

use super::WebhookSource;
use super::claim::{SignatureClaim, SignatureError, from_hex, only, seconds, signature, to_hex};
use super::event::{GITHUB_DELIVERY, GITHUB_EVENT};
use crate::target::http::standard_key;

pub(super) const WEBHOOK_ID: &str = "webhook-id";

struct SignatureLayout<'a> {
    header: &'a str,
    /// The prefix of the signature; those with another prefix belong to other versions and are skipped.
    prefix: &'a str,
    encoding: Encoding,
    algorithm: HmacAlgorithm,
    time: Option<&'a str>,
}

impl<'a> SignatureLayout<'a> {
    fn of(scheme: &'a SignatureScheme) -> Self {
        let (algorithm, hex) = (HmacAlgorithm::Sha256, Encoding::Hex);
        let (header, prefix, encoding, time) = match scheme {
            SignatureScheme::Github => ("x-hub-signature-256", "sha256=", hex, None),
            SignatureScheme::Stripe => ("stripe-signature", "v1=", hex, None),
            SignatureScheme::Slack => ("x-slack-signature", "v0=", hex, Some("x-slack-request-timestamp")),
            SignatureScheme::StandardWebhooks => {
                ("webhook-signature", "v1,", Encoding::Base64, Some("webhook-timestamp"))
            }
            SignatureScheme::Hmac(own) => {
                let (header, prefix) = (own.header.as_str(), own.prefix.as_str());
                return Self { header, prefix, encoding: own.encoding, algorithm: own.algorithm, time: None };
            }
        };
        Self { header, prefix, encoding, algorithm, time }
    }

    fn read(&self, text: &str) -> Option<Vec<u8>> {
        let text = text.strip_prefix(self.prefix)?;
        match self.encoding {
            Encoding::Hex => from_hex(text),
            Encoding::Base64 => STANDARD.decode(text).ok(),
        }
    }

    fn write(&self, signature: &[u8]) -> String {
        let text = match self.encoding {
            Encoding::Hex => to_hex(signature),
            Encoding::Base64 => STANDARD.encode(signature),
        };
        format!("{}{text}", self.prefix)
    }
}

fn head(scheme: &SignatureScheme, id: &str, time: &str) -> String {
    match scheme {
        SignatureScheme::Github | SignatureScheme::Hmac(_) => String::new(),
        SignatureScheme::StandardWebhooks => format!("{id}.{time}."),
        SignatureScheme::Stripe => format!("{time}."),
        SignatureScheme::Slack => format!("v0:{time}:"),
    }
}

impl WebhookSource {
    pub(super) fn claim(&self, headers: &HeaderMap) -> Result<SignatureClaim, SignatureError> {
        let scheme = self.scheme();
        let layout = SignatureLayout::of(scheme);
        let id = if *scheme == SignatureScheme::StandardWebhooks { only(headers, WEBHOOK_ID)? } else { "" };
        let mut time = layout.time.map(|name| only(headers, name)).transpose()?;
        let text = only(headers, layout.header)?;
        let signatures = match scheme {
            SignatureScheme::StandardWebhooks => {
                text.split(' ').filter_map(|part| layout.read(part)).collect()
            }
            SignatureScheme::Stripe => {
                let parts = text.split(',').map(str::trim);
                let mut times = parts.clone().filter_map(|part| part.strip_prefix("t="));
                time = times.next();
                // With two times it would be ambiguous which one was signed.
                if time.is_none() || times.next().is_some() {
                    return Err(SignatureError::Malformed);
                }
                parts.filter_map(|part| layout.read(part)).collect()
            }
            SignatureScheme::Github | SignatureScheme::Slack | SignatureScheme::Hmac(_) => {
                vec![layout.read(text).ok_or(SignatureError::Malformed)?]
            }
        };
        let head = head(scheme, id, time.unwrap_or_default());
        Ok(SignatureClaim { head, signatures, signed_at: time.map(seconds).transpose()? })
    }

    /// The HMAC key of a secret; none if it is invalid. Stripe's secret includes its `whsec_` prefix.
    pub(super) fn key(&self, secret: &[u8]) -> Option<hmac::Key> {
        let scheme = self.scheme();
        if *scheme == SignatureScheme::StandardWebhooks {
            return standard_key(secret).ok();
        }
        let algorithm = match SignatureLayout::of(scheme).algorithm {
            HmacAlgorithm::Sha256 => hmac::HMAC_SHA256,
            HmacAlgorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            HmacAlgorithm::Sha512 => hmac::HMAC_SHA512,
        };
        (!secret.is_empty()).then(|| hmac::Key::new(algorithm, secret))
    }

    /// Headers that make a valid request of this body, so that a webhook can be tested; none if the secret is
    /// invalid.
    #[must_use]
    pub fn sign(
        &self,
        secret: &[u8],
        body: &[u8],
        id: &str,
        now: Timestamp,
    ) -> Option<Vec<(String, String)>> {
        let (scheme, key) = (self.scheme(), self.key(secret)?);
        let layout = SignatureLayout::of(scheme);
        let time = (now.as_millis() / 1_000).to_string();
        let signed = layout.write(signature(&key, &head(scheme, id, &time), body).as_ref());
        let mut headers = match scheme {
            SignatureScheme::Github => {
                vec![(GITHUB_EVENT, "ping".to_owned()), (GITHUB_DELIVERY, id.to_owned())]
            }
            SignatureScheme::StandardWebhooks => vec![(WEBHOOK_ID, id.to_owned())],
            SignatureScheme::Stripe | SignatureScheme::Slack | SignatureScheme::Hmac(_) => Vec::new(),
        };
        let value = if *scheme == SignatureScheme::Stripe { format!("t={time},{signed}") } else { signed };
        headers.extend(layout.time.map(|name| (name, time)));
        headers.push((layout.header, value));
        Some(headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}
