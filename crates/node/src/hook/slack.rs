//! Slack: `X-Slack-Signature`, `v0=` and the HMAC of `v0:timestamp:body` in hexadecimal.

use http::HeaderMap;

use super::claim::{Claim, Distrust, from_hex, only, seconds};

pub(super) const SIGNATURE: &str = "x-slack-signature";
pub(super) const TIMESTAMP: &str = "x-slack-request-timestamp";
pub(super) const PREFIX: &str = "v0=";

pub(super) fn claim(headers: &HeaderMap) -> Result<Claim, Distrust> {
    let timestamp = only(headers, TIMESTAMP)?;
    let digits = only(headers, SIGNATURE)?.strip_prefix(PREFIX);
    let signature = digits.and_then(from_hex).ok_or(Distrust::Malformed)?;
    Ok(Claim { head: head(timestamp), signatures: vec![signature], signed_at: Some(seconds(timestamp)?) })
}

pub(super) fn head(timestamp: &str) -> String {
    format!("v0:{timestamp}:")
}
