//! Signatures by Standard Webhooks: HMAC-SHA256 of `id.timestamp.body`.
//!
//! Every call uses the current secret, so a rotated one takes effect at once; keys are rebuilt only when it
//! has changed.
//!
//! Invariants: neither an error nor `Debug` shows a key; a call that should be signed is signed or not made.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use zeroize::Zeroizing;

use crate::secret::{SecretError, SecretValues, Secrets};

const PREFIX: &[u8] = b"whsec_";

pub struct Signing {
    secrets: Secrets,
    name: String,
    made: Mutex<Option<(Arc<SecretValues>, Arc<Signer>)>>,
}

impl Signing {
    #[must_use]
    pub fn new(secrets: Secrets, name: &str) -> Self {
        Self { secrets, name: name.to_owned(), made: Mutex::new(None) }
    }

    /// The current signer, if the secret is available within the limit.
    pub(super) async fn signer(&self, limit: Duration) -> Result<Arc<Signer>, Unsigned> {
        let unsigned = |why| Unsigned { name: self.name.clone(), why };
        let values = self.secrets.get_within(&self.name, limit).await;
        let values = values.map_err(|error| unsigned(error.into()))?;
        let mut made = self.made.lock().expect("lock is not poisoned");
        if let Some((of, signer)) = &*made
            && Arc::ptr_eq(of, &values)
        {
            return Ok(Arc::clone(signer));
        }
        let signer = Arc::new(Signer::new(values.iter()).map_err(|error| unsigned(error.into()))?);
        *made = Some((values, Arc::clone(&signer)));
        Ok(signer)
    }
}

/// Without the value.
impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signing").field(&self.name).finish()
    }
}

pub(crate) fn check(values: &SecretValues) -> Result<(), InvalidSecret> {
    Signer::new(values.iter()).map(drop)
}

#[derive(Debug, thiserror::Error)]
#[error("call not made, signing failed: secret `{name}`: {why}")]
pub(super) struct Unsigned {
    name: String,
    why: WhyUnsigned,
}

#[derive(Debug, thiserror::Error)]
enum WhyUnsigned {
    #[error(transparent)]
    Missing(#[from] SecretError),
    #[error(transparent)]
    Invalid(#[from] InvalidSecret),
}

/// Newest first; during rotation there are two.
#[derive(Debug)]
pub(super) struct Signer {
    keys: Vec<hmac::Key>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    #[error("the secret is empty")]
    Empty,
    #[error("secret begins with `whsec_`, but the rest is not base64")]
    NotBase64,
}

impl Signer {
    fn new<'a>(secrets: impl Iterator<Item = &'a [u8]>) -> Result<Self, InvalidSecret> {
        let keys: Vec<hmac::Key> = secrets.map(key).collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(InvalidSecret::Empty) } else { Ok(Self { keys }) }
    }

    /// The `webhook-signature` header: one signature per key.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let head = format!("{id}.{timestamp}.");
        let signatures = self.keys.iter().map(|key| {
            let mut context = hmac::Context::with_key(key);
            context.update(head.as_bytes());
            context.update(body);
            format!("v1,{}", STANDARD.encode(context.sign()))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

/// `whsec_` and base64, or the bytes themselves.
pub(crate) fn key(secret: &[u8]) -> Result<hmac::Key, InvalidSecret> {
    let bytes = Zeroizing::new(match secret.strip_prefix(PREFIX) {
        Some(text) => STANDARD.decode(text).map_err(|_| InvalidSecret::NotBase64)?,
        None => secret.to_vec(),
    });
    if bytes.is_empty() {
        return Err(InvalidSecret::Empty);
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

#[cfg(test)]
mod tests {
    use ring::digest::{SHA256, digest};

    use super::*;

    fn signer_of(secrets: &[&[u8]]) -> Result<Signer, InvalidSecret> {
        Signer::new(secrets.iter().copied())
    }

    /// HMAC as RFC 2104 writes it down, and by nobody's library.
    fn by_hand(key: &[u8], message: &[u8]) -> Vec<u8> {
        let mut block = [0_u8; 64];
        block[..key.len()].copy_from_slice(key);
        let inner = block.map(|byte| byte ^ 0x36);
        let outer = block.map(|byte| byte ^ 0x5c);
        let inner = digest(&SHA256, &[&inner, message].concat());
        digest(&SHA256, &[&outer, inner.as_ref()].concat()).as_ref().to_vec()
    }

    #[test]
    fn signatures_are_those_of_the_standard() {
        let secret = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_vec();
        let signer = signer_of(&[&secret]).expect("a secret");
        let body = br#"{"test": 2432232314}"#;
        let signature = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        // The example that the standard's own libraries are tested with.
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");

        let raw = b"not base64 at all".to_vec();
        let both = signer_of(&[&raw, &secret]).expect("secrets");
        let message = [b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.".as_slice(), body].concat();
        let expected = format!("v1,{} {signature}", STANDARD.encode(by_hand(&raw, &message)));
        assert_eq!(both.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body), expected);
    }

    #[test]
    fn secrets_that_are_none_are_refused_and_never_shown() {
        #[rustfmt::skip]
        let cases: [(&str, &[&[u8]], InvalidSecret); 4] = [
            ("none at all",      &[],                      InvalidSecret::Empty),
            ("an empty one",     &[b""],                   InvalidSecret::Empty),
            ("a bare prefix",    &[b"whsec_"],             InvalidSecret::Empty),
            ("no base64",        &[b"whsec_hunter2!"],     InvalidSecret::NotBase64),
        ];
        for (name, secrets, expected) in cases {
            assert_eq!(signer_of(secrets).err(), Some(expected), "{name}");
        }
        let shown = format!("{:?}", signer_of(&[b"hunter2"]).expect("a secret"));
        assert!(!shown.contains("hunter2") && !shown.contains("104"), "{shown}");
    }
}
