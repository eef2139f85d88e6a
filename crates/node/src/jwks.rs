//! An issuer's published keys (JWKS, RFC 7517): fetched, cached, and kept through an outage.
//!
//! They are fresh for 5 minutes and usable for 24 hours while the issuer is unreachable. That is longer than
//! for secrets: these keys are public, tokens of a lost key expire by themselves, and an issuer that is down
//! overnight should not lock operators out. An unknown key causes one fetch, at most every 30 seconds.
//!
//! Invariants: a key is used only for its own algorithm; a response without usable keys never replaces one
//! that had some.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redrive_core::freshness::Lifetimes;
use redrive_core::text::show_rounded;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

use crate::outage::{OutageRecord, OutageReport};
use crate::target::http::fetch::{FetchBounds, FetchedDocument, HttpFetchError};
use crate::target::http::{InvalidTargetAddress, Pool};
use redrive::stale::{
    Cached, ClockFn, FetchError, Missing, StaleCache, StalePlan, UnavailableValue, timer_clock,
};

const LIFETIMES: Lifetimes = Lifetimes {
    fresh: Duration::from_mins(5),
    kept: Duration::from_hours(24),
    failure: Duration::from_secs(5),
};

const RENEW_EVERY: Duration = Duration::from_secs(30);

const BOUNDS: FetchBounds = FetchBounds { whole: Duration::from_secs(10), bytes_max: 1024 * 1024 };

const KEYS_MAX: usize = 100;

/// RSA modulus, in bytes: 2048 to 8192 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// RSA public exponent, in bytes; nearly all have 3.
const EXPONENT_BYTES_MAX: usize = 4;

/// A P-256 coordinate, in bytes.
const COORDINATE_BYTES: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAlgorithm {
    Rs256,
    Es256,
}

pub(crate) struct Issuer {
    cache: StaleCache<KeySet, KeysError>,
    clock: ClockFn,
    record: Mutex<OutageRecord>,
    listener: OnceLock<KeysListener>,
}

/// Called when keys become unavailable, and when they are available again.
pub(crate) type KeysListener = Box<dyn Fn(KeysChange) + Send + Sync>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysChange {
    Gone { why: String },
    Back,
}

impl std::fmt::Display for KeysChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone { why } => write!(f, "issuer keys unavailable, tokens are refused: {why}"),
            Self::Back => f.write_str("issuer keys available again"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error(transparent)]
    NotFetched(#[from] HttpFetchError),
    #[error("response is not a key set")]
    NotKeys,
    #[error("response has more than 100 keys")]
    TooMany,
    #[error("response has no key for RS256 or ES256")]
    NoneOfUse,
}

impl Issuer {
    pub(crate) fn new(address: &str, pool: Arc<Pool>) -> Result<Self, InvalidTargetAddress> {
        let document = Arc::new(FetchedDocument::new(address, pool, BOUNDS)?);
        let clock = timer_clock();
        let plan = StalePlan { lifetimes: LIFETIMES, limit: BOUNDS.whole, clock: Arc::clone(&clock) };
        let cache = StaleCache::new(plan, move || {
            let document = Arc::clone(&document);
            async move { KeySet::parse(&document.fetch().await?) }
        });
        Ok(Self { cache, clock, record: Mutex::new(OutageRecord::new()), listener: OnceLock::new() })
    }

    /// Only the first listener is called.
    pub(crate) fn listen(&self, listener: KeysListener) {
        let _ = self.listener.set(listener);
    }

    /// Cached keys at once, else after a fetch.
    pub(crate) async fn keys(&self) -> Result<Arc<KeySet>, Arc<FetchError<KeysError>>> {
        self.judge(self.cache.get().await)
    }

    pub(crate) async fn renewed(&self) -> Result<Arc<KeySet>, Arc<FetchError<KeysError>>> {
        self.judge(self.cache.renewed(RENEW_EVERY).await)
    }

    pub(crate) fn failing(&self) -> Option<UnavailableValue> {
        self.record.lock().expect("lock is not poisoned").failing()
    }

    #[cfg(test)]
    pub(crate) fn failure(&self) -> Option<String> {
        self.cache.known()?.failure.map(|failure| failure.to_string())
    }

    fn judge(
        &self,
        found: Result<Cached<KeySet, KeysError>, Missing<KeysError>>,
    ) -> Result<Arc<KeySet>, Arc<FetchError<KeysError>>> {
        let report = self.record.lock().expect("lock is not poisoned").observe(&found, (self.clock)());
        match (report, &found) {
            (OutageReport::Warning, Ok(Cached { age, failure: Some(error), .. })) => {
                let age = show_rounded(*age);
                tracing::warn!(age, %error, "issuer keys not fetched, using cached keys");
            }
            (OutageReport::Alert, Err(error)) => {
                tracing::error!(%error, "issuer keys unavailable, tokens are refused");
                self.report(|| KeysChange::Gone { why: error.to_string() });
            }
            (OutageReport::Recovered, _) => tracing::info!("issuer keys fetched again"),
            (OutageReport::Back, _) => {
                tracing::info!("issuer keys available again");
                self.report(|| KeysChange::Back);
            }
            (OutageReport::Nothing | OutageReport::Warning | OutageReport::Alert, _) => {}
        }
        found.map(|found| found.value).map_err(|missing| missing.failure)
    }

    fn report(&self, change: impl FnOnce() -> KeysChange) {
        if let Some(listener) = self.listener.get() {
            listener(change());
        }
    }
}

pub(crate) struct KeySet {
    keys: Vec<PublicKey>,
}

struct PublicKey {
    id: Option<String>,
    material: KeyMaterial,
}

enum KeyMaterial {
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// Uncompressed.
    P256(UnparsedPublicKey<Vec<u8>>),
}

/// Fields that are not listed are not used.
#[derive(Deserialize)]
struct RawKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct RawSet {
    keys: Vec<serde_json::Value>,
}

impl KeySet {
    /// Keeps the keys that can verify a token; sets contain others too.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, KeysError> {
        let raw: RawSet = serde_json::from_slice(bytes).map_err(|_| KeysError::NotKeys)?;
        if raw.keys.len() > KEYS_MAX {
            return Err(KeysError::TooMany);
        }
        let usable = raw.keys.into_iter().filter_map(|raw| PublicKey::of(serde_json::from_value(raw).ok()?));
        let keys: Vec<PublicKey> = usable.collect();
        if keys.is_empty() { Err(KeysError::NoneOfUse) } else { Ok(Self { keys }) }
    }

    /// The candidates for a token's key id; without an id the issuer must have exactly one key of the
    /// algorithm.
    pub(crate) fn fitting(&self, id: Option<&str>, algorithm: KeyAlgorithm) -> Fitting<'_> {
        let mut keys: Vec<&PublicKey> = self.keys.iter().collect();
        keys.retain(|key| key.algorithm() == algorithm && (id.is_none() || key.id.as_deref() == id));
        if id.is_none() && keys.len() > 1 {
            keys.clear();
        }
        Fitting(keys)
    }
}

pub(crate) struct Fitting<'a>(Vec<&'a PublicKey>);

impl Fitting<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn verify(&self, signed: &[u8], signature: &[u8]) -> bool {
        self.0.iter().any(|key| match &key.material {
            KeyMaterial::Rsa(key) => key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok(),
            KeyMaterial::P256(key) => key.verify(signed, signature).is_ok(),
        })
    }
}

impl PublicKey {
    fn of(raw: RawKey) -> Option<Self> {
        let RawKey { kty, kid, alg, purpose, key_ops, crv, n, e, x, y } = raw;
        let is_for_signatures = purpose.is_none_or(|purpose| purpose == "sig")
            && key_ops.is_none_or(|operations| operations.iter().any(|operation| operation == "verify"));
        if !is_for_signatures {
            return None;
        }
        let is_for = |name: &str| alg.as_deref().is_none_or(|alg| alg == name);
        let material = match (kty.as_str(), crv.as_deref()) {
            ("RSA", _) if is_for("RS256") => rsa(&n?, &e?)?,
            ("EC", Some("P-256")) if is_for("ES256") => p256(&x?, &y?)?,
            _ => return None,
        };
        Some(Self { id: kid, material })
    }

    fn algorithm(&self) -> KeyAlgorithm {
        match self.material {
            KeyMaterial::Rsa(_) => KeyAlgorithm::Rs256,
            KeyMaterial::P256(_) => KeyAlgorithm::Es256,
        }
    }
}

fn rsa(modulus: &str, exponent: &str) -> Option<KeyMaterial> {
    let (n, e) = (number(modulus)?, number(exponent)?);
    let is_fit = MODULUS_BYTES.contains(&n.len()) && (1..=EXPONENT_BYTES_MAX).contains(&e.len());
    is_fit.then_some(KeyMaterial::Rsa(RsaPublicKeyComponents { n, e }))
}

/// Strips leading zeros, which some issuers write against the standard.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let first = bytes.iter().position(|byte| *byte != 0)?;
    Some(bytes[first..].to_vec())
}

fn p256(x: &str, y: &str) -> Option<KeyMaterial> {
    let [x, y] = [x, y].map(|text| URL_SAFE_NO_PAD.decode(text).ok().filter(|c| c.len() == COORDINATE_BYTES));
    // Marks an uncompressed point.
    let point = [vec![0x04], x?, y?].concat();
    Some(KeyMaterial::P256(UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)))
}

#[cfg(test)]
mod tests;
