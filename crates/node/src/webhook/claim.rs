//! Verifies signatures, for all schemes.
//!
//! A signature is compared by the hashes of both sides under the secret's own key. So comparing takes
//! constant time, the message is hashed once per secret however many signatures a request has, and nothing
//! needs to be concatenated.

use std::time::Duration;

use http::HeaderMap;
use redrive_core::time::Timestamp;
use ring::hmac;

/// Signatures per request; a sender has two while it rotates its secret.
const SIGNATURES_MAX: usize = 16;

/// Why a request is not trusted. For the log: the sender learns only of a wrong time, which is checked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("signature or a signed header is missing")]
    Missing,
    #[error("signature is malformed")]
    Malformed,
    #[error("signature does not match")]
    Bad,
    /// A replayed request, or a wrong clock.
    #[error("signed too long ago")]
    TooOld,
    #[error("signed in the future")]
    TooNew,
    /// A problem on our side.
    #[error("secret is not valid for this scheme")]
    NoKey,
}

pub(super) struct SignatureClaim {
    /// The signed text before the body.
    pub head: String,
    /// One of them must match.
    pub signatures: Vec<Vec<u8>>,
    /// None if the scheme signs no time.
    pub signed_at: Option<Timestamp>,
}

pub(super) fn check(
    claim: &SignatureClaim,
    keys: &[hmac::Key],
    body: &[u8],
    now: Timestamp,
    tolerance: Duration,
) -> Result<(), SignatureError> {
    if keys.is_empty() {
        return Err(SignatureError::NoKey);
    }
    if claim.signatures.is_empty() || claim.signatures.len() > SIGNATURES_MAX {
        return Err(SignatureError::Malformed);
    }
    if !keys.iter().any(|key| fits(key, claim, body)) {
        return Err(SignatureError::Bad);
    }
    match claim.signed_at {
        Some(at) if now.since(at) > tolerance => Err(SignatureError::TooOld),
        Some(at) if at.since(now) > tolerance => Err(SignatureError::TooNew),
        Some(_) | None => Ok(()),
    }
}

fn fits(key: &hmac::Key, claim: &SignatureClaim, body: &[u8]) -> bool {
    let signature = signature(key, &claim.head, body);
    // Hashing both sides again makes the compared values ours, so the comparison is constant-time.
    let is_it =
        |claimed: &Vec<u8>| hmac::verify(key, signature.as_ref(), hmac::sign(key, claimed).as_ref()).is_ok();
    claim.signatures.iter().any(is_it)
}

pub(super) fn signature(key: &hmac::Key, head: &str, body: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(head.as_bytes());
    context.update(body);
    context.sign()
}

/// The only value of a header; two are refused as ambiguous.
pub(super) fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h str, SignatureError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(SignatureError::Missing)?;
    if values.next().is_some() {
        return Err(SignatureError::Malformed);
    }
    let text = value.to_str().map_err(|_| SignatureError::Malformed)?.trim();
    if text.is_empty() { Err(SignatureError::Missing) } else { Ok(text) }
}

/// Unix seconds, digits only.
pub(super) fn seconds(text: &str) -> Result<Timestamp, SignatureError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: u64 = text.parse().ok().filter(|_| is_plain).ok_or(SignatureError::Malformed)?;
    Ok(Timestamp::from_millis(seconds.saturating_mul(1_000)))
}

/// Decodes hex in either case.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}
