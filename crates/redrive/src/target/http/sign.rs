//! Signatures by Standard Webhooks, so that a target knows who calls: HMAC-SHA256 of `id.timestamp.body`.
//!
//! Invariant: keys are seen by nobody; neither an error nor `Debug` shows any of one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// What a secret begins with that is written in base64.
const PREFIX: &[u8] = b"whsec_";

/// The keys that calls are signed with, the newest first; while keys are changed there are two.
#[derive(Debug)]
pub(super) struct Signer {
    keys: Vec<hmac::Key>,
}

/// Why a secret cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// There is none.
    #[error("the secret is empty")]
    Empty,
    /// It claims to be base64.
    #[error("the secret begins with `whsec_`, and what follows is no base64")]
    NotBase64,
}

impl Signer {
    /// Takes each secret as `whsec_` and base64, or else byte for byte.
    pub(super) fn new(secrets: &[Vec<u8>]) -> Result<Self, InvalidSecret> {
        if secrets.is_empty() {
            return Err(InvalidSecret::Empty);
        }
        Ok(Self { keys: secrets.iter().map(|secret| key(secret)).collect::<Result<_, _>>()? })
    }

    /// The value of `webhook-signature`: one signature for each key.
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

fn key(secret: &[u8]) -> Result<hmac::Key, InvalidSecret> {
    let bytes = match secret.strip_prefix(PREFIX) {
        Some(text) => STANDARD.decode(text).map_err(|_| InvalidSecret::NotBase64)?,
        None => secret.to_vec(),
    };
    if bytes.is_empty() {
        return Err(InvalidSecret::Empty);
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

#[cfg(test)]
mod tests {
    use ring::digest::{SHA256, digest};

    use super::*;

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
        let signer = Signer::new(std::slice::from_ref(&secret)).expect("a secret");
        let body = br#"{"test": 2432232314}"#;
        let signature = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        // The example that the standard's own libraries are tested with.
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");

        let raw = b"not base64 at all".to_vec();
        let both = Signer::new(&[raw.clone(), secret]).expect("secrets");
        let message = [b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.".as_slice(), body].concat();
        let expected = format!("v1,{} {signature}", STANDARD.encode(by_hand(&raw, &message)));
        assert_eq!(both.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body), expected);
    }

    #[test]
    fn secrets_that_are_none_are_refused_and_never_shown() {
        #[rustfmt::skip]
        let cases: [(&str, &[Vec<u8>], InvalidSecret); 4] = [
            ("none at all",      &[],                               InvalidSecret::Empty),
            ("an empty one",     &[Vec::new()],                     InvalidSecret::Empty),
            ("a bare prefix",    &[b"whsec_".to_vec()],             InvalidSecret::Empty),
            ("no base64",        &[b"whsec_hunter2!".to_vec()],     InvalidSecret::NotBase64),
        ];
        for (name, secrets, expected) in cases {
            assert_eq!(Signer::new(secrets).err(), Some(expected), "{name}");
        }
        let shown = format!("{:?}", Signer::new(&[b"hunter2".to_vec()]).expect("a secret"));
        assert!(!shown.contains("hunter2") && !shown.contains("104"), "{shown}");
    }
}
