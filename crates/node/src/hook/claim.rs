//! What the schemes have in common: a call claims that something was signed, and the claim is checked.
//!
//! A signature is compared by the hashes of both sides under the secret's own key. So it takes the same time
//! whichever byte differs, the message is gone through once for each secret however many signatures a call
//! brings, and nothing has to be joined to be checked.

use std::time::Duration;

use http::HeaderMap;
use redrive_core::time::Timestamp;
use ring::hmac;

/// Signatures that one call may bring: a sender has two while it changes its secret.
const SIGNATURES_MAX: usize = 16;

/// Why a call is not believed. For the log: whoever calls hears only of a wrong time, which is judged last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// It is not signed.
    #[error("the signature, or what is signed with it, is missing")]
    Missing,
    /// It is signed in no form that the scheme has.
    #[error("the signature is none in the form of its scheme")]
    Malformed,
    /// None of the signatures is that of the message.
    #[error("the signature does not fit")]
    Bad,
    /// It was signed too long ago: somebody sends it again, or a clock is wrong.
    #[error("it was signed too long ago")]
    TooOld,
    /// It will be signed later: a clock is wrong.
    #[error("it was signed in the future")]
    TooNew,
    /// The secret is none that the scheme knows: our own fault.
    #[error("the secret is none that this scheme can use")]
    NoKey,
}

/// What a call claims.
pub(super) struct Claim {
    /// What is signed before the body.
    pub head: String,
    /// Of which one must fit.
    pub signatures: Vec<Vec<u8>>,
    /// When it was signed, if the scheme says so.
    pub signed_at: Option<Timestamp>,
}

/// Whether a claim holds.
pub(super) fn check(
    claim: &Claim,
    keys: &[hmac::Key],
    body: &[u8],
    now: Timestamp,
    tolerance: Duration,
) -> Result<(), Distrust> {
    if keys.is_empty() {
        return Err(Distrust::NoKey);
    }
    if claim.signatures.is_empty() || claim.signatures.len() > SIGNATURES_MAX {
        return Err(Distrust::Malformed);
    }
    if !keys.iter().any(|key| fits(key, claim, body)) {
        return Err(Distrust::Bad);
    }
    match claim.signed_at {
        Some(at) if now.since(at) > tolerance => Err(Distrust::TooOld),
        Some(at) if at.since(now) > tolerance => Err(Distrust::TooNew),
        Some(_) | None => Ok(()),
    }
}

fn fits(key: &hmac::Key, claim: &Claim, body: &[u8]) -> bool {
    let signature = signature(key, &claim.head, body);
    // Both sides are hashed once more, so that what is compared in constant time is ours on both sides.
    let is_it =
        |claimed: &Vec<u8>| hmac::verify(key, signature.as_ref(), hmac::sign(key, claimed).as_ref()).is_ok();
    claim.signatures.iter().any(is_it)
}

/// The signature of a message.
pub(super) fn signature(key: &hmac::Key, head: &str, body: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(head.as_bytes());
    context.update(body);
    context.sign()
}

/// The one value of a header. Of two, nobody can say which was meant.
pub(super) fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h str, Distrust> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(Distrust::Missing)?;
    if values.next().is_some() {
        return Err(Distrust::Malformed);
    }
    let text = value.to_str().map_err(|_| Distrust::Malformed)?.trim();
    if text.is_empty() { Err(Distrust::Missing) } else { Ok(text) }
}

/// Seconds since 1970 in digits, and nothing else that a number may be written with.
pub(super) fn seconds(text: &str) -> Result<Timestamp, Distrust> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: u64 = text.parse().ok().filter(|_| is_plain).ok_or(Distrust::Malformed)?;
    Ok(Timestamp::from_millis(seconds.saturating_mul(1_000)))
}

/// The bytes that hexadecimal digits stand for, in either case; none if they are no such digits.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

/// The digits that bytes are written with.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}
