//! Standard Webhooks: `webhook-signature`, a list of `v1,` and the HMAC of `id.timestamp.body` in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use ring::hmac;

use super::claim::{Claim, Distrust, only, seconds};
use crate::target::http::standard_key;

pub(super) const ID: &str = "webhook-id";
pub(super) const TIMESTAMP: &str = "webhook-timestamp";
pub(super) const SIGNATURE: &str = "webhook-signature";
/// The version that is signed with a secret; others have keys in pairs and are passed over.
pub(super) const VERSION: &str = "v1,";

pub(super) fn claim(headers: &HeaderMap) -> Result<Claim, Distrust> {
    let (id, timestamp) = (only(headers, ID)?, only(headers, TIMESTAMP)?);
    let signatures = only(headers, SIGNATURE)?.split(' ').filter_map(|signature| {
        let text = signature.strip_prefix(VERSION)?;
        STANDARD.decode(text).ok()
    });
    Ok(Claim {
        head: format!("{id}.{timestamp}."),
        signatures: signatures.collect(),
        signed_at: Some(seconds(timestamp)?),
    })
}

/// The key of a secret, as calls to targets are signed.
pub(super) fn key(secret: &[u8]) -> Option<hmac::Key> {
    standard_key(secret).ok()
}
