//! Bearer tokens (JWT, RFC 7519): who sent a request, as somebody says whom the book believes.
//!
//! A token is read in the order in which it can do harm: its size, its form, its algorithm, its signature, and
//! only then what it says. The algorithm is the book's choice and never the token's: with a secret it is
//! HS256, with published keys it is that of the key, RS256 or ES256. `none` is no algorithm.
//!
//! Invariants: nothing that a token says is looked at before its signature fits, but for the algorithm and
//! the name of its key; and no error, log or `Debug` shows any of a token.

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

use crate::jwks::{Algorithm, Issuer};
use crate::secret::{SecretError, SecretValues, Secrets};
use crate::target::http::{InvalidAddress, Pool};
use redrive::stale::{Ailing, Trouble};

pub use crate::jwks::{KeysError, KeysNews};
pub use crate::target::http::fetch::FetchError;

/// The largest token that is looked at.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// How far the clock of the issuer may be ahead of ours.
const LEEWAY: Duration = Duration::from_secs(60);

/// The longest name of a caller: it is kept with everything that the caller does.
const SUBJECT_BYTES_MAX: usize = 256;

/// The longest that who asks after the issuer's health waits for its keys.
const ASK_AFTER_MAX: Duration = Duration::from_millis(100);

/// Reads the tokens of one issuer.
pub struct Tokens {
    rules: Jwt,
    keys: Keys,
}

enum Keys {
    /// Published by the issuer.
    Published(Issuer),
    /// Shared with the issuer.
    Shared { secrets: Secrets, name: String },
}

/// What a token says of whoever carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Who it is.
    pub subject: String,
    /// What they may do; names that nobody knows are left out.
    pub roles: Vec<Role>,
    /// From when on the token says nothing any more.
    pub expires_at: Timestamp,
}

/// Why a token is not believed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TokenError {
    /// It is larger than any token.
    #[error("the token is larger than 16 KiB")]
    TooLarge,
    /// It is not a signed token.
    #[error("the token is not a signed JWT")]
    Malformed,
    /// It is signed in a way that the book does not ask for.
    #[error("the token is signed by an algorithm that is not expected")]
    Algorithm,
    /// It asks for something that must be understood and is not.
    #[error("the token has critical headers")]
    Critical,
    /// The issuer has no such key.
    #[error("the token is signed with a key that the issuer does not publish")]
    UnknownKey,
    /// Its signature does not fit.
    #[error("the signature of the token does not fit")]
    Signature,
    /// A claim is missing or of the wrong kind.
    #[error("the token has no usable claim `{0}`")]
    Claim(&'static str),
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not begun.
    #[error("the token is not valid yet")]
    NotYet,
    /// Somebody else has issued it.
    #[error("the token is of another issuer")]
    Issuer,
    /// It is meant for somebody else.
    #[error("the token is for another audience")]
    Audience,
    /// What it would be checked with cannot be had: nobody knows whether it is good.
    #[error("tokens cannot be checked now: {0}")]
    KeysUnavailable(Arc<Trouble<KeysError>>),
    /// The same of a secret.
    #[error("tokens cannot be checked now: {0}")]
    SecretUnavailable(Arc<SecretError>),
}

impl TokenError {
    /// Whether it is ours or the issuer's fault (503), and not that of whoever sent the token (401).
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
    /// Reads tokens by these rules; keys are fetched when the first token comes.
    pub fn new(rules: &Jwt, secrets: Secrets, pool: Arc<Pool>) -> Result<Self, InvalidAddress> {
        let keys = match &rules.keys {
            JwtKeys::Jwks(address) => Keys::Published(Issuer::new(address, pool)?),
            JwtKeys::Secret(name) => Keys::Shared { secrets, name: name.clone() },
        };
        Ok(Self { rules: rules.clone(), keys })
    }

    /// Whether it reads by these rules: then another book may keep it, with the keys that it has.
    #[must_use]
    pub fn is_by(&self, rules: &Jwt) -> bool {
        self.rules == *rules
    }

    /// Whose tokens it reads.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.rules.issuer
    }

    /// Fetches the keys, so that the first who brings a token need not wait for them.
    pub async fn warm(&self) {
        if let Keys::Published(issuer) = &self.keys {
            // What goes wrong is logged in the course of it.
            let _ = issuer.keys().await;
        }
    }

    /// Whoever is to hear that the issuer's keys cannot be had, and that they can again; only the
    /// first to come is told. Of a shared secret, whoever listens to the secrets hears.
    pub fn listen(&self, listener: impl Fn(KeysNews) + Send + Sync + 'static) {
        if let Keys::Published(issuer) = &self.keys {
            issuer.listen(Box::new(listener));
        }
    }

    /// What is wrong with fetching the keys that the issuer publishes, if anything is; a secret that is shared
    /// with it is among the [`Secrets`].
    pub async fn ailing(&self) -> Option<Ailing> {
        let Keys::Published(issuer) = &self.keys else { return None };
        issuer.ailing()?;
        // It may have healed though nobody has brought a token since.
        let _ = timeout(ASK_AFTER_MAX, issuer.keys()).await;
        issuer.ailing()
    }

    /// Whom a token speaks of, if it is good at that time of the wall clock.
    pub async fn verify(&self, token: &str, now: Timestamp) -> Result<Claims, TokenError> {
        let token = Token::parse(token)?;
        match &self.keys {
            Keys::Published(issuer) => verify_published(issuer, &token).await?,
            Keys::Shared { secrets, name } => verify_shared(secrets, name, &token).await?,
        }
        let claims = serde_json::from_slice(&token.claims).map_err(|_| TokenError::Malformed)?;
        judge(&self.rules, &claims, now)
    }
}

/// Whose tokens, and not with what they are checked.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("issuer", &self.rules.issuer).finish_non_exhaustive()
    }
}

/// A token taken apart; its claims are bytes until its signature was checked.
struct Token<'a> {
    header: Header,
    signed: &'a [u8],
    claims: Vec<u8>,
    signature: Vec<u8>,
}

/// What a token says of its signature. Keys that it brings along or points to are not looked at.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

impl<'a> Token<'a> {
    fn parse(text: &'a str) -> Result<Self, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLarge);
        }
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed);
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let header: Header = serde_json::from_slice(&decoded(header)?).map_err(|_| TokenError::Malformed)?;
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

async fn verify_published(issuer: &Issuer, token: &Token<'_>) -> Result<(), TokenError> {
    let algorithm = match token.header.alg.as_str() {
        "RS256" => Algorithm::Rs256,
        "ES256" => Algorithm::Es256,
        _ => return Err(TokenError::Algorithm),
    };
    let id = token.header.kid.as_deref();
    let mut keys = issuer.keys().await.map_err(TokenError::KeysUnavailable)?;
    if keys.fitting(id, algorithm).is_empty() {
        // The issuer may have a new one.
        keys = issuer.renewed().await.map_err(TokenError::KeysUnavailable)?;
    }
    let fitting = keys.fitting(id, algorithm);
    if fitting.is_empty() {
        return Err(TokenError::UnknownKey);
    }
    if fitting.verify(token.signed, &token.signature) { Ok(()) } else { Err(TokenError::Signature) }
}

async fn verify_shared(secrets: &Secrets, name: &str, token: &Token<'_>) -> Result<(), TokenError> {
    if token.header.alg != "HS256" {
        return Err(TokenError::Algorithm);
    }
    let unavailable = |error| TokenError::SecretUnavailable(Arc::new(error));
    let values = secrets.get(name).await.map_err(unavailable)?;
    if is_signed_with(&values, token) {
        return Ok(());
    }
    // The secret may have been changed since it was fetched.
    let renewed = secrets.renewed(name).await.map_err(unavailable)?;
    if !Arc::ptr_eq(&values, &renewed) && is_signed_with(&renewed, token) {
        return Ok(());
    }
    Err(TokenError::Signature)
}

fn is_signed_with(values: &SecretValues, token: &Token<'_>) -> bool {
    values.iter().any(|value| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, value);
        hmac::verify(&key, token.signed, &token.signature).is_ok()
    })
}

/// Holds what a token says, once it is known who has said it, against the rules.
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

/// The texts of a claim that is one, or a list of some.
fn texts(claim: Option<&Value>) -> impl Iterator<Item = &str> {
    let several = claim.and_then(Value::as_array).into_iter().flatten();
    claim.into_iter().chain(several).filter_map(Value::as_str)
}

/// A claim that is a point in time, in seconds since 1970; parts of a second are left out.
fn moment(claims: &Map<String, Value>, name: &'static str) -> Result<Option<Timestamp>, TokenError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let whole = value.as_u64().map(Duration::from_secs);
    let span = whole.or_else(|| {
        // Beyond what a span can hold lies no time either.
        Duration::try_from_secs_f64(value.as_f64()?.trunc()).ok()
    });
    Ok(Some(Timestamp::EPOCH + span.ok_or(TokenError::Claim(name))?))
}

/// Whether a caller can be shown and kept by that name.
fn is_name(subject: &str) -> bool {
    (1..=SUBJECT_BYTES_MAX).contains(&subject.len()) && !subject.chars().any(char::is_control)
}

#[cfg(test)]
mod tests;
