//! Stripe: `Stripe-Signature`, a list of `t=` seconds and `v1=` HMACs of `t.body` in hexadecimal.
//!
//! The secret is taken as it stands: the `whsec_` that it begins with is part of it.

use http::HeaderMap;

use super::claim::{Claim, Distrust, from_hex, only, seconds};

pub(super) const SIGNATURE: &str = "stripe-signature";

pub(super) fn claim(headers: &HeaderMap) -> Result<Claim, Distrust> {
    let mut time = None;
    let mut signatures = Vec::new();
    for part in only(headers, SIGNATURE)?.split(',') {
        match part.trim().split_once('=') {
            // Two times would leave open which one was signed.
            Some(("t", text)) if time.replace(text).is_none() => {}
            Some(("t", _)) => return Err(Distrust::Malformed),
            Some(("v1", digits)) => signatures.extend(from_hex(digits)),
            // Other versions are of tests, or of a time to come.
            Some(_) | None => {}
        }
    }
    let time = time.ok_or(Distrust::Malformed)?;
    Ok(Claim { head: format!("{time}."), signatures, signed_at: Some(seconds(time)?) })
}
