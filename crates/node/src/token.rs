//! Bearer tokens (JWT, RFC 7519).
//!
//! A token is checked in the order in which it can do harm: size, form, algorithm, signature, then claims.
//! The algorithm is never the token's choice: HS256 with a shared secret, and that of the key, RS256 or
//! ES256, with published ones. `none` is refused.
//!
//! Invariants: no claim is read before the signature is verified; no error, log or `Debug` contains a token.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redrive_core::access::Role;
use redrive_core::book::model::{Jwt, JwtKeys};
use redrive_core::time::Timestamp;
use ring::hmac;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::jwks::{Issuer, KeyAlgorithm};
use crate::secret::{SecretError, SecretValues, Secrets};
use crate::target::http::{InvalidTargetAddress, Pool};
use redrive::stale::{FetchError, UnavailableValue};

pub use crate::jwks::{KeysChange, KeysError};
pub use crate::target::http::fetch::HttpFetchError;

const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// How far the issuer's clock may be ahead.
const LEEWAY: Duration = Duration::from_secs(60);

/// Bytes of a caller's name, which is stored with everything that the caller does.
const SUBJECT_BYTES_MAX: usize = 256;

const ASK_AFTER_MAX: Duration = Duration::from_millis(100);

pub struct Tokens {
    rules: Jwt,
    keys: TokenKeys,
}

enum TokenKeys {
    /// By the issuer.
    Published(Issuer),
    /// With the issuer.
    Shared { secrets: Secrets, name: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    pub subject: String,
    /// Unknown names are left out.
    pub roles: Vec<Role>,
    pub expires_at: Timestamp,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum TokenError {
    #[error("the token is larger than 16 KiB")]
    TooLarge,
    #[error("the token is not a signed JWT")]
    Malformed,
    /// Not the algorithm that the book implies.
    #[error("token has an unexpected algorithm")]
    Algorithm,
    /// Extensions that must be understood, and are not.
    #[error("the token has critical headers")]
    Critical,
    #[error("the token is signed with a key that the issuer does not publish")]
    UnknownKey,
    #[error("token signature does not match")]
    Signature,
    #[error("the token has no usable claim `{0}`")]
    Claim(&'static str),
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    #[error("token has another issuer")]
    Issuer,
    #[error("token has another audience")]
    Audience,
    #[error("tokens cannot be verified now: {0}")]
    KeysUnavailable(Arc<FetchError<KeysError>>),
    #[error("tokens cannot be verified now: {0}")]
    SecretUnavailable(Arc<SecretError>),
}

impl TokenError {
    /// Whether the failure is ours or the issuer's (503) and not the sender's (401).
    #[must_use]
    pub const fn is_outage(&self) -> bool {
        match self {
            Self::KeysUnavailable(_) | Self::SecretUnavailable(_) => true,
            Self::TooLarge
            | Self::Malformed
            | Self::Algorithm
            | Self::Critical
            | Self::UnknownKey
            | Self::Signature
            | Self::Claim(_)
            | Self::Expired
            | Self::NotYet
            | Self::Issuer
            | Self::Audience => false,
        }
    }
}

impl Tokens {
    /// Keys are fetched with the first token.
    pub fn new(rules: &Jwt, secrets: Secrets, pool: Arc<Pool>) -> Result<Self, InvalidTargetAddress> {
        let keys = match &rules.keys {
            JwtKeys::Jwks(address) => TokenKeys::Published(Issuer::new(address, pool)?),
            JwtKeys::Secret(name) => TokenKeys::Shared { secrets, name: name.clone() },
        };
        Ok(Self { rules: rules.clone(), keys })
    }

    /// Then another book may keep it, with its cached keys.
    #[must_use]
    pub fn is_by(&self, rules: &Jwt) -> bool {
        self.rules == *rules
    }

    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.rules.issuer
    }

    pub async fn warm(&self) {
        if let TokenKeys::Published(issuer) = &self.keys {
            let _ = issuer.keys().await;
        }
    }

    /// Called when the issuer's keys become unavailable or available again; only the first listener counts.
    /// Shared secrets report through [`Secrets`].
    pub fn listen(&self, listener: impl Fn(KeysChange) + Send + Sync + 'static) {
        if let TokenKeys::Published(issuer) = &self.keys {
            issuer.listen(Box::new(listener));
        }
    }

    /// The problem with the issuer's published keys, if any; a shared secret is among the [`Secrets`].
    pub async fn failing(&self) -> Option<UnavailableValue> {
        let TokenKeys::Published(issuer) = &self.keys else { return None };
        issuer.failing()?;
        // It may have recovered without a token since.
        let _ = timeout(ASK_AFTER_MAX, issuer.keys()).await;
        issuer.failing()
    }

    /// `now` is wall-clock time.
    pub async fn verify(&self, token: &str, now: Timestamp) -> Result<Claims, TokenError> {
        let token = ParsedToken::parse(token)?;
        match &self.keys {
            TokenKeys::Published(issuer) => verify_published(issuer, &token).await?,
            TokenKeys::Shared { secrets, name } => verify_shared(secrets, name, &token).await?,
        }
        let claims = serde_json::from_slice(&token.claims).map_err(|_| TokenError::Malformed)?;
        judge(&self.rules, &claims, now)
    }
}

/// The issuer only.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("issuer", &self.rules.issuer).finish_non_exhaustive()
    }
}

/// The claims are bytes until the signature is verified.
struct ParsedToken<'a> {
    header: TokenHeader,
    signed: &'a [u8],
    claims: Vec<u8>,
    signature: Vec<u8>,
}

/// Keys that a token brings along or points to are ignored.
#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

impl<'a> ParsedToken<'a> {
    fn parse(text: &'a str) -> Result<Self, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLarge);
        }
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed);
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let header: TokenHeader =
            serde_json::from_slice(&decoded(header)?).map_err(|_| TokenError::Malformed)?;
        if header.crit.is_some() {
            return Err(TokenError::Critical);
        }
        Ok(Self {
            header,
            signed: signed.as_bytes(),
            claims: decoded(claims)?,
            signature: decoded(signature)?,
        })
    }
}

async fn verify_published(issuer: &Issuer, token: &ParsedToken<'_>) -> Result<(), TokenError> {
    let algorithm = match token.header.alg.as_str() {
        "RS256" => KeyAlgorithm::Rs256,
        "ES256" => KeyAlgorithm::Es256,
        _ => return Err(TokenError::Algorithm),
    };
    let id = token.header.kid.as_deref();
    let mut keys = issuer.keys().await.map_err(TokenError::KeysUnavailable)?;
    if keys.fitting(id, algorithm).is_empty() {
        // The issuer may have a new key.
        keys = issuer.renewed().await.map_err(TokenError::KeysUnavailable)?;
    }
    let fitting = keys.fitting(id, algorithm);
    if fitting.is_empty() {
        return Err(TokenError::UnknownKey);
    }
    if fitting.verify(token.signed, &token.signature) { Ok(()) } else { Err(TokenError::Signature) }
}

async fn verify_shared(secrets: &Secrets, name: &str, token: &ParsedToken<'_>) -> Result<(), TokenError> {
    if token.header.alg != "HS256" {
        return Err(TokenError::Algorithm);
    }
    let unavailable = |error| TokenError::SecretUnavailable(Arc::new(error));
    let values = secrets.get(name).await.map_err(unavailable)?;
    if is_signed_with(&values, token) {
        return Ok(());
    }
    let renewed = secrets.renewed(name).await.map_err(unavailable)?;
    if !Arc::ptr_eq(&values, &renewed) && is_signed_with(&renewed, token) {
        return Ok(());
    }
    Err(TokenError::Signature)
}

fn is_signed_with(values: &SecretValues, token: &ParsedToken<'_>) -> bool {
    values.iter().any(|value| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, value);
        hmac::verify(&key, token.signed, &token.signature).is_ok()
    })
}

fn judge(rules: &Jwt, claims: &Map<String, Value>, now: Timestamp) -> Result<Claims, TokenError> {
    if claims.get("iss").and_then(Value::as_str) != Some(rules.issuer.as_str()) {
        return Err(TokenError::Issuer);
    }
    if !texts(claims.get("aud")).any(|audience| audience == rules.audience) {
        return Err(TokenError::Audience);
    }
    let expires_at = moment(claims, "exp")?.ok_or(TokenError::Claim("exp"))?;
    if now >= expires_at {
        return Err(TokenError::Expired);
    }
    for name in ["nbf", "iat"] {
        if moment(claims, name)?.is_some_and(|at| at > now + LEEWAY) {
            return Err(TokenError::NotYet);
        }
    }
    let subject = claims.get("sub").and_then(Value::as_str).filter(|subject| is_name(subject));
    let named: BTreeSet<Role> =
        texts(claims.get(rules.role_claim.as_str())).filter_map(Role::from_word).collect();
    Ok(Claims {
        subject: subject.ok_or(TokenError::Claim("sub"))?.to_owned(),
        roles: named.into_iter().collect(),
        expires_at,
    })
}

/// A string claim, or a list of strings.
fn texts(claim: Option<&Value>) -> impl Iterator<Item = &str> {
    let several = claim.and_then(Value::as_array).into_iter().flatten();
    claim.into_iter().chain(several).filter_map(Value::as_str)
}

/// Unix seconds; fractions are dropped.
fn moment(claims: &Map<String, Value>, name: &'static str) -> Result<Option<Timestamp>, TokenError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let whole = value.as_u64().map(Duration::from_secs);
    let span = whole.or_else(|| {
        // Larger values are out of range.
        Duration::try_from_secs_f64(value.as_f64()?.trunc()).ok()
    });
    Ok(Some(Timestamp::EPOCH + span.ok_or(TokenError::Claim(name))?))
}

fn is_name(subject: &str) -> bool {
    (1..=SUBJECT_BYTES_MAX).contains(&subject.len()) && !subject.chars().any(char::is_control)
}

#[cfg(test)]
mod tests;
