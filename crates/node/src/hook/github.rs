//! GitHub: `X-Hub-Signature-256`, `sha256=` and the HMAC of the body in hexadecimal.
//!
//! No time is signed, and neither is `X-GitHub-Delivery`: whoever has seen a call can send its body again
//! under another id. That is the scheme's own limit; TLS keeps others from seeing one.

use http::HeaderMap;

use super::claim::{Claim, Distrust, from_hex, only};

pub(super) const SIGNATURE: &str = "x-hub-signature-256";
pub(super) const PREFIX: &str = "sha256=";

pub(super) fn claim(headers: &HeaderMap) -> Result<Claim, Distrust> {
    let digits = only(headers, SIGNATURE)?.strip_prefix(PREFIX);
    digits.and_then(from_hex).map(Claim::of_body).ok_or(Distrust::Malformed)
}
