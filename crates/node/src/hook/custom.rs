//! A header of one's own: a prefix and the HMAC of the body, by the hash and in the writing that the rule
//! book states.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use redrive_core::book::connectors::webhook::{Algorithm, Encoding, Hmac};
use ring::hmac;

use super::claim::{Claim, Distrust, from_hex, only, to_hex};

pub(super) fn claim(scheme: &Hmac, headers: &HeaderMap) -> Result<Claim, Distrust> {
    let text = only(headers, &scheme.header)?.strip_prefix(scheme.prefix.as_str());
    let signature = text.and_then(|text| match scheme.encoding {
        Encoding::Hex => from_hex(text),
        Encoding::Base64 => STANDARD.decode(text).ok(),
    });
    signature.map(Claim::of_body).ok_or(Distrust::Malformed)
}

pub(super) fn algorithm(scheme: &Hmac) -> hmac::Algorithm {
    match scheme.algorithm {
        Algorithm::Sha256 => hmac::HMAC_SHA256,
        Algorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Algorithm::Sha512 => hmac::HMAC_SHA512,
    }
}

/// The value of the header.
pub(super) fn written(scheme: &Hmac, signature: &[u8]) -> String {
    let text = match scheme.encoding {
        Encoding::Hex => to_hex(signature),
        Encoding::Base64 => STANDARD.encode(signature),
    };
    format!("{}{text}", scheme.prefix)
}
